"""The steps of a loop that are queues: windows and delays, at one instant; see `row_steps`."""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import GOLDEN, mix
from kasen.engine.kernels.views import matrix, unsigned, vector
from kasen.engine.loop.kernels.row_steps import STEP
from kasen.engine.loop.kernels.table import (
    DATA,
    DONE,
    DUE_SEQ_TICK,
    DUE_TS,
    HASHES,
    IN_A,
    NEVER,
    OWN,
    OWN_DATA,
    OWN_DIFF,
    SEQ_TICK,
    TS,
    WANTED,
    WANTS_ROOM,
    WANTS_STATE,
    WORDS,
    N,
    lacks_room,
    own,
)
from kasen.engine.window.kernels.partition import push
from kasen.engine.window.kernels.timed import entering, leaving

#: A queue's fields: its instants [2, room] and data [WORDS, room], and where its tuples begin and end.
INSTANTS, QUEUE, QUEUE_ROOM, START, END = range(OWN, OWN + 5)
#: A time window's: how many tuples have entered, and its shape (engine/window/kernels/timed).
ENTERED, SHAPE = range(OWN + 5, OWN + 7)
#: A row window's: ENTERED, the oldest tuple's ordinal, how many tuples it holds, and its slide.
FIRST, COUNT, SLIDE = range(OWN + 6, OWN + 9)
#: A delay's: its length, -1 for one tick; whether it delivers nothing any more.
DELAY_LENGTH, CLOSED = range(OWN + 5, OWN + 7)
#: PARTITION's: the arrays of engine/window/kernels/partition, room for tuples and partitions, and for those
#: that leave.
KEYS, KEYS_SIZE, NULL_MASK, LIMIT, TABLE, TABLE_SIZE, META, PART_HASH = range(OWN, OWN + 8)
STORE, PART_KEY, LINKS, FREE, SIZES, SLOTS, PARTITIONS, LEAVING = range(OWN + 8, OWN + 16)


@compiled(f"boolean({M}, int64, int64, {V})")
def _lacks_queue(table: Any, step: Any, count: Any, control: Any) -> Any:
    """Whether there is no room for so many more tuples, even if those there move to the front."""
    end, start, room = table[step, END], table[step, START], table[step, QUEUE_ROOM]
    if end + count <= room:
        return False
    live = end - start
    control[WANTED] = count
    if 2 * (live + count) > room:
        return True
    words = table[step, WORDS]
    instants, data = matrix(table[step, INSTANTS], 2, room), matrix(table[step, QUEUE], words, room)
    for i in range(live):
        instants[0, i] = instants[0, start + i]
        instants[1, i] = instants[1, start + i]
    for word in range(words):
        for i in range(live):
            data[word, i] = data[word, start + i]
    table[step, START] = 0
    table[step, END] = live
    return False


@compiled(f"void({M}, int64, int64, int64, int64)")
def _write_tuples(table: Any, step: Any, source: Any, ts: Any, seq_tick: Any) -> None:
    """Writes the source's tuples behind the queue's end; the end is left where it is."""
    count, words, room, end = table[source, N], table[step, WORDS], table[step, QUEUE_ROOM], table[step, END]
    instants, data = matrix(table[step, INSTANTS], 2, room), matrix(table[step, QUEUE], words, room)
    rows = matrix(table[source, DATA], words, count)
    for i in range(count):
        instants[0, end + i] = ts
        instants[1, end + i] = seq_tick
    for word in range(words):
        for i in range(count):
            data[word, end + i] = rows[word, i]


@compiled(f"void({M}, int64, int64, int64, int64, int64)")
def _put_out(table: Any, step: Any, first: Any, entered: Any, start: Any, left: Any) -> None:
    """Puts out the queue's tuples [first, entered) as entering, and [start, left) as leaving."""
    words, room = table[step, WORDS], table[step, QUEUE_ROOM]
    come = entered - first
    count = come + left - start
    queue = matrix(table[step, QUEUE], words, room)
    out, diff = matrix(table[step, OWN_DATA], words, count), vector(table[step, OWN_DIFF], count)
    for i in range(count):
        diff[i] = 1 if i < come else -1
    for word in range(words):
        for i in range(come):
            out[word, i] = queue[word, first + i]
        for i in range(left - start):
            out[word, come + i] = queue[word, start + i]
    own(table, step, count)


@compiled(f"void({M}, int64, int64, int64)")
def _move_on(table: Any, step: Any, start: Any, end: Any) -> None:
    """The queue is [start, end) from now on; an empty one begins at the front again."""
    table[step, START] = 0 if start == end else start
    table[step, END] = 0 if start == end else end


@compiled(f"boolean(UniTuple(int64, 2), {V})")
def _is_due(instant: Any, control: Any) -> Any:
    """Whether an instant is not later than the one under way."""
    return instant[0] < control[TS] or (instant[0] == control[TS] and instant[1] <= control[SEQ_TICK])


@compiled(STEP)
def run_timed(table: Any, step: Any, control: Any, _work: Any, _labels: Any) -> Any:
    """RANGE, NOW and RANGE SLIDE."""
    source = table[step, IN_A]
    count = table[source, N]
    if _lacks_queue(table, step, count, control):
        return WANTS_STATE
    if count:
        _write_tuples(table, step, source, control[TS], control[SEQ_TICK])
    instants = matrix(table[step, INSTANTS], 2, table[step, QUEUE_ROOM])
    shape = vector(table[step, SHAPE], 3)
    start, end = table[step, START], table[step, END] + count
    entered = start + table[step, ENTERED]
    entered_to = entered
    while entered_to < end and _is_due(
        entering(instants[0, entered_to], instants[1, entered_to], shape), control
    ):
        entered_to += 1
    left = start
    while left < entered_to and _is_due(leaving(instants[0, left], instants[1, left], shape), control):
        left += 1
    if lacks_room(table, step, entered_to - entered + left - start, control):
        return WANTS_ROOM
    _put_out(table, step, entered, entered_to, start, left)
    table[step, ENTERED] = entered_to - left
    table[step, DUE_TS] = table[step, DUE_SEQ_TICK] = NEVER
    if left < entered_to:
        table[step, DUE_TS], table[step, DUE_SEQ_TICK] = leaving(instants[0, left], instants[1, left], shape)
    if entered_to < end:
        ts, seq_tick = entering(instants[0, entered_to], instants[1, entered_to], shape)
        if ts < table[step, DUE_TS] or (ts == table[step, DUE_TS] and seq_tick < table[step, DUE_SEQ_TICK]):
            table[step, DUE_TS], table[step, DUE_SEQ_TICK] = ts, seq_tick
    _move_on(table, step, left, end)
    return DONE


@compiled(STEP)
def run_rows(table: Any, step: Any, control: Any, _work: Any, _labels: Any) -> Any:
    """ROWS and ROWS SLIDE: see engine/window/window.Rows."""
    source = table[step, IN_A]
    count, slide = table[source, N], table[step, SLIDE]
    if _lacks_queue(table, step, count, control):
        return WANTS_STATE
    start, end, first = table[step, START], table[step, END] + count, table[step, FIRST]
    full = (first + end - start - 1) // slide * slide
    entered = max(0, full - first + 1)
    left = max(0, full - table[step, COUNT] - first + 1)
    before = table[step, ENTERED]
    if lacks_room(table, step, entered - before + left, control):
        return WANTS_ROOM
    _write_tuples(table, step, source, control[TS], control[SEQ_TICK])
    _put_out(table, step, start + before, start + entered, start, start + left)
    table[step, FIRST] = first + left
    table[step, ENTERED] = entered - left
    _move_on(table, step, start + left, end)
    return DONE


@compiled(STEP)
def run_partition(table: Any, step: Any, control: Any, work: Any, _labels: Any) -> Any:
    """PARTITION BY ROWS: see engine/window/partition."""
    source = table[step, IN_A]
    count, words, mask = table[source, N], table[step, WORDS], table[step, NULL_MASK]
    sizes = vector(table[step, SIZES], 2)
    partitions, slots = table[step, PARTITIONS], table[step, SLOTS]
    control[WANTED] = count
    wide = sizes[0] + count > partitions or 2 * (sizes[0] + count) > table[step, TABLE_SIZE]
    if sizes[1] < count or wide:
        return WANTS_STATE
    if lacks_room(table, step, 2 * count, control):
        return WANTS_ROOM
    keys = vector(table[step, KEYS], table[step, KEYS_SIZE])
    data = matrix(table[source, DATA], words, count)
    hashes = work[HASHES].view(np.uint64)[:count]
    for i in range(count):
        state = GOLDEN
        for k in range(len(keys)):
            state = mix(state, data[keys[k], i])
        hashes[i] = mix(state, data[words - 1, i] & mask)
    out = matrix(table[step, LEAVING], words + 1, count)
    pushed = push(
        data, hashes, keys, mask, table[step, LIMIT], vector(table[step, TABLE], table[step, TABLE_SIZE]),
        matrix(table[step, META], partitions, 3), unsigned(table[step, PART_HASH], partitions),
        matrix(table[step, STORE], words, slots), matrix(table[step, PART_KEY], len(keys) + 1, partitions),
        vector(table[step, LINKS], slots), vector(table[step, FREE], slots), sizes, out,
    )  # fmt: skip
    total = count + pushed
    answer, diff = matrix(table[step, OWN_DATA], words, total), vector(table[step, OWN_DIFF], total)
    for i in range(total):
        diff[i] = 1 if i < count else -1
    for word in range(words):
        for i in range(count):
            answer[word, i] = data[word, i]
        for i in range(pushed):
            answer[word, count + i] = out[word, i]
    own(table, step, total)
    return DONE


@compiled(STEP)
def run_delay(table: Any, step: Any, control: Any, _work: Any, _labels: Any) -> Any:
    """What is due now. What enters is not known yet: see take_delayed."""
    start, end = table[step, START], table[step, END]
    instants = matrix(table[step, INSTANTS], 2, table[step, QUEUE_ROOM])
    due = start
    while due < end and instants[0, due] == control[TS] and instants[1, due] == control[SEQ_TICK]:
        due += 1
    if lacks_room(table, step, due - start, control):
        return WANTS_ROOM
    _put_out(table, step, start, due, start, start)
    table[step, DUE_TS] = instants[0, due] if due < end else NEVER
    table[step, DUE_SEQ_TICK] = instants[1, due] if due < end else NEVER
    _move_on(table, step, due, end)
    return DONE


@compiled(f"int64({M}, int64, {V})")
def take_delayed(table: Any, step: Any, control: Any) -> Any:
    """At the end of the instant: what has come to the delay waits in its queue."""
    source = table[step, IN_A]
    count = table[source, N]
    if count == 0 or table[step, CLOSED]:
        return DONE
    if _lacks_queue(table, step, count, control):
        return WANTS_STATE
    length = table[step, DELAY_LENGTH]
    ts, seq_tick = control[TS], control[SEQ_TICK]
    if length < 0:
        seq_tick += 1
    else:
        ts = NEVER if ts > NEVER - length else ts + length
    _write_tuples(table, step, source, ts, seq_tick)
    if table[step, START] == table[step, END]:
        table[step, DUE_TS], table[step, DUE_SEQ_TICK] = ts, seq_tick
    table[step, END] += count
    return DONE
