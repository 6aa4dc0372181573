"""The instants at which a window gains, loses or reports: when RSTREAM fires.

"Before netting": a tuple that leaves while an equal one enters still counts. So this looks at a
stream's instants only, never at its values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from kasen.engine.batch import I64, Batch, Frontier, concat
from kasen.engine.operator import Operator, State

#: The NULL bits of both bounds.
_UNKNOWN = 0b11


class WindowActivity(Operator):
    """One change without columns at each instant at which the window of a stream moves.

    `window` is over zero columns. For RANGE, NOW and ROWS its entering and leaving are the activity; a
    sliding window also reports when nothing enters or leaves (see Reports).
    """

    is_independent = True

    def __init__(self, window: Operator) -> None:
        self._window = window

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        return once(self._window.process((_without_columns(inputs[0]),), upto))

    def counted(self) -> tuple[Frontier, int] | None:
        return self._window.counted()

    def count_from(self, oldest: Frontier, before: int) -> None:
        self._window.count_from(oldest, before)

    def count_on(self, first: int) -> None:
        self._window.count_on(first)

    def next_instant(self) -> Frontier | None:
        return self._window.next_instant()

    def snapshot(self) -> State:
        return self._window.snapshot()

    def restore(self, state: State) -> None:
        self._window.restore(state)

    def needs_input_since(self) -> Frontier | None:
        return self._window.needs_input_since()


class WindowReports(Operator):
    """When a [RANGE length SLIDE slide] window reports, and with which bounds.

    It reports at each k*slide whose window [k*slide - length, k*slide) holds a tuple, and once more when
    it has become empty. As a relation (with_bounds) it is one row: window_start and window_end of the
    latest report, both NULL from the beginning to the first report.
    """

    is_independent = True

    def __init__(self, length: int, slide: int, *, with_bounds: bool) -> None:
        self._length = length
        self._slide = slide
        self._with_bounds = with_bounds
        self._next: int | None = None  # the next k*slide that may report
        self._pending = np.empty(0, np.int64)  # times of tuples that some report from _next on may hold
        self._was_empty = True
        self._last: int | None = None  # the time of the latest tuple
        self._shown: tuple[int, int] | None = None
        self._begin: Frontier | None = None
        self._begun = False

    def begin(self, at: Frontier) -> None:
        """The row of NULLs appears."""
        self._begin = at

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        arrivals = inputs[0].ts
        if len(arrivals):
            self._pending = np.concatenate([self._pending, arrivals])
            self._last = int(arrivals[-1])
            if self._next is None:
                self._next = self._after(int(arrivals[0]))
        times = self._reports(upto)
        return self._rows(times, upto) if self._with_bounds else _touched(times)

    def _after(self, ts: int) -> int:
        return (ts // self._slide + 1) * self._slide

    def _reports(self, upto: Frontier) -> list[int]:
        """The times below the frontier at which there is a report."""
        times: list[int] = []
        if self._next is None or Frontier(self._next, 0) >= upto:
            return times
        pending = self._pending.tolist()
        first = 0  # of those that the next report may hold
        while self._next is not None and Frontier(self._next, 0) < upto:
            at = self._next
            first = bisect_left(pending, at - self._length, first)
            is_empty = first == len(pending) or pending[first] >= at
            if not (is_empty and self._was_empty):
                times.append(at)
            self._was_empty = is_empty
            if not is_empty:
                self._next = at + self._slide
            else:  # silence is skipped
                self._next = self._after(pending[first]) if first < len(pending) else None
        self._pending = self._pending[first:]
        return times

    def _rows(self, times: list[int], upto: Frontier) -> Batch:
        batches = []
        if not self._begun and self._begin is not None and self._begin < upto:
            self._begun = True
            batches.append(_bounds_batch([self._begin.ts], [self._begin.seq_tick], [1], [0], [0], [_UNKNOWN]))
        if times:
            # A report holds tuples from before it, so it always comes after the beginning.
            ends = np.array([self._shown[1] if self._shown is not None else 0, *times], np.int64)
            shown = np.stack([ends[:-1], ends[1:]], axis=1).reshape(-1)
            zeros = np.zeros(len(shown), np.int64)
            diff = np.tile(np.array([-1, 1]), len(times))
            batch = _bounds_batch(np.repeat(ends[1:], 2), zeros, diff, shown - self._length, shown, zeros)
            if self._shown is None:
                batch.data[:, 0] = 0, 0, _UNKNOWN
            self._shown = (times[-1] - self._length, times[-1])
            batches.append(batch)
        return concat(batches, 2)

    def next_instant(self) -> Frontier | None:
        pending = [] if self._begun or self._begin is None or not self._with_bounds else [self._begin]
        if self._next is not None:
            pending.append(Frontier(self._next, 0))
        return min(pending, default=None)

    def contents(self) -> I64:
        """The bounds shown now: a row of NULLs before the first report, none before the beginning."""
        if not self._with_bounds or not self._begun:
            return np.empty((3, 0), np.int64)
        start, end = self._shown or (0, 0)
        return np.array([[start], [end], [0 if self._shown else 0b11]], np.int64)

    def last_instant(self) -> Frontier | None:
        """When the window will have reported that it is empty."""
        if not len(self._pending):
            return None if self._was_empty or self._next is None else Frontier(self._next, 0)
        return Frontier(self._after(int(self._pending[-1]) + self._length), 0)

    def snapshot(self) -> State:
        begin = self._begin or Frontier(0, 0)
        flags = [self._next is not None, self._was_empty, self._shown is not None, self._begun]
        flags += [self._begin is not None, self._last is not None]
        shown = self._shown or (0, 0)
        return {
            "pending": self._pending.copy(),
            "flags": np.array(flags, np.int64),
            "marks": np.array([self._next or 0, *shown, *begin, self._last or 0], np.int64),
        }

    def restore(self, state: State) -> None:
        self._pending = state["pending"].astype(np.int64)
        has_next, was_empty, has_shown, begun, has_begin, has_last = (bool(flag) for flag in state["flags"])
        marks = [int(mark) for mark in state["marks"]]
        self._next = marks[0] if has_next else None
        self._was_empty = was_empty
        self._shown = (marks[1], marks[2]) if has_shown else None
        self._begun = begun
        self._begin = Frontier(marks[3], marks[4]) if has_begin else None
        self._last = marks[5] if has_last else None

    def needs_input_since(self) -> Frontier | None:
        if len(self._pending):
            return Frontier(int(self._pending[0]), 0)
        # The bounds of the last report stay shown in silence, and follow from the latest tuple.
        return Frontier(self._last, 0) if self._with_bounds and self._last is not None else None


def once(batch: Batch) -> Batch:
    """One change of +1 for each instant of a batch without columns."""
    if len(batch) < 2:
        return Batch(batch.ts, batch.seq_tick, np.ones(len(batch), np.int64), batch.data)
    first = np.ones(len(batch), np.bool_)
    first[1:] = (batch.ts[1:] != batch.ts[:-1]) | (batch.seq_tick[1:] != batch.seq_tick[:-1])
    taken = batch.where(first)
    return Batch(taken.ts, taken.seq_tick, np.ones(len(taken), np.int64), taken.data)


def _without_columns(batch: Batch) -> Batch:
    return Batch(batch.ts, batch.seq_tick, batch.diff, np.zeros((1, len(batch)), np.int64))


def _touched(times: list[int]) -> Batch:
    ts = np.array(times, np.int64)
    zeros = np.zeros(len(times), np.int64)
    return Batch(ts, zeros, np.ones(len(times), np.int64), np.zeros((1, len(times)), np.int64))


def _bounds_batch(
    ts: ArrayLike, seq_tick: ArrayLike, diff: ArrayLike, start: ArrayLike, end: ArrayLike, nulls: ArrayLike
) -> Batch:
    data = np.array([start, end, nulls], np.int64)
    return Batch(np.array(ts, np.int64), np.array(seq_tick, np.int64), np.array(diff, np.int64), data)
