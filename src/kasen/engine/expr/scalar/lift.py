"""Makes operations on vectors out of kernels and of numpy's functions. NULL in, NULL out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kasen.engine.expr.kernels.exact import KERNELS
from kasen.engine.expr.scalar.exact import Exact
from kasen.engine.expr.vector import BOOL, INT, Operation, Values, Vector, either, width
from kasen.engine.failures import Failures

Kernel = Callable[..., object]


def unary(function: Callable[[Values], Values]) -> Operation:
    """values -> values."""

    def operation(arg: Vector) -> Vector:
        values, nulls = arg
        return function(values), nulls

    return operation


def unary_kernel(kernel: Kernel, dtype: np.dtype[np.generic], *settings: object) -> Operation:
    """kernel(x, settings..., out)."""

    def operation(arg: Vector) -> Vector:
        values, nulls = arg
        out = np.empty(len(values), dtype)
        kernel(values, *settings, out)
        return out, nulls

    return operation


def checked_unary(
    kernel: Kernel, dtype: np.dtype[np.generic], failures: Failures, *settings: object
) -> Operation:
    """kernel(x, settings..., out, failed), which returns how many rows failed."""

    def operation(arg: Vector) -> Vector:
        values, nulls = arg
        out = np.empty(len(values), dtype)
        failed = np.empty(len(values), BOOL)
        if kernel(values, *settings, out, failed):
            nulls = failures.null(failed, nulls)
        return out, nulls

    return operation


def exact_unary(step: Exact, failures: Failures) -> Operation:
    """An instruction that reads one operand."""
    kernel, settings = KERNELS[step.op], step[1:]

    def operation(arg: Vector) -> Vector:
        values, nulls = arg
        out = np.empty(len(values), INT)
        failed = np.empty(len(values), BOOL)
        if kernel(values, values, *settings, out, failed):
            nulls = failures.null(failed, nulls)
        return out, nulls

    return operation


def exact_binary(step: Exact, failures: Failures) -> Operation:
    """An instruction that reads two operands."""
    return checked_binary(KERNELS[step.op], INT, failures, *step[1:])


def binary(function: Callable[[Values, Values], Values]) -> Operation:
    """values, values -> values."""

    def operation(left: Vector, right: Vector) -> Vector:
        x, x_nulls = left
        y, y_nulls = right
        return function(x, y), either(x_nulls, y_nulls)

    return operation


def binary_kernel(kernel: Kernel, dtype: np.dtype[np.generic]) -> Operation:
    """kernel(x, y, out)."""

    def operation(left: Vector, right: Vector) -> Vector:
        x, x_nulls = left
        y, y_nulls = right
        out = np.empty(width(x, y), dtype)
        kernel(x, y, out)
        return out, either(x_nulls, y_nulls)

    return operation


def checked_binary(
    kernel: Kernel, dtype: np.dtype[np.generic], failures: Failures, *settings: object
) -> Operation:
    """kernel(x, y, settings..., out, failed), which returns how many rows failed."""

    def operation(left: Vector, right: Vector) -> Vector:
        x, x_nulls = left
        y, y_nulls = right
        rows = width(x, y)
        out = np.empty(rows, dtype)
        failed = np.empty(rows, BOOL)
        nulls = either(x_nulls, y_nulls)
        if kernel(x, y, *settings, out, failed):
            nulls = failures.null(failed, nulls)
        return out, nulls

    return operation
