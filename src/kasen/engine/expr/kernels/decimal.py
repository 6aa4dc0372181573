"""Rounding of doubles, and conversions between doubles and decimals. Conventions as in scalar.py."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import njit

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_EXACT_IN_DOUBLE = 2**53
# A quotient with this many bits has a double's 53 and two to round by.
_QUOTIENT = 2**54


@njit("float64(float64)", cache=True, nogil=True)
def round_half_away(x: float) -> float:
    """Exact: the fraction of a double is a double."""
    whole = np.trunc(x)
    if abs(x - whole) >= 0.5:
        whole += math.copysign(1.0, x)
    return float(whole)


@njit("void(float64[::1], float64[::1])", cache=True, nogil=True)
def round_double(x: F64, out: F64) -> None:
    """The nearest whole number, halves away from zero."""
    for i in range(len(out)):
        out[i] = round_half_away(x[i])


@njit("void(float64[::1], float64, float64[::1])", cache=True, nogil=True, error_model="numpy")
def round_digits(x: F64, power: float, out: F64) -> None:
    """sign(x) * floor(|x| * power + 0.5) / power in double arithmetic: a formula that every engine has."""
    for i in range(len(out)):
        sign = 1.0 if x[i] > 0.0 else (-1.0 if x[i] < 0.0 else 0.0)
        out[i] = sign * np.floor(abs(x[i]) * power + 0.5) / power


@njit("int64(float64[::1], int64, int64[::1], boolean[::1])", cache=True, nogil=True)
def double_to_int(x: F64, bits: int, out: I64, failed: Mask) -> int:
    """Toward zero; fails for NaN and for what does not fit into `bits` bits."""
    edge = 2.0 ** (bits - 1)
    failures = 0
    for i in range(len(out)):
        whole = np.trunc(x[i])
        failed[i] = not (-edge <= whole < edge)
        out[i] = 0 if failed[i] else int(whole)
        failures += failed[i]
    return failures


@njit("int64(float64[::1], float64, int64, int64[::1], boolean[::1])", cache=True, nogil=True)
def double_to_decimal(x: F64, power: float, limit: int, out: I64, failed: Mask) -> int:
    """x * power in double arithmetic, then the nearest integer, halves away from zero."""
    edge = float(limit + 1)  # a power of ten up to 10^18 is a double
    failures = 0
    for i in range(len(out)):
        rounded = round_half_away(x[i] * power)
        failed[i] = not (-edge < rounded < edge)
        out[i] = 0 if failed[i] else int(rounded)
        failures += failed[i]
    return failures


@njit("float64(int64, int64)", cache=True, nogil=True, error_model="numpy")
def nearest_quotient(a: int, unit: int) -> float:
    """a / unit rounded once, to even; 0 < a < 10^18, 1 <= unit <= 10^18.

    Long division bit by bit, until the quotient has 55 bits: the double's 53, a half, and a bit that
    tells whether anything is left.
    """
    quotient, rest, exponent = a // unit, a % unit, 0
    while quotient < _QUOTIENT:
        rest <<= 1
        quotient <<= 1
        if rest >= unit:
            rest -= unit
            quotient |= 1
        exponent -= 1
    spare = 0
    while (quotient >> spare) >= _EXACT_IN_DOUBLE:
        spare += 1
    half = 1 << (spare - 1)
    low = quotient & ((1 << spare) - 1)
    kept = quotient >> spare
    if low > half or (low == half and (rest != 0 or kept & 1)):
        kept += 1
    return math.ldexp(float(kept), exponent + spare)


@njit("void(int64[::1], int64, float64[::1])", cache=True, nogil=True, error_model="numpy")
def decimal_to_double(x: I64, unit: int, out: F64) -> None:
    """The double nearest to x / unit."""
    for i in range(len(out)):
        if unit == 1 or abs(x[i]) <= _EXACT_IN_DOUBLE:
            out[i] = float(x[i]) / float(unit)  # two exact doubles: one rounding
        elif x[i] > 0:
            out[i] = nearest_quotient(x[i], unit)
        else:
            out[i] = -nearest_quotient(-x[i], unit)
