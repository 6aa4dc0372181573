"""Puts out what became of a group: its old row leaves, its new row enters, nothing if they are equal.

A record holds, after the key, the values of the row that was put out last. Rows are put out into `buffer`,
one after the other, as (ts, seq_tick, diff, key, values, NULL bits), and turned into columns at the end.
"""

from __future__ import annotations

from typing import Any

from kasen.engine.aggregate.kernels.render import render
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.groups import KEY, KEY_NULLS, NULLS, REPORTED, ROWS

S = "uint64[::1]"

#: Words of a row in front of its columns (ts, seq_tick, diff), and beside them in all (the NULL bits too).
FRONT, BESIDE = 3, 4

# So many rows at a time are turned into columns: both sides stay in the cache.
_BLOCK = 256


@compiled(f"void({V}, int64, int64, int64, int64, {V}, int64, int64)")
def _put_front(
    buffer: Any, at: Any, ts: Any, seq_tick: Any, diff: Any, records: Any, base: Any, keys: Any
) -> None:
    buffer[at] = ts
    buffer[at + 1] = seq_tick
    buffer[at + 2] = diff
    for k in range(keys):
        buffer[at + FRONT + k] = records[base + KEY + k]


@compiled(f"int64({V}, int64, int64, int64, {M}, {V}, int64, int64, {M}, {S})")
def report(
    buffer: Any,
    rows: Any,  # in the buffer already
    ts: Any,
    seq_tick: Any,
    outs: Any,
    records: Any,
    base: Any,  # where the group's record begins
    keys: Any,
    pool: Any,
    scratch: Any,
) -> Any:
    """The rows in the buffer after the group's changes at an instant, at most two more. Needs that room.

    A group has a row while it has rows; the one group of no keys always has.
    """
    calls = len(outs)
    size = keys + calls + BESIDE
    last = base + KEY + keys
    reported = records[base + REPORTED]
    old = rows * size
    new = old + size if reported else old
    if records[base + ROWS] > 0 or keys == 0:
        nulls = 0
        changed = not reported
        values = new + FRONT + keys
        for call in range(calls):
            value, null = render(outs, call, records, base, pool, scratch)
            buffer[values + call] = value
            nulls |= null << call
            changed |= value != records[last + call]
        if not changed and nulls == records[base + NULLS]:
            return rows
        _put_front(buffer, new, ts, seq_tick, 1, records, base, keys)
        buffer[values + calls] = nulls << keys | records[base + KEY_NULLS]
        rows += 1
    elif not reported:
        return rows
    if reported:
        _put_front(buffer, old, ts, seq_tick, -1, records, base, keys)
        for call in range(calls):
            buffer[old + FRONT + keys + call] = records[last + call]
        buffer[old + FRONT + keys + calls] = records[base + NULLS] << keys | records[base + KEY_NULLS]
        rows += 1
    records[base + REPORTED] = 0
    if records[base + ROWS] > 0 or keys == 0:
        records[base + REPORTED] = 1
        records[base + NULLS] = nulls
        for call in range(calls):
            records[last + call] = buffer[values + call]
    return rows


@compiled(f"void({V}, int64, {V}, {V}, {V}, {M}, int64)", inline=False)
def to_columns(buffer: Any, rows: Any, ts: Any, seq_tick: Any, diff: Any, data: Any, first: Any) -> None:
    """Writes the buffer's rows as columns, from position `first` on."""
    words = len(data)
    size = words + FRONT
    for begin in range(0, rows, _BLOCK):
        end = min(begin + _BLOCK, rows)
        for row in range(begin, end):
            ts[first + row] = buffer[row * size]
            seq_tick[first + row] = buffer[row * size + 1]
            diff[first + row] = buffer[row * size + 2]
        for word in range(words):
            for row in range(begin, end):
                data[word, first + row] = buffer[row * size + FRONT + word]
