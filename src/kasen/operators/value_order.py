"""Order by value within an instant: what makes a derived stream the same on any number of shards.

Columns in schema order, NULL first, strings in binary order, NaN greatest; then by diff.
"""

from __future__ import annotations

import numpy as np

from kasen.operators.batch import I64, ORDER_DOUBLE, ORDER_TEXT, Batch
from kasen.operators.dictionary import Dictionary


class ValueOrder:
    """Sorts batches of one schema, given the ORDER code of each column."""

    def __init__(self, orders: I64, dictionary: Dictionary) -> None:
        self._orders = orders.tolist()
        self._dictionary = dictionary

    def sort(self, batch: Batch) -> Batch:
        """The batch by instant, then value, then diff."""
        if len(batch) < 2 or not _has_ties(batch):
            return batch
        keys: list[I64] = []
        nulls = batch.nulls
        for column, order in enumerate(self._orders):
            # NULL cells hold 0, so the flag alone decides among NULLs.
            keys += [-(nulls >> column & 1), self._comparable(batch.data[column], order)]
        order_of = np.lexsort((batch.diff, *reversed(keys), batch.sub, batch.ts))
        return batch.take(order_of)

    def _comparable(self, values: I64, order: int) -> I64:
        if order == ORDER_TEXT:
            labels = self._dictionary.labels
            return labels[values] if len(labels) else values
        if order == ORDER_DOUBLE:
            # IEEE bits order like integers once the bits of negative numbers are turned around; the one NaN
            # is positive and lies above infinity.
            return np.where(values < 0, values ^ np.int64(0x7FFFFFFFFFFFFFFF), values)
        return values


def _has_ties(batch: Batch) -> bool:
    ts, sub = batch.ts, batch.sub
    return bool(np.any((ts[1:] == ts[:-1]) & (sub[1:] == sub[:-1])))
