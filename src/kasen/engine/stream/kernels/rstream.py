"""RSTREAM: a bag that takes in changes, and is put out whole at given instants."""

from __future__ import annotations

from typing import Any

from kasen.engine.aggregate.kernels.report import FRONT
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.groups import KEY, KEY_NULLS, ROWS, find_or_claim, release

#: Fields of `control`: the next change, the next firing, the rows put out; how many different rows there are,
#: and how many rows in all.
NEXT, FIRING, PUT_OUT, DIFFERENT, SIZE, CONTROL = range(6)

#: Why a pass stops: all done, or the caller must make room and call again.
DONE, WANTS_GROUPS, WANTS_BUFFER = range(3)


@compiled(f"boolean({M}, int64, int64, {V}, {V}, {V}, {V})")
def _take_in(data: Any, row: Any, weight: Any, table: Any, records: Any, there: Any, control: Any) -> Any:
    """Counts a row of `data`; False if there is no room for one more."""
    columns = len(data) - 1
    width = KEY + columns + 1
    place = width - 1
    slot = find_or_claim(data, row, columns, table, records, width)
    if slot == 0:
        return False
    base = slot * width
    if records[base + place] == 0:
        there[control[DIFFERENT]] = slot
        control[DIFFERENT] += 1
        records[base + place] = control[DIFFERENT]
    records[base + ROWS] += weight
    control[SIZE] += weight
    if records[base + ROWS] == 0:
        control[DIFFERENT] -= 1
        last = there[control[DIFFERENT]]
        there[records[base + place] - 1] = last
        records[last * width + place] = records[base + place]
        release(slot, columns, table, records, width)
    return True


@compiled(f"void(int64, int64, int64, {V}, {V}, {V}, {V})")
def _put_out(
    columns: Any, ts: Any, seq_tick: Any, records: Any, there: Any, buffer: Any, control: Any
) -> None:
    """The whole bag at an instant. The buffer has room."""
    width = KEY + columns + 1
    at = control[PUT_OUT] * (FRONT + columns + 1)
    for i in range(control[DIFFERENT]):
        base = there[i] * width
        for _ in range(records[base + ROWS]):
            buffer[at] = ts
            buffer[at + 1] = seq_tick
            buffer[at + 2] = 1
            at += FRONT
            for column in range(columns):
                buffer[at + column] = records[base + KEY + column]
            at += columns
            buffer[at] = records[base + KEY_NULLS]
            at += 1
    control[PUT_OUT] += control[SIZE]


@compiled(f"int64({V}, {V}, {V}, {M}, {V}, {V}, {V}, {V}, {V}, {V}, {V})", inline=False)
def fire(
    ts: Any,
    seq_tick: Any,
    diff: Any,
    data: Any,
    fire_ts: Any,
    fire_seq_tick: Any,
    table: Any,
    records: Any,  # of the different rows; the last word of each is its place in `there`, from 1
    there: Any,  # the slots of the rows that are in the bag; room for all
    buffer: Any,  # rows put out
    control: Any,
) -> Any:
    """Goes over changes and firings in instant order, and says why it stopped.

    Within an instant a row may leave before it enters, so that it is there less than no times for a while.
    """
    n = len(ts)
    while control[NEXT] < n or control[FIRING] < len(fire_ts):
        f = control[FIRING]
        i = control[NEXT]
        while i < n and (
            f == len(fire_ts)
            or ts[i] < fire_ts[f]
            or (ts[i] == fire_ts[f] and seq_tick[i] <= fire_seq_tick[f])
        ):
            if not _take_in(data, i, diff[i], table, records, there, control):
                control[NEXT] = i
                return WANTS_GROUPS
            i += 1
        control[NEXT] = i
        if f < len(fire_ts):
            if (control[PUT_OUT] + control[SIZE]) * (FRONT + len(data)) > len(buffer):
                return WANTS_BUFFER
            _put_out(len(data) - 1, fire_ts[f], fire_seq_tick[f], records, there, buffer, control)
            control[FIRING] += 1
    return DONE
