"""Whether and when a failed call is tried again."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from .errors import OverloadedError, RpcError, UnavailableError

_MOST_DOUBLINGS = 30


@dataclass(frozen=True)
class RetryPolicy:
    """Calls that found the server away or full are tried again, within their timeout.

    The wait is the server's hint or a delay that doubles, whichever is longer, times 1 to 1.5.
    """

    max_attempts: int = 5
    """1: no retries."""
    first_delay: float = 0.1
    """Seconds."""
    max_delay: float = 5.0
    """Seconds; a server's hint may be longer."""

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.first_delay < 0 or self.max_delay < self.first_delay:
            raise ValueError(f"{self}: needs 1 attempt or more and 0 <= first_delay <= max_delay")


class Attempts:
    """One call's attempts. Its time starts now."""

    def __init__(self, policy: RetryPolicy, timeout: float | None) -> None:
        self._policy = policy
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._failed = 0

    def remaining(self) -> float | None:
        """Seconds left, as gRPC takes them."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def delay_after(self, error: RpcError) -> float | None:
        """Seconds to wait before the next attempt; None if there is none.

        None: the error would come again, the attempts are used up, or the time would be.
        """
        self._failed += 1
        error.attempts = self._failed
        if not isinstance(error, (UnavailableError, OverloadedError)):
            return None
        if self._failed >= self._policy.max_attempts:
            return None
        # 2 ** 1024 is no float any more.
        doublings = min(self._failed - 1, _MOST_DOUBLINGS)
        doubled = min(self._policy.max_delay, self._policy.first_delay * 2**doublings)
        # Clients that failed together should not come back together, and none before its time.
        delay = max(error.retry_after or 0.0, doubled) * random.uniform(1.0, 1.5)
        remaining = self.remaining()
        return None if remaining is not None and delay >= remaining else delay
