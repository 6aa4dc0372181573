from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from kasen.engine.aggregate.sliding.sliding_aggregate import SlidingAggregate
from kasen.engine.batch import Batch, Frontier, empty
from kasen.engine.text.dictionary import Dictionary
from tests.engine.aggregate.group.model import INT, NUMBERS, TEXTS, Model, drawer, moved, spec
from tests.engine.cuts import Change, all_cuts, batch, changes_of, netted
from tests.engine.random_bags import Bags, Row, differences

PLAIN = (
    spec("count", -1),
    *(spec("count", kind) for kind in range(4)),
    *(spec(function, kind) for function in ("min", "max") for kind in range(4)),
    *(spec(function, kind) for function in ("sum", "avg", "var_pop", "stddev_samp") for kind in NUMBERS),
)
BOUNDS = (spec("window_start", -1), spec("window_end", -1))


def random_stream(
    rng: random.Random, keys: int, wild: bool, codes: list[int], end: int, most: int = 3
) -> list[Change]:
    """Tuples with gaps now and then; some of them with diff 0, some twice."""
    draw = drawer(keys, wild, codes)
    tuples: list[Change] = []
    ts = rng.randint(-20, 5)
    while ts < end:
        for seq_tick in range(rng.choice([1, 1, 2])):
            tuples += [
                (ts, seq_tick, rng.choice([1, 1, 1, 0, 2]), draw(rng)) for _ in range(rng.randint(1, most))
            ]
        ts += rng.choice([1, 1, 1, 2, 3, rng.randint(1, 25)])
    return tuples


def reports(model: Model, tuples: list[Change], length: int, slide: int, end: int) -> Bags:
    """The relation at the beginning and at each boundary below `end`, from the definition."""
    begin = tuples[0][:2]
    found: Bags = {begin: model.rows(Counter())}
    before = False
    for boundary in range((begin[0] // slide + 1) * slide, end, slide):
        inside = [each for each in tuples if boundary - length <= each[0] < boundary]
        if inside or before:
            model.bounds = (boundary - length, boundary)
            bag: Counter[Row] = Counter()
            for _, _, diff, row in inside:
                bag[row] += diff
            found[boundary, 0] = model.rows(bag)
        before = bool(inside)
    return found


@pytest.mark.parametrize(("length", "slide"), [(4, 4), (12, 3), (10, 4), (2, 5), (7, 1), (9, 6), (1, 3)])
@pytest.mark.parametrize("keys", [0, 1, 2])
@pytest.mark.parametrize("bounds", [False, True])
def test_every_report_is_right(length: int, slide: int, keys: int, bounds: bool) -> None:
    seed = 100 * length + 10 * slide + keys
    rng = random.Random(seed)
    dictionary = Dictionary()
    codes = [dictionary.code(text) for text in rng.sample(TEXTS, len(TEXTS))]
    calls = PLAIN + BOUNDS if bounds else PLAIN
    end = 70
    tuples = random_stream(rng, keys, rng.random() < 0.5, codes, end - 20)
    bound_calls = moved(calls, keys)
    found = all_cuts(
        lambda: SlidingAggregate(keys, bound_calls, length, slide, dictionary),
        [batch(tuples, keys + 4)],
        end,
        seed,
    )
    expected = differences(reports(Model(keys, calls, dictionary), tuples, length, slide, end))
    assert netted(found) == expected, seed
    assert len(found) == sum(len(rows) for rows in expected.values()), "the answer is not net"


@pytest.mark.parametrize("keys", [0, 1, 2])
def test_dense_panes_are_filled_by_blocks(keys: int) -> None:
    seed = 20 + keys
    rng = random.Random(seed)
    dictionary = Dictionary()
    codes = [dictionary.code(text) for text in rng.sample(TEXTS, len(TEXTS))]
    tuples = random_stream(rng, keys, keys == 1, codes, 12, most=30)
    tuples = [(ts, seq_tick, min(diff, 1) if ts % 3 else 1, row) for ts, seq_tick, diff, row in tuples]
    bound_calls = moved(PLAIN, keys)
    found = all_cuts(
        lambda: SlidingAggregate(keys, bound_calls, 6, 3, dictionary), [batch(tuples, keys + 4)], 22, seed
    )
    expected = differences(reports(Model(keys, PLAIN, dictionary), tuples, 6, 3, 22))
    assert netted(found) == expected, seed


def plain(rows: list[tuple[int, int, int]]) -> Batch:
    """(ts, key, value)."""
    return batch([(ts, 0, 1, (key, value, 0)) for ts, key, value in rows], 2)


COUNT_AND_MAX = moved((spec("count", -1), spec("max", INT)), 1)


def test_a_window_is_reported_when_the_time_has_passed_its_end() -> None:
    operator = SlidingAggregate(1, COUNT_AND_MAX, 4, 2, Dictionary())
    assert operator.next_instant() is None
    assert len(operator.process([plain([(0, 7, 5), (1, 7, 3)])], Frontier(2))) == 0
    assert operator.next_instant() == Frontier(2)
    assert operator.needs_input_since() == Frontier(0)
    answer = operator.process([plain([(3, 7, 1)])], Frontier(4, 1))
    assert changes_of(answer) == [
        (2, 0, 1, (7, 2, 5, 0)),
        (4, 0, -1, (7, 2, 5, 0)),
        (4, 0, 1, (7, 3, 5, 0)),
    ]
    assert operator.next_instant() == Frontier(6)
    answer = operator.process([empty(2)], Frontier(100))
    assert changes_of(answer) == [
        (6, 0, -1, (7, 3, 5, 0)),
        (6, 0, 1, (7, 1, 1, 0)),
        (8, 0, -1, (7, 1, 1, 0)),
    ]
    assert operator.next_instant() is None
    assert operator.needs_input_since() is None


def test_a_held_back_tuple_makes_its_window_report() -> None:
    calls = (spec("window_end", -1), spec("count", -1))
    operator = SlidingAggregate(0, calls, 4, 4, Dictionary())
    operator.begin(Frontier(1))
    rows = batch([(1, 0, 0, (0,)), (9, 0, 0, (0,))], 0)
    assert changes_of(operator.process([rows], Frontier(50))) == [
        (1, 0, 1, (0, 0, 0b01)),
        (4, 0, -1, (0, 0, 0b01)),
        (4, 0, 1, (4, 0, 0)),
        (8, 0, -1, (4, 0, 0)),
        (8, 0, 1, (8, 0, 0)),
        (12, 0, -1, (8, 0, 0)),
        (12, 0, 1, (12, 0, 0)),
        (16, 0, -1, (12, 0, 0)),
        (16, 0, 1, (16, 0, 0)),
    ]
    assert operator.needs_input_since() == Frontier(9), (
        "the bounds that it shows are still those of its window"
    )
    assert len(operator.process([batch([(51, 0, 0, (0,))], 0)], Frontier(52))) == 0
    assert operator.needs_input_since() == Frontier(51)
    assert operator.next_instant() == Frontier(52)


def test_many_groups_over_many_panes() -> None:
    rng = np.random.default_rng(3)
    n, length, slide = 40_000, 1000, 70
    ts = np.sort(rng.integers(0, 3000, n))
    keys = rng.integers(0, 5000, n)
    values = rng.integers(0, 10**6, n)
    data = np.vstack([keys, values, np.zeros(n, np.int64)]).astype(np.int64)
    operator = SlidingAggregate(1, COUNT_AND_MAX, length, slide, Dictionary())
    whole = Batch(ts, np.zeros(n, np.int64), np.ones(n, np.int64), data)
    boundary = 2940
    left: Counter[Row] = Counter()
    for _, _, diff, row in changes_of(operator.process([whole], Frontier(boundary, 1))):
        left[row] += diff
    inside = (ts >= boundary - length) & (ts < boundary)
    counts = np.bincount(keys[inside], minlength=5000)
    greatest = np.full(5000, -1)
    np.maximum.at(greatest, keys[inside], values[inside])
    expected = {(k, int(counts[k]), int(greatest[k]), 0): 1 for k in np.flatnonzero(counts).tolist()}
    assert {row: count for row, count in left.items() if count} == expected
