"""The parallel MJoin of [LowDelayJoin]: semi-joins side by side, then a lazy cross product.

`dispatch` lays down what happens, in order, as `events` [n, 5]: ts, seq_tick, input, row number, diff. +1 is
a row that enters, -1 one that leaves and has to meet the others, 0 only moves the input's START.
All rows are in their rings by then, and none is written over before the call is done. After that each window
needs nobody: `semi_join` goes through the events, lets its own rows come and go, and notes for each row of
another input which of its own rows have the key. Windows do this at the same time. `merge` at last writes the
combinations, event by event, going through the noted rows as the hands of a clock do: none is made
before it is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.join.multiway.kernels.mjoin import (
    DEPTH,
    INPUT,
    LEAVERS,
    SEQ_TICK,
    TS,
    WRITTEN,
    begin,
    enter,
    seek,
    write,
)
from kasen.engine.join.multiway.kernels.rings import (
    ARRIVED,
    AT,
    FIRST_INDEX,
    HEADS,
    IN_HASH,
    IN_STRIDE,
    INBOX,
    INDEXES,
    KEY,
    KEY_NULLS,
    KEYS,
    KIND,
    LEAVE_TO,
    LINK,
    MASK,
    NEXT,
    NONE,
    NOW_SEQ_TICK,
    NOW_TS,
    ROWS,
    START,
    STAYING,
    WORDS,
    place,
)
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import GOLDEN, mix

# The fields of an event.
E_TS, E_SEQ_TICK, E_INPUT, E_NUMBER, E_DIFF = range(5)
FIELDS = 5

# `cursor` of a semi-join: the next event, the next match of it, the matches noted.
EVENT, MATCH, NOTED = range(3)
FRESH = -2


@compiled(f"int64({V}, {M}, {V}, {V}, int64, int64, {M}, {V})", inline=False)
def dispatch(
    arena: Any, cfg: Any, inbox: Any, state: Any, upto_ts: Any, upto_seq_tick: Any, events: Any, told: Any
) -> Any:
    """Writes all arrivals into their rings and all events, for which there is room; returns their number.

    `told` begins as each input's START.
    """
    n = 0
    while seek(arena, cfg, inbox, state, upto_ts, upto_seq_tick):
        begin(arena, cfg, inbox, state)
        ts, seq_tick = state[TS], state[SEQ_TICK]
        for i in range(len(cfg)):
            if state[LEAVERS]:
                for number in range(cfg[i, START], cfg[i, LEAVE_TO]):
                    events[n, E_TS], events[n, E_SEQ_TICK], events[n, E_INPUT] = ts, seq_tick, i
                    events[n, E_NUMBER], events[n, E_DIFF] = number, -1
                    n += 1
            # Rows also leave without a word, some of them before this instant.
            events[n, E_TS], events[n, E_SEQ_TICK], events[n, E_INPUT] = ts, seq_tick, i
            events[n, E_NUMBER], events[n, E_DIFF] = cfg[i, LEAVE_TO], 0
            n += cfg[i, LEAVE_TO] > told[i]
            told[i] = cfg[i, START] = cfg[i, LEAVE_TO]
        for i in range(len(cfg)):
            for a in range(cfg[i, STAYING], cfg[i, ARRIVED]):
                at = cfg[i, INBOX] + a * cfg[i, IN_STRIDE]
                null = inbox[at + IN_HASH + cfg[i, INDEXES] + cfg[i, WORDS] - 1] & cfg[i, KEY_NULLS]
                if null and cfg[i, KIND] != ROWS:
                    continue
                enter(arena, cfg, i, inbox, at)
                if not null:
                    events[n, E_TS], events[n, E_SEQ_TICK], events[n, E_INPUT] = ts, seq_tick, i
                    events[n, E_NUMBER], events[n, E_DIFF] = cfg[i, NEXT], 1
                    n += 1
                cfg[i, NOW_TS], cfg[i, NOW_SEQ_TICK] = ts, seq_tick
                cfg[i, NEXT] += 1
            cfg[i, AT] = cfg[i, ARRIVED]
    return n


@compiled(f"int64({V}, {M}, {M}, {V}, int64, {M}, int64, {V}, {V}, {V}, {V})", inline=False)
def semi_join(
    arena: Any, cfg: Any, index: Any, keyed: Any, j: Any, events: Any, count: Any, starts: Any, spans: Any,
    noted: Any, cursor: Any,
) -> Any:  # fmt: skip
    """Window j's part. Returns whether all is done; if not, `noted` has run out of room.

    `keyed[i]`: which of input i's indexes is that of the common key; `starts[j]` the window's first row now;
    spans[e] and spans[e + 1] enclose the matches of event e in `noted`.
    """
    own = cfg[j, FIRST_INDEX] + keyed[j]
    heads, mask, link_at = index[own, HEADS], index[own, MASK], index[own, LINK]
    start, n = starts[j], cursor[NOTED]
    for e in range(cursor[EVENT], count):
        i, number, diff = events[e, E_INPUT], events[e, E_NUMBER], events[e, E_DIFF]
        spans[e] = n if cursor[MATCH] == FRESH else spans[e]
        if diff == 0:
            start = number if i == j else start
            continue
        row = place(cfg, i, number)
        theirs = cfg[i, FIRST_INDEX] + keyed[i]
        state = GOLDEN
        for k in range(index[theirs, KEYS]):
            state = mix(state, arena[row + index[theirs, KEY + k]])
        head = heads + (np.int64(state) & mask)
        if i == j:
            if diff > 0:
                arena[row + link_at] = arena[head]
                arena[head] = number
            else:
                start = number + 1
            continue
        match = arena[head] if cursor[MATCH] == FRESH else cursor[MATCH]
        while match >= start:
            mine = place(cfg, j, match)
            k = 0
            while k < index[own, KEYS] and (
                arena[mine + index[own, KEY + k]] == arena[row + index[theirs, KEY + k]]
            ):
                k += 1
            if k == index[own, KEYS]:
                if n == len(noted):
                    cursor[EVENT], cursor[MATCH], cursor[NOTED] = e, match, n
                    starts[j] = start
                    return False
                noted[n] = match
                n += 1
            match = arena[mine + link_at]
        cursor[MATCH] = FRESH
    spans[count] = n
    starts[j] = start
    return True


@compiled(f"boolean({V}, {M}, {V})")
def satisfied(arena: Any, checks: Any, bound: Any) -> Any:
    """Whether the bound rows are equal in what the common key does not cover: (input, place) twice."""
    k = 0
    while k < len(checks) and (
        arena[bound[checks[k, 0]] + checks[k, 1]] == arena[bound[checks[k, 2]] + checks[k, 3]]
    ):
        k += 1
    return k == len(checks)


@compiled(
    f"boolean({V}, {M}, {M}, int64, {M}, {M}, {M}, {V}, {V}, {V}, {V}, {V}, {V}, {M}, {M})", inline=False
)
def merge(
    arena: Any, cfg: Any, events: Any, count: Any, spans: Any, noted: Any, checks: Any, bound: Any,
    hands: Any, state: Any, out_ts: Any, out_seq_tick: Any, out_diff: Any, out_data: Any, columns: Any,
) -> Any:  # fmt: skip
    """Writes the combinations of all events; returns False when the output is full.

    `noted` [inputs, room] and `spans` [inputs, events + 1] are what the semi-joins left. state[INPUT] is the
    event, state[DEPTH] NONE before its first combination; `hands` [inputs] stand at the next one.
    """
    inputs = len(cfg)
    while state[INPUT] < count:
        e = state[INPUT]
        i, diff = events[e, E_INPUT], events[e, E_DIFF]
        empty = diff == 0
        for j in range(inputs):
            empty = empty or (j != i and spans[j, e] == spans[j, e + 1])
        if empty:
            state[INPUT] += 1
            continue
        if state[DEPTH] == NONE:
            for j in range(inputs):
                hands[j] = spans[j, e]
            state[DEPTH] = 0
        state[TS], state[SEQ_TICK] = events[e, E_TS], events[e, E_SEQ_TICK]
        bound[i] = place(cfg, i, events[e, E_NUMBER])
        turning = True
        while turning:
            if state[WRITTEN] == len(out_ts):
                return False
            for j in range(inputs):
                if j != i:
                    bound[j] = place(cfg, j, noted[j, hands[j]])
            if satisfied(arena, checks, bound):
                write(arena, cfg, bound, diff, out_ts, out_seq_tick, out_diff, out_data, columns, state)
            # The next combination: as on a clock, a hand that has gone round moves the next one.
            j = 0
            while j < inputs:
                if j != i:
                    hands[j] += 1
                    if hands[j] < spans[j, e + 1]:
                        break
                    hands[j] = spans[j, e]
                j += 1
            turning = j < inputs
        state[DEPTH] = NONE
        state[INPUT] += 1
    return True
