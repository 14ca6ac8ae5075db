"""python -m deepencoder_vllm write IMAGE --uuid NAME --folder DIR: for ECExampleConnector."""

from __future__ import annotations

import argparse
import sys

from .ec_files import check_key, write_ec_file
from .geometry import VLLM_MAX_TILES
from .versions import CHECKED_VLLM


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m deepencoder_vllm", description=__doc__)
    parser.add_argument(
        "--version", action="version", version=f"checked with vLLM {', '.join(CHECKED_VLLM)}"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="encode an image and leave its rows for vLLM")
    write.add_argument("image")
    write.add_argument("--uuid", required=True, help="the image's uuid in the request")
    write.add_argument("--folder", required=True, help="vLLM's shared_storage_path")
    write.add_argument("--server", help="default: $DEEPENCODER_SERVER, else 127.0.0.1:50051")
    write.add_argument("--dtype", choices=("bf16", "fp16", "fp32"), default="bf16")
    options = parser.parse_args(arguments)

    from deepencoder_client import Client, DeepEncoderError

    try:
        check_key(options.uuid)
        with Client(options.server) as client:
            page = client.encode(
                options.image, mode="gundam", max_tiles=VLLM_MAX_TILES, dtype=options.dtype
            )
        file = write_ec_file(options.folder, options.uuid, page.stored, options.dtype)
    except (DeepEncoderError, OSError, ValueError) as error:
        print(f"deepencoder_vllm: {error}", file=sys.stderr)
        return 1
    print(f"{file}: {page.tokens} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
