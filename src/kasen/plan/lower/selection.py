"""Conditions that a shared selection network can decide: tests of a column against constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from kasen.cql.expr import Call, Cast, Column, Expr, Literal
from kasen.engine.batch import double_bits
from kasen.engine.select.kernels.network import BETWEEN, IN_SET, IS_NULL, NOT_NULL, UNLIKE
from kasen.engine.select.network import GREATEST, LEAST, Condition, ConditionTree, Predicate
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.logical import Filter, Node, Scan
from kasen.types import Kind

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "<>": "<>"}
_NEGATED = {"<": ">=", ">": "<=", "<=": ">", ">=": "<", "=": "<>", "<>": "="}


def network_condition(node: Node, dictionary: Dictionary) -> Condition | None:
    """The condition of a filter that the selection network of its stream decides; None if it is none."""
    if isinstance(node, Filter) and isinstance(node.child, Scan):
        return selectable(node.condition, dictionary)
    return None


def selectable(expr: Expr, dictionary: Dictionary) -> Condition | None:
    """The condition as a tree of predicates, or None if it is more than that.

    Only TRUE passes, so NULL may count as FALSE everywhere below AND and OR; NOT is moved to the leaves.
    """
    return _condition(expr, False, dictionary)


def _condition(expr: Expr, negated: bool, dictionary: Dictionary) -> Condition | None:
    match expr:
        case Call(op="not", args=(arg,)):
            return _condition(arg, not negated, dictionary)
        case Call(op="and" | "or", args=args):
            return _tree((expr.op == "and") != negated, [_condition(a, negated, dictionary) for a in args])
        case Call(op="is_null", args=(arg,)):
            column = _column(arg)
            return None if column is None else Predicate(NOT_NULL if negated else IS_NULL, column.index)
        case Call(op="in", args=(arg, *choices)):
            op = "<>" if negated else "="
            return _tree(negated, [_compared(op, arg, each, dictionary) for each in choices])
        case Call(op="like", args=(arg, Literal(value=str() as pattern))) if not negated:
            return _prefix(_column(arg), pattern)
        case Call(op=op, args=(left, right)) if op in _FLIPPED:
            op = _NEGATED[op] if negated else op
            if isinstance(left, Literal):
                return _compared(_FLIPPED[op], right, left, dictionary)
            return _compared(op, left, right, dictionary)
    return None


def _tree(all_: bool, parts: Sequence[Condition | None]) -> Condition | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len(known) > 20:
        return None
    flat: list[Condition] = []
    for part in known:
        flat += part.parts if isinstance(part, ConditionTree) and part.all == all_ else (part,)
    return flat[0] if len(flat) == 1 else ConditionTree(all_, tuple(flat))


def _column(expr: Expr) -> Column | None:
    """A column; one that is only widened among the integers is as good."""
    if isinstance(expr, Cast) and expr.type.is_integer and expr.arg.type.is_integer:
        wider = expr.type.kind is Kind.BIGINT or expr.arg.type.kind is Kind.INTEGER
        return _column(expr.arg) if wider else None
    return expr if isinstance(expr, Column) else None


def _compared(op: str, left: Expr, right: Expr, dictionary: Dictionary) -> Condition | None:
    column = _column(left)
    while isinstance(right, Cast) and right.type.is_integer and right.arg.type.is_integer:
        right = right.arg
    if column is None or not isinstance(right, Literal) or right.value is None:
        return None
    index = column.index
    if column.type.kind is Kind.VARCHAR:
        return _text(op, index, str(right.value), dictionary)
    value = _number(right, column)
    if value is None:
        return None
    match op:
        case "=":
            return Predicate(BETWEEN, index, value, value)
        case "<>":
            return Predicate(UNLIKE, index, value)
        case ">" if value < GREATEST:
            return Predicate(BETWEEN, index, value + 1, GREATEST)
        case ">=":
            return Predicate(BETWEEN, index, value, GREATEST)
        case "<" if value > LEAST:
            return Predicate(BETWEEN, index, LEAST, value - 1)
        case "<=":
            return Predicate(BETWEEN, index, LEAST, value)
    return None


def _number(literal: Literal, column: Column) -> int | None:
    """A constant as the column holds its values, in an order that integers have; None if it does not fit."""
    value = literal.value
    match column.type.kind:
        case Kind.DOUBLE if isinstance(value, float):
            bits = int(double_bits(np.array([value]))[0])
            return bits ^ GREATEST if bits < 0 else bits
        case Kind.DECIMAL if isinstance(value, Decimal) and literal.type.scale == column.type.scale:
            return int(value.scaleb(column.type.scale))
        case Kind.INTEGER | Kind.BIGINT | Kind.TIMESTAMP if isinstance(value, int) and not math.isnan(value):
            return int(value)
        case Kind.BOOLEAN if isinstance(value, bool):
            return int(value)
    return None


def _text(op: str, column: int, text: str, dictionary: Dictionary) -> Condition | None:
    if op == "=":
        code = dictionary.constant(text)
        return Predicate(BETWEEN, column, code, code)
    if op == "<>":
        return Predicate(UNLIKE, column, dictionary.constant(text))
    wanted = text.encode("utf-8", "surrogatepass")

    def decide(other: str) -> bool:
        found = other.encode("utf-8", "surrogatepass")
        return {"<": found < wanted, "<=": found <= wanted, ">": found > wanted, ">=": found >= wanted}[op]

    return Predicate(IN_SET, column, name=f"{op} {text}", texts=decide)


def _prefix(column: Column | None, pattern: str) -> Condition | None:
    """LIKE 'abc%'."""
    start = pattern[:-1]
    if column is None or not pattern.endswith("%") or "%" in start or "_" in start:
        return None
    return Predicate(IN_SET, column.index, name=f"like {pattern}", texts=lambda text: text.startswith(start))
