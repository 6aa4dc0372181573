"""Compiled expressions, conditions, Filter and Project."""

from __future__ import annotations

import numpy as np
import pytest

from kasen.cql.expr import Call, Case, Cast, Column, Expr, Literal, Value, conjuncts, walk
from kasen.cql.functions import SCALARS
from kasen.engine.batch import END, Batch
from kasen.engine.select.filter import Filter
from kasen.engine.select.project import Project
from kasen.plan.lower.expr.vectors import compile_condition, compile_expr, compile_items
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, VARCHAR, Type
from tests.engine.expr.scalar.model import Count, is_true
from tests.engine.expr.scalar.support import Engine, Row, check, column, shown
from tests.random_apps.expressions import COLUMNS, Grower

A, B = column(0, BIGINT), column(1, BIGINT)
PAIR = (BIGINT, BIGINT)
SEEDS = range(150)


def number(value: int | None) -> Literal:
    return Literal(BIGINT, value)


def call(op: str, *args: Expr, type_: Type = BIGINT) -> Call:
    return Call(type_, op, args)


def truth(op: str, *args: Expr) -> Call:
    return Call(BOOLEAN, op, args)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("seed", SEEDS)
def test_random_expressions_mean_what_the_model_says(seed: int) -> None:
    grower = Grower(seed)
    check(grower.expression(4), COLUMNS, grower.rows(60), by_duck=seed % 3 == 0)


def test_random_expressions_have_every_operation() -> None:
    met = {part.op for seed in SEEDS for part in walk(Grower(seed).expression(4)) if isinstance(part, Call)}
    assert met == set(SCALARS)


def test_an_empty_batch_gives_an_empty_answer() -> None:
    for seed in range(100):
        engine = Engine()
        expr = Grower(seed).expression(3)
        values, nulls = compile_expr(expr, engine.dictionary, engine.failures)(engine.batch([], COLUMNS))
        assert len(values) == 0, seed
        assert nulls is None or len(nulls) == 0, seed
        assert engine.failures.count == 0, seed


def test_a_constant_is_repeated_for_every_row() -> None:
    engine = Engine()
    batch = engine.batch([(1, 2)] * 3, PAIR)
    assert engine.run(call("+", number(1), number(2)), batch) == [3, 3, 3]
    assert engine.run(Literal(VARCHAR, "x"), batch) == ["x"] * 3
    assert engine.run(Literal(BIGINT, None), batch) == [None] * 3


def test_constants_are_evaluated_once() -> None:
    engine = Engine()
    upper = Call(VARCHAR, "upper", (Literal(VARCHAR, "kasen"),))
    compile_expr(upper, engine.dictionary, engine.failures)
    assert "KASEN" in engine.dictionary.texts


def test_a_column_without_nulls_has_no_mask() -> None:
    engine = Engine()
    batch = engine.batch([(1, None), (2, 3)], PAIR)
    assert compile_expr(A, engine.dictionary, engine.failures)(batch)[1] is None
    nulls = compile_expr(B, engine.dictionary, engine.failures)(batch)[1]
    assert nulls is not None
    assert nulls.tolist() == [True, False]


def test_widening_an_integer_costs_nothing() -> None:
    engine = Engine()
    batch = engine.batch([(1,)], (INTEGER,))
    values, _ = compile_expr(Cast(BIGINT, column(0, INTEGER)), engine.dictionary, engine.failures)(batch)
    assert np.shares_memory(values, batch.data)


# ---------------------------------------------------------------- failures


def failures(expr: Expr, rows: list[Row], diff: list[int] | None = None) -> int:
    engine = Engine()
    batch = engine.batch(rows, PAIR)
    batch.diff = np.array(diff or [1] * len(rows), np.int64)
    compile_expr(expr, engine.dictionary, engine.failures)(batch)
    return engine.failures.count


QUOTIENT = call("/", A, B)
ROWS: list[Row] = [(1, 0), (1, 1), (None, 0), (2, 0), (0, None)]


def test_every_failing_operation_counts_once_a_row() -> None:
    assert failures(QUOTIENT, ROWS) == 2
    assert failures(call("+", QUOTIENT, QUOTIENT), ROWS) == 4
    assert failures(call("/", number(1), number(0)), ROWS) == 5


def test_rows_that_leave_do_not_count() -> None:
    assert failures(QUOTIENT, [(1, 0)] * 4, [1, -1, 3, -2]) == 4


def test_what_is_not_needed_does_not_count() -> None:
    safe = truth("<>", B, number(0))
    large = truth(">", QUOTIENT, number(0))
    cases: list[tuple[Expr, int]] = [
        (truth("and", safe, large), 0),
        (truth("and", large, safe), 2),
        (truth("or", truth("not", safe), large), 0),
        (truth("or", large, safe), 2),
        (Case(BIGINT, ((safe, QUOTIENT),), number(0)), 0),
        (Case(BIGINT, ((safe, number(0)),), QUOTIENT), 2),
        (Case(BIGINT, ((large, number(0)),), number(1)), 2),
        (Case(BIGINT, ((truth("=", B, number(0)), number(0)), (large, number(1))), number(2)), 0),
        (call("coalesce", A, QUOTIENT), 0),
        (call("coalesce", QUOTIENT, A), 2),
        (Case(BIGINT, ((safe, Case(BIGINT, ((truth("is_null", A), QUOTIENT),), QUOTIENT)),), number(0)), 0),
    ]
    for expr, expected in cases:
        assert failures(expr, ROWS) == expected, expr
        check(expr, PAIR, ROWS)


def test_compiling_counts_nothing() -> None:
    engine = Engine()
    compile_expr(call("/", number(1), number(0)), engine.dictionary, engine.failures)
    assert engine.failures.count == 0


# ---------------------------------------------------------------- conditions and Filter


def held(batch: Batch) -> list[list[int]]:
    return np.vstack([batch.ts, batch.seq_tick, batch.diff, batch.data]).T.tolist()


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("cut", [1, 7, 50])
def test_filters_keep_what_is_true(seed: int, cut: int) -> None:
    grower = Grower(seed)
    condition, other = grower.condition(3), grower.condition(2)
    condition = truth("and", condition, other) if seed % 2 else condition
    rows = grower.rows(50)
    count = Count()
    kept = [is_true(conjuncts(condition), row, count) for row in rows]
    engine = Engine()
    batch = engine.batch(rows, COLUMNS)
    operator = Filter(compile_condition(condition, engine.dictionary, engine.failures))
    found: list[list[int]] = []
    for start in range(0, len(rows), cut):
        part = batch.take(np.arange(start, min(start + cut, len(rows))))
        found += held(operator.process([part], END))
    assert found == [row for row, keep in zip(held(batch), kept, strict=True) if keep], seed
    assert engine.failures.count == count.failures, seed


def test_a_filter_passes_on_deletions_and_instants() -> None:
    engine = Engine()
    batch = engine.batch([(1, 5), (2, 6), (3, None), (4, 7)], PAIR)
    batch.diff[:] = [1, -1, 1, -1]
    operator = Filter(compile_condition(truth(">", B, number(5)), engine.dictionary, engine.failures))
    kept = operator.process([batch], END)
    assert kept.ts.tolist() == [1, 3]
    assert kept.diff.tolist() == [-1, -1]
    assert kept.data.tolist() == [[2, 4], [6, 7], [0, 0]]
    assert kept.data.flags.c_contiguous


def test_a_filter_of_everything_or_nothing_copies_nothing() -> None:
    engine = Engine()
    batch = engine.batch([(1, 5), (2, 6)], PAIR)
    every = Filter(compile_condition(truth(">", A, number(0)), engine.dictionary, engine.failures))
    none = Filter(compile_condition(truth("<", A, number(0)), engine.dictionary, engine.failures))
    assert every.process([batch], END) is batch
    assert len(none.process([batch], END)) == 0
    assert none.process([batch], END).columns == 2
    assert len(every.process([none.process([batch], END)], END)) == 0


def test_a_constant_condition_keeps_all_or_none() -> None:
    engine = Engine()
    batch = engine.batch([(1, 5), (2, 6)], PAIR)
    for value, kept in ((True, 2), (False, 0), (None, 0)):
        condition = compile_condition(Literal(BOOLEAN, value), engine.dictionary, engine.failures)
        assert len(Filter(condition).process([batch], END)) == kept


# ---------------------------------------------------------------- Project


def test_project_copies_columns_and_computes_expressions() -> None:
    engine = Engine()
    types = (BIGINT, DOUBLE, VARCHAR)
    rows: list[Row] = [(1, -0.0, "a"), (None, 2.5, None), (3, None, "b")]
    batch = engine.batch(rows, types)
    items: tuple[Expr, ...] = (
        Column(VARCHAR, 0, 2, "s"),
        call("+", A, number(1)),
        Call(DOUBLE, "neg", (column(1, DOUBLE),)),
        A,
        Call(BOOLEAN, "is_null", (A,)),
        Literal(BIGINT, None),
    )
    operator = Project(compile_items(items, engine.dictionary, engine.failures))
    answer = operator.process([batch], END)
    assert answer.ts is batch.ts
    expected: list[list[Value]] = [
        ["a", 2, 0.0, 1, False, None],
        [None, None, -2.5, None, True, None],
        ["b", 4, None, 3, False, None],
    ]
    decoded = [engine.run(column(index, item.type), answer) for index, item in enumerate(items)]
    assert [list(row) for row in zip(*decoded, strict=True)] == expected
    # One zero, and 0 under every NULL: equal rows have equal columns.
    assert answer.data[2].tolist()[0] == 0
    assert answer.data[-1].tolist() == [32, 43, 36]
    assert answer.data[5].tolist() == [0, 0, 0]


@pytest.mark.parametrize("seed", range(30))
def test_projections_give_the_expressions_values_at_any_cut(seed: int) -> None:
    grower = Grower(seed)
    items = tuple(grower.expression(2) for _ in range(5))
    rows = grower.rows(30)
    answers = []
    for cut in (1, 7, 30):
        engine = Engine()
        batch = engine.batch(rows, COLUMNS)
        operator = Project(compile_items(items, engine.dictionary, engine.failures))
        found: list[list[Value]] = [[] for _ in items]
        for start in range(0, len(rows), cut):
            part = operator.process([batch.take(np.arange(start, min(start + cut, len(rows))))], END)
            for index, item in enumerate(items):
                found[index] += engine.run(column(index, item.type), part)
        expected = [engine.run(item, batch) for item in items]
        assert shown_all(found) == shown_all(expected), seed
        answers.append(shown_all(found))
    assert answers[0] == answers[1] == answers[2], seed


def shown_all(columns: list[list[Value]]) -> list[list[str]]:
    return [[shown(value) for value in cells] for cells in columns]


def test_project_of_an_empty_batch_is_empty() -> None:
    engine = Engine()
    operator = Project(compile_items((A, call("+", A, B)), engine.dictionary, engine.failures))
    answer = operator.process([engine.batch([], PAIR)], END)
    assert answer.data.shape == (3, 0)


def test_neither_holds_state() -> None:
    engine = Engine()
    for operator in (
        Filter(compile_condition(truth(">", A, B), engine.dictionary, engine.failures)),
        Project(compile_items((A,), engine.dictionary, engine.failures)),
    ):
        assert operator.snapshot() == {}
        assert operator.next_instant() is None
        assert operator.needs_input_since() is None
