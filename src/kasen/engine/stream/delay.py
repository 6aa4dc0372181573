"""<d> and <Now>: a stream moved into the future. Where loops are cut."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier, empty
from kasen.engine.fifo import Fifo
from kasen.engine.loop.kernels import queue_steps as loop_windows
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import LoopStep, set_due
from kasen.engine.operator import Operator, State


class Delay(Operator, LoopStep):
    """Moves tuples by `length` units, or by one tick (None). Their order stays, so a queue will do."""

    is_independent = True
    loop_kind = loop_table.DELAY
    fires = True

    def __init__(self, columns: int, length: int | None) -> None:
        self._columns = columns
        self._length = length
        self._due = Fifo(columns)
        self._closed = False

    def end_input(self) -> None:
        """Drops what is due and whatever else comes."""
        self._due.drop(len(self._due))
        self._closed = True

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        batch = inputs[0]
        if self._closed:
            return empty(self._columns)
        if len(batch):
            self._due.append(self._moved(batch))
        due = self._due
        count = int(np.searchsorted(due.ts, upto.ts, "left"))
        ties = int(np.searchsorted(due.ts, upto.ts, "right"))
        count += int(np.searchsorted(due.seq_tick[count:ties], upto.seq_tick, "left"))
        ready = Batch(
            due.ts[:count].copy(), due.seq_tick[:count].copy(), np.ones(count, np.int64), due.rows(0, count)
        )
        due.drop(count)
        return ready

    def _moved(self, batch: Batch) -> Batch:
        if self._length is None:
            return Batch(batch.ts, batch.seq_tick + 1, batch.diff, batch.data)
        return Batch(batch.ts + self._length, batch.seq_tick, batch.diff, batch.data)

    def next_instant(self) -> Frontier | None:
        return self._due.oldest()

    def snapshot(self) -> State:
        return self._due.snapshot()

    def restore(self, state: State) -> None:
        self._due.restore(state)

    def needs_input_since(self) -> Frontier | None:
        due = self._due.oldest()
        if due is None:
            return None
        ts, seq_tick = due
        return Frontier(ts, seq_tick - 1) if self._length is None else Frontier(ts - self._length, seq_tick)

    def lend_state(self, row: I64) -> None:
        self._due.lend(row)
        row[loop_windows.DELAY_LENGTH] = -1 if self._length is None else self._length
        row[loop_windows.CLOSED] = int(self._closed)
        set_due(row, self.next_instant())

    def take_back(self, row: I64) -> None:
        self._due.take_back(row)

    def make_room(self, wanted: int) -> None:
        self._due.make_room(wanted)
