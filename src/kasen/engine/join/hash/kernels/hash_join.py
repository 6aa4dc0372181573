"""The symmetric hash join over changes.

An arriving change meets the rows that the other side holds at that moment, then joins its own side's
bag. Taken in instant order, a pair is therefore found exactly once, by whichever of its changes comes
later, and the sum of the pairs' diffs is exact at every instant. Within an instant any order will do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import hash_key
from kasen.engine.kernels.multimap import BY_KEY, CHAIN, NEXT, NONE, WEIGHT, WORDS, change, find_key, is_full

I64 = npt.NDArray[np.int64]

# What a kernel that can stop and go on says when it returns.
DONE, OUTPUT_FULL, LEFT_FULL, RIGHT_FULL = range(4)

# The cursor: the next change on each side, the next partner of that change, the pairs written; and
# (if it is that long) whether only the left side's changes make pairs.
LEFT, RIGHT, PARTNER, WRITTEN, LEFT_ONLY = range(5)
#: PARTNER, when the change has not been begun.
START = -2

BEGINNING = np.array([0, 0, START, 0, 0], np.int64)
# The shape of `ahead`: what is kept of each change, and how many changes the kernel looks ahead. Change i has
# column i % LOOK_AHEAD.
LOOK_AHEAD = 64
AHEAD = (5, LOOK_AHEAD)


@compiled(f"int64({V})")
def null_bits(keys: I64) -> int:
    """The NULL word's bits of the given columns."""
    bits = 0
    for k in range(len(keys)):
        bits |= 1 << keys[k]
    return bits


@compiled(f"boolean({V}, {V}, int64, {V}, {V}, int64)")
def comes_first(ts: I64, seq_tick: I64, i: int, other_ts: I64, other_seq_tick: I64, j: int) -> bool:
    """Whether change i, if there is one, is not later than change j of the other side, if there is one."""
    if i == len(ts) or j == len(other_ts):
        return i < len(ts)
    return bool(ts[i] < other_ts[j] or (ts[i] == other_ts[j] and seq_tick[i] <= other_seq_tick[j]))


@compiled(f"void({M}, {V}, int64, {M}, {M}, {M}, {M}, {M})")
def look_ahead(
    data: I64, keys: I64, begin: int, slots: I64, heads: I64, others: I64, other_heads: I64, ahead: I64
) -> None:
    """Hashes the keys of the next changes into ahead[0].

    It also reads what these changes will read of both bags. Its reads do not wait for each other, as
    those of one probe do, so a large bag's memory delays have passed before the probes begin.
    """
    n = min(LOOK_AHEAD, data.shape[1] - begin)
    if n == 1:
        ahead[0, 0] = np.int64(hash_key(data, keys, begin))
        return
    for k in range(n):
        key_hash = np.int64(hash_key(data, keys, begin + k))
        ahead[0, k] = key_hash
        ahead[1, k] = max(heads[BY_KEY, key_hash & (heads.shape[1] - 1)], 0)
        ahead[2, k] = max(other_heads[BY_KEY, key_hash & (other_heads.shape[1] - 1)], 0)
    for k in range(n):
        mine, theirs = ahead[1, k], ahead[2, k]
        ahead[1, k] = max(slots[mine, CHAIN], 0)
        ahead[2, k] = max(slots[mine, NEXT], 0)
        ahead[3, k] = max(others[theirs, CHAIN], 0)
        ahead[4, k] = max(others[theirs, NEXT], 0)
    read = 0
    for k in range(n):
        read ^= slots[ahead[1, k], WORDS] ^ slots[ahead[2, k], WORDS]
        read ^= others[ahead[3, k], WORDS] ^ others[ahead[4, k], WORDS]
    ahead[1, 0] = read  # so that the reads are not left out as useless


@compiled(f"void({M}, int64, boolean, {M}, int64, {M}, int64)")
def write_pair(data: I64, row: int, from_left: bool, slots: I64, partner: int, out: I64, n: int) -> None:
    """Writes a row of `data` beside a row of the other side's bag.

    The output's words are the left row's columns, the right row's columns, and both rows' NULL bits.
    """
    columns = data.shape[0] - 1
    others = out.shape[0] - 1 - columns
    at, other_at = (0, columns) if from_left else (others, 0)
    for c in range(columns):
        out[at + c, n] = data[c, row]
    for c in range(others):
        out[other_at + c, n] = slots[partner, WORDS + c]
    out[columns + others, n] = (data[columns, row] << at) | (slots[partner, WORDS + others] << other_at)


@compiled(f"int64(int64, int64, int64, {M}, int64, boolean, {M}, int64, {V}, {V}, {V}, {M}, {V})")
def pair_up(
    ts: int, seq_tick: int, diff: int, data: I64, row: int, from_left: bool, slots: I64, partner: int,
    out_ts: I64, out_seq_tick: I64, out_diff: I64, out_data: I64, cursor: I64,
) -> int:  # fmt: skip
    """Writes the row beside `partner` and each row after it in the list; returns the first without room."""
    n = cursor[WRITTEN]
    while partner != NONE and n < len(out_ts):
        out_ts[n] = ts
        out_seq_tick[n] = seq_tick
        out_diff[n] = diff * slots[partner, WEIGHT]
        write_pair(data, row, from_left, slots, partner, out_data, n)
        n += 1
        partner = slots[partner, NEXT]
    cursor[WRITTEN] = n
    return partner


_BAG = f"{V}, {M}, {M}, {V}, {M}"
_OUT = f"{V}, {V}, {V}, {M}, {V}"


@compiled(f"int64({V}, {V}, {V}, {M}, int64, boolean, int64, boolean, {_BAG}, {V}, {M}, {M}, {_OUT})")
def meet(
    ts: I64, seq_tick: I64, diff: I64, data: I64, row: int, from_left: bool, null: int, makes_pairs: bool,
    keys: I64, slots: I64, heads: I64, counts: I64, ahead: I64,
    other_keys: I64, others: I64, other_heads: I64,
    out_ts: I64, out_seq_tick: I64, out_diff: I64, out_data: I64, cursor: I64,
) -> int:  # fmt: skip
    """A change meets its partners in the other side's bag, from cursor[PARTNER] on, and enters its own bag.

    `null` has the NULL bits of the side's keys: a row with a NULL in its key matches nothing, so it is not
    kept. A change that makes no pairs only enters.
    Returns DONE, or what has run out of room; called again then, it goes on.
    """
    column = row & (LOOK_AHEAD - 1)
    if column == 0:
        look_ahead(data, keys, row, slots, heads, others, other_heads, ahead)
    if data[-1, row] & null:
        return DONE
    if is_full(slots, counts):
        return LEFT_FULL if from_left else RIGHT_FULL
    key_hash = ahead[0, column]
    if cursor[PARTNER] == START:
        cursor[PARTNER] = NONE
        if makes_pairs:
            cursor[PARTNER] = find_key(others, other_heads, other_keys, data, keys, row, key_hash)
    cursor[PARTNER] = pair_up(
        ts[row], seq_tick[row], diff[row], data, row, from_left, others, cursor[PARTNER],
        out_ts, out_seq_tick, out_diff, out_data, cursor,
    )  # fmt: skip
    if cursor[PARTNER] != NONE:
        return OUTPUT_FULL
    change(slots, heads, counts, keys, data, row, key_hash, diff[row], ts[row])
    cursor[PARTNER] = START
    return DONE


_SIDE = f"{V}, {V}, {V}, {M}, {_BAG}"


@compiled(f"int64({_SIDE}, {_SIDE}, {_OUT})")
def join(
    l_ts: I64, l_seq_tick: I64, l_diff: I64, l_data: I64,
    l_keys: I64, l_slots: I64, l_heads: I64, l_counts: I64, l_ahead: I64,
    r_ts: I64, r_seq_tick: I64, r_diff: I64, r_data: I64,
    r_keys: I64, r_slots: I64, r_heads: I64, r_counts: I64, r_ahead: I64,
    out_ts: I64, out_seq_tick: I64, out_diff: I64, out_data: I64, cursor: I64,
) -> int:  # fmt: skip
    """Joins the two sides' changes; each side has changes, key columns and a bag (see multimap).

    Returns DONE, or what has run out of room. The caller then makes room and calls again with the same
    changes, cursor, l_ahead and r_ahead; the cursor begins as a copy of BEGINNING.
    """
    l_null, r_null = null_bits(l_keys), null_bits(r_keys)
    i, j = cursor[LEFT], cursor[RIGHT]
    both = len(cursor) <= LEFT_ONLY or cursor[LEFT_ONLY] == 0
    status = DONE
    while status == DONE and (i < len(l_ts) or j < len(r_ts)):
        if comes_first(l_ts, l_seq_tick, i, r_ts, r_seq_tick, j):
            status = meet(
                l_ts, l_seq_tick, l_diff, l_data, i, True, l_null, True,
                l_keys, l_slots, l_heads, l_counts, l_ahead, r_keys, r_slots, r_heads,
                out_ts, out_seq_tick, out_diff, out_data, cursor,
            )  # fmt: skip
            i += status == DONE
        else:
            status = meet(
                r_ts, r_seq_tick, r_diff, r_data, j, False, r_null, both,
                r_keys, r_slots, r_heads, r_counts, r_ahead, l_keys, l_slots, l_heads,
                out_ts, out_seq_tick, out_diff, out_data, cursor,
            )  # fmt: skip
            j += status == DONE
    cursor[LEFT], cursor[RIGHT] = i, j
    return status
