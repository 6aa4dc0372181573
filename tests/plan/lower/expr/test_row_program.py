"""Programs for one row at a time mean what the expressions on whole batches mean, failures included."""

from __future__ import annotations

import numpy as np
import pytest

from kasen.cql.expr import Call, Expr, walk
from kasen.cql.functions import SCALARS
from kasen.engine.batch import Batch
from kasen.engine.expr.kernels.row_program import evaluate
from kasen.engine.expr.row_program import Program
from kasen.engine.expr.vector import store
from kasen.plan.lower.expr.row_program import NoProgramError, program_of_condition, program_of_items
from kasen.plan.lower.expr.vectors import compile_condition, compile_expr
from tests.engine.expr.scalar.support import Engine
from tests.random_apps.expressions import COLUMNS, Grower

SEEDS = range(400)
#: What has no program: it needs the dictionary or the calendar.
WITHOUT = {
    *("concat", "contains", "date_trunc", "extract", "length", "like", "lower", "ltrim", "replace"),
    *("rtrim", "starts_with", "strpos", "substring", "trim", "upper"),
}


def by_row(program: Program, batch: Batch, engine: Engine) -> tuple[list[tuple[int, int]], int]:
    """The value and NULL of the program's first result for every row, and the failures."""
    found, failures = [], 0
    labels = engine.dictionary.labels.copy()
    for row in range(len(batch)):
        failures += evaluate(program.code, program.registers, batch.data, row, int(batch.diff[row]), labels)
        at = int(program.results[0])
        if at >= 0:
            null = int(batch.data[-1, row] >> at) & 1
            found.append((int(batch.data[at, row]), null))
        else:
            value, null = program.registers[2 * (-1 - at) : 2 * (-at)].tolist()
            found.append((0 if null else value, null))
    return found, failures


def grown(seed: int) -> tuple[Grower, Expr]:
    grower = Grower(seed)
    return grower, grower.expression(3)


@pytest.mark.parametrize("block", range(8))
def test_random_programs_agree_with_vectors(block: int) -> None:
    for seed in SEEDS[block::8]:
        grower, expr = grown(seed)
        engine = Engine()
        try:
            program = program_of_items((expr,), engine.dictionary)
        except NoProgramError:
            continue
        batch = engine.batch(grower.rows(40), COLUMNS)
        batch.diff[::5] = -1
        batch.diff[1::7] = 3
        data = np.zeros((2, len(batch)), np.int64)
        store(data, 0, compile_expr(expr, engine.dictionary, engine.failures)(batch))
        found, failures = by_row(program, batch, engine)
        assert found == list(zip(data[0].tolist(), data[1].tolist(), strict=True)), (seed, expr)
        assert failures == engine.failures.count, (seed, expr)


def test_random_conditions_agree_with_vectors() -> None:
    for seed in range(150):
        grower = Grower(seed)
        expr = grower.condition(3)
        engine = Engine()
        try:
            program = program_of_condition(expr, engine.dictionary)
        except NoProgramError:
            continue
        batch = engine.batch(grower.rows(40), COLUMNS)
        keep = compile_condition(expr, engine.dictionary, engine.failures)(batch)
        found, failures = by_row(program, batch, engine)
        assert [value and not null for value, null in found] == keep.tolist(), (seed, expr)
        assert failures == engine.failures.count, (seed, expr)


def test_every_other_operation_has_a_program() -> None:
    met = set()
    for seed in SEEDS:
        _, expr = grown(seed)
        try:
            program_of_items((expr,), Engine().dictionary)
        except NoProgramError:
            continue
        met |= {part.op for part in walk(expr) if isinstance(part, Call)}
    assert met == set(SCALARS) - WITHOUT
