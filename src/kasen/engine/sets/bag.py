"""DISTINCT, UNION, INTERSECT [ALL] and EXCEPT [ALL], net at every instant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.batch import BEGIN, I64, Batch, Frontier, empty
from kasen.engine.kernels import groups
from kasen.engine.loop.kernels import state_steps as loop_state
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import LoopStep, lend
from kasen.engine.operator import Operator, State
from kasen.engine.record_table import RecordTable
from kasen.engine.sets.kernels import bag as kernel
from kasen.engine.window.held_tuples import HeldTuples, without_times

_MODES = {
    "distinct": kernel.DISTINCT,
    "union": kernel.UNION,
    "intersect": kernel.INTERSECT,
    "intersect all": kernel.INTERSECT_ALL,
    "except": kernel.EXCEPT,
    "except all": kernel.EXCEPT_ALL,
}


class Bag(Operator, LoopStep):
    """One input for 'distinct', two for the others; `columns` is the width of all.

    Keeps how often each different row is on either side. The answer's diffs carry multiplicity.
    """

    is_independent = True
    loop_kind = loop_table.BAG

    def __init__(self, mode: str, columns: int) -> None:
        self._columns = columns
        self._rows = RecordTable(columns, groups.KEY + columns)
        self._control = np.zeros(kernel.CONTROL, np.int64)
        self._control[kernel.MODE] = _MODES[mode]
        self._control[kernel.RECORD] = self._rows.width
        self._control[kernel.CLOCK] = 1  # later than the stamp of a record never touched
        self._none = empty(columns)

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto  # nothing happens without input
        left = inputs[0]
        right = inputs[1] if len(inputs) > 1 else self._none
        most = len(left) + len(right)
        if most == 0:
            return self._none
        ts, seq_tick, diff = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
        data = np.empty((self._columns + 1, most), np.int64)
        control = self._control
        control[kernel.NEXT_LEFT] = control[kernel.NEXT_RIGHT] = control[kernel.PUT_OUT] = 0
        while kernel.combine(
            left.ts,
            left.seq_tick,
            left.diff,
            left.data,
            right.ts,
            right.seq_tick,
            right.diff,
            right.data,
            self._rows.table,
            self._rows.records,
            self._rows.touched,
            ts,
            seq_tick,
            diff,
            data,
            control,
        ):
            self._rows.grow()
        rows = int(control[kernel.PUT_OUT])
        if rows == most:
            return Batch(ts, seq_tick, diff, data)
        # Copies, so that a small answer does not keep large arrays alive.
        return Batch(ts[:rows].copy(), seq_tick[:rows].copy(), diff[:rows].copy(), data[:, :rows].copy())

    def contents(self) -> I64:
        return self._repeated(kernel.OUT)

    def held_tuples(self, position: int) -> HeldTuples:
        return without_times(self._repeated((kernel.LEFT, kernel.RIGHT)[position]))

    def _repeated(self, times: int) -> I64:
        """The different rows, each as often as a field of its record says."""
        slots = np.arange(1, int(self._rows.records[groups.USED]) + 1)
        counts = self._rows.records.reshape(-1, self._rows.width)[slots, times]
        return np.repeat(self._rows.keys_of(slots), counts, axis=1)

    def needs_input_since(self) -> Frontier | None:
        return BEGIN if len(self._rows) else None

    def snapshot(self) -> State:
        return {
            "records": self._rows.used(),
            "clock": self._control[kernel.CLOCK : kernel.CLOCK + 1].copy(),
        }

    def restore(self, state: State) -> None:
        self._rows.replace(state["records"].astype(np.int64), self._rows.width)
        self._control[kernel.CLOCK] = state["clock"].astype(np.int64)[0]

    def lend_state(self, row: I64) -> None:
        lend(row, loop_state.BAG_RECORDS, self._rows.records)
        lend(row, loop_state.BAG_TABLE, self._rows.table)
        lend(row, loop_state.BAG_TOUCHED, self._rows.touched)
        lend(row, loop_state.BAG_CONTROL, self._control, size=False)

    def make_room(self, wanted: int) -> None:
        del wanted
        self._rows.grow()
