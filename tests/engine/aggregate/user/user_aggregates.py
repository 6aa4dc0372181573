"""Aggregates in Python, as users would write them; exact, so that every order gives the same."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

import kasen
from kasen.aggregates import UserAggregate


@kasen.aggregate(arguments=["BIGINT"], returns="BIGINT")
class spread:
    """The greatest value minus the least. Rows that leave make Kasen begin anew."""

    def init(self) -> list[int]:
        return []

    def add(self, state: list[int], x: int) -> list[int]:
        state += [x]  # changes what it is given, as users may
        return [min(state), max(state)]

    def merge(self, one: list[int], other: list[int]) -> list[int]:
        one += other
        return [min(one), max(one)] if one else one

    def result(self, state: list[int]) -> int | None:
        return state[1] - state[0] if state else None


@kasen.aggregate(arguments=["DOUBLE", "INTEGER"], returns="DOUBLE")
class weighted:
    """A weighted mean, in fractions; can let rows go. Fails on NaN, and if the weights add up to 0."""

    def init(self) -> tuple[Fraction, int]:
        return Fraction(0), 0

    def add(self, state: tuple[Fraction, int], x: float, weight: int) -> tuple[Fraction, int]:
        return state[0] + Fraction(x) * weight, state[1] + weight

    def remove(self, state: tuple[Fraction, int], x: float, weight: int) -> tuple[Fraction, int]:
        return state[0] - Fraction(x) * weight, state[1] - weight

    def merge(self, one: tuple[Fraction, int], other: tuple[Fraction, int]) -> tuple[Fraction, int]:
        return one[0] + other[0], one[1] + other[1]

    def result(self, state: tuple[Fraction, int]) -> float:
        return float(state[0] / state[1])


@kasen.aggregate(arguments=["VARCHAR"], returns="VARCHAR", name="texts")
class Texts:
    """The different texts, in order; a dict counts them."""

    def init(self) -> dict[str, int]:
        return {}

    def add(self, state: dict[str, int], text: str) -> dict[str, int]:
        return {**state, text: state.get(text, 0) + 1}

    def merge(self, one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        return {text: one.get(text, 0) + other.get(text, 0) for text in {*one, *other}}

    def result(self, state: dict[str, int]) -> str:
        return "|".join(f"{text}{state[text]}" for text in sorted(state))


@kasen.aggregate(arguments=["DECIMAL(6, 2)"], returns="DECIMAL(8, 1)")
class rounded:
    """A sum of decimals that is rounded by Kasen; of the wrong type if there is just one."""

    def init(self) -> tuple[Decimal, int]:
        return Decimal(0), 0

    def add(self, state: tuple[Decimal, int], x: Decimal) -> tuple[Decimal, int]:
        return state[0] + x, state[1] + 1

    def merge(self, one: tuple[Decimal, int], other: tuple[Decimal, int]) -> tuple[Decimal, int]:
        return one[0] + other[0], one[1] + other[1]

    def result(self, state: tuple[Decimal, int]) -> Any:
        return "one" if state[1] == 1 else state[0]


# To mypy they are still the classes.
ALL = cast("tuple[UserAggregate, ...]", (spread, weighted, Texts, rounded))
SPREAD, WEIGHTED = ALL[:2]
