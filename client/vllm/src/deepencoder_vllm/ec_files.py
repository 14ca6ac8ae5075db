"""Rows as the files that vLLM's ECExampleConnector reads.

`<shared_storage_path>/<mm_hash>/encoder_cache.safetensors`, one tensor "ec_cache" [rows, width].
The connector looks only whether the file exists, so it has to appear complete: it is written under
another name in the same folder and renamed.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .views import is_bfloat16

FILE_NAME = "encoder_cache.safetensors"
TENSOR_NAME = "ec_cache"
_TYPES = {"bf16": ("BF16", np.uint16), "fp16": ("F16", np.float16), "fp32": ("F32", np.float32)}


def check_key(mm_hash: str) -> None:
    """Raises ValueError unless it is one folder's name: it comes from whoever names the image."""
    if mm_hash in ("", ".", "..") or any(c in "/\\\0" for c in mm_hash) or len(mm_hash) > 255:
        raise ValueError(f"{mm_hash!r} cannot name a folder")


def write_ec_file(
    folder: str | os.PathLike[str], mm_hash: str, rows: npt.NDArray[Any], dtype: str = "bf16"
) -> Path:
    """Writes an image's rows for a vLLM whose shared_storage_path is `folder`.

    mm_hash: the image's `uuid` in the request. rows: [rows, width] in dtype "bf16" (its bits as
    uint16, or ml_dtypes.bfloat16), "fp16" or "fp32": the model's. Returns the file.
    """
    check_key(mm_hash)
    name, kind = _TYPES[dtype]
    fits = is_bfloat16(rows.dtype) if dtype == "bf16" else rows.dtype == kind
    if rows.ndim != 2 or not fits:
        raise ValueError(f"rows of shape {rows.shape} and type {rows.dtype} are not {dtype}")
    description = {"dtype": name, "shape": rows.shape, "data_offsets": [0, rows.nbytes]}
    header = json.dumps({TENSOR_NAME: description}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # the format's alignment
    target = Path(folder, mm_hash, FILE_NAME)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".part", delete=False) as file:
        try:
            file.write(len(header).to_bytes(8, "little") + header)
            file.write(np.ascontiguousarray(rows).view(np.uint8).data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)  # vLLM may run as another user
            os.replace(file.name, target)
        except BaseException:
            os.unlink(file.name)
            raise
    return target
