"""AND, OR, NOT, IS NULL, COALESCE, and the choice that CASE makes."""

from __future__ import annotations

import numpy as np

from kasen.engine.expr.kernels.logic import and3, and_not, choose, or3
from kasen.engine.expr.scalar.lift import Kernel
from kasen.engine.expr.vector import BOOL, Mask, Vector, width

_NOWHERE = np.zeros(1, BOOL)


def and_(left: Vector, right: Vector) -> Vector:
    """FALSE if either is, else NULL if either is."""
    if left[1] is None and right[1] is None:
        return left[0] & right[0], None
    return _connect(and3, left, right)


def or_(left: Vector, right: Vector) -> Vector:
    """TRUE if either is, else NULL if either is."""
    if left[1] is None and right[1] is None:
        return left[0] | right[0], None
    return _connect(or3, left, right)


def _connect(kernel: Kernel, left: Vector, right: Vector) -> Vector:
    x, y = left[0], right[0]
    x_nulls = _NOWHERE if left[1] is None else left[1]
    y_nulls = _NOWHERE if right[1] is None else right[1]
    rows = width(x, y)
    out, nulls = np.empty(rows, BOOL), np.empty(rows, BOOL)
    return out, nulls if kernel(x, x_nulls, y, y_nulls, out, nulls) else None


def not_(arg: Vector) -> Vector:
    values, nulls = arg
    return ~values, nulls


def is_null(arg: Vector) -> Vector:
    nulls = arg[1]
    return _NOWHERE if nulls is None else nulls, None


def is_true(arg: Vector) -> Mask:
    """Where a condition is TRUE."""
    values, nulls = arg
    if nulls is None:
        return values
    out = np.empty(len(values), BOOL)
    and_not(values, nulls, out)
    return out


def is_not_true(arg: Vector) -> Mask:
    return ~is_true(arg)


def is_not_false(arg: Vector) -> Mask:
    values, nulls = arg
    return values if nulls is None else values | nulls


def choose_where(pick: Mask, chosen: Vector, otherwise: Vector) -> Vector:
    """`chosen` where `pick` is set."""
    x, x_nulls = chosen
    y, y_nulls = otherwise
    rows = width(pick, x) if len(y) == 1 else len(y)
    out = np.empty(rows, x.dtype)
    choose(pick, x, y, out)
    if x_nulls is None and y_nulls is None:
        return out, None
    nulls = np.empty(rows, BOOL)
    choose(pick, _NOWHERE if x_nulls is None else x_nulls, _NOWHERE if y_nulls is None else y_nulls, nulls)
    return out, nulls


def coalesce(first: Vector, second: Vector) -> Vector:
    """`first`, or `second` where it is NULL."""
    nulls = first[1]
    return first if nulls is None else choose_where(nulls, second, (first[0], None))
