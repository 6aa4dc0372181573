"""The steps of a loop that run a whole kernel on the instant: joins, aggregates, set operations.

Their kernels can stop for want of room and go on: control[RESUMED] is 0 when the instant begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.aggregate.group.kernels import aggregate as groups
from kasen.engine.aggregate.kernels.accumulate import PART
from kasen.engine.aggregate.kernels.candidates import CANDIDATE
from kasen.engine.aggregate.kernels.render import OUT
from kasen.engine.aggregate.kernels.report import to_columns
from kasen.engine.join.hash.kernels import hash_join as join
from kasen.engine.join.semi.kernels import semi_join
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import hash_key
from kasen.engine.kernels.multimap import COUNT, NEXT, NONE, WEIGHT, change, find_key, is_full
from kasen.engine.kernels.multimap import WORDS as SLOT
from kasen.engine.kernels.ordered import NODE
from kasen.engine.kernels.views import matrix, unsigned, vector
from kasen.engine.loop.kernels.row_steps import STEP, satisfying
from kasen.engine.loop.kernels.table import (
    CODE_SIZE,
    DATA,
    DIFF,
    DONE,
    DUE_SEQ_TICK,
    DUE_TS,
    IN_A,
    IN_B,
    NEVER,
    NOW_SEQ_TICK,
    NOW_TS,
    OWN,
    OWN_DATA,
    OWN_DIFF,
    PLACES,
    RESUMED,
    ROOM,
    TS,
    WANTED,
    WANTS_ROOM,
    WANTS_STATE,
    WORDS,
    N,
    fill_now,
    lacks_room,
    own,
    shrink,
    squeeze,
)
from kasen.engine.sets.kernels import bag

#: A join's fields behind its program's: where each side's are, and the cursor.
LEFT, RIGHT, CURSOR = OWN + 6, OWN + 13, OWN + 20
#: A side's: keys, slots, heads, counts (engine/kernels/multimap), and what is looked up ahead.
KEYS, KEYS_SIZE, SLOTS, SLOTS_SIZE, HEADS, COUNTS, AHEAD = range(7)
#: A semi join's, behind these: the right side's NULL bits, whether it is an anti join, room for right keys.
RIGHT_NULL, ANTI, RIGHT_KEYS, RIGHT_COLUMNS = range(OWN + 21, OWN + 25)

#: An aggregate's: its arrays as the kernel takes them, each with its length.
PARTS, PARTS_SIZE, OUTS, OUTS_SIZE, TABLE, TABLE_SIZE, RECORDS, RECORDS_SIZE = range(OWN, OWN + 8)
POOL, POOL_SIZE, PAIRS, PAIRS_SIZE, TOUCHED, TOUCHED_SIZE, BUFFER, BUFFER_SIZE = range(OWN + 8, OWN + 16)
QUEUES, QUEUES_SIZE, PASS_CONTROL, SCRATCH, SCRATCH_SIZE, NOTHING = range(OWN + 16, OWN + 22)
GUESSES, GUESSES_SIZE, SLOTS_FOUND, SLOTS_FOUND_SIZE = range(OWN + 22, OWN + 26)

#: A set operation's: records, table, touched slots and control (engine/sets/kernels/bag).
BAG_RECORDS, BAG_RECORDS_SIZE, BAG_TABLE, BAG_TABLE_SIZE = range(OWN, OWN + 4)
BAG_TOUCHED, BAG_TOUCHED_SIZE, BAG_CONTROL = range(OWN + 4, OWN + 7)


@compiled(f"int64({M}, int64, {V}, {M}, {V}, int64)", inline=False)
def _join_one(table: Any, step: Any, control: Any, work: Any, labels: Any, from_left: Any) -> Any:
    """The inner join where a single change has come, as in most instants of most loops."""
    mine, theirs = (LEFT, RIGHT) if from_left else (RIGHT, LEFT)
    source, partner = table[step, IN_A], table[step, IN_B]
    if not from_left:
        source, partner = partner, source
    size, words, other_words = table[step, mine + SLOTS_SIZE], table[source, WORDS], table[partner, WORDS]
    data = matrix(table[source, DATA], words, 1)
    diff = vector(table[source, DIFF], 1)[0]
    keys = vector(table[step, mine + KEYS], table[step, mine + KEYS_SIZE])
    if data[words - 1, 0] & join.null_bits(keys):
        own(table, step, 0)
        return DONE
    slots = matrix(table[step, mine + SLOTS], size, SLOT + words)
    counts = vector(table[step, mine + COUNTS], 3)
    if is_full(slots, counts):
        control[WANTED] = join.LEFT_FULL if from_left else join.RIGHT_FULL
        return WANTS_STATE
    other_size = table[step, theirs + SLOTS_SIZE]
    others = matrix(table[step, theirs + SLOTS], other_size, SLOT + other_words)
    other_heads = matrix(table[step, theirs + HEADS], 2, other_size)
    other_keys = vector(table[step, theirs + KEYS], len(keys))
    key_hash = np.int64(hash_key(data, keys, 0))
    slot = find_key(others, other_heads, other_keys, data, keys, 0, key_hash)
    pairs = others[slot, COUNT] if slot != NONE else 0
    if lacks_room(table, step, pairs, control):
        return WANTS_ROOM
    if pairs:
        out = matrix(table[step, OWN_DATA], table[step, WORDS], pairs)
        out_diff = vector(table[step, OWN_DIFF], pairs)
        for n in range(pairs):
            out_diff[n] = diff * others[slot, WEIGHT]
            join.write_pair(data, 0, from_left != 0, others, slot, out, n)
            slot = others[slot, NEXT]
        if table[step, CODE_SIZE]:
            kept = satisfying(table, step, out, out_diff, pairs, control, work[PLACES], labels)
            squeeze(table, step, pairs, kept, work[PLACES])
            pairs = kept
    heads = matrix(table[step, mine + HEADS], 2, size)
    change(slots, heads, counts, keys, data, 0, key_hash, diff, control[TS])
    own(table, step, pairs)
    return DONE


@compiled(STEP, inline=False)
def run_join(table: Any, step: Any, control: Any, work: Any, labels: Any) -> Any:
    """The inner join."""
    left_input, right_input = table[step, IN_A], table[step, IN_B]
    left, right, room = table[left_input, N], table[right_input, N], table[step, ROOM]
    if left + right == 1:
        return _join_one(table, step, control, work, labels, left)
    fill_now(work, control, max(left, right))
    cursor = vector(table[step, CURSOR], 4)
    if not control[RESUMED]:
        cursor[0], cursor[1], cursor[2], cursor[3] = 0, 0, join.START, 0
    l_size, r_size = table[step, LEFT + SLOTS_SIZE], table[step, RIGHT + SLOTS_SIZE]
    l_words, r_words = table[left_input, WORDS], table[right_input, WORDS]
    words = table[step, WORDS]
    ts, seq_tick = work[NOW_TS], work[NOW_SEQ_TICK]
    out = matrix(table[step, OWN_DATA], words, room)
    why = join.join(
        ts[:left], seq_tick[:left], vector(table[left_input, DIFF], left),
        matrix(table[left_input, DATA], l_words, left),
        vector(table[step, LEFT + KEYS], table[step, LEFT + KEYS_SIZE]),
        matrix(table[step, LEFT + SLOTS], l_size, SLOT + l_words),
        matrix(table[step, LEFT + HEADS], 2, l_size), vector(table[step, LEFT + COUNTS], 3),
        matrix(table[step, LEFT + AHEAD], 5, 64),
        ts[:right], seq_tick[:right], vector(table[right_input, DIFF], right),
        matrix(table[right_input, DATA], r_words, right),
        vector(table[step, RIGHT + KEYS], table[step, RIGHT + KEYS_SIZE]),
        matrix(table[step, RIGHT + SLOTS], r_size, SLOT + r_words),
        matrix(table[step, RIGHT + HEADS], 2, r_size), vector(table[step, RIGHT + COUNTS], 3),
        matrix(table[step, RIGHT + AHEAD], 5, 64),
        ts[:room], seq_tick[:room], vector(table[step, OWN_DIFF], room), out, cursor,
    )  # fmt: skip
    if why != join.DONE:
        control[WANTED] = 2 * room if why == join.OUTPUT_FULL else why
        return WANTS_ROOM if why == join.OUTPUT_FULL else WANTS_STATE
    pairs = cursor[join.WRITTEN]
    if table[step, CODE_SIZE] and pairs:
        diff = vector(table[step, OWN_DIFF], room)
        kept = satisfying(table, step, out, diff, pairs, control, work[PLACES], labels)
        squeeze(table, step, room, kept, work[PLACES])
        pairs = kept
    else:
        shrink(table, step, room, pairs)
    own(table, step, pairs)
    return DONE


@compiled(STEP, inline=False)
def run_semi_join(table: Any, step: Any, control: Any, work: Any, _labels: Any) -> Any:
    """EXISTS, IN and NOT EXISTS on keys alone."""
    left_input, right_input = table[step, IN_A], table[step, IN_B]
    left, right, room = table[left_input, N], table[right_input, N], table[step, ROOM]
    fill_now(work, control, max(left, right))
    cursor = vector(table[step, CURSOR], 5)
    if not control[RESUMED]:
        cursor[0], cursor[1], cursor[2], cursor[3], cursor[4] = 0, 0, 0, join.START, 0
    words, r_words, keys_size = table[step, WORDS], table[right_input, WORDS], table[step, RIGHT + KEYS_SIZE]
    if right > room:
        control[WANTED] = right
        return WANTS_ROOM
    data = matrix(table[right_input, DATA], r_words, right)
    columns = vector(table[step, RIGHT_COLUMNS], keys_size)
    keys = matrix(table[step, RIGHT_KEYS], keys_size, right)
    for k in range(keys_size):
        for i in range(right):
            keys[k, i] = data[columns[k], i]
    l_size, r_size = table[step, LEFT + SLOTS_SIZE], table[step, RIGHT + SLOTS_SIZE]
    ts, seq_tick = work[NOW_TS], work[NOW_SEQ_TICK]
    why = semi_join.semi_join(
        ts[:left], seq_tick[:left], vector(table[left_input, DIFF], left),
        matrix(table[left_input, DATA], words, left),
        vector(table[step, LEFT + KEYS], table[step, LEFT + KEYS_SIZE]),
        matrix(table[step, LEFT + SLOTS], l_size, SLOT + words),
        matrix(table[step, LEFT + HEADS], 2, l_size), vector(table[step, LEFT + COUNTS], 3),
        ts[:right], seq_tick[:right], vector(table[right_input, DIFF], right), keys, data[r_words - 1],
        vector(table[step, RIGHT + KEYS], keys_size),
        matrix(table[step, RIGHT + SLOTS], r_size, SLOT + keys_size + 1),
        matrix(table[step, RIGHT + HEADS], 2, r_size), vector(table[step, RIGHT + COUNTS], 3),
        table[step, RIGHT_NULL], table[step, ANTI] != 0,
        ts[:room], seq_tick[:room], vector(table[step, OWN_DIFF], room),
        matrix(table[step, OWN_DATA], words, room), cursor,
    )  # fmt: skip
    if why != join.DONE:
        control[WANTED] = 2 * room if why == join.OUTPUT_FULL else why
        return WANTS_ROOM if why == join.OUTPUT_FULL else WANTS_STATE
    rows = cursor[semi_join.WRITTEN]
    shrink(table, step, room, rows)
    own(table, step, rows)
    return DONE


@compiled(STEP, inline=False)
def run_aggregate(table: Any, step: Any, control: Any, work: Any, labels: Any) -> Any:
    """GROUP BY. Without keys, a change that changes nothing makes the one group appear when it is due."""
    source = table[step, IN_A]
    count, words, columns = table[source, N], table[source, WORDS], table[step, WORDS]
    inner = vector(table[step, PASS_CONTROL], groups.CONTROL)
    if not control[RESUMED]:
        inner[groups.NEXT] = inner[groups.PUT_OUT] = 0
    diffs, rows = table[source, DIFF], table[source, DATA]
    if count == 0:
        count, diffs, rows = 1, table[step, NOTHING], table[step, NOTHING]
    if lacks_room(table, step, 2 * count, control):
        return WANTS_ROOM
    fill_now(work, control, 2 * count)
    ts, seq_tick = work[NOW_TS], work[NOW_SEQ_TICK]
    buffer = vector(table[step, BUFFER], table[step, BUFFER_SIZE])
    why = groups.aggregate(
        ts[:count], seq_tick[:count], vector(diffs, count), matrix(rows, words, count),
        matrix(table[step, PARTS], table[step, PARTS_SIZE], PART),
        matrix(table[step, OUTS], table[step, OUTS_SIZE], OUT),
        vector(table[step, TABLE], table[step, TABLE_SIZE]),
        vector(table[step, RECORDS], table[step, RECORDS_SIZE]),
        matrix(table[step, POOL], table[step, POOL_SIZE], NODE),
        matrix(table[step, QUEUES], table[step, QUEUES_SIZE], CANDIDATE),
        matrix(table[step, PAIRS], table[step, PAIRS_SIZE], 3), labels,
        vector(table[step, TOUCHED], table[step, TOUCHED_SIZE]),
        vector(table[step, GUESSES], table[step, GUESSES_SIZE]),
        vector(table[step, SLOTS_FOUND], table[step, SLOTS_FOUND_SIZE]), buffer, inner,
        unsigned(table[step, SCRATCH], table[step, SCRATCH_SIZE]),
    )  # fmt: skip
    if why != groups.DONE:
        control[WANTED] = why
        return WANTS_STATE
    put_out = inner[groups.PUT_OUT]
    out, diff = matrix(table[step, OWN_DATA], columns, put_out), vector(table[step, OWN_DIFF], put_out)
    to_columns(buffer, put_out, ts[:put_out], seq_tick[:put_out], diff, out, 0)
    own(table, step, put_out)
    table[step, DUE_TS] = table[step, DUE_SEQ_TICK] = NEVER
    return DONE


@compiled(STEP, inline=False)
def run_bag(table: Any, step: Any, control: Any, work: Any, _labels: Any) -> Any:
    """DISTINCT, UNION, INTERSECT and EXCEPT. DISTINCT reads its one input as the left one."""
    left_input, right_input, words = table[step, IN_A], table[step, IN_B], table[step, WORDS]
    left, right = table[left_input, N], table[right_input, N] if right_input >= 0 else 0
    most = left + right
    inner = vector(table[step, BAG_CONTROL], bag.CONTROL)
    if not control[RESUMED]:
        inner[bag.NEXT_LEFT] = inner[bag.NEXT_RIGHT] = inner[bag.PUT_OUT] = 0
    if lacks_room(table, step, most, control):
        return WANTS_ROOM
    fill_now(work, control, most)
    ts, seq_tick = work[NOW_TS], work[NOW_SEQ_TICK]
    right_diff = table[right_input, DIFF] if right_input >= 0 else table[left_input, DIFF]
    right_data = table[right_input, DATA] if right_input >= 0 else table[left_input, DATA]
    why = bag.combine(
        ts[:left], seq_tick[:left], vector(table[left_input, DIFF], left),
        matrix(table[left_input, DATA], words, left),
        ts[:right], seq_tick[:right], vector(right_diff, right), matrix(right_data, words, right),
        vector(table[step, BAG_TABLE], table[step, BAG_TABLE_SIZE]),
        vector(table[step, BAG_RECORDS], table[step, BAG_RECORDS_SIZE]),
        vector(table[step, BAG_TOUCHED], table[step, BAG_TOUCHED_SIZE]),
        ts[:most], seq_tick[:most], vector(table[step, OWN_DIFF], most),
        matrix(table[step, OWN_DATA], words, most), inner,
    )  # fmt: skip
    if why != bag.DONE:
        return WANTS_STATE
    rows = inner[bag.PUT_OUT]
    shrink(table, step, most, rows)
    own(table, step, rows)
    return DONE
