"""Three-valued logic and choices. Operands have one element a row, or one for all (see scalar.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from kasen.engine.expr.kernels.scalar import step

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_CONNECTIVE = "int64(boolean[::1], boolean[::1], boolean[::1], boolean[::1], boolean[::1], boolean[::1])"

# Up to this many choices, comparing with each (which the processor does many rows at once) beats searching.
_FEW = 8


@njit(_CONNECTIVE, cache=True, nogil=True)
def and3(x: Mask, x_null: Mask, y: Mask, y_null: Mask, out: Mask, out_null: Mask) -> int:
    """x AND y: FALSE if either is, else NULL if either is. Returns how many are NULL.

    Values under a NULL may be anything; `out` is False there.
    """
    dx, dxn, dy, dyn = step(len(x)), step(len(x_null)), step(len(y)), step(len(y_null))
    nulls = 0
    for i in range(len(out)):
        a, b, a_null, b_null = x[i * dx], y[i * dy], x_null[i * dxn], y_null[i * dyn]
        out[i] = a & b & (not a_null) & (not b_null)
        out_null[i] = (a | a_null) & (b | b_null) & (a_null | b_null)
        nulls += out_null[i]
    return nulls


@njit(_CONNECTIVE, cache=True, nogil=True)
def or3(x: Mask, x_null: Mask, y: Mask, y_null: Mask, out: Mask, out_null: Mask) -> int:
    """x OR y: TRUE if either is, else NULL if either is. Returns how many are NULL."""
    dx, dxn, dy, dyn = step(len(x)), step(len(x_null)), step(len(y)), step(len(y_null))
    nulls = 0
    for i in range(len(out)):
        a_null, b_null = x_null[i * dxn], y_null[i * dyn]
        out[i] = (x[i * dx] & (not a_null)) | (y[i * dy] & (not b_null))
        out_null[i] = (a_null | b_null) & (not out[i])
        nulls += out_null[i]
    return nulls


@njit("void(boolean[::1], boolean[::1], boolean[::1])", cache=True, nogil=True)
def and_not(x: Mask, y: Mask, out: Mask) -> None:
    """x and not y."""
    dx, dy = step(len(x)), step(len(y))
    for i in range(len(out)):
        out[i] = x[i * dx] & (not y[i * dy])


@njit(
    [
        "void(boolean[::1], int64[::1], int64[::1], int64[::1])",
        "void(boolean[::1], float64[::1], float64[::1], float64[::1])",
        "void(boolean[::1], boolean[::1], boolean[::1], boolean[::1])",
    ],
    cache=True,
    nogil=True,
)
def choose(pick: Mask, x: npt.NDArray[Any], y: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """x where `pick` is set, else y."""
    dp, dx, dy = step(len(pick)), step(len(x)), step(len(y))
    for i in range(len(out)):
        out[i] = x[i * dx] if pick[i * dp] else y[i * dy]


@njit("void(int64[::1], int64[::1], boolean[::1])", cache=True, nogil=True)
def among(x: I64, choices: I64, out: Mask) -> None:
    """Whether each x is among `choices`, which ascend."""
    if len(choices) <= _FEW:
        out[:] = False
        for k in range(len(choices)):
            for i in range(len(out)):
                out[i] |= x[i] == choices[k]
        return
    for i in range(len(out)):
        low, high = 0, len(choices)
        while low < high:
            middle = (low + high) // 2
            if choices[middle] < x[i]:
                low = middle + 1
            else:
                high = middle
        out[i] = low < len(choices) and choices[low] == x[i]


@njit("int64(int64[::1], uint8[::1], int64[::1], int64[::1], boolean[::1])", cache=True, nogil=True)
def look_up(codes: I64, known: npt.NDArray[np.uint8], results: I64, out: I64, failed: Mask) -> int:
    """results[code] of each row, and whether it failed.

    known[code] is 0 for a code not met before, 1 where results[code] holds, 2 where there is no result.
    Returns the bits 1 if some row failed, 2 if some code is not known yet (its `out` then means nothing).
    """
    met = 0
    for i in range(len(out)):
        state = known[codes[i]]
        out[i] = results[codes[i]]
        failed[i] = state == 2
        met |= 1 if state == 2 else (2 if state == 0 else 0)
    return met
