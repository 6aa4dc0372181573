from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from kasen.engine.aggregate.group.aggregate import Aggregate, AggregateSpec, DepartureOrder
from kasen.engine.batch import Batch, Frontier, empty
from kasen.engine.text.dictionary import Dictionary
from tests.engine.aggregate.group.model import DOUBLE, INT, NUMBERS, TEXTS, Model, drawer, moved, spec
from tests.engine.cuts import all_cuts, batch, changes_of, netted
from tests.engine.random_bags import Row, bags_of, differences, queued_changes, random_changes

CALLS = (
    spec("count", -1),
    *(spec("count", kind, distinct) for kind in range(4) for distinct in (False, True)),
    *(spec("sum", kind, distinct) for kind in NUMBERS for distinct in (False, True)),
    *(spec("avg", kind) for kind in NUMBERS),
    spec("avg", DOUBLE, True),
    *(spec(function, kind) for function in ("min", "max") for kind in range(4)),
    *(spec(function, kind) for function in ("var_pop", "stddev_samp") for kind in NUMBERS),
    spec("var_samp", DOUBLE, True),
    spec("stddev_pop", INT),
    *(spec("percentile_cont", DOUBLE, False, share) for share in (0.0, 0.5, 0.9, 1.0)),
    *(spec("percentile_disc", kind, False, share) for kind in range(4) for share in (0.0, 0.3, 1.0)),
    spec("percentile_disc", INT, True, 0.5),
    spec("window_end", INT),
)


@pytest.mark.parametrize("leaving", DepartureOrder)
@pytest.mark.parametrize("keys", [0, 1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_every_aggregate_is_right_at_every_instant(seed: int, keys: int, leaving: DepartureOrder) -> None:
    rng = random.Random(seed)
    dictionary = Dictionary()
    codes = [dictionary.code(text) for text in rng.sample(TEXTS, len(TEXTS))]
    end = 40
    draw = drawer(keys, seed % 2 == 1, codes)
    if leaving is DepartureOrder.IN_ORDER:
        changes = queued_changes(rng, draw, end, lambda row: (*row[:keys], row[-1] & ((1 << keys) - 1)))
    else:
        changes = random_changes(rng, draw, end, deletions=leaving is DepartureOrder.ANY)
    # At most 63 columns: the calls in two halves.
    for calls in (CALLS[::2], CALLS[1::2]):
        bound_calls = moved(calls, keys)
        found = all_cuts(
            lambda c=bound_calls: Aggregate(keys, c, dictionary, leaving),  # type: ignore[misc]
            [batch(changes, keys + 4)],
            end,
            seed,
        )
        model = Model(keys, calls, dictionary)
        bags = bags_of(changes)
        expected = differences({at: model.rows(bag) for at, bag in bags.items()})
        assert netted(found) == expected, seed
        assert len(found) == sum(len(rows) for rows in expected.values()), "the answer is not net"


@pytest.mark.parametrize("leaving", [DepartureOrder.NEVER, DepartureOrder.ANY])
@pytest.mark.parametrize("keys", [0, 1, 2])
def test_many_rows_of_one_instant_go_in_by_blocks(keys: int, leaving: DepartureOrder) -> None:
    """Blocks of rows that enter, single rows in between where some enter twice or leave."""
    seed = 10 + keys
    rng = random.Random(seed)
    dictionary = Dictionary()
    codes = [dictionary.code(text) for text in rng.sample(TEXTS, len(TEXTS))]
    draw = drawer(keys, rng.random() < 0.5, codes)
    changes = []
    for ts in range(1, 6):
        now = [(ts, 0, 1, draw(rng)) for _ in range(rng.choice([15, 16, 17, 90]))]
        now += [(ts, 0, 2, draw(rng)) for _ in range(rng.choice([0, 0, 1, 3]))]
        if leaving is DepartureOrder.ANY:
            now += [(ts, 0, -diff, row) for _, _, diff, row in rng.sample(now, 5)]
        changes += now if rng.random() < 0.5 else rng.sample(now, len(now))
    calls = [call for call in CALLS if not call.distinct and call.parameter is None]
    calls = [call for call in calls if leaving is DepartureOrder.NEVER or call.function not in ("min", "max")]
    bound_calls = moved(tuple(calls), keys)
    found = all_cuts(
        lambda: Aggregate(keys, bound_calls, dictionary, leaving), [batch(changes, keys + 4)], 7, seed
    )
    model = Model(keys, tuple(calls), dictionary)
    expected = differences({at: model.rows(bag) for at, bag in bags_of(changes).items()})
    assert netted(found) == expected


COUNT_AND_SUM = (spec("count", -1), spec("sum", INT))


def plain(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int, Row]]:
    """(ts, diff, value) without keys."""
    return [(ts, 0, diff, (value, 0)) for ts, diff, value in rows]


def test_the_one_group_of_no_keys_appears_at_the_beginning() -> None:
    operator = Aggregate(0, COUNT_AND_SUM, Dictionary())
    operator.begin(Frontier(3))
    assert operator.next_instant() == Frontier(3)
    assert len(operator.process([empty(1)], Frontier(3))) == 0
    assert changes_of(operator.process([empty(1)], Frontier(5))) == [(3, 0, 1, (0, 0, 0b10))]
    answer = operator.process([batch(plain([(5, 1, 7), (6, -1, 7)]), 1)], Frontier(9))
    assert changes_of(answer) == [
        (5, 0, -1, (0, 0, 0b10)),
        (5, 0, 1, (1, 7, 0)),
        (6, 0, -1, (1, 7, 0)),
        (6, 0, 1, (0, 0, 0b10)),
    ]
    assert operator.next_instant() is None
    assert operator.needs_input_since() is None


def test_what_changes_at_the_beginning_is_in_the_first_row() -> None:
    operator = Aggregate(0, COUNT_AND_SUM, Dictionary())
    operator.begin(Frontier(3))
    answer = operator.process([batch(plain([(3, 1, 7), (3, 1, 8)]), 1)], Frontier(9))
    assert changes_of(answer) == [(3, 0, 1, (2, 15, 0))]


def test_an_unchanged_row_is_not_put_out() -> None:
    calls = (AggregateSpec("max", 1, False, 0, 0, "same", None),)
    operator = Aggregate(1, calls, Dictionary())
    rows = [(1, 0, 1, (5, 9, 0)), (2, 0, 1, (5, 3, 0)), (3, 0, -1, (5, 3, 0)), (4, 0, -1, (5, 9, 0))]
    answer = operator.process([batch(rows, 2)], Frontier(9))
    assert changes_of(answer) == [(1, 0, 1, (5, 9, 0)), (4, 0, -1, (5, 9, 0))]


def test_a_null_key_is_a_group_apart_from_zero() -> None:
    operator = Aggregate(1, (spec("count", -1),), Dictionary())
    rows = [(1, 0, 1, (0, 0)), (1, 0, 1, (0, 1)), (1, 0, 1, (0, 1))]
    answer = operator.process([batch(rows, 1)], Frontier(9))
    assert sorted(changes_of(answer)) == [(1, 0, 1, (0, 1, 0)), (1, 0, 1, (0, 2, 1))]


def test_slots_of_groups_that_vanished_are_used_again() -> None:
    operator = Aggregate(
        1, moved((spec("count", -1), spec("min", INT), spec("count", INT, True)), 1), Dictionary()
    )
    for ts in range(200):
        rows = [(ts, 0, 1, (ts * 100 + key, key, 0)) for key in range(10)]
        rows += [(ts, 0, -1, (ts * 100 - 100 + key, key, 0)) for key in range(10) if ts]
        assert len(operator.process([batch(rows, 2)], Frontier(ts + 1))) == (20 if ts else 10)
    assert sum(len(array) for array in operator.snapshot().values()) < 2000


def test_many_groups_in_one_batch_and_in_one_instant() -> None:
    rng = np.random.default_rng(1)
    n = 50_000
    keys = rng.integers(0, 20_000, n)
    data = np.vstack([keys, np.arange(n), np.zeros(n, np.int64)]).astype(np.int64)
    zeros, ones = np.zeros(n, np.int64), np.ones(n, np.int64)
    counts, sums = np.bincount(keys), np.bincount(keys, np.arange(n)).astype(np.int64)
    expected = {(key, int(counts[key]), int(sums[key]), 0): 1 for key in np.unique(keys).tolist()}
    for ts in (zeros, np.arange(n)):
        operator = Aggregate(1, moved(COUNT_AND_SUM, 1), Dictionary())
        answer = operator.process([Batch(ts, zeros, ones, data)], Frontier(n))
        left: Counter[Row] = Counter()
        for _, _, diff, row in changes_of(answer):
            left[row] += diff
        assert {row: count for row, count in left.items() if count} == expected
