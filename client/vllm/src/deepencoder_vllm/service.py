"""What the connector needs of a deepencoder server, and the client that gives it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

DEFAULT_TIMEOUT = 30.0  # seconds for one view, retries included


class ViewEncoder(Protocol):
    """Encodes square views. Called from several threads at once."""

    def encode(self, pixels: npt.NDArray[np.uint8], mode: str) -> npt.NDArray[Any]:
        """Rows of a view in that mode, in the model's element type (bf16 as uint16)."""

    def close(self) -> None:
        """Called once, after the last encode."""


class ClientEncoder:
    """A ViewEncoder over deepencoder_client."""

    def __init__(self, config: Mapping[str, Any], dtype: str) -> None:
        """Config: the server's part of ec_connector_extra_config; see the README.

        dtype: "bf16", "fp16" or "fp32", of the rows.
        """
        from deepencoder_client import Client, Tls

        token_variable = config.get("token_env")
        ca = config.get("tls_ca")
        self._timeout = float(config.get("timeout", DEFAULT_TIMEOUT))
        self._dtype = dtype
        self._client = Client(
            config.get("server"),
            tls=Tls(root_certificates=ca) if ca else bool(config.get("tls", False)),
            token=(lambda: os.environ[token_variable]) if token_variable else None,
        )

    def encode(self, pixels: npt.NDArray[np.uint8], mode: str) -> npt.NDArray[Any]:
        """See ViewEncoder."""
        options: Any = {"mode": mode, "dtype": self._dtype, "timeout": self._timeout}
        return self._client.encode(pixels, **options).stored

    def close(self) -> None:
        """See ViewEncoder."""
        self._client.close()
