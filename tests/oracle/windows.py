"""Windows from their definitions: what a window holds at an instant, given the stream's whole history.

Each function answers for one instant and keeps nothing in between. `history` holds the stream's
tuples up to and including the instant, in stream order; a window's content is a list of indices into
it, so that two equal tuples stay apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from kasen.cql.bound import Now, PartitionRows, Range, Rows, Slide, Unbounded, Window
from tests.oracle.instants import Instant
from tests.oracle.values import Key, Row, order_key


class Arrival(NamedTuple):
    """A tuple of a stream with its instant."""

    instant: Instant
    row: Row


History = Sequence[Arrival]
Bounds = tuple[int, int]


def contents(window: Window, history: History, now: Instant) -> list[int]:
    """The tuples that `window` holds at `now`."""
    match window:
        case Unbounded():
            return list(range(len(history)))
        case Now():
            return now_contents(history, now)
        case Range(length):
            return range_contents(history, now, length)
        case Slide(length, slide):
            return slide_contents(history, boundary_at(now, slide), length)
        case Rows(count, slide):
            return rows_contents(history, count, slide)
        case PartitionRows(keys, count):
            return partition_contents(history, keys, count)


def now_contents(history: History, now: Instant) -> list[int]:
    """[NOW]: alive at its own instant only."""
    return [index for index, one in enumerate(history) if one.instant == now]


def range_contents(history: History, now: Instant, length: int) -> list[int]:
    """[RANGE t]: alive while the instant's ts <= its ts + t (inclusive)."""
    return [index for index, one in enumerate(history) if now.ts <= one.instant.ts + length]


def boundary_at(now: Instant, slide: int) -> int:
    """The latest k*s: between two of them the relation of a SLIDE window does not change."""
    return now.ts // slide * slide


def slide_contents(history: History, boundary: int, length: int) -> list[int]:
    """[RANGE t SLIDE s]: the window [k*s - t, k*s), aligned to zero."""
    return [index for index, one in enumerate(history) if boundary - length <= one.instant.ts < boundary]


def rows_contents(history: History, count: int, slide: int) -> list[int]:
    """[ROWS n SLIDE m]: the last n tuples, as they were at the last ordinal divisible by m."""
    reached = len(history) // slide * slide
    return list(range(max(0, reached - count), reached))


def partition_contents(history: History, keys: Sequence[int], count: int) -> list[int]:
    """[PARTITION BY a, b ROWS n]: the last n tuples of each combination of a and b (NULLs are equal)."""
    groups: defaultdict[Key, list[int]] = defaultdict(list)
    for index, one in enumerate(history):
        groups[order_key(one.row[key] for key in keys)].append(index)
    return sorted(index for group in groups.values() for index in group[-count:])


# ---------------------------------------------------------------- when a window acts by itself


def next_event(window: Window, history: History, now: Instant) -> Instant | None:
    """The first instant after `now` at which the window changes or reports with no tuple arriving."""
    match window:
        case Now():
            return now_leaves(history, now)
        case Range(length):
            return range_leaves(history, now, length)
        case Slide():
            following = Instant(boundary_at(now, window.slide) + window.slide)
            return following if slide_reports(window, history, following) else None
    return None


def now_leaves(history: History, now: Instant) -> Instant | None:
    """A tuple leaves [NOW] one tick after its instant."""
    return now._replace(tick=now.tick + 1) if now_contents(history, now) else None


def range_leaves(history: History, now: Instant, length: int) -> Instant | None:
    """A tuple leaves [RANGE t] at (ts + t + 1, 0, 0)."""
    alive = range_contents(history, now, length)
    return min((Instant(history[index].instant.ts + length + 1) for index in alive), default=None)


def slide_reports(window: Slide, history: History, now: Instant) -> bool:
    """A SLIDE window reports at each (k*s, 0, 0) where it is not empty, and once where it became empty."""
    boundary = boundary_at(now, window.slide)
    if now != Instant(boundary):
        return False
    return bool(
        slide_contents(history, boundary, window.length)
        or slide_contents(history, boundary - window.slide, window.length)
    )


def reports(window: Window, history: History, now: Instant) -> bool:
    """Whether the window reports at `now` even if it holds the same tuples as before."""
    return isinstance(window, Slide) and slide_reports(window, history, now)


def latest_bounds(window: Slide, history: History, now: Instant) -> Bounds | None:
    """window_start() and window_end(): k*s - t and k*s of the latest report; None before the first one."""
    latest = None
    for one in history:
        first = one.instant.ts // window.slide * window.slide + window.slide
        last = (one.instant.ts + window.length) // window.slide * window.slide
        if first > last:
            continue  # the tuple falls between two windows, as t < s
        # The tuple is in the windows that end at first..last; one slide later comes the empty report.
        seen = min(boundary_at(now, window.slide), last + window.slide)
        if seen >= first and (latest is None or seen > latest):
            latest = seen
    return None if latest is None else (latest - window.length, latest)
