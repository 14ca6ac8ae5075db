"""Everything that this package raises on purpose, besides TypeError, ValueError and OSError.

DeepEncoderError
  InputError             the image cannot be sent: nothing was asked of a server
  MissingPackageError    an optional package is needed
  ReplyError             the server's reply is not what the contract says
  RpcError               the call failed; has code, details, request_id, attempts
    InvalidRequestError    broken image, option that is not served (INVALID_ARGUMENT)
    LimitError             larger than the server allows (RESOURCE_EXHAUSTED)
    OverloadedError        the server is full; has retry_after (RESOURCE_EXHAUSTED)
    UnavailableError       no connection, or the server is draining
    DeadlineError          the timeout has passed
    AuthenticationError    the server wants another token or certificate
    CancelledError         the call was cancelled
    UnsupportedError       the server does not have this method (UNIMPLEMENTED)
    ServerError            anything else: INTERNAL, UNKNOWN, ...
"""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.message import DecodeError

from .protocol import RetryInfo, RpcStatus

STATUS_DETAILS = "grpc-status-details-bin"
REQUEST_ID = "x-request-id"
_RETRY_INFO = "google.rpc.RetryInfo"


class DeepEncoderError(Exception):
    """Base of all."""


class InputError(DeepEncoderError, ValueError):
    """The image cannot be sent: nothing was asked of a server."""


class MissingPackageError(DeepEncoderError, ImportError):
    """An optional package is needed."""

    def __init__(self, package: str, extra: str | None, purpose: str) -> None:
        other = f", or 'deepencoder-client[{extra}]'" if extra else ""
        super().__init__(f"{purpose} needs {package}: pip install {package}{other}")


class ReplyError(DeepEncoderError):
    """The server's reply is not what the contract says."""


class RpcError(DeepEncoderError):
    """The call failed."""

    def __init__(
        self,
        code: grpc.StatusCode,
        details: str,
        *,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(code, details)
        self.code = code
        self.details = details
        self.request_id = request_id
        """The call's name in the server's logs, if it got there."""
        self.retry_after = retry_after
        """Seconds after which the server expects to have room, if it said so."""
        self.attempts = 1
        """How often it was tried."""

    def __str__(self) -> str:
        text = f"{self.code.name}: {self.details}"
        if self.attempts > 1:
            text += f" (after {self.attempts} attempts)"
        return text


class InvalidRequestError(RpcError):
    """Broken image or unknown option."""


class LimitError(RpcError):
    """The image is larger than the server allows; it stays so."""


class OverloadedError(RpcError):
    """The server is full and said when to come back."""


class UnavailableError(RpcError):
    """No connection, or the server is draining."""


class DeadlineError(RpcError, TimeoutError):
    """The timeout has passed."""


class AuthenticationError(RpcError):
    """The server wants another token or certificate."""


class CancelledError(RpcError):
    """The call was cancelled."""


class UnsupportedError(RpcError):
    """The server does not have this method."""


class ServerError(RpcError):
    """The server failed."""


_BY_CODE: dict[grpc.StatusCode, type[RpcError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.FAILED_PRECONDITION: InvalidRequestError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequestError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: AuthenticationError,
    grpc.StatusCode.CANCELLED: CancelledError,
    grpc.StatusCode.UNIMPLEMENTED: UnsupportedError,
}


def _retry_after(details: bytes) -> float | None:
    """The server's hint in google.rpc.Status; None if there is none, or if it is damaged."""
    try:
        for detail in RpcStatus.FromString(details).details:
            if detail.type_url.rpartition("/")[2] == _RETRY_INFO:
                delay = RetryInfo.FromString(detail.value).retry_delay
                return float(delay.seconds + delay.nanos * 1e-9)
    except DecodeError:
        pass
    return None


def from_grpc(error: Any) -> RpcError:
    """The exception for a failed call of grpc or grpc.aio."""
    code, metadata = error.code(), dict(error.trailing_metadata() or ())
    retry_after = _retry_after(metadata.get(STATUS_DETAILS, b""))
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # Without a hint it is an image over a limit, or a message over gRPC's.
        kind: type[RpcError] = LimitError if retry_after is None else OverloadedError
    else:
        kind = _BY_CODE.get(code, ServerError)
    return kind(
        code,
        error.details() or "",
        request_id=metadata.get(REQUEST_ID),
        retry_after=retry_after,
    )
