"""How many rows an image becomes: the placeholders that vLLM puts into its prompt.

Gundam is what vLLM runs DeepSeek-OCR with: a global view of 1024 x 1024 and, unless the image fits
into one tile, a mosaic of tiles of 640 x 640.
"""

from __future__ import annotations

from typing import NamedTuple

TILE_SIDE = 640  # pixels
BASE_SIDE = 1024
TILE_GRID_SIDE = 10  # embeddings along a tile's side
BASE_GRID_SIDE = 16
BASE_ROWS = BASE_GRID_SIDE * (BASE_GRID_SIDE + 1) + 1  # a newline per row, the view separator
VLLM_MAX_TILES = 6
"""vLLM's MAX_CROPS: a constant there, so it has to be the same here."""


class TileGrid(NamedTuple):
    """Columns and rows of the mosaic; (1, 1): no tiles."""

    columns: int
    rows: int


def tile_grid(width: int, height: int, max_tiles: int = VLLM_MAX_TILES) -> TileGrid:
    """The mosaic of an upright image of that size in pixels."""
    if width < 1 or height < 1:
        raise ValueError(f"an image of {width} x {height} has no pixels")
    if max_tiles < 4:  # with 2 or 3 the reference's result depends on the order of a set
        raise ValueError(f"max_tiles: {max_tiles} is less than 4")
    if width <= TILE_SIDE and height <= TILE_SIDE:
        return TileGrid(1, 1)
    aspect = width / height
    best, best_difference = TileGrid(1, 1), float("inf")
    # Doubles compared exactly, as the reference does: midpoints go the way rounding sends them.
    for tiles in range(2, max_tiles + 1):
        for columns in (c for c in range(1, tiles + 1) if tiles % c == 0):
            grid = TileGrid(columns, tiles // columns)
            difference = abs(aspect - grid.columns / grid.rows)
            fills_half = width * height > 0.5 * TILE_SIDE * TILE_SIDE * tiles
            if difference < best_difference or (difference == best_difference and fills_half):
                best, best_difference = grid, difference
    return best


def grid_rows(grid: TileGrid) -> int:
    """Embedding rows of an image with that mosaic: [mosaic][global view][view separator]."""
    if grid == (1, 1):
        return BASE_ROWS
    return BASE_ROWS + TILE_GRID_SIDE * grid.rows * (TILE_GRID_SIDE * grid.columns + 1)


def prompt_rows(width: int, height: int, max_tiles: int = VLLM_MAX_TILES) -> int:
    """Placeholder tokens of an upright image of that size in pixels."""
    return grid_rows(tile_grid(width, height, max_tiles))
