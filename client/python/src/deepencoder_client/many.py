"""Many images with a bounded number of calls under way, results in the images' order."""

from __future__ import annotations

import heapq
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from . import images
from .channel import Metadata
from .encode_call import EncodeCall
from .errors import DeepEncoderError, RpcError, from_grpc
from .images import Image, Payload
from .options import DEFAULT_TIMEOUT, EncodeOptions
from .results import Result
from .retry import Attempts, RetryPolicy

if TYPE_CHECKING:
    from .shared_memory import Share

# Results may wait for a slow one before them: so many for each call that may be under way.
WAITING_RESULTS = 2


@dataclass(frozen=True)
class _Item:
    index: int
    image: Image
    call: EncodeCall
    attempts: Attempts


class ManyCalls:
    """One encode_many. Images are taken and results given in the caller's thread; gRPC's threads
    only report which calls have ended."""

    def __init__(
        self,
        method: Any,
        start: Callable[[Payload, EncodeOptions, Attempts], EncodeCall],
        refused: Callable[[Share | None, RpcError], None],
        metadata: Callable[[], Metadata],
        retry: RetryPolicy,
        source: Iterable[Image],
        options: EncodeOptions,
        concurrency: int,
    ) -> None:
        self._method = method
        self._start_call = start
        self._refused = refused
        self._metadata = metadata
        self._retry = retry
        self._source = enumerate(source)
        self._options = options
        self._concurrency = concurrency
        self._ended: queue.SimpleQueue[tuple[_Item, Any]] = queue.SimpleQueue()
        self._calls: dict[int, tuple[_Item, Any]] = {}  # under way, by index
        self._later: list[tuple[float, int, _Item]] = []  # a heap: retries by their time
        self._finished: dict[int, Result] = {}
        self._taken = 0  # images
        self._given = 0  # results
        self._exhausted = False  # the source

    def run(self) -> Iterator[Result]:
        """Gives the results. Leaving early cancels what is under way."""
        try:
            while True:
                self._start_due()
                self._fill()
                if self._given in self._finished:
                    result = self._finished.pop(self._given)
                    self._given += 1
                    yield result
                elif self._exhausted and self._given == self._taken:
                    return
                else:
                    self._wait()
        finally:
            for item, call in self._calls.values():
                call.cancel()
                item.call.abandoned()
                item.call.release()
            for _, _, item in self._later:
                item.call.release()

    def _fill(self) -> None:
        window = WAITING_RESULTS * self._concurrency
        while (
            not self._exhausted
            and len(self._calls) + len(self._later) < self._concurrency
            and self._taken - self._given < window
        ):
            try:
                index, image = next(self._source)
            except StopIteration:
                self._exhausted = True
                return
            self._taken += 1
            try:
                payload = images.load(image)
            except (DeepEncoderError, OSError) as error:
                self._finished[index] = Result(index, image, error=error)
                continue
            attempts = Attempts(self._retry, self._options.get("timeout", DEFAULT_TIMEOUT))
            call = self._start_call(payload, self._options, attempts)
            self._start(_Item(index, image, call, attempts))

    def _start(self, item: _Item) -> None:
        try:
            call = self._method.future(
                item.call.next_request(),
                timeout=item.attempts.remaining(),
                metadata=self._metadata(),
            )
        except BaseException:  # the channel is closed, no token could be had: no call has the memory
            item.call.release()
            raise
        self._calls[item.index] = item, call
        call.add_done_callback(lambda ended: self._ended.put((item, ended)))

    def _start_due(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic():
            self._start(heapq.heappop(self._later)[2])

    def _wait(self) -> None:
        """Until a call has ended or a retry is due."""
        timeout = max(0.0, self._later[0][0] - time.monotonic()) if self._later else None
        try:
            item, call = self._ended.get(timeout=timeout)
        except queue.Empty:
            return
        del self._calls[item.index]
        try:
            self._finish(item, Result(item.index, item.image, item.call.embeddings(call.result())))
        except grpc.RpcError as failure:
            self._failed(item, from_grpc(failure))
        except DeepEncoderError as error:
            self._finish(item, Result(item.index, item.image, error=error))

    def _failed(self, item: _Item, error: RpcError) -> None:
        item.call.failed(error)
        share = item.call.share
        if item.call.want_whole(error):
            self._refused(share, error)
            self._start(item)
            return
        delay = item.attempts.delay_after(error)
        if delay is None:
            self._finish(item, Result(item.index, item.image, error=error))
        else:
            heapq.heappush(self._later, (time.monotonic() + delay, item.index, item))

    def _finish(self, item: _Item, result: Result) -> None:
        self._finished[item.index] = result
        item.call.release()
