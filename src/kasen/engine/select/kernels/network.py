"""The shared selection network: all conditions on a stream in one pass over its tuples [CQPH].

Arrays hold the whole configuration; engine/select/network writes them (the table by `enter` and `leave`), and
what looks at tuples only reads them.
`predicates` [slots, 4]: kind, column, low, high. `programs`: conditions in postfix, a slot or AND or OR.
`queries` [flags, 2]: where the program of a query begins, and its length (0: always true).
A query is looked at only for tuples that pass its *access* predicate. Equalities are found by hash
(`table` [places, 3]: column, value, first item, -1 if free; `items` [n, 2]: flag, next item); lower and
upper bounds by their order (`ranges` [n, 4]: column, is it an upper bound, begin, end in `bounds`,
`bound_flags`); `reaches` has the greatest value that passes the query of a bound or of one before it, so
that of many ranges only those near a value are looked at. The flags in `others` have neither bound nor
equality, and are looked at for every tuple.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import GOLDEN, mix

#: Kinds of predicates: low <= value <= high; value <> low; NULL; not NULL; the text's code is in set `low`.
BETWEEN, UNLIKE, IS_NULL, NOT_NULL, IN_SET = range(5)
#: Tokens of programs that are no slots.
AND, OR = -1, -2
#: Fields of `state`: the next tuple, the one before which to end, the pairs found so far.
NEXT, END, FOUND = range(3)

B = "uint8[:, ::1]"


@compiled(f"int64({M}, int64, int64)")
def place_of(table: Any, column: Any, value: Any) -> Any:
    """Where an equality is in the table, or where it belongs."""
    mask = len(table) - 1
    at = np.int64(mix(mix(GOLDEN, column), value)) & mask
    while table[at, 2] != -1 and (table[at, 1] != value or table[at, 0] != column):
        at = (at + 1) & mask
    return at


@compiled(f"int64({M}, {M}, int64, int64, int64, int64)")
def enter(table: Any, items: Any, column: Any, value: Any, flag: Any, item: Any) -> Any:
    """A query that is found by an equality comes, as a free item. How many places that took: 0 or 1."""
    at = place_of(table, column, value)
    items[item, 0], items[item, 1] = flag, table[at, 2]
    table[at, 0], table[at, 1], table[at, 2] = column, value, item
    return np.int64(items[item, 1] == -1)


@compiled(f"UniTuple(int64, 2)({M}, {M}, int64, int64, int64)")
def leave(table: Any, items: Any, column: Any, value: Any, flag: Any) -> Any:
    """It goes. Its item, and how many places are free by that."""
    mask = len(table) - 1
    at = place_of(table, column, value)
    before, item = -1, table[at, 2]
    while items[item, 0] != flag:
        before, item = item, items[item, 1]
    if before >= 0:
        items[before, 1] = items[item, 1]
        return item, 0
    table[at, 2] = items[item, 1]
    if table[at, 2] >= 0:
        return item, 0
    # What lies behind may have been put there because this place was taken.
    at = (at + 1) & mask
    while table[at, 2] != -1:
        moved = table[at, 2]
        table[at, 2] = -1
        to = place_of(table, table[at, 0], table[at, 1])
        table[to, 0], table[to, 1], table[to, 2] = table[at, 0], table[at, 1], moved
        at = (at + 1) & mask
    return item, 1


@compiled(f"void({M}, {M})")
def refill(table: Any, wider: Any) -> None:
    """All places of a table in a wider one, which is free."""
    for at in range(len(table)):
        if table[at, 2] != -1:
            to = place_of(wider, table[at, 0], table[at, 1])
            wider[to, 0], wider[to, 1], wider[to, 2] = table[at, 0], table[at, 1], table[at, 2]


@compiled(f"int64({M}, {V}, int64, int64)")
def value_of(data: Any, doubles: Any, column: Any, row: Any) -> Any:
    """A value such that integers compare as it does; the bits of a DOUBLE below zero fall as it rises."""
    value = data[column, row]
    return value ^ 0x7FFFFFFFFFFFFFFF if doubles[column] and value < 0 else value


@compiled(f"int64({M}, {V}, int64, {M}, {B}, int64)")
def passes(data: Any, doubles: Any, row: Any, predicates: Any, sets: Any, slot: Any) -> Any:
    kind, column = predicates[slot, 0], predicates[slot, 1]
    null = (data[len(data) - 1, row] >> column) & 1
    if kind == IS_NULL:
        return null
    if null:
        return 0
    if kind == BETWEEN:
        value = value_of(data, doubles, column, row)
        return 1 if predicates[slot, 2] <= value <= predicates[slot, 3] else 0
    if kind == UNLIKE:
        return 1 if value_of(data, doubles, column, row) != predicates[slot, 2] else 0
    if kind == NOT_NULL:
        return 1
    return np.int64(sets[predicates[slot, 2], data[column, row]])


@compiled(f"int64({M}, {V}, int64, {M}, {B}, {V}, int64, int64)")
def holds(
    data: Any, doubles: Any, row: Any, predicates: Any, sets: Any, programs: Any, begin: Any, length: Any
) -> Any:
    """A program's value for a tuple; the stack is the bits of a word."""
    stack = 1
    for at in range(begin, begin + length):
        token = programs[at]
        if token >= 0:
            stack = stack << 1 | passes(data, doubles, row, predicates, sets, token)
        else:
            right, left = stack & 1, (stack >> 1) & 1
            both = left & right if token == AND else left | right
            stack = (stack >> 2) << 1 | both
    return stack & 1


@compiled(f"int64({M}, {V}, int64, int64, {M})")
def first_item(data: Any, doubles: Any, row: Any, column: Any, table: Any) -> Any:
    """The first query that asks for the tuple's value in a column; -1 if none does."""
    if (data[len(data) - 1, row] >> column) & 1:
        return -1
    value = value_of(data, doubles, column, row)
    return table[place_of(table, column, value), 2]


@compiled(f"int64({V}, int64, int64, int64)")
def rank(bounds: Any, begin: Any, end: Any, value: Any) -> Any:
    """How many of the bounds in [begin, end), in order, are not above the value; plus begin."""
    while begin < end:
        middle = (begin + end) >> 1
        if bounds[middle] <= value:
            begin = middle + 1
        else:
            end = middle
    return begin


_CONFIG = f"{V}, {V}, {M}, {M}, {M}, {V}, {V}, {V}, {V}, {M}, {V}, {M}, {B}"


@compiled(f"int64({M}, {_CONFIG}, {M}, {V})", inline=False)
def select(
    data: Any,
    doubles: Any,  # which columns are DOUBLE
    equal: Any,  # the columns that `table` knows
    table: Any,
    items: Any,
    ranges: Any,
    bounds: Any,
    bound_flags: Any,
    reaches: Any,
    others: Any,
    queries: Any,
    programs: Any,
    predicates: Any,
    sets: Any,
    pairs: Any,  # out: [2, room] flag, row
    state: Any,
) -> Any:
    """Finds every (query, tuple) such that the tuple passes; 0 if there may be no room for more."""
    found = state[FOUND]
    room = pairs.shape[1]
    for row in range(state[NEXT], state[END]):
        if room - found < len(queries):
            state[NEXT] = row
            state[FOUND] = found
            return 0
        for e in range(len(equal)):
            item = first_item(data, doubles, row, equal[e], table)
            while item >= 0:
                flag = items[item, 0]
                if holds(data, doubles, row, predicates, sets, programs, queries[flag, 0], queries[flag, 1]):
                    pairs[0, found] = flag
                    pairs[1, found] = row
                    found += 1
                item = items[item, 1]
        for r in range(len(ranges)):
            column = ranges[r, 0]
            if (data[len(data) - 1, row] >> column) & 1:
                continue
            value = value_of(data, doubles, column, row)
            begin, end = ranges[r, 2], ranges[r, 3]
            if ranges[r, 1]:
                begin = rank(bounds, begin, end, value - 1) if value > -0x8000000000000000 else begin
            else:
                end = rank(bounds, begin, end, value)
            for at in range(end - 1, begin - 1, -1):
                if reaches[at] < value:
                    break
                flag = bound_flags[at]
                if holds(data, doubles, row, predicates, sets, programs, queries[flag, 0], queries[flag, 1]):
                    pairs[0, found] = flag
                    pairs[1, found] = row
                    found += 1
        for o in range(len(others)):
            flag = others[o]
            if holds(data, doubles, row, predicates, sets, programs, queries[flag, 0], queries[flag, 1]):
                pairs[0, found] = flag
                pairs[1, found] = row
                found += 1
    state[NEXT] = state[END]
    state[FOUND] = found
    return 1


@compiled(f"void({M}, {_CONFIG}, {V}, {V})", inline=False)
def count(
    data: Any, doubles: Any, equal: Any, table: Any, items: Any, ranges: Any, bounds: Any, bound_flags: Any,
    reaches: Any, others: Any, queries: Any, programs: Any, predicates: Any, sets: Any,
    steps: Any, counts: Any,
) -> None:  # fmt: skip
    """Adds the tuples that pass each query to `counts` [flags]; what else it takes is as in `select`.

    A query that is one bound is counted by the tuples' ranks: `steps` [len(bounds) + 1], zeros, is scratch
    for how many tuples have their rank here.
    """
    n = data.shape[1]
    for e in range(len(equal)):
        for row in range(n):
            item = first_item(data, doubles, row, equal[e], table)
            while item >= 0:
                flag = items[item, 0]
                counts[flag] += holds(
                    data, doubles, row, predicates, sets, programs, queries[flag, 0], queries[flag, 1]
                )
                item = items[item, 1]
    for r in range(len(ranges)):
        column, upper, begin, end = ranges[r, 0], ranges[r, 1], ranges[r, 2], ranges[r, 3]
        steps[begin : end + 1] = 0
        plain = True
        for at in range(begin, end):
            plain &= queries[bound_flags[at], 1] == 0
        for row in range(n):
            if (data[len(data) - 1, row] >> column) & 1:
                continue
            value = value_of(data, doubles, column, row)
            if upper and value == -0x8000000000000000:
                at = begin
            else:
                at = rank(bounds, begin, end, value - 1 if upper else value)
            steps[at] += 1
            if not plain:
                first, last = (at, end) if upper else (begin, at)
                for i in range(last - 1, first - 1, -1):
                    if reaches[i] < value:
                        break
                    flag = bound_flags[i]
                    if queries[flag, 1]:
                        counts[flag] += holds(
                            data, doubles, row, predicates, sets, programs, queries[flag, 0], queries[flag, 1]
                        )
        if upper:  # passing: all whose rank is at or below the bound's place
            total = 0
            for at in range(begin, end):
                total += steps[at]
                if queries[bound_flags[at], 1] == 0:
                    counts[bound_flags[at]] += total
        else:  # passing: all whose rank is above it
            total = steps[end]
            for at in range(end - 1, begin - 1, -1):
                if queries[bound_flags[at], 1] == 0:
                    counts[bound_flags[at]] += total
                total += steps[at]
    for o in range(len(others)):
        flag = others[o]
        for row in range(n):
            counts[flag] += holds(
                data, doubles, row, predicates, sets, programs, queries[flag, 0], queries[flag, 1]
            )


@compiled(f"void({M}, int64, {V}, {V})", inline=False)
def by_flag(pairs: Any, found: Any, starts: Any, rows: Any) -> None:
    """Sorts pairs by flag; those of a flag stay in order. starts [flags + 1] says where each flag's begin."""
    starts[:] = 0
    for i in range(found):
        starts[pairs[0, i] + 1] += 1
    for flag in range(1, len(starts)):
        starts[flag] += starts[flag - 1]
    for i in range(found):
        flag = pairs[0, i]
        rows[starts[flag]] = pairs[1, i]
        starts[flag] += 1
    for flag in range(len(starts) - 1, 0, -1):
        starts[flag] = starts[flag - 1]
    starts[0] = 0
