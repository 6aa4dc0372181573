"""Sliding aggregates of several queries by the same key share the work of reducing rows to panes.

Each query keeps its own windows, as if it were alone. What they share holds no state: a long batch is
reduced once, to rows that mean the same to all of them (see kernels/pane_reduction), and each takes those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kasen.engine.aggregate.accumulators import AggregateSpec
from kasen.engine.aggregate.kernels import blocks
from kasen.engine.aggregate.sliding.kernels import pane_reduction as kernel
from kasen.engine.batch import I64, Batch, are_ones, zeros
from kasen.engine.kernels import ordered
from kasen.engine.kernels.groups import KEY
from kasen.engine.record_table import RecordTable

#: Shorter batches are not worth it; nor is a reduction that leaves more than this share of the rows.
_LEAST, _SHARE = 1024, 4
#: After a batch that was hardly reduced, so many others are not tried.
_PAUSE = 16
#: With more groups than this the table is begun anew, as groups are never let go.
_MOST_GROUPS = 1 << 16


@dataclass(frozen=True, slots=True)
class PaneRequirements:
    """What a reduction must keep: the column of an extreme and which one, and the column of a sum."""

    keys: int
    extreme: int = -1
    sign: int = 0
    total: int = -1


def wanted(keys: int, calls: Sequence[AggregateSpec]) -> PaneRequirements | None:
    """What these calls need of a pane's rows; None if that cannot be kept in a row a group."""
    extremes: set[tuple[int, int]] = set()
    totals: set[int] = set()
    for call in calls:
        if call.distinct:
            return None
        if call.function in ("min", "max") and call.order == ordered.INTEGER:
            extremes.add((call.arg, 1 if call.function == "max" else -1))
        elif call.function in ("sum", "avg") and call.order == ordered.INTEGER:
            totals.add(call.arg)
        elif call.function != "count":
            return None
    if not keys or len(extremes) > 1 or len(totals) > 1:
        return None
    extreme, sign = next(iter(extremes), (-1, 0))
    total = next(iter(totals), -1)
    both_in_one = extreme >= 0 and extreme == total
    is_key = -1 < extreme < keys or -1 < total < keys
    return None if both_in_one or is_key else PaneRequirements(keys, extreme, sign, total)


class PaneReduction:
    """Shared by aggregates over one input with panes of one length.

    A batch is reduced when the first of them asks.
    """

    def __init__(self, wanted: PaneRequirements, pane: int) -> None:
        self.wanted = wanted
        self.pane = pane
        self._members = 0
        self._seen: Batch | None = None
        self._reduced: Batch | None = None
        self._pause = 0
        self._stamps: I64 = np.zeros(1, np.int64)
        self._begin()

    def _begin(self) -> None:
        self._groups = RecordTable(self.wanted.keys, KEY + self.wanted.keys + kernel.WORDS)
        self._guesses: I64 = np.zeros(blocks.GUESSES, np.int64)
        self._slots: I64 = np.zeros(blocks.BLOCK, np.int64)

    def join(self) -> None:
        self._members += 1

    def leave(self) -> bool:
        """One of the aggregates leaves; whether it was the last."""
        self._members -= 1
        return not self._members

    def reduced(self, batch: Batch) -> Batch:
        """The batch, or fewer rows that mean the same."""
        if self._members < 2 or len(batch) < _LEAST:
            return batch
        if batch is not self._seen:
            self._seen = batch
            self._reduced = self._reduce(batch)
        return batch if self._reduced is None else self._reduced

    def _reduce(self, batch: Batch) -> Batch | None:
        if self._pause:
            self._pause -= 1
            return None
        if not are_ones(batch.diff) or batch.has_nulls():
            return None
        if len(self._groups) > _MOST_GROUPS:
            self._begin()
        room = len(batch) // _SHARE
        ts, diff = np.empty(room, np.int64), np.empty(room, np.int64)
        data = np.empty((batch.columns + 1, room), np.int64)
        count = self._run(batch, ts, diff, data)
        while count == kernel.WANTS_GROUPS:
            # What was counted of the batch is forgotten with the old table.
            slots = 2 * len(self._groups.records) // self._groups.width
            self._begin()
            while len(self._groups.records) // self._groups.width < slots:
                self._groups.grow()
            count = self._run(batch, ts, diff, data)
        if count < 0:
            self._begin()
            self._pause = _PAUSE
            return None
        kept = np.ascontiguousarray(data[:, :count])
        return Batch(ts[:count].copy(), zeros(count), diff[:count].copy(), kept)

    def _run(self, batch: Batch, ts: I64, diff: I64, data: I64) -> int:
        own, groups = self.wanted, self._groups
        return int(
            kernel.reduce_panes(
                batch.ts,
                batch.data,
                own.keys,
                own.extreme,
                own.sign,
                own.total,
                self.pane,
                groups.table,
                groups.records,
                groups.width,
                self._guesses,
                self._slots,
                groups.touched,
                ts,
                diff,
                data,
                self._stamps,
            )
        )
