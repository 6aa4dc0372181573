"""The semi join and the anti join with a condition that is evaluated between two kernels.

`find_pairs` runs ahead: it keeps both bags, and writes the pairs of a left and a right row with equal
keys as they come and go. The caller drops those that fail the condition. `settle` follows with what is left
of them: it counts each left row's matches and puts out, at the end of each instant, what came of it.

As `settle` still reads the rows that `find_pairs` has taken out of the left bag, their slots wait, in a
list through NEXT, until `recycle` finds that their last instant is settled.
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
    pair_up,
)
from kasen.engine.join.semi.kernels.semi_join import write_row, write_slot
from kasen.engine.kernels.compiled import M, V, compiled
from kasen.engine.kernels.hashing import hash_key
from kasen.engine.kernels.multimap import (
    LIVE,
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

# The cursor of find_pairs begins as join's does, and goes on with the first waiting slot.
LEFT, RIGHT, PARTNER, WRITTEN, WAITING = range(5)
BEGINNING = np.array([0, 0, START, 0, NONE], np.int64)

# The cursor of settle: the next left change, the next pair, the first touched slot, the instant that
# touched it, the rows written.
NEXT_LEFT, NEXT_PAIR, TOUCHED, TS, SEQ_TICK, SETTLED = range(6)
SETTLE_BEGINNING = np.array([0, 0, NONE, 0, 0, 0], np.int64)

# A left row's payload: how many right rows match it; how often it is in the bag, as far as settled; how often
# it is put out; and, if the instant has touched it, the next touched slot + LINKED, else 0.
MATCHES, HELD, SHOWN, LINK, PAYLOAD = range(5)
LINKED = 2  # NONE, at the list's end, differs from 0 too


_SIDE = f"{V}, {V}, {V}, {M}, {V}, {M}, {M}, {V}"


@compiled(f"int64({_SIDE}, {_SIDE}, {V}, {V}, {V}, {V}, {V}, {M}, {V})")
def find_pairs(
    l_ts: I64, l_seq_tick: I64, l_diff: I64, l_data: I64,
    l_keys: I64, l_slots: I64, l_heads: I64, l_counts: I64,
    r_ts: I64, r_seq_tick: I64, r_diff: I64, r_data: I64,
    r_keys: I64, r_slots: I64, r_heads: I64, r_counts: I64,
    where: I64, pair_slot: I64,
    out_ts: I64, out_seq_tick: I64, out_diff: I64, out_data: I64, cursor: I64,
) -> int:  # fmt: skip
    """Writes the pairs, each with its left row's slot, and each left change's slot into `where`.

    A left row meets the right rows only when it is new to the bag: what comes later to an equal row
    changes its weight and not its matches. `where` is NONE for a row with a NULL in its key.
    Returns DONE or what has run out of room, as join does.
    """
    l_null, r_null = null_bits(l_keys), null_bits(r_keys)
    i, j, partner = cursor[LEFT], cursor[RIGHT], cursor[PARTNER]
    status = DONE
    while i < len(l_ts) or j < len(r_ts):
        written = cursor[WRITTEN]
        if comes_first(l_ts, l_seq_tick, i, r_ts, r_seq_tick, j):
            if l_data[-1, i] & l_null:
                where[i] = NONE
            else:
                key_hash = np.int64(hash_key(l_data, l_keys, i))
                if partner == START:
                    if is_full(l_slots, l_counts):
                        status = LEFT_FULL
                        break
                    live = l_counts[LIVE]
                    where[i] = add(
                        l_slots, l_heads, l_counts, l_keys, l_data, i, key_hash, l_diff[i], l_ts[i]
                    )
                    partner = NONE
                    if l_counts[LIVE] > live:
                        partner = find_key(r_slots, r_heads, r_keys, l_data, l_keys, i, key_hash)
                slot = where[i]
                partner = pair_up(
                    l_ts[i], l_seq_tick[i], 1, l_data, i, True, r_slots, partner,
                    out_ts, out_seq_tick, out_diff, out_data, cursor,
                )  # fmt: skip
                for k in range(written, cursor[WRITTEN]):
                    pair_slot[k] = slot
                if partner != NONE:
                    status = OUTPUT_FULL
                    break
                if l_slots[slot, WEIGHT] == 0:
                    unlink(l_slots, l_heads, l_keys, l_data, i, key_hash, slot)
                    l_slots[slot, NEXT] = cursor[WAITING]
                    cursor[WAITING] = slot
            i += 1
        else:
            if not r_data[-1, j] & r_null:
                key_hash = np.int64(hash_key(r_data, r_keys, j))
                if is_full(r_slots, r_counts):
                    status = RIGHT_FULL
                    break
                # join.meet would do the rest but for the slots; with it, this loop takes a tenth longer.
                if partner == START:
                    partner = find_key(l_slots, l_heads, l_keys, r_data, r_keys, j, key_hash)
                slot = partner
                partner = pair_up(
                    r_ts[j], r_seq_tick[j], r_diff[j], r_data, j, False, l_slots, partner,
                    out_ts, out_seq_tick, out_diff, out_data, cursor,
                )  # fmt: skip
                for k in range(written, cursor[WRITTEN]):
                    pair_slot[k] = slot
                    out_diff[k] = r_diff[j]  # a match is counted once for all equal left rows
                    slot = l_slots[slot, NEXT]
                if partner != NONE:
                    status = OUTPUT_FULL
                    break
                change(r_slots, r_heads, r_counts, r_keys, r_data, j, key_hash, r_diff[j], r_ts[j])
            j += 1
        partner = START
    cursor[LEFT], cursor[RIGHT], cursor[PARTNER] = i, j, partner
    return status


@compiled(f"void({M}, int64, int64, {V})")
def _touch(slots: I64, payload: int, slot: int, cursor: I64) -> None:
    if slots[slot, payload + LINK] == 0:
        slots[slot, payload + LINK] = cursor[TOUCHED] + LINKED
        cursor[TOUCHED] = slot


_CHANGES = f"{V}, {V}, {V}, {M}"


@compiled(f"int64({_CHANGES}, {V}, int64, {M}, {V}, {V}, {V}, {V}, boolean, boolean, {_CHANGES}, {V})")
def settle(
    l_ts: I64, l_seq_tick: I64, l_diff: I64, l_data: I64, where: I64, l_end: int, slots: I64,
    pair_ts: I64, pair_seq_tick: I64, pair_diff: I64, pair_slot: I64, anti: bool, last: bool,
    out_ts: I64, out_seq_tick: I64, out_diff: I64, out_data: I64, cursor: I64,
) -> int:  # fmt: skip
    """Applies the left changes before l_end and the pairs, in instant order, and puts out what they change.

    An instant is settled when a later one begins, or at the end if this is the `last` part.
    Returns DONE, or OUTPUT_FULL: the caller makes room and calls again.
    """
    payload = WORDS + l_data.shape[0]
    i, k, n = cursor[NEXT_LEFT], cursor[NEXT_PAIR], cursor[SETTLED]
    l_ts, l_seq_tick = l_ts[:l_end], l_seq_tick[:l_end]
    status = DONE
    while True:
        is_left = comes_first(l_ts, l_seq_tick, i, pair_ts, pair_seq_tick, k)
        is_pair = not is_left and k < len(pair_ts)
        ts, seq_tick = cursor[TS], cursor[SEQ_TICK]
        if is_left:
            ts, seq_tick = l_ts[i], l_seq_tick[i]
        elif is_pair:
            ts, seq_tick = pair_ts[k], pair_seq_tick[k]
        over = ts != cursor[TS] or seq_tick != cursor[SEQ_TICK] or (last and not is_left and not is_pair)
        if n == len(out_ts):
            status = OUTPUT_FULL
            break
        if over and cursor[TOUCHED] != NONE:
            slot = cursor[TOUCHED]
            cursor[TOUCHED] = slots[slot, payload + LINK] - LINKED
            slots[slot, payload + LINK] = 0
            shows = slots[slot, payload + HELD] if (slots[slot, payload + MATCHES] > 0) != anti else 0
            gain = shows - slots[slot, payload + SHOWN]
            if gain != 0:
                n = write_slot(
                    cursor[TS], cursor[SEQ_TICK], gain, slots, slot,
                    out_ts, out_seq_tick, out_diff, out_data, n,
                )  # fmt: skip
            slots[slot, payload + SHOWN] = shows
        elif is_left:
            cursor[TS], cursor[SEQ_TICK] = ts, seq_tick
            if where[i] != NONE:
                slots[where[i], payload + HELD] += l_diff[i]
                _touch(slots, payload, where[i], cursor)
            elif anti:  # a key with a NULL never matches, so its row shows for as long as it is there
                n = write_row(ts, seq_tick, l_diff[i], l_data, i, out_ts, out_seq_tick, out_diff, out_data, n)
            i += 1
        elif is_pair:
            cursor[TS], cursor[SEQ_TICK] = ts, seq_tick
            slots[pair_slot[k], payload + MATCHES] += pair_diff[k]
            _touch(slots, payload, pair_slot[k], cursor)
            k += 1
        else:
            break
    cursor[NEXT_LEFT], cursor[NEXT_PAIR], cursor[SETTLED] = i, k, n
    return status


@compiled(f"void({M}, {V}, int64, {V})")
def recycle(slots: I64, counts: I64, payload: int, cursor: I64) -> None:
    """Frees the waiting slots whose last instant is settled; `cursor` is find_pairs'."""
    slot = cursor[WAITING]
    cursor[WAITING] = NONE
    while slot != NONE:
        following = slots[slot, NEXT]
        if slots[slot, payload + LINK] == 0:
            release(slots, counts, slot)
        else:
            slots[slot, NEXT] = cursor[WAITING]
            cursor[WAITING] = slot
        slot = following
