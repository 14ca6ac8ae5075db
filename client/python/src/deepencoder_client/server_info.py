"""What a server says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from .protocol import name_of


class Health(Enum):
    """Answers of gRPC's health protocol."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2  # loading, warming up or draining
    SERVICE_UNKNOWN = 3


@dataclass(frozen=True)
class ModeInfo:
    """One mode that is served. Sides are in pixels."""

    name: str
    base_side: int
    tile_side: int
    """0: no tiles."""
    letterbox: bool
    """Keeps the aspect ratio; False: stretched."""
    rows: int
    """Of the reply without tiles; c x r tiles add 10 r (10 c + 1)."""


@dataclass(frozen=True)
class ModelInfo:
    """What is served."""

    model: str
    weights_fingerprint: str
    embedding_width: int
    compute_dtype: str
    modes: tuple[ModeInfo, ...]
    max_image_bytes: int
    max_image_pixels: int
    min_max_tiles: int
    max_max_tiles: int
    default_max_tiles: int
    device: str
    version: str
    commit: str
    max_shared_memory_bytes: int
    """Of all clients; 0: the server shares no memory."""
    synthetic: bool
    """The weights are made up: the embeddings mean nothing."""

    @classmethod
    def from_message(cls, message: Any) -> ModelInfo:
        """From deepencoder.v1.ModelInfo."""
        limits = message.limits
        return cls(
            model=message.model,
            weights_fingerprint=message.weights_fingerprint,
            embedding_width=message.embedding_width,
            compute_dtype=name_of("DType", message.compute_dtype),
            modes=tuple(
                ModeInfo(mode.name, mode.base_side, mode.tile_side, mode.letterbox, mode.rows)
                for mode in message.modes
            ),
            max_image_bytes=limits.max_image_bytes,
            max_image_pixels=limits.max_image_pixels,
            min_max_tiles=limits.min_max_tiles,
            max_max_tiles=limits.max_max_tiles,
            default_max_tiles=message.default_max_tiles,
            device=message.device,
            version=message.version,
            commit=message.commit,
            max_shared_memory_bytes=limits.max_shared_memory_bytes,
            synthetic=message.synthetic,
        )
