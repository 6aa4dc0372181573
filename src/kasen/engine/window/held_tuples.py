"""The tuples that an operator holds of a window: what another operator over the same window begins with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

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


@runtime_checkable
class TupleHolder(Protocol):
    """An operator that can tell the tuples of the windows behind its inputs again."""

    def held_tuples(self, position: int) -> HeldTuples: ...


@runtime_checkable
class Counting(Protocol):
    """An operator to which it matters which tuple of the stream comes first."""

    def count_on(self, first: int) -> None:
        """On a new operator: the next tuple is number `first` of the stream."""
        ...


@runtime_checkable
class GroupHolder(Protocol):
    """An aggregate that can go on with the groups of another of its kind."""

    def by_itself(self) -> Any: ...

    def take_over(self, other: Any, places: tuple[int, ...], at: int) -> None: ...

    def contents(self) -> I64: ...


def from_rows(rows: I64) -> HeldTuples:
    """Of rows [n, 1 + words]: the ts, then the words."""
    ts, data = rows[:, 0].copy(), np.ascontiguousarray(rows[:, 1:].T)
    return HeldTuples(Batch(ts, np.zeros(len(ts), np.int64), ones(len(ts)), data))


def without_times(data: I64) -> HeldTuples:
    """Of data [columns + 1, n]."""
    count = data.shape[1]
    zeros = np.zeros(count, np.int64)
    return HeldTuples(Batch(zeros, zeros.copy(), ones(count), np.ascontiguousarray(data)), has_times=False)
