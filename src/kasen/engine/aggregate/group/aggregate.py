"""GROUP BY: the groups' rows as a relation, net at every instant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.aggregate.accumulators import (
    FIRST_SPAN,
    AggregateSpec,
    DepartureOrder,
    RecordLayout,
    WordSpan,
    longer,
)
from kasen.engine.aggregate.group.kernels import aggregate as kernel
from kasen.engine.aggregate.kernels import accumulate, blocks, candidates
from kasen.engine.batch import BEGIN, I64, Batch, Frontier, are_ones, concat, empty
from kasen.engine.kernels import counted, groups, ordered
from kasen.engine.kernels.exact_round import SCRATCH
from kasen.engine.loop.kernels import state_steps as loop_state
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import LoopStep, lend, set_due
from kasen.engine.operator import Operator, State, bound_from_array, bound_to_array
from kasen.engine.record_table import RecordTable
from kasen.engine.row_buffer import RowBuffer
from kasen.engine.text.dictionary import Dictionary
from kasen.types import MAX_COLUMNS

__all__ = ["Aggregate", "AggregateSpec", "DepartureOrder"]

#: For the loop machine: the words of a row, whatever its columns, that changes nothing.
_NO_ROW: I64 = np.zeros(MAX_COLUMNS + 1, np.int64)


class Aggregate(Operator, LoopStep):
    """Input columns: `keys` group keys, then arguments. Output: the keys, then a column for each call.

    At each instant a group whose row changed puts out the old row (-1) and the new one (+1). A group has a
    row while it has rows. Without keys there is one group that always has a row, from `begin` on.
    `leaving` promises how rows leave: the less orderly, the more an extreme must remember.
    """

    is_independent = True
    loop_kind = loop_table.AGGREGATE

    def __init__(
        self,
        keys: int,
        calls: tuple[AggregateSpec, ...],
        dictionary: Dictionary,
        leaving: DepartureOrder = DepartureOrder.ANY,
    ) -> None:
        self._keys = keys
        self._calls = calls
        self._dictionary = dictionary
        self._leaving = leaving
        self._begins: Frontier | None = None
        self.fires = not keys
        self._layout = RecordLayout(keys, calls, leaving, WordSpan(*FIRST_SPAN))
        layout = self._layout
        self._groups = RecordTable(keys, layout.width, lone=not keys)
        self._pool: I64 = np.zeros((1, ordered.NODE), np.int64)
        self._guesses: I64 = np.zeros(blocks.GUESSES, np.int64)
        self._slots: I64 = np.zeros(blocks.BLOCK, np.int64)
        self._queues: I64 = np.zeros((1, candidates.CANDIDATE), np.int64)
        self._pairs: I64 = np.zeros((3, 3), np.int64)
        self._out = RowBuffer(keys + len(calls))
        self._scratch = np.zeros(SCRATCH + len(layout.parts) + 1, np.uint64)
        self._control: I64 = np.zeros(kernel.CONTROL, np.int64)
        self._control[kernel.CLOCK] = 1  # later than the stamp of a record never touched
        self._texts = any(call.order == ordered.TEXT for call in calls)
        self._no_labels: I64 = np.zeros(0, np.int64)
        self._configure()

    def begin(self, at: Frontier) -> None:
        if not self._keys and not self._groups.records[self._layout.width + groups.REPORTED]:
            self._begins = at

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        batch = inputs[0]
        if self._begins is not None and self._begins < upto:
            batch = concat([self._nothing(self._begins, batch.columns), batch], batch.columns)
            self._begins = None
        if len(batch) == 0:
            return empty(self._keys + len(self._calls))
        control = self._control
        control[kernel.NEXT] = control[kernel.PUT_OUT] = 0
        control[kernel.ENTERING], control[kernel.WHOLE] = are_ones(batch.diff), batch.whole
        while why := self._go_on(batch):
            self._make_room(why)
        return self._out.take(int(control[kernel.PUT_OUT]))

    @property
    def groups(self) -> int:
        return len(self._groups)

    def contents(self) -> I64:
        return self._groups.reported(len(self._calls))

    def next_instant(self) -> Frontier | None:
        return self._begins

    def needs_input_since(self) -> Frontier | None:
        if self._keys:
            return BEGIN if len(self._groups) else None
        return BEGIN if self._groups.records[self._layout.width + groups.ROWS] else None

    def snapshot(self) -> State:
        return {
            "span": np.array([self._layout.span.low, self._layout.span.high], np.int64),
            "records": self._groups.used(),
            "pool": self._pool[: int(self._pool[0, ordered.EVER]) + 1].copy(),
            "queues": self._queues[: int(self._queues[0, candidates.EVER]) + 1].copy(),
            "pairs": self._pairs.copy(),
            "clock": self._control[kernel.CLOCK : kernel.CLOCK + 1].copy(),
            "begins": bound_to_array(self._begins),
        }

    def restore(self, state: State) -> None:
        arrays = {name: array.astype(np.int64) for name, array in state.items()}
        low, high = arrays["span"].tolist()
        self._layout = RecordLayout(self._keys, self._calls, self._leaving, WordSpan(low, high))
        self._groups.replace(arrays["records"], self._layout.width)
        self._pool = arrays["pool"]
        self._queues = arrays["queues"]
        self._pairs = arrays["pairs"]
        self._control[kernel.CLOCK] = arrays["clock"][0]
        self._begins = bound_from_array(arrays["begins"])
        self._configure()

    def take_over(self, other: Operator, places: tuple[int, ...], at: int) -> None:
        """The rows of both never leave."""
        del at
        assert isinstance(other, Aggregate), type(other).__name__
        old = other._layout
        new = RecordLayout(self._keys, self._calls, self._leaving, old.span)
        records = other._groups.used().reshape(-1, old.width)
        moved = np.zeros((len(records), new.width), np.int64)
        moved[:, : new.begin] = old.regrouped(records, self._keys, new, places)
        columns = {
            call.arg: other._calls[at].arg for call, at in zip(self._calls, places, strict=True) if at >= 0
        }
        for op, column in new.parts[:, [accumulate.OP, accumulate.COLUMN]].tolist():
            to, size = new.part_of(op, column)
            there, _ = old.part_of(op, columns[column])
            moved[:, to : to + size] = records[:, there : there + size]
        self.restore({**other.snapshot(), "records": moved.reshape(-1)})

    # ------------------------------------------------------------ running

    def _configure(self) -> None:
        self._control[kernel.KEYS] = self._keys
        self._control[kernel.RECORD] = self._layout.width
        self._control[kernel.TREES] = self._layout.count(accumulate.TREE)
        queues = self._layout.count(accumulate.FIRST_LEAST, accumulate.FIRST_GREATEST)
        self._control[kernel.QUEUES] = queues
        done = self._layout.count(*blocks.DONE_HERE)
        self._control[kernel.BLOCKS] = done == len(self._layout.parts)
        self._control[kernel.DISTINCTS] = self._layout.count(accumulate.DISTINCT)
        self._control[kernel.SUMS] = self._layout.count(*accumulate.SETTLED)

    def _nothing(self, at: Frontier, columns: int) -> Batch:
        """A change that changes nothing, so that the one group is looked at."""
        one = np.zeros((4, 1), np.int64)
        one[0], one[1] = at
        return Batch(one[0], one[1], one[2], np.zeros((columns + 1, 1), np.int64))

    def _go_on(self, batch: Batch) -> int:
        labels = self._dictionary.labels if self._texts else self._no_labels
        why = kernel.aggregate(
            batch.ts, batch.seq_tick, batch.diff, batch.data, self._layout.parts, self._layout.outs,
            self._groups.table, self._groups.records, self._pool, self._queues, self._pairs, labels,
            self._groups.touched, self._guesses, self._slots, self._out.buffer, self._control, self._scratch,
        )  # fmt: skip
        return int(why)

    def _make_room(self, why: int) -> None:
        control = self._control
        if why == kernel.WANTS_BUFFER:
            self._out.make_room(int(control[kernel.PUT_OUT]), 2 * int(control[kernel.TOUCHED]))
            control[kernel.PUT_OUT] = 0
        elif why == kernel.WANTS_SPAN:
            need = WordSpan(int(control[kernel.NEED_LOW]), int(control[kernel.NEED_HIGH]))
            wider = RecordLayout(self._keys, self._calls, self._leaving, self._layout.span | need)
            self._groups.replace(self._layout.moved(self._groups.records, wider), wider.width)
            self._layout = wider
            self._configure()
        elif why == kernel.WANTS_GROUPS:
            self._groups.grow()
        elif why == kernel.WANTS_NODES:
            self._pool = longer(self._pool)
        elif why == kernel.WANTS_CANDIDATES:
            self._queues = longer(self._queues)
        else:
            pairs = np.zeros((max(2 * (len(self._pairs) - 1), 64) + 1, 3), np.int64)
            counted.move_all(self._pairs, pairs)
            self._pairs = pairs

    # ------------------------------------------------------------ in loops

    def lend_state(self, row: I64) -> None:
        for field, array in (
            (loop_state.PARTS, self._layout.parts),
            (loop_state.OUTS, self._layout.outs),
            (loop_state.TABLE, self._groups.table),
            (loop_state.RECORDS, self._groups.records),
            (loop_state.POOL, self._pool),
            (loop_state.QUEUES, self._queues),
            (loop_state.PAIRS, self._pairs),
            (loop_state.TOUCHED, self._groups.touched),
            (loop_state.GUESSES, self._guesses),
            (loop_state.SLOTS_FOUND, self._slots),
            (loop_state.BUFFER, self._out.buffer),
            (loop_state.SCRATCH, self._scratch),
        ):
            lend(row, field, array)
        lend(row, loop_state.PASS_CONTROL, self._control, size=False)
        lend(row, loop_state.NOTHING, _NO_ROW, size=False)
        set_due(row, self._begins)

    def take_back(self, row: I64) -> None:
        if row[loop_table.DUE_TS] == loop_table.NEVER:
            self._begins = None

    def make_room(self, wanted: int) -> None:
        if wanted == kernel.WANTS_BUFFER:
            self._out.lengthen()
        else:
            self._make_room(wanted)
