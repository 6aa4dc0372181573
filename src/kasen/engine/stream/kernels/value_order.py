"""Sorting by value within each instant."""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.kernels.compiled import M, V, compiled

#: How a column's numbers compare; as in operators.batch.
_DOUBLE, _TEXT = 1, 2
_TURN = 0x7FFFFFFFFFFFFFFF
# So few are sorted by insertion.
_FEW = 12


@compiled(f"int64(int64, int64, {V})")
def comparable(value: Any, order: Any, labels: Any) -> Any:
    """A number that compares as the value does."""
    if order == _TEXT:
        return labels[value] if len(labels) else value
    if order == _DOUBLE and value < 0:
        # IEEE bits order like integers once the bits of negative numbers are turned around; the one NaN
        # is positive and lies above infinity.
        return value ^ _TURN
    return value


@compiled(f"boolean({M}, {V}, {V}, {V}, int64, int64)")
def _is_before(data: Any, diff: Any, orders: Any, labels: Any, one: Any, other: Any) -> Any:
    """Whether row `one` must stand before row `other`: by columns, NULL first, then by diff."""
    last = len(data) - 1
    differ = data[last, one] ^ data[last, other]
    for column in range(last):
        if (differ >> column) & 1:
            return (data[last, one] >> column) & 1 == 1
        a, b = data[column, one], data[column, other]
        if a != b:
            return comparable(a, orders[column], labels) < comparable(b, orders[column], labels)
    return diff[one] < diff[other]


@compiled(f"boolean({V}, {V}, {V}, {V}, {M}, {V})", inline=False)
def are_sorted(ts: Any, seq_tick: Any, diff: Any, orders: Any, data: Any, labels: Any) -> Any:
    """Whether changes in instant order are also sorted by value and diff within each instant.

    Mostly the first column decides, without a NULL and as an integer.
    """
    first, nulls = data[0], data[len(data) - 1]
    plain = len(data) > 1 and orders[0] == 0
    for row in range(1, len(ts)):
        if ts[row] != ts[row - 1] or seq_tick[row] != seq_tick[row - 1]:
            continue
        if plain and first[row] > first[row - 1] and not (nulls[row] | nulls[row - 1]) & 1:
            continue
        if _is_before(data, diff, orders, labels, row, row - 1):
            return False
    return True


@compiled(f"int64({V}, {V}, {V})", inline=False)
def find_ties(ts: Any, seq_tick: Any, rows: Any) -> Any:
    """Writes where a row and the next are at one instant; returns how often. `rows` is as long as `ts`."""
    count = np.int64(0)
    for i in range(len(ts) - 1):
        one, after = np.uint64(i), np.uint64(i + 1)
        rows[np.uint64(count)] = i
        count += np.int64(ts[one] == ts[after]) & np.int64(seq_tick[one] == seq_tick[after])
    return count


@compiled(f"int64({V}, int64, {V}, int64, {V})", inline=False)
def undecided(column: Any, order: Any, rows: Any, count: Any, labels: Any) -> Any:
    """Of the first `count` rows those whose value the next row has, too, in their place; returns how many.

    -1 if the next row's value is less.
    """
    kept, descends = np.int64(0), 0
    for k in range(count):
        row = np.uint64(rows[k])
        value, after = column[row], column[row + np.uint64(1)]
        rows[np.uint64(kept)] = rows[k]
        kept += np.int64(value == after)
        descends += comparable(value, order, labels) > comparable(after, order, labels)
    return -1 if descends else kept


@compiled(f"void({V}, int64, int64, {V}, {M}, {V}, {V}, {V})", inline=False)
def sort_rows(
    rows: Any, begin: Any, end: Any, spare: Any, data: Any, diff: Any, orders: Any, labels: Any
) -> None:
    """Sorts rows[begin:end]: runs by insertion, then merged, twice as long each time."""
    for first in range(begin, end, _FEW):
        for i in range(first + 1, min(first + _FEW, end)):
            row = rows[i]
            j = i
            while j > first and _is_before(data, diff, orders, labels, row, rows[j - 1]):
                rows[j] = rows[j - 1]
                j -= 1
            rows[j] = row
    size = _FEW
    while size < end - begin:
        for first in range(begin, end - size, 2 * size):
            middle = first + size
            last = min(middle + size, end)
            if not _is_before(data, diff, orders, labels, rows[middle], rows[middle - 1]):
                continue
            for i in range(first, middle):
                spare[i] = rows[i]
            i, j, k = first, middle, first
            while i < middle and j < last:
                if _is_before(data, diff, orders, labels, rows[j], spare[i]):
                    rows[k] = rows[j]
                    j += 1
                else:
                    rows[k] = spare[i]
                    i += 1
                k += 1
            while i < middle:
                rows[k] = spare[i]
                i += 1
                k += 1
        size *= 2


@compiled(f"boolean({V}, int64, int64, {V}, {V}, {M})")
def _deal(rows: Any, begin: Any, end: Any, spare: Any, counts: Any, data: Any) -> Any:
    """Sorts rows[begin:end] by the first column alone, if its numbers are few enough to be counted."""
    least = greatest = data[0, rows[begin]]
    nulls = 0
    last = len(data) - 1
    for i in range(begin, end):
        value = data[0, rows[i]]
        nulls |= data[last, rows[i]] & 1
        least = min(least, value)
        greatest = max(greatest, value)
    size = greatest - least + 1
    if nulls or size <= 0 or size >= len(counts) or size > 4 * (end - begin):
        return False
    for k in range(size + 1):
        counts[k] = 0
    for i in range(begin, end):
        counts[data[0, rows[i]] - least + 1] += 1
    for k in range(1, size):
        counts[k] += counts[k - 1]
    for i in range(begin, end):
        k = data[0, rows[i]] - least
        spare[begin + counts[k]] = rows[i]
        counts[k] += 1
    for i in range(begin, end):
        rows[i] = spare[i]
    return True


@compiled(f"void({V}, {V}, {V}, {V}, {V}, {V}, {V}, {M}, {V}, {V})", inline=False)
def sort_instants(
    rows: Any,
    spare: Any,
    counts: Any,
    ts: Any,
    seq_tick: Any,
    diff: Any,
    orders: Any,
    data: Any,
    labels: Any,
    countable: Any,
) -> None:
    """Sorts `rows`, positions in instant order, by value and diff within each instant.

    `spare` is as long as `rows`; `counts` is room for counting, of any length. countable[0] says whether
    the first column's numbers are in the order of its values.
    """
    n = len(rows)
    begin = 0
    while begin < n:
        at = rows[begin]
        end = begin + 1
        while end < n and ts[rows[end]] == ts[at] and seq_tick[rows[end]] == seq_tick[at]:
            end += 1
        if end - begin > 4 * _FEW and countable[0] and _deal(rows, begin, end, spare, counts, data):
            i = begin
            while i < end:
                j = i + 1
                while j < end and data[0, rows[j]] == data[0, rows[i]]:
                    j += 1
                if j - i > 1:
                    sort_rows(rows, i, j, spare, data, diff, orders, labels)
                i = j
        elif end - begin > 1:
            sort_rows(rows, begin, end, spare, data, diff, orders, labels)
        begin = end
