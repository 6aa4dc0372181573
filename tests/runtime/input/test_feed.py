"""The numbers of simultaneous tuples, and rows that wait."""

from __future__ import annotations

import numpy as np
import pytest

from kasen.engine import parallel
from kasen.engine.batch import TICK_BITS, are_zeros
from kasen.runtime.input.feed import Feed, InputRows, number_tuples


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("streams", [1, 2, 3])
def test_tuples_of_one_time_are_numbered_in_declaration_order(
    streams: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "worth", lambda _: cores == 2)
    for seed in range(100):
        random = np.random.default_rng([seed, streams])
        times = [np.sort(random.integers(0, 40, random.integers(0, 12))) for _ in range(streams)]
        seen: dict[int, int] = {}
        expected: list[list[int]] = [[] for _ in times]
        for ts, stream in sorted((int(ts), i) for i, each in enumerate(times) for ts in each):
            expected[stream].append(seen.get(ts, 0) << TICK_BITS)
            seen[ts] = seen.get(ts, 0) + 1
        assert [each.tolist() for each in number_tuples(times)] == expected, seed


def test_tuples_alone_at_their_times_share_their_zeros() -> None:
    assert all(are_zeros(each) for each in number_tuples([np.array([1, 3]), np.array([2, 4])]))


@pytest.mark.parametrize("slack", [0, 50])
def test_rows_that_come_one_by_one_wait_in_few_pieces(slack: int) -> None:
    """As from a folder of small files: to look at each piece whenever one comes takes the square of them."""
    random = np.random.default_rng(slack)
    feed = Feed(1, slack)
    times = [1000 + i - int(random.integers(0, slack + 1)) for i in range(20_000)]
    for i, ts in enumerate(times):
        column = np.array([i], np.int64)
        feed.add(
            InputRows(np.array([ts], np.int64), np.ones(1, np.int64), [column, np.zeros(1, np.int64)], column)
        )
    assert len(feed._held) < 80
    assert feed.waiting == len(times)
    assert feed.waiting_below(5000) == sum(ts < 5000 for ts in times)
    released = [int(i) for rows in feed.release(5000) for i in rows.data[0]]
    assert released == sorted((i for i, ts in enumerate(times) if ts < 5000), key=lambda i: times[i])
