"""The obvious join of two ROWS windows, and the order stress test of all operators that join them."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np
import numpy.typing as npt
import pytest

from kasen.engine.batch import Batch, Frontier
from kasen.engine.operator import Operator

I64 = npt.NDArray[np.int64]

STRESS = pytest.mark.parametrize(
    ("sizes", "keys", "count"),
    [((1, 1), 2, 200_000), ((1, 1000), 300, 300_000), ((7, 3), 5, 300_000), ((1000, 999), 2000, 500_000),
     ((64, 64), 64, 400_000), ((100, 1000), 700, 400_000), ((40_000, 30_000), 50_000, 200_000)],
)  # fmt: skip


class TwoWindows:
    """The obvious join of two ROWS windows: each a queue, and for each key the queue of its values."""

    def __init__(self, sizes: tuple[int, int]) -> None:
        self.sizes = sizes
        self.windows: tuple[deque[tuple[int, int]], ...] = (deque(), deque())
        self.by_key: tuple[defaultdict[int, deque[int]], ...] = (defaultdict(deque), defaultdict(deque))

    def arrive(self, side: int, key: int, value: int) -> list[int]:
        """The values of the other side that the arrival meets, oldest first."""
        met = self.by_key[1 - side].get(key, ())
        self.windows[side].append((key, value))
        self.by_key[side][key].append(value)
        if len(self.windows[side]) > self.sizes[side]:
            old, _ = self.windows[side].popleft()
            self.by_key[side][old].popleft()
        return list(met)


def sides(side: npt.NDArray[np.bool_], key: I64, begin: int, end: int) -> list[Batch]:
    """The arrivals from `begin` to `end`: at each time one, with its key and its time as columns."""
    parts = []
    for mine in (True, False):
        at = np.flatnonzero(side[begin:end] == mine) + begin
        data = np.ascontiguousarray(np.vstack([key[at], at, np.zeros(len(at), np.int64)]))
        parts.append(Batch(at, np.zeros(len(at), np.int64), np.ones(len(at), np.int64), data))
    return parts


def assert_matches_in_order(
    join: Operator, sizes: tuple[int, int], keys: int, count: int, *, newest_first: bool
) -> None:
    """Every pair, in arrival order, at several sizes of batches: 2.3 million arrivals in all."""
    random = np.random.default_rng(list(sizes))
    side = random.random(count) < random.uniform(0.2, 0.8)
    key = random.integers(0, keys, count)
    simple = TwoWindows(sizes)
    expected = []
    for at, (one, k) in enumerate(zip(side.tolist(), key.tolist(), strict=True)):
        met = simple.arrive(0 if one else 1, k, at)
        # All that a window holds came at times of their own.
        expected += [
            (at, at, other) if one else (at, other, at) for other in (reversed(met) if newest_first else met)
        ]
    found: list[I64] = []
    begin = 0
    while begin < count:
        end = min(count, begin + int(random.choice([1, 7, 1000, 40_000])))
        answer = join.process(sides(side, key, begin, end), Frontier(end))
        found.append(np.vstack([answer.ts, answer.data[:2]]))
        begin = end
    assert np.array_equal(np.concatenate(found, axis=1).T, np.array(expected).reshape(-1, 3))
