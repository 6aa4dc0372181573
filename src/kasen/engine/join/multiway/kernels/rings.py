"""The windows of a join: rings of rows in arrival order, indexed by key.

All windows of one join lie in one array, `arena`, so that a kernel can go from one to any other. What lies
where, and what each window is, say two tables:

`cfg` [inputs, FIELDS]: for each input its kind of window, where its ring and its inbox lie, and its marks.
`index` [indexes, KEY + keys]: for each index of an input where its heads lie, and the key's places in a row.

A row of a ring is a link for each index, then the row's words. Its time lies apart, as only those who let
rows go read it. Rows are numbered from 0 in the order in which they enter. An index is a hash table of
chains: the head of a bucket is the newest row's number, a link the next older row's. As numbers descend
along a chain, it ends at the first number below START: what has left the window needs no unlinking, and a
ring in its steady state writes only the rows that enter. Rows that leave out of turn (BAG) have DEAD as
their time, and are unlinked by whoever comes by next.

A row of the inbox, where the arrivals of a call wait, is ts, seq_tick, diff, a hash per index, the words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import GOLDEN, mix

# The kinds of windows: the last LENGTH rows, those not older than LENGTH, those of this instant, all; a
# relation whose changes come from outside; and, for PairJoin, the last LENGTH rows of a stream of which a
# shard has only some, each with its ordinal as its first column.
ROWS, RANGE, NOW, UNBOUNDED, BAG, COUNTED = range(6)

# The fields of `cfg`. Set once: what the window is, and the shape of its rows.
KIND, LENGTH, STRIDE, WORDS_AT, WORDS, FIRST_INDEX, INDEXES, KEY_NULLS, IN_STRIDE = range(9)
# Moved when the arena grows: where ring, times and inbox lie, the ring's room, the number at its place 0.
RING, TIMES, CAPACITY, ZERO, INBOX = range(9, 14)
# Marks: the oldest row in the window, the number of the next to enter; the next and the last arrival.
START, NEXT, AT, COUNT = range(14, 18)
# Of the instant that runs: arrivals and leavers end here, the first arrival that stays; the rows' instant.
ARRIVED, LEAVE_TO, STAYING, NOW_TS, NOW_SEQ_TICK, AHEAD = range(18, 24)
FIELDS = 24

# The fields of `index`; the places of the key's words in a row follow.
HEADS, MASK, LINK, KEYS, KEY = range(5)

# The fields of an inbox row in front of its hashes.
IN_TS, IN_SEQ_TICK, IN_DIFF, IN_HASH = range(4)

NONE = -1
DEAD = -(2**63)


@compiled(f"int64({M}, int64, int64)")
def place(cfg: Any, i: Any, number: Any) -> Any:
    """Where row `number` of input i's ring begins in the arena."""
    at = number - cfg[i, ZERO]
    if at < 0:
        at += cfg[i, CAPACITY]
    return cfg[i, RING] + at * cfg[i, STRIDE]


@compiled(f"int64({M}, int64, int64)")
def time_place(cfg: Any, i: Any, number: Any) -> Any:
    """Where the time of row `number` lies."""
    at = number - cfg[i, ZERO]
    if at < 0:
        at += cfg[i, CAPACITY]
    return cfg[i, TIMES] + at


@compiled(f"int64({V}, {M}, int64, int64)")
def hash_of(arena: Any, index: Any, x: Any, row: Any) -> Any:
    """The hash of a ring row's key in index x."""
    state = GOLDEN
    for k in range(index[x, KEYS]):
        state = mix(state, arena[row + index[x, KEY + k]])
    return np.int64(state)


@compiled(f"void({V}, {M}, {M}, int64, int64, int64)")
def link(arena: Any, cfg: Any, index: Any, i: Any, number: Any, row: Any) -> None:
    """Puts a ring row into all indexes of its input, as the newest."""
    for x in range(cfg[i, FIRST_INDEX], cfg[i, FIRST_INDEX] + cfg[i, INDEXES]):
        head = index[x, HEADS] + (hash_of(arena, index, x, row) & index[x, MASK])
        arena[row + index[x, LINK]] = arena[head]
        arena[head] = number


@compiled(f"int64({V}, {M}, int64)", inline=False)
def living(arena: Any, cfg: Any, i: Any) -> Any:
    """How many rows of input i are in its window (BAG: dead ones are not)."""
    count = 0
    for number in range(cfg[i, START], cfg[i, NEXT]):
        count += arena[time_place(cfg, i, number)] != DEAD
    return count


@compiled(f"void({V}, {M}, {M}, int64, {V}, int64, int64, int64)", inline=False)
def move(arena: Any, cfg: Any, index: Any, i: Any, target: Any, ring: Any, times: Any, capacity: Any) -> None:
    """Moves input i's living rows to a ring in another arena, numbered from 0, and indexes them there.

    The caller has set index's HEADS and MASK to those of the new arena, and filled the heads with NONE.
    """
    kept = 0
    for number in range(cfg[i, START], cfg[i, NEXT]):
        ts = arena[time_place(cfg, i, number)]
        if ts != DEAD:
            row, to = place(cfg, i, number), ring + kept * cfg[i, STRIDE]
            for word in range(cfg[i, STRIDE]):
                target[to + word] = arena[row + word]
            target[times + kept] = ts
            kept += 1
    cfg[i, RING], cfg[i, TIMES], cfg[i, CAPACITY], cfg[i, ZERO] = ring, times, capacity, 0
    cfg[i, START], cfg[i, NEXT] = 0, kept
    nulls = cfg[i, WORDS_AT] + cfg[i, WORDS] - 1
    for number in range(kept):
        row = place(cfg, i, number)
        if not target[row + nulls] & cfg[i, KEY_NULLS]:
            link(target, cfg, index, i, number, row)


@compiled(f"void({V}, {V}, {V}, {M}, {M}, {M}, int64, {V})", inline=False)
def receive(ts: Any, seq_tick: Any, diff: Any, data: Any, cfg: Any, index: Any, i: Any, inbox: Any) -> None:
    """Writes a batch into input i's inbox, with the hashes of its keys."""
    words, first, indexes = cfg[i, WORDS], cfg[i, FIRST_INDEX], cfg[i, INDEXES]
    to = cfg[i, INBOX]
    for n in range(len(ts)):
        inbox[to + IN_TS], inbox[to + IN_SEQ_TICK], inbox[to + IN_DIFF] = ts[n], seq_tick[n], diff[n]
        for x in range(indexes):
            state = GOLDEN
            for k in range(index[first + x, KEYS]):
                state = mix(state, data[index[first + x, KEY + k] - cfg[i, WORDS_AT], n])
            inbox[to + IN_HASH + x] = np.int64(state)
        for word in range(words):
            inbox[to + IN_HASH + indexes + word] = data[word, n]
        to += cfg[i, IN_STRIDE]
