from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from kasen.engine.kernels import exact_round, exact_sum

Doubles = Sequence[float]


def bits_of(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def double_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


def rounded(exact: Fraction) -> float:
    try:
        return float(exact) + 0.0
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


class Sum:
    """A run of words over the span of the given values."""

    def __init__(self, values: Doubles, squares: bool = False) -> None:
        column = np.array([bits_of(value) for value in values], np.int64)
        self.low, high = exact_sum.span_of(*exact_sum.exponents(column, np.zeros_like(column), 0))
        self.width = high - self.low
        self.words = np.zeros(3 * self.width + 2, np.int64)
        self.words[-1] = self.words[0] = 77  # whatever writes past the runs is seen
        self.scratch = np.zeros(exact_round.SCRATCH, np.uint64)
        self.squares = squares
        self.count = 0

    def add(self, value: float, weight: int = 1) -> None:
        self.count += weight
        exact_sum.add_double(self.words, 1, self.low, bits_of(value), weight)
        if self.squares:
            m, e = exact_sum.unpack(bits_of(value))
            exact_sum.add_square(self.words, 1 + self.width, self.low, m, e, weight)

    def carry(self) -> None:
        exact_sum.carry(self.words, 1, self.width)
        exact_sum.carry(self.words, 1 + self.width, 2 * self.width)

    def mean(self, count: int = 1) -> float:
        self.carry()
        assert self.words[0] == self.words[-1] == 77
        return double_of(exact_round.mean(self.words, 1, self.width, self.low, count, self.scratch))

    def variance(self, lost: int) -> float:
        self.carry()
        exact_round.magnitude(self.words, 1, self.width, self.scratch, 0)
        exact_round.magnitude(self.words, 1 + self.width, 2 * self.width, self.scratch, self.width)
        assert self.words[0] == self.words[-1] == 77
        return double_of(exact_round.variance(self.scratch, self.width, self.low, self.count, lost, 0))


def wild(seed: int, count: int) -> list[float]:
    """Values of all magnitudes, subnormals among them, with near cancellations."""
    rng = random.Random(seed)
    limit = rng.choice([1074, 300, 60, 10])
    values: list[float] = []
    while len(values) < count:
        value = rng.choice([1, -1]) * math.ldexp(rng.random(), rng.randint(-limit, min(limit, 1015)))
        kind = rng.randrange(6)
        if kind == 0 and values:
            value = -rng.choice(values)
        elif kind == 1 and values:
            value = -math.nextafter(rng.choice(values), math.inf)
        elif kind == 2:
            value = rng.choice([0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.0, 1 + 2**-52])
        values.append(value + 0.0)
    return values


@pytest.mark.parametrize("seed", range(60))
def test_a_sum_equals_fsum_in_any_order_and_under_subtraction(seed: int) -> None:
    values = wild(seed, 60)
    extra = wild(seed + 1000, 40)
    one, other = Sum(values + extra), Sum(values + extra)
    for value in values:
        one.add(value)
    rng = random.Random(seed)
    steps = [(value, 1) for value in values + extra] + [(value, -1) for value in extra]
    rng.shuffle(steps)
    for position, (value, weight) in enumerate(steps):
        other.add(value, weight)
        if position % 13 == 0:
            other.mean()  # carries in the middle change nothing
    assert one.mean() == other.mean() == math.fsum(values), seed


@pytest.mark.parametrize("seed", range(20))
def test_weights_add_a_value_many_times(seed: int) -> None:
    rng = random.Random(seed)
    values = wild(seed, 20)
    total = Sum(values, squares=True)
    exact = exact_squares = Fraction()
    for value in values:
        weight = rng.choice([-1, 1]) * rng.randint(0, 2 ** rng.randint(1, 58))
        total.add(value, weight)
        exact += weight * Fraction(value)
        exact_squares += weight * Fraction(value) ** 2
    assert total.mean() == rounded(exact), seed
    sign = exact_round.magnitude(total.words, 1 + total.width, 2 * total.width, total.scratch, 0)
    bits = exact_round.round_digits(total.scratch, 2 * total.width, 2 * total.low, False, sign)
    assert double_of(bits) == rounded(exact_squares), seed


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e308, 1e308], math.inf),
        ([-1e308, -1e308], -math.inf),
        ([1.7976931348623157e308, 9.979201547673598e291], 1.7976931348623157e308),  # just below half an ulp
        ([1.7976931348623157e308, 9.979201547673599e291], math.inf),  # a tie, to even
        ([1e16, 1.0], 1e16),  # a tie, to even
        ([1e16, 1.0, 5e-324], 1e16 + 2),
        ([1e16 + 2, 1.0], 1e16 + 4),
        ([1e308, 1e308, -1e308], 1e308),
        ([5e-324, 5e-324], 1e-323),
        ([0.1] * 10, 1.0),
        ([1.0, -1.0], 0.0),
    ],
)
def test_rounding_happens_once_with_ties_to_even(values: Doubles, expected: float) -> None:
    total = Sum(values)
    for value in values:
        total.add(value)
    assert total.mean() == expected


@pytest.mark.parametrize("seed", range(60))
def test_means_and_variances_are_the_exact_ones_rounded_once(seed: int) -> None:
    rng = random.Random(seed)
    values = wild(seed, rng.choice([2, 3, 7, 50]))
    total = Sum(values, squares=True)
    for value in values:
        total.add(value)
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction()) / len(exact)
    assert total.mean(len(values)) == rounded(mean), seed
    squares = sum(((x - mean) ** 2 for x in exact), Fraction())
    for lost in (0, 1):
        assert total.variance(lost) == rounded(squares / (len(exact) - lost)), seed
    many = rng.randint(2**32, 2**62)
    assert total.mean(many) == rounded(sum(exact, Fraction()) / many), seed


@pytest.mark.parametrize("seed", range(60))
def test_integer_sums_may_pass_the_range_on_their_way(seed: int) -> None:
    rng = random.Random(seed)
    words = np.zeros(2, np.int64)
    squares = np.zeros(8, np.int64)
    scratch = np.zeros(exact_round.SCRATCH, np.uint64)
    total = square_total = count = 0
    size = rng.choice([5, 40, 62])
    for _ in range(rng.choice([2, 3, 50])):
        value = rng.choice([rng.randint(-(2**size), 2**size), -(2**63), 2**63 - 1])
        weight = rng.choice([1, 1, 1, 2, rng.randint(1, 2 ** rng.randint(1, 40))])
        exact_sum.add_integer(words, 0, value, -weight)
        exact_sum.add_integer(words, 0, value, 2 * weight)
        exact_sum.add_square(squares, 0, 0, np.uint64(abs(value)), 0, weight)
        total += weight * value
        square_total += weight * value * value
        count += weight
    low, high = (int(word) for word in words)
    assert (high << 64) + (low % 2**64) == total, seed
    exact_sum.carry(squares, 0, 8)
    for scale in (0, 2, 18):
        mean = exact_round.mean128(low, high, count, scale, scratch)
        assert double_of(mean) == rounded(Fraction(total, count * 10**scale)), (seed, scale)
        for lost in (0, 1):
            exact_round.magnitude128(low, high, scratch, 0)
            exact_round.magnitude(squares, 0, 8, scratch, 4)
            got = exact_round.variance(scratch, 4, 0, count, lost, scale)
            exact = Fraction(count * square_total - total * total, count * (count - lost))
            assert double_of(got) == rounded(exact / 100**scale), (seed, scale, lost)
