from __future__ import annotations

import math
import random
import struct
from bisect import bisect_left
from collections.abc import Callable

import numpy as np
import pytest

from kasen.engine.batch import I64
from kasen.engine.kernels import ordered


class Trees:
    """Some trees in one pool, grown as the operators do."""

    def __init__(self, order: int, labels: I64, groups: int) -> None:
        self.pool = np.zeros((2, ordered.NODE), np.int64)
        self.words = np.zeros((groups, 2), np.int64)
        self.order = order
        self.labels = labels

    def add(self, group: int, value: int, weight: int) -> int:
        if ordered.spare(self.pool) < ordered.MOST_NEW:
            grown = np.zeros((2 * len(self.pool) + ordered.MOST_NEW, ordered.NODE), np.int64)
            grown[: len(self.pool)] = self.pool
            self.pool = grown
        return int(ordered.add(self.pool, self.words[group], 0, value, weight, self.order, self.labels))

    def check(self, group: int, expected: list[int]) -> None:
        words = self.words[group]
        if not expected:
            assert words.tolist() == [0, 0]
            return
        assert ordered.least(self.pool, words, 0) == expected[0]
        assert ordered.greatest(self.pool, words, 0) == expected[-1]
        for k in {0, len(expected) // 3, len(expected) // 2, len(expected) - 1}:
            assert ordered.kth(self.pool, words, 0, k) == expected[k]

    def in_use(self) -> int:
        return int(self.pool[0, ordered.EVER] - self.pool[0, ordered.FREE])


def bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def uniform(rng: random.Random, _step: int) -> int:
    return rng.randint(-1000, 1000)


def few(rng: random.Random, _step: int) -> int:
    return rng.randint(0, 5)


def ascending(rng: random.Random, step: int) -> int:
    return step + rng.randint(0, 3)


def descending(_rng: random.Random, step: int) -> int:
    return -step


@pytest.mark.parametrize("draw", [uniform, few, ascending, descending])
@pytest.mark.parametrize("seed", range(4))
def test_a_tree_answers_as_a_sorted_list(draw: Callable[[random.Random, int], int], seed: int) -> None:
    rng = random.Random(seed)
    trees = Trees(ordered.INTEGER, np.zeros(0, np.int64), 3)
    model: list[list[int]] = [[], [], []]
    for step in range(6000):
        group = rng.randrange(3)
        values = model[group]
        growing = 0.65 if step // 1500 % 2 == 0 else 0.3
        if not values or rng.random() < growing:
            value = draw(rng, step)
            at = bisect_left(values, value)
            fresh = at == len(values) or values[at] != value
            weight = rng.choice([1, 1, 3])
            values[at:at] = [value] * weight
            assert trees.add(group, value, weight) == int(fresh), seed
        else:
            oldest = draw in (ascending, descending)
            at = 0 if oldest else rng.randrange(len(values))
            value = values.pop(at)
            gone = bisect_left(values, value) == len(values) or values[bisect_left(values, value)] != value
            assert trees.add(group, value, -1) == -int(gone), seed
        trees.check(group, values)
    for group, values in enumerate(model):
        rng.shuffle(values)
        for value in values:
            trees.add(group, value, -1)
        trees.check(group, [])
    assert trees.in_use() == 0


def test_a_weight_may_pass_below_zero() -> None:
    trees = Trees(ordered.INTEGER, np.zeros(0, np.int64), 1)
    rng = random.Random(1)
    changes = [(value, 1) for value in range(500)] + [
        (value, weight) for value in range(500) for weight in (1, -1)
    ]
    rng.shuffle(changes)
    for value, weight in changes:
        trees.add(0, value, weight)
    for k in range(500):
        assert ordered.kth(trees.pool, trees.words[0], 0, k) == k


def test_doubles_go_by_value_with_nan_last() -> None:
    values = [-math.inf, -1e300, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1.5, 1e300, math.inf, math.nan]
    trees = Trees(ordered.DOUBLE, np.zeros(0, np.int64), 1)
    for value in random.Random(1).sample(values, len(values)):
        trees.add(0, bits(value), 1)
    trees.check(0, [bits(value) for value in values])


def test_texts_go_by_label_even_if_labels_are_dealt_anew() -> None:
    rng = random.Random(2)
    codes = list(range(300))
    rng.shuffle(codes)  # codes[i] is the code of the i-th text
    labels = np.zeros(300, np.int64)
    labels[codes] = np.arange(300)
    trees = Trees(ordered.TEXT, labels, 1)
    for code in range(0, 300, 2):
        trees.add(0, code, 1)
    trees.labels = labels * 1000 - 7
    for code in range(1, 300, 2):
        trees.add(0, code, 1)
    for k in range(300):
        assert ordered.kth(trees.pool, trees.words[0], 0, k) == codes[k]
    for code in range(300):
        assert trees.add(0, code, -1) == -1


def test_sparse_trees_give_their_nodes_back() -> None:
    trees = Trees(ordered.INTEGER, np.zeros(0, np.int64), 1)
    values = list(range(20000))
    random.Random(3).shuffle(values)
    for value in values:
        trees.add(0, value, 1)
    assert trees.in_use() < 20000 / 16 * 2
    for value in values:
        if value % 100:
            trees.add(0, value, -1)
    assert trees.in_use() < 200
