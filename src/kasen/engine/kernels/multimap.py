"""A bag of rows, found by their key.

Three arrays hold a bag:

`slots` [capacity, WORDS + words + payload]: a slot holds one *different* row: its links, its words, and
payload words that belong to the caller and start as 0. WEIGHT says how often the row is in the bag. It
may pass below zero within an instant, as a row's -1 may come before its +1.
`heads` [2, buckets]: where the chains start, by key and by row. Buckets are a power of two.
`counts` [3]: the first free slot, the slots ever used, the slots in use.

Rows with one key form a list through NEXT and PREV. Only its first row, the leader (PREV is NONE), is
chained in the key's bucket, through CHAIN, so a key of very many rows does not slow down the other keys
of its bucket. A leader's COUNT is the length of its list. The rows of a list longer than FEW are also
chained by the hash of the whole row, through ROW_CHAIN, so that one that leaves is found at once.
Slots that are not linked (PREV is UNLINKED) are chained through NEXT once they are free for use again.

The caller sees to it that there is room (`is_full`) before it adds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import GOLDEN, hash_key, hash_row, mix

I64 = npt.NDArray[np.int64]

# The fields of a slot, in front of the row's words; those that every probe reads stand next to the words.
SINCE, ROW_CHAIN, PREV, COUNT, NEXT, CHAIN, WEIGHT, WORDS = range(8)
BY_KEY, BY_ROW = 0, 1
FIRST_FREE, USED, LIVE = 0, 1, 2
NONE = -1
UNLINKED = -2
# Up to this many rows are looked through one by one.
FEW = 8


@compiled(f"boolean({M}, {V})")
def is_full(slots: I64, counts: I64) -> bool:
    return bool(counts[LIVE] == slots.shape[0])


@compiled(f"int64({M}, {M}, {V}, {M}, {V}, int64, int64)")
def find_key(slots: I64, heads: I64, keys: I64, data: I64, columns: I64, row: int, key_hash: np.int64) -> int:
    """The leader of the rows whose `keys` equal `columns` of the given row of `data`, or NONE."""
    slot = heads[BY_KEY, key_hash & (heads.shape[1] - 1)]
    while slot != NONE:
        k = 0
        while k < len(keys) and slots[slot, WORDS + keys[k]] == data[columns[k], row]:
            k += 1
        if k == len(keys):
            break
        slot = slots[slot, CHAIN]
    return int(slot)


@compiled(f"int64({M}, {M}, int64, {M}, int64)")
def find_row(slots: I64, heads: I64, leader: int, data: I64, row: int) -> int:
    """The slot, in the leader's list, of the row that equals the given row of `data`, or NONE."""
    slot, link = leader, NEXT
    if leader != NONE and slots[leader, COUNT] > FEW:
        slot, link = heads[BY_ROW, np.int64(hash_row(data, row)) & (heads.shape[1] - 1)], ROW_CHAIN
    while slot != NONE:
        word = 0
        while word < data.shape[0] and slots[slot, WORDS + word] == data[word, row]:
            word += 1
        if word == data.shape[0]:
            break
        slot = slots[slot, link]
    return slot


@compiled(f"int64({M}, {M}, int64, int64)")
def _row_bucket(slots: I64, heads: I64, words: int, slot: int) -> int:
    state = GOLDEN
    for word in range(WORDS, WORDS + words):
        state = mix(state, slots[slot, word])
    return int(np.int64(state) & (heads.shape[1] - 1))


@compiled(f"int64({M}, {M}, {V}, int64)")
def _key_bucket(slots: I64, heads: I64, keys: I64, slot: int) -> int:
    state = GOLDEN
    for k in range(len(keys)):
        state = mix(state, slots[slot, WORDS + keys[k]])
    return int(np.int64(state) & (heads.shape[1] - 1))


@compiled(f"void({M}, {M}, int64, int64, int64, int64)")
def _chain(slots: I64, heads: I64, by: int, bucket: int, link: int, slot: int) -> None:
    slots[slot, link] = heads[by, bucket]
    heads[by, bucket] = slot


@compiled(f"void({M}, {M}, int64, int64, int64, int64, int64)")
def _unchain(slots: I64, heads: I64, by: int, bucket: int, link: int, slot: int, instead: int) -> None:
    """What points at `slot` in the bucket's chain points at `instead` from now on."""
    if heads[by, bucket] == slot:
        heads[by, bucket] = instead
        return
    before = heads[by, bucket]
    while slots[before, link] != slot:
        before = slots[before, link]
    slots[before, link] = instead


@compiled(f"void({M}, {M}, int64, int64)")
def _chain_rows(slots: I64, heads: I64, words: int, slot: int) -> None:
    """Chains a slot and those after it in its list by row."""
    while slot != NONE:
        _chain(slots, heads, BY_ROW, _row_bucket(slots, heads, words, slot), ROW_CHAIN, slot)
        slot = slots[slot, NEXT]


@compiled(f"void({M}, {M}, int64, int64)")
def _unchain_row(slots: I64, heads: I64, words: int, slot: int) -> None:
    bucket = _row_bucket(slots, heads, words, slot)
    _unchain(slots, heads, BY_ROW, bucket, ROW_CHAIN, slot, slots[slot, ROW_CHAIN])


@compiled(f"int64({M}, {V})")
def _take_slot(slots: I64, counts: I64) -> int:
    slot = counts[FIRST_FREE]
    if slot == NONE:
        slot = counts[USED]
        counts[USED] += 1
    else:
        counts[FIRST_FREE] = slots[slot, NEXT]
    counts[LIVE] += 1
    return int(slot)


@compiled(f"void({M}, {M}, int64, int64, int64, int64)")
def _link(slots: I64, heads: I64, words: int, slot: int, leader: int, key_hash: np.int64) -> None:
    """Puts a slot into its key's list: as the leader if there is none, else after the leader."""
    if leader == NONE:
        slots[slot, PREV] = NONE
        slots[slot, NEXT] = NONE
        slots[slot, COUNT] = 1
        _chain(slots, heads, BY_KEY, key_hash & (heads.shape[1] - 1), CHAIN, slot)
        return
    second = slots[leader, NEXT]
    slots[slot, PREV] = leader
    slots[slot, NEXT] = second
    slots[leader, NEXT] = slot
    if second != NONE:
        slots[second, PREV] = slot
    slots[leader, COUNT] += 1
    if slots[leader, COUNT] > FEW + 1:
        _chain(slots, heads, BY_ROW, _row_bucket(slots, heads, words, slot), ROW_CHAIN, slot)
    elif slots[leader, COUNT] == FEW + 1:
        _chain_rows(slots, heads, words, leader)


@compiled(f"int64({M}, {M}, {V}, {M}, int64, int64, int64, int64, int64)")
def _enter(
    slots: I64, heads: I64, counts: I64,
    data: I64, row: int, leader: int, key_hash: np.int64, diff: int, ts: int,
) -> int:  # fmt: skip
    """Gives a row that is new to the bag a slot."""
    slot = _take_slot(slots, counts)
    words = data.shape[0]
    slots[slot, WEIGHT] = diff
    slots[slot, SINCE] = ts
    for word in range(words):
        slots[slot, WORDS + word] = data[word, row]
    for word in range(WORDS + words, slots.shape[1]):
        slots[slot, word] = 0
    _link(slots, heads, words, slot, leader, key_hash)
    return slot


@compiled(f"void({M}, {M}, int64, int64, int64, int64)")
def _unlink(slots: I64, heads: I64, words: int, leader: int, slot: int, key_hash: np.int64) -> None:
    count = slots[leader, COUNT]
    if count == FEW + 1:
        member = leader
        while member != NONE:
            _unchain_row(slots, heads, words, member)
            member = slots[member, NEXT]
    elif count > FEW:
        _unchain_row(slots, heads, words, slot)
    following = slots[slot, NEXT]
    if slot != leader:
        slots[leader, COUNT] = count - 1
        slots[slots[slot, PREV], NEXT] = following
        if following != NONE:
            slots[following, PREV] = slots[slot, PREV]
    else:
        instead = slots[slot, CHAIN]
        if following != NONE:
            slots[following, PREV] = NONE
            slots[following, COUNT] = count - 1
            slots[following, CHAIN] = instead
            instead = following
        _unchain(slots, heads, BY_KEY, key_hash & (heads.shape[1] - 1), CHAIN, slot, instead)
    slots[slot, PREV] = UNLINKED


@compiled(f"void({M}, {V}, int64)")
def release(slots: I64, counts: I64, slot: int) -> None:
    """An unlinked slot may be used again."""
    slots[slot, NEXT] = counts[FIRST_FREE]
    counts[FIRST_FREE] = slot
    counts[LIVE] -= 1


@compiled(f"void({M}, {M}, {V}, {V}, {M}, int64, int64, int64, int64)")
def change(
    slots: I64, heads: I64, counts: I64, keys: I64,
    data: I64, row: int, key_hash: np.int64, diff: int, ts: int,
) -> None:  # fmt: skip
    """The given row of `data` enters or leaves the bag, diff times."""
    leader = find_key(slots, heads, keys, data, keys, row, key_hash)
    slot = find_row(slots, heads, leader, data, row)
    if slot != NONE:
        slots[slot, WEIGHT] += diff
        if slots[slot, WEIGHT] == 0:
            _unlink(slots, heads, data.shape[0], leader, slot, key_hash)
            release(slots, counts, slot)
    elif diff != 0:
        _enter(slots, heads, counts, data, row, leader, key_hash, diff, ts)


@compiled(f"int64({M}, {M}, {V}, {V}, {M}, int64, int64, int64, int64)")
def add(
    slots: I64, heads: I64, counts: I64, keys: I64,
    data: I64, row: int, key_hash: np.int64, diff: int, ts: int,
) -> int:  # fmt: skip
    """As change, but a row whose weight becomes zero stays until it is unlinked. Returns the row's slot."""
    leader = find_key(slots, heads, keys, data, keys, row, key_hash)
    slot = find_row(slots, heads, leader, data, row)
    if slot == NONE:
        return _enter(slots, heads, counts, data, row, leader, key_hash, diff, ts)
    slots[slot, WEIGHT] += diff
    return slot


@compiled(f"void({M}, {M}, {V}, {M}, int64, int64, int64)")
def unlink(slots: I64, heads: I64, keys: I64, data: I64, row: int, key_hash: np.int64, slot: int) -> None:
    """The row in the slot, equal to the given row of `data`, is no longer found; the slot stays taken."""
    leader = find_key(slots, heads, keys, data, keys, row, key_hash)
    _unlink(slots, heads, data.shape[0], leader, slot, key_hash)


@compiled(f"void({M}, {M}, {V}, {V}, int64)")
def rebuild_heads(slots: I64, heads: I64, counts: I64, keys: I64, words: int) -> None:
    """Chains all slots anew from `heads`, which the caller has filled with NONE."""
    for slot in range(counts[USED]):
        if slots[slot, PREV] == NONE:
            _chain(slots, heads, BY_KEY, _key_bucket(slots, heads, keys, slot), CHAIN, slot)
            if slots[slot, COUNT] > FEW:
                _chain_rows(slots, heads, words, slot)


@compiled(f"void({M}, {M}, {V}, {V}, {M}, {V}, {V})")
def fill(slots: I64, heads: I64, counts: I64, keys: I64, data: I64, weights: I64, since: I64) -> None:
    """Puts different rows into an empty bag with room for them: row i of `data` into slot i."""
    for row in range(len(weights)):
        key_hash = np.int64(hash_key(data, keys, row))
        add(slots, heads, counts, keys, data, row, key_hash, weights[row], since[row])
