"""The progress bar of encode_many."""

from __future__ import annotations

import contextlib
from typing import Any

from .errors import MissingPackageError


def progress_bar(images: Any, wanted: bool) -> Any:
    """A context manager that gives a bar with update(), shown on terminals only, or None."""
    if not wanted:
        return contextlib.nullcontext()
    try:
        from tqdm import tqdm
    except ImportError:
        raise MissingPackageError("tqdm", "progress", "progress=True") from None
    total = len(images) if hasattr(images, "__len__") else None
    return tqdm(total=total, unit="image", disable=None)
