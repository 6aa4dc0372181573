"""Relation to stream: ISTREAM, DSTREAM, RSTREAM and RSTREAM[d]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.batch import BEGIN, I64, Batch, Frontier, are_ones, ones
from kasen.engine.kernels import groups
from kasen.engine.kernels.columns import all_units, signed
from kasen.engine.loop.kernels import row_steps as loop_rows
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import LoopStep, lend
from kasen.engine.operator import Operator, State
from kasen.engine.record_table import RecordTable
from kasen.engine.row_buffer import RowBuffer
from kasen.engine.stream.kernels import rstream as kernel
from kasen.engine.stream.net import net
from kasen.engine.stream.value_order import ValueOrder
from kasen.engine.window.held_tuples import HeldTuples, without_times

_FEW = 8
_NO_INSTANTS = np.empty((2, 0), np.int64)


def units(batch: Batch) -> Batch:
    """The batch with every diff +1 or -1: a change of multiplicity k becomes k changes."""
    if all_units(batch.diff):
        return batch
    size = np.abs(batch.diff)
    spread = batch.take(np.repeat(np.arange(len(batch)), size))
    return Batch(spread.ts, spread.seq_tick, np.sign(spread.diff), spread.data)


class IStreamDStream(Operator, LoopStep):
    """ISTREAM: what entered between one instant and the next, as bags. With sign -1, DSTREAM: what left."""

    is_independent = True
    loop_kind = loop_table.STREAMIFY

    def __init__(self, order: ValueOrder, sign: int, *, netted: bool) -> None:
        self._order = order
        self._sign = sign
        self._netted = netted  # equal rows never enter and leave in one instant: nothing to cancel

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        batch = inputs[0]
        count = len(batch)
        if not count:
            return batch
        if not self._netted:
            batch = net(batch)
            count = len(batch)
        if self._sign > 0 and are_ones(batch.diff):
            if count <= _FEW:
                return self._order.sort(batch)
            if self._order.is_sorted(batch):
                return batch
        elif count <= _FEW and (only := self._only(batch)) is not None:
            return only
        rows = np.empty(count, np.int64)
        rows = rows[: signed(batch.diff, self._sign, rows)]
        if len(rows) > 1:
            rows = self._order.sorted(batch, rows)
        elif len(rows) == count and self._sign > 0:
            return units(batch)
        taken = batch.take(rows)
        if self._sign < 0:
            taken.diff = -taken.diff
        return units(taken)

    def _only(self, batch: Batch) -> Batch | None:
        """The answer if a few changes have just one of the sign, which is then not looked for by kernels."""
        diffs = batch.diff.tolist()
        if diffs.count(self._sign) != 1 or any(diff * self._sign > 1 for diff in diffs):
            return None
        at = diffs.index(self._sign)
        data = batch.data[:, at : at + 1].copy()
        return Batch(batch.ts[at : at + 1], batch.seq_tick[at : at + 1], ones(1), data)

    def lend_state(self, row: I64) -> None:
        row[loop_rows.SIGN], row[loop_rows.NETTED] = self._sign, int(self._netted)
        lend(row, loop_rows.ORDERS, self._order.orders)


class RStream(Operator):
    """RSTREAM: the whole bag at every instant of window activity (inputs 1, 2, ...)."""

    is_independent = True

    def __init__(self, columns: int, order: ValueOrder) -> None:
        self._order = order
        self._rows = RecordTable(columns, groups.KEY + columns + 1)
        self._out = RowBuffer(columns)
        self._control: I64 = np.zeros(kernel.CONTROL, np.int64)

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        return self._fire(inputs[0], _instants(inputs[1:]))

    def _fire(self, changes: Batch, firings: I64) -> Batch:
        """The bag at each firing instant [2, n]; then the bag takes in all changes."""
        control, rows = self._control, self._rows
        control[kernel.NEXT] = control[kernel.FIRING] = control[kernel.PUT_OUT] = 0
        while why := kernel.fire(
            changes.ts,
            changes.seq_tick,
            changes.diff,
            changes.data,
            firings[0],
            firings[1],
            rows.table,
            rows.records,
            rows.touched,
            self._out.buffer,
            control,
        ):
            if why == kernel.WANTS_GROUPS:
                rows.grow()
            else:
                self._out.make_room(int(control[kernel.PUT_OUT]), int(control[kernel.SIZE]))
                control[kernel.PUT_OUT] = 0
        return self._order.sort(self._out.take(int(control[kernel.PUT_OUT])))

    def held_tuples(self, position: int) -> HeldTuples:
        assert position == 0, "the others are instants"
        state = RStream.snapshot(self)
        return without_times(np.repeat(state["data"], state["diff"], axis=1))

    def snapshot(self) -> State:
        there = self._rows.touched[: self._control[kernel.DIFFERENT]]
        counts = self._rows.records.reshape(-1, self._rows.width)[there, groups.ROWS]
        return {"diff": counts, "data": self._rows.keys_of(there)}

    def restore(self, state: State) -> None:
        diff, data = state["diff"].astype(np.int64), np.ascontiguousarray(state["data"], np.int64)
        times = np.zeros(len(diff), np.int64)
        self._fire(Batch(times, times, diff, data), _NO_INSTANTS)

    def needs_input_since(self) -> Frontier | None:
        return BEGIN if self._control[kernel.DIFFERENT] else None


class PeriodicRStream(RStream):
    """RSTREAM[d]: the whole bag at every (k*d, 0, 0) from the beginning on."""

    def __init__(self, columns: int, order: ValueOrder, every: int) -> None:
        super().__init__(columns, order)
        self._every = every
        self._next: int | None = None

    def begin(self, at: Frontier) -> None:
        first = at.ts // self._every * self._every
        self._next = first if Frontier(first, 0) >= at else first + self._every

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        firings: list[int] = []
        while self._next is not None and Frontier(self._next, 0) < upto:
            firings.append(self._next)
            self._next += self._every
        times = np.array(firings, np.int64)
        return self._fire(inputs[0], np.stack([times, np.zeros_like(times)]))

    def next_instant(self) -> Frontier | None:
        return None if self._next is None else Frontier(self._next, 0)

    def snapshot(self) -> State:
        return {**super().snapshot(), "next": np.array([] if self._next is None else [self._next], np.int64)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._next = int(state["next"][0]) if len(state["next"]) else None


def _instants(activity: Sequence[Batch]) -> I64:
    """The different instants of several batches, in order, as [2, n]."""
    filled = [np.stack([batch.ts, batch.seq_tick]) for batch in activity if len(batch)]
    if not filled:
        return _NO_INSTANTS
    instants: I64 = np.concatenate(filled, axis=1)
    if len(filled) > 1:
        instants = instants[:, np.lexsort((instants[1], instants[0]))]
    is_new = np.ones(instants.shape[1], np.bool_)
    is_new[1:] = (instants[:, 1:] != instants[:, :-1]).any(axis=0)
    return np.ascontiguousarray(instants[:, is_new])
