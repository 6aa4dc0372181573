"""The tuples that an operator holds of a window: what another operator over the same window begins with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kasen.engine.batch import I64, Batch, ones


@dataclass(frozen=True, slots=True)
class HeldTuples:
    """Tuples in the order in which they came; the first is number `first` of the stream.

    Beside what the window holds there may be tuples that are still to enter it, or that have left it.
    Without `has_times` their instants mean nothing.
    """

    batch: Batch
    first: int = 1
    has_times: bool = True


def from_rows(rows: I64) -> HeldTuples:
    """Of rows [n, 1 + words]: the ts, then the words."""
    ts, data = rows[:, 0].copy(), np.ascontiguousarray(rows[:, 1:].T)
    return HeldTuples(Batch(ts, np.zeros(len(ts), np.int64), ones(len(ts)), data))


def without_times(data: I64) -> HeldTuples:
    """Of data [columns + 1, n]."""
    count = data.shape[1]
    zeros = np.zeros(count, np.int64)
    return HeldTuples(Batch(zeros, zeros.copy(), ones(count), np.ascontiguousarray(data)), has_times=False)
