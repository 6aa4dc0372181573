"""A bag of rows, found by their key and by all their words.

Three arrays hold a bag:

`slots` [capacity, WORDS + words + payload]: a slot holds one *different* row: its links, its words, and
payload words that belong to the caller and start as 0. WEIGHT says how often the row is in the bag. It
may pass below zero within an instant, as a row's -1 may come before its +1.
`heads` [2, buckets]: where the chains start, by the row's hash and by the key's. Buckets are a power of two.
`counts` [3]: the first free slot, the slots ever used, the slots in use.

Rows with one key form a list through NEXT and PREV. Only its first row, the leader (PREV is NONE), is
chained in the key's bucket through KEY_NEXT, so a key of very many rows does not slow down the other keys
of its bucket. All slots are chained by the hash of the whole row through ROW_NEXT, so a row of such a key
is found at once when it leaves. Free slots (PREV is UNLINKED) are chained through ROW_NEXT and used again.

The caller sees to it that there is room (`is_full`) before it adds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from kasen.kernels.hashing import hash_key, hash_row

I64 = npt.NDArray[np.int64]
V, M = "int64[::1]", "int64[:, ::1]"

# The fields of a slot, in front of the row's words.
WEIGHT, SINCE, ROW_HASH, ROW_NEXT, KEY_HASH, KEY_NEXT, NEXT, PREV, WORDS = range(9)
BY_ROW, BY_KEY = 0, 1
FIRST_FREE, USED, LIVE = 0, 1, 2
NONE = -1
UNLINKED = -2


@njit(f"boolean({M}, {V})", cache=True, nogil=True)
def is_full(slots: I64, counts: I64) -> bool:
    return bool(counts[LIVE] == slots.shape[0])


@njit(f"int64({M}, {M}, {V}, {M}, {V}, int64)", cache=True, nogil=True)
def find_key(slots: I64, heads: I64, keys: I64, data: I64, columns: I64, row: int) -> int:
    """The first row whose key, in `keys`, equals the columns of the given row of `data`, or NONE."""
    key_hash = np.int64(hash_key(data, columns, row))
    slot = heads[BY_KEY, key_hash & (heads.shape[1] - 1)]
    while slot != NONE:
        if slots[slot, KEY_HASH] == key_hash:
            k = 0
            while k < len(keys) and slots[slot, WORDS + keys[k]] == data[columns[k], row]:
                k += 1
            if k == len(keys):
                break
        slot = slots[slot, KEY_NEXT]
    return int(slot)


@njit(f"int64({M}, {M}, {M}, int64, int64)", cache=True, nogil=True)
def find_row(slots: I64, heads: I64, data: I64, row: int, row_hash: np.int64) -> int:
    """The slot of the row that equals the given row of `data` in all words, or NONE."""
    slot = heads[BY_ROW, row_hash & (heads.shape[1] - 1)]
    while slot != NONE:
        if slots[slot, ROW_HASH] == row_hash:
            word = 0
            while word < data.shape[0] and slots[slot, WORDS + word] == data[word, row]:
                word += 1
            if word == data.shape[0]:
                break
        slot = slots[slot, ROW_NEXT]
    return int(slot)


@njit(f"void({M}, {M}, int64)", cache=True, nogil=True)
def _chain_row(slots: I64, heads: I64, slot: int) -> None:
    bucket = slots[slot, ROW_HASH] & (heads.shape[1] - 1)
    slots[slot, ROW_NEXT] = heads[BY_ROW, bucket]
    heads[BY_ROW, bucket] = slot


@njit(f"void({M}, {M}, int64)", cache=True, nogil=True)
def _chain_leader(slots: I64, heads: I64, slot: int) -> None:
    bucket = slots[slot, KEY_HASH] & (heads.shape[1] - 1)
    slots[slot, KEY_NEXT] = heads[BY_KEY, bucket]
    heads[BY_KEY, bucket] = slot


@njit(f"int64({M}, {V})", cache=True, nogil=True)
def _take_slot(slots: I64, counts: I64) -> int:
    slot = counts[FIRST_FREE]
    if slot == NONE:
        slot = counts[USED]
        counts[USED] += 1
    else:
        counts[FIRST_FREE] = slots[slot, ROW_NEXT]
    counts[LIVE] += 1
    return int(slot)


@njit(f"int64({M}, {M}, {V}, {V}, {M}, int64, int64, int64)", cache=True, nogil=True)
def add(slots: I64, heads: I64, counts: I64, keys: I64, data: I64, row: int, diff: int, ts: int) -> int:
    """Adds diff to the weight of the given row of `data`, and returns its slot, a new one if need be.

    A slot whose weight becomes zero stays until the caller removes it.
    """
    row_hash = np.int64(hash_row(data, row))
    slot = find_row(slots, heads, data, row, row_hash)
    if slot != NONE:
        slots[slot, WEIGHT] += diff
        return slot
    leader = find_key(slots, heads, keys, data, keys, row)
    slot = _take_slot(slots, counts)
    slots[slot, WEIGHT] = diff
    slots[slot, SINCE] = ts
    for word in range(data.shape[0]):
        slots[slot, WORDS + word] = data[word, row]
    for word in range(WORDS + data.shape[0], slots.shape[1]):
        slots[slot, word] = 0
    slots[slot, ROW_HASH] = row_hash
    _chain_row(slots, heads, slot)
    if leader == NONE:
        slots[slot, KEY_HASH] = np.int64(hash_key(data, keys, row))
        slots[slot, PREV] = NONE
        slots[slot, NEXT] = NONE
        _chain_leader(slots, heads, slot)
    else:
        second = slots[leader, NEXT]
        slots[slot, KEY_HASH] = slots[leader, KEY_HASH]
        slots[slot, PREV] = leader
        slots[slot, NEXT] = second
        slots[leader, NEXT] = slot
        if second != NONE:
            slots[second, PREV] = slot
    return slot


@njit(f"void({M}, {V}, int64, int64, int64, int64)", cache=True, nogil=True)
def _unchain(slots: I64, heads: I64, hashed: int, link: int, slot: int, instead: int) -> None:
    """In the bucket's chain, what pointed at `slot` points at `instead`."""
    bucket = hashed & (len(heads) - 1)
    if heads[bucket] == slot:
        heads[bucket] = instead
        return
    before = heads[bucket]
    while slots[before, link] != slot:
        before = slots[before, link]
    slots[before, link] = instead


@njit(f"void({M}, {M}, int64)", cache=True, nogil=True)
def unlink(slots: I64, heads: I64, slot: int) -> None:
    """The row can no longer be found; its slot is kept."""
    _unchain(slots, heads[BY_ROW], slots[slot, ROW_HASH], ROW_NEXT, slot, slots[slot, ROW_NEXT])
    following = slots[slot, NEXT]
    before = slots[slot, PREV]
    if before != NONE:
        slots[before, NEXT] = following
    elif following != NONE:
        slots[following, KEY_NEXT] = slots[slot, KEY_NEXT]
        _unchain(slots, heads[BY_KEY], slots[slot, KEY_HASH], KEY_NEXT, slot, following)
    else:
        _unchain(slots, heads[BY_KEY], slots[slot, KEY_HASH], KEY_NEXT, slot, slots[slot, KEY_NEXT])
    if following != NONE:
        slots[following, PREV] = before
    slots[slot, PREV] = UNLINKED


@njit(f"void({M}, {V}, int64)", cache=True, nogil=True)
def release(slots: I64, counts: I64, slot: int) -> None:
    """An unlinked slot may be used again."""
    slots[slot, ROW_NEXT] = counts[FIRST_FREE]
    counts[FIRST_FREE] = slot
    counts[LIVE] -= 1


@njit(f"void({M}, {M}, {V}, {V}, {M}, int64, int64, int64)", cache=True, nogil=True)
def change(slots: I64, heads: I64, counts: I64, keys: I64, data: I64, row: int, diff: int, ts: int) -> None:
    """The given row of `data` enters or leaves the bag, diff times."""
    slot = add(slots, heads, counts, keys, data, row, diff, ts)
    if slots[slot, WEIGHT] == 0:
        unlink(slots, heads, slot)
        release(slots, counts, slot)


@njit(f"void({M}, {M}, {V})", cache=True, nogil=True)
def rebuild_heads(slots: I64, heads: I64, counts: I64) -> None:
    """Chains all slots anew from `heads`, which the caller has filled with NONE."""
    for slot in range(counts[USED]):
        if slots[slot, PREV] != UNLINKED:
            _chain_row(slots, heads, slot)
            if slots[slot, PREV] == NONE:
                _chain_leader(slots, heads, slot)


@njit(f"void({M}, {M}, {V}, {V}, {M}, {V}, {V})", cache=True, nogil=True)
def fill(slots: I64, heads: I64, counts: I64, keys: I64, data: I64, weights: I64, since: I64) -> None:
    """Puts different rows into an empty bag with room for them: row i of `data` into slot i."""
    for row in range(len(weights)):
        add(slots, heads, counts, keys, data, row, weights[row], since[row])
