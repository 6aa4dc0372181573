"""Points of application time."""

from __future__ import annotations

from typing import NamedTuple


class Instant(NamedTuple):
    """A point of application time; compares lexicographically.

    `ts` is physical (µs or logical units), `seq` tells tuples of TICK BY TUPLE streams apart that
    share a `ts`, `tick` counts steps that take no physical time.
    """

    ts: int
    seq: int = 0
    tick: int = 0
