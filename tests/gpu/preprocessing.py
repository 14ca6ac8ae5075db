"""What the host hands to the backend, for tests on a machine that has only Pillow: decoded pixels and resize jobs."""
import numpy as np
from PIL import Image, ImageOps

MODES = {"tiny": (512, 0), "small": (640, 0), "base": (1024, 0), "large": (1280, 0), "gundam": (1024, 640)}
LETTERBOXED = ("base", "large", "gundam")


def load_rgb(path):
    """Upright RGB8, or None where this Pillow and our policy differ (16-bit grey) or it applies no such orientation."""
    image = Image.open(path)
    if image.mode.startswith("I"):
        return None
    return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def tile_grid(width, height, tile, max_tiles):
    if width <= tile and height <= tile:
        return 1, 1
    best, grid, ratio = float("inf"), (1, 1), width / height
    pairs = sorted(((i, j) for i in range(1, max_tiles + 1) for j in range(1, max_tiles + 1)
                    if 2 <= i * j <= max_tiles), key=lambda pair: pair[0] * pair[1])
    for i, j in pairs:
        difference = abs(ratio - i / j)
        if difference < best or (difference == best and width * height > 0.5 * tile * tile * i * j):
            best, grid = difference, (i, j)
    return grid


def jobs_of(width, height, mode, max_tiles=6):
    """([ResizeJob], (columns, rows)): tiles first, then the global view."""
    from cuda_backend import ResizeJob
    base, tile = MODES[mode]
    jobs, grid = [], (1, 1)
    if tile:
        grid = tile_grid(width, height, tile, max_tiles)
        if grid != (1, 1):
            jobs.append(ResizeJob(tile * grid[0], tile * grid[1], tile, *grid, 0, 0))
    if mode in LETTERBOXED:
        ratio = width / height
        inner = (base, base)
        if ratio > 1:
            inner = (base, round(height / width * base))
        elif ratio < 1:
            inner = (round(ratio * base), base)
        left, top = (round((base - side) * 0.5) for side in inner)
        jobs.append(ResizeJob(*inner, base, 1, 1, left, top))
    else:
        jobs.append(ResizeJob(base, base, base, 1, 1, 0, 0))
    return jobs, grid
