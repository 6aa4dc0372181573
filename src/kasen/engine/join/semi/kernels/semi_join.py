"""The semi join and the anti join on keys alone: a left row shows if its key has, or lacks, a right row.

Of the right side only the number of rows of each key matters, so its bag holds keys. Within an instant
the right changes come first. Keys that thereby gain their first row or lose their last one show or hide
the left rows that were there before the instant; the instant's left changes then see the keys as they
are at its end. So a key that loses and gains rows within an instant shows only what it has come to.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.join.hash.kernels.hash_join import (
    DONE,
    LEFT_FULL,
    OUTPUT_FULL,
    RIGHT_FULL,
    START,
    comes_first,
    null_bits,
)
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import hash_key
from kasen.engine.kernels.multimap import (
    NEXT,
    NONE,
    WEIGHT,
    WORDS,
    add,
    change,
    find_key,
    is_full,
    release,
    unlink,
)

I64 = npt.NDArray[np.int64]

# The cursor: the next left change, the next right change to add, the next right change whose key is to be
# settled, the next left row that this key shows or hides, the rows written.
LEFT, RIGHT, SETTLE, PARTNER, WRITTEN = range(5)
BEGINNING = np.array([0, 0, 0, START, 0], np.int64)

# A key's payload: whether it had rows before the instant, for a key that the instant has touched.
UNTOUCHED, WAS_ABSENT, WAS_PRESENT = range(3)


@compiled(f"int64(int64, int64, int64, {M}, int64, {V}, {V}, {V}, {M}, int64)")
def write_row(
    ts: int, seq_tick: int, diff: int, data: I64, row: int,
    out_ts: I64, out_seq_tick: I64, out_diff: I64, out_data: I64, n: int,
) -> int:  # fmt: skip
    """Writes a row of a batch as change n; returns n + 1."""
    out_ts[n], out_seq_tick[n], out_diff[n] = ts, seq_tick, diff
    for word in range(data.shape[0]):
        out_data[word, n] = data[word, row]
    return n + 1


@compiled(f"int64(int64, int64, int64, {M}, int64, {V}, {V}, {V}, {M}, int64)")
def write_slot(
    ts: int, seq_tick: int, diff: int, slots: I64, slot: int,
    out_ts: I64, out_seq_tick: I64, out_diff: I64, out_data: I64, n: int,
) -> int:  # fmt: skip
    """Writes the row in a slot as change n; returns n + 1."""
    out_ts[n], out_seq_tick[n], out_diff[n] = ts, seq_tick, diff
    for word in range(out_data.shape[0]):
        out_data[word, n] = slots[slot, WORDS + word]
    return n + 1


_LEFT = f"{V}, {V}, {V}, {M}, {V}, {M}, {M}, {V}"
_RIGHT = f"{V}, {V}, {V}, {M}, {V}, {V}, {M}, {M}, {V}"


@compiled(f"int64({_LEFT}, {_RIGHT}, int64, boolean, {V}, {V}, {V}, {M}, {V})")
def semi_join(
    l_ts: I64, l_seq_tick: I64, l_diff: I64, l_data: I64,
    l_keys: I64, l_slots: I64, l_heads: I64, l_counts: I64,
    r_ts: I64, r_seq_tick: I64, r_diff: I64, r_data: I64, r_nulls: I64,
    r_keys: I64, r_slots: I64, r_heads: I64, r_counts: I64, r_null: int, anti: bool,
    out_ts: I64, out_seq_tick: I64, out_diff: I64, out_data: I64, cursor: I64,
) -> int:  # fmt: skip
    """Puts out the left rows that come to show, or cease to.

    r_data holds the keys of the right changes, and nothing else; r_nulls their rows' NULL bits, and
    r_null the bits of the key's columns in these. The right bag has one payload word.
    Returns DONE, or what has run out of room; the caller makes room and calls again with the same
    changes and cursor, which begins as a copy of BEGINNING.
    """
    l_null = null_bits(l_keys)
    before = WORDS + r_data.shape[0]
    i, j, settle, partner, n = cursor[LEFT], cursor[RIGHT], cursor[SETTLE], cursor[PARTNER], cursor[WRITTEN]
    status = DONE
    while i < len(l_ts) or settle < len(r_ts):
        if settle < j:
            adds = j < len(r_ts) and r_ts[j] == r_ts[settle] and r_seq_tick[j] == r_seq_tick[settle]
        else:
            adds = comes_first(r_ts, r_seq_tick, j, l_ts, l_seq_tick, i)
        if adds:
            if not r_nulls[j] & r_null:
                if is_full(r_slots, r_counts):
                    status = RIGHT_FULL
                    break
                key_hash = np.int64(hash_key(r_data, r_keys, j))
                key = add(r_slots, r_heads, r_counts, r_keys, r_data, j, key_hash, r_diff[j], r_ts[j])
                if r_slots[key, before] == UNTOUCHED:
                    was_present = r_slots[key, WEIGHT] - r_diff[j] > 0
                    r_slots[key, before] = WAS_PRESENT if was_present else WAS_ABSENT
            j += 1
        elif settle < j:
            key = NONE
            key_hash = np.int64(hash_key(r_data, r_keys, settle))
            if not r_nulls[settle] & r_null:
                key = find_key(r_slots, r_heads, r_keys, r_data, r_keys, settle, key_hash)
            if key != NONE and r_slots[key, before] != UNTOUCHED:
                present = r_slots[key, WEIGHT] > 0
                if present != (r_slots[key, before] == WAS_PRESENT):
                    sign = 1 if present != anti else -1
                    if partner == START:
                        partner = find_key(l_slots, l_heads, l_keys, r_data, r_keys, settle, key_hash)
                    while partner != NONE and n < len(out_ts):
                        n = write_slot(
                            r_ts[settle], r_seq_tick[settle], sign * l_slots[partner, WEIGHT],
                            l_slots, partner, out_ts, out_seq_tick, out_diff, out_data, n,
                        )  # fmt: skip
                        partner = l_slots[partner, NEXT]
                    if partner != NONE:
                        status = OUTPUT_FULL
                        break
                    partner = START
                r_slots[key, before] = UNTOUCHED
                if r_slots[key, WEIGHT] == 0:
                    unlink(r_slots, r_heads, r_keys, r_data, settle, key_hash, key)
                    release(r_slots, r_counts, key)
            settle += 1
        else:
            if n == len(out_ts):
                status = OUTPUT_FULL
                break
            present = False
            if not l_data[-1, i] & l_null:
                if is_full(l_slots, l_counts):
                    status = LEFT_FULL
                    break
                key_hash = np.int64(hash_key(l_data, l_keys, i))
                key = find_key(r_slots, r_heads, r_keys, l_data, l_keys, i, key_hash)
                present = key != NONE and r_slots[key, WEIGHT] > 0
                change(l_slots, l_heads, l_counts, l_keys, l_data, i, key_hash, l_diff[i], l_ts[i])
            if present != anti:
                n = write_row(
                    l_ts[i], l_seq_tick[i], l_diff[i], l_data, i, out_ts, out_seq_tick, out_diff, out_data, n
                )
            i += 1
    cursor[LEFT], cursor[RIGHT], cursor[SETTLE], cursor[PARTNER], cursor[WRITTEN] = i, j, settle, partner, n
    return status
