"""Rows of one stretch go into their groups a block at a time: a short loop for each part, not one for all.

What a row costs in `accumulate` is mostly finding out what to do. Here that is found out once a block, and
the loops that are left do nothing but the arithmetic. A block's slots and values stay in the cache between
them. For rows that enter once each; parts that take from a pool or depend on one another are not done here.

Loops run over slices and from 0, and places in records are unsigned: else every access first asks whether
its index counts from the end, which takes as long as the arithmetic and keeps the compiler from doing
several rows at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.aggregate.kernels.accumulate import (
    AT,
    COLUMN,
    COUNT,
    GREATEST,
    LEAST,
    OP,
    ORDER,
    SQUARE_DOUBLE,
    SQUARE_INTEGER,
    SUM_DOUBLE,
    SUM_INTEGER,
    accumulate,
)
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.exact_sum import add128, add_integer
from kasen.engine.kernels.groups import KEY, KEY_NULLS, STAMP, find_or_claim
from kasen.engine.kernels.hashing import GOLDEN
from kasen.engine.kernels.ordered import INTEGER

#: How many rows a block has at most; and from how many rows on it is worth its while.
BLOCK, WORTH = 1024, 16

_STRIDE = 32

#: How many guesses there are of where a key's group is.
GUESSES = 4096
_SHIFT = np.uint64(64 - 12)

_KEY, _KEY_NULLS, _STAMP, _NEXT = np.uint64(KEY), np.uint64(KEY_NULLS), np.uint64(STAMP), np.uint64(1)

#: The parts that blocks do.
DONE_HERE = (COUNT, SUM_INTEGER, SUM_DOUBLE, SQUARE_INTEGER, SQUARE_DOUBLE, LEAST, GREATEST)


@compiled(f"int64({V}, int64, int64)")
def entering(diff: Any, first: Any, last: Any) -> Any:
    """Up to where, from `first` on, the rows enter once each."""
    while first < last:
        part = diff[first : min(first + _STRIDE, last)]
        others = 0
        for i in range(len(part)):  # no way out of the loop, so that it goes over several rows at a time
            others += part[i] != 1
        if others:
            break
        first += len(part)
    while first < last and diff[first] == 1:
        first += 1
    return first


@compiled(f"int64({M}, int64, int64, boolean, {V}, {V}, int64, {V}, {V})", inline=False)
def _find_by_one_key(
    data: Any, first: Any, last: Any, whole: Any, table: Any, records: Any, width: Any, guesses: Any,
    slots: Any,
) -> Any:  # fmt: skip
    """`find_all` of a key of one column."""
    key = data[0, first:last]
    nulls = data[len(data) - 1, first:last]
    step = np.uint64(width)
    for i in range(len(key)):
        missing = 0 if whole else nulls[i] & 1
        place = ((np.uint64(missing) ^ np.uint64(key[i])) * GOLDEN) >> _SHIFT
        slot = np.uint64(guesses[place])
        base = slot * step
        if slot == 0 or records[base + _KEY] != key[i] or records[base + _KEY_NULLS] != missing:
            claimed = find_or_claim(data, first + i, 1, table, records, width)
            if claimed == 0:
                return first + i
            guesses[place] = claimed
            slot = np.uint64(claimed)
        slots[i] = np.int64(slot)
    return last


@compiled(f"int64({M}, int64, int64, boolean, int64, {V}, {V}, int64, {V}, {V})", inline=False)
def find_all(
    data: Any,
    first: Any,
    last: Any,
    whole: Any,  # known to have no NULLs
    keys: Any,
    table: Any,
    records: Any,
    width: Any,
    guesses: Any,
    slots: Any,
) -> Any:
    """Writes the slots of the groups of rows [first, last); returns `last`, or the row that found no room.

    `guesses` [GUESSES]: the slot that a key of this cheap hash had last, or 0. A guess may be of any age,
    because the record itself tells whether it is right.
    """
    if keys == 1:
        return _find_by_one_key(data, first, last, whole, table, records, width, guesses, slots)
    part = data[:, first:last]
    nulls = part[len(data) - 1]
    mask = (1 << keys) - 1
    for i in range(last - first):
        missing = nulls[i] & mask
        state = np.uint64(missing)
        for k in range(keys):
            state = (state ^ np.uint64(part[k, i])) * GOLDEN
        place = np.int64(state >> _SHIFT)
        slot = guesses[place]
        base = slot * width
        k = 0
        if slot and records[base + KEY_NULLS] == missing:
            while k < keys and records[base + KEY + k] == part[k, i]:
                k += 1
        if k < keys:
            slot = find_or_claim(data, first + i, keys, table, records, width)
            if slot == 0:
                return first + i
            guesses[place] = slot
        slots[i] = slot
    return last


@compiled(f"int64({V}, int64, int64, int64, {V}, int64, {V}, int64, int64)", inline=False)
def count_rows(
    records: Any,
    width: Any,
    at: Any,  # where in a record the rows are counted
    keys: Any,
    slots: Any,
    size: Any,  # how many rows the block has
    touched: Any,  # the slots that carry the stamp; room for all
    count: Any,  # how many there are
    stamp: Any,
) -> Any:
    """Counts a block's rows in their groups' records; how many slots carry the stamp after that."""
    step, to = np.uint64(width), np.uint64(at)
    for i in range(size if keys else 1):
        slot = slots[i] if keys else 1
        base = np.uint64(slot) * step
        records[base + to] += 1 if keys else size
        if records[base + _STAMP] != stamp:
            records[base + _STAMP] = stamp
            touched[count] = slot
            count += 1
    return count


@compiled(f"void({V}, int64, int64, int64, {V}, int64)")
def _add_to_one(values: Any, first: Any, last: Any, op: Any, records: Any, at: Any) -> None:
    """A part of a single group: the loop keeps it in registers."""
    part = values[first:last]
    if op == COUNT:
        records[at] += last - first
    elif op == SUM_INTEGER:
        low = np.uint64(0)
        high = 0
        for i in range(len(part)):
            value = np.uint64(part[i])
            low += value
            high += (part[i] >> 63) + (1 if low < value else 0)
        add128(records, at, low, high)
    else:
        best = part[0]
        if op == LEAST:
            for i in range(len(part)):
                best = min(best, part[i])
        else:
            for i in range(len(part)):
                best = max(best, part[i])
        if records[at]:
            old = records[at + 1]
            best = min(best, old) if op == LEAST else max(best, old)
        records[at] = 1
        records[at + 1] = best


@compiled(f"void({V}, int64, int64, int64, {V}, {V}, int64, int64)")
def _add_to_each(
    values: Any, first: Any, last: Any, op: Any, slots: Any, records: Any, width: Any, to: Any
) -> None:
    """A part of many groups; that of slot s lies at s * width + to."""
    part = values[first:last]
    step, offset = np.uint64(width), np.uint64(to)
    if op == COUNT:
        for i in range(len(part)):
            records[np.uint64(slots[i]) * step + offset] += 1
    elif op == SUM_INTEGER:
        for i in range(len(part)):
            add_integer(records, slots[i] * width + to, part[i], 1)
    elif op == LEAST:
        for i in range(len(part)):
            at = np.uint64(slots[i]) * step + offset
            if not records[at] or part[i] < records[at + _NEXT]:
                records[at] = 1
                records[at + _NEXT] = part[i]
    else:
        for i in range(len(part)):
            at = np.uint64(slots[i]) * step + offset
            if not records[at] or part[i] > records[at + _NEXT]:
                records[at] = 1
                records[at + _NEXT] = part[i]


@compiled(
    f"void({M}, int64, int64, boolean, int64, {V}, {M}, {V}, int64, int64, {M}, {V}, {V})", inline=False
)
def add_block(
    data: Any,
    first: Any,
    last: Any,
    whole: Any,  # known to have no NULLs
    keys: Any,
    slots: Any,  # of the rows' groups; not read if there are no keys
    parts: Any,
    records: Any,
    width: Any,
    offset: Any,  # added to where a part lies in a record
    pool: Any,  # not used
    labels: Any,
    passed: Any,
) -> None:
    """Adds rows [first, last) to their groups' parts; with keys, at most BLOCK of them."""
    nulls = 0
    if not whole:
        words = data[len(data) - 1, first:last]
        for i in range(len(words)):
            nulls |= words[i]
    for p in range(len(parts)):
        op = parts[p, OP]
        column = parts[p, COLUMN]
        to = offset + parts[p, AT]
        simple = op in (COUNT, SUM_INTEGER)
        simple |= op in (LEAST, GREATEST) and parts[p, ORDER] == INTEGER
        if not simple or (nulls >> column) & 1:
            for row in range(first, last):
                slot = slots[row - first] if keys else 1
                one = parts[p : p + 1]
                accumulate(
                    data, row, 1, one, records, slot * width + offset, slot, pool, pool, pool, labels, passed
                )
        elif keys:
            _add_to_each(data[column], first, last, op, slots, records, width, to)
        else:
            _add_to_one(data[column], first, last, op, records, width + to)


@compiled(
    f"UniTuple(int64, 2)({M}, int64, int64, boolean, int64, {V}, {V}, int64, int64, int64, {V}, {V}, {V},"
    f" int64, int64, {M}, {M}, {V}, {V})"
)
def enter_block(
    data: Any, first: Any, last: Any, whole: Any, keys: Any, table: Any, records: Any, width: Any, at: Any,
    offset: Any, guesses: Any, slots: Any, touched: Any, count: Any, stamp: Any, parts: Any, pool: Any,
    labels: Any, passed: Any,
) -> Any:  # fmt: skip
    """Does all of the above for rows [first, last), which are at most BLOCK if there are keys.

    Returns `last`, or the row that found no room for its group, and how many slots carry the stamp.
    """
    end = find_all(data, first, last, whole, keys, table, records, width, guesses, slots) if keys else last
    count = count_rows(records, width, at, keys, slots, end - first, touched, count, stamp)
    add_block(data, first, end, whole, keys, slots, parts, records, width, offset, pool, labels, passed)
    return end, count
