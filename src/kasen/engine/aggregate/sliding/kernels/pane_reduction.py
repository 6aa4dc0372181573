"""Rows of a pane reduced to a few that mean the same to COUNT, one extreme and one sum of each group."""

from __future__ import annotations

from typing import Any

from kasen.engine.aggregate.kernels.blocks import BLOCK, count_rows, find_all
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.groups import KEY, ROWS
from kasen.engine.kernels.instants import below

#: What a record holds after its key: whether there is an extreme, the extreme, the sum.
HAS, EXTREME, SUM, WORDS = range(4)

#: What the kernel says instead of how many rows it wrote: there is no room for another group; a sum might
#: not fit; the rows are hardly fewer.
WANTS_GROUPS, TOO_GREAT, TOO_MANY = -1, -2, -3

#: Values below this, and no more rows than a batch has, sum to what fits.
_MOST = 2**40

_S = "int64, int64, int64, int64"


@compiled(f"int64({V}, {M}, {_S}, int64, {V}, {V}, int64, {V}, {V}, {V}, {V}, {V}, {M}, {V})", inline=False)
def reduce_panes(
    ts: Any,
    data: Any,
    keys: Any,
    extreme: Any,  # the column of the extreme, -1 if there is none
    sign: Any,  # 1: the greatest, -1: the least
    total: Any,  # the column of the sum, -1 if there is none
    pane: Any,
    table: Any,  # of groups
    records: Any,
    width: Any,
    guesses: Any,
    slots: Any,  # scratch, [BLOCK]
    touched: Any,  # scratch: a place for every slot
    out_ts: Any,
    out_diff: Any,
    out: Any,
    stamps: Any,  # [1]: the stamp of the pane before
) -> Any:
    """How many rows were written. Rows are in order of time, enter once each, and none has a NULL.

    A group's rows of a pane become one of so many copies as there were rows, with the extreme in its column.
    A sum is that of its copies: some of them one greater than the others, so there may be two rows.
    """
    n = len(ts)
    at = KEY + keys
    count = row = 0
    while row < n:
        end = ts[row] - ts[row] % pane + pane
        last = below(ts, row, end)
        stamps[0] += 1
        groups = 0
        while row < last:
            stop = min(row + BLOCK, last)
            if find_all(data, row, stop, True, keys, table, records, width, guesses, slots) < stop:
                return WANTS_GROUPS
            groups = count_rows(records, width, ROWS, keys, slots, stop - row, touched, groups, stamps[0])
            if extreme >= 0:
                values = data[extreme, row:stop]
                for i in range(len(values)):
                    to = slots[i] * width + at
                    if not records[to + HAS] or sign * values[i] > sign * records[to + EXTREME]:
                        records[to + HAS] = 1
                        records[to + EXTREME] = values[i]
            if total >= 0:
                values = data[total, row:stop]
                bits = 0
                for i in range(len(values)):
                    bits |= values[i] ^ (values[i] >> 63)
                if bits >= _MOST:
                    return TOO_GREAT
                for i in range(len(values)):
                    records[slots[i] * width + at + SUM] += values[i]
            row = stop
        if count + 2 * groups > len(out_ts):
            return TOO_MANY
        for g in range(groups):
            base = touched[g] * width
            rows = records[base + ROWS]
            low = records[base + at + SUM] // rows
            more = records[base + at + SUM] - low * rows
            for part in range(2):
                copies = more if part else rows - more
                if copies == 0:
                    continue
                out_ts[count] = ts[last - 1]
                out_diff[count] = copies
                for column in range(len(out)):
                    out[column, count] = 0
                for k in range(keys):
                    out[k, count] = records[base + KEY + k]
                if extreme >= 0:
                    out[extreme, count] = records[base + at + EXTREME]
                if total >= 0:
                    out[total, count] = low + part
                count += 1
            records[base + ROWS] = 0
            records[base + at + HAS] = 0
            records[base + at + SUM] = 0
    return count
