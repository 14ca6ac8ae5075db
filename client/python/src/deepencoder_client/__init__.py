"""Client of a deepencoder server.

An image goes in; the embedding rows that DeepSeek-OCR's language model takes in place of the
image's placeholder tokens come out:

    from deepencoder_client import Client

    with Client("127.0.0.1:50051") as client:
        page = client.encode("page.png", mode="base")
    page.tokens   # 273: how many placeholders the prompt needs
    page.numpy()  # [273, 1280]
"""

from .aio import AsyncClient
from .channel import Tls
from .client import Client
from .embeddings import Embeddings, Geometry, Timings, write_safetensors
from .errors import (
    AuthenticationError,
    CancelledError,
    DeadlineError,
    DeepEncoderError,
    InputError,
    InvalidRequestError,
    LimitError,
    MissingPackageError,
    OverloadedError,
    ReplyError,
    RpcError,
    ServerError,
    UnavailableError,
    UnsupportedError,
)
from .images import Image
from .options import Alpha, DType, EncodeOptions, Gray16, Mode
from .pdf import PdfPage, pdf_pages
from .results import Result
from .retry import RetryPolicy
from .server_info import Health, ModeInfo, ModelInfo

__all__ = [
    "Alpha",
    "AsyncClient",
    "AuthenticationError",
    "CancelledError",
    "Client",
    "DType",
    "DeadlineError",
    "DeepEncoderError",
    "Embeddings",
    "EncodeOptions",
    "Geometry",
    "Gray16",
    "Health",
    "Image",
    "InputError",
    "InvalidRequestError",
    "LimitError",
    "MissingPackageError",
    "Mode",
    "ModeInfo",
    "ModelInfo",
    "OverloadedError",
    "PdfPage",
    "ReplyError",
    "Result",
    "RetryPolicy",
    "RpcError",
    "ServerError",
    "Timings",
    "Tls",
    "UnavailableError",
    "UnsupportedError",
    "pdf_pages",
    "write_safetensors",
]
