"""Comparisons, IN, IS DISTINCT FROM, GREATEST and LEAST.

DOUBLEs compare in total order: NaN equals itself and is greatest, -0.0 = 0.0. Texts are equal if their
codes are, and ordered as their labels are; labels move when the dictionary grows, so they are read
anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kasen.engine.batch import double_bits
from kasen.engine.expr.kernels import scalar
from kasen.engine.expr.kernels.logic import among
from kasen.engine.expr.scalar.lift import binary, binary_kernel
from kasen.engine.expr.scalar.logic import choose_where, or_
from kasen.engine.expr.vector import BOOL, INT, Nulls, Operation, Values, Vector, either
from kasen.engine.text.dictionary import Dictionary
from kasen.types import Kind, Type

_NUMPY: dict[str, Callable[[Values, Values], Values]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_DOUBLE = {
    "=": scalar.equal_double,
    "<>": scalar.unequal_double,
    "<": scalar.less_double,
    "<=": scalar.less_equal_double,
}
_TURNED = {">": "<", ">=": "<="}


def comparison(op: str, arg: Type, dictionary: Dictionary) -> Operation:
    """= <> < <= > >= on two arguments of one type."""
    if arg.kind is Kind.DOUBLE:
        if op in _TURNED:
            return _turn(binary_kernel(_DOUBLE[_TURNED[op]], BOOL))
        return binary_kernel(_DOUBLE[op], BOOL)
    if arg.kind is Kind.VARCHAR and op not in ("=", "<>"):
        return _compare_texts(_NUMPY[op], dictionary)
    return binary(_NUMPY[op])


def _turn(operation: Operation) -> Operation:
    return lambda left, right: operation(right, left)


def _compare_texts(function: Callable[[Values, Values], Values], dictionary: Dictionary) -> Operation:
    def operation(left: Vector, right: Vector) -> Vector:
        labels = dictionary.labels
        x, x_nulls = left
        y, y_nulls = right
        return function(labels[x], labels[y]), either(x_nulls, y_nulls)

    return operation


def is_distinct(arg: Type, dictionary: Dictionary) -> Operation:
    """Differs, where NULL is a value like others: never NULL itself."""
    unequal = comparison("<>", arg, dictionary)

    def operation(left: Vector, right: Vector) -> Vector:
        differs, nulls = unequal(left, right)
        if nulls is None:
            return differs, None
        return np.where(nulls, _mask(left[1]) != _mask(right[1]), differs), None

    return operation


_NOWHERE = np.zeros(1, BOOL)


def _mask(nulls: Nulls) -> Values:
    return _NOWHERE if nulls is None else nulls


def among_constants(arg: Type, choices: Sequence[Vector]) -> Operation:
    """x IN (constants): TRUE if found, else NULL if a choice is NULL."""
    with_null = any(nulls is not None for _, nulls in choices)
    present = [_as_keys(values, arg)[0] for values, nulls in choices if nulls is None]
    ascending = np.array(sorted(present), INT)

    def operation(value: Vector) -> Vector:
        values, nulls = value
        found = np.empty(len(values), BOOL)
        among(_as_keys(values, arg), ascending, found)
        return found, either(nulls, ~found) if with_null else nulls

    return operation


def _as_keys(values: Values, type_: Type) -> Values:
    """int64 that are equal exactly if the values are."""
    if type_.kind is Kind.DOUBLE:
        return double_bits(values)
    return values.astype(INT) if type_.kind is Kind.BOOLEAN else values


def among_values(arg: Type, dictionary: Dictionary) -> Operation:
    """x IN (a, b, ...) is x = a OR x = b OR ..."""
    equal = comparison("=", arg, dictionary)

    def operation(value: Vector, *choices: Vector) -> Vector:
        found = equal(value, choices[0])
        for choice in choices[1:]:
            found = or_(found, equal(value, choice))
        return found

    return operation


def extreme(op: str, arg: Type, dictionary: Dictionary) -> Operation:
    """greatest and least skip NULLs; NULL only if all are."""
    better = comparison(">" if op == "greatest" else "<", arg, dictionary)

    def pair(left: Vector, right: Vector) -> Vector:
        """`left`, unless it is NULL or `right` is there and better."""
        left_nulls, right_nulls = left[1], right[1]
        pick, _ = better(right, left)
        if left_nulls is not None:
            pick = pick | left_nulls
        if right_nulls is not None:
            pick = pick & ~right_nulls
        values, _ = choose_where(pick, (right[0], None), (left[0], None))
        return values, None if left_nulls is None or right_nulls is None else left_nulls & right_nulls

    def operation(*args: Vector) -> Vector:
        best = args[0]
        for other in args[1:]:
            best = pair(best, other)
        return best

    return operation
