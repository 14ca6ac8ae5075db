"""DeepSeek-OCR on SGLang with image embeddings from a deepencoder server.

from deepencoder_client import Client
from deepencoder_sglang import generate_arguments

with Client("127.0.0.1:50051") as client:
    page = client.encode("page.png")
engine.generate(**generate_arguments([[0], page.torch(), tokenizer.encode("\\nFree OCR.")]))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["CHECKED_SGLANG", "IMAGE_TOKEN", "generate_arguments", "image_item"]

CHECKED_SGLANG = ("0.5.23",)
"""Releases whose own code the tests in tests/client/sglang ran against."""

IMAGE_TOKEN = 128815
"""DeepSeek-OCR's <image>: one stands in the prompt for each row."""


def image_item(images: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The one item of `image_data`, for all images of a prompt in their order.

    images: [rows, width] each, in the model's type.

    The format is "processor_output" and not "precomputed_embedding": what comes under the latter
    is handed to the model's image encoder as if it were pixels, unless the model looks for it, and
    DeepSeek-OCR does not. An item of "processor_output" that holds `precomputed_embeddings` is
    taken as it is for every model.
    """
    import torch

    if not images:
        raise ValueError("no images")
    for rows in images:
        if rows.ndim != 2 or rows.shape[1] != images[0].shape[1] or rows.dtype != images[0].dtype:
            raise ValueError(f"rows {tuple(rows.shape)} of {rows.dtype} beside others")
    return {
        "format": "processor_output",
        "modality": "IMAGE",
        "precomputed_embeddings": torch.cat(list(images)),
    }


def generate_arguments(
    parts: Iterable[Sequence[int] | torch.Tensor], image_token: int = IMAGE_TOKEN
) -> dict[str, Any]:
    """Arguments of Engine.generate: `input_ids` and `image_data`.

    parts: the prompt in order, token ids of text as lists and rows of images as tensors. Between
    two images there must be text: SGLang tells images apart by the gaps in their placeholders.
    """
    input_ids: list[int] = []
    images: list[torch.Tensor] = []
    for part in parts:
        if isinstance(part, Sequence):
            if image_token in part:
                raise ValueError(f"the text has an image placeholder of its own ({image_token})")
            input_ids += part
        else:
            if input_ids and input_ids[-1] == image_token:
                raise ValueError("two images with no text between them")
            images.append(part)
            input_ids += [image_token] * part.shape[0]
    return {"input_ids": input_ids, "image_data": [image_item(images)]}
