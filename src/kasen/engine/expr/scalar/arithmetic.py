"""+ - * / % and the functions on numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.expr.kernels import decimal, scalar
from kasen.engine.expr.kernels.instructions import ABSOLUTE, NEGATE
from kasen.engine.expr.scalar import exact
from kasen.engine.expr.scalar.exact import Exact
from kasen.engine.expr.scalar.lift import (
    Kernel,
    binary_kernel,
    checked_binary,
    checked_unary,
    exact_binary,
    exact_unary,
    unary,
    unary_kernel,
)
from kasen.engine.expr.vector import DOUBLE, INT, Operation, Vector
from kasen.engine.failures import Failures
from kasen.types import MAX_DECIMAL_DIGITS, Kind, Type

_DOUBLE: dict[str, Kernel] = {
    "+": scalar.add_double,
    "-": scalar.subtract_double,
    "*": scalar.multiply_double,
}
_DOUBLE_CHECKED: dict[str, Kernel] = {"/": scalar.divide_double, "%": scalar.modulo_double}


def arithmetic(op: str, result: Type, args: Sequence[Type], failures: Failures) -> Operation:
    """+ - * / % ts_add ts_diff."""
    if result.kind is Kind.DOUBLE:
        if op in _DOUBLE:
            return binary_kernel(_DOUBLE[op], DOUBLE)
        return checked_binary(_DOUBLE_CHECKED[op], DOUBLE, failures)
    return exact_binary(exact.arithmetic(op, result, args), failures)


def negate(type_: Type, failures: Failures) -> Operation:
    if type_.kind is Kind.BIGINT:
        return exact_unary(Exact(NEGATE), failures)
    return unary(np.negative)


def absolute(type_: Type, failures: Failures) -> Operation:
    if type_.kind is Kind.BIGINT:
        return exact_unary(Exact(ABSOLUTE), failures)
    return unary(np.absolute)


def sign(arg: Vector) -> Vector:
    """-1.0, 0.0, 1.0, or NaN."""
    values, nulls = arg
    return np.sign(values), nulls


def square_root(failures: Failures) -> Operation:
    return checked_unary(scalar.sqrt_double, DOUBLE, failures)


def whole(op: str, arg: Type, failures: Failures) -> Operation:
    """floor and ceil: integers stay as they are, DECIMALs lose their scale."""
    if arg.kind is Kind.DOUBLE:
        return unary(np.floor if op == "floor" else np.ceil)
    step = exact.whole(op, arg)
    return _same if step is None else exact_unary(step, failures)


def rounded(type_: Type, digits: int | None, failures: Failures) -> Operation:
    """round(x) if `digits` is None, else round(x, digits): halves away from zero."""
    if type_.kind is Kind.DOUBLE:
        if digits is None:
            return unary_kernel(decimal.round_double, DOUBLE)
        return unary_kernel(decimal.round_digits, DOUBLE, _power_of_ten(digits))
    # Exact numbers: `places` digits go.
    places = type_.scale - (digits or 0)
    if places <= 0:
        return _same
    if places <= MAX_DECIMAL_DIGITS:
        return exact_unary(exact.rounded(type_, places), failures)
    return _round_beyond(places, failures)


def _power_of_ten(digits: int) -> float:
    try:
        return float(10.0**digits)
    except OverflowError:
        return float("inf")


def _round_beyond(places: int, failures: Failures) -> Operation:
    """Rounding to a unit that int64 does not hold gives 0, or 10^19 if half of that is reached."""
    half = 5 * 10**18 if places == MAX_DECIMAL_DIGITS + 1 else None

    def operation(arg: Vector) -> Vector:
        values, nulls = arg
        if half is not None:
            failed = (values >= half) | (values <= -half)
            if failed.any():
                nulls = failures.null(failed, nulls)
        return np.zeros(len(values), INT), nulls

    return operation


def _same(arg: Vector, *_: Vector) -> Vector:
    return arg
