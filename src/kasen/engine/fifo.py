"""A queue of tuples in arrival order: what windows and delays remember.

Arrays with room at the end and a moving start; appending and dropping cost a constant per tuple,
amortised, and steady state allocates nothing.
"""

from __future__ import annotations

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier, ones
from kasen.engine.deferred_batch import DeferredBatch
from kasen.engine.loop.kernels import queue_steps as loop_windows
from kasen.engine.loop.steps import lend
from kasen.engine.operator import State

_LEAST = 64


class Fifo:
    """Tuples with their instants. Positions count from the oldest tuple still held."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._start = 0
        self._end = 0
        #: What kernels take: the tuples lie in [start, end) of these, see `span`.
        self.instants: I64 = np.empty((2, _LEAST), np.int64)
        self.data: I64 = np.empty((columns + 1, _LEAST), np.int64)

    def __len__(self) -> int:
        return self._end - self._start

    def append(self, batch: Batch) -> None:
        """Adds the tuples of a batch (its diffs are all +1)."""
        count = len(batch)
        if self._end + count > self.data.shape[1]:
            self.make_room(count)
        end = self._end + count
        self.instants[0, self._end : end] = batch.ts
        self.instants[1, self._end : end] = batch.seq_tick
        if isinstance(batch, DeferredBatch):
            for index, row in enumerate(self.data[:, self._end : end], -len(self.data)):
                batch.fill(index, row)
        else:
            self.data[:, self._end : end] = batch.data
        self._end = end

    def make_room(self, count: int) -> None:
        """Room for so many more: moves the tuples to the front, into larger arrays if they would fill more
        than half."""
        live = len(self)
        capacity = self.data.shape[1]
        while capacity < 2 * (live + count):
            capacity *= 2
        instants = np.empty((2, capacity), np.int64)
        data = np.empty((self._columns + 1, capacity), np.int64)
        instants[:, :live] = self.instants[:, self._start : self._end]
        data[:, :live] = self.data[:, self._start : self._end]
        self.instants, self.data = instants, data
        self._start, self._end = 0, live

    @property
    def span(self) -> tuple[int, int]:
        """Where the tuples lie in `instants` and `data`; valid until the next append or drop."""
        return self._start, self._end

    @property
    def ts(self) -> I64:
        """The tuples' times, oldest first: a view, valid until the next append."""
        view: I64 = self.instants[0, self._start : self._end]
        return view

    @property
    def seq_tick(self) -> I64:
        view: I64 = self.instants[1, self._start : self._end]
        return view

    def oldest(self) -> Frontier | None:
        """The instant of the oldest tuple."""
        start = self._start
        if start == self._end:
            return None
        return Frontier(int(self.instants[0, start]), int(self.instants[1, start]))

    def rows(self, first: int, last: int) -> I64:
        """A copy of the data of the tuples at positions [first, last)."""
        copy: I64 = self.data[:, self._start + first : self._start + last].copy()
        return copy

    def batch(self) -> Batch:
        """A copy of all tuples, as insertions."""
        return Batch(self.ts.copy(), self.seq_tick.copy(), ones(len(self)), self.rows(0, len(self)))

    def drop(self, count: int) -> None:
        """Forgets the `count` oldest tuples."""
        self._start += count
        if self._start == self._end:
            self._start = self._end = 0

    def snapshot(self) -> State:
        return {
            "instants": self.instants[:, self._start : self._end].copy(),
            "data": self.rows(0, len(self)),
        }

    def restore(self, state: State) -> None:
        instants, data = state["instants"], state["data"]
        self.append(Batch(instants[0], instants[1], ones(instants.shape[1]), data))

    def lend(self, row: I64) -> None:
        """To the loop machine, as every queue."""
        lend(row, loop_windows.INSTANTS, self.instants, size=False)
        lend(row, loop_windows.QUEUE, self.data, size=False)
        row[loop_windows.QUEUE_ROOM] = self.data.shape[1]
        row[loop_windows.START], row[loop_windows.END] = self.span

    def take_back(self, row: I64) -> None:
        self._start, self._end = int(row[loop_windows.START]), int(row[loop_windows.END])
