"""Comparisons and logic on the edges of every type: engine, model and DuckDB agree."""

from __future__ import annotations

import pytest

from kasen.cql.expr import Call, Case, Expr, Literal, Value
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, NULL, TIMESTAMP, VARCHAR, Type, decimal
from tests.engine.expr.scalar.support import INF, NAN, Engine, check, column, edges, every_row

TYPES = [BOOLEAN, INTEGER, BIGINT, DOUBLE, decimal(5, 2), VARCHAR, TIMESTAMP]
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "is_distinct")


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparing_columns(op: str, type_: Type) -> None:
    types = (type_, type_)
    check(Call(BOOLEAN, op, (column(0, type_), column(1, type_))), types, every_row(types))


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparing_with_a_constant_on_either_side(op: str, type_: Type) -> None:
    rows = every_row((type_,))
    for value in edges(type_)[:: 1 if type_ == DOUBLE else 3]:
        check(Call(BOOLEAN, op, (column(0, type_), Literal(type_, value))), (type_,), rows)
        check(Call(BOOLEAN, op, (Literal(type_, value), column(0, type_))), (type_,), rows)


def test_texts_compare_by_bytes_even_while_the_dictionary_grows() -> None:
    engine = Engine()
    less = Call(BOOLEAN, "<", (column(0, VARCHAR), Literal(VARCHAR, "m")))
    batch = engine.batch([("a",), ("z",), ("é",)], (VARCHAR,))
    assert engine.run(less, batch) == [True, False, False]
    engine.dictionary.encode([f"word {number}" for number in range(500)])
    assert engine.run(less, batch) == [True, False, False]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_in_a_list_of_constants_and_columns(type_: Type) -> None:
    value, other = column(0, type_), column(1, type_)
    choices = [Literal(type_, each) for each in edges(type_)]
    rows = every_row((type_, type_))
    for chosen in (choices, choices[1:], choices[1:2], choices[:1], [choices[0], choices[1]]):
        check(Call(BOOLEAN, "in", (value, *chosen)), (type_, type_), rows)
    check(Call(BOOLEAN, "in", (value, other)), (type_, type_), rows)
    check(Call(BOOLEAN, "in", (value, choices[2], other, choices[1])), (type_, type_), rows)
    check(Call(BOOLEAN, "in", (value, other, choices[0])), (type_, type_), rows)


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("op", ["greatest", "least", "coalesce"])
def test_choosing_among_arguments(op: str, type_: Type) -> None:
    types = (type_, type_)
    first, second = column(0, type_), column(1, type_)
    fixed, null = Literal(type_, edges(type_)[2]), Literal(type_, None)
    for args in (
        (first,),
        (first, second),
        (first, fixed),
        (null, first),
        (first, null, second, fixed),
        (null,),
    ):
        check(Call(type_, op, args), types, every_row(types))


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_is_null(type_: Type) -> None:
    check(Call(BOOLEAN, "is_null", (column(0, type_),)), (type_,), every_row((type_,)))


def test_null_itself_is_null() -> None:
    check(Call(BOOLEAN, "is_null", (Literal(NULL, None),)), (BIGINT,), every_row((BIGINT,)))


@pytest.mark.parametrize("op", ["and", "or"])
@pytest.mark.parametrize("count", [2, 3])
def test_three_valued_connectives(op: str, count: int) -> None:
    types = (BOOLEAN,) * count
    columns: tuple[Expr, ...] = tuple(column(index, BOOLEAN) for index in range(count))
    check(Call(BOOLEAN, op, columns), types, every_row(types))
    check(Call(BOOLEAN, "not", (Call(BOOLEAN, op, columns),)), types, every_row(types))
    for fixed in (None, False, True):
        literal = Literal(BOOLEAN, fixed)
        check(Call(BOOLEAN, op, (*columns, literal)), types, every_row(types))
        check(Call(BOOLEAN, op, (literal, *columns)), types, every_row(types))


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_case_takes_the_first_true_branch(type_: Type) -> None:
    types = (BOOLEAN, BOOLEAN, type_)
    tests = column(0, BOOLEAN), column(1, BOOLEAN)
    values: list[Expr] = [column(2, type_), Literal(type_, edges(type_)[1]), Literal(type_, None)]
    for first, second, otherwise in (values, values[1:] + values[:1], values[::-1], [values[2]] * 3):
        case = Case(type_, ((tests[0], first), (tests[1], second)), otherwise)
        check(case, types, every_row(types))
    check(Case(type_, ((Literal(BOOLEAN, True), values[0]),), values[1]), types, every_row(types))
    check(Case(type_, ((Literal(BOOLEAN, None), values[0]),), values[1]), types, every_row(types))


@pytest.mark.parametrize(
    ("op", "x", "y", "expected"),
    [
        ("=", NAN, NAN, True),
        ("<>", NAN, NAN, False),
        (">", NAN, INF, True),
        (">=", NAN, INF, True),
        ("<", NAN, INF, False),
        ("<=", 1.0, NAN, True),
        ("=", -0.0, 0.0, True),
        ("<", -0.0, 0.0, False),
        (">", 5e-324, 0.0, True),
    ],
)
def test_doubles_are_in_total_order(op: str, x: Value, y: Value, expected: Value) -> None:
    engine = Engine()
    call = Call(BOOLEAN, op, (column(0, DOUBLE), column(1, DOUBLE)))
    assert engine.run(call, engine.batch([(x, y)], (DOUBLE, DOUBLE))) == [expected]
