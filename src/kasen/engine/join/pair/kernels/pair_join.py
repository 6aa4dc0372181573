"""Two windows joined by key, when only what enters counts. See pair_rows for where rows lie.

An arrival is matched with the other window, then enters its own [WindowJoin]. That is done for a block of
arrivals at a time, in steps over the whole block, each of them a loop without surprises for the processor:
the arrivals of both sides in one order (`merge`), the first row that each of them may meet (`hold`,
`hold_counts`), their keys (`look_up`, which also fetches the table's memory), their chains and their entry
(`enter_all`), and their partners: of all arrivals the newest, then of all the next older (`expand`).

That pairs leave at an arrival's instant does not matter as long as none of them can equal a pair that enters.
Where that cannot be ruled out, or several rows arrive while others leave, a block ends, and the instant is
done by itself (`leave`, `arrive`): what leaves is put out as well, for the caller to net.

COUNTED windows are those of a shard, which has only some of a stream's tuples: `l_marks` and `r_marks` [n, 4]
have for each arrival, of both windows, the last ordinal that left before its instant and with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.join.multiway.kernels.rings import COUNTED, NOW, ROWS, UNBOUNDED
from kasen.engine.join.pair.kernels.rows import (
    ANY_NULLS,
    BASE,
    COUNT,
    FIRST,
    KEY_NULLS,
    KIND,
    LENGTH,
    LINKS_AT,
    NEXT,
    NONE,
    NOW_SEQ_TICK,
    NOW_TS,
    ROOM,
    START,
    WORDS,
    I,
    enter_rows,
    find_slot,
    first_slot,
    has_key,
    key_word,
    most_keys,
    ordinal_of,
    row_place,
    same_key,
    same_row,
)
from kasen.engine.kernels.compiled import M, V, compiled

# What `match` says when it returns: the pairs, or the table, are to be given more room. Only the first of two
# stages (see `stages`) says SPECIAL: `match` is to go on.
DONE, PAIRS_FULL, TABLE_FULL, SPECIAL = range(4)

# `cursor`: the arrivals taken of each side and of both, the pairs written; what is being done, the block's
# arrivals and those of them whose pairs are written, how many to plan and to expand at once; keys in the
# table, and how many might come; whether pairs that leave were written. Of a piece that is matched in two
# stages, the blocks that went through the first, and through the second.
LEFT, RIGHT, TAKEN, WRITTEN, PHASE, PLANNED, EXPANDED, SIZE, SPAN, USED, WANTED, CANCELS = range(12)
BLOCKS_ENTERED, BLOCKS_EXPANDED = 12, 13
CURSOR = 14

#: Arrivals of a block, and pairs found before they are put in order.
BLOCK, FOUND = 4096, 16384
# While tuples arrive several an instant, blocks are short.
_SHORT = 8

_PLAIN, _EXPANDING, LEAVING, _ARRIVING = range(4)
# The rows of `work`, one place for an arrival: its id, its key's slot, its newest partner, the least id that
# it may meet, its pairs.
_ID, _SLOT, _HEAD, _LEAST, _PAIRS = range(5)
WORK = 5
# The rows of `pairs`: the rows' numbers, and what brought them: the arrival's place in the order of arrivals
# and its side; for pairs that leave, below zero (~), an arrival at that instant by its place on its side.
PAIR_LEFT, PAIR_RIGHT, PAIR_AT = range(3)

_GREATEST = 2**63 - 1
_FAR = 1 << 62
# No id is as great.
_NOBODY = 2**31 - 1
J = "int32[:, ::1]"


# ---------------------------------------------------------------- a block of arrivals


@compiled(f"Tuple((int64, boolean))({V}, {M}, {V}, {V}, {V}, {J}, int64)")
def merge(store: Any, cfg: Any, l_seq_tick: Any, r_seq_tick: Any, cursor: Any, work: Any, most: Any) -> Any:
    """The next arrivals of both sides in order; how many, and whether both sides have one at an instant."""
    i, j, n, m = cursor[LEFT], cursor[RIGHT], cfg[0, COUNT], cfg[1, COUNT]
    l_ts, r_ts = row_place(cfg, 0, cfg[0, FIRST]), row_place(cfg, 1, cfg[1, FIRST])
    l_id, r_id = 2 * cfg[0, FIRST], 2 * cfg[1, FIRST] + 1
    at = 0
    tied = np.int64(0)
    both = min(most, n - i, m - j)
    while both > 0:
        for k in range(at, at + both):
            a, b = store[np.uint64(l_ts + i)], store[np.uint64(r_ts + j)]
            s, t = l_seq_tick[np.uint64(i)], r_seq_tick[np.uint64(j)]
            equal = np.int64(a == b)
            tied |= equal & np.int64(s == t)
            left = np.int64(a < b) | (equal & np.int64(s <= t))
            # No branch: which side is next cannot be guessed.
            other = r_id + 2 * j
            work[_ID, k] = other + (l_id + 2 * i - other) * left
            i += left
            j += 1 - left
        at += both
        both = min(most - at, n - i, m - j)
    while at < most and i < n:
        work[_ID, at] = l_id + 2 * i
        i, at = i + 1, at + 1
    while at < most and j < m:
        work[_ID, at] = r_id + 2 * j
        j, at = j + 1, at + 1
    return at, tied != 0


@compiled(f"boolean({V}, {M}, int64, {V}, int64, int64)")
def ties(store: Any, cfg: Any, side: Any, seq_tick: Any, begin: Any, end: Any) -> Any:
    """Whether two of a side's arrivals from `begin` up to and including `end` are at one instant."""
    at = row_place(cfg, side, cfg[side, FIRST])
    found = np.int64(0)
    for i in range(begin, min(end, cfg[side, COUNT] - 1)):
        one, next_ = np.uint64(i), np.uint64(i + 1)
        same = store[np.uint64(at + i)] == store[np.uint64(at + i + 1)]
        found += np.int64(same) & np.int64(seq_tick[one] == seq_tick[next_])
    return found > 0


@compiled(f"UniTuple(int64, 2)({V}, {M}, {V}, {V}, int64)")
def instant_of(store: Any, cfg: Any, l_seq_tick: Any, r_seq_tick: Any, id_: Any) -> Any:
    side, number = id_ & 1, id_ >> 1
    at = number - cfg[side, FIRST]
    return store[row_place(cfg, side, number)], r_seq_tick[at] if side else l_seq_tick[at]


@compiled(f"int64({V}, {M}, {V}, {V}, {V}, {J}, int64)")
def before_ties(
    store: Any, cfg: Any, l_seq_tick: Any, r_seq_tick: Any, cursor: Any, work: Any, count: Any
) -> Any:
    """How many of the block's first arrivals are alone at their instants."""
    l_end, r_end = cursor[LEFT], cursor[RIGHT]
    for t in range(count):
        if work[_ID, t] & 1:
            r_end += 1
        else:
            l_end += 1
        ts, seq_tick = instant_of(store, cfg, l_seq_tick, r_seq_tick, work[_ID, t])
        l_at, r_at = row_place(cfg, 0, cfg[0, FIRST] + l_end), row_place(cfg, 1, cfg[1, FIRST] + r_end)
        if l_end < cfg[0, COUNT] and store[l_at] == ts and l_seq_tick[l_end] == seq_tick:
            return t
        if r_end < cfg[1, COUNT] and store[r_at] == ts and r_seq_tick[r_end] == seq_tick:
            return t
    return count


@compiled(f"int64({V}, {M}, int64, int64)")
def first_repeated(store: Any, cfg: Any, side: Any, end: Any) -> Any:
    """The first arrival of a side before `end` that equals the row that it pushes out; `end` if none does."""
    length = cfg[side, LENGTH]
    if cfg[side, KIND] == ROWS:
        at = row_place(cfg, side, 0) + cfg[side, ROOM]
        for number in range(max(cfg[side, NEXT], cfg[side, START] + length), end):
            same = store[np.uint64(at + number)] == store[np.uint64(at + number - length)]
            if same and same_row(store, cfg, side, number, number - length):
                return number
    return end


@compiled(f"int64({V}, {M}, {J}, int64, int64)")
def hold_counts(store: Any, cfg: Any, work: Any, count: Any, lefts: Any) -> Any:
    """For windows that count: the first row that each arrival may meet. How many are so before a conflict.

    A conflict is an arrival that equals the row that it pushes out. `lefts` of the arrivals are on the left.
    """
    both = cfg[0, NEXT] + cfg[1, NEXT]
    l_start, r_start = cfg[0, START], cfg[1, START]
    l_length = cfg[0, LENGTH] if cfg[0, KIND] == ROWS else _FAR
    r_length = cfg[1, LENGTH] if cfg[1, KIND] == ROWS else _FAR
    for t in range(count):
        id_ = np.int64(work[_ID, t])
        theirs = t + both - (id_ >> 1)
        l_least, r_least = max(theirs - l_length, l_start), max(theirs - r_length, r_start)
        work[_LEAST, t] = 2 * (l_least if id_ & 1 else r_least)
    l_end, r_end = cfg[0, NEXT] + lefts, cfg[1, NEXT] + count - lefts
    l_to, r_to = first_repeated(store, cfg, 0, l_end), first_repeated(store, cfg, 1, r_end)
    if l_to < l_end or r_to < r_end:
        for t in range(count):
            if (work[_ID, t] >> 1) == (r_to if work[_ID, t] & 1 else l_to):
                return t
    return count


@compiled(f"UniTuple(int64, 4)({M}, {M}, {M}, int64)")
def marks_of(cfg: Any, l_marks: Any, r_marks: Any, id_: Any) -> Any:
    """An arrival's marks, if a window is COUNTED."""
    if cfg[0, KIND] != COUNTED and cfg[1, KIND] != COUNTED:
        return 0, 0, 0, 0
    at = (id_ >> 1) - cfg[id_ & 1, FIRST]
    if id_ & 1:
        return r_marks[at, 0], r_marks[at, 1], r_marks[at, 2], r_marks[at, 3]
    return l_marks[at, 0], l_marks[at, 1], l_marks[at, 2], l_marks[at, 3]


@compiled(f"Tuple((int64, int64))({V}, {M}, {', '.join(['int64'] * 9)})")
def release(
    store: Any, cfg: Any, w: Any, start: Any, end: Any, ts: Any, seq_tick: Any, now_ts: Any,
    now_seq_tick: Any, before: Any, gone: Any,
) -> Any:  # fmt: skip
    """What time takes from a window at an instant: the first that leaves just then, the first that stays.

    `before` and `gone` are a COUNTED window's marks.
    """
    if start == end or cfg[w, KIND] == ROWS or cfg[w, KIND] == UNBOUNDED:
        return start, start
    if cfg[w, KIND] == COUNTED:
        while start < end and ordinal_of(store, cfg, w, start) <= before:
            start += 1
        first = start
        while start < end and ordinal_of(store, cfg, w, start) <= gone:
            start += 1
        return first, start
    if cfg[w, KIND] == NOW:
        if now_ts == ts and now_seq_tick == seq_tick:
            return start, start
        return start if now_ts == ts and now_seq_tick + 1 == seq_tick else end, end
    leaving = NONE
    while start < end:
        entered = store[row_place(cfg, w, start)]
        out = _GREATEST if entered >= _GREATEST - cfg[w, LENGTH] else entered + cfg[w, LENGTH] + 1
        if out > ts:
            break
        if out == ts and seq_tick == 0 and leaving == NONE:
            leaving = start
        start += 1
    return start if leaving == NONE else leaving, start


@compiled(f"boolean({V}, {M}, {M}, int64, int64, int64, int64)")
def may_cancel(store: Any, cfg: Any, keys: Any, id_: Any, w: Any, begin: Any, end: Any) -> Any:
    """Whether pairs of rows that leave window w might equal those that an arrival brings."""
    side, number = id_ & 1, id_ >> 1
    for gone in range(begin, end):
        if w == side:
            if same_row(store, cfg, side, number, gone):
                return True
        elif same_key(store, cfg, keys, gone if side else number, number if side else gone):
            return True
    return False


@compiled(f"int64({V}, {M}, {M}, {V}, {V}, {M}, {M}, {J}, int64)", inline=False)
def hold(
    store: Any, cfg: Any, keys: Any, l_seq_tick: Any, r_seq_tick: Any, l_marks: Any, r_marks: Any,
    work: Any, count: Any,
) -> Any:  # fmt: skip
    """As hold_counts, for windows of any kind. Moves START."""
    l_start, l_next, r_start, r_next = cfg[0, START], cfg[0, NEXT], cfg[1, START], cfg[1, NEXT]
    t = 0
    while t < count:
        id_ = np.int64(work[_ID, t])
        ts, seq_tick = instant_of(store, cfg, l_seq_tick, r_seq_tick, id_)
        l_before, l_last, r_before, r_last = marks_of(cfg, l_marks, r_marks, id_)
        l_gone, l_to = release(
            store, cfg, 0, l_start, l_next, ts, seq_tick, cfg[0, NOW_TS], cfg[0, NOW_SEQ_TICK],
            l_before, l_last,
        )  # fmt: skip
        r_gone, r_to = release(
            store, cfg, 1, r_start, r_next, ts, seq_tick, cfg[1, NOW_TS], cfg[1, NOW_SEQ_TICK],
            r_before, r_last,
        )  # fmt: skip
        side = id_ & 1
        if side and cfg[1, KIND] == ROWS and r_next - r_to == cfg[1, LENGTH]:
            r_to += 1
        if not side and cfg[0, KIND] == ROWS and l_next - l_to == cfg[0, LENGTH]:
            l_to += 1
        if may_cancel(store, cfg, keys, id_, 0, l_gone, l_to) or may_cancel(
            store, cfg, keys, id_, 1, r_gone, r_to
        ):
            break
        l_start, r_start = l_to, r_to
        work[_LEAST, t] = 2 * (l_start if side else r_start)
        if cfg[side, KIND] == COUNTED and ordinal_of(store, cfg, side, id_ >> 1) <= (
            r_last if side else l_last
        ):
            # Others of its instant, on other shards, have pushed it out already.
            work[_LEAST, t] = _NOBODY
        cfg[side, NOW_TS], cfg[side, NOW_SEQ_TICK] = ts, seq_tick
        l_next += 1 - side
        r_next += side
        t += 1
    cfg[0, START], cfg[1, START] = l_start, r_start
    return t


@compiled(f"int64({V}, {M}, {M}, {V}, {J}, {V}, int64)", inline=False)
def look_up(store: Any, cfg: Any, keys: Any, table: Any, work: Any, words: Any, count: Any) -> Any:
    """The key's word of each arrival, and its first slot; -1 if the key is NULL."""
    mask = len(table) // 2 - 1
    if keys.shape[1] == 1:
        l_at = row_place(cfg, 0, 0) + keys[0, 0] * cfg[0, ROOM]
        r_at = row_place(cfg, 1, 0) + keys[1, 0] * cfg[1, ROOM]
        for t in range(count):
            id_ = np.int64(work[_ID, t])
            words[t] = store[np.uint64((id_ >> 1) + (r_at if id_ & 1 else l_at))]
    else:
        for t in range(count):
            id_ = np.int64(work[_ID, t])
            words[t] = key_word(store, cfg, keys, id_ & 1, id_ >> 1)
    for t in range(count):
        work[_SLOT, t] = first_slot(words[t], mask)
    read = 0
    for t in range(count):
        read ^= table[np.uint64(2 * np.int64(work[_SLOT, t]))]
    if cfg[0, ANY_NULLS] | cfg[1, ANY_NULLS]:
        l_at = row_place(cfg, 0, 0) + cfg[0, WORDS] * cfg[0, ROOM]
        r_at = row_place(cfg, 1, 0) + cfg[1, WORDS] * cfg[1, ROOM]
        for t in range(count):
            id_ = np.int64(work[_ID, t])
            nulls = store[np.uint64((id_ >> 1) + (r_at if id_ & 1 else l_at))]
            if nulls & (cfg[1, KEY_NULLS] if id_ & 1 else cfg[0, KEY_NULLS]):
                work[_SLOT, t] = NONE
    return read  # so that the reads are not left out as useless


@compiled(f"int64({M}, {I}, {V}, {I}, {J}, {V}, int64)", inline=False)
def enter_all(cfg: Any, links: Any, table: Any, heads: Any, work: Any, words: Any, count: Any) -> Any:
    """Each arrival finds the newest row of its key on the other side, then enters its own side's chain.

    Returns how many keys are new to the table.
    """
    mask = len(table) // 2 - 1
    l_links, r_links = cfg[0, LINKS_AT] - cfg[0, BASE], cfg[1, LINKS_AT] - cfg[1, BASE]
    new = 0
    for t in range(count):
        id_ = np.int64(work[_ID, t])
        side = id_ & 1
        link = np.uint64((id_ >> 1) + (r_links if side else l_links))
        slot = np.int64(work[_SLOT, t])
        if slot == NONE:
            work[_HEAD, t] = NONE
            continue
        slot = find_slot(table, mask, slot, words[t])
        new += table[np.uint64(2 * slot + 1)] == NONE
        table[np.uint64(2 * slot)] = words[t]
        mine, theirs = np.uint64(4 * slot + 2 + side), np.uint64(4 * slot + 3 - side)
        work[_HEAD, t] = heads[theirs]
        links[link] = heads[mine]
        heads[mine] = id_
    return new


@compiled(f"int64({M}, {I}, {J}, int64, int64, {J})")
def rounds(cfg: Any, links: Any, work: Any, begin: Any, end: Any, found: Any) -> Any:
    """The partners of some arrivals, the newest of each first; how many, or NONE if there is no room."""
    l_links, r_links = cfg[0, LINKS_AT] - cfg[0, BASE], cfg[1, LINKS_AT] - cfg[1, BASE]
    n = 0
    for t in range(begin, end):
        work[_PAIRS, t] = 0
        found[0, n], found[1, n] = t, work[_HEAD, t]
        n += work[_HEAD, t] >= work[_LEAST, t]
    first = 0
    while first < n:
        last = n
        if 2 * last - first > found.shape[1]:
            return NONE
        for each in range(first, last):
            of, id_ = np.uint64(found[0, each]), np.int64(found[1, each])
            work[_PAIRS, of] += 1
            older = links[np.uint64((id_ >> 1) + (r_links if id_ & 1 else l_links))]
            found[0, n], found[1, n] = of, older
            n += older >= work[_LEAST, of]
        first = last
    return n


@compiled(f"void({V}, {J}, int64, int64, {J}, int64, {J})")
def put_in_order(cursor: Any, work: Any, begin: Any, end: Any, found: Any, count: Any, pairs: Any) -> None:
    """Writes what `rounds` found, arrival by arrival, the oldest partner first."""
    total = cursor[WRITTEN]
    for t in range(begin, end):
        total += work[_PAIRS, t]
        work[_PAIRS, t] = total
    taken = cursor[TAKEN]
    for each in range(count):
        of = np.uint64(found[0, each])
        n = work[_PAIRS, of] - 1
        work[_PAIRS, of] = n
        id_, partner = work[_ID, of] >> 1, found[1, each] >> 1
        side = work[_ID, of] & 1
        at = np.uint64(n)
        pairs[PAIR_LEFT, at] = partner if side else id_
        pairs[PAIR_RIGHT, at] = id_ if side else partner
        pairs[PAIR_AT, at] = 2 * (taken + np.int64(of)) + side
    cursor[WRITTEN] = total


@compiled(f"boolean({M}, {I}, {V}, int64, int64, int64, int64, int64, {J})")
def walk(
    cfg: Any, links: Any, cursor: Any, id_: Any, partner: Any, least: Any, most: Any, at: Any, pairs: Any
) -> Any:
    """Writes one row's pairs, with partners of ids from `least` to below `most`; all of them, or none."""
    n = cursor[WRITTEN]
    while partner >= least:
        if partner < most:
            if n == pairs.shape[1]:
                return False
            pairs[PAIR_LEFT, n] = (partner if id_ & 1 else id_) >> 1
            pairs[PAIR_RIGHT, n] = (id_ if id_ & 1 else partner) >> 1
            pairs[PAIR_AT, n] = at
            n += 1
        side = partner & 1
        partner = np.int64(links[cfg[side, LINKS_AT] + (partner >> 1) - cfg[side, BASE]])
    cursor[WRITTEN] = n
    return True


@compiled(f"boolean({M}, {I}, {V}, {J}, {J}, {J})", inline=False)
def expand(cfg: Any, links: Any, cursor: Any, work: Any, found: Any, pairs: Any) -> Any:
    """Writes the pairs of the block's arrivals; whether there was room for all."""
    begin, count, span = cursor[EXPANDED], cursor[PLANNED], cursor[SPAN]
    fits = True
    while begin < count:
        end = min(begin + span, count)
        n = rounds(cfg, links, work, begin, end, found)
        if n == NONE and end - begin > 1:
            span = (end - begin) // 2
            continue
        if n == NONE:
            id_ = np.int64(work[_ID, begin])
            at = 2 * (cursor[TAKEN] + begin) + (id_ & 1)
            fits = walk(cfg, links, cursor, id_, work[_HEAD, begin], work[_LEAST, begin], _FAR, at, pairs)
        else:
            fits = cursor[WRITTEN] + n <= pairs.shape[1]
            if fits:
                put_in_order(cursor, work, begin, end, found, n, pairs)
        if not fits:
            break
        begin = end
        span = min(2 * span, BLOCK)
    cursor[EXPANDED], cursor[SPAN] = begin, span
    return fits


# ---------------------------------------------------------------- an instant by itself


@compiled(f"UniTuple(int64, 3)({V}, {M}, {', '.join(['int64'] * 7)})")
def leavers(
    store: Any, cfg: Any, w: Any, ts: Any, seq_tick: Any, arrivals: Any, next_: Any, before: Any, last: Any
) -> Any:
    """Of a window at an instant: the first row that leaves, the first old one that stays, its new START."""
    # Of a COUNTED window, arrivals may leave as they come.
    end = next_ + arrivals if cfg[w, KIND] == COUNTED else next_
    gone, to = release(
        store, cfg, w, cfg[w, START], end, ts, seq_tick, cfg[w, NOW_TS], cfg[w, NOW_SEQ_TICK], before, last
    )  # fmt: skip
    start = max(to, next_ + arrivals - cfg[w, LENGTH]) if cfg[w, KIND] == ROWS else to
    return gone, min(start, next_), start


@compiled(f"void({V}, {V}, {V}, {V}, int64, int64, {M})", inline=False)
def count_marks(
    ts: Any, seq_tick: Any, every_ts: Any, every_seq_tick: Any, gone: Any, window: Any, marks: Any
) -> None:
    """Writes a window's marks of arrivals at instants that ascend; `every` are its whole stream's.

    `gone` is the last ordinal that left before all of them; below 1, none has.
    """
    i = 0
    for n in range(len(ts)):
        while i < len(every_ts) and (
            every_ts[i] < ts[n] or (every_ts[i] == ts[n] and every_seq_tick[i] < seq_tick[n])
        ):
            i += 1
        j = i
        while j < len(every_ts) and every_ts[j] == ts[n] and every_seq_tick[j] == seq_tick[n]:
            j += 1
        marks[n, 2 * window], marks[n, 2 * window + 1] = gone + i, gone + j


@compiled(f"UniTuple(int64, 4)({V}, {M}, {V}, {V}, {V})")
def next_instant(store: Any, cfg: Any, l_seq_tick: Any, r_seq_tick: Any, cursor: Any) -> Any:
    """The next arrivals' instant, and how many there are of each side."""
    i, j = cursor[LEFT], cursor[RIGHT]
    ts = seq_tick = _GREATEST
    l_at, r_at = row_place(cfg, 0, cfg[0, FIRST]), row_place(cfg, 1, cfg[1, FIRST])
    if i < cfg[0, COUNT]:
        ts, seq_tick = store[l_at + i], l_seq_tick[i]
    if j < cfg[1, COUNT] and (store[r_at + j] < ts or (store[r_at + j] == ts and r_seq_tick[j] < seq_tick)):
        ts, seq_tick = store[r_at + j], r_seq_tick[j]
    while i < cfg[0, COUNT] and store[l_at + i] == ts and l_seq_tick[i] == seq_tick:
        i += 1
    while j < cfg[1, COUNT] and store[r_at + j] == ts and r_seq_tick[j] == seq_tick:
        j += 1
    return ts, seq_tick, i - cursor[LEFT], j - cursor[RIGHT]


@compiled(f"boolean({V}, {M}, {M}, {I}, {V}, {I}, {V}, {', '.join(['int64'] * 6)}, {J})")
def meet(
    store: Any, cfg: Any, keys: Any, links: Any, table: Any, heads: Any, cursor: Any,
    side: Any, begin: Any, end: Any, least: Any, most: Any, at: Any, pairs: Any,
) -> Any:  # fmt: skip
    """Writes the pairs of a side's rows with rows of the other; whether there was room for all."""
    mask = len(table) // 2 - 1
    for number in range(begin, end):
        if has_key(store, cfg, side, number):
            key = key_word(store, cfg, keys, side, number)
            slot = find_slot(table, mask, first_slot(key, mask), key)
            head = np.int64(heads[4 * slot + 3 - side])
            if not walk(cfg, links, cursor, 2 * number + side, head, 2 * least, 2 * most, at, pairs):
                return False
    return True


#: What most of these take first.
RUN = f"{V}, {M}, {M}, {I}, {V}, {I}, {V}, {V}, {M}, {M}, {V}"


@compiled(f"int64({M}, {V}, int64)")
def next_id(cfg: Any, cursor: Any, lefts: Any) -> Any:
    """The id of one of the next instant's arrivals, of which so many are on the left."""
    return 2 * (cfg[0, FIRST] + cursor[LEFT]) if lefts else 2 * (cfg[1, FIRST] + cursor[RIGHT]) + 1


@compiled(f"boolean({RUN}, {J})", inline=False)
def leave(
    store: Any, cfg: Any, keys: Any, links: Any, table: Any, heads: Any, l_seq_tick: Any, r_seq_tick: Any,
    l_marks: Any, r_marks: Any, cursor: Any, pairs: Any,
) -> Any:  # fmt: skip
    """Writes the pairs that leave at the next arrivals' instant; whether there was room for them."""
    before = cursor[WRITTEN]
    ts, seq_tick, n, m = next_instant(store, cfg, l_seq_tick, r_seq_tick, cursor)
    l_next, r_next = cfg[0, NEXT], cfg[1, NEXT]
    l_before, l_last, r_before, r_last = marks_of(cfg, l_marks, r_marks, next_id(cfg, cursor, n))
    l_gone, l_stay, _ = leavers(store, cfg, 0, ts, seq_tick, n, l_next, l_before, l_last)
    r_gone, r_stay, _ = leavers(store, cfg, 1, ts, seq_tick, m, r_next, r_before, r_last)
    at = ~(2 * cursor[LEFT] if n else 2 * cursor[RIGHT] + 1)
    fits = meet(
        store, cfg, keys, links, table, heads, cursor, 0, l_gone, l_stay, r_gone, r_next, at, pairs
    ) and meet(store, cfg, keys, links, table, heads, cursor, 1, r_gone, r_stay, l_stay, l_next, at, pairs)
    if not fits:
        cursor[WRITTEN] = before
    elif cursor[WRITTEN] > before:
        cursor[CANCELS] = 1
    return fits


@compiled(f"boolean({RUN}, {J})", inline=False)
def arrive(
    store: Any, cfg: Any, keys: Any, links: Any, table: Any, heads: Any, l_seq_tick: Any, r_seq_tick: Any,
    l_marks: Any, r_marks: Any, cursor: Any, pairs: Any,
) -> Any:  # fmt: skip
    """Writes the pairs that the next instant brings, whose arrivals are in their chains, and takes these."""
    before = cursor[WRITTEN]
    ts, seq_tick, n, m = next_instant(store, cfg, l_seq_tick, r_seq_tick, cursor)
    l_next, r_next = cfg[0, NEXT], cfg[1, NEXT]
    l_before, l_last, r_before, r_last = marks_of(cfg, l_marks, r_marks, next_id(cfg, cursor, n))
    _, l_stay, l_start = leavers(store, cfg, 0, ts, seq_tick, n, l_next, l_before, l_last)
    _, _, r_start = leavers(store, cfg, 1, ts, seq_tick, m, r_next, r_before, r_last)
    fits = meet(
        store, cfg, keys, links, table, heads, cursor, 0, max(l_start, l_next), l_next + n,
        r_start, r_next + m, 2 * cursor[TAKEN], pairs,
    ) and meet(
        store, cfg, keys, links, table, heads, cursor, 1, max(r_start, r_next), r_next + m,
        l_stay, l_next, 2 * cursor[TAKEN] + 1, pairs,
    )  # fmt: skip
    if not fits:
        cursor[WRITTEN] = before
        return False
    cfg[0, START], cfg[1, START] = l_start, r_start
    if n:
        cfg[0, NOW_TS], cfg[0, NOW_SEQ_TICK] = ts, seq_tick
    if m:
        cfg[1, NOW_TS], cfg[1, NOW_SEQ_TICK] = ts, seq_tick
    cfg[0, NEXT] += n
    cfg[1, NEXT] += m
    cursor[LEFT] += n
    cursor[RIGHT] += m
    cursor[TAKEN] += n + m
    return True


# ---------------------------------------------------------------- all of it


@compiled(f"boolean({M}, int64)")
def counts(cfg: Any, side: Any) -> Any:
    """Whether only a window's own arrivals let rows go, or nothing does."""
    return cfg[side, KIND] == ROWS or cfg[side, KIND] == UNBOUNDED


@compiled(f"int64({J}, int64)")
def lefts_of(work: Any, count: Any) -> Any:
    """How many of the block's first arrivals are on the left."""
    rights = 0
    for t in range(count):
        rights += work[_ID, t] & 1
    return count - rights


@compiled(f"int64({V}, {M}, {M}, {V}, {V}, {M}, {M}, {V}, {J})", inline=False)
def plan(
    store: Any,
    cfg: Any,
    keys: Any,
    l_seq_tick: Any,
    r_seq_tick: Any,
    l_marks: Any,
    r_marks: Any,
    cursor: Any,
    work: Any,
) -> Any:
    """The next block: its arrivals' ids and the least ids that they may meet. Its size; 0 if the next instant
    must be done by itself."""
    most = min(cursor[SIZE], work.shape[1])
    count, tied = merge(store, cfg, l_seq_tick, r_seq_tick, cursor, work, most)
    if cfg[0, KIND] != UNBOUNDED or cfg[1, KIND] != UNBOUNDED:
        lefts = lefts_of(work, count)
        l_end, r_end = cursor[LEFT] + lefts, cursor[RIGHT] + count - lefts
        tied = tied or ties(store, cfg, 0, l_seq_tick, cursor[LEFT], l_end)
        tied = tied or ties(store, cfg, 1, r_seq_tick, cursor[RIGHT], r_end)
        free = count
        if tied:
            free = before_ties(store, cfg, l_seq_tick, r_seq_tick, cursor, work, count)
            lefts = lefts_of(work, free)
        if counts(cfg, 0) and counts(cfg, 1):
            free = hold_counts(store, cfg, work, free, lefts)
        else:
            free = hold(store, cfg, keys, l_seq_tick, r_seq_tick, l_marks, r_marks, work, free)
        cursor[SIZE] = min(2 * most, BLOCK) if free == count else max(min(2 * free, BLOCK), _SHORT)
        count = free
    else:
        for t in range(count):
            work[_LEAST, t] = 0
    return count


@compiled(f"void({M}, {V}, {J}, int64)")
def take_block(cfg: Any, cursor: Any, work: Any, count: Any) -> None:
    """The block's arrivals are in their chains: marks move past them."""
    lefts = lefts_of(work, count)
    cursor[LEFT] += lefts
    cursor[RIGHT] += count - lefts
    cfg[0, NEXT] += lefts
    cfg[1, NEXT] += count - lefts
    for side in range(2):
        if cfg[side, KIND] == ROWS:
            cfg[side, START] = max(cfg[side, START], cfg[side, NEXT] - cfg[side, LENGTH])


@compiled(f"boolean({V}, {V}, int64)")
def lacks_keys(table: Any, cursor: Any, wanted: Any) -> Any:
    """Whether the table has no room for so many more keys; `cursor` says then how many are wanted."""
    cursor[WANTED] = wanted
    return cursor[USED] + wanted > most_keys(len(table) // 2)


@compiled(f"int64({RUN}, {J}, {V})")
def enter_block(
    store: Any, cfg: Any, keys: Any, links: Any, table: Any, heads: Any, l_seq_tick: Any, r_seq_tick: Any,
    l_marks: Any, r_marks: Any, cursor: Any, work: Any, words: Any,
) -> Any:  # fmt: skip
    """The arrivals of the next block enter their chains; how many.

    0 if an instant must be done by itself: that begins with what leaves.
    """
    count = plan(store, cfg, keys, l_seq_tick, r_seq_tick, l_marks, r_marks, cursor, work)
    if count:
        look_up(store, cfg, keys, table, work, words, count)
        cursor[USED] += enter_all(cfg, links, table, heads, work, words, count)
        take_block(cfg, cursor, work, count)
    else:
        cursor[PHASE] = LEAVING
    return count


@compiled(f"int64({RUN}, {J}, {V}, {J}, {J})", inline=False)
def match(
    store: Any, cfg: Any, keys: Any, links: Any, table: Any, heads: Any, l_seq_tick: Any, r_seq_tick: Any,
    l_marks: Any, r_marks: Any, cursor: Any, work: Any, words: Any, found: Any, pairs: Any,
) -> Any:  # fmt: skip
    """Writes the pairs of the arrivals, whose rows are in `store`, in the order in which these come.

    Returns DONE, or what needs more room; then it is called again and goes on. `cursor`, `work` and `words`
    are left alone between such calls. `keys` has for each side the places of the key among a row's words.
    """
    while True:
        if cursor[PHASE] == _PLAIN:
            left = cfg[0, COUNT] - cursor[LEFT] + cfg[1, COUNT] - cursor[RIGHT]
            if left == 0:
                return DONE
            if lacks_keys(table, cursor, min(left, work.shape[1])):
                return TABLE_FULL
            count = enter_block(
                store, cfg, keys, links, table, heads, l_seq_tick, r_seq_tick, l_marks, r_marks,
                cursor, work, words,
            )  # fmt: skip
            if count:
                cursor[PHASE], cursor[PLANNED], cursor[EXPANDED] = _EXPANDING, count, 0
        elif cursor[PHASE] == _EXPANDING:
            if not expand(cfg, links, cursor, work, found, pairs):
                return PAIRS_FULL
            cursor[TAKEN] += cursor[PLANNED]
            cursor[PHASE] = _PLAIN
        elif cursor[PHASE] == LEAVING:
            _, _, n, m = next_instant(store, cfg, l_seq_tick, r_seq_tick, cursor)
            if lacks_keys(table, cursor, n + m):
                return TABLE_FULL
            fits = leave(
                store, cfg, keys, links, table, heads, l_seq_tick, r_seq_tick, l_marks, r_marks, cursor, pairs
            )  # fmt: skip
            if not fits:
                return PAIRS_FULL
            for side in range(2):
                end = cfg[side, NEXT] + (m if side else n)
                cursor[USED] += enter_rows(store, cfg, keys, links, table, heads, side, cfg[side, NEXT], end)
            cursor[PHASE] = _ARRIVING
        else:
            fits = arrive(
                store, cfg, keys, links, table, heads, l_seq_tick, r_seq_tick, l_marks, r_marks, cursor, pairs
            )  # fmt: skip
            if not fits:
                return PAIRS_FULL
            cursor[PHASE] = _PLAIN
