"""[ROWS count SLIDE slide] on a shard, which has only some of the stream's tuples.

Each tuple carries its ordinal in the whole stream as its last column. The second input has the instants of
all the stream's tuples: so the shard knows when an ordinal arrives that it does not hold itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier, empty, merge
from kasen.engine.fifo import Fifo
from kasen.engine.operator import Operator, State


class OrdinalRowsWindow(Operator):
    """Tuple number o (from 1) is in the window from the arrival of ceil(o / slide) * slide on, until that of
    the first multiple of slide >= o + count."""

    is_independent = True

    def __init__(self, columns: int, count: int, slide: int = 1) -> None:
        self._columns = columns
        self._count = count
        self._slide = slide
        self._held = Fifo(columns + 1)  # the tuple's columns, then its ordinal
        self._entered = 0  # how many of the held tuples are in the relation
        self._total = 0  # how many tuples the whole stream has had

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        batch, every = inputs
        if not len(every):
            return empty(self._columns)
        held = self._held
        if len(batch):
            held.append(batch)
        before = self._total
        self._total += len(every)
        start, end = held.span
        ordinals = held.data[self._columns, start:end]
        enters = -(-ordinals // self._slide) * self._slide
        leaves = -(-(ordinals + self._count) // self._slide) * self._slide
        entered = int(np.searchsorted(enters, self._total, "right"))
        left = int(np.searchsorted(leaves, self._total, "right"))
        changes = [
            self._moved(every, enters[self._entered : entered] - before - 1, self._entered, 1),
            self._moved(every, leaves[:left] - before - 1, 0, -1),
        ]
        held.drop(left)
        self._entered = entered - left
        return merge(changes, self._columns)

    def _moved(self, every: Batch, arrivals: I64, first: int, diff: int) -> Batch:
        """Tuples from position `first` on, each changing with the arrival that is given for it."""
        rows = self._held.rows(first, first + len(arrivals))
        # The NULL word moves up: the ordinal stays behind.
        data = np.ascontiguousarray(np.delete(rows, self._columns, axis=0))
        return Batch(
            every.ts[arrivals], every.seq_tick[arrivals], np.full(len(arrivals), diff, np.int64), data
        )

    def contents(self) -> I64:
        return np.ascontiguousarray(np.delete(self._held.rows(0, self._entered), self._columns, axis=0))

    def snapshot(self) -> State:
        return {**self._held.snapshot(), "marks": np.array([self._total, self._entered])}

    def restore(self, state: State) -> None:
        self._held.restore(state)
        self._total, self._entered = (int(mark) for mark in state["marks"])

    def needs_input_since(self) -> Frontier | None:
        return self._held.oldest()
