from __future__ import annotations

import math
import random
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from kasen.operators.aggregate import Aggregate, AggregateSpec
from kasen.operators.batch import ORDER_DOUBLE, ORDER_INTEGER, ORDER_TEXT, Batch, Bound, empty
from kasen.operators.dictionary import Dictionary
from tests.operators.cuts import all_cuts, batch, changes_of, netted
from tests.operators.random_bags import Row, bags_of, differences, random_changes
from tests.oracle import bridges

# Columns after the keys: an integer, a double, a DECIMAL(9, 2), a text.
INT, DOUBLE, DECIMAL, TEXT = range(4)
ORDERS = (ORDER_INTEGER, ORDER_DOUBLE, ORDER_INTEGER, ORDER_TEXT)
SCALES = (0, 0, 2, 0)
NUMBERS = (INT, DOUBLE, DECIMAL)
VALUES = ["", "a", "ab", "b", "é", "z", "zz"]


def bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def double(word: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", word))[0])


def spec(function: str, kind: int, distinct: bool = False, parameter: float | None = None) -> AggregateSpec:
    """A call on a column by kind; `arg` still counts from the first argument column."""
    result = "same"
    if function in ("count", "sum"):
        result = "decimal" if function == "sum" and kind == DECIMAL else "bigint"
    if kind < 0:
        return AggregateSpec(function, -1, False, 0, 0, result, None)
    return AggregateSpec(function, kind, distinct, ORDERS[kind], SCALES[kind], result, parameter)


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


class Model:
    """Recomputes a group's row from all its rows."""

    def __init__(self, keys: int, calls: tuple[AggregateSpec, ...], dictionary: Dictionary) -> None:
        self.keys = keys
        self.calls = calls
        self.dictionary = dictionary

    def rows(self, bag: Counter[Row]) -> Counter[Row]:
        groups: dict[Row, list[Row]] = {} if self.keys else {(0,): []}
        mask = (1 << self.keys) - 1
        for row in bag.elements():
            groups.setdefault((*row[: self.keys], row[-1] & mask), []).append(row)
        return Counter(self.row(key, rows) for key, rows in groups.items())

    def row(self, key: Row, rows: list[Row]) -> Row:
        values: list[int] = []
        nulls = key[-1]
        for index, call in enumerate(self.calls):
            value = self.value(call, rows)
            values.append(value or 0)
            nulls |= (value is None) << (self.keys + index)
        return (*key[:-1], *values, nulls)

    def value(self, call: AggregateSpec, rows: list[Row]) -> int | None:
        if call.arg < 0:
            return len(rows)
        column = self.keys + call.arg
        words = [row[column] for row in rows if not row[-1] >> column & 1]
        words.sort(key=lambda word: self.order(word, call))
        if call.distinct:
            words = list(dict.fromkeys(words))
        if call.function == "count":
            return len(words)
        if not words:
            return None
        if call.function in ("min", "max", "window_end"):
            return words[0] if call.function == "min" else words[-1]
        if call.function == "percentile_disc":
            assert call.parameter is not None
            rank = bridges.percentile_disc_rank(len(words), call.parameter)
            assert rank is not None
            return words[rank - 1]
        return self.number(call, words)

    def number(self, call: AggregateSpec, words: list[int]) -> int | None:
        if call.order != ORDER_DOUBLE and call.function == "sum":
            total = sum(words)
            fits = abs(total) < 10**18 if call.result == "decimal" else -(2**63) <= total < 2**63
            return total if fits else None
        numbers: list[float | str]
        if call.order == ORDER_DOUBLE:
            numbers = [double(word) for word in words]
        else:
            numbers = [str(Decimal(word).scaleb(-call.scale)) for word in words]
        answer: float | None
        if call.function == "percentile_cont":
            assert call.parameter is not None
            answer = bridges.percentile_cont([double(word) for word in words], call.parameter)
        else:
            exact = {"sum": bridges.exact_sum, "avg": bridges.exact_avg}
            answer = (exact.get(call.function) or getattr(bridges, call.function))(numbers)
        return None if answer is None else bits(abs(answer) if math.isnan(answer) else answer + 0.0)

    def order(self, word: int, call: AggregateSpec) -> tuple[bool, float, bytes]:
        if call.order == ORDER_DOUBLE:
            value = double(word)
            return (math.isnan(value), 0.0 if math.isnan(value) else value, b"")
        return (False, word, b"") if call.order == ORDER_INTEGER else (False, 0, self.text(word))

    def text(self, code: int) -> bytes:
        return self.dictionary.text(code).encode()


def drawer(keys: int, wild: bool, codes: list[int]) -> Callable[[random.Random], Row]:
    doubles = [0.0, 0.1, -2.5, 3.25, 1e10]
    integers = [0, 1, -7, 40]
    if wild:
        doubles += [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 1e-300, 1e16]
        integers += [2**63 - 1, -(2**63), 2**62]

    def draw(rng: random.Random) -> Row:
        decimals = [100, -250, 333, *([999_999_999_999_999_999] if wild else [])]
        words = [
            *(rng.randint(0, 2) for _ in range(keys)),
            rng.choice(integers) if rng.random() < 0.6 else rng.randint(-50, 50),
            bits(rng.choice(doubles) if rng.random() < 0.6 else rng.uniform(-9, 9)),
            rng.choice(decimals) if rng.random() < 0.6 else rng.randint(-999, 999),
            rng.choice(codes),
        ]
        nulls = sum(1 << column for column in range(len(words)) if rng.random() < 0.15)
        return (*(0 if nulls >> column & 1 else word for column, word in enumerate(words)), nulls)

    return draw


def moved(calls: tuple[AggregateSpec, ...], keys: int) -> tuple[AggregateSpec, ...]:
    """The calls with their columns counted from the first key."""
    return tuple(call if call.arg < 0 else replace(call, arg=call.arg + keys) for call in calls)


@pytest.mark.parametrize("insert_only", [False, True])
@pytest.mark.parametrize("keys", [0, 1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_every_aggregate_is_right_at_every_instant(seed: int, keys: int, insert_only: bool) -> None:
    rng = random.Random(seed)
    dictionary = Dictionary()
    codes = [dictionary.code(text) for text in rng.sample(VALUES, len(VALUES))]
    end = 40
    draw = drawer(keys, seed % 2 == 1, codes)
    changes = random_changes(rng, draw, end, deletions=not insert_only)
    # At most 63 columns: the calls in two halves.
    for calls in (CALLS[::2], CALLS[1::2]):
        bound_calls = moved(calls, keys)
        found = all_cuts(
            lambda c=bound_calls: Aggregate(keys, c, dictionary, insert_only),  # type: ignore[misc]
            [batch(changes, keys + 4)],
            end,
            seed,
        )
        model = Model(keys, calls, dictionary)
        bags = bags_of(changes)
        expected = differences({at: model.rows(bag) for at, bag in bags.items()})
        assert netted(found) == expected, seed
        assert len(found) == sum(len(rows) for rows in expected.values()), "the answer is not net"


COUNT_AND_SUM = (spec("count", -1), spec("sum", INT))


def plain(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int, Row]]:
    """(ts, diff, value) without keys."""
    return [(ts, 0, diff, (value, 0)) for ts, diff, value in rows]


def test_the_one_group_of_no_keys_appears_at_the_beginning() -> None:
    operator = Aggregate(0, COUNT_AND_SUM, Dictionary())
    operator.begin(Bound(3))
    assert operator.next_instant() == Bound(3)
    assert len(operator.process([empty(1)], Bound(3))) == 0
    assert changes_of(operator.process([empty(1)], Bound(5))) == [(3, 0, 1, (0, 0, 0b10))]
    answer = operator.process([batch(plain([(5, 1, 7), (6, -1, 7)]), 1)], Bound(9))
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
    operator.begin(Bound(3))
    answer = operator.process([batch(plain([(3, 1, 7), (3, 1, 8)]), 1)], Bound(9))
    assert changes_of(answer) == [(3, 0, 1, (2, 15, 0))]


def test_an_unchanged_row_is_not_put_out() -> None:
    calls = (AggregateSpec("max", 1, False, 0, 0, "same", None),)
    operator = Aggregate(1, calls, Dictionary())
    rows = [(1, 0, 1, (5, 9, 0)), (2, 0, 1, (5, 3, 0)), (3, 0, -1, (5, 3, 0)), (4, 0, -1, (5, 9, 0))]
    answer = operator.process([batch(rows, 2)], Bound(9))
    assert changes_of(answer) == [(1, 0, 1, (5, 9, 0)), (4, 0, -1, (5, 9, 0))]


def test_a_null_key_is_a_group_apart_from_zero() -> None:
    operator = Aggregate(1, (spec("count", -1),), Dictionary())
    rows = [(1, 0, 1, (0, 0)), (1, 0, 1, (0, 1)), (1, 0, 1, (0, 1))]
    answer = operator.process([batch(rows, 1)], Bound(9))
    assert sorted(changes_of(answer)) == [(1, 0, 1, (0, 1, 0)), (1, 0, 1, (0, 2, 1))]


def test_slots_of_groups_that_vanished_are_used_again() -> None:
    operator = Aggregate(
        1, moved((spec("count", -1), spec("min", INT), spec("count", INT, True)), 1), Dictionary()
    )
    for ts in range(200):
        rows = [(ts, 0, 1, (ts * 100 + key, key, 0)) for key in range(10)]
        rows += [(ts, 0, -1, (ts * 100 - 100 + key, key, 0)) for key in range(10) if ts]
        assert len(operator.process([batch(rows, 2)], Bound(ts + 1))) == (20 if ts else 10)
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
        answer = operator.process([Batch(ts, zeros, ones, data)], Bound(n))
        left: Counter[Row] = Counter()
        for _, _, diff, row in changes_of(answer):
            left[row] += diff
        assert {row: count for row, count in left.items() if count} == expected
