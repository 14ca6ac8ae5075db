"""One image's outcome among many."""

from __future__ import annotations

from dataclasses import dataclass

from .embeddings import Embeddings
from .images import Image


@dataclass(frozen=True)
class Result:
    """What became of one image of encode_many: embeddings, or the error that it met alone."""

    index: int
    """Of the image, from 0 in the order given."""

    image: Image
    """As it was given."""

    embeddings: Embeddings | None = None
    error: Exception | None = None
    """A DeepEncoderError, or an OSError if a file could not be read."""

    @property
    def ok(self) -> bool:
        """Whether there are embeddings."""
        return self.error is None

    def unwrap(self) -> Embeddings:
        """The embeddings; raises the error if there are none."""
        if self.embeddings is None:
            raise self.error or RuntimeError("a result without embeddings or error")
        return self.embeddings
