"""GROUP BY over changes: one pass over a batch, answering for all its instants."""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.aggregate.kernels import candidates
from kasen.engine.aggregate.kernels.accumulate import accumulate, needed_span, settle
from kasen.engine.aggregate.kernels.blocks import BLOCK, WORTH, enter_block, entering
from kasen.engine.aggregate.kernels.report import BESIDE, report
from kasen.engine.kernels import counted, ordered
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.exact_round import SCRATCH
from kasen.engine.kernels.groups import ROWS, find_or_claim, release, stamp_group

#: Fields of `control`. What the operator fixes: how many columns are the key, how many words a record has,
#: how many parts are TREE, lists of candidates and DISTINCT, how many must be settled, and whether blocks do
#: them all.
KEYS, RECORD, TREES, QUEUES, DISTINCTS, SUMS, BLOCKS = range(7)
#: What is known of a batch without a look: that rows only enter, once each; that there are no NULLs.
ENTERING, WHOLE = range(7, 9)
#: Where the pass goes on: the next row, how many groups its instant has touched, the rows put out, the
#: instants so far. What it wants: the span of sums of doubles.
NEXT, TOUCHED, PUT_OUT, CLOCK, NEED_LOW, NEED_HIGH, CONTROL = range(9, 16)

#: Why a pass stops: all done, or the caller must make room and call again.
DONE, WANTS_SPAN, WANTS_GROUPS, WANTS_NODES, WANTS_CANDIDATES, WANTS_PAIRS, WANTS_BUFFER = range(7)

S = "uint64[::1]"


@compiled(f"int64({V}, {V}, {V}, boolean, int64, int64)")
def _block_end(ts: Any, seq_tick: Any, diff: Any, all_enter: Any, row: Any, most: Any) -> Any:
    """Up to where rows enter at the instant of this one, at most so many; `row` if not worth it."""
    n = len(ts)
    far = row + WORTH - 1
    if far >= n or ts[far] != ts[row] or seq_tick[far] != seq_tick[row]:
        return row
    # Changes are in order of their instants: the last one of a stretch tells of all before it.
    end, beyond = far + 1, min(row + most, n)
    while end < beyond:
        middle = (end + beyond) >> 1
        if ts[middle] == ts[row] and seq_tick[middle] == seq_tick[row]:
            end = middle + 1
        else:
            beyond = middle
    end = end if all_enter else entering(diff, row, end)
    return end if end - row >= WORTH else row


@compiled(
    f"int64({V}, {V}, {V}, {M}, {M}, {M}, {V}, {V}, {M}, {M}, {M}, {V}, {V}, {V}, {V}, {V}, {V}, {S})",
    inline=False,
)
def aggregate(
    ts: Any,
    seq_tick: Any,
    diff: Any,
    data: Any,
    parts: Any,
    outs: Any,
    table: Any,  # of groups
    records: Any,
    pool: Any,  # of ordered multisets
    queues: Any,  # of candidates
    pairs: Any,  # counted values
    labels: Any,
    touched: Any,  # the slots that the instant has touched; room for all
    guesses: Any,  # where groups are
    slots: Any,  # scratch, [BLOCK]
    buffer: Any,  # rows put out
    control: Any,
    scratch: Any,  # [SCRATCH + parts]
) -> Any:
    """Goes over the batch from row NEXT on and says why it stopped.

    Instants are answered one by one: all their changes go in, then each touched group is put out.
    """
    n = len(ts)
    keys = control[KEYS]
    width = control[RECORD]
    # One group needs no slots.
    most = BLOCK if keys else n
    all_enter, whole = control[ENTERING] != 0, control[WHOLE] != 0
    new_nodes = control[TREES] * ordered.MOST_NEW
    passed = scratch[SCRATCH:].view(np.int64)
    row = control[NEXT]
    count = control[TOUCHED]
    rows = control[PUT_OUT]
    clock = control[CLOCK]
    why = DONE
    if row == 0 and count == 0:
        enough, control[NEED_LOW], control[NEED_HIGH] = needed_span(data, parts)
        if not enough:
            return WANTS_SPAN
    while row < n or count > 0:
        while row < n and (count == 0 or (ts[row] == ts[row - 1] and seq_tick[row] == seq_tick[row - 1])):
            stop = _block_end(ts, seq_tick, diff, all_enter, row, most) if control[BLOCKS] else row
            if stop > row:
                row, count = enter_block(
                    data, row, stop, whole, keys, table, records, width, ROWS, 0, guesses, slots,
                    touched, count, clock, parts, pool, labels, passed,
                )  # fmt: skip
                if row < stop:
                    why = WANTS_GROUPS
                    break
                continue
            slot = find_or_claim(data, row, keys, table, records, width) if keys else 1
            if slot == 0:
                why = WANTS_GROUPS
                break
            if new_nodes and ordered.spare(pool) < new_nodes:
                why = WANTS_NODES
                break
            if control[QUEUES] and candidates.spare(queues) < control[QUEUES]:
                why = WANTS_CANDIDATES
                break
            if control[DISTINCTS] and not counted.has_room(pairs, control[DISTINCTS]):
                why = WANTS_PAIRS
                break
            base = slot * width
            count = stamp_group(records, width, slot, clock, touched, count)
            records[base + ROWS] += diff[row]
            accumulate(data, row, diff[row], parts, records, base, slot, pool, queues, pairs, labels, passed)
            row += 1
        if why == DONE and (rows + 2 * count) * (keys + len(outs) + BESIDE) > len(buffer):
            why = WANTS_BUFFER
        if why != DONE:
            break
        for i in range(count):
            slot = touched[i]
            base = slot * width
            if control[SUMS]:
                settle(parts, records, base)
            rows = report(
                buffer, rows, ts[row - 1], seq_tick[row - 1], outs, records, base, keys, pool, scratch
            )
            if keys and records[base + ROWS] == 0:
                release(slot, keys, table, records, width)
        count = 0
        clock += 1
    control[NEXT] = row
    control[TOUCHED] = count
    control[PUT_OUT] = rows
    control[CLOCK] = clock
    return why
