"""Which memory a client shares with its server now, and when lost memory is replaced."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .errors import DeepEncoderError, UnsupportedError
from .retry import Attempts, RetryPolicy

if TYPE_CHECKING:
    from .shared_memory import Share

RENEWAL_SECONDS = 2.0  # a server of this host answers at once, or not at all
RENEWAL_PAUSE = 10.0  # seconds after a renewal that failed


class Sharing:
    """The memory in use, if there is some. Thread-safe.

    Memory that was lost is replaced by the call that comes next: the one that lost it goes on
    without. A renewal that fails or is cancelled is tried again by a later call.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._share: Share | None = None
        self._wanted = 0  # bytes to share again
        self._renewing = False
        self._not_before = 0.0  # the next renewal

    @property
    def share(self) -> Share | None:
        """What calls use now."""
        return self._share

    def start(self, share: Share) -> Share | None:
        """From now on calls use it. Returns what they used before."""
        with self._lock:
            before, self._share = self._share, share
            self._wanted = 0
            return before

    def stop(self) -> Share | None:
        """Nothing is shared any more. Returns what calls used before."""
        with self._lock:
            before, self._share = self._share, None
            self._wanted = 0
            return before

    def lost(self, share: Share, *, replace: bool) -> None:
        """The memory can be used no more. replace: other memory may be."""
        with self._lock:
            if self._share is not share:
                return  # another call was first
            self._share = None
            self._wanted = share.pool.size if replace else 0

    def due(self) -> int:
        """Bytes that the caller should share now, inside `renewing`; 0: none, or another does."""
        with self._lock:
            if self._renewing or self._wanted == 0 or self._clock() < self._not_before:
                return 0
            self._renewing = True
            return self._wanted

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Around a renewal. Its errors are no errors of the call: that works without memory too."""
        pause = 0.0
        try:
            yield
        except UnsupportedError:  # the server shares no more
            self.stop()
        except (DeepEncoderError, OSError):
            pause = RENEWAL_PAUSE
        finally:
            with self._lock:
                self._renewing = False
                self._not_before = self._clock() + pause


def renewal_attempts(call: Attempts) -> Attempts:
    """A renewal's attempt, which leaves at least half of its call's time to the call."""
    left = call.remaining()
    seconds = RENEWAL_SECONDS if left is None else min(RENEWAL_SECONDS, left / 2)
    return Attempts(RetryPolicy(max_attempts=1), seconds)
