"""Items on their way from the service: who waits for them, which are here, which failed.

All methods but the loads themselves belong to one thread, vLLM's scheduler.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from .views import Rows

Load = Callable[[], Rows]


def results(parts: Sequence[Future[Rows]]) -> list[Rows]:
    """Of all parts of an item. If one fails nobody needs those that have not begun."""
    try:
        return [part.result() for part in parts]
    except BaseException:
        for part in parts:
            part.cancel()
        raise


@dataclass
class _Item:
    load: Future[Rows]
    requests: set[str] = field(default_factory=set)
    """That still need the item. While there is one, the item stays."""


class Transfers:
    """Loads each item once, keeps it while a request needs it, and for a while after."""

    def __init__(self, concurrency: int, idle_bytes: int) -> None:
        """concurrency: loads at a time. idle_bytes: of rows kept that no request needs."""
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="deepencoder-item")
        self._idle_bytes = idle_bytes
        self._items: OrderedDict[str, _Item] = OrderedDict()  # the longest unused first

    def start(self, item_id: str, request_id: str, load: Load) -> bool:
        """Starts the load unless it was started. Returns whether it has ended, well or not."""
        item = self._items.get(item_id)
        if item is None or (not item.requests and self.error(item_id) is not None):
            item = self._items[item_id] = _Item(self._pool.submit(load))
        item.requests.add(request_id)
        self._items.move_to_end(item_id)
        return item.load.done()

    def rows(self, item_id: str) -> Rows | None:
        """The item's rows if they are here."""
        item = self._items.get(item_id)
        if item is None or not item.load.done() or item.load.cancelled():
            return None
        return item.load.result() if item.load.exception() is None else None

    def error(self, item_id: str) -> BaseException | None:
        """Why the load failed, if it did."""
        item = self._items.get(item_id)
        return item.load.exception() if item is not None and item.load.done() else None

    def release(self, item_id: str, request_id: str) -> None:
        """The request needs the item no longer, or never did."""
        item = self._items.get(item_id)
        if item is None or request_id not in item.requests:
            return
        item.requests.remove(request_id)
        if not item.requests and (item.load.cancel() or self.error(item_id) is not None):
            del self._items[item_id]  # not begun, or failed
        self._drop_idle()

    def close(self) -> None:
        """Waits for loads under way; those not begun are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _drop_idle(self) -> None:
        idle = [key for key, item in self._items.items() if not item.requests]
        sizes = {key: rows.nbytes for key in idle if (rows := self.rows(key)) is not None}
        excess = sum(sizes.values()) - self._idle_bytes
        for key in idle:
            if self.error(key) is not None:  # failed after its last request went
                del self._items[key]
            elif excess > 0 and key in sizes:
                del self._items[key]
                excess -= sizes[key]
