"""Many images with a bounded number of calls under way, results in the images' order."""

from __future__ import annotations

import heapq
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from . import images
from .channel import Metadata
from .errors import DeepEncoderError, from_grpc
from .images import Image
from .options import DEFAULT_TIMEOUT
from .results import Result
from .retry import Attempts, RetryPolicy
from .wire import build_request, parse_reply

# Results may wait for a slow one before them: so many for each call that may be under way.
WAITING_RESULTS = 2


@dataclass(frozen=True)
class _Item:
    index: int
    image: Image
    request: bytes
    attempts: Attempts


class ManyCalls:
    """One encode_many. Images are taken and results given in the caller's thread; gRPC's threads
    only report which calls have ended."""

    def __init__(
        self,
        method: Any,
        metadata: Callable[[], Metadata],
        retry: RetryPolicy,
        source: Iterable[Image],
        options: Mapping[str, Any],
        concurrency: int,
    ) -> None:
        self._method = method
        self._metadata = metadata
        self._retry = retry
        self._source = enumerate(source)
        self._options = options
        self._concurrency = concurrency
        self._ended: queue.SimpleQueue[tuple[_Item, Any]] = queue.SimpleQueue()
        self._calls: dict[int, Any] = {}  # under way, by index
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
            for call in self._calls.values():
                call.cancel()

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
                request = build_request(images.load(image), self._options)
            except (DeepEncoderError, OSError) as error:
                self._finished[index] = Result(index, image, error=error)
                continue
            attempts = Attempts(self._retry, self._options.get("timeout", DEFAULT_TIMEOUT))
            self._start(_Item(index, image, request, attempts))

    def _start(self, item: _Item) -> None:
        call = self._method.future(
            item.request, timeout=item.attempts.remaining(), metadata=self._metadata()
        )
        self._calls[item.index] = call
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
            embeddings = parse_reply(call.result())
        except grpc.RpcError as failure:
            error = from_grpc(failure)
            delay = item.attempts.delay_after(error)
            if delay is None:
                self._finished[item.index] = Result(item.index, item.image, error=error)
            else:
                heapq.heappush(self._later, (time.monotonic() + delay, item.index, item))
        except DeepEncoderError as error:
            self._finished[item.index] = Result(item.index, item.image, error=error)
        else:
            self._finished[item.index] = Result(item.index, item.image, embeddings)
