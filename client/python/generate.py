#!/usr/bin/env python3
"""Writes src/deepencoder_client/contract.binpb: the .proto files as one FileDescriptorSet.

The build runs it (hatch_build.py). By hand it serves a checkout that is used without installing:

    pip install grpcio-tools && python client/python/generate.py
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROTOS = HERE.parent.parent / "proto"
CONTRACT = HERE / "src" / "deepencoder_client" / "contract.binpb"
FILES = ["deepencoder/v1/vision_encoder.proto", "deepencoder/wire/rpc_status.proto"]


def generate() -> None:
    """Makes the contract anew; an sdist, which has no proto folder beside it, brings its own."""
    if not (PROTOS / FILES[0]).is_file():
        if CONTRACT.is_file():
            return
        sys.exit(f"generate.py: neither {PROTOS / FILES[0]} nor {CONTRACT} is there")
    # Where the package's own protos (google/protobuf/any.proto) lie is known to it alone.
    import grpc_tools
    from grpc_tools import protoc

    own = Path(grpc_tools.__file__).parent / "_proto"
    arguments = [
        "protoc",
        f"--proto_path={PROTOS}",
        f"--proto_path={own}",
        "--include_imports",
        f"--descriptor_set_out={CONTRACT}",
        *FILES,
    ]
    if protoc.main(arguments) != 0:
        sys.exit("generate.py: protoc failed")


if __name__ == "__main__":
    generate()
