"""Aggregates recomputed from all rows of a group, for operators to be compared with."""

from __future__ import annotations

import math
import random
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from kasen.engine.aggregate.accumulators import AggregateSpec
from kasen.engine.batch import ORDER_DOUBLE, ORDER_INTEGER, ORDER_TEXT
from kasen.engine.text.dictionary import Dictionary
from tests.engine.random_bags import Row
from tests.oracle import bridges

# Columns after the keys: an integer, a double, a DECIMAL(9, 2), a text.
INT, DOUBLE, DECIMAL, TEXT = range(4)
ORDERS = (ORDER_INTEGER, ORDER_DOUBLE, ORDER_INTEGER, ORDER_TEXT)
SCALES = (0, 0, 2, 0)
NUMBERS = (INT, DOUBLE, DECIMAL)
TEXTS = ["", "a", "ab", "b", "é", "z", "zz"]


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


class Model:
    """Recomputes a group's row from all its rows."""

    def __init__(self, keys: int, calls: tuple[AggregateSpec, ...], dictionary: Dictionary) -> None:
        self.keys = keys
        self.calls = calls
        self.dictionary = dictionary
        self.bounds: tuple[int, int] | None = None  # of the latest report, where there are reports

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
        if call.arg < 0 and call.function == "count":
            return len(rows)
        if call.arg < 0:
            return None if self.bounds is None else self.bounds[call.function == "window_end"]
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
