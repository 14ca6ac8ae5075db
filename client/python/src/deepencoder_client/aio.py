"""The client for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from . import images as image_loading
from . import protocol
from .channel import Address, Tls, Token
from .client import DEFAULT_CONCURRENCY
from .embeddings import Embeddings
from .encode_call import EncodeCall
from .errors import DeepEncoderError, RpcError, from_grpc
from .images import Image, Payload
from .many import WAITING_RESULTS
from .options import DEFAULT_TIMEOUT, EncodeOptions, check_options
from .progress import progress_bar
from .results import Result
from .retry import Attempts, RetryPolicy
from .server_info import Health, ModelInfo
from .sharing import Sharing, renewal_attempts

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .shared_memory import Share


class AsyncClient:
    """A connection to a server, for one event loop: make it inside a coroutine.

    The same surface as Client. Cancelling a task cancels its call, in the server too.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        tls: Tls | bool = False,
        token: Token | None = None,
        retry: RetryPolicy | None = None,
        channel_options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        """As Client's."""
        self._address = Address(server, tls, token)
        self._retry = retry or RetryPolicy()
        self._channel = self._address.open(grpc.aio, channel_options)
        self._encode = self._channel.unary_unary(protocol.ENCODE_IMAGE)
        self._info = self._channel.unary_unary(protocol.GET_MODEL_INFO)
        self._register = self._channel.unary_unary(protocol.REGISTER_REGION)
        self._forget = self._channel.unary_unary(protocol.UNREGISTER_REGION)
        self._health = self._channel.unary_unary(protocol.HEALTH_CHECK)
        self._sharing = Sharing()

    async def encode(self, image: Image, **options: Unpack[EncodeOptions]) -> Embeddings:
        """Encodes one image. Options: see EncodeOptions. Raises what Client.encode raises."""
        check_options(options)
        return await self._encode_one(image, options)

    async def encode_many(
        self,
        images: Iterable[Image] | AsyncIterable[Image],
        *,
        concurrency: int = DEFAULT_CONCURRENCY,
        progress: bool = False,
        **options: Unpack[EncodeOptions],
    ) -> AsyncIterator[Result]:
        """Encodes images, at most `concurrency` at a time, and gives their results in order.

        As Client.encode_many. Leaving the loop early cancels the rest when the iterator is closed
        (contextlib.aclosing) or collected.
        """
        check_options(options)
        if concurrency < 1:
            raise ValueError(f"concurrency: {concurrency} is not 1 or more")
        room = asyncio.Semaphore(concurrency)
        window = asyncio.Semaphore(WAITING_RESULTS * concurrency)  # images taken, results not given
        tasks: asyncio.Queue[asyncio.Task[Result] | None] = asyncio.Queue()
        running: set[asyncio.Task[Result]] = set()

        async def one(index: int, image: Image) -> Result:
            async with room:
                try:
                    return Result(index, image, await self._encode_one(image, options))
                except (DeepEncoderError, OSError) as error:
                    return Result(index, image, error=error)

        async def take_images() -> None:
            index = 0
            try:
                await window.acquire()
                async for image in _each(images):
                    task = asyncio.create_task(one(index, image))
                    running.add(task)
                    task.add_done_callback(running.discard)
                    tasks.put_nowait(task)
                    index += 1
                    await window.acquire()
            finally:
                tasks.put_nowait(None)

        # A task of its own: results are given while a slow source has no image yet.
        source = asyncio.create_task(take_images())
        try:
            with progress_bar(images, progress) as bar:
                while (task := await tasks.get()) is not None:
                    result = await task
                    if bar is not None:
                        bar.update()
                    yield result
                    window.release()
            await source  # raises what the iterable raised
        finally:
            unfinished = [source, *running]
            for left in unfinished:
                left.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    async def info(self, *, timeout: float | None = 10.0) -> ModelInfo:
        """What the server serves: modes with their token counts, limits, device, weights."""
        return await self._info_within(Attempts(self._retry, timeout))

    async def health(self, service: str = "", *, timeout: float | None = 5.0) -> Health:
        """Whether the server is ready. One attempt; raises UnavailableError if nobody answers."""
        request = protocol.HealthCheckRequest(service=service).SerializeToString()
        try:
            reply = await self._health(request, timeout=timeout, metadata=self._address.metadata())
        except grpc.aio.AioRpcError as failure:
            if failure.code() is grpc.StatusCode.NOT_FOUND:
                return Health.SERVICE_UNKNOWN
            raise from_grpc(failure) from None
        return Health(protocol.HealthCheckResponse.FromString(reply).status)

    async def share_memory(self, size: int, *, timeout: float | None = 10.0) -> None:
        """As Client.share_memory."""
        await self._share_within(size, Attempts(self._retry, timeout))

    async def close(self) -> None:
        """Ends the connection; calls under way are cancelled. Rows stay valid."""
        try:
            await self._unregister(self._sharing.stop())
        finally:
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _encode_one(self, image: Image, options: EncodeOptions) -> Embeddings:
        payload = await _load(image)
        attempts = Attempts(self._retry, options.get("timeout", DEFAULT_TIMEOUT))
        call = await self._start(payload, options, attempts)
        try:
            try:
                reply = await self._call(
                    self._encode, call.next_request, attempts, options, call.failed
                )
            except RpcError as error:
                if not call.want_whole(error):
                    raise
                self._refused(call.share, error)
                reply = await self._call(self._encode, call.next_request, attempts, options)
            return call.embeddings(reply)
        except DeepEncoderError:
            raise
        except BaseException:  # a task that was cancelled: the call may still be under way
            call.abandoned()
            raise
        finally:
            call.release()

    async def _info_within(self, attempts: Attempts) -> ModelInfo:
        request = protocol.GetModelInfoRequest()
        reply = await self._call(self._info, request.SerializeToString, attempts)
        return ModelInfo.from_message(protocol.ModelInfo.FromString(reply))

    async def _share_within(self, size: int, attempts: Attempts) -> None:
        from . import shared_memory  # needs POSIX

        info = await self._info_within(attempts)
        for kind in shared_memory.KINDS:
            pool = await asyncio.to_thread(kind, size)
            with shared_memory.offered(pool):
                reply = await self._call(self._register, pool.registration, attempts)
                break
        handle = protocol.RegisterRegionResponse.FromString(reply).handle
        await self._unregister(self._sharing.start(shared_memory.Share(pool, handle, info)))

    async def _start(
        self, payload: Payload, options: EncodeOptions, attempts: Attempts
    ) -> EncodeCall:
        if size := self._sharing.due():
            with self._sharing.renewing():
                await self._share_within(size, renewal_attempts(attempts))
        share = self._sharing.share
        call = EncodeCall(payload, options, share)
        if call.found_no_room and share is not None and share.pool.worn:
            self._sharing.lost(share, replace=True)
        return call

    def _refused(self, share: Share | None, error: RpcError) -> None:
        """The server could not use the memory. If it forgot the region, it is given another."""
        if share is not None:
            self._sharing.lost(share, replace=error.code is grpc.StatusCode.NOT_FOUND)

    async def _unregister(self, share: Share | None) -> None:
        """Otherwise the server would see it when the last rows go."""
        if share is None:
            return
        request = protocol.UnregisterRegionRequest(handle=share.handle).SerializeToString()
        with contextlib.suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
            await self._forget(request, timeout=1.0, metadata=self._address.metadata())

    async def _call(
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
                reply: bytes = await method(
                    request(),
                    timeout=attempts.remaining(),
                    metadata=self._address.metadata(options),
                )
                return reply
            except grpc.aio.AioRpcError as failure:
                error = from_grpc(failure)
            if on_failure is not None:
                on_failure(error)
            delay = attempts.delay_after(error)
            if delay is None:
                raise error
            await asyncio.sleep(delay)


async def _load(image: Image) -> Payload:
    """Reading, rendering and converting must not hold up the loop."""
    if isinstance(image, bytes):
        return image_loading.load(image)
    return await asyncio.to_thread(image_loading.load, image)


async def _each(images: Iterable[Image] | AsyncIterable[Image]) -> AsyncIterator[Image]:
    if isinstance(images, AsyncIterable):
        async for image in images:
            yield image
    else:
        for image in images:
            yield image
