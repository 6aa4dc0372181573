"""The inner join of two relations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier, empty
from kasen.engine.expr.row_program import Program
from kasen.engine.join.hash.kernels import hash_join as kernel
from kasen.engine.loop.kernels import state_steps as loop_state
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import lend, lend_program
from kasen.engine.out_buffer import OutBuffer, Residual
from kasen.engine.row_store import RowStore, TwoBags


class HashJoin(TwoBags):
    """Pairs of a left and a right row with equal keys, none of them NULL, for which `residual` is true.

    Without keys, all pairs are tried. The output's columns are the left's, then the right's; its diffs
    carry multiplicity, and are not netted. With `left_only` the right side's changes make no pairs.
    """

    loop_kind = loop_table.JOIN

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
        super().__init__(RowStore(left_columns + 1, left_keys), RowStore(right_columns + 1, right_keys))
        columns = left_columns + right_columns
        self._left_only = left_only
        self._out = OutBuffer(columns, () if residual is None else (residual,))
        self._ahead: I64 = np.empty((2, *kernel.AHEAD), np.int64)
        self._nothing = empty(columns)
        #: The residual as the loop machine takes it; to be set before it runs the join.
        self.program: Program | None = None

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        left, right = inputs
        if not len(left) and not len(right):
            return self._nothing
        cursor = kernel.BEGINNING.copy()
        cursor[kernel.LEFT_ONLY] = self._left_only
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
            elif status == kernel.OUTPUT_FULL:
                self._out.next_chunk()
                cursor[kernel.WRITTEN] = 0
        return self._out.take(int(cursor[kernel.WRITTEN]))

    def lend_state(self, row: I64) -> None:
        super().lend_state(row)
        lend(row, loop_state.LEFT + loop_state.AHEAD, self._ahead[0], size=False)
        lend(row, loop_state.RIGHT + loop_state.AHEAD, self._ahead[1], size=False)
        if self.program is not None:
            lend_program(row, self.program)
