"""Images of every kind, as the contract takes them: a file's bytes or raw RGB."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .pdf import PdfPage

if TYPE_CHECKING:
    import PIL.Image

Image = Union[str, "os.PathLike[str]", bytes, "PIL.Image.Image", "npt.NDArray[np.uint8]", PdfPage]
"""A path; the bytes of a JPEG, PNG, WebP, TIFF, BMP or GIF file; a PIL image; an array of uint8
[height, width, 3] (RGB) or [height, width] (grey); a page of pdf_pages."""

_ORIENTATION = 0x0112  # EXIF tag; 1: upright
_PDF_MAGIC = b"%PDF-"


@dataclass(frozen=True)
class Payload:
    """An image as it is sent."""

    data: bytes
    """A file, or height * width * 3 bytes: rows top down, R, G, B."""
    width: int = 0
    height: int = 0
    """Both 0: a file."""


def load(image: Image) -> Payload:
    """Reads, renders or converts. Raises InputError or OSError."""
    if isinstance(image, (str, os.PathLike)):
        with open(image, "rb") as file:
            return _from_bytes(file.read(), os.fspath(image))
    if isinstance(image, bytes):
        return _from_bytes(image, "the image")
    if isinstance(image, PdfPage):
        return _from_array(image.render())
    if isinstance(image, np.ndarray):
        return _from_array(image)
    # Who has a PIL image has imported PIL.
    pil = sys.modules.get("PIL.Image")
    if pil is not None and isinstance(image, pil.Image):
        return _from_pil(image)
    raise InputError(
        f"{type(image).__name__} is not an image: give a path, bytes, a PIL image, a numpy array "
        "or a page of pdf_pages"
    )


def _from_bytes(data: bytes, name: str) -> Payload:
    if data.startswith(_PDF_MAGIC):
        raise InputError(f"{name} is a PDF: encode its pages, client.encode_many(pdf_pages(...))")
    if not data:
        raise InputError(f"{name} is empty")
    return Payload(data)


def _from_array(array: npt.NDArray[Any]) -> Payload:
    if array.dtype != np.uint8:
        raise InputError(f"an array of {array.dtype}: uint8 is needed")
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    if array.ndim != 3 or array.shape[2] != 3:
        raise InputError(
            f"an array of shape {array.shape}: [height, width, 3] or [height, width] is needed"
        )
    height, width, _ = array.shape
    if height == 0 or width == 0:
        raise InputError(f"an array of shape {array.shape} has no pixels")
    return Payload(array.tobytes(), width, height)


def _from_pil(image: PIL.Image.Image) -> Payload:
    from PIL import ImageOps

    if image.width == 0 or image.height == 0:
        raise InputError(f"a PIL image of {image.width} x {image.height} has no pixels")
    if image.getexif().get(_ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    transparent = image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info
    if transparent or image.mode.startswith("I"):
        # Raw RGB has neither alpha nor 16 bits, for which the request or the server has a policy.
        file = io.BytesIO()
        (image.convert("RGBA") if image.mode == "PA" else image).save(file, "PNG", compress_level=1)
        return Payload(file.getvalue())
    return Payload(image.convert("RGB").tobytes(), image.width, image.height)
