"""The client for programs without an event loop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import grpc

from . import images, protocol
from .channel import Address, Tls, Token
from .embeddings import Embeddings
from .encode_call import EncodeCall
from .errors import DeepEncoderError, RpcError, from_grpc
from .images import Image, Payload
from .many import ManyCalls
from .options import DEFAULT_TIMEOUT, EncodeOptions, check_options
from .progress import progress_bar
from .results import Result
from .retry import Attempts, RetryPolicy
from .server_info import Health, ModelInfo
from .sharing import Sharing, renewal_attempts

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .shared_memory import Share

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
        self._register = self._channel.unary_unary(protocol.REGISTER_REGION)
        self._forget = self._channel.unary_unary(protocol.UNREGISTER_REGION)
        self._health = self._channel.unary_unary(protocol.HEALTH_CHECK)
        self._sharing = Sharing()

    def encode(self, image: Image, **options: Unpack[EncodeOptions]) -> Embeddings:
        """Encodes one image. Options: see EncodeOptions.

        Raises InputError, OSError (a file cannot be read), RpcError, ReplyError.
        """
        check_options(options)
        payload = images.load(image)
        attempts = Attempts(self._retry, options.get("timeout", DEFAULT_TIMEOUT))
        call = self._start(payload, options, attempts)
        try:
            try:
                reply = self._call(self._encode, call.next_request, attempts, options, call.failed)
            except RpcError as error:
                if not call.want_whole(error):
                    raise
                self._refused(call.share, error)
                reply = self._call(self._encode, call.next_request, attempts, options)
            return call.embeddings(reply)
        except DeepEncoderError:
            raise
        except BaseException:  # the call may still be under way
            call.abandoned()
            raise
        finally:
            call.release()

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
            self._start,
            self._refused,
            lambda: self._address.metadata(options),
            self._retry,
            images,
            options,
            concurrency,
        )
        return _with_progress(calls.run(), progress_bar(images, progress))

    def info(self, *, timeout: float | None = 10.0) -> ModelInfo:
        """What the server serves: modes with their token counts, limits, device, weights."""
        return self._info_within(Attempts(self._retry, timeout))

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

    def share_memory(self, size: int, *, timeout: float | None = 10.0) -> None:
        """From now on images and rows go through `size` bytes of memory shared with the server.

        The server must be on this host, reached by a unix socket or the loopback interface, run as
        the same user and with --shared-memory. The rows of results then lie in that memory, without
        a copy: a block is free again when nothing refers to its rows any more. A call for which
        there is no room goes through the socket, and so does everything if the server stops
        sharing. Memory that the server has lost (it was restarted) is replaced. Nothing is left in
        /dev/shm, however this process ends.

        Raises UnsupportedError (the server shares no memory), AuthenticationError (not its user),
        LimitError (its limits), OSError (no room in /dev/shm, no POSIX shared memory), RpcError;
        images and rows then go as before.
        """
        self._share_within(size, Attempts(self._retry, timeout))

    def close(self) -> None:
        """Ends the connection; calls under way are cancelled. Rows stay valid."""
        try:
            self._unregister(self._sharing.stop())
        finally:
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

    def _info_within(self, attempts: Attempts) -> ModelInfo:
        request = protocol.GetModelInfoRequest()
        reply = self._call(self._info, request.SerializeToString, attempts)
        return ModelInfo.from_message(protocol.ModelInfo.FromString(reply))

    def _share_within(self, size: int, attempts: Attempts) -> None:
        from . import shared_memory  # needs POSIX

        info = self._info_within(attempts)
        for kind in shared_memory.KINDS:
            pool = kind(size)
            with shared_memory.offered(pool):
                reply = self._call(self._register, pool.registration, attempts)
                break
        handle = protocol.RegisterRegionResponse.FromString(reply).handle
        self._unregister(self._sharing.start(shared_memory.Share(pool, handle, info)))

    def _start(self, payload: Payload, options: EncodeOptions, attempts: Attempts) -> EncodeCall:
        if size := self._sharing.due():
            with self._sharing.renewing():
                self._share_within(size, renewal_attempts(attempts))
        share = self._sharing.share
        call = EncodeCall(payload, options, share)
        if call.found_no_room and share is not None and share.pool.worn:
            self._sharing.lost(share, replace=True)
        return call

    def _refused(self, share: Share | None, error: RpcError) -> None:
        """The server could not use the memory. If it forgot the region, it is given another."""
        if share is not None:
            self._sharing.lost(share, replace=error.code is grpc.StatusCode.NOT_FOUND)

    def _unregister(self, share: Share | None) -> None:
        """Otherwise the server would see it when the last rows go."""
        if share is None:
            return
        request = protocol.UnregisterRegionRequest(handle=share.handle).SerializeToString()
        with contextlib.suppress(grpc.RpcError, ValueError):  # ValueError: the channel is closed
            self._forget(request, timeout=1.0, metadata=self._address.metadata())

    def _call(
        self,
        method: Any,
        request: Callable[[], bytes],
        attempts: Attempts,
        options: EncodeOptions | None = None,
        on_failure: Callable[[RpcError], None] | None = None,
    ) -> bytes:
        """The reply, after retries. request: asked before each attempt."""
        while True:
            try:
                reply: bytes = method(
                    request(),
                    timeout=attempts.remaining(),
                    metadata=self._address.metadata(options),
                )
                return reply
            except grpc.RpcError as failure:
                error = from_grpc(failure)
            if on_failure is not None:
                on_failure(error)
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
