"""Windows whose tuples enter and leave in arrival order: RANGE, NOW, RANGE SLIDE, ROWS, ROWS SLIDE.

Each tuple enters its window's relation at one instant and leaves it at a later one. For time windows both
follow from the tuple's own time; for row windows, from the arrival of the tuple that fills a slide or
pushes it out. Either way instants of entering and leaving never go back as tuples arrive, so a
queue with two marks (entered, left) is all the state there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier, merge
from kasen.engine.fifo import Fifo
from kasen.engine.loop.kernels import queue_steps as loop_windows
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import LoopStep, lend, set_due
from kasen.engine.operator import Operator, State, bound_from_array, bound_to_array
from kasen.engine.window.held_tuples import HeldTuples
from kasen.engine.window.kernels import timed as kernel


class UnboundedWindow(Operator, LoopStep):
    """Every tuple so far: a stream's tuples are the relation's changes."""

    is_independent = True

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        return inputs[0]


class TimedWindow(Operator, LoopStep):
    """What RANGE, NOW and RANGE SLIDE have in common; `shape` says when a tuple enters and leaves."""

    is_independent = True
    loop_kind = loop_table.TIMED
    fires = True

    def __init__(self, columns: int, kind: int, length: int = 0, slide: int = 1) -> None:
        self._columns = columns
        self._shape = np.array([kind, length, slide], np.int64)
        self._held = Fifo(columns)
        self._entered = 0

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        batch = inputs[0]
        held = self._held
        if len(batch):
            held.append(batch)
        elif not len(held):
            return batch
        start, end = held.span
        entered = start + self._entered
        left, entered_to = kernel.moved(
            held.instants, start, entered, end, self._shape, min(upto.ts, _GREATEST), upto.seq_tick
        )
        count = entered_to - entered + left - start
        ts, seq_tick, diff = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
        data = np.empty((self._columns + 1, count), np.int64)
        if count:
            order = np.empty(count, np.int64)
            kernel.changes(
                held.instants, held.data, start, left, entered, order, ts, seq_tick, diff, data, self._shape
            )
            held.drop(left - start)
            self._entered = entered_to - left
        return Batch(ts, seq_tick, diff, data)

    def next_instant(self) -> Frontier | None:
        held = self._held
        if not len(held):
            return None
        start, end = held.span
        return Frontier(*kernel.due(held.instants, start, start + self._entered, end, self._shape))

    def last_instant(self) -> Frontier | None:
        held = self._held
        if not len(held):
            return None
        return Frontier(*kernel.leaving(int(held.ts[-1]), int(held.seq_tick[-1]), self._shape))

    def contents(self) -> I64:
        return self._held.rows(0, self._entered)

    def held_tuples(self, position: int) -> HeldTuples:
        del position
        return HeldTuples(self._held.batch())

    def snapshot(self) -> State:
        return {**self._held.snapshot(), "entered": np.array([self._entered])}

    def restore(self, state: State) -> None:
        self._held.restore(state)
        self._entered = int(state["entered"][0])

    def needs_input_since(self) -> Frontier | None:
        return self._held.oldest()

    def lend_state(self, row: I64) -> None:
        self._held.lend(row)
        row[loop_windows.ENTERED] = self._entered
        lend(row, loop_windows.SHAPE, self._shape, size=False)
        set_due(row, self.next_instant())

    def take_back(self, row: I64) -> None:
        self._held.take_back(row)
        self._entered = int(row[loop_windows.ENTERED])

    def make_room(self, wanted: int) -> None:
        self._held.make_room(wanted)


class RangeWindow(TimedWindow):
    """[RANGE length]: alive while the instant's ts <= its ts + length."""

    def __init__(self, columns: int, length: int) -> None:
        super().__init__(columns, kernel.RANGE, length)


class NowWindow(TimedWindow):
    """[NOW]: alive at its own instant, leaving one tick later."""

    def __init__(self, columns: int) -> None:
        super().__init__(columns, kernel.NOW)


class SlideWindow(TimedWindow):
    """[RANGE length SLIDE slide]: in the windows [k*slide - length, k*slide) that hold its ts.

    The first is at the least k*slide > ts; it is out at the least k*slide > ts + length. With
    length < slide these can be the same: then no window ever holds the tuple.
    """

    def __init__(self, columns: int, length: int, slide: int) -> None:
        super().__init__(columns, kernel.SLIDING, length, slide)
        self._length = length
        self._slide = slide

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        batch = inputs[0]
        if self._length < self._slide and len(batch):
            first = _next_multiple(batch.ts, self._slide)
            out = _next_multiple(_plus(batch.ts, self._length), self._slide)
            batch = batch.where(first < out)
        return super().process((batch,), upto)


class RowsWindow(Operator, LoopStep):
    """[ROWS count SLIDE slide]: the last `count` of the first c tuples, c the greatest full slide so far.

    Tuple number o (from 1) enters when number ceil(o / slide) * slide arrives, and leaves when the first
    multiple of slide >= o + count does.
    """

    is_independent = True
    loop_kind = loop_table.ROWS

    def __init__(self, columns: int, count: int, slide: int = 1) -> None:
        self._columns = columns
        self._count = count
        self._slide = slide
        self._held = Fifo(columns)
        self._first = 1  # the ordinal of the oldest tuple held
        self._entered = 0  # how many of the held tuples are in the relation
        self._dropped = (-(2**63), 0, 0)  # the instant dropped last, and how many of its tuples were
        self._start: Frontier | None = None  # what is older than this was counted by another copy

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        batch = inputs[0]
        if self._start is not None and len(batch):
            batch = self._since_start(batch)
        if not len(batch):
            return batch
        held = self._held
        before = self._first + len(held) - 1
        held.append(batch)
        total = before + len(batch)
        full = total // self._slide * self._slide
        entered = max(0, full - self._first + 1)
        left = max(0, full - self._count - self._first + 1)
        changes = [
            self._moved(batch, before, held.rows(self._entered, entered), self._entered, self._in, 1),
            self._moved(batch, before, held.rows(0, left), 0, self._out, -1),
        ]
        self._drop(left)
        self._entered = entered - left
        return merge(changes, self._columns)

    def _drop(self, count: int) -> None:
        if count:
            ts, seq_tick = self._held.ts, self._held.seq_tick
            last = int(ts[count - 1]), int(seq_tick[count - 1])
            run = 1
            if count > 1:
                of_ts = int(np.searchsorted(ts[:count], last[0], "left"))
                run = count - of_ts - int(np.searchsorted(seq_tick[of_ts:count], last[1], "left"))
            before = self._dropped[2] if self._dropped[:2] == last and run == count else 0
            self._dropped = (*last, before + run)
            self._held.drop(count)
            self._first += count

    def _since_start(self, batch: Batch) -> Batch:
        assert self._start is not None
        first = int(np.searchsorted(batch.ts, self._start.ts, "left"))
        same = int(np.searchsorted(batch.ts, self._start.ts, "right"))
        first += int(np.searchsorted(batch.seq_tick[first:same], self._start.seq_tick, "left"))
        if first < len(batch):
            self._start = None
        return batch.take(np.arange(first, len(batch)))

    def counted(self) -> tuple[Frontier, int] | None:
        oldest = self._held.oldest()
        if oldest is None:
            return None
        ahead = self._dropped[2] if self._dropped[:2] == oldest else 0
        return oldest, self._first - 1 - ahead

    def count_from(self, oldest: Frontier, before: int) -> None:
        self._start = oldest
        self._first = before + 1

    def count_on(self, first: int) -> None:
        self._first = first

    def contents(self) -> I64:
        return self._held.rows(0, self._entered)

    def held_tuples(self, position: int) -> HeldTuples:
        del position
        return HeldTuples(self._held.batch(), self._first)

    def _in(self, ordinals: I64) -> I64:
        return -(-ordinals // self._slide) * self._slide

    def _out(self, ordinals: I64) -> I64:
        return -(-(ordinals + self._count) // self._slide) * self._slide

    def _moved(
        self, batch: Batch, before: int, rows: I64, position: int, when: Callable[[I64], I64], diff: int
    ) -> Batch:
        """Tuples from `position` on, changing at the arrival of the ordinals that `when` gives."""
        ordinals = np.arange(rows.shape[1], dtype=np.int64) + (self._first + position)
        arrivals = when(ordinals) - before - 1
        return Batch(
            batch.ts[arrivals], batch.seq_tick[arrivals], np.full(len(arrivals), diff, np.int64), rows
        )

    def snapshot(self) -> State:
        return {
            **self._held.snapshot(),
            "marks": np.array([self._first, self._entered]),
            "dropped": np.array(self._dropped, np.int64),
            "start": bound_to_array(self._start),
        }

    def restore(self, state: State) -> None:
        self._held.restore(state)
        self._first, self._entered = (int(mark) for mark in state["marks"])
        ts, seq_tick, count = (int(mark) for mark in state["dropped"])
        self._dropped = ts, seq_tick, count
        self._start = bound_from_array(state["start"])

    def needs_input_since(self) -> Frontier | None:
        return self._held.oldest()

    def lend_state(self, row: I64) -> None:
        self._held.lend(row)
        row[loop_windows.ENTERED], row[loop_windows.FIRST] = self._entered, self._first
        row[loop_windows.COUNT], row[loop_windows.SLIDE] = self._count, self._slide

    def take_back(self, row: I64) -> None:
        self._held.take_back(row)
        self._entered, self._first = int(row[loop_windows.ENTERED]), int(row[loop_windows.FIRST])

    def make_room(self, wanted: int) -> None:
        self._held.make_room(wanted)


_GREATEST = 2**63 - 1


def _plus(ts: I64, length: int) -> I64:
    """ts + length, stopping at the end of time instead of wrapping around."""
    limit = _GREATEST - length
    return np.where(ts > limit, _GREATEST, ts + length)


def _next_multiple(ts: I64, slide: int) -> I64:
    """The least multiple of `slide` greater than ts."""
    return (ts // slide + 1) * slide
