"""Element-wise arithmetic, comparison and logic, where numpy would need several passes or warn.

An operand holds one element a row, or one element that stands for all rows (a constant): its step is
then 0. `out` and `failed` have one element a row. `failed` is set where the operation has no result; a
kernel that fills it returns how many such rows there are. Rows whose operand is NULL hold any number:
they are computed like the others, and the caller ignores them.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Between these a product's double is too coarse to tell whether the product fits (2^63 is 9.22e18).
_SURELY_FITS = 9.2e18
_SURELY_NOT = 9.3e18

_DOUBLE2 = "void(float64[::1], float64[::1], float64[::1])"
_DOUBLE2_CHECKED = "int64(float64[::1], float64[::1], float64[::1], boolean[::1])"
_COMPARE = "void(float64[::1], float64[::1], boolean[::1])"


@njit("int64(int64)", cache=True, nogil=True)
def step(size: int) -> int:
    """How far to go in an operand of `size` elements from one row to the next."""
    return 0 if size == 1 else 1


# ---------------------------------------------------------------- integers
#
# The compiler takes for granted that signed integers do not overflow; unsigned ones may wrap around.


@njit("int64(int64, int64)", cache=True, nogil=True)
def plus(a: int, b: int) -> int:
    """a + b, wrapping around."""
    return int(np.int64(np.uint64(a) + np.uint64(b)))


@njit("int64(int64, int64)", cache=True, nogil=True)
def minus(a: int, b: int) -> int:
    """a - b, wrapping around."""
    return int(np.int64(np.uint64(a) - np.uint64(b)))


@njit("int64(int64, int64)", cache=True, nogil=True)
def times(a: int, b: int) -> int:
    """a * b, wrapping around."""
    return int(np.int64(np.uint64(a) * np.uint64(b)))


@njit("boolean(int64, int64)", cache=True, nogil=True)
def product_overflows(a: int, b: int) -> bool:
    """Whether a * b leaves int64. Its double tells, unless it is so near the limit that the sign does."""
    size = abs(float(a) * float(b))
    if size < _SURELY_FITS:
        return False
    if size > _SURELY_NOT:
        return True
    return (times(a, b) < 0) != ((a < 0) != (b < 0))


@njit("int64(int64, int64)", cache=True, nogil=True, error_model="numpy")
def truncated_quotient(a: int, b: int) -> int:
    """a / b toward zero. b is not 0, and not -1 beside the least integer (the processor would trap)."""
    quotient = a // b
    if quotient < 0 and quotient * b != a:
        quotient += 1
    return quotient


# ---------------------------------------------------------------- doubles


@njit(_DOUBLE2, cache=True, nogil=True)
def add_double(x: F64, y: F64, out: F64) -> None:
    """x + y as IEEE has it; numpy would warn of inf - inf."""
    dx, dy = step(len(x)), step(len(y))
    for i in range(len(out)):
        out[i] = x[i * dx] + y[i * dy]


@njit(_DOUBLE2, cache=True, nogil=True)
def subtract_double(x: F64, y: F64, out: F64) -> None:
    """x - y as IEEE has it."""
    dx, dy = step(len(x)), step(len(y))
    for i in range(len(out)):
        out[i] = x[i * dx] - y[i * dy]


@njit(_DOUBLE2, cache=True, nogil=True)
def multiply_double(x: F64, y: F64, out: F64) -> None:
    """x * y as IEEE has it."""
    dx, dy = step(len(x)), step(len(y))
    for i in range(len(out)):
        out[i] = x[i * dx] * y[i * dy]


@njit(_DOUBLE2_CHECKED, cache=True, nogil=True, error_model="numpy")
def divide_double(x: F64, y: F64, out: F64, failed: Mask) -> int:
    """x / y; fails for y = 0."""
    dx, dy, failures = step(len(x)), step(len(y)), 0
    for i in range(len(out)):
        b = y[i * dy]
        out[i] = x[i * dx] / b
        failed[i] = b == 0.0
        failures += failed[i]
    return failures


@njit(_DOUBLE2_CHECKED, cache=True, nogil=True, error_model="numpy")
def modulo_double(x: F64, y: F64, out: F64, failed: Mask) -> int:
    """x % y with the sign of x (C's fmod); fails for y = 0."""
    dx, dy, failures = step(len(x)), step(len(y)), 0
    for i in range(len(out)):
        b = y[i * dy]
        failed[i] = b == 0.0
        out[i] = 0.0 if b == 0.0 else np.fmod(x[i * dx], b)
        failures += failed[i]
    return failures


@njit("int64(float64[::1], float64[::1], boolean[::1])", cache=True, nogil=True, error_model="numpy")
def sqrt_double(x: F64, out: F64, failed: Mask) -> int:
    """The root; fails for x < 0 (not for NaN, nor for -0.0)."""
    failures = 0
    for i in range(len(out)):
        failed[i] = x[i] < 0.0
        out[i] = 0.0 if failed[i] else math.sqrt(x[i])
        failures += failed[i]
    return failures


# ---------------------------------------------------------------- comparing doubles: NaN = NaN, greatest


@njit(_COMPARE, cache=True, nogil=True)
def equal_double(x: F64, y: F64, out: Mask) -> None:
    """x = y."""
    dx, dy = step(len(x)), step(len(y))
    for i in range(len(out)):
        a, b = x[i * dx], y[i * dy]
        out[i] = (a == b) | ((a != a) & (b != b))


@njit(_COMPARE, cache=True, nogil=True)
def unequal_double(x: F64, y: F64, out: Mask) -> None:
    """x <> y."""
    dx, dy = step(len(x)), step(len(y))
    for i in range(len(out)):
        a, b = x[i * dx], y[i * dy]
        out[i] = (a != b) & ((a == a) | (b == b))


@njit(_COMPARE, cache=True, nogil=True)
def less_double(x: F64, y: F64, out: Mask) -> None:
    """x < y."""
    dx, dy = step(len(x)), step(len(y))
    for i in range(len(out)):
        a, b = x[i * dx], y[i * dy]
        out[i] = (a < b) | ((b != b) & (a == a))


@njit(_COMPARE, cache=True, nogil=True)
def less_equal_double(x: F64, y: F64, out: Mask) -> None:
    """x <= y."""
    dx, dy = step(len(x)), step(len(y))
    for i in range(len(out)):
        a, b = x[i * dx], y[i * dy]
        out[i] = (a <= b) | (b != b)
