"""The client for programs without an event loop."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import grpc

from . import images, protocol
from .channel import Address, Tls, Token
from .embeddings import Embeddings
from .errors import from_grpc
from .images import Image
from .many import ManyCalls
from .options import DEFAULT_TIMEOUT, EncodeOptions, check_options
from .progress import progress_bar
from .results import Result
from .retry import Attempts, RetryPolicy
from .server_info import Health, ModelInfo
from .wire import build_request, parse_reply

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

DEFAULT_CONCURRENCY = 8


class Client:
    """A connection to a server. Thread-safe; close it, or use it in a with statement."""

    def __init__(
        self,
        server: str | None = None,
        *,
        tls: Tls | bool = False,
        token: Token | None = None,
        retry: RetryPolicy | None = None,
        channel_options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """No connection is made before the first call.

        server: "host:port", "unix:PATH" or any gRPC name; default: $DEEPENCODER_SERVER, else
            127.0.0.1:50051.
        tls: True, or whom to trust and what to show.
        token: sent as "authorization: Bearer TOKEN"; a function is asked before each call.
        channel_options: further gRPC channel arguments.
        """
        self._address = Address(server, tls, token)
        self._retry = retry or RetryPolicy()
        self._channel = self._address.open(grpc, channel_options)
        # Requests and replies are bytes here: see wire.py.
        self._encode = self._channel.unary_unary(protocol.ENCODE_IMAGE)
        self._info = self._channel.unary_unary(protocol.GET_MODEL_INFO)
        self._health = self._channel.unary_unary(protocol.HEALTH_CHECK)

    def encode(self, image: Image, **options: Unpack[EncodeOptions]) -> Embeddings:
        """Encodes one image. Options: see EncodeOptions.

        Raises InputError, OSError (a file cannot be read), RpcError, ReplyError.
        """
        check_options(options)
        request = build_request(images.load(image), options)
        timeout = options.get("timeout", DEFAULT_TIMEOUT)
        return parse_reply(self._call(self._encode, request, timeout, options))

    def encode_many(
        self,
        images: Iterable[Image],
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        progress: bool = False,
        **options: Unpack[EncodeOptions],
    ) -> Iterator[Result]:
        """Encodes images, at most `concurrency` at a time, and gives their results in order.

        An image that fails does not stop the others: its result has the error. Images are taken
        from the iterable as there is room, so it may be endless. progress: a bar, by tqdm.
        """
        check_options(options)
        if concurrency < 1:
            raise ValueError(f"concurrency: {concurrency} is not 1 or more")
        calls = ManyCalls(
            self._encode,
            lambda: self._address.metadata(options),
            self._retry,
            images,
            options,
            concurrency,
        )
        return _with_progress(calls.run(), progress_bar(images, progress))

    def info(self, *, timeout: float | None = 10.0) -> ModelInfo:
        """What the server serves: modes with their token counts, limits, device, weights."""
        request = protocol.GetModelInfoRequest().SerializeToString()
        reply = self._call(self._info, request, timeout)
        return ModelInfo.from_message(protocol.ModelInfo.FromString(reply))

    def health(self, service: str = "", *, timeout: float | None = 5.0) -> Health:
        """Whether the server is ready. One attempt; raises UnavailableError if nobody answers."""
        request = protocol.HealthCheckRequest(service=service).SerializeToString()
        try:
            reply = self._health(request, timeout=timeout, metadata=self._address.metadata())
        except grpc.RpcError as failure:
            if failure.code() is grpc.StatusCode.NOT_FOUND:
                return Health.SERVICE_UNKNOWN
            raise from_grpc(failure) from None
        return Health(protocol.HealthCheckResponse.FromString(reply).status)

    def close(self) -> None:
        """Ends the connection; calls under way are cancelled."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(
        self,
        method: Any,
        request: bytes,
        timeout: float | None,
        options: EncodeOptions | None = None,
    ) -> bytes:
        """The reply, after retries."""
        attempts = Attempts(self._retry, timeout)
        while True:
            try:
                reply: bytes = method(
                    request,
                    timeout=attempts.remaining(),
                    metadata=self._address.metadata(options),
                )
                return reply
            except grpc.RpcError as failure:
                error = from_grpc(failure)
            delay = attempts.delay_after(error)
            if delay is None:
                raise error
            time.sleep(delay)


def _with_progress(results: Iterator[Result], bar: Any) -> Iterator[Result]:
    with bar as shown:
        for result in results:
            if shown is not None:
                shown.update()
            yield result
