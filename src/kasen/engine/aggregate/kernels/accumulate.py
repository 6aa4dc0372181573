"""Accumulators: a group's record holds a run of words for each *part*: a count, a sum, an extreme, a tree.

`parts` [parts, PART] says which parts there are; aggregates of one argument share them, and `render` reads
the aggregates from them. It is data, so one compiled loop serves every query.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.aggregate.kernels import candidates
from kasen.engine.kernels import counted, ordered
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.exact_sum import (
    INFINITY,
    SIGN_BIT,
    add_double,
    add_integer,
    add_square,
    carry,
    exponents,
    span_of,
    unpack,
)

#: A part: what it does, with which column, where its words begin in the record. GATE: the index of the
#: DISTINCT part whose answer replaces the row's diff, or -1. LOW, WIDTH: the span of sums of doubles.
OP, COLUMN, AT, GATE, LOW, WIDTH, ORDER, PART = range(8)

COUNT = 0  # 1 word: rows whose argument is not NULL
SUM_INTEGER = 1  # 2 words: 128 bits
SUM_DOUBLE = 2  # 3 + WIDTH words: NaNs, infinities, negative infinities, the sum of all others
SQUARE_INTEGER = 3  # 8 words
SQUARE_DOUBLE = 4  # 2 * WIDTH words, beginning at 2 * LOW
LEAST = 5  # 2 words: whether there is one, and the value; where nothing is ever deleted
GREATEST = 6  # the same
TREE = 7  # 2 words: an ordered multiset
DISTINCT = 8  # no words; lets a value pass when it appears (+1) and when it vanishes (-1)
FIRST_LEAST = 9  # 3 words: candidates; where values leave in the order in which they came
FIRST_GREATEST = 10  # the same

#: The parts that `settle` is for.
SETTLED = (SUM_DOUBLE, SQUARE_INTEGER, SQUARE_DOUBLE)


@compiled(f"Tuple((boolean, int64, int64))({M}, {M})")
def needed_span(data: Any, parts: Any) -> Any:
    """Whether all sums of doubles can take a batch's values, and the span (low, high) that these need."""
    enough = True
    low = 2**20
    high = -(2**20)
    for p in range(len(parts)):
        if parts[p, OP] != SUM_DOUBLE:
            continue
        least, greatest = exponents(data[parts[p, COLUMN]], data[len(data) - 1], parts[p, COLUMN])
        if greatest > 0:
            first, last = span_of(least, greatest)
            enough &= first >= parts[p, LOW] and last <= parts[p, LOW] + parts[p, WIDTH]
            low = min(low, first)
            high = max(high, last)
    return enough, low, high


@compiled(f"void({V}, int64, int64, int64, int64, {V})")
def extend(records: Any, at: Any, op: Any, value: Any, order: Any, labels: Any) -> None:
    """Makes a value the extreme in records[at : at + 2] if it is."""
    if records[at]:
        old = ordered.rank(records[at + 1], order, labels)
        new = ordered.rank(value, order, labels)
        if (new >= old) if op == LEAST else (new <= old):
            return
    records[at] = 1
    records[at + 1] = value


@compiled(f"void({M}, int64, int64, {M}, {V}, int64, int64, {M}, {M}, {M}, {V}, {V})")
def accumulate(
    data: Any,
    row: Any,
    diff: Any,
    parts: Any,
    records: Any,
    base: Any,  # to which AT is added
    slot: Any,  # the group, as owner of counted values
    pool: Any,  # of ordered multisets
    queues: Any,  # of candidates
    table: Any,  # of counted values
    labels: Any,
    passed: Any,  # scratch, [parts]: what DISTINCT parts let pass
) -> None:
    """Adds a row of `data`, `diff` times, to a group's parts.

    Needs ordered.MOST_NEW spare nodes for each TREE, a spare candidate for each list of these, and room for
    a pair for each DISTINCT.
    """
    nulls = data[len(data) - 1, row]
    for p in range(len(parts)):
        column = parts[p, COLUMN]
        gate = parts[p, GATE]
        op = parts[p, OP]
        weight = diff if gate < 0 else passed[gate]
        passed[p] = 0
        if weight == 0 or (nulls >> column) & 1:
            continue
        at = base + parts[p, AT]
        value = data[column, row]
        if op == COUNT:
            records[at] += weight
        elif op == SUM_INTEGER:
            add_integer(records, at, value, weight)
        elif op in (LEAST, GREATEST):
            extend(records, at, op, value, parts[p, ORDER], labels)
        elif op in (FIRST_LEAST, FIRST_GREATEST):
            if weight > 0:
                least = op == FIRST_LEAST
                candidates.enter(queues, records, at, least, value, weight, parts[p, ORDER], labels)
            else:
                candidates.leave(queues, records, at, value, -weight)
        elif op == TREE:
            ordered.add(pool, records, at, value, weight, parts[p, ORDER], labels)
        elif op == SUM_DOUBLE:
            if value & INFINITY != INFINITY:
                add_double(records, at + 3, parts[p, LOW], value, weight)
            elif value == INFINITY:
                records[at + 1] += weight
            elif value == SIGN_BIT | INFINITY:
                records[at + 2] += weight
            else:
                records[at] += weight
        elif op == DISTINCT:
            passed[p] = counted.count(table, slot * len(parts) + p, value, weight)
        elif op == SQUARE_INTEGER:
            size = np.uint64(value if value >= 0 else -value)
            add_square(records, at, 0, size, 0, weight)
        elif op == SQUARE_DOUBLE and value & INFINITY != INFINITY:
            m, e = unpack(value)
            add_square(records, at, parts[p, LOW], m, e, weight)


@compiled(f"void({M}, {V}, int64)")
def settle(parts: Any, records: Any, base: Any) -> None:
    """Carries a group's sums: needed before they are read, and before 2^28 rows have gone in."""
    for p in range(len(parts)):
        op = parts[p, OP]
        if op == SUM_DOUBLE:
            carry(records, base + parts[p, AT] + 3, parts[p, WIDTH])
        elif op == SQUARE_DOUBLE:
            carry(records, base + parts[p, AT], 2 * parts[p, WIDTH])
        elif op == SQUARE_INTEGER:
            carry(records, base + parts[p, AT], 8)
