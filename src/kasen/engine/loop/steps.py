"""How the loop machine (kernels/machine) sees operators: each lends it the arrays of its state.

A part writes its operator's arrays and marks into the step's row of the machine's table (`load`), gives
the machine more room when it asks (`grow`), and writes marks that the machine has moved back (`save`).
So an operator's state is the same whether the machine runs it or `process` does, and so is its snapshot.
Parts are their operators' friends: they reach for what is private to everybody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kasen.engine.aggregate.group.aggregate import Aggregate
from kasen.engine.aggregate.group.kernels import aggregate as groups
from kasen.engine.batch import I64, Frontier
from kasen.engine.expr.row_program import Program
from kasen.engine.fifo import Fifo
from kasen.engine.join.hash.hash_join import HashJoin
from kasen.engine.join.hash.kernels.hash_join import LEFT_FULL
from kasen.engine.join.semi.semi_join import SemiJoin
from kasen.engine.loop.kernels import queue_steps as loop_windows
from kasen.engine.loop.kernels import row_steps as loop_rows
from kasen.engine.loop.kernels import state_steps as loop_state
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.row_store import RowStore
from kasen.engine.select.pad import Pad
from kasen.engine.sets.bag import Bag
from kasen.engine.stream.delay import Delay
from kasen.engine.stream.streamify import IStreamDStream
from kasen.engine.window.partition import PartitionWindow
from kasen.engine.window.window import RowsWindow, TimedWindow
from kasen.errors import InternalError

_NEVER = Frontier(loop_table.NEVER, loop_table.NEVER)


def address(array: npt.NDArray[Any]) -> int:
    place: int = array.__array_interface__["data"][0]
    return place


def lend(row: I64, field: int, array: npt.NDArray[Any], *, size: bool = True) -> None:
    """Writes where an array is, and how long, into two fields."""
    if not array.flags.c_contiguous or array.itemsize != 8:
        raise InternalError("the loop machine takes only plain arrays of words")
    row[field] = address(array)
    if size:
        row[field + 1] = len(array)


def set_due(row: I64, due: Frontier | None) -> None:
    row[loop_table.DUE_TS], row[loop_table.DUE_SUB] = due or _NEVER


class LoopStep(Protocol):
    """What the machine needs to know of a step. `fires` says whether it may act without input."""

    kind: int
    fires: bool

    def load(self, row: I64) -> None: ...

    def save(self, row: I64) -> None: ...

    def grow(self, wanted: int) -> None:
        """More room for state; the caller has saved, and loads again."""
        ...


class StatelessStep:
    """A part without memory."""

    kind = loop_table.PASS
    fires = False

    def load(self, row: I64) -> None:
        pass

    def save(self, row: I64) -> None:
        pass

    def grow(self, wanted: int) -> None:
        del wanted
        raise AssertionError("nothing here can grow")


class PassStep(StatelessStep):
    """UNBOUNDED: a stream's tuples are the changes."""


class UnionStep(StatelessStep):
    kind = loop_table.UNION


class ProgramStep(StatelessStep):
    """A filter or a projection."""

    def __init__(self, kind: int, program: Program) -> None:
        self.kind = kind
        self._program = program

    def load(self, row: I64) -> None:
        lend_program(row, self._program)


def lend_program(row: I64, program: Program) -> None:
    lend(row, loop_table.CODE, program.code)
    lend(row, loop_table.REGISTERS, program.registers)
    lend(row, loop_table.RESULTS, program.results)


class PadStep(StatelessStep):
    kind = loop_table.PAD

    def __init__(self, operator: Pad) -> None:
        self._operator = operator

    def load(self, row: I64) -> None:
        row[loop_rows.PAD_BEFORE] = self._operator._before
        row[loop_rows.PAD_COLUMNS] = self._operator._columns
        row[loop_rows.PAD_NULLS] = self._operator._nulls


class StreamifyStep(StatelessStep):
    kind = loop_table.STREAMIFY

    def __init__(self, operator: IStreamDStream) -> None:
        self._operator = operator

    def load(self, row: I64) -> None:
        row[loop_rows.SIGN] = self._operator._sign
        row[loop_rows.NETTED] = int(self._operator._netted)
        lend(row, loop_rows.ORDERS, self._operator._order._orders)


# ---------------------------------------------------------------- queues


def _lend_queue(row: I64, queue: Fifo) -> None:
    lend(row, loop_windows.INSTANTS, queue.instants, size=False)
    lend(row, loop_windows.QUEUE, queue.data, size=False)
    row[loop_windows.QUEUE_ROOM] = queue.data.shape[1]
    row[loop_windows.START], row[loop_windows.END] = queue.span


def _return_queue(row: I64, queue: Fifo) -> None:
    queue._start, queue._end = int(row[loop_windows.START]), int(row[loop_windows.END])


class TimedStep:
    """RANGE, NOW and RANGE SLIDE."""

    kind = loop_table.TIMED
    fires = True

    def __init__(self, operator: TimedWindow) -> None:
        self._operator = operator

    def load(self, row: I64) -> None:
        _lend_queue(row, self._operator._held)
        row[loop_windows.ENTERED] = self._operator._entered
        lend(row, loop_windows.SHAPE, self._operator._shape, size=False)
        set_due(row, self._operator.next_instant())

    def save(self, row: I64) -> None:
        _return_queue(row, self._operator._held)
        self._operator._entered = int(row[loop_windows.ENTERED])

    def grow(self, wanted: int) -> None:
        self._operator._held._make_room(wanted)


class RowsStep:
    """ROWS and ROWS SLIDE."""

    kind = loop_table.ROWS
    fires = False

    def __init__(self, operator: RowsWindow) -> None:
        self._operator = operator

    def load(self, row: I64) -> None:
        operator = self._operator
        _lend_queue(row, operator._held)
        row[loop_windows.ENTERED], row[loop_windows.FIRST] = operator._entered, operator._first
        row[loop_windows.COUNT], row[loop_windows.SLIDE] = operator._count, operator._slide

    def save(self, row: I64) -> None:
        _return_queue(row, self._operator._held)
        self._operator._entered = int(row[loop_windows.ENTERED])
        self._operator._first = int(row[loop_windows.FIRST])

    def grow(self, wanted: int) -> None:
        self._operator._held._make_room(wanted)


class DelayStep:
    kind = loop_table.DELAY
    fires = True

    def __init__(self, operator: Delay) -> None:
        self._operator = operator

    def load(self, row: I64) -> None:
        operator = self._operator
        _lend_queue(row, operator._due)
        row[loop_windows.DELAY_LENGTH] = -1 if operator._length is None else operator._length
        row[loop_windows.CLOSED] = int(operator._closed)
        set_due(row, operator.next_instant())

    def save(self, row: I64) -> None:
        _return_queue(row, self._operator._due)

    def grow(self, wanted: int) -> None:
        self._operator._due._make_room(wanted)


class PartitionStep(StatelessStep):
    """PARTITION BY ROWS. `leaving` is where the machine puts the tuples pushed out at an instant."""

    kind = loop_table.PARTITION

    def __init__(self, operator: PartitionWindow) -> None:
        self._operator = operator
        self._leaving: I64 = np.empty(0, np.int64)

    def load(self, row: I64) -> None:
        operator = self._operator
        lend(row, loop_windows.KEYS, operator._keys)
        lend(row, loop_windows.TABLE, operator._table)
        for field, array in (
            (loop_windows.META, operator._meta),
            (loop_windows.PART_HASH, operator._part_hash),
            (loop_windows.STORE, operator._store),
            (loop_windows.PART_KEY, operator._part_key),
            (loop_windows.LINKS, operator._links),
            (loop_windows.FREE, operator._free),
            (loop_windows.SIZES, operator._sizes),
        ):
            lend(row, field, array, size=False)
        row[loop_windows.NULL_MASK] = self._operator._mask
        row[loop_windows.LIMIT] = self._operator._count
        row[loop_windows.SLOTS] = len(operator._links)
        row[loop_windows.PARTITIONS] = len(operator._meta)
        self._leaving = np.empty((row[loop_table.WORDS] + 1) * row[loop_table.ROOM], np.int64)
        lend(row, loop_windows.LEAVING, self._leaving, size=False)

    def grow(self, wanted: int) -> None:
        self._operator._make_room(wanted)


# ---------------------------------------------------------------- joins, aggregates, set operations


def _lend_side(row: I64, first: int, store: RowStore) -> None:
    keys, slots, heads, counts = store.arrays
    lend(row, first + loop_state.KEYS, keys)
    lend(row, first + loop_state.SLOTS, slots)
    lend(row, first + loop_state.HEADS, heads, size=False)
    lend(row, first + loop_state.COUNTS, counts, size=False)


def _grow_side(left: RowStore, right: RowStore, wanted: int) -> None:
    (left if wanted == LEFT_FULL else right).grow()


class JoinStep(StatelessStep):
    kind = loop_table.JOIN

    def __init__(self, operator: HashJoin, residual: Program | None) -> None:
        self._operator = operator
        self._residual = residual
        self._cursor: I64 = np.zeros(4, np.int64)

    def load(self, row: I64) -> None:
        operator = self._operator
        if self._residual is not None:
            lend_program(row, self._residual)
        for first, store, ahead in zip(
            (loop_state.LEFT, loop_state.RIGHT),
            (operator._left, operator._right),
            operator._ahead,
            strict=True,
        ):
            _lend_side(row, first, store)
            lend(row, first + loop_state.AHEAD, ahead, size=False)
        lend(row, loop_state.CURSOR, self._cursor, size=False)

    def grow(self, wanted: int) -> None:
        _grow_side(self._operator._left, self._operator._right, wanted)


class SemiJoinStep(StatelessStep):
    """A semi join on keys alone. `keys` is where the machine puts the right changes' keys."""

    kind = loop_table.SEMI_JOIN

    def __init__(self, operator: SemiJoin) -> None:
        self._operator = operator
        self._cursor: I64 = np.zeros(5, np.int64)
        self._columns: I64 = np.array(operator._right_keys, np.int64)
        self._keys: I64 = np.empty(0, np.int64)

    def load(self, row: I64) -> None:
        operator = self._operator
        _lend_side(row, loop_state.LEFT, operator._left)
        _lend_side(row, loop_state.RIGHT, operator._right)
        lend(row, loop_state.CURSOR, self._cursor, size=False)
        row[loop_state.RIGHT_NULL], row[loop_state.ANTI] = operator._right_null, int(operator._anti)
        lend(row, loop_state.RIGHT_COLUMNS, self._columns, size=False)
        self._keys = np.empty(len(self._columns) * row[loop_table.ROOM], np.int64)
        lend(row, loop_state.RIGHT_KEYS, self._keys, size=False)

    def grow(self, wanted: int) -> None:
        _grow_side(self._operator._left, self._operator._right, wanted)


class AggregateStep:
    kind = loop_table.AGGREGATE

    def __init__(self, operator: Aggregate, words: int) -> None:
        """`words`: those of the rows that it reads."""
        self._operator = operator
        self.fires = not operator._keys
        self._nothing: I64 = np.zeros(words, np.int64)

    def load(self, row: I64) -> None:
        operator = self._operator
        for field, array in (
            (loop_state.PARTS, operator._layout.parts),
            (loop_state.OUTS, operator._layout.outs),
            (loop_state.TABLE, operator._groups.table),
            (loop_state.RECORDS, operator._groups.records),
            (loop_state.POOL, operator._pool),
            (loop_state.QUEUES, operator._queues),
            (loop_state.PAIRS, operator._pairs),
            (loop_state.TOUCHED, operator._groups.touched),
            (loop_state.GUESSES, operator._guesses),
            (loop_state.SLOTS_FOUND, operator._slots),
            (loop_state.BUFFER, operator._out.buffer),
            (loop_state.SCRATCH, operator._scratch),
        ):
            lend(row, field, array)
        lend(row, loop_state.PASS_CONTROL, operator._control, size=False)
        lend(row, loop_state.NOTHING, self._nothing, size=False)
        set_due(row, self._operator.next_instant())

    def save(self, row: I64) -> None:
        if row[loop_table.DUE_TS] == loop_table.NEVER:
            self._operator._begins = None

    def grow(self, wanted: int) -> None:
        if wanted == groups.WANTS_BUFFER:
            # The rows there stay: the machine wants all of an instant's in one piece.
            buffer = self._operator._out.buffer
            self._operator._out.buffer = np.concatenate([buffer, np.empty(3 * len(buffer), np.int64)])
        else:
            self._operator._make_room(wanted)


class BagStep(StatelessStep):
    kind = loop_table.BAG

    def __init__(self, operator: Bag) -> None:
        self._operator = operator

    def load(self, row: I64) -> None:
        rows = self._operator._rows
        lend(row, loop_state.BAG_RECORDS, rows.records)
        lend(row, loop_state.BAG_TABLE, rows.table)
        lend(row, loop_state.BAG_TOUCHED, rows.touched)
        lend(row, loop_state.BAG_CONTROL, self._operator._control, size=False)

    def grow(self, wanted: int) -> None:
        del wanted
        self._operator._rows.grow()


class CalledStep:
    """An operator that the machine does not know: it is called. Its inputs are the machine's steps."""

    kind = loop_table.FOREIGN
    fires = True

    def __init__(self, operator: Any, inputs: Sequence[int]) -> None:
        self.operator = operator
        self.inputs = tuple(inputs)

    def load(self, row: I64) -> None:
        set_due(row, self.operator.next_instant())

    def save(self, row: I64) -> None:
        pass

    def grow(self, wanted: int) -> None:
        del wanted
        raise AssertionError("an operator that is called makes its own room")
