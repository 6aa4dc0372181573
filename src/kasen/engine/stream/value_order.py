"""Order by value within an instant: what makes a derived stream the same on any number of shards.

Columns in schema order, NULL first, strings in binary order, NaN greatest; then by diff.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from kasen.engine import parallel
from kasen.engine.batch import I64, ORDER_INTEGER, ORDER_TEXT, Batch
from kasen.engine.stream.kernels.value_order import are_sorted, find_ties, sort_instants, undecided
from kasen.engine.text.dictionary import Dictionary

_NO_LABELS = np.empty(0, np.int64)
_MOST_COUNTED = 1 << 16


class ValueOrder:
    """Sorts batches of one schema, given the ORDER code of each column."""

    def __init__(self, orders: I64, dictionary: Dictionary) -> None:
        self.orders = orders
        self._dictionary = dictionary
        self._texts = ORDER_TEXT in orders.tolist()
        self._countable = np.array([len(orders) > 0 and orders[0] == ORDER_INTEGER], np.int64)
        self._counts = _NO_LABELS  # made when it is first needed: most queries never sort

    def _labels(self) -> I64:
        """What texts compare by."""
        return self._dictionary.labels if self._texts else _NO_LABELS

    def sort(self, batch: Batch) -> Batch:
        """The batch by instant, then value, then diff."""
        if len(batch) < 2 or self._are_sorted(batch):
            return batch
        return batch.take(self.sorted(batch, np.arange(len(batch))))

    def _are_sorted(self, batch: Batch) -> bool:
        labels = self._labels()
        return bool(are_sorted(batch.ts, batch.seq_tick, batch.diff, self.orders, batch.data, labels))

    def is_sorted(self, batch: Batch) -> bool:
        """Whether rows of one instant, all of which enter, surely stand in the order of their values.

        Looks at one column after the other, and mostly at one only: a lazy batch stays lazy.
        """
        if not parallel.worth(len(batch)):
            return self._is_sorted_between(batch, 0, len(batch))
        cut = len(batch) // 2
        there, here = parallel.both(
            partial(self._is_sorted_between, batch, cut, len(batch)),
            partial(self._is_sorted_between, batch, 0, cut + 1),
        )
        return there and here

    def _is_sorted_between(self, batch: Batch, begin: int, end: int) -> bool:
        rows = np.empty(end - begin, np.int64)
        count = int(find_ties(batch.ts[begin:end], batch.seq_tick[begin:end], rows))
        if count and batch.has_nulls():
            return False
        labels = self._labels()
        for index, order in enumerate(self.orders.tolist()):
            if count <= 0:
                break
            count = int(undecided(batch.column(index)[begin:end], order, rows, count, labels))
        return count >= 0

    def sorted(self, batch: Batch, rows: I64) -> I64:
        """Some rows of a batch, given in instant order, sorted in place."""
        labels = self._labels()
        if self._countable[0] and not len(self._counts):
            self._counts = np.empty(_MOST_COUNTED, np.int64)
        sort_instants(
            rows,
            np.empty_like(rows),
            self._counts,
            batch.ts,
            batch.seq_tick,
            batch.diff,
            self.orders,
            batch.data,
            labels,
            self._countable,
        )
        return rows
