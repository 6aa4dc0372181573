"""Programs over blocks compute what the operations on vectors do, and leave to them what they cannot."""

from __future__ import annotations

import numpy as np
import pytest

from kasen.cql.expr import Call, Column, Expr, Literal
from kasen.engine import parallel
from kasen.engine.batch import END, Batch, double_bits, ones, zeros
from kasen.engine.deferred_batch import DeferredBatch, RowSelection, selection_of
from kasen.engine.expr.block_program import DeferredProgram
from kasen.engine.failures import Failures
from kasen.engine.select.filter import Filter
from kasen.engine.select.project import Project
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.lower.expr.block_program import block_program
from kasen.plan.lower.expr.vectors import compile_condition, compile_items
from kasen.types import BIGINT, BOOLEAN, DOUBLE, VARCHAR

ROWS = 3_000
EXTREMES = [-(2**63), -(2**62), -(2**32), -1, 0, 1, 2, 2**31, 2**32, 2**62, 2**63 - 1]
A, B = Column(BIGINT, 0, 0, "a"), Column(BIGINT, 0, 1, "b")
D, E = Column(DOUBLE, 0, 2, "d"), Column(DOUBLE, 0, 3, "e")
T = Column(VARCHAR, 0, 4, "t")
DICTIONARY = Dictionary()
for text in ("x", "y", "z"):
    DICTIONARY.code(text)


def number(value: int) -> Literal:
    return Literal(BIGINT, value)


def call(op: str, *args: Expr) -> Call:
    kind = args[0].type if op in ("+", "-", "*") else BOOLEAN
    return Call(kind, op, args)


CONDITIONS = [
    *(call(op, A, B) for op in ("=", "<>", "<", "<=", ">", ">=")),
    *(call(op, D, E) for op in ("=", "<>", "<", "<=", ">", ">=")),
    call("=", T, Literal(VARCHAR, "y")),
    call("in", A, number(1), number(3), number(-7)),
    call("and", call("<", A, number(10)), call("not", call("=", B, number(0)))),
    call("or", call(">", call("+", A, B), number(20)), call("<", D, Literal(DOUBLE, 0.0))),
    call("and", call(">", A, number(0)), call(">", call("*", A, B), number(5))),
]
VALUES = [
    *(call(op, A, B) for op in ("+", "-", "*")),
    *(call(op, D, E) for op in ("+", "-", "*")),
    call("+", call("*", A, number(3)), B),
    call("*", call("-", A, B), call("+", A, B)),
]


def batch(seed: int, *, extremes: bool = False, nulls: bool = False) -> Batch:
    random = np.random.default_rng(seed)
    data = np.zeros((6, ROWS), np.int64)
    for column in (0, 1):
        data[column] = random.choice(EXTREMES, ROWS) if extremes else random.integers(-50, 50, ROWS)
    for column in (2, 3):
        data[column] = double_bits(random.choice([0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e300], ROWS))
    data[4] = random.integers(0, len(DICTIONARY), ROWS)
    if nulls:
        data[5] = random.integers(0, 32, ROWS)
    return Batch(np.arange(ROWS), zeros(ROWS), ones(ROWS), data)


def in_parts(whole: Batch) -> Batch:
    """The same changes in three parts, of one of which only some rows are meant."""
    first, second = slice(0, 700), slice(700, 1_000)
    parts = [
        RowSelection(whole.ts[p], whole.seq_tick[p], whole.diff[p], [column[p] for column in whole.data])
        for p in (first, second)
    ]
    rows = np.arange(1_000, ROWS)
    return DeferredBatch([*parts, RowSelection(whole.ts, whole.seq_tick, whole.diff, [*whole.data], rows)])


BATCHES = {
    "dense": batch(1),
    "in parts": in_parts(batch(2)),
    "extremes": batch(3, extremes=True),
    "extremes in parts": in_parts(batch(4, extremes=True)),
    "with NULLs": batch(5, nulls=True),
}


@pytest.fixture(params=[1, 2], ids=["one core", "two cores"])
def _cores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_allowed", request.param == 2)
    monkeypatch.setattr(parallel, "_WORTH", 100)


def same(one: Batch, other: Batch) -> None:
    assert len(one) == len(other)
    for name in ("ts", "seq_tick", "diff", "data"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.usefixtures("_cores")
@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
def test_conditions(condition: Expr, name: str) -> None:
    program = block_program(condition, DICTIONARY)
    assert program is not None
    quick, slow = Failures(), Failures()
    with_program = Filter(compile_condition(condition, DICTIONARY, quick), DeferredProgram(lambda: program))
    without = Filter(compile_condition(condition, DICTIONARY, slow))
    same(with_program.process([BATCHES[name]], END), without.process([BATCHES[name]], END))
    assert quick.count == slow.count


@pytest.mark.usefixtures("_cores")
@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("value", VALUES, ids=str)
def test_values(value: Expr, name: str) -> None:
    program = block_program(value, DICTIONARY)
    assert program is not None
    quick, slow = Failures(), Failures()
    items = (A, value)
    with_program = Project(compile_items(items, DICTIONARY, quick), [None, DeferredProgram(lambda: program)])
    without = Project(compile_items(items, DICTIONARY, slow))
    same(with_program.process([BATCHES[name]], END), without.process([BATCHES[name]], END))
    assert quick.count == slow.count


def test_products_that_do_not_fit_are_seen() -> None:
    """Every pair of extremes, as Python multiplies them."""
    pairs = [(x, y) for x in EXTREMES for y in EXTREMES]
    program = block_program(call("*", A, B), DICTIONARY)
    assert program is not None
    for x, y in pairs:
        data = np.zeros((6, 300), np.int64)
        data[0], data[1] = x, y
        out = np.zeros(300, np.int64)
        fits = program.write([selection_of(Batch(zeros(300), zeros(300), ones(300), data))], out, 0)
        assert fits == (-(2**63) <= x * y < 2**63), (x, y)
        assert not fits or set(out.tolist()) == {x * y}


def test_what_has_no_program() -> None:
    assert block_program(call("<", T, Literal(VARCHAR, "y")), DICTIONARY) is None  # by the order of texts
    assert block_program(call("=", A, Literal(BIGINT, None)), DICTIONARY) is None
    assert block_program(number(3), DICTIONARY) is None
    five = [Column(BIGINT, 0, index, f"c{index}") for index in range(5)]
    assert (
        block_program(call("+", five[0], call("+", five[1], call("+", *five[2:4]))), DICTIONARY) is not None
    )
    deep = call("+", five[0], call("+", five[1], call("+", five[2], call("+", *five[3:]))))
    assert block_program(deep, DICTIONARY) is None  # of more columns than a program reads
