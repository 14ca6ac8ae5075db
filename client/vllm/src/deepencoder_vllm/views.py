"""vLLM's processed views back into pixels, and encoded views into the rows of an image.

An EC connector is not told which file or URL an image came from. It is handed what the model would
get: the normalised pixels of the global view and of each tile. Normalising is a one-to-one map of
256 levels in every type that vLLM uses, so the 8-bit pixels come back exactly. A square of 1024 in
mode base, and a square of 640 in mode small, are encoded as they are, without any resizing; so the
service computes on the very pixels that vLLM's own encoder would have had, and what is left is to
lay out the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .geometry import BASE_ROWS, BASE_SIDE, TILE_GRID_SIDE, TILE_SIDE, TileGrid

Pixels = npt.NDArray[np.uint8]
Rows = npt.NDArray[Any]

MODE_OF_SIDE = {BASE_SIDE: "base", TILE_SIDE: "small"}
"""The service's mode that takes a square view as it is."""

_SMALL_ROWS = TILE_GRID_SIDE * (TILE_GRID_SIDE + 1) + 1
_NOT_A_LEVEL = -1


def _normalised_levels() -> npt.NDArray[np.float32]:
    """What the processor makes of the 256 levels: (v / 255 - 0.5) / 0.5, each step in float32."""
    levels = np.arange(256, dtype=np.float32) / np.float32(255)
    return (levels - np.float32(0.5)) / np.float32(0.5)


def bfloat16_bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Upper halves of float32 numbers, rounded to nearest even."""
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    rounded: npt.NDArray[np.uint16] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return rounded


def is_bfloat16(dtype: npt.DTypeLike) -> bool:
    """Whether rows of this type are bf16: its bits in uint16, or ml_dtypes.bfloat16."""
    kind = np.dtype(dtype)
    return kind == np.uint16 or kind.name == "bfloat16"


@cache
def _level_of_bits(dtype: str) -> npt.NDArray[np.int16]:
    """[65536]: the level whose normalised value has these 16 bits, or _NOT_A_LEVEL."""
    values = _normalised_levels()
    bits = bfloat16_bits(values) if dtype == "bf16" else values.astype(np.float16).view(np.uint16)
    table = np.full(1 << 16, _NOT_A_LEVEL, np.int16)
    table[bits] = np.arange(256)
    return table


def _levels(values: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.int16]:
    if dtype in ("bf16", "fp16"):
        return _level_of_bits(dtype)[values.view(np.uint16)]
    levels = np.rint((values * np.float32(0.5) + np.float32(0.5)) * np.float32(255))
    inside = np.nan_to_num(np.clip(levels, 0, 255)).astype(np.int16)
    # Half a level is 4e-3; float32 arithmetic in another order differs by 1e-7.
    exact = np.abs(_normalised_levels()[inside] - values) < 1e-5
    return np.where(exact, inside, np.int16(_NOT_A_LEVEL))


def pixels_of_view(values: npt.NDArray[Any], dtype: str) -> Pixels:
    """[side, side, 3] of a processed view [3, side, side] in "bf16" (its bits), "fp16" or "fp32".

    Raises ValueError if these are not 8-bit pixels normalised as DeepSeek-OCR's processor does it.
    """
    levels = _levels(values, dtype)
    if levels.size and levels.min() == _NOT_A_LEVEL:
        raise ValueError("the view holds numbers that are no normalised 8-bit pixels")
    return np.ascontiguousarray(levels.astype(np.uint8).transpose(1, 2, 0))


def assemble(base: Rows, tiles: Sequence[Rows], grid: TileGrid) -> Rows:
    """The rows of an image: [mosaic][global view][view separator].

    base: the global view's rows in mode base. tiles: each tile's rows in mode small, row by row.
    """
    if base.shape[0] != BASE_ROWS or any(tile.shape[0] != _SMALL_ROWS for tile in tiles):
        raise ValueError(f"rows of another mode: {[view.shape[0] for view in (base, *tiles)]}")
    if not tiles:
        return base
    side, width = TILE_GRID_SIDE, base.shape[1]
    # A tile's rows in mode small: `side` embeddings and a newline, `side` times; the separator.
    views = np.stack(tiles)[:, : side * (side + 1)].reshape(*reversed(grid), side, side + 1, width)
    newline = views[0, 0, 0, side]
    mosaic = np.empty((grid.rows, side, grid.columns * side + 1, width), base.dtype)
    mosaic[:, :, :-1] = (
        views[:, :, :, :side]
        .transpose(0, 2, 1, 3, 4)
        .reshape(grid.rows, side, grid.columns * side, width)
    )
    mosaic[:, :, -1] = newline
    return np.concatenate([mosaic.reshape(-1, width), base])
