"""Sliding aggregates: tuples into panes, panes into windows, and what windows report at each k * slide."""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.aggregate.kernels.accumulate import accumulate, needed_span, settle
from kasen.engine.aggregate.kernels.blocks import BLOCK, WORTH, enter_block, entering
from kasen.engine.aggregate.kernels.candidates import spare
from kasen.engine.aggregate.kernels.report import BESIDE, report
from kasen.engine.aggregate.sliding.kernels.panes import (
    CHANGED,
    END,
    NEVER,
    PANE_ROWS,
    RECORD,
    RUN,
    ceiling,
    leave,
    pane_end,
    push,
)
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.exact_round import SCRATCH
from kasen.engine.kernels.groups import KEY_NULLS, ROWS, USED, find_or_claim, release, stamp_group
from kasen.engine.kernels.instants import below

S = "uint64[::1]"

#: Fields of `control`. What the operator fixes: how many columns are the key, the window's length and slide,
#: where a record holds the window's bounds (0: nowhere), how many parts are extremes.
KEYS, LENGTH, SLIDE, BOUNDS, EXTREMES = range(5)
#: What is known of a batch without a look: that rows only enter, once each; that there are no NULLs.
ENTERING, WHOLE = range(5, 7)
#: Where the pass goes on: the next row; up to which boundary; the rows put out.
NEXT, LIMIT, PUT_OUT = range(7, 10)
#: The open pane: where it ends, how many groups it has, and the stamp that these carry.
OPEN_END, OPEN, STAMPED = range(10, 13)
#: Groups whose windows changed since the last report: how many, their stamp, the boundary to report at.
DIRTY, DIRTY_STAMP, DIRTY_AT = range(13, 16)
#: The ring's oldest entry and the next one to be made. The last tuple in any window, and the next boundary
#: at which the window itself reports, be it for the bounds alone.
OLDEST, NEWEST, LAST, REPORT_AT = range(16, 20)
#: The instant at which the group of no keys appears, if it has not yet. Rows since sums were settled.
BEGINS, BEGIN_TS, BEGIN_SEQ_TICK, UNSETTLED = range(20, 24)
NEED_LOW, NEED_HIGH, CONTROL = range(24, 27)

#: Why a pass stops: all done, or the caller must make room and call again.
DONE, WANTS_SPAN, WANTS_GROUPS, WANTS_RING, WANTS_CANDIDATES, WANTS_BUFFER = range(6)

_SETTLE_AFTER = 2**26


@compiled(f"int64({V}, {M})")
def next_boundary(control: Any, ring: Any) -> Any:
    """The next k * slide at which something may change or is reported, of what is already in windows."""
    boundary = control[REPORT_AT]
    if control[DIRTY]:
        boundary = min(boundary, control[DIRTY_AT])
    if control[OLDEST] < control[NEWEST]:
        end = ring[control[OLDEST] & (len(ring) - 1), END]
        boundary = min(boundary, ceiling(end + control[LENGTH], control[SLIDE]))
    return boundary


@compiled(f"void({V}, {V}, {V}, {V}, int64, int64)")
def _mark(control: Any, shape: Any, records: Any, dirty: Any, slot: Any, boundary: Any) -> None:
    """Notes that a group must be looked at when `boundary` is reported."""
    at = slot * shape[RECORD] + shape[CHANGED]
    if records[at] != control[DIRTY_STAMP]:
        records[at] = control[DIRTY_STAMP]
        dirty[control[DIRTY]] = slot
        control[DIRTY] += 1
    control[DIRTY_AT] = boundary


@compiled(f"int64({V}, {V}, {M}, {V}, {M}, {V}, {V}, {M}, {V})", inline=False)
def _close_pane(
    control: Any, shape: Any, parts: Any, records: Any, ring: Any, opened: Any, dirty: Any, queues: Any,
    labels: Any,
) -> Any:  # fmt: skip
    """Turns the open pane into entries, or says what has no room for them."""
    if control[NEWEST] - control[OLDEST] + control[OPEN] > len(ring):
        return WANTS_RING
    if spare(queues) < control[OPEN] * control[EXTREMES]:
        return WANTS_CANDIDATES
    end = control[OPEN_END]
    boundary = ceiling(end, control[SLIDE])
    for i in range(control[OPEN]):
        push(shape, parts, records, opened[i], end, ring, control[NEWEST], queues, labels)
        control[NEWEST] += 1
        _mark(control, shape, records, dirty, opened[i], boundary)
    control[OPEN] = 0
    control[STAMPED] += 1
    return DONE


@compiled(f"boolean({V}, {V}, {M}, {M}, {V}, {V}, {M}, {V}, {M}, {M}, {V}, {S}, int64)", inline=False)
def _report(
    control: Any, shape: Any, parts: Any, outs: Any, table: Any, records: Any, ring: Any, dirty: Any,
    queues: Any, pool: Any, buffer: Any, scratch: Any, boundary: Any,
) -> Any:  # fmt: skip
    """Lets go of the panes before the window that ends at `boundary`, and reports the groups that changed.

    False if the buffer has no room; nothing is lost then, and the next try goes on from there.
    """
    keys = control[KEYS]
    width = shape[RECORD]
    begin = boundary - control[LENGTH]
    while control[OLDEST] < control[NEWEST] and ring[control[OLDEST] & (len(ring) - 1), END] <= begin:
        slot = leave(shape, parts, records, ring, control[OLDEST], queues)
        control[OLDEST] += 1
        _mark(control, shape, records, dirty, slot, boundary)
    if control[BOUNDS]:
        for slot in range(1, records[USED] + 1):
            if records[slot * width + KEY_NULLS] != -1:
                _mark(control, shape, records, dirty, slot, boundary)
    if (control[PUT_OUT] + 2 * control[DIRTY]) * (keys + len(outs) + BESIDE) > len(buffer):
        return False
    for i in range(control[DIRTY]):
        base = dirty[i] * width
        if control[BOUNDS]:
            at = base + control[BOUNDS]
            records[at] = 1
            records[at + 1] = begin
            records[at + 2] = 1
            records[at + 3] = boundary
        settle(parts, records, base)
        rows = control[PUT_OUT]
        control[PUT_OUT] = report(buffer, rows, boundary, 0, outs, records, base, keys, pool, scratch)
        if keys and records[base + ROWS] == 0:
            release(dirty[i], keys, table, records, width)
    control[DIRTY] = 0
    control[DIRTY_STAMP] += 1
    if control[REPORT_AT] <= boundary:
        control[REPORT_AT] = boundary + control[SLIDE] if control[LAST] >= begin else NEVER
    return True


@compiled(f"int64({V}, {V}, {M}, {M}, {V}, {V}, {M}, {V}, {V}, {M}, {M}, {V}, {V}, {S}, int64)", inline=False)
def _advance(
    control: Any, shape: Any, parts: Any, outs: Any, table: Any, records: Any, ring: Any, opened: Any,
    dirty: Any, queues: Any, pool: Any, labels: Any, buffer: Any, scratch: Any, limit: Any,
) -> Any:  # fmt: skip
    """Closes the pane and reports at boundaries, in time order, as far as they are not beyond `limit`."""
    while True:
        boundary = next_boundary(control, ring)
        if control[OPEN] and control[OPEN_END] <= min(boundary, limit):
            why = _close_pane(control, shape, parts, records, ring, opened, dirty, queues, labels)
            if why != DONE:
                return why
        elif boundary > limit:
            return DONE
        elif not _report(
            control, shape, parts, outs, table, records, ring, dirty, queues, pool, buffer, scratch, boundary
        ):
            return WANTS_BUFFER


@compiled(
    f"int64({V}, {V}, {M}, {M}, {M}, {V}, {V}, {M}, {V}, {V}, {V}, {V}, {M}, {M}, {V}, {V}, {V}, {V}, {S})",
    inline=False,
)
def slide(
    ts: Any,
    diff: Any,
    data: Any,
    parts: Any,
    outs: Any,
    table: Any,  # of groups
    records: Any,
    ring: Any,
    opened: Any,  # the slots of the open pane's groups; room for all
    dirty: Any,  # the slots of the groups that changed; room for all
    guesses: Any,  # where groups are
    slots: Any,  # scratch, [BLOCK]
    queues: Any,  # of candidates
    pool: Any,  # not used by any part of a pane
    labels: Any,
    buffer: Any,  # rows put out
    control: Any,
    shape: Any,
    scratch: Any,  # [SCRATCH + parts]
) -> Any:
    """Goes over the stream from row NEXT on, then up to LIMIT, and says why it stopped.

    A tuple of diff 0 is in its window, so that this reports, but in no aggregate: a condition held it back.
    """
    n = len(ts)
    keys = control[KEYS]
    width = shape[RECORD]
    length = control[LENGTH]
    step = control[SLIDE]
    all_enter, whole = control[ENTERING] != 0, control[WHOLE] != 0
    passed = scratch[SCRATCH:].view(np.int64)
    row = control[NEXT]
    if row == 0:
        enough, control[NEED_LOW], control[NEED_HIGH] = needed_span(data, parts)
        if not enough:
            return WANTS_SPAN
    if control[BEGINS]:
        control[BEGINS] = 0
        base = width
        rows = control[PUT_OUT]
        control[PUT_OUT] = report(
            buffer, rows, control[BEGIN_TS], control[BEGIN_SEQ_TICK], outs, records, base, keys, pool, scratch
        )
    while True:
        limit = ts[row] if row < n else control[LIMIT]
        why = _advance(
            control, shape, parts, outs, table, records, ring, opened, dirty, queues, pool, labels,
            buffer, scratch, limit,
        )  # fmt: skip
        if why != DONE or row == n:
            break
        end = pane_end(ts[row], length, step)
        boundary = ceiling(end, step)
        if ts[row] < boundary - length:  # between two windows
            while row < n and ts[row] < end:
                row += 1
            continue
        control[OPEN_END] = end
        control[REPORT_AT] = min(control[REPORT_AT], boundary) if control[BOUNDS] else NEVER
        count = control[OPEN]
        stamp = control[STAMPED]
        first = row
        last = below(ts, row, end)
        while row < last:
            stop = min(row + BLOCK, last)
            if not all_enter:
                stop = entering(diff, row, stop)
            if stop - row >= WORTH:
                row, count = enter_block(
                    data, row, stop, whole, keys, table, records, width, shape[PANE_ROWS], shape[RUN],
                    guesses, slots, opened, count, stamp, parts, pool, labels, passed,
                )  # fmt: skip
                if row < stop:
                    why = WANTS_GROUPS
                    break
                continue
            if diff[row]:
                slot = find_or_claim(data, row, keys, table, records, width) if keys else 1
                if slot == 0:
                    why = WANTS_GROUPS
                    break
                count = stamp_group(records, width, slot, stamp, opened, count)
                base = slot * width
                records[base + shape[PANE_ROWS]] += diff[row]
                at = base + shape[RUN]
                accumulate(data, row, diff[row], parts, records, at, slot, pool, pool, data, labels, passed)
            row += 1
        control[OPEN] = count
        control[UNSETTLED] += row - first
        if row > first:
            control[LAST] = ts[row - 1]
        if why != DONE:
            break
    control[NEXT] = row
    if control[UNSETTLED] > _SETTLE_AFTER:
        control[UNSETTLED] = 0
        for i in range(control[OPEN]):
            settle(parts, records, opened[i] * width + shape[RUN])
    return why
