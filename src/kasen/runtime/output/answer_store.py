"""Answers that wait for their reader, in little memory.

Many queries often choose from the same rows. Where one of them chose a good part of these, it keeps the
numbers of its rows, and the rows themselves are kept once for all queries. Otherwise it keeps copies of its
own: a few rows must not hold the memory of all that they were chosen from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import Batch, are_ones, are_zeros
from kasen.engine.deferred_batch import DeferredBatch, RowSelection

#: Whoever chose fewer than one row of so many keeps copies.
_SPARSE = 8
#: Fewer changes than these are copied without a further look.
_FEW = 64


class StoredAnswer:
    """Changes that wait: all of a batch, or the rows of a part that have these numbers."""

    __slots__ = ("_rows", "_source")

    def __init__(self, source: Batch | RowSelection, rows: npt.NDArray[Any] | None = None) -> None:
        self._source = source
        self._rows = rows

    def __len__(self) -> int:
        return len(self._source if self._rows is None else self._rows)

    def batch(self) -> Batch:
        source, rows = self._source, self._rows
        if isinstance(source, Batch):
            return source
        assert rows is not None
        return DeferredBatch([source._replace(rows=rows.astype(np.int64))])


class AnswerStore:
    """Keeps answers. Those of one run share the rows that they were chosen from."""

    def __init__(self) -> None:
        #: By the number of an array: the array, whose number is its own as long as it is here; and its copy.
        self._copies: dict[int, tuple[Any, Any]] = {}

    def begin(self) -> None:
        """The answers of another run come."""
        self._copies.clear()

    def keep(self, batch: Batch) -> StoredAnswer:
        """The changes of a batch, in memory that nobody else writes to."""
        if not isinstance(batch, DeferredBatch) or len(batch) < _FEW or not batch.is_chosen:
            return StoredAnswer(Batch(batch.ts, batch.seq_tick, batch.diff, batch.data))
        part = batch.parts[0]
        if len(batch.parts) > 1 or len(batch) * _SPARSE < len(part.ts):
            columns = [batch.column(index) for index in (*range(batch.columns), -1)]
            return StoredAnswer(
                DeferredBatch([RowSelection(batch.ts, batch.seq_tick, batch.diff, columns)], is_fresh=True)
            )
        ts, seq_tick, diff, source, rows = part
        assert rows is not None
        copied = self._copy(source) if isinstance(source, np.ndarray) else [self._copy(one) for one in source]
        numbers = rows.astype(np.min_scalar_type(len(ts)))
        return StoredAnswer(
            RowSelection(self._copy(ts), self._copy(seq_tick), self._copy(diff), copied), numbers
        )

    def _copy(self, array: npt.NDArray[Any]) -> Any:
        """Whoever pushed it may write to an array again; what all share needs no copy."""
        if are_zeros(array) or are_ones(array):
            return array
        found = self._copies.get(id(array))
        if found is None:
            found = self._copies[id(array)] = (array, array.copy())
        return found[1]
