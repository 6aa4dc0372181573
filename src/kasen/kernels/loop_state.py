"""The steps of a loop that run a whole kernel on the instant: joins, aggregates, set operations.

Their kernels can stop for want of room and go on: control[RESUMED] is 0 when the instant begins.
"""

from __future__ import annotations

from typing import Any

from kasen.kernels import aggregate as groups
from kasen.kernels import bag, join, semi_join
from kasen.kernels.accumulate import PART
from kasen.kernels.candidates import CANDIDATE
from kasen.kernels.compiled import compiled
from kasen.kernels.loop_rows import STEP, satisfying
from kasen.kernels.loop_table import (
    CODE_SIZE,
    DATA,
    DIFF,
    DONE,
    DUE_SUB,
    DUE_TS,
    IN_A,
    IN_B,
    NEVER,
    NOW_SUB,
    NOW_TS,
    OWN,
    OWN_DATA,
    OWN_DIFF,
    PLACES,
    RESUMED,
    ROOM,
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
from kasen.kernels.multimap import WORDS as SLOT
from kasen.kernels.ordered import NODE
from kasen.kernels.render import OUT
from kasen.kernels.report import to_columns
from kasen.kernels.views import matrix, unsigned, vector

#: A join's fields behind its program's: where each side's are, and the cursor.
LEFT, RIGHT, CURSOR = OWN + 6, OWN + 13, OWN + 20
#: A side's: keys, slots, heads, counts (kernels/multimap), and what is looked up ahead.
KEYS, KEYS_SIZE, SLOTS, SLOTS_SIZE, HEADS, COUNTS, AHEAD = range(7)
#: A semi join's, behind these: the right side's NULL bits, whether it is an anti join, room for right keys.
RIGHT_NULL, ANTI, RIGHT_KEYS, RIGHT_COLUMNS = range(OWN + 21, OWN + 25)

#: An aggregate's: its arrays as the kernel takes them, each with its length.
PARTS, PARTS_SIZE, OUTS, OUTS_SIZE, TABLE, TABLE_SIZE, RECORDS, RECORDS_SIZE = range(OWN, OWN + 8)
POOL, POOL_SIZE, PAIRS, PAIRS_SIZE, TOUCHED, TOUCHED_SIZE, BUFFER, BUFFER_SIZE = range(OWN + 8, OWN + 16)
QUEUES, QUEUES_SIZE, PASS_CONTROL, SCRATCH, SCRATCH_SIZE, NOTHING = range(OWN + 16, OWN + 22)
GUESSES, GUESSES_SIZE, SLOTS_FOUND, SLOTS_FOUND_SIZE = range(OWN + 22, OWN + 26)

#: A set operation's: records, table, touched slots and control (kernels/bag).
BAG_RECORDS, BAG_RECORDS_SIZE, BAG_TABLE, BAG_TABLE_SIZE = range(OWN, OWN + 4)
BAG_TOUCHED, BAG_TOUCHED_SIZE, BAG_CONTROL = range(OWN + 4, OWN + 7)


@compiled(STEP, inline=False)
def run_join(table: Any, step: Any, control: Any, work: Any, labels: Any) -> Any:
    """The inner join."""
    one, other = table[step, IN_A], table[step, IN_B]
    left, right, room = table[one, N], table[other, N], table[step, ROOM]
    fill_now(work, control, max(left, right))
    cursor = vector(table[step, CURSOR], 4)
    if not control[RESUMED]:
        cursor[0], cursor[1], cursor[2], cursor[3] = 0, 0, join.START, 0
    l_size, r_size = table[step, LEFT + SLOTS_SIZE], table[step, RIGHT + SLOTS_SIZE]
    l_words, r_words = table[one, WORDS], table[other, WORDS]
    words = table[step, WORDS]
    ts, sub = work[NOW_TS], work[NOW_SUB]
    out = matrix(table[step, OWN_DATA], words, room)
    why = join.join(
        ts[:left], sub[:left], vector(table[one, DIFF], left), matrix(table[one, DATA], l_words, left),
        vector(table[step, LEFT + KEYS], table[step, LEFT + KEYS_SIZE]),
        matrix(table[step, LEFT + SLOTS], l_size, SLOT + l_words),
        matrix(table[step, LEFT + HEADS], 2, l_size), vector(table[step, LEFT + COUNTS], 3),
        matrix(table[step, LEFT + AHEAD], 5, 64),
        ts[:right], sub[:right], vector(table[other, DIFF], right),
        matrix(table[other, DATA], r_words, right),
        vector(table[step, RIGHT + KEYS], table[step, RIGHT + KEYS_SIZE]),
        matrix(table[step, RIGHT + SLOTS], r_size, SLOT + r_words),
        matrix(table[step, RIGHT + HEADS], 2, r_size), vector(table[step, RIGHT + COUNTS], 3),
        matrix(table[step, RIGHT + AHEAD], 5, 64),
        ts[:room], sub[:room], vector(table[step, OWN_DIFF], room), out, cursor,
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
    one, other = table[step, IN_A], table[step, IN_B]
    left, right, room = table[one, N], table[other, N], table[step, ROOM]
    fill_now(work, control, max(left, right))
    cursor = vector(table[step, CURSOR], 5)
    if not control[RESUMED]:
        cursor[0], cursor[1], cursor[2], cursor[3], cursor[4] = 0, 0, 0, join.START, 0
    words, r_words, keys_size = table[step, WORDS], table[other, WORDS], table[step, RIGHT + KEYS_SIZE]
    if right > room:
        control[WANTED] = right
        return WANTS_ROOM
    data = matrix(table[other, DATA], r_words, right)
    columns = vector(table[step, RIGHT_COLUMNS], keys_size)
    keys = matrix(table[step, RIGHT_KEYS], keys_size, right)
    for k in range(keys_size):
        for i in range(right):
            keys[k, i] = data[columns[k], i]
    l_size, r_size = table[step, LEFT + SLOTS_SIZE], table[step, RIGHT + SLOTS_SIZE]
    ts, sub = work[NOW_TS], work[NOW_SUB]
    why = semi_join.semi_join(
        ts[:left], sub[:left], vector(table[one, DIFF], left), matrix(table[one, DATA], words, left),
        vector(table[step, LEFT + KEYS], table[step, LEFT + KEYS_SIZE]),
        matrix(table[step, LEFT + SLOTS], l_size, SLOT + words),
        matrix(table[step, LEFT + HEADS], 2, l_size), vector(table[step, LEFT + COUNTS], 3),
        ts[:right], sub[:right], vector(table[other, DIFF], right), keys, data[r_words - 1],
        vector(table[step, RIGHT + KEYS], keys_size),
        matrix(table[step, RIGHT + SLOTS], r_size, SLOT + keys_size + 1),
        matrix(table[step, RIGHT + HEADS], 2, r_size), vector(table[step, RIGHT + COUNTS], 3),
        table[step, RIGHT_NULL], table[step, ANTI] != 0,
        ts[:room], sub[:room], vector(table[step, OWN_DIFF], room),
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
    ts, sub = work[NOW_TS], work[NOW_SUB]
    buffer = vector(table[step, BUFFER], table[step, BUFFER_SIZE])
    why = groups.aggregate(
        ts[:count], sub[:count], vector(diffs, count), matrix(rows, words, count),
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
    to_columns(buffer, put_out, ts[:put_out], sub[:put_out], diff, out, 0)
    own(table, step, put_out)
    table[step, DUE_TS] = table[step, DUE_SUB] = NEVER
    return DONE


@compiled(STEP, inline=False)
def run_bag(table: Any, step: Any, control: Any, work: Any, _labels: Any) -> Any:
    """DISTINCT, UNION, INTERSECT and EXCEPT. DISTINCT reads its one input as the left one."""
    one, other, words = table[step, IN_A], table[step, IN_B], table[step, WORDS]
    left, right = table[one, N], table[other, N] if other >= 0 else 0
    most = left + right
    inner = vector(table[step, BAG_CONTROL], bag.CONTROL)
    if not control[RESUMED]:
        inner[bag.NEXT_LEFT] = inner[bag.NEXT_RIGHT] = inner[bag.PUT_OUT] = 0
    if lacks_room(table, step, most, control):
        return WANTS_ROOM
    fill_now(work, control, most)
    ts, sub = work[NOW_TS], work[NOW_SUB]
    right_diff = table[other, DIFF] if other >= 0 else table[one, DIFF]
    right_data = table[other, DATA] if other >= 0 else table[one, DATA]
    why = bag.combine(
        ts[:left], sub[:left], vector(table[one, DIFF], left), matrix(table[one, DATA], words, left),
        ts[:right], sub[:right], vector(right_diff, right), matrix(right_data, words, right),
        vector(table[step, BAG_TABLE], table[step, BAG_TABLE_SIZE]),
        vector(table[step, BAG_RECORDS], table[step, BAG_RECORDS_SIZE]),
        vector(table[step, BAG_TOUCHED], table[step, BAG_TOUCHED_SIZE]),
        ts[:most], sub[:most], vector(table[step, OWN_DIFF], most),
        matrix(table[step, OWN_DATA], words, most), inner,
    )  # fmt: skip
    if why != bag.DONE:
        return WANTS_STATE
    rows = inner[bag.PUT_OUT]
    shrink(table, step, most, rows)
    own(table, step, rows)
    return DONE
