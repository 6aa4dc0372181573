"""Set operations over changes: each different row's multiplicity, from how often it is left and right."""

from __future__ import annotations

from typing import Any

from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.groups import (
    KEY,
    KEY_NULLS,
    NULLS,
    REPORTED,
    ROWS,
    find_or_claim,
    release,
    stamp_group,
)

#: A row's record, the whole row being its key: how often it is left and right, how often it was put out.
LEFT, RIGHT, OUT = ROWS, NULLS, REPORTED

DISTINCT, UNION, INTERSECT, INTERSECT_ALL, EXCEPT, EXCEPT_ALL = range(6)

#: Fields of `control`: what is done, words of a record; the next row on each side, the instant under way,
#: how many different rows it has touched, the changes put out, the instants so far.
MODE, RECORD, NEXT_LEFT, NEXT_RIGHT, NOW_TS, NOW_SEQ_TICK, TOUCHED, PUT_OUT, CLOCK, CONTROL = range(10)

#: Why a pass stops: all done, or there must be room for more different rows.
DONE, WANTS_GROUPS = range(2)


@compiled("int64(int64, int64, int64)")
def multiplicity(mode: Any, left: Any, right: Any) -> Any:
    """How often a row is in the answer."""
    if mode == INTERSECT_ALL:
        return min(left, right)
    if mode == EXCEPT_ALL:
        return max(left - right, 0)
    if mode == INTERSECT:
        there = left > 0 and right > 0
    elif mode == EXCEPT:
        there = left > 0 and right == 0
    else:
        there = left + right > 0
    return 1 if there else 0


@compiled(f"UniTuple(int64, 2)({V}, {V}, {V}, {M}, int64, int64, int64, {V}, {V}, {V}, {V})")
def _take_in(
    ts: Any, seq_tick: Any, diff: Any, data: Any, row: Any, side: Any, count: Any, table: Any, records: Any,
    touched: Any, control: Any,
) -> Any:  # fmt: skip
    """Counts one side's rows of the instant under way; the next row, and how many slots are touched."""
    width = control[RECORD]
    while row < len(ts) and ts[row] == control[NOW_TS] and seq_tick[row] == control[NOW_SEQ_TICK]:
        slot = find_or_claim(data, row, len(data) - 1, table, records, width)
        if slot == 0:
            break
        count = stamp_group(records, width, slot, control[CLOCK], touched, count)
        records[slot * width + side] += diff[row]
        row += 1
    return row, count


@compiled(
    f"int64({V}, {V}, {V}, {M}, {V}, {V}, {V}, {M}, {V}, {V}, {V}, {V}, {V}, {V}, {M}, {V})", inline=False
)
def combine(
    ts: Any,
    seq_tick: Any,
    diff: Any,
    data: Any,
    right_ts: Any,
    right_seq_tick: Any,
    right_diff: Any,
    right_data: Any,
    table: Any,
    records: Any,
    touched: Any,  # the slots that the instant has touched; room for all
    out_ts: Any,  # room for as many changes as both sides have
    out_seq_tick: Any,
    out_diff: Any,
    out_data: Any,
    control: Any,
) -> Any:
    """Goes over both sides in instant order, and puts out how each row's multiplicity changes."""
    width = control[RECORD]
    columns = len(data) - 1
    i = control[NEXT_LEFT]
    j = control[NEXT_RIGHT]
    count = control[TOUCHED]
    rows = control[PUT_OUT]
    why = DONE
    while i < len(ts) or j < len(right_ts) or count > 0:
        if count == 0:
            left = j == len(right_ts)
            if i < len(ts) and not left:
                left = ts[i] < right_ts[j] or (ts[i] == right_ts[j] and seq_tick[i] <= right_seq_tick[j])
            control[NOW_TS] = ts[i] if left else right_ts[j]
            control[NOW_SEQ_TICK] = seq_tick[i] if left else right_seq_tick[j]
        i, count = _take_in(ts, seq_tick, diff, data, i, LEFT, count, table, records, touched, control)
        if i == len(ts) or ts[i] != control[NOW_TS] or seq_tick[i] != control[NOW_SEQ_TICK]:
            j, count = _take_in(
                right_ts, right_seq_tick, right_diff, right_data, j, RIGHT, count,
                table, records, touched, control,
            )  # fmt: skip
            if (
                j < len(right_ts)
                and right_ts[j] == control[NOW_TS]
                and right_seq_tick[j] == control[NOW_SEQ_TICK]
            ):
                why = WANTS_GROUPS
        else:
            why = WANTS_GROUPS
        if why != DONE:
            break
        for k in range(count):
            base = touched[k] * width
            now = multiplicity(control[MODE], records[base + LEFT], records[base + RIGHT])
            if now != records[base + OUT]:
                out_ts[rows] = control[NOW_TS]
                out_seq_tick[rows] = control[NOW_SEQ_TICK]
                out_diff[rows] = now - records[base + OUT]
                for column in range(columns):
                    out_data[column, rows] = records[base + KEY + column]
                out_data[columns, rows] = records[base + KEY_NULLS]
                records[base + OUT] = now
                rows += 1
            if records[base + LEFT] == 0 and records[base + RIGHT] == 0:
                release(touched[k], columns, table, records, width)
        count = 0
        control[CLOCK] += 1
    control[NEXT_LEFT] = i
    control[NEXT_RIGHT] = j
    control[TOUCHED] = count
    control[PUT_OUT] = rows
    return why
