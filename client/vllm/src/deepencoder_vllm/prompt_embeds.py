"""Prompts of embeddings, for a vLLM started with --enable-prompt-embeds.

In a chat the rows of an image are a content part of their own, and vLLM embeds the text around it:
`chat_part`. The completions API takes a whole prompt of embeddings instead: `prompt_rows_of` puts
it together from image rows and, for text, the checkpoint's own token embeddings.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .views import is_bfloat16

if TYPE_CHECKING:
    import torch

EMBED_TOKENS = "model.embed_tokens.weight"
BOS = 0
"""DeepSeek-OCR's beginning of a sentence: the prompt's first token."""

Bfloat16Rows = npt.NDArray[np.uint16]
"""[rows, width]: the bits of bf16 numbers."""


class TokenEmbeddings:
    """The checkpoint's model.embed_tokens, read row by row: nothing else of it is loaded."""

    def __init__(self, checkpoint: str | os.PathLike[str]) -> None:
        """Checkpoint: the model's folder. Raises OSError or ValueError."""
        file = _file_with(Path(checkpoint), EMBED_TOKENS)
        with open(file, "rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            if size > 1 << 27:
                raise ValueError(f"{file} is not a safetensors file")
            header = json.loads(opened.read(size))
        entry = header.get(EMBED_TOKENS)
        if entry is None or entry["dtype"] != "BF16" or len(entry["shape"]) != 2:
            raise ValueError(f"{file}: no {EMBED_TOKENS} in bf16")
        self._rows: Bfloat16Rows = np.memmap(
            file,
            np.dtype("<u2"),
            "r",
            offset=8 + size + entry["data_offsets"][0],
            shape=tuple(entry["shape"]),
        )

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return int(self._rows.shape[1])

    def rows(self, token_ids: Sequence[int]) -> Bfloat16Rows:
        """[len(token_ids), width]. Raises IndexError for an id outside the vocabulary."""
        ids = np.asarray(token_ids, np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= len(self._rows)):
            raise IndexError(f"a token id outside 0 .. {len(self._rows) - 1}")
        return np.array(self._rows[ids])


def _file_with(folder: Path, tensor: str) -> Path:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        files: dict[str, str] = json.loads(index.read_text())["weight_map"]
        if tensor not in files:
            raise ValueError(f"{index} does not name {tensor}")
        return folder / files[tensor]
    return folder / "model.safetensors"


def prompt_rows_of(
    parts: Iterable[Sequence[int] | npt.NDArray[Any]], tokens: TokenEmbeddings
) -> Bfloat16Rows:
    """A whole prompt: token ids (a list) become their embeddings, image rows (an array) stay.

    The first part should begin with BOS: vLLM adds no token to a prompt of embeddings.
    """
    blocks = []
    for part in parts:
        if isinstance(part, np.ndarray):
            if part.ndim != 2 or part.shape[1] != tokens.width or not is_bfloat16(part.dtype):
                raise ValueError(f"rows {part.shape} of {part.dtype}: not bf16 of {tokens.width}")
            blocks.append(part.view(np.uint16))
        else:
            blocks.append(tokens.rows(part))
    if not blocks:
        raise ValueError("a prompt of no parts")
    return np.concatenate(blocks)


def as_tensor(rows: npt.NDArray[Any]) -> torch.Tensor:
    """A tensor on the CPU; uint16 and ml_dtypes.bfloat16 are taken as bf16."""
    import torch

    if is_bfloat16(rows.dtype):
        return torch.from_numpy(np.array(rows.view(np.uint16))).view(torch.bfloat16)
    return torch.from_numpy(np.array(rows))


def to_base64(rows: npt.NDArray[Any]) -> str:
    """As vLLM takes it: a tensor saved by torch.save, in base64."""
    import torch

    file = io.BytesIO()
    torch.save(as_tensor(rows), file)
    return base64.b64encode(file.getvalue()).decode()


def chat_part(rows: npt.NDArray[Any]) -> dict[str, str]:
    """A content part of /v1/chat/completions: an image's rows at that place of the message."""
    return {"type": "prompt_embeds", "data": to_base64(rows)}
