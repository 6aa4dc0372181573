"""Functions on texts: engine, model and DuckDB agree."""

from __future__ import annotations

import time

import numpy as np
import pytest

from kasen.cql.expr import Call, Expr, Literal, Value
from kasen.engine.expr.scalar.like import like
from kasen.engine.expr.scalar.text import lower, upper
from kasen.types import BIGINT, BOOLEAN, VARCHAR, Type
from tests.engine.expr.scalar.support import Engine, Row, check, column, duck, edges, every_row

TEXTS = every_row((VARCHAR,))
PAIRS = every_row((VARCHAR, VARCHAR))


def text(value: str | None) -> Literal:
    return Literal(VARCHAR, value)


@pytest.mark.parametrize("op", ["upper", "lower", "trim", "ltrim", "rtrim", "length", "concat"])
def test_functions_of_one_text(op: str) -> None:
    result = BIGINT if op == "length" else VARCHAR
    check(Call(result, op, (column(0, VARCHAR),)), (VARCHAR,), TEXTS)


@pytest.mark.parametrize("op", ["starts_with", "contains", "strpos", "concat"])
def test_functions_of_two_texts(op: str) -> None:
    result = {"strpos": BIGINT, "concat": VARCHAR}.get(op, BOOLEAN)
    first, second = column(0, VARCHAR), column(1, VARCHAR)
    check(Call(result, op, (first, second)), (VARCHAR, VARCHAR), PAIRS)
    for fixed in ("", "a", "b", "本", None):
        check(Call(result, op, (first, text(fixed))), (VARCHAR,), TEXTS)
        check(Call(result, op, (text(fixed), first)), (VARCHAR,), TEXTS)


def test_concatenation_of_many() -> None:
    args: tuple[Expr, ...] = (column(0, VARCHAR), text("-"), column(1, VARCHAR), text(""))
    check(Call(VARCHAR, "concat", args), (VARCHAR, VARCHAR), PAIRS)


def test_replacing() -> None:
    first, second = column(0, VARCHAR), column(1, VARCHAR)
    for old, new in (("a", "x"), ("", "x"), ("b", ""), ("本", "日日"), (None, "x"), ("a", None)):
        check(Call(VARCHAR, "replace", (first, text(old), text(new))), (VARCHAR,), TEXTS)
    check(Call(VARCHAR, "replace", (first, second, text("<>"))), (VARCHAR, VARCHAR), PAIRS)
    check(Call(VARCHAR, "replace", (text("abcabc"), first, second)), (VARCHAR, VARCHAR), PAIRS)


POSITIONS: list[Value] = [None, 0, 1, 2, 3, 5, -1, -2, 2**62, -(2**62)]


def test_substrings_by_constant_positions() -> None:
    for start in POSITIONS:
        args: tuple[Expr, ...] = (column(0, VARCHAR), Literal(BIGINT, start))
        check(Call(VARCHAR, "substring", args), (VARCHAR,), TEXTS)
        for length in POSITIONS:
            check(Call(VARCHAR, "substring", (*args, Literal(BIGINT, length))), (VARCHAR,), TEXTS)


def test_substrings_by_columns() -> None:
    types = (VARCHAR, BIGINT, BIGINT)
    args = tuple(column(index, type_) for index, type_ in enumerate(types))
    rows: list[Row] = [(s, i, n) for s in ("abc", "日本語", "", None) for i in POSITIONS for n in POSITIONS]
    check(Call(VARCHAR, "substring", args), types, rows)
    check(Call(VARCHAR, "substring", args[:2]), types, rows)
    check(Call(VARCHAR, "substring", (text("kasen"), args[1])), types, rows)


# fmt: off
PATTERNS = [
    "", "%", "%%", "_", "__", "a", "a%", "%a", "%a%", "_b", "a_b", "a__", "%b_", "a%b", "a%b%", "%a%b%",
    "a\\%b", "日%", "%語", "_本_", "%\n%", "a.b", "a*", "%_%", "_%_", "aab", "%ab", "[a]%", " %", "% ",
]
# fmt: on


def test_like_a_constant_pattern() -> None:
    for pattern in (*PATTERNS, None):
        check(Call(BOOLEAN, "like", (column(0, VARCHAR), text(pattern))), (VARCHAR,), TEXTS)


def test_like_a_pattern_in_a_column() -> None:
    rows: list[Row] = [(value, pattern) for value in edges(VARCHAR) for pattern in (*PATTERNS, None)]
    check(Call(BOOLEAN, "like", (column(0, VARCHAR), column(1, VARCHAR))), (VARCHAR, VARCHAR), rows)
    check(Call(BOOLEAN, "like", (text("a_b"), column(1, VARCHAR))), (VARCHAR, VARCHAR), rows)


def test_like_does_not_try_all_places_of_all_pieces() -> None:
    start = time.process_time()
    assert not like("a" * 20_000, "%a" * 30 + "b%c")
    assert time.process_time() - start < 1


def test_the_case_of_every_character_is_duckdbs() -> None:
    """Beyond the first two planes no character has case."""
    points = [point for point in range(1, 0x20000) if not 0xD800 <= point <= 0xDFFF]
    rows: list[Row] = [(chr(point),) for point in points]
    for op, function in (("upper", upper), ("lower", lower)):
        judged = duck(Call(VARCHAR, op, (column(0, VARCHAR),)), rows, (VARCHAR,))
        wrong = [
            (row[0], found) for row, found in zip(rows, judged, strict=True) if function(str(row[0])) != found
        ]
        assert not wrong


def test_case_minds_single_characters_only() -> None:
    assert upper("straße ﬁ ŉ ᾳ") == "STRAẞE ﬁ ŉ ᾼ"
    assert lower("ΟΔΟΣ İ") == "οδοσ i"


def test_a_function_is_evaluated_once_for_each_text() -> None:
    engine = Engine()
    types: tuple[Type, ...] = (VARCHAR,)
    call = Call(VARCHAR, "upper", (column(0, VARCHAR),))
    batch = engine.batch([("a",), ("b",), ("a",), (None,)], types)
    assert engine.run(call, batch) == ["A", "B", "A", None]
    texts = len(engine.dictionary)
    assert engine.run(call, batch.take(np.array([2, 1, 0]))) == ["A", "B", "A"]
    assert len(engine.dictionary) == texts


def test_many_new_texts_after_the_function_was_made() -> None:
    engine = Engine()
    types: tuple[Type, ...] = (VARCHAR,)
    call = Call(BIGINT, "length", (Call(VARCHAR, "concat", (column(0, VARCHAR), text("!"))),))
    rows: list[Row] = [("x" * length,) for length in range(300)]
    assert engine.run(call, engine.batch(rows[:3], types)) == [1, 2, 3]
    assert engine.run(call, engine.batch(rows, types)) == [length + 1 for length in range(300)]
