"""Bound expressions to functions on batches.

Columns are positions in the batch, as everywhere in a plan. Constants are encoded, and expressions of
constants evaluated, once, here; but not those that fail, because a failure counts for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from kasen.cql.expr import Call, Case, Column, Expr, Literal, conjuncts
from kasen.engine.batch import Batch, empty
from kasen.engine.expr.scalar import logic
from kasen.engine.expr.scalar.cast import cast
from kasen.engine.expr.vector import (
    Condition,
    Evaluator,
    Mask,
    Node,
    Operation,
    Vector,
    constant,
    expand,
    load,
)
from kasen.engine.failures import Failures
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.lower.expr.calls import FALLIBLE, operation
from kasen.plan.lower.expr.compiler import ExprCompiler
from kasen.types import Kind, Type

_NO_ROWS = empty(0)

#: An Evaluator or a Condition.
Compiled = TypeVar("Compiled", bound=Callable[[Batch], Any])


def compile_expr(expr: Expr, dictionary: Dictionary, failures: Failures) -> Evaluator:
    """The expression's values, one a row. The answer may share memory with the batch: do not change it."""
    node = _Compiler(dictionary, failures).compile(expr).node

    def evaluate(batch: Batch) -> Vector:
        failures.begin(batch.diff)
        vector = node(batch, batch.has_nulls())
        failures.end()
        return expand(vector, len(batch))

    return evaluate


def compile_condition(expr: Expr, dictionary: Dictionary, failures: Failures) -> Condition:
    """Where the condition is TRUE. A conjunction is a chain of filters; it ends where no row is left."""
    compiler = _Compiler(dictionary, failures)
    parts = [compiler.compile(part) for part in conjuncts(expr)]
    first, rest = parts[0].node, [(part.node, part.fallible) for part in parts[1:]]

    def evaluate(batch: Batch) -> Mask:
        any_null = batch.has_nulls()
        failures.begin(batch.diff)
        keep = logic.is_true(first(batch, any_null))
        for node, fallible in rest:
            if not np.count_nonzero(keep):
                break
            before = failures.need(keep) if fallible else failures.guard
            keep = keep & logic.is_true(node(batch, any_null))
            failures.guard = before
        failures.end()
        return expand((keep, None), len(batch))[0]

    return evaluate


def compiled_late(make: Callable[[], Compiled], dictionary: Dictionary) -> Compiled:
    """What `make` compiles, compiled when it is first called: a query that comes must not hold others up.

    Its constants are noted where those made now are.
    """
    made: Any = None
    noted = dictionary.noted

    def run(batch: Batch) -> Any:
        nonlocal made
        if made is None:
            with dictionary.noting(noted):
                made = make()
        return made(batch)

    return run  # type: ignore[return-value]


def compile_items(
    exprs: Sequence[Expr], dictionary: Dictionary, failures: Failures
) -> tuple[int | Evaluator, ...]:
    """What Project takes: a plain column is its position, anything else is evaluated."""
    return tuple(
        expr.index
        if isinstance(expr, Column)
        else compiled_late(partial(compile_expr, expr, dictionary, failures), dictionary)
        for expr in exprs
    )


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A part of an expression, its value if that is the same for every row, and whether it may fail."""

    node: Node
    constant: Vector | None = None
    fallible: bool = False


class _Compiler(ExprCompiler[_Compiled]):
    def __init__(self, dictionary: Dictionary, failures: Failures) -> None:
        super().__init__(dictionary)
        self._failures = failures

    def _column(self, expr: Column) -> _Compiled:
        return _Compiled(load(expr.index, expr.type))

    def _literal(self, expr: Literal) -> _Compiled:
        return _constant(constant(expr.value, expr.type, self._dictionary))

    # ------------------------------------------------------------ strict operations

    def _cast(self, have: Type, want: Type, arg: _Compiled) -> _Compiled:
        convert = cast(have, want, self._dictionary, self._failures)
        if convert is None:
            return arg
        inner = arg.node
        whole = _Compiled(lambda batch, nulls: convert(inner(batch, nulls)), fallible=True)
        return self._fold(want, whole, [arg])

    def _call(self, expr: Call) -> _Compiled:
        args = [self.compile(arg) for arg in expr.args]
        known = [arg.constant for arg in args]
        apply, taken = operation(expr, known, self._dictionary, self._failures)
        node = _apply(apply, [args[index] for index in taken])
        fallible = expr.op in FALLIBLE or any(arg.fallible for arg in args)
        return self._fold(expr.type, _Compiled(node, fallible=fallible), args)

    def _fold(self, type_: Type, whole: _Compiled, parts: Sequence[_Compiled]) -> _Compiled:
        """A constant if all parts are, and it does not fail."""
        if any(part.constant is None for part in parts):
            return whole
        before = self._failures.count
        vector = whole.node(_NO_ROWS, False)
        if self._failures.count == before:
            if type_.kind is Kind.VARCHAR:
                self._dictionary.make_constant(vector[0])
            return _constant(vector)
        self._failures.count = before
        return whole

    # ------------------------------------------------------------ operations that need not all arguments

    def _lazy(self, expr: Call) -> _Compiled:
        args = [self.compile(arg) for arg in expr.args]
        combine, is_open = _LAZY[expr.op]
        first, rest = args[0].node, [(arg.node, arg.fallible) for arg in args[1:]]
        failures = self._failures

        def node(batch: Batch, any_null: bool) -> Vector:
            result = first(batch, any_null)
            for argument, fallible in rest:
                still_open = is_open(result)
                if still_open is None or not np.count_nonzero(still_open):
                    break
                before = failures.need(still_open) if fallible else failures.guard
                result = combine(result, argument(batch, any_null))
                failures.guard = before
            return result

        return self._fold(expr.type, _Compiled(node, fallible=any(arg.fallible for arg in args)), args)

    def _case(self, expr: Case) -> _Compiled:
        branches = [(self.compile(test), self.compile(value)) for test, value in expr.branches]
        otherwise = self.compile(expr.otherwise)
        parts = [*(part for branch in branches for part in branch), otherwise]
        nodes = [(test.node, value.node) for test, value in branches]
        node = _case_node(nodes, otherwise.node, self._failures)
        return self._fold(expr.type, _Compiled(node, fallible=any(part.fallible for part in parts)), parts)


def _constant(vector: Vector) -> _Compiled:
    return _Compiled(lambda _, __: vector, vector)


def _apply(apply: Operation, args: Sequence[_Compiled]) -> Node:
    """The operation on what its arguments give. The usual shapes are spelled out: calls cost."""
    if len(args) == 1:
        only = args[0].node
        return lambda batch, nulls: apply(only(batch, nulls))
    if len(args) == 2:
        left, right, known = args[0].node, args[1].node, args[1].constant
        if known is not None:
            return lambda batch, nulls: apply(left(batch, nulls), known)
        return lambda batch, nulls: apply(left(batch, nulls), right(batch, nulls))
    nodes = [arg.node for arg in args]
    return lambda batch, nulls: apply(*[node(batch, nulls) for node in nodes])


#: How arguments combine, and the rows for which the next argument still matters (None: no row).
_LAZY: dict[str, tuple[Operation, Callable[[Vector], Mask | None]]] = {
    "and": (logic.and_, logic.is_not_false),
    "or": (logic.or_, logic.is_not_true),
    "coalesce": (logic.coalesce, lambda vector: vector[1]),
}


def _case_node(branches: Sequence[tuple[Node, Node]], otherwise: Node, failures: Failures) -> Node:
    """Values are computed for all rows, and chosen among; only those chosen can count as failures."""

    def node(batch: Batch, any_null: bool) -> Vector:
        chosen: list[tuple[Mask, Vector]] = []
        before = failures.guard
        undecided: Mask | None = None
        for test, value in branches:
            pick = logic.is_true(test(batch, any_null))
            failures.guard = before
            pick = pick if undecided is None else pick & undecided
            if np.count_nonzero(pick):
                failures.need(pick)
                chosen.append((pick, value(batch, any_null)))
                failures.guard = before
            undecided = ~pick if undecided is None else undecided & ~pick
            if not np.count_nonzero(undecided):
                break
            failures.need(undecided)
        else:
            assert undecided is not None, "CASE has a branch"
            chosen.append((undecided, otherwise(batch, any_null)))
            failures.guard = before
        return _assemble(chosen) if chosen else otherwise(batch, any_null)

    return node


def _assemble(chosen: list[tuple[Mask, Vector]]) -> Vector:
    """One vector of those that were chosen, each for its rows; together they are all rows."""
    _, result = chosen[-1]
    for pick, vector in chosen[:-1]:
        result = logic.choose_where(pick, vector, result)
    return result
