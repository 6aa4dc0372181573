"""When rows that carry no time have come: the local engine looks at the clock for data here only."""

from __future__ import annotations

import time
from collections.abc import Callable


def _wall() -> int:
    """µs since 1970."""
    return time.time_ns() // 1000


class ArrivalClock:
    """The wall clock, but always later than the time before.

    The clock may be set back. Rows must not be late for that, nor may time stand still: an instant is
    answered only when a later one comes. So each stamp is at least 1 µs after the one before, of whatever
    stream, until the clock has caught up. If the clock is set forward, time follows it.
    """

    def __init__(self, wall: Callable[[], int] = _wall) -> None:
        self._wall = wall
        self._last = -(2**62)

    def __call__(self) -> int:
        self._last = max(self._wall(), self._last + 1)
        return self._last
