"""+ - * / % and the functions on numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.engine.expr.kernels import decimal, scalar
from kasen.engine.expr.scalar.lift import (
    Kernel,
    binary_kernel,
    checked_binary,
    checked_unary,
    unary,
    unary_kernel,
)
from kasen.engine.expr.vector import DOUBLE, INT, Operation, Vector
from kasen.engine.failures import Failures
from kasen.types import MAX_DECIMAL_DIGITS, Kind, Type

_INT_MOST = 2**63 - 1

_INTEGER: dict[str, Kernel] = {
    "+": scalar.add_int,
    "-": scalar.subtract_int,
    "*": scalar.multiply_int,
    "/": scalar.divide_int,
    "%": scalar.modulo_int,
    "ts_add": scalar.add_int,
    "ts_diff": scalar.subtract_int,
}
_DOUBLE: dict[str, Kernel] = {
    "+": scalar.add_double,
    "-": scalar.subtract_double,
    "*": scalar.multiply_double,
}
_DOUBLE_CHECKED: dict[str, Kernel] = {"/": scalar.divide_double, "%": scalar.modulo_double}


def digits_limit(type_: Type) -> int:
    """The greatest magnitude of a DECIMAL's scaled number."""
    most: int = 10**type_.precision - 1
    return most


def arithmetic(op: str, result: Type, args: Sequence[Type], failures: Failures) -> Operation:
    """+ - * / % ts_add ts_diff."""
    if result.kind is Kind.DOUBLE:
        if op in _DOUBLE:
            return binary_kernel(_DOUBLE[op], DOUBLE)
        return checked_binary(_DOUBLE_CHECKED[op], DOUBLE, failures)
    if result.kind is not Kind.DECIMAL:
        return checked_binary(_INTEGER[op], INT, failures)
    if op == "*":
        return checked_binary(decimal.multiply_decimal, INT, failures, digits_limit(result))
    return _decimal_sum(op, result, args, failures)


def _decimal_sum(op: str, result: Type, args: Sequence[Type], failures: Failures) -> Operation:
    """Both sides at the greater scale."""
    x_factor, y_factor = (10 ** (result.scale - arg.scale) for arg in args)
    if op == "-":
        y_factor = -y_factor
    return checked_binary(decimal.add_decimal, INT, failures, x_factor, y_factor, digits_limit(result))


def negate(type_: Type, failures: Failures) -> Operation:
    if type_.kind is Kind.BIGINT:
        return checked_unary(scalar.negate_int, INT, failures)
    return unary(np.negative)


def absolute(type_: Type, failures: Failures) -> Operation:
    if type_.kind is Kind.BIGINT:
        return checked_unary(scalar.abs_int, INT, failures)
    return unary(np.absolute)


def sign(arg: Vector) -> Vector:
    """-1.0, 0.0, 1.0, or NaN."""
    values, nulls = arg
    return np.sign(values), nulls


def square_root(failures: Failures) -> Operation:
    return checked_unary(scalar.sqrt_double, DOUBLE, failures)


def whole(op: str, arg: Type) -> Operation:
    """floor and ceil: integers stay as they are, DECIMALs lose their scale."""
    if arg.kind is Kind.DOUBLE:
        return unary(np.floor if op == "floor" else np.ceil)
    if arg.kind is Kind.DECIMAL:
        return unary_kernel(decimal.whole_units, INT, 10**arg.scale, op == "ceil")
    return _same


def rounded(type_: Type, digits: int | None, failures: Failures) -> Operation:
    """round(x) if `digits` is None, else round(x, digits): halves away from zero."""
    if type_.kind is Kind.DOUBLE:
        if digits is None:
            return unary_kernel(decimal.round_double, DOUBLE)
        return unary_kernel(decimal.round_digits, DOUBLE, _power_of_ten(digits))
    # Exact numbers: `places` digits go.
    scale, limit = (type_.scale, digits_limit(type_)) if type_.kind is Kind.DECIMAL else (0, _INT_MOST)
    places = scale - (digits or 0)
    if places <= 0:
        return _same
    if places <= MAX_DECIMAL_DIGITS:
        return checked_unary(decimal.round_to_unit, INT, failures, 10**places, limit)
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
