"""Requests and replies as bytes.

An image or its embeddings are most of a message. They are joined to, and split from, the rest here:
the protobuf package would copy them twice more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from google.protobuf.message import DecodeError

from .embeddings import Embeddings, Geometry, Timings
from .errors import ReplyError
from .images import Payload
from .options import DType
from .protocol import EncodeImageRequest, EncodeImageResponse, RawImage, name_of, number_of

if TYPE_CHECKING:
    from .shared_memory import Block

# Wire types of https://protobuf.dev/programming-guides/encoding
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_STORED: dict[str, np.dtype[Any]] = {
    "bf16": np.dtype("<u2"),
    "fp16": np.dtype("<f2"),
    "fp32": np.dtype("<f4"),
}
_ENUM_OPTIONS = {
    "mode": "Mode",
    "dtype": "DType",
    "alpha": "AlphaPolicy",
    "gray16": "Gray16Policy",
}


def build_request(
    payload: Payload,
    options: Mapping[str, Any],
    handle: str = "",
    block: Block | None = None,
) -> bytes:
    """An EncodeImageRequest; `options` are checked. block: where the image lies, in that region."""
    message = EncodeImageRequest()
    for option, enum in _ENUM_OPTIONS.items():
        if options.get(option) is not None:
            setattr(message, option, number_of(enum, options[option]))
    if options.get("max_tiles") is not None:
        message.max_tiles = options["max_tiles"]
    if block is not None:
        image = message.raw.rgb_range if payload.width else message.encoded_range
        image.handle, image.offset, image.size = handle, block.offset, block.image_bytes
        if payload.width:
            message.raw.width, message.raw.height = payload.width, payload.height
        reply = message.reply_range
        reply.handle, reply.offset, reply.size = handle, block.reply_offset, block.reply_bytes
        return cast(bytes, message.SerializeToString())
    head = message.SerializeToString()
    if payload.width == 0:
        return b"".join(
            (head, _start(EncodeImageRequest, "encoded", len(payload.data)), payload.data)
        )
    raw = RawImage(width=payload.width, height=payload.height).SerializeToString()
    raw += _start(RawImage, "rgb", len(payload.data))
    start = _start(EncodeImageRequest, "raw", len(raw) + len(payload.data))
    return b"".join((head, start, raw, payload.data))


def parse_reply(reply: bytes, block: Block | None = None) -> Embeddings:
    """An EncodeImageResponse, whose rows stay where they are, or in `block`. Raises ReplyError."""
    try:
        rest, data = _split(reply, EncodeImageResponse.DESCRIPTOR.fields_by_name["data"].number)
        message = EncodeImageResponse.FromString(rest)
    except (DecodeError, IndexError) as error:
        raise ReplyError(f"the server's reply of {len(reply)} bytes is damaged") from error
    if block is not None and message.shared_bytes:
        if message.shared_bytes > block.reply_bytes:
            raise ReplyError(
                f"the server's reply has {message.shared_bytes} bytes in shared memory"
            )
        data = memoryview(block.rows(message.shared_bytes))
    dtype, shape = name_of("DType", message.dtype), tuple(message.shape)
    if dtype not in _STORED or len(shape) != 2:
        raise ReplyError(f"the server's reply has dtype {message.dtype} and shape {shape}")
    stored = _STORED[dtype]
    if shape[0] * shape[1] * stored.itemsize != len(data):
        raise ReplyError(
            f"the server's reply of shape {shape} in {dtype} has {len(data)} bytes of rows"
        )
    rows = np.frombuffer(data, dtype=stored).reshape(shape)
    geometry, timings = message.geometry, message.timings
    return Embeddings(
        stored=rows,
        dtype=cast(DType, dtype),
        geometry=Geometry(
            image_width=geometry.image_width,
            image_height=geometry.image_height,
            tile_columns=geometry.tile_columns,
            tile_rows=geometry.tile_rows,
            base_side=geometry.base_side,
            tile_side=geometry.tile_side,
            local_rows=geometry.local_rows,
            global_rows=geometry.global_rows,
        ),
        timings=Timings(
            decode=timings.decode,
            views=timings.views,
            queue=timings.queue,
            compute=timings.compute,
            assemble=timings.assemble,
            total=timings.total,
        ),
    )


def _start(message: Any, field: str, size: int) -> bytes:
    """What precedes `size` bytes of a field: tag and length."""
    number = message.DESCRIPTOR.fields_by_name[field].number
    return _varint(number << 3 | _BYTES) + _varint(size)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends. Raises IndexError if the message ends first."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _split(message: bytes, number: int) -> tuple[bytes, memoryview]:
    """`message` without its field `number`, and that field's bytes (the last, as protobuf says).

    Raises IndexError if the message ends within a field, DecodeError for a wire type of old.
    """
    rest, found = [], memoryview(b"")
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        kind = tag & 7
        size = 0
        if kind == _VARINT:
            _, at = _read_varint(message, at)
        elif kind == _FIXED64:
            size = 8
        elif kind == _FIXED32:
            size = 4
        elif kind == _BYTES:
            size, at = _read_varint(message, at)
        else:
            raise DecodeError(f"wire type {kind}")
        if at + size > len(message):
            raise IndexError("the message ends within a field")
        if tag == number << 3 | _BYTES:
            found = memoryview(message)[at : at + size]
        else:
            rest.append(message[start : at + size])
        at += size
    return b"".join(rest), found
