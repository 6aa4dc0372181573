"""Arithmetic and the functions on numbers, on the edges of their types: engine, model and DuckDB agree."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from kasen.cql.expr import Call, Literal, Value
from kasen.types import BIGINT, DOUBLE, INTERVAL, TIMESTAMP, Type, decimal
from tests.engine.expr.scalar.model import Count, evaluate
from tests.engine.expr.scalar.support import (
    INF,
    INT_MAX,
    INT_MIN,
    NAN,
    check,
    column,
    edges,
    every_row,
    shown,
)

ARITHMETIC = ("+", "-", "*", "/", "%")


@pytest.mark.parametrize("type_", [BIGINT, DOUBLE], ids=str)
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic_on_columns(op: str, type_: Type) -> None:
    types = (type_, type_)
    check(Call(type_, op, (column(0, type_), column(1, type_))), types, every_row(types))


@pytest.mark.parametrize("type_", [BIGINT, DOUBLE], ids=str)
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic_with_a_constant_on_either_side(op: str, type_: Type) -> None:
    for value in edges(type_):
        fixed = Literal(type_, value)
        check(Call(type_, op, (column(0, type_), fixed)), (type_,), every_row((type_,)))
        check(Call(type_, op, (fixed, column(0, type_))), (type_,), every_row((type_,)))


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "%"])
def test_integers_of_every_size(op: str) -> None:
    pick = random.Random(op)
    rows: list[tuple[Value, ...]] = [
        tuple(pick.choice((-1, 1)) * pick.getrandbits(pick.randint(1, 63)) for _ in range(2))
        for _ in range(5000)
    ]
    check(Call(BIGINT, op, (column(0, BIGINT), column(1, BIGINT))), (BIGINT, BIGINT), rows)


def test_products_beside_the_limit() -> None:
    rows: list[tuple[Value, ...]] = []
    for factor in (2, 3, 7, 2**31, 3037000499, 3037000500, 2**62, INT_MAX):
        for near in (INT_MAX // factor, -(INT_MAX // factor)):
            rows += [(sign * factor, near + step) for sign in (-1, 1) for step in (-1, 0, 1)]
    rows += [(INT_MIN, -1), (-1, INT_MIN), (INT_MIN, 1), (INT_MIN, INT_MIN), (INT_MIN, 0)]
    rows = [row for row in rows if all(isinstance(x, int) and INT_MIN <= x <= INT_MAX for x in row)]
    check(Call(BIGINT, "*", (column(0, BIGINT), column(1, BIGINT))), (BIGINT, BIGINT), rows)


DECIMALS = [
    # left, right, result of + and -, result of *
    (decimal(5, 2), decimal(5, 2), decimal(6, 2), decimal(10, 4)),
    (decimal(5, 2), decimal(9, 7), decimal(11, 7), decimal(14, 9)),
    (decimal(18, 0), decimal(18, 18), decimal(18, 18), decimal(18, 18)),
    (decimal(18, 4), decimal(18, 0), decimal(18, 4), decimal(18, 4)),
    (decimal(18, 9), decimal(18, 9), decimal(18, 9), decimal(18, 18)),
    (decimal(18, 18), decimal(10, 0), decimal(18, 18), decimal(18, 18)),
]


@pytest.mark.parametrize(("left", "right", "total", "product"), DECIMALS, ids=str)
@pytest.mark.parametrize("op", ["+", "-", "*"])
def test_decimals_are_exact_or_null(op: str, left: Type, right: Type, total: Type, product: Type) -> None:
    result = product if op == "*" else total
    check(Call(result, op, (column(0, left), column(1, right))), (left, right), every_row((left, right)))


def test_timestamps_and_intervals() -> None:
    types = (TIMESTAMP, INTERVAL)
    rows = [*every_row(types), (INT_MAX, 1), (INT_MIN, -1), (INT_MAX, 0)]
    check(Call(TIMESTAMP, "ts_add", (column(0, TIMESTAMP), column(1, INTERVAL))), types, rows)
    both = (TIMESTAMP, TIMESTAMP)
    rows = [*every_row(both), (INT_MIN, 1), (INT_MAX, -1), (INT_MAX, INT_MAX)]
    check(Call(BIGINT, "ts_diff", (column(0, TIMESTAMP), column(1, TIMESTAMP))), both, rows)


NUMBERS = [BIGINT, DOUBLE, decimal(5, 2), decimal(18, 0), decimal(18, 18)]


@pytest.mark.parametrize("type_", NUMBERS, ids=str)
@pytest.mark.parametrize("op", ["neg", "abs"])
def test_sign_changes(op: str, type_: Type) -> None:
    check(Call(type_, op, (column(0, type_),)), (type_,), every_row((type_,)))


@pytest.mark.parametrize("op", ["sign", "sqrt"])
def test_functions_on_doubles(op: str) -> None:
    rows: list[tuple[Value, ...]] = [(value,) for value in [*edges(DOUBLE), 2.0, 4.0, 1e-300]]
    check(Call(DOUBLE, op, (column(0, DOUBLE),)), (DOUBLE,), rows)


@pytest.mark.parametrize("type_", NUMBERS, ids=str)
@pytest.mark.parametrize("op", ["floor", "ceil"])
def test_whole_numbers(op: str, type_: Type) -> None:
    result = decimal(min(18, type_.precision + 1), 0) if type_.precision else type_
    check(Call(result, op, (column(0, type_),)), (type_,), every_row((type_,)))


@pytest.mark.parametrize("type_", NUMBERS, ids=str)
@pytest.mark.parametrize("digits", [None, 0, 1, 2, 5, 20, -1, -2, -17, -18, -19, -20])
def test_rounding(type_: Type, digits: int | None) -> None:
    args = (column(0, type_), *([Literal(BIGINT, digits)] if digits is not None else []))
    rows = every_row((type_,))
    if type_ == DOUBLE:
        rows += [(value,) for value in (0.25, -0.25, 1.005, 2.675, 15.0, 25.0, -15.5, 1234.5678)]
    if type_ == BIGINT:
        rows += [
            (sign * value,) for value in (5, 14, 25, 5 * 10**17, 5 * 10**18, 10**18 - 1) for sign in (-1, 1)
        ]
    check(Call(type_, "round", args), (type_,), rows)


def test_rounding_to_null_digits_is_null() -> None:
    call = Call(DOUBLE, "round", (column(0, DOUBLE), Literal(BIGINT, None)))
    check(call, (DOUBLE,), every_row((DOUBLE,)))


@pytest.mark.parametrize(
    ("op", "x", "y", "expected"),
    [
        ("+", INT_MAX, 1, None),
        ("-", INT_MIN, 1, None),
        ("*", 3037000500, 3037000500, None),
        ("/", -5, 2, -2),
        ("/", INT_MIN, -1, None),
        ("%", -5, 3, -2),
        ("%", 5, -3, 2),
        ("%", INT_MIN, -1, 0),
        ("/", 1, 0, None),
        ("/", 1.0, 0.0, None),
        ("/", NAN, -0.0, None),
        ("+", INF, -INF, NAN),
        ("*", 1e308, 10.0, INF),
        ("%", -5.5, 2.0, -1.5),
        ("%", INF, 2.0, NAN),
        ("%", 2.0, INF, 2.0),
    ],
)
def test_the_definition(op: str, x: Value, y: Value, expected: Value) -> None:
    """What the model says, spelled out: the agreement above is not one of three errors."""
    type_ = DOUBLE if isinstance(x, float) else BIGINT
    count = Count()
    found = evaluate(Call(type_, op, (Literal(type_, x), Literal(type_, y))), (), count)
    assert shown(found) == shown(expected)
    assert count.failures == (expected is None)
    check(Call(type_, op, (column(0, type_), column(1, type_))), (type_, type_), [(x, y)])


def test_decimal_values_keep_their_digits() -> None:
    cents = decimal(5, 2)
    call = Call(decimal(6, 2), "+", (column(0, cents), Literal(cents, Decimal("0.10"))))
    check(call, (cents,), [(Decimal("1.10"),), (Decimal("-0.10"),), (Decimal("999.99"),)])
