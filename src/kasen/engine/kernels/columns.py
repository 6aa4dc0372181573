"""Moving columns in and out of a batch's matrix: [columns + 1, n], the last row holding NULL bits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from kasen.engine.expr.kernels.scalar import step

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@njit("int64(int64[::1], int64, boolean[::1])", cache=True, nogil=True)
def null_mask(words: I64, column: int, out: Mask) -> int:
    """Where the column is NULL, by the rows' NULL words; returns how often."""
    count = 0
    for i in range(len(out)):
        out[i] = (words[i] >> column) & 1
        count += out[i]
    return count


@njit("void(int64[:, ::1], int64[::1], int64[:, ::1])", cache=True, nogil=True)
def copy_columns(data: I64, sources: I64, out: I64) -> None:
    """Column sources[j] of `data`, with its NULL bits, becomes column j of `out`; -1 leaves column j alone.

    The NULL bits of columns left alone are cleared.
    """
    words, out_words = data[len(data) - 1], out[len(out) - 1]
    any_null = 0
    for i in range(len(words)):
        any_null |= words[i]
        out_words[i] = 0
    for j in range(len(sources)):
        if sources[j] >= 0:
            out[j, :] = data[sources[j]]
            if (any_null >> sources[j]) & 1:
                for i in range(len(words)):
                    out_words[i] |= ((words[i] >> sources[j]) & 1) << j


@njit("void(float64[::1], int64[::1])", cache=True, nogil=True)
def canonical_bits(values: F64, out: I64) -> None:
    """DOUBLEs as bits such that equal values have equal bits: one NaN, one zero. `out` is a whole column."""
    dv = step(len(values))
    as_double = out.view(np.float64)
    for i in range(len(out)):
        value = values[i * dv]
        as_double[i] = np.nan if value != value else value + 0.0


@njit("void(boolean[::1], int64, int64[:, ::1])", cache=True, nogil=True)
def put_nulls(nulls: Mask, column: int, out: I64) -> None:
    """Makes the column NULL where `nulls` is set: its bit 1, its value 0."""
    dn = step(len(nulls))
    values, words = out[column], out[len(out) - 1]
    for i in range(len(words)):
        if nulls[i * dn]:
            values[i] = 0
            words[i] |= 1 << column


@njit("void(boolean[::1], int64[::1])", cache=True, nogil=True)
def positions(keep: Mask, out: I64) -> None:
    """Where `keep` is set; `out` has room for exactly that many."""
    i = j = 0
    while j < len(out):
        # Written for every row and overwritten until it is one to keep: no branch to mispredict.
        out[j] = i
        j += keep[i]
        i += 1


@njit("void(int64[::1], int64[::1], int64[::1])", cache=True, nogil=True)
def gather(column: I64, rows: I64, out: I64) -> None:
    """The column's values at the positions `rows`, in that order."""
    for j in range(len(rows)):
        out[j] = column[np.uint64(rows[j])]  # unsigned: no position counts from the end


#: Times of so many rows are looked at together.
_TIMES = 256


@njit("void(int64[::1], int64[::1], int64[::1])", cache=True, nogil=True)
def gather_ascending(column: I64, rows: I64, out: I64) -> None:
    """`gather` of a column that does not descend, at ascending positions: equal ends tell of all between."""
    for first in range(0, len(rows), _TIMES):
        part = rows[first : first + _TIMES]
        to = out[first : first + _TIMES]
        least = column[np.uint64(part[0])]
        if least == column[np.uint64(part[len(part) - 1])]:
            for j in range(len(part)):
                to[j] = least
        else:
            for j in range(len(part)):
                to[j] = column[np.uint64(part[j])]


@njit(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1], "
    "int64[::1], int64[::1], int64[::1], int64[:, ::1])",
    cache=True,
    nogil=True,
)
def take_rows(
    rows: I64,
    ts: I64,
    seq_tick: I64,
    diff: I64,
    data: I64,
    ts_out: I64,
    sub_out: I64,
    diff_out: I64,
    out: I64,
) -> None:
    """A batch's changes at the positions `rows`, in that order, into another's arrays."""
    for j in range(len(rows)):
        ts_out[j] = ts[rows[j]]
    for j in range(len(rows)):
        sub_out[j] = seq_tick[rows[j]]
    for j in range(len(rows)):
        diff_out[j] = diff[rows[j]]
    for column in range(len(data)):
        for j in range(len(rows)):
            out[column, j] = data[column, rows[j]]


@njit("boolean(int64[::1])", cache=True, nogil=True)
def all_units(diff: I64) -> bool:
    """Whether every change is of one row."""
    for i in range(len(diff)):  # noqa: SIM110, all() of a generator does not compile
        if diff[i] > 1 or diff[i] < -1:
            return False
    return True


@njit("int64(int64[::1], int64, int64[::1])", cache=True, nogil=True)
def signed(diff: I64, sign: int, rows: I64) -> int:
    """Writes the positions of the changes of one sign into `rows`, which is long enough; returns how many."""
    count = 0
    for i in range(len(diff)):
        rows[count] = i
        count += diff[i] * sign > 0
    return count
