"""Pages of PDF files, rendered by PDFium (package pypdfium2)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InputError, MissingPackageError

POINTS_PER_INCH = 72
DEFAULT_DPI = 144.0  # what DeepSeek-OCR's own PDF script renders with

# PDFium may run in one thread at a time.
_pdfium_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class PdfPage:
    """A page that is rendered when it is encoded. Holds its document open."""

    file: str
    """Name of the file, for people."""
    number: int
    """From 1."""
    dpi: float
    document: Any = field(repr=False)

    def __str__(self) -> str:
        return f"{self.file}, page {self.number}"

    def render(self) -> npt.NDArray[np.uint8]:
        """Pixels: [height, width, 3], RGB. Raises InputError."""
        import pypdfium2

        with _pdfium_lock:
            try:
                page = self.document[self.number - 1]
                bitmap = page.render(scale=self.dpi / POINTS_PER_INCH, rev_byteorder=True)
                pixels: npt.NDArray[np.uint8] = bitmap.to_numpy().copy()  # PDFium frees its own
            except (pypdfium2.PdfiumError, ValueError, MemoryError) as error:
                raise InputError(f"{self}: cannot be rendered: {error}") from error
        return pixels[:, :, :3] if pixels.shape[2] > 3 else pixels


def pdf_pages(
    pdf: str | os.PathLike[str] | bytes,
    *,
    pages: Iterable[int] | None = None,
    dpi: float = DEFAULT_DPI,
    password: str | None = None,
) -> list[PdfPage]:
    """The pages of a PDF file, for encode and encode_many; `pages` are numbers from 1.

    Raises InputError (no PDF, wrong password, no such page), OSError, MissingPackageError.
    """
    try:
        import pypdfium2
    except ImportError:
        raise MissingPackageError("pypdfium2", "pdf", "reading PDF files") from None
    if dpi <= 0:
        raise ValueError(f"dpi: {dpi} is not above 0")
    if isinstance(pdf, bytes):
        name, data = "PDF", pdf
    else:
        name = os.fspath(pdf)
        with open(pdf, "rb") as file:
            data = file.read()
    with _pdfium_lock:
        try:
            document = pypdfium2.PdfDocument(data, password=password)
            count = len(document)
        except pypdfium2.PdfiumError as error:
            raise InputError(f"{name}: cannot be opened as a PDF: {error}") from error
    numbers = range(1, count + 1) if pages is None else list(pages)
    for number in numbers:
        if not 1 <= number <= count:
            raise InputError(f"{name} has no page {number}, but 1 to {count}")
    return [PdfPage(name, number, dpi, document) for number in numbers]
