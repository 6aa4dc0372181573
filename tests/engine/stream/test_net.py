from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kasen.engine.batch import Batch
from kasen.engine.stream.net import net


def batch(rows: list[tuple[int, int, int, int, int]]) -> Batch:
    """Rows of (ts, seq_tick, diff, value, null bits)."""
    table = np.array(rows, np.int64).reshape(-1, 5).T
    return Batch(table[0].copy(), table[1].copy(), table[2].copy(), table[3:].copy())


def listed(changes: Batch) -> list[tuple[int, ...]]:
    columns = np.vstack([changes.ts, changes.seq_tick, changes.diff, changes.data])
    return [tuple(row) for row in columns.T.tolist()]


def test_equal_rows_of_one_instant_become_one_change() -> None:
    changes = batch([(1, 0, 1, 7, 0), (1, 0, 1, 8, 0), (1, 0, 1, 7, 0), (1, 1, 1, 7, 0), (2, 0, -1, 7, 0)])
    assert listed(net(changes)) == [(1, 0, 2, 7, 0), (1, 0, 1, 8, 0), (1, 1, 1, 7, 0), (2, 0, -1, 7, 0)]


def test_a_row_that_leaves_and_enters_in_one_instant_vanishes() -> None:
    changes = batch([(1, 0, -1, 7, 0), (1, 0, 1, 7, 0), (1, 0, 1, 0, 1), (1, 0, -1, 0, 0)])
    assert listed(net(changes)) == [(1, 0, 1, 0, 1), (1, 0, -1, 0, 0)]


def test_nothing_to_net_gives_the_batch_itself() -> None:
    for rows in ([], [(1, 0, 1, 7, 0)], [(1, 0, 1, 7, 0), (2, 0, -1, 7, 0)]):
        changes = batch(rows)
        assert net(changes) is changes
    assert len(net(batch([(1, 0, 0, 7, 0)]))) == 0


@pytest.mark.parametrize("seed", range(8))
def test_random_changes_are_netted_per_instant(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 3000))
    ts = np.sort(random.integers(0, [3, 30, 300, 3000][seed % 4], n))
    seq_tick = np.zeros(n, np.int64)
    data = np.vstack([random.integers(-20, 20, n), random.integers(0, 2, n)]).astype(np.int64)
    changes = Batch(ts, seq_tick, random.integers(-1, 2, n), data)
    answer = listed(net(changes))
    expected: Counter[tuple[int, ...]] = Counter()
    for instant, tick, diff, *row in listed(changes):
        expected[(instant, tick, *row)] += diff
    got = {(instant, tick, *row): diff for instant, tick, diff, *row in answer}
    assert len(got) == len(answer), seed
    assert got == {key: diff for key, diff in expected.items() if diff}, seed
    assert [row[0] for row in answer] == sorted(row[0] for row in answer), seed
