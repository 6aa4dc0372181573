"""Panes of sliding windows: each tuple is reduced once into its pane; windows take panes in and let them go.

A pane is a stretch of time in which no window begins or ends: it is cut at every k * slide and at every
k * slide - length. That is at most two panes a slide, never more than by the greatest common divisor.

A group's record holds two runs of parts, one for its window and one for its open pane. When a pane closes,
each of its groups' runs becomes an entry of `ring` and is added to the group's window; when the pane has
left the window, the entry is subtracted, which is exact. Extremes cannot be subtracted: for each of them a
group's entries form a list of those that may still become the extreme, the best one first. So a pane
costs the same however many panes a window has.

`ring` [power of two, words]: entry number e lies in row e & (rows - 1). Numbers ascend from 1; 0 is none.
"""

from __future__ import annotations

from typing import Any

from kasen.kernels.accumulate import (
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
from kasen.kernels.compiled import M, V, compiled
from kasen.kernels.exact_sum import add128
from kasen.kernels.groups import ROWS
from kasen.kernels.ordered import rank

#: Fields of `shape`: words of a record; where its parts begin, how many words a run of them has, where its
#: links begin; where the words of the open pane's row count and of the stamp for changed groups are.
RECORD, FIRST, RUN, LINKS, PANE_ROWS, CHANGED, SHAPE = range(7)

#: An entry: the group's slot, the end of the pane, its rows, then the parts, then two links an extreme.
SLOT, END, ENTRY_ROWS, PARTS = range(4)
#: Links of a record: the first and last entry of the list. Links of an entry: the one before, the one after.
HEAD, TAIL = 0, 1
BEFORE, AFTER = 0, 1

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


@compiled(f"void({V}, int64, int64, {M}, int64)")
def _show_extreme(records: Any, to: Any, head: Any, ring: Any, at: Any) -> None:
    """Copies the best entry's value to the window's run."""
    records[to] = 0
    records[to + 1] = 0
    if head:
        records[to] = 1
        records[to + 1] = ring[head & (len(ring) - 1), at + 1]


@compiled(f"void({V}, {M}, {V}, int64, {M}, int64, {V})")
def _enter_lists(shape: Any, parts: Any, records: Any, base: Any, ring: Any, entry: Any, labels: Any) -> None:
    """Puts a new entry at the end of its group's lists; worse entries before it can never be best again."""
    mask = len(ring) - 1
    row = entry & mask
    link = 0
    for p in range(len(parts)):
        op = parts[p, OP]
        if op != LEAST and op != GREATEST:
            continue
        at = PARTS + parts[p, AT] - shape[FIRST]
        ends = base + shape[LINKS] + link
        links = PARTS + shape[RUN] + link
        link += 2
        if not ring[row, at]:
            continue
        new = rank(ring[row, at + 1], parts[p, ORDER], labels)
        last = records[ends + TAIL]
        while last:
            old = rank(ring[last & mask, at + 1], parts[p, ORDER], labels)
            if (old < new) if op == LEAST else (old > new):
                break
            last = ring[last & mask, links + BEFORE]
        ring[row, links + BEFORE] = last
        ring[row, links + AFTER] = 0
        if last:
            ring[last & mask, links + AFTER] = entry
        else:
            records[ends + HEAD] = entry
        records[ends + TAIL] = entry
        _show_extreme(records, base + parts[p, AT], records[ends + HEAD], ring, at)


@compiled(f"void({V}, {M}, {V}, int64, {M}, int64)")
def _leave_lists(shape: Any, parts: Any, records: Any, base: Any, ring: Any, entry: Any) -> None:
    """Takes the group's oldest entry out of its lists: it can only be the first there."""
    mask = len(ring) - 1
    link = 0
    for p in range(len(parts)):
        if parts[p, OP] != LEAST and parts[p, OP] != GREATEST:
            continue
        ends = base + shape[LINKS] + link
        links = PARTS + shape[RUN] + link
        link += 2
        if records[ends + HEAD] != entry:
            continue
        head = ring[entry & mask, links + AFTER]
        records[ends + HEAD] = head
        if head:
            ring[head & mask, links + BEFORE] = 0
        else:
            records[ends + TAIL] = 0
        _show_extreme(records, base + parts[p, AT], head, ring, PARTS + parts[p, AT] - shape[FIRST])


@compiled(f"void({V}, {M}, {V}, int64, int64, {M}, int64, {V})", inline=False)
def push(
    shape: Any, parts: Any, records: Any, slot: Any, end: Any, ring: Any, entry: Any, labels: Any
) -> None:
    """Closes a group's pane: its run becomes an entry and part of the window. The ring has room."""
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
    _enter_lists(shape, parts, records, base, ring, entry, labels)


@compiled(f"int64({V}, {M}, {V}, {M}, int64)", inline=False)
def leave(shape: Any, parts: Any, records: Any, ring: Any, entry: Any) -> Any:
    """Takes the oldest entry out of its group's window; the group's slot."""
    row = entry & (len(ring) - 1)
    slot = ring[row, SLOT]
    base = slot * shape[RECORD]
    _add_entry(parts, records, base, ring, row, shape[FIRST], -1)
    _leave_lists(shape, parts, records, base, ring, entry)
    return slot
