from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from kasen.engine.batch import Frontier, empty
from kasen.engine.sets.bag import Bag
from tests.engine.cuts import all_cuts, batch, netted
from tests.engine.random_bags import Row, bags_of, differences, random_changes

Meaning = Callable[[Counter[Row], Counter[Row]], Counter[Row]]

MEANINGS: dict[str, Meaning] = {
    "union": lambda left, right: Counter({*left, *right}),
    "intersect": lambda left, right: Counter(left.keys() & right.keys()),
    "intersect all": lambda left, right: left & right,
    "except": lambda left, right: Counter(left.keys() - right.keys()),
    "except all": lambda left, right: left - right,
}


def draw(rng: random.Random) -> Row:
    a, b = rng.randint(0, 2), rng.randint(0, 2)
    return rng.choice([(a, b, 0), (0, b, 1)])


@pytest.mark.parametrize("seed", range(6))
def test_distinct_has_each_row_once(seed: int) -> None:
    changes = random_changes(random.Random(seed), draw, 40)
    found = all_cuts(lambda: Bag("distinct", 2), [batch(changes, 2)], 40, seed)
    expected = differences({at: Counter(bag.keys()) for at, bag in bags_of(changes).items()})
    assert netted(found) == expected, seed
    assert len(found) == sum(len(rows) for rows in expected.values()), "the answer is not net"


@pytest.mark.parametrize("mode", MEANINGS)
@pytest.mark.parametrize("seed", range(6))
def test_set_operations_follow_their_definition(mode: str, seed: int) -> None:
    rng = random.Random(seed)
    left, right = (random_changes(rng, draw, 40) for _ in range(2))
    found = all_cuts(lambda: Bag(mode, 2), [batch(left, 2), batch(right, 2)], 40, seed)
    lefts, rights = bags_of(left), bags_of(right)
    now_left: Counter[Row] = Counter()
    now_right: Counter[Row] = Counter()
    answers = {}
    for at in sorted({*lefts, *rights}):
        now_left, now_right = lefts.get(at, now_left), rights.get(at, now_right)
        answers[at] = MEANINGS[mode](now_left, now_right)
    expected = differences(answers)
    assert netted(found) == expected, seed
    assert len(found) == sum(len(rows) for rows in expected.values()), "the answer is not net"


def test_rows_without_columns_can_be_distinct() -> None:
    rows = [(1, 0, 1, (0,)), (1, 0, 1, (0,)), (2, 0, -1, (0,)), (3, 0, -1, (0,))]
    found = all_cuts(lambda: Bag("distinct", 0), [batch(rows, 0)], 9, 0)
    assert found == [(1, 0, 1, (0,)), (3, 0, -1, (0,))]


def test_rows_that_are_gone_take_no_room() -> None:
    operator = Bag("except all", 1)
    for ts in range(300):
        rows = [(ts, 0, 1, (ts, 0))] + ([(ts, 0, -1, (ts - 1, 0))] if ts else [])
        operator.process([batch(rows, 1), empty(1)], Frontier(ts + 1))
    assert sum(len(array) for array in operator.snapshot().values()) < 50
    assert operator.needs_input_since() is not None
    operator.process([batch([(300, 0, -1, (299, 0))], 1), empty(1)], Frontier(301))
    assert operator.needs_input_since() is None
