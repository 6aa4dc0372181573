"""The inner join of two relations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import I64, Batch, Frontier, concat, empty
from kasen.engine.join.hash.kernels import hash_join as kernel
from kasen.engine.operator import State
from kasen.engine.out_buffer import OutBuffer
from kasen.engine.row_store import RowStore
from kasen.engine.window.held_tuples import HeldTuples

#: A condition over joined rows: which of a batch's rows satisfy it.
Residual = Callable[[Batch], npt.NDArray[np.bool_]]


class HashJoin:
    """Pairs of a left and a right row with equal keys, none of them NULL, for which `residual` is true.

    Without keys, all pairs are tried. The output's columns are the left's, then the right's; its diffs
    carry multiplicity, and are not netted. With `left_only` the right side's changes make no pairs.
    """

    def __init__(
        self,
        left_columns: int,
        right_columns: int,
        left_keys: tuple[int, ...],
        right_keys: tuple[int, ...],
        residual: Residual | None = None,
        *,
        left_only: bool = False,
    ) -> None:
        self._columns = left_columns + right_columns
        self._residual = residual
        self._left_only = left_only
        self._left = RowStore(left_columns + 1, left_keys)
        self._right = RowStore(right_columns + 1, right_keys)
        self._out = OutBuffer(self._columns)
        self._ahead: I64 = np.empty((2, *kernel.AHEAD), np.int64)
        self._nothing = empty(self._columns)

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        left, right = inputs
        if not len(left) and not len(right):
            return self._nothing
        cursor = kernel.BEGINNING.copy()
        cursor[kernel.LEFT_ONLY] = self._left_only
        parts: list[Batch] = []
        status = -1
        while status != kernel.DONE:
            status = kernel.join(
                left.ts, left.seq_tick, left.diff, left.data, *self._left.arrays, self._ahead[0],
                right.ts, right.seq_tick, right.diff, right.data, *self._right.arrays, self._ahead[1],
                *self._out.arrays, cursor,
            )  # fmt: skip
            if status == kernel.LEFT_FULL:
                self._left.grow()
            elif status == kernel.RIGHT_FULL:
                self._right.grow()
            elif self._residual is not None:
                # Most pairs may fail, so they are tried chunk by chunk rather than all kept first.
                parts.append(satisfying(self._out.look(int(cursor[kernel.WRITTEN])), self._residual))
                cursor[kernel.WRITTEN] = 0
            elif status == kernel.OUTPUT_FULL:
                self._out.next_chunk()
                cursor[kernel.WRITTEN] = 0
        if self._residual is not None:
            return concat(parts, self._columns)
        return self._out.take(int(cursor[kernel.WRITTEN]))

    def held_tuples(self, position: int) -> HeldTuples:
        return (self._left, self._right)[position].held_tuples()

    def next_instant(self) -> Frontier | None:
        return None

    def snapshot(self) -> State:
        return self._left.snapshot("left") | self._right.snapshot("right")

    def restore(self, state: State) -> None:
        self._left.restore(state, "left")
        self._right.restore(state, "right")

    def needs_input_since(self) -> Frontier | None:
        return oldest(self._left, self._right)


def satisfying(pairs: Batch, residual: Residual) -> Batch:
    """The pairs for which the condition is true, in arrays of their own."""
    return pairs.take(np.flatnonzero(residual(pairs))) if len(pairs) else pairs


def oldest(left: RowStore, right: RowStore) -> Frontier | None:
    """The ts at which the first of the rows on either side entered."""
    return min((since for since in (left.since(), right.since()) if since is not None), default=None)
