"""Nets equal rows within each instant."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from kasen.engine.kernels.hashing import hash_row

I64 = npt.NDArray[np.int64]

# Up to this many changes in an instant, comparing all pairs beats a hash table.
_FEW = 8


@njit("boolean(int64[:, ::1], int64, int64)", cache=True, nogil=True)
def _equal_rows(data: I64, one: int, other: int) -> bool:
    width = len(data)
    column = 0
    while column < width and data[column, one] == data[column, other]:
        column += 1
    return column == width


@njit("UniTuple(int64[::1], 2)(int64[::1], int64[::1], int64[::1], int64[:, ::1])", cache=True, nogil=True)
def consolidate(ts: I64, seq_tick: I64, diff: I64, data: I64) -> tuple[I64, I64]:
    """Positions of the first change of each different row of each instant, and the row's net diff there.

    ts, seq_tick, diff are [n], data is [columns + 1, n], in instant order. Rows whose diffs cancel are left
    out. The answer's diffs carry multiplicity: +3 is three equal rows entering. Positions ascend.
    """
    n = ts.size
    at = np.empty(n, np.int64)
    net = np.empty(n, np.int64)
    size = 0
    table = np.empty(0, np.int64)
    begin = 0
    while begin < n:
        end = begin + 1
        while end < n and ts[end] == ts[begin] and seq_tick[end] == seq_tick[begin]:
            end += 1
        first = size
        if end - begin <= _FEW:
            for i in range(begin, end):
                k = first
                while k < size and not _equal_rows(data, at[k], i):
                    k += 1
                if k == size:
                    at[k] = i
                    net[k] = 0
                    size += 1
                net[k] += diff[i]
        else:
            room = 16
            while room < 2 * (end - begin):
                room *= 2
            if table.size < room:
                table = np.empty(room, np.int64)
            table[:room] = -1
            for i in range(begin, end):
                slot = int(hash_row(data, i)) & (room - 1)
                while table[slot] >= 0 and not _equal_rows(data, at[table[slot]], i):
                    slot = (slot + 1) & (room - 1)
                if table[slot] < 0:
                    table[slot] = size
                    at[size] = i
                    net[size] = 0
                    size += 1
                net[table[slot]] += diff[i]
        # Only now, because a row may pass through zero on the way.
        kept = first
        for k in range(first, size):
            if net[k] != 0:
                at[kept] = at[k]
                net[kept] = net[k]
                kept += 1
        size = kept
        begin = end
    return at[:size].copy(), net[:size].copy()
