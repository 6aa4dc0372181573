"""The instants at which a window gains, loses or reports: when RSTREAM fires.

"Before netting": a tuple that leaves while an equal one enters still counts. So this looks at a
stream's instants only, never at its values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.operators.base import State
from kasen.operators.batch import I64, Batch, Bound
from kasen.operators.window import Now, Range, Rows, Slide, Unbounded

Window = Unbounded | Now | Range | Rows | Slide


class Touches:
    """One change without columns at each instant at which the window of a stream moves.

    `window` is over zero columns. For RANGE, NOW and ROWS its entering and leaving are the touches; a
    sliding window also reports when nothing enters or leaves (see Reports).
    """

    def __init__(self, window: Window) -> None:
        self._window = window

    def process(self, inputs: Sequence[Batch], upto: Bound) -> Batch:
        return once(self._window.process((_without_columns(inputs[0]),), upto))

    def next_instant(self) -> Bound | None:
        return self._window.next_instant()

    def snapshot(self) -> State:
        return self._window.snapshot()

    def restore(self, state: State) -> None:
        self._window.restore(state)

    def needs_input_since(self) -> Bound | None:
        return self._window.needs_input_since()

    @property
    def window(self) -> Window:
        return self._window


class Reports:
    """When a [RANGE length SLIDE slide] window reports, and with which bounds.

    It reports at each k*slide whose window [k*slide - length, k*slide) holds a tuple, and once more when
    it has become empty. As a relation (with_bounds) it is one row: window_start and window_end of the
    latest report, both NULL from the beginning to the first report.
    """

    def __init__(self, length: int, slide: int, *, with_bounds: bool) -> None:
        self._length = length
        self._slide = slide
        self._with_bounds = with_bounds
        self._next: int | None = None  # the next k*slide that may report
        self._pending = np.empty(0, np.int64)  # times of tuples that some report from _next on may hold
        self._was_empty = True
        self._last: int | None = None  # the time of the latest tuple
        self._shown: tuple[int, int] | None = None
        self._begin: Bound | None = None
        self._begun = False

    def begin(self, at: Bound) -> None:
        """The pipeline's first instant, at which the row of NULLs appears."""
        self._begin = at

    def process(self, inputs: Sequence[Batch], upto: Bound) -> Batch:
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

    def _reports(self, upto: Bound) -> list[int]:
        """The times below the frontier at which there is a report."""
        times: list[int] = []
        while self._next is not None and Bound(self._next, 0) < upto:
            at = self._next
            ended = int(np.searchsorted(self._pending, at - self._length, "left"))
            self._pending = self._pending[ended:]
            is_empty = not len(self._pending) or int(self._pending[0]) >= at
            if not (is_empty and self._was_empty):
                times.append(at)
            self._was_empty = is_empty
            self._next = self._following(at, is_empty)
        return times

    def _following(self, at: int, is_empty: bool) -> int | None:
        """The next time worth looking at: silence is skipped."""
        if not is_empty:
            return at + self._slide
        return self._after(int(self._pending[0])) if len(self._pending) else None

    def _rows(self, times: list[int], upto: Bound) -> Batch:
        changes: list[tuple[Bound, int, tuple[int, int] | None]] = []
        if not self._begun and self._begin is not None and self._begin < upto:
            self._begun = True
            changes.append((self._begin, 1, None))
        for at in times:
            # A report holds tuples from before it, so it always comes after the beginning.
            changes.append((Bound(at, 0), -1, self._shown))
            self._shown = (at - self._length, at)
            changes.append((Bound(at, 0), 1, self._shown))
        return _bounds_batch(changes)

    def next_instant(self) -> Bound | None:
        pending = [] if self._begun or self._begin is None or not self._with_bounds else [self._begin]
        if self._next is not None:
            pending.append(Bound(self._next, 0))
        return min(pending, default=None)

    def contents(self) -> I64:
        """The bounds shown now: a row of NULLs before the first report, none before the beginning."""
        if not self._with_bounds or not self._begun:
            return np.empty((3, 0), np.int64)
        start, end = self._shown or (0, 0)
        return np.array([[start], [end], [0 if self._shown else 0b11]], np.int64)

    def last_instant(self) -> Bound | None:
        """When the window will have reported that it is empty."""
        if not len(self._pending):
            return None if self._was_empty or self._next is None else Bound(self._next, 0)
        return Bound(self._after(int(self._pending[-1]) + self._length), 0)

    def snapshot(self) -> State:
        begin = self._begin or Bound(0, 0)
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
        self._begin = Bound(marks[3], marks[4]) if has_begin else None
        self._last = marks[5] if has_last else None

    def needs_input_since(self) -> Bound | None:
        if len(self._pending):
            return Bound(int(self._pending[0]), 0)
        # The bounds of the last report stay shown in silence, and follow from the latest tuple.
        return Bound(self._last, 0) if self._with_bounds and self._last is not None else None


def once(batch: Batch) -> Batch:
    """One change of +1 for each instant of a batch without columns."""
    if len(batch) < 2:
        return Batch(batch.ts, batch.sub, np.ones(len(batch), np.int64), batch.data)
    first = np.ones(len(batch), np.bool_)
    first[1:] = (batch.ts[1:] != batch.ts[:-1]) | (batch.sub[1:] != batch.sub[:-1])
    taken = batch.where(first)
    return Batch(taken.ts, taken.sub, np.ones(len(taken), np.int64), taken.data)


def _without_columns(batch: Batch) -> Batch:
    return Batch(batch.ts, batch.sub, batch.diff, np.zeros((1, len(batch)), np.int64))


def _touched(times: list[int]) -> Batch:
    ts = np.array(times, np.int64)
    zeros = np.zeros(len(times), np.int64)
    return Batch(ts, zeros, np.ones(len(times), np.int64), np.zeros((1, len(times)), np.int64))


def _bounds_batch(changes: list[tuple[Bound, int, tuple[int, int] | None]]) -> Batch:
    data = np.zeros((3, len(changes)), np.int64)
    for column, (_, _, bounds) in enumerate(changes):
        if bounds is None:
            data[2, column] = 0b11
        else:
            data[0, column], data[1, column] = bounds
    instants: I64 = np.array([at for at, _, _ in changes], np.int64).reshape(-1, 2)
    diff = np.array([sign for _, sign, _ in changes], np.int64)
    return Batch(instants[:, 0].copy(), instants[:, 1].copy(), diff, data)
