"""The N-way window join: one operator, nothing intermediate kept (MJoin, [LowDelayJoin]).

Instants run one after the other. In an instant, first the rows that leave meet the other windows as they
are, input by input, and are gone; then the rows that enter do. A combination of rows is so found exactly
once when its last row enters and once when its first leaves, and the diffs add up at every instant. Rows
that would enter and leave within one instant never enter.

A row goes from input to input in the order that `probe` gives for its own input: it looks up the first
one's matches, with each of these the second one's, and so on, depth first. `probe[i, d]` says for a row of
input i at depth d: the TARGET input, the index X to look in, which of the arrival's hashes is the key's
(HASHED, or NONE), how many KEYS the index has and how many more CHECKS there are; then for each key and each
check (input, place) of the bound row, and for each check also the place in the target's row.

Two windows are the case N = 2. Then this is the machine of [WindowJoin]: an arrival is matched with the other
window, enters its own, and a window changes only while nobody reads it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.join.multiway.kernels.rings import (  # fmt: skip
    AHEAD,
    ARRIVED,
    AT,
    BAG,
    CAPACITY,
    COUNT,
    DEAD,
    FIRST_INDEX,
    HEADS,
    IN_DIFF,
    IN_HASH,
    IN_SEQ_TICK,
    IN_STRIDE,
    IN_TS,
    INBOX,
    INDEXES,
    KEY,
    KEY_NULLS,
    KIND,
    LEAVE_TO,
    LENGTH,
    LINK,
    MASK,
    NEXT,
    NONE,
    NOW,
    NOW_SEQ_TICK,
    NOW_TS,
    RANGE,
    ROWS,
    START,
    STAYING,
    WORDS,
    WORDS_AT,
    ZERO,
    place,
    time_place,
)
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import GOLDEN, mix

# What the kernel says when it returns; then the caller makes room and calls again.
DONE, OUTPUT_FULL, RING_FULL, MEET = range(4)

# The fields of a probe.
TARGET, X, HASHED, BOUND_KEYS, CHECKS, SOURCES = range(6)

# When the pairs that leave are written: always; only at instants at which rows enter, too; or only where
# they may equal pairs that enter.
ALL, MIXED, NETTED = range(3)

# `state`: where the kernel stands. The instant, its phase, the input that is looked at, the depth.
PHASE, INPUT, DEPTH, TS, SEQ_TICK, LEAVERS, WRITTEN, CANCELS, MODE, DIFF, HASHES, LEAVER, JUNK = range(13)
STATE = 13
SEEK, LEAVE, ENTER = range(3)

_GREATEST = 2**63 - 1
_BLOCK = 48
_COMPARED = 64

C = "int64[:, :, ::1]"


@compiled("boolean(int64, int64, int64, int64)")
def before(ts: Any, seq_tick: Any, other_ts: Any, other_seq_tick: Any) -> Any:
    return ts < other_ts or (ts == other_ts and seq_tick < other_seq_tick)


@compiled(f"UniTuple(int64, 2)({V}, {M}, int64)")
def expiry(arena: Any, cfg: Any, i: Any) -> Any:
    """When the oldest row of a time window leaves; the end of time if there is none."""
    kind = cfg[i, KIND]
    if cfg[i, START] == cfg[i, NEXT] or (kind != RANGE and kind != NOW):
        return _GREATEST, _GREATEST
    if kind == NOW:
        return cfg[i, NOW_TS], cfg[i, NOW_SEQ_TICK] + 1
    ts = arena[time_place(cfg, i, cfg[i, START])]
    return (_GREATEST if ts >= _GREATEST - cfg[i, LENGTH] else ts + cfg[i, LENGTH] + 1), 0


@compiled(f"boolean({V}, {M}, {V}, {V}, int64, int64)")
def seek(arena: Any, cfg: Any, inbox: Any, state: Any, upto_ts: Any, upto_seq_tick: Any) -> Any:
    """Finds the next instant before the frontier at which something happens; whether there is one."""
    ts, seq_tick = upto_ts, upto_seq_tick
    for i in range(len(cfg)):
        if cfg[i, AT] < cfg[i, COUNT]:
            row = cfg[i, INBOX] + cfg[i, AT] * cfg[i, IN_STRIDE]
            if before(inbox[row + IN_TS], inbox[row + IN_SEQ_TICK], ts, seq_tick):
                ts, seq_tick = inbox[row + IN_TS], inbox[row + IN_SEQ_TICK]
        if state[MODE] == ALL:
            out_ts, out_seq_tick = expiry(arena, cfg, i)
            if before(out_ts, out_seq_tick, ts, seq_tick):
                ts, seq_tick = out_ts, out_seq_tick
    state[TS], state[SEQ_TICK] = ts, seq_tick
    return before(ts, seq_tick, upto_ts, upto_seq_tick)


@compiled(f"void({V}, {M}, {V}, {V}, int64)")
def gather(arena: Any, cfg: Any, inbox: Any, state: Any, i: Any) -> None:
    """Which rows of input i enter and leave at this instant; those that left before it go without a word."""
    ts, seq_tick = state[TS], state[SEQ_TICK]
    at, stride = cfg[i, AT], cfg[i, IN_STRIDE]
    row = cfg[i, INBOX] + at * stride
    while at < cfg[i, COUNT] and inbox[row + IN_TS] == ts and inbox[row + IN_SEQ_TICK] == seq_tick:
        at += 1
        row += stride
    cfg[i, ARRIVED] = at
    cfg[i, STAYING] = cfg[i, AT]
    kind = cfg[i, KIND]
    if kind == ROWS:
        entering = min(at - cfg[i, AT], cfg[i, LENGTH])
        cfg[i, STAYING] = at - entering
        cfg[i, LEAVE_TO] = max(cfg[i, START], cfg[i, NEXT] + entering - cfg[i, LENGTH])
    elif kind == RANGE:
        out_ts, out_seq_tick = expiry(arena, cfg, i)
        while before(out_ts, out_seq_tick, ts, seq_tick):
            cfg[i, START] += 1
            out_ts, out_seq_tick = expiry(arena, cfg, i)
        oldest = cfg[i, START]
        while out_ts == ts and out_seq_tick == seq_tick:
            cfg[i, START] += 1
            out_ts, out_seq_tick = expiry(arena, cfg, i)
        cfg[i, LEAVE_TO] = cfg[i, START]
        cfg[i, START] = oldest
    elif kind == NOW:
        out_ts, out_seq_tick = expiry(arena, cfg, i)
        if before(out_ts, out_seq_tick, ts, seq_tick):
            cfg[i, START] = cfg[i, NEXT]
        cfg[i, LEAVE_TO] = cfg[i, NEXT] if out_ts == ts and out_seq_tick == seq_tick else cfg[i, START]
    else:
        cfg[i, LEAVE_TO] = cfg[i, START]


@compiled(f"boolean({V}, {M}, {V}, int64)")
def has_twin(arena: Any, cfg: Any, inbox: Any, i: Any) -> Any:
    """Whether a row that leaves input i may equal one that enters it."""
    leaving, entering = cfg[i, LEAVE_TO] - cfg[i, START], cfg[i, ARRIVED] - cfg[i, STAYING]
    if leaving * entering > _COMPARED:
        return True
    for number in range(cfg[i, START], cfg[i, LEAVE_TO]):
        row = place(cfg, i, number) + cfg[i, WORDS_AT]
        for at in range(cfg[i, STAYING], cfg[i, ARRIVED]):
            other = cfg[i, INBOX] + at * cfg[i, IN_STRIDE] + IN_HASH + cfg[i, INDEXES]
            word = 0
            while word < cfg[i, WORDS] and arena[row + word] == inbox[other + word]:
                word += 1
            if word == cfg[i, WORDS]:
                return True
    return False


@compiled(f"void({V}, {M}, {V}, {V})")
def begin(arena: Any, cfg: Any, inbox: Any, state: Any) -> None:
    """Gathers what happens at the instant, and decides whether pairs that leave must be written."""
    entering = leaving = 0
    mover = NONE  # the only input that moves, or the number of inputs if several do
    for i in range(len(cfg)):
        gather(arena, cfg, inbox, state, i)
        enters, leaves = cfg[i, STAYING] < cfg[i, ARRIVED], cfg[i, START] < cfg[i, LEAVE_TO]
        if cfg[i, KIND] == BAG:
            enters = leaves = False
            for at in range(cfg[i, AT], cfg[i, ARRIVED]):
                gains = inbox[cfg[i, INBOX] + at * cfg[i, IN_STRIDE] + IN_DIFF] > 0
                enters, leaves = enters or gains, leaves or not gains
        entering += enters
        leaving += leaves
        if enters or leaves:
            mover = i if mover == NONE else len(cfg)
    state[LEAVERS] = state[MODE] == ALL or (entering > 0 and leaving > 0)
    if state[MODE] == NETTED and state[LEAVERS]:
        if mover < len(cfg) and cfg[mover, KIND] != BAG and not has_twin(arena, cfg, inbox, mover):
            state[LEAVERS] = 0
        else:
            state[CANCELS] = 1


@compiled(f"int64({V}, {M}, {M}, {C}, {V}, int64, int64, int64, int64)")
def settle(
    arena: Any, cfg: Any, index: Any, probe: Any, bound: Any, i: Any, d: Any, link: Any, number: Any
) -> Any:
    """The first match at or after row `number` of a chain, to which `link` points; NONE if there is none."""
    j, x = probe[i, d, TARGET], probe[i, d, X]
    start, keys = cfg[j, START], probe[i, d, BOUND_KEYS]
    checks = SOURCES + 2 * keys
    while number >= start:
        row = place(cfg, j, number)
        if cfg[j, KIND] == BAG and arena[time_place(cfg, j, number)] == DEAD:
            number = arena[row + index[x, LINK]]
            arena[link] = number
            continue
        k = 0
        while k < keys and (
            arena[row + index[x, KEY + k]]
            == arena[bound[probe[i, d, SOURCES + 2 * k]] + probe[i, d, SOURCES + 2 * k + 1]]
        ):
            k += 1
        if k == keys:
            k = 0
            while k < probe[i, d, CHECKS] and (
                arena[row + probe[i, d, checks + 3 * k + 2]]
                == arena[bound[probe[i, d, checks + 3 * k]] + probe[i, d, checks + 3 * k + 1]]
            ):
                k += 1
            if k == probe[i, d, CHECKS]:
                return number
        link = row + index[x, LINK]
        number = arena[link]
    return NONE


@compiled(f"int64({V}, {M}, {M}, {C}, {V}, {V}, int64, int64, int64)")
def first(
    arena: Any, cfg: Any, index: Any, probe: Any, bound: Any, inbox: Any, i: Any, d: Any, hashes: Any
) -> Any:
    """The newest match at depth d for the rows bound so far. `hashes`: where the arrival's lie, or NONE."""
    x, own = probe[i, d, X], probe[i, d, HASHED]
    if own != NONE and hashes != NONE:
        key_hash = inbox[hashes + own]
    else:
        state = GOLDEN
        for k in range(probe[i, d, BOUND_KEYS]):
            source = probe[i, d, SOURCES + 2 * k]
            state = mix(state, arena[bound[source] + probe[i, d, SOURCES + 2 * k + 1]])
        key_hash = np.int64(state)
    head = index[x, HEADS] + (key_hash & index[x, MASK])
    return settle(arena, cfg, index, probe, bound, i, d, head, arena[head])


@compiled(f"void({V}, {M}, {V}, int64, {V}, {V}, {V}, {M}, {M}, {V})")
def write(
    arena: Any, cfg: Any, bound: Any, diff: Any, out_ts: Any, out_seq_tick: Any, out_diff: Any, out_data: Any,
    columns: Any, state: Any,
) -> None:  # fmt: skip
    """Writes the combination of bound rows; `columns` [n, 3]: input, place and NULL bit of each column."""
    n = state[WRITTEN]
    out_ts[n], out_seq_tick[n], out_diff[n] = state[TS], state[SEQ_TICK], diff
    any_null = 0
    for i in range(len(cfg)):
        any_null |= arena[bound[i] + cfg[i, WORDS_AT] + cfg[i, WORDS] - 1]
    nulls = 0
    for c in range(len(columns)):
        out_data[c, n] = arena[bound[columns[c, 0]] + columns[c, 1]]
    if any_null:
        for c in range(len(columns)):
            i = columns[c, 0]
            word = arena[bound[i] + cfg[i, WORDS_AT] + cfg[i, WORDS] - 1]
            nulls |= ((word >> columns[c, 2]) & 1) << c
    out_data[len(columns), n] = nulls
    state[WRITTEN] = n + 1


@compiled(f"boolean({V}, {M}, {M}, {C}, {C}, {V}, {V}, {V}, {V}, {V}, {V}, {V}, {M}, {M})")
def combine(
    arena: Any, cfg: Any, index: Any, probe: Any, seen: Any, bound: Any, chosen: Any, inbox: Any, state: Any,
    out_ts: Any, out_seq_tick: Any, out_diff: Any, out_data: Any, columns: Any,
) -> Any:  # fmt: skip
    """Writes every combination of the bound row of state[INPUT] with the other windows; False: no room.

    `chosen[d]` is the row at depth d; `seen[i, j]` counts probes of j for rows of i, and their matches.
    """
    i, hashes, last = state[INPUT], state[HASHES], len(cfg) - 2
    d = state[DEPTH]
    if d == NONE:
        d = 0
        chosen[0] = first(arena, cfg, index, probe, bound, inbox, i, 0, hashes)
        seen[i, probe[i, 0, TARGET], 0] += 1
    while d >= 0:
        number = chosen[d]
        if number == NONE:
            d -= 1
            if d < 0:
                break
        else:
            j = probe[i, d, TARGET]
            bound[j] = place(cfg, j, number)
            if d < last:
                seen[i, j, 1] += 1
                d += 1
                chosen[d] = first(arena, cfg, index, probe, bound, inbox, i, d, hashes)
                seen[i, probe[i, d, TARGET], 0] += 1
                continue
            if state[WRITTEN] == len(out_ts):
                state[DEPTH] = d
                return False
            seen[i, j, 1] += 1
            write(arena, cfg, bound, state[DIFF], out_ts, out_seq_tick, out_diff, out_data, columns, state)
        link = bound[probe[i, d, TARGET]] + index[probe[i, d, X], LINK]
        chosen[d] = settle(arena, cfg, index, probe, bound, i, d, link, arena[link])
    state[DEPTH] = NONE
    return True


@compiled(f"void({V}, {M}, {M}, {C}, {V}, {V}, int64)")
def look_ahead(arena: Any, cfg: Any, index: Any, probe: Any, inbox: Any, state: Any, i: Any) -> None:
    """Reads what the next arrivals of input i will read, so that memory answers to all of them at once."""
    begin, end = cfg[i, AT], min(cfg[i, AT] + _BLOCK, cfg[i, COUNT])
    cfg[i, AHEAD] = end
    x, j = probe[i, 0, X], probe[i, 0, TARGET]
    if end - begin < 2 or probe[i, 0, HASHED] == NONE:
        return
    read = 0
    own = cfg[i, FIRST_INDEX] + probe[i, 0, HASHED]
    at = cfg[i, INBOX] + begin * cfg[i, IN_STRIDE] + IN_HASH + probe[i, 0, HASHED]
    for _ in range(begin, end):
        key_hash = inbox[at]
        read ^= arena[index[own, HEADS] + (key_hash & index[own, MASK])]
        number = arena[index[x, HEADS] + (key_hash & index[x, MASK])]
        if number >= cfg[j, START]:
            read ^= arena[place(cfg, j, number)]
        at += cfg[i, IN_STRIDE]
    state[JUNK] = read  # so that the reads are not left out as useless


@compiled(f"int64({V}, {M}, {M}, int64, {V}, int64)")
def find_twin(arena: Any, cfg: Any, index: Any, i: Any, inbox: Any, at: Any) -> Any:
    """The number of a living row of a BAG equal to an arrival; the last index is by the whole row."""
    own = cfg[i, INDEXES] - 1
    x = cfg[i, FIRST_INDEX] + own
    words = cfg[i, INBOX] + at * cfg[i, IN_STRIDE] + IN_HASH
    link = index[x, HEADS] + (inbox[words + own] & index[x, MASK])
    words += cfg[i, INDEXES]
    number = arena[link]
    while number >= cfg[i, START]:
        row = place(cfg, i, number)
        if arena[time_place(cfg, i, number)] == DEAD:
            number = arena[row + index[x, LINK]]
            arena[link] = number
            continue
        word = 0
        while word < cfg[i, WORDS] and arena[row + cfg[i, WORDS_AT] + word] == inbox[words + word]:
            word += 1
        if word == cfg[i, WORDS]:
            return number
        link = row + index[x, LINK]
        number = arena[link]
    return NONE


@compiled(f"void({V}, {M}, int64)")
def skip_dead(arena: Any, cfg: Any, i: Any) -> None:
    while cfg[i, START] < cfg[i, NEXT] and arena[time_place(cfg, i, cfg[i, START])] == DEAD:
        cfg[i, START] += 1


@compiled(f"int64({V}, {M}, int64, {V}, int64)")
def enter(arena: Any, cfg: Any, i: Any, inbox: Any, at: Any) -> Any:
    """Copies an arrival into its ring, which has room; returns where."""
    if cfg[i, NEXT] - cfg[i, ZERO] == cfg[i, CAPACITY]:
        cfg[i, ZERO] = cfg[i, NEXT]
    row = place(cfg, i, cfg[i, NEXT])
    arena[time_place(cfg, i, cfg[i, NEXT])] = inbox[at + IN_TS]
    to, words = row + cfg[i, WORDS_AT], at + IN_HASH + cfg[i, INDEXES]
    for word in range(cfg[i, WORDS]):
        arena[to + word] = inbox[words + word]
    return row


@compiled(f"void({V}, {M}, {M}, {V}, {V}, int64)")
def settle_in(arena: Any, cfg: Any, index: Any, inbox: Any, state: Any, at: Any) -> None:
    """The row that has just met the other windows is part of its own from now on."""
    i = state[INPUT]
    if state[HASHES] != NONE:
        for own in range(cfg[i, INDEXES]):
            x = cfg[i, FIRST_INDEX] + own
            head = index[x, HEADS] + (inbox[at + IN_HASH + own] & index[x, MASK])
            arena[place(cfg, i, cfg[i, NEXT]) + index[x, LINK]] = arena[head]
            arena[head] = cfg[i, NEXT]
    cfg[i, NOW_TS], cfg[i, NOW_SEQ_TICK] = state[TS], state[SEQ_TICK]
    cfg[i, NEXT] += 1
    cfg[i, AT] += 1


@compiled(f"boolean({V}, {M}, {M}, {V}, {V}, {V})")
def next_leaver(arena: Any, cfg: Any, index: Any, bound: Any, inbox: Any, state: Any) -> Any:
    """Binds the next row that leaves and has to meet the other windows; False if there is none."""
    state[DIFF], state[HASHES] = -1, NONE
    while state[INPUT] < len(cfg):
        i = state[INPUT]
        nulls = cfg[i, WORDS_AT] + cfg[i, WORDS] - 1
        if cfg[i, KIND] != BAG:
            if not state[LEAVERS]:
                cfg[i, START] = cfg[i, LEAVE_TO]
            while cfg[i, START] < cfg[i, LEAVE_TO]:
                bound[i] = place(cfg, i, cfg[i, START])
                if not arena[bound[i] + nulls] & cfg[i, KEY_NULLS]:
                    return True
                cfg[i, START] += 1
            cfg[i, AT] = cfg[i, STAYING]
        else:
            # A relation's rows leave in any order; STAYING is how far its changes have been looked at.
            while cfg[i, STAYING] < cfg[i, ARRIVED]:
                at = cfg[i, INBOX] + cfg[i, STAYING] * cfg[i, IN_STRIDE]
                null = inbox[at + IN_HASH + cfg[i, INDEXES] + cfg[i, WORDS] - 1] & cfg[i, KEY_NULLS]
                if inbox[at + IN_DIFF] < 0 and not null:
                    state[LEAVER] = find_twin(arena, cfg, index, i, inbox, cfg[i, STAYING])
                    bound[i] = place(cfg, i, state[LEAVER])
                    if state[LEAVERS]:
                        state[HASHES] = at + IN_HASH
                        return True
                    arena[time_place(cfg, i, state[LEAVER])] = DEAD
                cfg[i, STAYING] += 1
            skip_dead(arena, cfg, i)
        state[INPUT] += 1
    return False


@compiled(f"void({V}, {M}, {V})")
def leave(arena: Any, cfg: Any, state: Any) -> None:
    """The row that has just met the other windows is gone from its own."""
    i = state[INPUT]
    if cfg[i, KIND] == BAG:
        arena[time_place(cfg, i, state[LEAVER])] = DEAD
        cfg[i, STAYING] += 1
    else:
        cfg[i, START] += 1


@compiled(f"int64({V}, {M}, {M}, {C}, {V}, {V}, {V})")
def next_comer(arena: Any, cfg: Any, index: Any, probe: Any, bound: Any, inbox: Any, state: Any) -> Any:
    """Binds the next row that enters and has to meet the other windows: MEET, RING_FULL or DONE."""
    state[DIFF] = 1
    while state[INPUT] < len(cfg):
        i = state[INPUT]
        while cfg[i, AT] < cfg[i, ARRIVED]:
            if cfg[i, AT] >= cfg[i, AHEAD]:
                look_ahead(arena, cfg, index, probe, inbox, state, i)
            at = cfg[i, INBOX] + cfg[i, AT] * cfg[i, IN_STRIDE]
            null = inbox[at + IN_HASH + cfg[i, INDEXES] + cfg[i, WORDS] - 1] & cfg[i, KEY_NULLS]
            if inbox[at + IN_DIFF] < 0 or (null and cfg[i, KIND] != ROWS):
                cfg[i, AT] += 1
                continue
            if cfg[i, NEXT] - cfg[i, START] == cfg[i, CAPACITY]:
                return RING_FULL
            bound[i] = enter(arena, cfg, i, inbox, at)
            state[HASHES] = NONE if null else at + IN_HASH
            if not null:
                return MEET
            settle_in(arena, cfg, index, inbox, state, at)
        state[INPUT] += 1
    return DONE


_TABLES = f"{V}, {M}, {M}, {C}, {C}, {V}, {V}, {V}, {V}, int64, int64, {V}, {V}, {V}, {M}, {M}"


@compiled(f"int64({_TABLES})", inline=False)
def join(
    arena: Any, cfg: Any, index: Any, probe: Any, seen: Any, bound: Any, chosen: Any, inbox: Any, state: Any,
    upto_ts: Any, upto_seq_tick: Any, out_ts: Any, out_seq_tick: Any, out_diff: Any, out_data: Any,
    columns: Any,
) -> Any:  # fmt: skip
    """Runs all instants before the frontier. Returns DONE, or what has run out of room.

    `state` begins with PHASE = SEEK, DEPTH = NONE, WRITTEN = CANCELS = 0. `bound` [inputs] and
    `chosen` [inputs] are room for the kernel. With RING_FULL, the ring without room is state[INPUT]'s.
    """
    while True:
        if state[DEPTH] == NONE:
            if state[PHASE] == SEEK:
                if not seek(arena, cfg, inbox, state, upto_ts, upto_seq_tick):
                    return DONE
                begin(arena, cfg, inbox, state)
                state[PHASE], state[INPUT] = LEAVE, 0
            if state[PHASE] == LEAVE and not next_leaver(arena, cfg, index, bound, inbox, state):
                state[PHASE], state[INPUT] = ENTER, 0
            if state[PHASE] == ENTER:
                found = next_comer(arena, cfg, index, probe, bound, inbox, state)
                if found == RING_FULL:
                    return RING_FULL
                if found == DONE:
                    state[PHASE] = SEEK
                    continue
        done = combine(
            arena, cfg, index, probe, seen, bound, chosen, inbox, state,
            out_ts, out_seq_tick, out_diff, out_data, columns,
        )  # fmt: skip
        if not done:
            return OUTPUT_FULL
        if state[PHASE] == LEAVE:
            leave(arena, cfg, state)
        else:
            settle_in(arena, cfg, index, inbox, state, state[HASHES] - IN_HASH)
