"""A batch of changes: the one thing that flows between operators.

A change is a row that enters (+1) or leaves (-1) at an instant. A batch holds changes of many
instants, in instant order. All values are int64, so kernels need no types: integers, booleans, decimals
(scaled) and timestamps as they are, DOUBLE as its bits (one NaN, one zero), VARCHAR as its code in
the pipeline's dictionary. The last row of `data` holds the NULLs, one bit a column; a NULL's value is 0.
So two rows are equal exactly if their columns of `data` are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kasen.engine.kernels.columns import copy_columns, positions, take_rows
from kasen.engine.kernels.instants import merge_order
from kasen.errors import ResourceError
from kasen.types import MAX_COLUMNS, Kind, Schema

I64 = npt.NDArray[np.int64]
#: Columns one after the other, each C-contiguous, the last with the NULL bits: a matrix, or arrays anywhere.
Columns = I64 | Sequence[I64]

#: `seq_tick` is an instant's seq and tick in one number.
TICK_BITS = 24


class Frontier(NamedTuple):
    """A frontier: everything at an instant below (ts, seq_tick) is known and will not change."""

    ts: int
    seq_tick: int = 0


BEGIN = Frontier(-(2**63), 0)
END = Frontier(2**63 - 1, 2**63 - 1)


@dataclass(slots=True)
class Batch:
    """Changes in instant order: ts, seq_tick and diff are [n], data is [columns + 1, n], all C-contiguous."""

    ts: I64
    seq_tick: I64
    diff: I64
    data: I64
    #: Known, without a look, to have no NULLs.
    whole: bool = False

    def __len__(self) -> int:
        return len(self.ts)

    def take(self, rows: I64) -> Batch:
        """The changes at the given positions, in that order."""
        count = len(rows)
        ts, seq_tick, diff = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
        data = np.empty((len(self.data), count), np.int64)
        take_rows(rows, self.ts, self.seq_tick, self.diff, self.data, ts, seq_tick, diff, data)
        return Batch(ts, seq_tick, diff, data)

    def where(self, keep: npt.NDArray[np.bool_]) -> Batch:
        """The changes for which `keep` is set."""
        return self.take(places(keep))

    def column(self, index: int) -> I64:
        """One column; -1 is that of the NULL bits."""
        column: I64 = self.data[index]
        return column

    def has_nulls(self) -> bool:
        """Whether any row has any NULL."""
        if self.whole:
            return False
        words = self.data[-1]
        return bool(words[0]) if len(words) == 1 else bool(np.count_nonzero(words))

    def pick(self, sources: I64) -> Batch:
        """The same changes with column sources[j] as column j; -1 leaves column j to the caller."""
        data = np.empty((len(sources) + 1, len(self)), np.int64)
        copy_columns(self.data, sources, data)
        return Batch(self.ts, self.seq_tick, self.diff, data)

    @property
    def columns(self) -> int:
        return int(self.data.shape[0]) - 1

    @property
    def nulls(self) -> I64:
        """The NULL bits, one word a row."""
        row: I64 = self.data[-1]
        return row


def places(keep: npt.NDArray[np.bool_]) -> I64:
    """Where `keep` is set."""
    rows = np.empty(np.count_nonzero(keep), np.int64)
    positions(keep, rows)
    return rows


_SHARED, _MOST_SHARED = 1 << 19, 1 << 21
# Longer ones are made when they are first asked for.
_ONES, _ZEROS = [np.ones(_SHARED, np.int64)], [np.zeros(_SHARED, np.int64)]
_ONE, _ZERO = _ONES[0][:1], _ZEROS[0][:1]


def ones(count: int) -> I64:
    """So many ones, in memory that all share: nobody changes a batch."""
    if count == 1:
        return _ONE
    return _ONES[0][:count] if count <= _SHARED else _many(count, _ONES, 1)


def zeros(count: int) -> I64:
    """So many zeros, in memory that all share."""
    if count == 1:
        return _ZERO
    return _ZEROS[0][:count] if count <= _SHARED else _many(count, _ZEROS, 0)


def _many(count: int, shared: list[I64], value: int) -> I64:
    if count > _MOST_SHARED:
        return np.full(count, value, np.int64)
    longest = next((each for each in shared if len(each) >= count), None)
    if longest is None:
        longest = np.full(1 << (count - 1).bit_length(), value, np.int64)
        shared.append(longest)
    return longest[:count]


def are_ones(array: I64) -> bool:
    """Whether this is known, without a look, to be `ones` or a part of them."""
    base = array.base
    return base is _ONES[0] or any(base is each for each in _ONES)


def are_zeros(array: I64) -> bool:
    """Whether this is known, without a look, to be `zeros` or a part of them."""
    base = array.base
    return base is _ZEROS[0] or any(base is each for each in _ZEROS)


def matrix(columns: Columns) -> I64:
    """The columns as Batch.data has them; a matrix that is already so is not copied."""
    if isinstance(columns, np.ndarray):
        return np.ascontiguousarray(columns)
    return np.stack(columns)


def empty(columns: int) -> Batch:
    none = np.empty(0, np.int64)
    return Batch(none, none, none, np.empty((columns + 1, 0), np.int64))


def concat(batches: Sequence[Batch], columns: int) -> Batch:
    """The batches one after the other; the caller sees to the order."""
    filled = [batch for batch in batches if len(batch)]
    if not filled:
        return empty(columns)
    if len(filled) == 1:
        return filled[0]
    return Batch(
        np.concatenate([batch.ts for batch in filled]),
        np.concatenate([batch.seq_tick for batch in filled]),
        np.concatenate([batch.diff for batch in filled]),
        np.concatenate([batch.data for batch in filled], axis=1),
    )


def merge(batches: Sequence[Batch], columns: int) -> Batch:
    """The batches' changes in instant order (stable: the first batch's come first within an instant)."""
    filled = [batch for batch in batches if len(batch)]
    joined = concat(filled, columns)
    if len(filled) < 2:
        return joined
    if len(filled) > 2:
        return joined.take(np.lexsort((joined.seq_tick, joined.ts)))
    one, other = filled
    order = np.empty(len(joined), np.int64)
    merge_order(one.ts, one.seq_tick, other.ts, other.seq_tick, order)
    return joined.take(order)


def unpack_seq_tick(seq_tick: I64) -> tuple[I64, I64]:
    """seq and tick of each change."""
    return seq_tick >> TICK_BITS, seq_tick & ((1 << TICK_BITS) - 1)


#: How a column's numbers compare, for kernels.
ORDER_INTEGER, ORDER_DOUBLE, ORDER_TEXT = 0, 1, 2


def orderings(schema: Schema) -> I64:
    """For each column one of the ORDER codes."""
    codes = {Kind.DOUBLE: ORDER_DOUBLE, Kind.VARCHAR: ORDER_TEXT}
    return np.array([codes.get(field.type.kind, ORDER_INTEGER) for field in schema], np.int64)


def check_width(schema: Schema, where: str) -> None:
    if len(schema) > MAX_COLUMNS:
        raise ResourceError(
            f"{where} has {len(schema)} columns; at most {MAX_COLUMNS} fit into a row's NULL word"
        )


_CANONICAL_NAN = np.array([np.nan]).view(np.int64)[0]


def double_bits(values: npt.NDArray[np.float64]) -> I64:
    """DOUBLEs as int64 such that equal values have equal bits: -0.0 becomes 0.0, every NaN the same NaN."""
    bits = (values + 0.0).view(np.int64)
    return np.where(np.isnan(values), _CANONICAL_NAN, bits)
