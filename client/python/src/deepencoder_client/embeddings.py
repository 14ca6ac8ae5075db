"""What comes back: rows of numbers, how they lie on the picture, where the time went."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .errors import MissingPackageError
from .options import DType

if TYPE_CHECKING:
    import torch

_SAFETENSORS_TYPES = {"bf16": "BF16", "fp16": "F16", "fp32": "F32"}


@dataclass(frozen=True)
class Geometry:
    """How the rows lie on the picture.

    rows = local_rows (the tiles' mosaic) + global_rows + 1 (view separator). Sides are in pixels.
    """

    image_width: int
    image_height: int
    """After EXIF orientation."""
    tile_columns: int
    tile_rows: int
    """1 x 1: no tiles."""
    base_side: int
    tile_side: int
    """0: no tiles."""
    local_rows: int
    global_rows: int
    """Newline rows included, in both."""


@dataclass(frozen=True)
class Timings:
    """Seconds in the server. The stages do not overlap; total has the wait for a decoder too."""

    decode: float
    views: float
    queue: float
    compute: float
    assemble: float
    total: float


@dataclass(frozen=True, eq=False, repr=False)
class Embeddings:
    """The rows that take the place of an image's placeholder tokens, in their order."""

    stored: npt.NDArray[Any]
    """[rows, width] in the reply's own bytes, read-only: float32, float16, or bf16's bits as
    uint16. The server aligns them in its reply; where one does not, they may start at an odd
    address, which NumPy takes and other code may not."""
    dtype: DType
    geometry: Geometry
    timings: Timings

    def __repr__(self) -> str:
        rows, width = self.shape
        return f"Embeddings({self.dtype} [{rows}, {width}], {self.geometry}, {self.timings})"

    @property
    def tokens(self) -> int:
        """How many placeholder tokens the prompt needs: the number of rows."""
        return int(self.stored.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, width)."""
        rows, width = self.stored.shape
        return rows, width

    def numpy(self) -> npt.NDArray[Any]:
        """The rows, in the reply's own memory (read-only) where they lie aligned there.

        bf16 is ml_dtypes.bfloat16 where that package is installed, else its bits as uint16.
        """
        rows = self._aligned()
        if self.dtype != "bf16":
            return rows
        try:
            import ml_dtypes
        except ImportError:
            return rows
        return rows.view(ml_dtypes.bfloat16)

    def to_float32(self) -> npt.NDArray[np.float32]:
        """The rows as float32, in memory of their own."""
        if self.dtype != "bf16":
            return self.stored.astype(np.float32)
        # A bf16 is the upper half of a float32.
        return (self.stored.astype(np.uint32) << np.uint32(16)).view(np.float32)

    def torch(self) -> torch.Tensor:
        """The rows as a tensor on the CPU, without a copy where numpy() makes none."""
        try:
            import torch
        except ImportError:
            raise MissingPackageError("torch", None, "Embeddings.torch") from None
        dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
        # PyTorch has no read-only tensors and warns of arrays that are. The memory is a reply's,
        # which nothing else refers to, so writing there harms nobody; `rows` keeps it.
        rows = self._aligned()
        memory = (ctypes.c_char * rows.nbytes).from_address(rows.ctypes.data)
        memory.rows = rows  # type: ignore[attr-defined]
        return torch.frombuffer(memory, dtype=dtypes[self.dtype]).view(*self.shape)

    def _aligned(self) -> npt.NDArray[Any]:
        return np.require(self.stored, requirements="A")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes FILE.safetensors (one tensor, "embeddings") or FILE.npy (bf16 as float32).

        The file is there complete or not at all.
        """
        name = os.fspath(path)
        if name.endswith(".safetensors"):
            write_safetensors(name, {"embeddings": self})
        elif name.endswith(".npy"):
            rows = self.to_float32() if self.dtype == "bf16" else self.stored
            with _Replacing(name) as file:
                np.save(file, rows)
        else:
            raise ValueError(f"{name}: must end with .safetensors or .npy")


def write_safetensors(path: str | os.PathLike[str], tensors: Mapping[str, Embeddings]) -> None:
    """Writes embeddings of any type into one file, under their names."""
    header: dict[str, Any] = {}
    end = 0
    for name, embeddings in tensors.items():
        begin, end = end, end + embeddings.stored.nbytes
        header[name] = {
            "dtype": _SAFETENSORS_TYPES[embeddings.dtype],
            "shape": list(embeddings.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format's alignment
    with _Replacing(os.fspath(path)) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for embeddings in tensors.values():
            file.write(embeddings.stored.data)


class _Replacing:
    """A file to write that takes its name when all of it is there."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._part = f"{path}.part"

    def __enter__(self) -> Any:
        self._file = open(self._part, "wb")
        return self._file

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self._file.close()  # a full disk may show only now
            if kind is None:
                os.replace(self._part, self._path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._part)
