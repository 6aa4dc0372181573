"""Panes of sliding windows: each tuple is reduced once into its pane; windows take panes in and let them go.

A pane is a stretch of time in which no window begins or ends: it is cut at every k * slide and at every
k * slide - length. That is at most two panes a slide, never more than by the greatest common divisor.

A group's record holds two runs of parts, one for its window and one for its open pane. When a pane closes,
each of its groups' runs becomes an entry of `ring` and is added to the group's window; when the pane has
left the window, the entry is subtracted, which is exact. Extremes cannot be subtracted: for each of them a
group has a list of candidates (see candidates), the entries that may still become the extreme, the best one
first. They lie close together, apart from the entries, so that a pane costs the same however many panes a
window has, and however far back they lie in memory.

`ring` [power of two, words]: entry number e lies in row e & (rows - 1). Numbers ascend from 1; 0 is none.
"""

from __future__ import annotations

from typing import Any

from kasen.engine.aggregate.kernels.accumulate import (
    AT,
    COUNT,
    GREATEST,
    LEAST,
    OP,
    ORDER,
    SQUARE_DOUBLE,
    SQUARE_INTEGER,
    SUM_DOUBLE,
    SUM_INTEGER,
    WIDTH,
    settle,
)
from kasen.engine.aggregate.kernels.candidates import NEWER, OLDER, TIMES, VALUE, give_back, take
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.exact_sum import add128
from kasen.engine.kernels.groups import ROWS
from kasen.engine.kernels.ordered import rank

#: Fields of `shape`: words of a record; where its parts begin, how many words a run of them has, where its
#: links begin; where the words of the open pane's row count and of the stamp for changed groups are.
RECORD, FIRST, RUN, LINKS, PANE_ROWS, CHANGED, SHAPE = range(7)

#: An entry: the group's slot, the end of the pane, its rows, then the parts.
SLOT, END, ENTRY_ROWS, PARTS = range(4)
#: Links of a record: for each extreme the first and last of its candidates.
HEAD, TAIL, ENDS = range(3)
#: A candidate holds the number of its entry where candidates of single rows hold a count.
ENTRY = TIMES

NEVER = 2**62


@compiled("int64(int64, int64)")
def ceiling(ts: Any, step: Any) -> Any:
    """The first multiple of `step` that is not below `ts`."""
    return -(-ts // step) * step


@compiled("int64(int64, int64, int64)")
def pane_end(ts: Any, length: Any, slide: Any) -> Any:
    """Where the pane of a tuple ends."""
    window_ends = (ts // slide + 1) * slide
    window_begins = ((ts + length) // slide + 1) * slide - length
    return min(window_ends, window_begins)


@compiled("int64(int64, int64, int64)")
def pane_begin(end: Any, length: Any, slide: Any) -> Any:
    """Where the pane that ends at `end` begins."""
    window_ends = (end - 1) // slide * slide
    window_begins = (end - 1 + length) // slide * slide - length
    return max(window_ends, window_begins)


@compiled(f"void({M}, {V}, int64, {M}, int64, int64, int64)")
def _add_entry(parts: Any, records: Any, base: Any, ring: Any, row: Any, first: Any, sign: Any) -> None:
    """Adds an entry to a group's window, or subtracts it. Extremes are left out."""
    records[base + ROWS] += sign * ring[row, ENTRY_ROWS]
    for p in range(len(parts)):
        op = parts[p, OP]
        to = base + parts[p, AT]
        at = PARTS + parts[p, AT] - first
        if op == SUM_INTEGER:
            low = ring[row, at]
            high = ring[row, at + 1]
            if sign < 0:
                low = -low
                high = ~high + (1 if low == 0 else 0)
            add128(records, to, low, high)
            continue
        words = 0
        if op == COUNT:
            words = 1
        elif op == SUM_DOUBLE:
            words = 3 + parts[p, WIDTH]
        elif op == SQUARE_INTEGER:
            words = 8
        elif op == SQUARE_DOUBLE:
            words = 2 * parts[p, WIDTH]
        for word in range(words):
            records[to + word] += sign * ring[row, at + word]


@compiled(f"void({V}, {M}, {V}, int64, {M}, int64, {M}, {V})")
def _enter_lists(
    shape: Any, parts: Any, records: Any, base: Any, ring: Any, entry: Any, queues: Any, labels: Any
) -> None:
    """Puts a new entry at the end of its group's lists; worse entries before it can never be best again."""
    row = entry & (len(ring) - 1)
    ends = base + shape[LINKS] - ENDS
    for p in range(len(parts)):
        op = parts[p, OP]
        if op != LEAST and op != GREATEST:
            continue
        ends += ENDS
        at = PARTS + parts[p, AT] - shape[FIRST]
        if not ring[row, at]:
            continue
        value = ring[row, at + 1]
        new = rank(value, parts[p, ORDER], labels)
        last = records[ends + TAIL]
        while last:
            old = rank(queues[last, VALUE], parts[p, ORDER], labels)
            if (old < new) if op == LEAST else (old > new):
                break
            older = queues[last, OLDER]
            give_back(queues, last)
            last = older
        candidate = take(queues)
        queues[candidate, VALUE] = value
        queues[candidate, ENTRY] = entry
        queues[candidate, OLDER] = last
        queues[candidate, NEWER] = 0
        records[ends + TAIL] = candidate
        if last:
            queues[last, NEWER] = candidate
        else:
            records[ends + HEAD] = candidate
            records[base + parts[p, AT]] = 1
            records[base + parts[p, AT] + 1] = value


@compiled(f"void({V}, {M}, {V}, int64, {M}, int64)")
def _leave_lists(shape: Any, parts: Any, records: Any, base: Any, queues: Any, entry: Any) -> None:
    """Takes the group's oldest entry out of its lists: it can only be the first there."""
    ends = base + shape[LINKS] - ENDS
    for p in range(len(parts)):
        if parts[p, OP] != LEAST and parts[p, OP] != GREATEST:
            continue
        ends += ENDS
        head = records[ends + HEAD]
        if head == 0 or queues[head, ENTRY] != entry:
            continue
        newer = queues[head, NEWER]
        give_back(queues, head)
        records[ends + HEAD] = newer
        records[base + parts[p, AT]] = 0
        records[base + parts[p, AT] + 1] = 0
        if newer:
            queues[newer, OLDER] = 0
            records[base + parts[p, AT]] = 1
            records[base + parts[p, AT] + 1] = queues[newer, VALUE]
        else:
            records[ends + TAIL] = 0


@compiled(f"void({V}, {M}, {V}, int64, int64, {M}, int64, {M}, {V})", inline=False)
def push(
    shape: Any,
    parts: Any,
    records: Any,
    slot: Any,
    end: Any,
    ring: Any,
    entry: Any,
    queues: Any,
    labels: Any,
) -> None:
    """Closes a group's pane: its run becomes an entry and part of the window.

    The ring has room, and there is a spare candidate for each extreme.
    """
    base = slot * shape[RECORD]
    pane = base + shape[RUN]
    settle(parts, records, pane)
    row = entry & (len(ring) - 1)
    ring[row, SLOT] = slot
    ring[row, END] = end
    ring[row, ENTRY_ROWS] = records[base + shape[PANE_ROWS]]
    records[base + shape[PANE_ROWS]] = 0
    for word in range(shape[RUN]):
        ring[row, PARTS + word] = records[pane + shape[FIRST] + word]
        records[pane + shape[FIRST] + word] = 0
    _add_entry(parts, records, base, ring, row, shape[FIRST], 1)
    _enter_lists(shape, parts, records, base, ring, entry, queues, labels)


@compiled(f"int64({V}, {M}, {V}, {M}, int64, {M})", inline=False)
def leave(shape: Any, parts: Any, records: Any, ring: Any, entry: Any, queues: Any) -> Any:
    """Takes the oldest entry out of its group's window; the group's slot."""
    row = entry & (len(ring) - 1)
    slot = ring[row, SLOT]
    base = slot * shape[RECORD]
    _add_entry(parts, records, base, ring, row, shape[FIRST], -1)
    _leave_lists(shape, parts, records, base, queues, entry)
    return slot
