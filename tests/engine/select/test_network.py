"""The shared selection network against conditions that are asked one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kasen.engine.batch import I64, Batch, double_bits
from kasen.engine.select.kernels.network import BETWEEN, IN_SET, IS_NULL, NOT_NULL, UNLIKE
from kasen.engine.select.network import GREATEST, LEAST, Condition, ConditionTree, Predicate, SelectionNetwork
from kasen.engine.text.dictionary import Dictionary

A, B, C = range(3)


def above(column: int, value: int) -> Predicate:
    return Predicate(BETWEEN, column, value + 1, GREATEST)


def below(column: int, value: int) -> Predicate:
    return Predicate(BETWEEN, column, LEAST, value - 1)


def equal(column: int, value: int) -> Predicate:
    return Predicate(BETWEEN, column, value, value)


def batch(columns: list[list[int | None]]) -> Batch:
    count = len(columns[0])
    data: I64 = np.zeros((len(columns) + 1, count), np.int64)
    for number, column in enumerate(columns):
        for row, value in enumerate(column):
            data[number, row] = value or 0
            data[-1, row] |= (value is None) << number
    ones = np.ones(count, np.int64)
    return Batch(np.arange(count), ones * 0, ones, data)


def test_the_documents_queries_use_three_modules_and_flags_0_to_2() -> None:
    network = SelectionNetwork([False] * 3, Dictionary())
    flags = [
        network.add(equal(A, 1)),
        network.add(ConditionTree(True, (equal(A, 1), above(B, 2)))),
        network.add(ConditionTree(True, (ConditionTree(False, (equal(A, 1), above(B, 2))), below(C, 3)))),
    ]
    assert flags == [0, 1, 2]
    assert network.modules == 3
    tuples = batch([[1, 1, 0, 0, None], [3, 2, 3, 2, 3], [2, 9, 2, 2, 2]])
    assert [network.rows(tuples, flag).tolist() for flag in flags] == [[0, 1], [0], [0, 2, 4]]


def test_slots_and_flags_are_used_again() -> None:
    network = SelectionNetwork([False] * 3, Dictionary())
    first, second = network.add(equal(A, 1)), network.add(ConditionTree(True, (equal(A, 1), above(B, 2))))
    network.drop(first)
    assert network.modules == 2  # A = 1 is still asked by the second
    network.drop(second)
    assert network.modules == 0
    assert network.add(below(C, 3)) in (first, second)
    assert network.modules == 1


def decide(condition: Condition, row: tuple[int | None, ...], texts: Dictionary) -> bool:
    if isinstance(condition, ConditionTree):
        found = [decide(part, row, texts) for part in condition.parts]
        return all(found) if condition.all else any(found)
    value = row[condition.column]
    if condition.kind == IS_NULL:
        return value is None
    if value is None:
        return False
    if condition.kind == NOT_NULL:
        return True
    if condition.kind == IN_SET:
        assert condition.texts is not None
        return condition.texts(texts.text(value))
    if condition.column == B and value < 0:
        value ^= GREATEST
    return value != condition.low if condition.kind == UNLIKE else condition.low <= value <= condition.high


def random_predicate(random: Random, doubles: list[int]) -> Predicate:
    column = random.randrange(3)
    match random.randrange(7):
        case 0:
            return Predicate(random.choice((IS_NULL, NOT_NULL)), column)
        case 1:
            start = random.choice("xyz")
            return Predicate(IN_SET, C, name=f"like {start}", texts=lambda text: text.startswith(start))
    value = random.randrange(-3, 4) if column == A else random.randrange(4)
    if column == B:
        bits = random.choice(doubles)
        value = bits ^ GREATEST if bits < 0 else bits
    kind = random.randrange(5)
    if kind == 0:
        return Predicate(UNLIKE, column, value)
    if kind == 1:
        return above(column, value)
    if kind == 2:
        return below(column, value)
    return equal(column, value) if kind == 3 else Predicate(BETWEEN, column, value, value + 2)


def random_condition(random: Random, doubles: list[int], depth: int = 2) -> Condition:
    if depth == 0 or random.random() < 0.4:
        return random_predicate(random, doubles)
    parts = tuple(random_condition(random, doubles, depth - 1) for _ in range(random.randrange(2, 4)))
    return ConditionTree(random.random() < 0.6, parts)


@pytest.mark.parametrize("seed", range(40))
def test_queries_come_and_go_and_every_flag_is_right(seed: int) -> None:
    random = Random(seed)
    dictionary = Dictionary()
    for text in ("", "x", "xy", "y"):
        dictionary.code(text)
    doubles = double_bits(np.array([-1e300, -1.5, 0.0, 2.5, np.inf, np.nan])).tolist()
    network = SelectionNetwork([False, True, False], dictionary)
    live: dict[int, Condition] = {}
    for _ in range(12):
        for _ in range(random.randrange(6)):
            condition = random_condition(random, doubles)
            flag = network.add(condition)
            assert flag not in live
            live[flag] = condition
        for flag in random.sample(sorted(live), random.randrange(len(live) + 1) // 2):
            network.drop(flag)
            del live[flag]
        dictionary.code(f"z{random.randrange(5)}")
        columns: list[list[int | None]] = [
            [random.choice((None, *range(-4, 5))) for _ in range(20)],
            [random.choice((None, *doubles)) for _ in range(20)],
            [random.choice((None, *range(len(dictionary)))) for _ in range(20)],
        ]
        tuples = batch(columns)
        counts = np.zeros(network.flags, np.int64)
        network.count(tuples, counts)
        rows = list(zip(*columns, strict=True))
        for flag, condition in live.items():
            right = [at for at, row in enumerate(rows) if decide(condition, row, dictionary)]
            assert network.rows(tuples, flag).tolist() == right, (seed, condition)
            assert counts[flag] == len(right), (seed, condition)
    assert network.words < 4000
