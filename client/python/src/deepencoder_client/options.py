"""What a caller can ask of an encode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, get_args

Mode = Literal["tiny", "small", "base", "large", "gundam"]
DType = Literal["bf16", "fp16", "fp32"]
Alpha = Literal["drop", "white"]
Gray16 = Literal["high_byte", "saturate"]

DEFAULT_TIMEOUT = 60.0  # seconds


class EncodeOptions(TypedDict, total=False):
    """Keyword arguments of encode and encode_many. What is left out, the server decides."""

    mode: Mode
    """tiny (73 rows), small (111), base (273), large (421), or gundam (the default: 273, and
    tiles unless the image is small)."""

    max_tiles: int | None
    """Most tiles in gundam, 4 to 32. The language model's must be the same."""

    dtype: DType
    """Of the reply; default bf16."""

    alpha: Alpha | None
    """Transparency: colour as stored, or composited on white."""

    gray16: Gray16 | None
    """How 16-bit greyscale becomes 8-bit."""

    timeout: float | None
    """Seconds for one image, retries included; None: no deadline. Default 60."""

    request_id: str | None
    """Names the call in the server's logs: 1 to 128 printable ASCII characters, no blanks."""

    traceparent: str | None
    """The caller's span, as W3C Trace Context writes it: the server's spans become its children."""


_CHOICES = {"mode": Mode, "dtype": DType, "alpha": Alpha, "gray16": Gray16}


def check_options(options: Mapping[str, Any]) -> None:
    """Raises TypeError for an unknown name and ValueError for an unknown value."""
    for name, value in options.items():
        if name not in EncodeOptions.__annotations__:
            known = ", ".join(EncodeOptions.__annotations__)
            raise TypeError(f"unknown option {name!r}; known: {known}")
        if name in _CHOICES and value is not None and value not in get_args(_CHOICES[name]):
            raise ValueError(
                f"{name}: {value!r} is not one of: {', '.join(get_args(_CHOICES[name]))}"
            )
    max_tiles = options.get("max_tiles")
    if max_tiles is not None and (not isinstance(max_tiles, int) or max_tiles < 1):
        raise ValueError(f"max_tiles: {max_tiles!r} is not a positive number")
