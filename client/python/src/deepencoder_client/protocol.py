"""The contract's messages, made at import from contract.binpb.

Generated modules would tie the package to the protobuf release that generated them; a descriptor
loads into any. It has a pool of its own, so nothing clashes with other packages' copies.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

CONTRACT = "contract.binpb"
ENCODE_IMAGE = "/deepencoder.v1.VisionEncoder/EncodeImage"
GET_MODEL_INFO = "/deepencoder.v1.VisionEncoder/GetModelInfo"
REGISTER_REGION = "/deepencoder.v1.SharedMemory/RegisterRegion"
UNREGISTER_REGION = "/deepencoder.v1.SharedMemory/UnregisterRegion"
HEALTH_CHECK = "/grpc.health.v1.Health/Check"


def _health_file() -> descriptor_pb2.FileDescriptorProto:
    """What is used of gRPC's health protocol; the status, an enum there, is an int32 here."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="grpc/health/v1/health.proto", package="grpc.health.v1", syntax="proto3"
    )
    request = file.message_type.add(name="HealthCheckRequest")
    request.field.add(name="service", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    response = file.message_type.add(name="HealthCheckResponse")
    response.field.add(name="status", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    return file


def _load_pool() -> descriptor_pool.DescriptorPool:
    try:
        contract = resources.files(__name__.rpartition(".")[0]).joinpath(CONTRACT).read_bytes()
    except FileNotFoundError:
        raise ImportError(
            f"deepencoder_client/{CONTRACT} is missing: install the package (pip install "
            "./client/python), or run client/python/generate.py in a checkout"
        ) from None
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(contract).file:
        pool.Add(file)
    pool.Add(_health_file())
    return pool


_pool = _load_pool()


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))


EncodeImageRequest = _message("deepencoder.v1.EncodeImageRequest")
EncodeImageResponse = _message("deepencoder.v1.EncodeImageResponse")
GetModelInfoRequest = _message("deepencoder.v1.GetModelInfoRequest")
ModelInfo = _message("deepencoder.v1.ModelInfo")
RawImage = _message("deepencoder.v1.RawImage")
RegisterRegionRequest = _message("deepencoder.v1.RegisterRegionRequest")
RegisterRegionResponse = _message("deepencoder.v1.RegisterRegionResponse")
UnregisterRegionRequest = _message("deepencoder.v1.UnregisterRegionRequest")
RpcStatus = _message("deepencoder.wire.RpcStatus")
RetryInfo = _message("deepencoder.wire.RetryInfo")
HealthCheckRequest = _message("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = _message("grpc.health.v1.HealthCheckResponse")


@functools.lru_cache  # bounded: a number may be a stranger's
def number_of(enum: str, name: str) -> int:
    """The number of a value: number_of("Mode", "tiny") is that of MODE_TINY."""
    values = _pool.FindEnumTypeByName(f"deepencoder.v1.{enum}").values_by_name
    return int(values[f"{_prefix(enum)}{name.upper()}"].number)


@functools.lru_cache  # bounded: a number may be a stranger's
def name_of(enum: str, number: int) -> str:
    """The other way round; "unknown" for a number of a later contract."""
    value = _pool.FindEnumTypeByName(f"deepencoder.v1.{enum}").values_by_number.get(number)
    return "unknown" if value is None else value.name[len(_prefix(enum)) :].lower()


def _prefix(enum: str) -> str:
    return {
        "Mode": "MODE_",
        "DType": "DTYPE_",
        "AlphaPolicy": "ALPHA_POLICY_",
        "Gray16Policy": "GRAY16_POLICY_",
    }[enum]
