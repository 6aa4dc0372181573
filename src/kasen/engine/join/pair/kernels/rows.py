"""Where the rows of two joined windows lie, and how one finds those of a key.

`store` has the rows of both sides, column by column: word w of row m of side s lies at
cfg[s, ROWS_AT] + w * cfg[s, ROOM] + m - cfg[s, BASE]. Word 0 is the row's ts, the last its NULL bits. Rows
are numbered in the order in which they arrive; those of the window are START to NEXT - 1.

An id is a row's number and its side, 2 * m + s. `links` has for each row, at cfg[s, LINKS_AT] + m - BASE, the
id of the row of the same side and key that came before it. As numbers descend along such a chain, it ends at
the first that has left its window: what leaves needs no unlinking.

`table` finds the chains: slots of a key's word and the ids of its newest rows on both sides, together 16
bytes, so that a row finds its partners and its own place at once. `heads` is the same memory seen as int32. A
slot without any head is free. Keys whose rows have all left stay until the table is made anew (`rehash`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.join.multiway.kernels.rings import COUNTED
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import GOLDEN, mix

# The fields of `cfg`, which has a row for each side. What the window is, and the shape of its rows:
KIND, LENGTH, WORDS, KEY_NULLS = range(4)
# Where rows and links lie, how many there is room for, the number at place 0.
ROWS_AT, ROOM, LINKS_AT, BASE = range(4, 8)
# The window's oldest row, the number of the next to arrive; of this call, the first number and how many.
START, NEXT, FIRST, COUNT = range(8, 12)
# The instant of the newest row; whether any row had a NULL.
NOW_TS, NOW_SEQ_TICK, ANY_NULLS = range(12, 15)
FIELDS = 15

I = "int32[::1]"  # noqa: E741, beside V and M
#: The least id that does not fit: numbers begin anew before they get there.
MOST_ROWS = 1 << 30
NONE = -1

_NO_STATE = np.uint64(0)


@compiled(f"int64({M}, int64, int64)")
def row_place(cfg: Any, side: Any, number: Any) -> Any:
    """Where a row's word 0 lies."""
    return cfg[side, ROWS_AT] + number - cfg[side, BASE]


@compiled(f"int64({V}, {M}, int64, int64)")
def ordinal_of(store: Any, cfg: Any, side: Any, number: Any) -> Any:
    """The ordinal of a row of a COUNTED window."""
    return store[row_place(cfg, side, number) + cfg[side, ROOM]]


@compiled(f"int64({V}, {M}, {M}, int64, int64)")
def key_word(store: Any, cfg: Any, keys: Any, side: Any, number: Any) -> Any:
    """What stands for a row's key in the table: the key, or a hash of its parts if it has none or several."""
    at = row_place(cfg, side, number)
    if keys.shape[1] == 1:
        return store[at + keys[side, 0] * cfg[side, ROOM]]
    state = GOLDEN
    for k in range(keys.shape[1]):
        state = mix(state, store[at + keys[side, k] * cfg[side, ROOM]])
    return np.int64(state)


@compiled(f"boolean({V}, {M}, int64, int64)")
def has_key(store: Any, cfg: Any, side: Any, number: Any) -> Any:
    """Whether no part of the row's key is NULL."""
    at = row_place(cfg, side, number) + cfg[side, WORDS] * cfg[side, ROOM]
    return store[at] & cfg[side, KEY_NULLS] == 0


@compiled(f"boolean({V}, {M}, int64, int64, int64)")
def same_row(store: Any, cfg: Any, side: Any, one: Any, other: Any) -> Any:
    """Whether two rows of a side are equal; their ordinals never are."""
    a, b, room = row_place(cfg, side, one), row_place(cfg, side, other), cfg[side, ROOM]
    w = 2 if cfg[side, KIND] == COUNTED else 1
    while w <= cfg[side, WORDS] and store[a + w * room] == store[b + w * room]:
        w += 1
    return w > cfg[side, WORDS]


@compiled(f"boolean({V}, {M}, {M}, int64, int64)")
def same_key(store: Any, cfg: Any, keys: Any, left: Any, right: Any) -> Any:
    """Whether rows of both sides have the same key."""
    a, b = row_place(cfg, 0, left), row_place(cfg, 1, right)
    k = 0
    while k < keys.shape[1] and store[a + keys[0, k] * cfg[0, ROOM]] == store[b + keys[1, k] * cfg[1, ROOM]]:
        k += 1
    return k == keys.shape[1]


@compiled("int64(int64)")
def most_keys(slots: Any) -> Any:
    """How many keys a table may have."""
    return slots * 5 // 8


@compiled("int64(int64, int64)")
def first_slot(key: Any, mask: Any) -> Any:
    """Where the table is looked at first for a key's word."""
    return np.int64(mix(_NO_STATE, key)) & mask


@compiled(f"int64({V}, int64, int64, int64)")
def find_slot(table: Any, mask: Any, slot: Any, key: Any) -> Any:
    """The key's slot, or the free one where it would be."""
    while table[np.uint64(2 * slot)] != key and table[np.uint64(2 * slot + 1)] != NONE:
        slot = (slot + 1) & mask
    return slot


@compiled(f"int64({V}, {M}, {M}, {I}, {V}, {I}, int64, int64, int64)", inline=False)
def enter_rows(
    store: Any, cfg: Any, keys: Any, links: Any, table: Any, heads: Any, side: Any, begin: Any, end: Any
) -> Any:
    """Rows enter their chains as the newest; returns how many keys are new to the table, which has room."""
    mask = len(table) // 2 - 1
    new = 0
    for number in range(begin, end):
        if has_key(store, cfg, side, number):
            key = key_word(store, cfg, keys, side, number)
            slot = find_slot(table, mask, first_slot(key, mask), key)
            new += table[2 * slot + 1] == NONE
            table[2 * slot] = key
            links[cfg[side, LINKS_AT] + number - cfg[side, BASE]] = heads[4 * slot + 2 + side]
            heads[4 * slot + 2 + side] = 2 * number + side
    return new


@compiled(f"int64({V}, {V}, int64, int64)", inline=False)
def rehash(old: Any, table: Any, left: Any, right: Any) -> Any:
    """Moves the keys of which rows are left into an empty table; returns how many.

    `left` and `right` are the least ids of rows in the windows. With an empty `table`, only counts.
    """
    mask = len(table) // 2 - 1
    kept = 0
    for slot in range(len(old) // 2):
        heads = old[2 * slot + 1]
        newest = np.int64(np.int32(heads & 0xFFFFFFFF)), np.int64(heads >> 32)
        if newest[0] < left and newest[1] < right:
            continue
        kept += 1
        if mask >= 0:
            to = find_slot(table, mask, first_slot(old[2 * slot], mask), old[2 * slot])
            table[2 * to], table[2 * to + 1] = old[2 * slot], heads
    return kept


@compiled(f"void({I}, {I}, int64, int64, int64, int64)", inline=False)
def renumber(heads: Any, links: Any, right_at: Any, right_end: Any, left: Any, right: Any) -> None:
    """Takes `left` and `right` from the ids of each side; those below have left their windows."""
    for at in range(2, len(heads), 4):
        heads[at] = max(heads[at] - left, NONE)
        heads[at + 1] = max(heads[at + 1] - right, NONE)
    for at in range(right_at):
        links[at] = max(links[at] - left, NONE)
    for at in range(right_at, right_end):
        links[at] = max(links[at] - right, NONE)
