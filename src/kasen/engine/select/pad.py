"""Columns of NULLs beside rows: what an outer join puts out for rows without a match."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier
from kasen.engine.loop.kernels import row_steps as loop_rows
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import LoopStep
from kasen.engine.operator import Operator


class Pad(Operator, LoopStep):
    """Adds NULL columns before and after the rows' own."""

    is_independent = True
    loop_kind = loop_table.PAD

    def __init__(self, columns_before: int, columns: int, columns_after: int) -> None:
        self._before = columns_before
        self._columns = columns
        self._width = columns_before + columns + columns_after
        added_before = (1 << columns_before) - 1
        added_after = ((1 << columns_after) - 1) << (columns_before + columns)
        self._nulls = np.int64(added_before | added_after)

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        (batch,) = inputs
        data = np.zeros((self._width + 1, len(batch)), np.int64)
        data[self._before : self._before + self._columns] = batch.data[:-1]
        data[-1] = (batch.nulls << self._before) | self._nulls
        return Batch(batch.ts, batch.seq_tick, batch.diff, data)

    def lend_state(self, row: I64) -> None:
        row[loop_rows.PAD_BEFORE], row[loop_rows.PAD_COLUMNS] = self._before, self._columns
        row[loop_rows.PAD_NULLS] = self._nulls
