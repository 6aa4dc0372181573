"""The steps of a loop that remember nothing, at one instant: see `table` for what they share.

Each takes the table, its own row's number, `control`, the work arrays and the dictionary's labels, and
returns DONE or what it wants. A step that has returned a want has changed nothing yet.
"""

from __future__ import annotations

from typing import Any

from kasen.engine.expr.kernels.row_program import evaluate
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import hash_row
from kasen.engine.kernels.views import matrix, vector
from kasen.engine.loop.kernels.table import (
    CODE,
    CODE_SIZE,
    DATA,
    DIFF,
    DONE,
    DUE_SEQ_TICK,
    DUE_TS,
    FAILED,
    HASHES,
    IN_A,
    IN_B,
    NEVER,
    OWN,
    OWN_DATA,
    OWN_DIFF,
    PLACES,
    REGISTERS,
    REGISTERS_SIZE,
    RESULTS,
    RESULTS_SIZE,
    SEQ_TICK,
    SPARE,
    TS,
    WANTS_ROOM,
    WEIGHTS,
    WORDS,
    N,
    alias,
    lacks_room,
    own,
)
from kasen.engine.stream.kernels.value_order import sort_rows

STEP = f"int64({M}, int64, {V}, {M}, {V})"

#: An INPUT's fields: the batch of the step outside, and the next of its changes.
BATCH_TS, BATCH_SEQ_TICK, BATCH_DIFF, BATCH_DATA, BATCH_SIZE, BATCH_NEXT = range(OWN, OWN + 6)
#: PAD's: columns in front, the columns between, the NULL bits of those added.
PAD_BEFORE, PAD_COLUMNS, PAD_NULLS = range(OWN, OWN + 3)
#: STREAMIFY's: +1 or -1, whether rows are net already, and the columns' orders.
SIGN, NETTED, ORDERS, ORDERS_SIZE = range(OWN, OWN + 4)

# Up to this many changes, comparing all pairs beats a hash table.
_FEW = 8


@compiled(STEP)
def read_input(table: Any, step: Any, control: Any, _work: Any, _labels: Any) -> Any:
    """The outside step's changes at this instant."""
    size = table[step, BATCH_SIZE]
    ts, seq_tick = vector(table[step, BATCH_TS], size), vector(table[step, BATCH_SEQ_TICK], size)
    begin = table[step, BATCH_NEXT]
    end = begin + 1
    while end < size and ts[end] == control[TS] and seq_tick[end] == control[SEQ_TICK]:
        end += 1
    count = end - begin
    if lacks_room(table, step, count, control):
        return WANTS_ROOM
    words = table[step, WORDS]
    data, out = matrix(table[step, BATCH_DATA], words, size), matrix(table[step, OWN_DATA], words, count)
    diff, out_diff = vector(table[step, BATCH_DIFF], size), vector(table[step, OWN_DIFF], count)
    for i in range(count):
        out_diff[i] = diff[begin + i]
    for word in range(words):
        for i in range(count):
            out[word, i] = data[word, begin + i]
    table[step, BATCH_NEXT] = end
    table[step, DUE_TS] = ts[end] if end < size else NEVER
    table[step, DUE_SEQ_TICK] = seq_tick[end] if end < size else NEVER
    own(table, step, count)
    return DONE


@compiled(f"int64({M}, int64, {M}, {V}, int64, {V}, {V}, {V})")
def satisfying(
    table: Any, step: Any, data: Any, diff: Any, count: Any, control: Any, places: Any, labels: Any
) -> Any:
    """Writes the places of the rows for which the step's condition is TRUE; returns how many they are."""
    code = vector(table[step, CODE], table[step, CODE_SIZE])
    registers = vector(table[step, REGISTERS], table[step, REGISTERS_SIZE])
    result = 2 * (-1 - vector(table[step, RESULTS], 1)[0])
    kept = 0
    for i in range(count):
        control[FAILED] += evaluate(code, registers, data, i, diff[i], labels)
        if registers[result] != 0 and registers[result + 1] == 0:
            places[kept] = i
            kept += 1
    return kept


@compiled(STEP)
def run_filter(table: Any, step: Any, control: Any, work: Any, labels: Any) -> Any:
    """WHERE and HAVING."""
    source = table[step, IN_A]
    count, words = table[source, N], table[step, WORDS]
    if lacks_room(table, step, count, control):
        return WANTS_ROOM
    data, diff = matrix(table[source, DATA], words, count), vector(table[source, DIFF], count)
    kept = satisfying(table, step, data, diff, count, control, work[PLACES], labels)
    if kept == count:
        alias(table, step, source)
        return DONE
    out, out_diff = matrix(table[step, OWN_DATA], words, kept), vector(table[step, OWN_DIFF], kept)
    for j in range(kept):
        out_diff[j] = diff[work[PLACES, j]]
    for word in range(words):
        for j in range(kept):
            out[word, j] = data[word, work[PLACES, j]]
    own(table, step, kept)
    return DONE


@compiled(STEP)
def run_project(table: Any, step: Any, control: Any, _work: Any, labels: Any) -> Any:
    """The SELECT list."""
    source = table[step, IN_A]
    count, words = table[source, N], table[source, WORDS]
    if lacks_room(table, step, count, control):
        return WANTS_ROOM
    data, diff = matrix(table[source, DATA], words, count), vector(table[source, DIFF], count)
    out = matrix(table[step, OWN_DATA], table[step, WORDS], count)
    code = vector(table[step, CODE], table[step, CODE_SIZE])
    registers = vector(table[step, REGISTERS], table[step, REGISTERS_SIZE])
    results = vector(table[step, RESULTS], table[step, RESULTS_SIZE])
    for i in range(count):
        if len(code):
            control[FAILED] += evaluate(code, registers, data, i, diff[i], labels)
        nulls = 0
        for j in range(len(results)):
            at = results[j]
            if at >= 0:
                out[j, i] = data[at, i]
                nulls |= ((data[words - 1, i] >> at) & 1) << j
            else:
                null = registers[2 * (-1 - at) + 1]
                out[j, i] = 0 if null else registers[2 * (-1 - at)]
                nulls |= null << j
        out[len(results), i] = nulls
    own(table, step, count)
    table[step, DIFF] = table[source, DIFF]
    return DONE


@compiled(STEP)
def run_union(table: Any, step: Any, control: Any, _work: Any, _labels: Any) -> Any:
    """UNION ALL."""
    left_input, right_input = table[step, IN_A], table[step, IN_B]
    left, right = table[left_input, N], table[right_input, N]
    if right == 0 or left == 0:
        alias(table, step, left_input if right == 0 else right_input)
        return DONE
    if lacks_room(table, step, left + right, control):
        return WANTS_ROOM
    words = table[step, WORDS]
    out, diff = (
        matrix(table[step, OWN_DATA], words, left + right),
        vector(table[step, OWN_DIFF], left + right),
    )
    a, b = matrix(table[left_input, DATA], words, left), matrix(table[right_input, DATA], words, right)
    a_diff, b_diff = vector(table[left_input, DIFF], left), vector(table[right_input, DIFF], right)
    for i in range(left):
        diff[i] = a_diff[i]
    for i in range(right):
        diff[left + i] = b_diff[i]
    for word in range(words):
        for i in range(left):
            out[word, i] = a[word, i]
        for i in range(right):
            out[word, left + i] = b[word, i]
    own(table, step, left + right)
    return DONE


@compiled(STEP)
def run_pad(table: Any, step: Any, control: Any, _work: Any, _labels: Any) -> Any:
    """Columns of NULLs beside rows."""
    source = table[step, IN_A]
    count, before, columns = table[source, N], table[step, PAD_BEFORE], table[step, PAD_COLUMNS]
    if lacks_room(table, step, count, control):
        return WANTS_ROOM
    words = table[step, WORDS]
    data, out = matrix(table[source, DATA], columns + 1, count), matrix(table[step, OWN_DATA], words, count)
    for i in range(count):
        for word in range(words):
            out[word, i] = 0
        for column in range(columns):
            out[before + column, i] = data[column, i]
        out[words - 1, i] = (data[columns, i] << before) | table[step, PAD_NULLS]
    own(table, step, count)
    table[step, DIFF] = table[source, DIFF]
    return DONE


@compiled(f"boolean({M}, int64, int64)")
def _equal(data: Any, one: Any, other: Any) -> Any:
    word = 0
    while word < data.shape[0] and data[word, one] == data[word, other]:
        word += 1
    return word == data.shape[0]


@compiled(f"int64({M}, {V}, {V}, {V}, {V})", inline=False)
def _net(data: Any, diff: Any, places: Any, weights: Any, hashes: Any) -> Any:
    """Writes the place of the first of each different row, with all its diffs in `weights` there.

    Returns how many they are. `hashes` has room for four times as many as there are rows.
    """
    count = len(diff)
    different = 0
    if count <= _FEW:
        for i in range(count):
            k = 0
            while k < different and not _equal(data, places[k], i):
                k += 1
            if k == different:
                places[different] = i
                weights[i] = 0
                different += 1
            weights[places[k]] += diff[i]
        return different
    room = 16
    while room < 2 * count:
        room *= 2
    for i in range(room):
        hashes[i] = -1
    for i in range(count):
        at = int(hash_row(data, i)) & (room - 1)
        while hashes[at] >= 0 and not _equal(data, hashes[at], i):
            at = (at + 1) & (room - 1)
        if hashes[at] < 0:
            hashes[at] = i
            places[different] = i
            weights[i] = 0
            different += 1
        weights[hashes[at]] += diff[i]
    return different


@compiled(STEP)
def run_streamify(table: Any, step: Any, control: Any, work: Any, labels: Any) -> Any:
    """ISTREAM and DSTREAM: what the instant adds or takes away in all, in the order of values."""
    source = table[step, IN_A]
    count, words, sign = table[source, N], table[step, WORDS], table[step, SIGN]
    data, diff = matrix(table[source, DATA], words, count), vector(table[source, DIFF], count)
    places, weights = work[PLACES], work[WEIGHTS]
    different = count
    if table[step, NETTED] or count == 1:
        for i in range(count):
            places[i], weights[i] = i, diff[i]
    else:
        different = _net(data, diff, places, weights, work[HASHES])
    chosen = tuples = 0
    for k in range(different):
        size = weights[places[k]] * sign
        if size > 0:
            places[chosen] = places[k]
            chosen += 1
            tuples += size
    if lacks_room(table, step, tuples, control):
        return WANTS_ROOM
    if chosen > 1:
        orders = vector(table[step, ORDERS], table[step, ORDERS_SIZE])
        sort_rows(places, 0, chosen, work[SPARE], data, weights, orders, labels)
    out, out_diff = matrix(table[step, OWN_DATA], words, tuples), vector(table[step, OWN_DIFF], tuples)
    at = 0
    for k in range(chosen):
        row = places[k]
        for _ in range(weights[row] * sign):
            out_diff[at] = 1
            for word in range(words):
                out[word, at] = data[word, row]
            at += 1
    own(table, step, tuples)
    return DONE
