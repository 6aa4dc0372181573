"""Two windows joined by one key, when only what enters counts: the fast way through the same rings.

An arrival is matched with the other window, then enters its own (document A). Whether pairs leave at the
same instant does not matter here as long as none of them can equal a pair that enters; where that cannot be
ruled out, the kernel stops before the instant with CONFLICT, and the general join takes over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.kernels.compiled import M, V, compiled
from kasen.kernels.hashing import hash_key
from kasen.kernels.rings import (
    CAPACITY,
    HEADS,
    KEY,
    KIND,
    LENGTH,
    MASK,
    NEXT,
    NONE,
    NOW,
    NOW_SUB,
    NOW_TS,
    RANGE,
    RING,
    ROWS,
    START,
    STRIDE,
    TIMES,
    UNBOUNDED,
    WORDS,
    WORDS_AT,
    ZERO,
)

# What the kernel says when it returns.
DONE, OUTPUT_FULL, LEFT_FULL, RIGHT_FULL, CONFLICT = range(5)

# `cursor`: the next arrival on each side, the next partner of that arrival, the pairs written.
LEFT, RIGHT, PARTNER, WRITTEN, JUNK = range(5)
#: PARTNER, when the arrival has not been begun.
FRESH = -2
BEGINNING = np.array([0, 0, FRESH, 0, 0], np.int64)

#: How far the kernel looks ahead.
BLOCK = 64

_GREATEST = 2**63 - 1


@compiled("int64(int64, int64, int64, int64, int64)")
def spot(ring: Any, stride: Any, capacity: Any, zero: Any, number: Any) -> Any:
    """Where a row lies, or (with a stride of 1) its time."""
    at = number - zero
    return ring + (at + (capacity if at < 0 else 0)) * stride


@compiled(f"int64({V}, int64)")
def word(arena: Any, at: Any) -> Any:
    """arena[at], without looking whether `at` counts from the end."""
    return arena[np.uint64(at)]


@compiled(f"boolean({V}, int64, {M}, {V}, int64, {M}, int64)")
def same_key(arena: Any, row: Any, data: Any, keys: Any, x: Any, index: Any, i: Any) -> Any:
    k = 0
    while k < len(keys) and arena[row + index[i, KEY + k]] == data[keys[k], x]:
        k += 1
    return k == len(keys)


@compiled(f"boolean({V}, int64, {M}, int64)")
def same_row(arena: Any, words: Any, data: Any, x: Any) -> Any:
    w = 0
    while w < data.shape[0] and word(arena, words + w) == data[w, x]:
        w += 1
    return w == data.shape[0]


@compiled(f"boolean({V}, {V}, int64, int64, int64)")
def ties(ts: Any, sub: Any, at: Any, with_ts: Any, with_sub: Any) -> Any:
    return at < len(ts) and ts[at] == with_ts and sub[at] == with_sub


@compiled(
    f"Tuple((int64, int64, boolean))({V}, {M}, {M}, {', '.join(['int64'] * 4)}, {M}, {V}, "
    "int64, int64, int64, boolean, boolean)",
    inline=False,
)
def release(
    arena: Any, cfg: Any, index: Any, w: Any, start: Any, end: Any, zero: Any, data: Any, keys: Any, x: Any,
    ts: Any, sub: Any, own: Any, several: Any,
) -> Any:  # fmt: skip
    """What is left of a window of time when x arrives: its first row, and the first that leaves just now.

    And whether what leaves just now might cancel what x brings: x has the same key (or, in its `own`
    window, is equal), or `several` rows arrive at this instant.
    """
    if cfg[w, KIND] == ROWS or cfg[w, KIND] == UNBOUNDED:
        return start, start, False
    if cfg[w, KIND] == NOW:
        if start == end or (cfg[w, NOW_TS] == ts and cfg[w, NOW_SUB] == sub):
            return start, start, False
        just_now = cfg[w, NOW_TS] == ts and cfg[w, NOW_SUB] + 1 == sub
        return end, start if just_now else end, just_now
    leaving, found = NONE, False
    while start < end:
        at = spot(cfg[w, TIMES], 1, cfg[w, CAPACITY], zero, start)
        out = _GREATEST if arena[at] >= _GREATEST - cfg[w, LENGTH] else arena[at] + cfg[w, LENGTH] + 1
        if out > ts:
            break
        if out == ts and sub == 0:
            leaving = start if leaving == NONE else leaving
            row = spot(cfg[w, RING], cfg[w, STRIDE], cfg[w, CAPACITY], zero, start)
            if several:
                found = True
            elif own:
                found |= same_row(arena, row + cfg[w, WORDS_AT], data, x)
            else:
                found |= same_key(arena, row, data, keys, x, index, w)
        start += 1
    return start, start if leaving == NONE else leaving, found


@compiled(f"int64({V}, {M}, {V}, int64, {V}, {', '.join(['int64'] * 10)}, {V})")
def look_ahead(
    arena: Any, data: Any, keys: Any, begin: Any, hashes: Any, heads: Any, mask: Any, o_heads: Any,
    o_mask: Any, ring: Any, stride: Any, capacity: Any, zero: Any, start: Any, last: Any, cursor: Any,
) -> Any:  # fmt: skip
    """Hashes the keys of the next arrivals, and reads what their probes of the other window will read."""
    count = min(len(hashes), data.shape[1] - begin)
    read = 0
    for x in range(count):
        key_hash = np.int64(hash_key(data, keys, begin + x))
        hashes[x] = key_hash
        read ^= word(arena, heads + (key_hash & mask))
    for x in range(count if start <= last else 0):
        # No branch: a wrong guess would wait for the head, and all reads behind it with it.
        number = min(max(word(arena, o_heads + (hashes[x] & o_mask)), start), last)
        number = min(max(word(arena, spot(ring, stride, capacity, zero, number)), start), last)
        read ^= word(arena, spot(ring, stride, capacity, zero, number))
    cursor[JUNK] = read  # so that the reads are not left out as useless
    return begin + count


@compiled(f"int64({V}, {M}, int64, {M}, {V}, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def settle(
    arena: Any, index: Any, o: Any, data: Any, keys: Any, x: Any, key: Any, key_at: Any, ring: Any,
    stride: Any, capacity: Any, zero: Any, start: Any, number: Any,
) -> Any:  # fmt: skip
    """The first row at or after `number` of a chain with the key of arrival x, or NONE."""
    while number >= start:
        row = spot(ring, stride, capacity, zero, number)
        if (len(keys) == 0 or word(arena, row + key_at) == key) and (
            len(keys) < 2 or same_key(arena, row, data, keys, x, index, o)
        ):
            return number
        number = word(arena, row)
    return NONE


_OUT = f"{V}, {V}, {V}, {M}, {M}"
_SIDE = f"{V}, {V}, {M}, {V}, {V}"


@compiled(f"int64({V}, {M}, {M}, {_SIDE}, {_SIDE}, {V}, {_OUT})", inline=False)
def join(
    arena: Any, cfg: Any, index: Any,
    l_ts: Any, l_sub: Any, l_data: Any, l_keys: Any, l_ahead: Any,
    r_ts: Any, r_sub: Any, r_data: Any, r_keys: Any, r_ahead: Any,
    cursor: Any, out_ts: Any, out_sub: Any, out_diff: Any, out_data: Any, columns: Any,
) -> Any:  # fmt: skip
    """Joins the arrivals of two windows; `cfg` and `index` have one row for each (see rings).

    Returns DONE, or why it stops; the caller then makes room, or leaves the rest to the general join.
    The cursor begins as a copy of BEGINNING; `ahead` is room for BLOCK hashes, `columns` as in mjoin.
    """
    l_null = r_null = 0
    for k in range(len(l_keys)):
        l_null |= 1 << l_keys[k]
        r_null |= 1 << r_keys[k]
    l_first = l_keys[0] if len(l_keys) else 0
    r_first = r_keys[0] if len(r_keys) else 0
    l_rows, r_rows = cfg[0, KIND] == ROWS, cfg[1, KIND] == ROWS
    timed = cfg[0, KIND] == RANGE or cfg[0, KIND] == NOW or cfg[1, KIND] == RANGE or cfg[1, KIND] == NOW
    l_ring, l_stride, l_cap, l_times = cfg[0, RING], cfg[0, STRIDE], cfg[0, CAPACITY], cfg[0, TIMES]
    r_ring, r_stride, r_cap, r_times = cfg[1, RING], cfg[1, STRIDE], cfg[1, CAPACITY], cfg[1, TIMES]
    l_heads, l_mask, l_key, l_words = index[0, HEADS], index[0, MASK], 1 + l_first, cfg[0, WORDS]
    r_heads, r_mask, r_key, r_words = index[1, HEADS], index[1, MASK], 1 + r_first, cfg[1, WORDS]
    l_start, l_next, l_zero = cfg[0, START], cfg[0, NEXT], cfg[0, ZERO]
    r_start, r_next, r_zero = cfg[1, START], cfg[1, NEXT], cfg[1, ZERO]
    i, j, partner, n = cursor[LEFT], cursor[RIGHT], cursor[PARTNER], cursor[WRITTEN]
    l_begin = l_end = i
    r_begin = r_end = j
    status = DONE
    while i < len(l_ts) or j < len(r_ts):
        if i < len(l_ts) and (
            j == len(r_ts) or l_ts[i] < r_ts[j] or (l_ts[i] == r_ts[j] and l_sub[i] <= r_sub[j])
        ):
            if i == l_end:
                l_begin = i
                l_end = look_ahead(
                    arena, l_data, l_keys, i, l_ahead, l_heads, l_mask, r_heads, r_mask,
                    r_ring, r_stride, r_cap, r_zero, r_start, r_next - 1, cursor,
                )  # fmt: skip
            ts, sub, x = l_ts[i], l_sub[i], i
            mine = l_data[l_words - 1, x]
            key_hash, key = l_ahead[i - l_begin], l_data[l_first, x]
            if partner == FRESH:
                several = ties(l_ts, l_sub, i + 1, ts, sub) or ties(r_ts, r_sub, j, ts, sub)
                found = several and (l_rows or r_rows)
                if timed and not found:
                    to, l_leaving, found = release(
                        arena, cfg, index, 0, l_start, l_next, l_zero, l_data, l_keys, x,
                        ts, sub, True, several,
                    )  # fmt: skip
                    o_to, r_leaving, o_found = release(
                        arena, cfg, index, 1, r_start, r_next, r_zero, l_data, l_keys, x,
                        ts, sub, False, several,
                    )  # fmt: skip
                    found |= o_found
                    l_start, r_start = (l_leaving, r_leaving) if found else (to, o_to)
                if l_rows and l_next - l_start == cfg[0, LENGTH] and not found:
                    found = same_row(arena, spot(l_ring, l_stride, l_cap, l_zero, l_start) + 1, l_data, x)
                    l_start += not found
                if found:
                    status = CONFLICT
                    break
                if l_next - l_start == l_cap:
                    status = LEFT_FULL
                    break
                partner = NONE
                if not mine & l_null:
                    partner = settle(
                        arena, index, 1, l_data, l_keys, x, key, r_key, r_ring, r_stride, r_cap,
                        r_zero, r_start, word(arena, r_heads + (key_hash & r_mask)),
                    )  # fmt: skip
            while partner != NONE and n < len(out_ts):
                row = spot(r_ring, r_stride, r_cap, r_zero, partner)
                out_ts[n], out_sub[n], out_diff[n] = ts, sub, 1
                for c in range(len(columns)):
                    out_data[c, n] = (
                        word(arena, row + columns[c, 1]) if columns[c, 0] else l_data[columns[c, 2], x]
                    )
                nulls, theirs = 0, word(arena, row + r_words)
                if mine | theirs:
                    for c in range(len(columns)):
                        nulls |= (((theirs if columns[c, 0] else mine) >> columns[c, 2]) & 1) << c
                out_data[len(columns), n] = nulls
                n += 1
                partner = settle(
                    arena, index, 1, l_data, l_keys, x, key, r_key, r_ring, r_stride, r_cap, r_zero, r_start,
                    word(arena, row),
                )  # fmt: skip
            if partner != NONE:
                status = OUTPUT_FULL
                break
            if l_next - l_zero == l_cap:
                l_zero = l_next
            arena[l_times + l_next - l_zero] = ts
            row = l_ring + (l_next - l_zero) * l_stride
            for w in range(l_words):
                arena[row + 1 + w] = l_data[w, x]
            if not mine & l_null:
                at = l_heads + (key_hash & l_mask)
                arena[row] = word(arena, at)
                arena[at] = l_next
            if timed:
                cfg[0, NOW_TS], cfg[0, NOW_SUB] = ts, sub
            l_next += 1
            i += 1
        else:
            if j == r_end:
                r_begin = j
                r_end = look_ahead(
                    arena, r_data, r_keys, j, r_ahead, r_heads, r_mask, l_heads, l_mask,
                    l_ring, l_stride, l_cap, l_zero, l_start, l_next - 1, cursor,
                )  # fmt: skip
            ts, sub, x = r_ts[j], r_sub[j], j
            mine = r_data[r_words - 1, x]
            key_hash, key = r_ahead[j - r_begin], r_data[r_first, x]
            if partner == FRESH:
                several = ties(r_ts, r_sub, j + 1, ts, sub)
                found = several and (r_rows or l_rows)
                if timed and not found:
                    to, r_leaving, found = release(
                        arena, cfg, index, 1, r_start, r_next, r_zero, r_data, r_keys, x,
                        ts, sub, True, several,
                    )  # fmt: skip
                    o_to, l_leaving, o_found = release(
                        arena, cfg, index, 0, l_start, l_next, l_zero, r_data, r_keys, x,
                        ts, sub, False, several,
                    )  # fmt: skip
                    found |= o_found
                    r_start, l_start = (r_leaving, l_leaving) if found else (to, o_to)
                if r_rows and r_next - r_start == cfg[1, LENGTH] and not found:
                    found = same_row(arena, spot(r_ring, r_stride, r_cap, r_zero, r_start) + 1, r_data, x)
                    r_start += not found
                if found:
                    status = CONFLICT
                    break
                if r_next - r_start == r_cap:
                    status = RIGHT_FULL
                    break
                partner = NONE
                if not mine & r_null:
                    partner = settle(
                        arena, index, 0, r_data, r_keys, x, key, l_key, l_ring, l_stride, l_cap,
                        l_zero, l_start, word(arena, l_heads + (key_hash & l_mask)),
                    )  # fmt: skip
            while partner != NONE and n < len(out_ts):
                row = spot(l_ring, l_stride, l_cap, l_zero, partner)
                out_ts[n], out_sub[n], out_diff[n] = ts, sub, 1
                for c in range(len(columns)):
                    out_data[c, n] = (
                        r_data[columns[c, 2], x] if columns[c, 0] else word(arena, row + columns[c, 1])
                    )
                nulls, theirs = 0, word(arena, row + l_words)
                if mine | theirs:
                    for c in range(len(columns)):
                        nulls |= (((mine if columns[c, 0] else theirs) >> columns[c, 2]) & 1) << c
                out_data[len(columns), n] = nulls
                n += 1
                partner = settle(
                    arena, index, 0, r_data, r_keys, x, key, l_key, l_ring, l_stride, l_cap, l_zero, l_start,
                    word(arena, row),
                )  # fmt: skip
            if partner != NONE:
                status = OUTPUT_FULL
                break
            if r_next - r_zero == r_cap:
                r_zero = r_next
            arena[r_times + r_next - r_zero] = ts
            row = r_ring + (r_next - r_zero) * r_stride
            for w in range(r_words):
                arena[row + 1 + w] = r_data[w, x]
            if not mine & r_null:
                at = r_heads + (key_hash & r_mask)
                arena[row] = word(arena, at)
                arena[at] = r_next
            if timed:
                cfg[1, NOW_TS], cfg[1, NOW_SUB] = ts, sub
            r_next += 1
            j += 1
        partner = FRESH
    cfg[0, START], cfg[0, NEXT], cfg[0, ZERO] = l_start, l_next, l_zero
    cfg[1, START], cfg[1, NEXT], cfg[1, ZERO] = r_start, r_next, r_zero
    cursor[LEFT], cursor[RIGHT], cursor[PARTNER], cursor[WRITTEN] = i, j, partner, n
    return status
