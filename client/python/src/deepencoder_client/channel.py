"""Where the server is, and how it is reached."""

from __future__ import annotations

import functools
import ipaddress
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import grpc

from .errors import REQUEST_ID
from .options import EncodeOptions

DEFAULT_SERVER = "127.0.0.1:50051"
SERVER_VARIABLE = "DEEPENCODER_SERVER"
LARGEST_USUAL_REPLY = 24 << 20  # fp32 with 32 tiles; glibc learns from blocks up to 32 MiB

Token = str | Callable[[], str]
Metadata = Sequence[tuple[str, str]]
Pem = Union[str, "os.PathLike[str]", bytes]  # a file, or its content


@dataclass(frozen=True)
class Tls:
    """How an encrypted connection is made. Certificates are PEM: a file's path or the bytes."""

    root_certificates: Pem | None = None
    """Whom to trust; None: what gRPC trusts by default."""
    client_certificate: Pem | None = None
    """Chain shown to the server; needs client_key."""
    client_key: Pem | None = None
    server_name: str | None = None
    """Name in the server's certificate, if it is not the one in its address."""

    def __post_init__(self) -> None:
        if (self.client_certificate is None) != (self.client_key is None):
            raise ValueError("client_certificate and client_key go together")

    def credentials(self) -> Any:
        """As gRPC takes them. Raises OSError if a file cannot be read."""
        return grpc.ssl_channel_credentials(
            _pem(self.root_certificates), _pem(self.client_key), _pem(self.client_certificate)
        )


def _pem(source: Pem | None) -> bytes | None:
    return source if source is None or isinstance(source, bytes) else Path(source).read_bytes()


def _is_local(target: str) -> bool:
    """Whether what is sent there stays on this machine."""
    if target.startswith("unix:"):
        return True
    host = target.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name; several addresses
        return False


@functools.cache
def _keep_freed_memory() -> None:
    """Lets glibc keep what a reply leaves for the next, instead of giving it back to the kernel.

    Freeing a block raises its thresholds for that to the block's size and twice it (mallopt(3),
    M_MMAP_THRESHOLD), which a program's first large array does too. Replies of 700 KB cost a third
    less time in the kernel then. The block is never written to, so it takes no memory itself.
    """
    bytes(LARGEST_USUAL_REPLY)


class Address:
    """A server's address with everything that its channel and its calls need."""

    def __init__(self, server: str | None, tls: Tls | bool, token: Token | None) -> None:
        self.target = server or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
        self._tls = Tls() if tls is True else tls or None
        self._token = token
        if token is not None and self._tls is None and not _is_local(self.target):
            raise ValueError(
                f"a token would be readable on its way to {self.target}: use tls, a loopback "
                "address or a unix socket"
            )

    def options(self, more: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Channel arguments."""
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", -1),  # fp32 with 32 tiles has 20 MB
            # In large frames, without waiting for window updates, read in large pieces.
            ("grpc.http2.max_frame_size", 4 << 20),
            ("grpc.http2.lookahead_bytes", 8 << 20),
            ("grpc.experimental.tcp_read_chunk_size", 1 << 20),
            ("grpc.max_send_message_length", -1),  # the server says what is too large
            # A server that comes back is found soon: gRPC's own delay grows to two minutes.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 5000),  # in fact how long an attempt may take
            ("grpc.max_reconnect_backoff_ms", 2000),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.lb_policy_name", "round_robin"),  # over all addresses of the name
        ]
        if _is_local(self.target):
            options.append(("grpc.enable_http_proxy", 0))
        if self._tls is not None and self._tls.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self._tls.server_name))
        return options + list(more)

    def open(self, module: Any, more: Sequence[tuple[str, Any]]) -> Any:
        """A channel of `module`: grpc or grpc.aio. It connects at its first call."""
        _keep_freed_memory()
        options = self.options(more)
        if self._tls is None:
            return module.insecure_channel(self.target, options=options)
        return module.secure_channel(self.target, self._tls.credentials(), options=options)

    def metadata(self, options: EncodeOptions | None = None) -> Metadata:
        """What rides with a call."""
        names = ((REQUEST_ID, "request_id"), ("traceparent", "traceparent"))
        values = [(key, (options or {}).get(name)) for key, name in names]
        pairs = [(key, str(value)) for key, value in values if value is not None]
        if self._token is not None:
            token = self._token() if callable(self._token) else self._token
            pairs.append(("authorization", f"Bearer {token}"))
        return tuple(pairs)
