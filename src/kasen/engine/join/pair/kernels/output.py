"""From the pairs that pair_join found to the rows of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.join.pair.kernels.pair_join import PAIR_AT, PAIR_LEFT, PAIR_RIGHT, J
from kasen.engine.join.pair.kernels.rows import ANY_NULLS, COUNT, FIRST, ROOM, WORDS, row_place, same_key
from kasen.engine.kernels.compiled import M, V, compiled


@compiled(f"int64({V}, {M}, {M}, {J}, int64)", inline=False)
def verify(store: Any, cfg: Any, keys: Any, pairs: Any, count: Any) -> Any:
    """Leaves out pairs of different keys, whose hashes are equal; returns how many stay."""
    kept = 0
    for n in range(count):
        left, right, at = pairs[PAIR_LEFT, n], pairs[PAIR_RIGHT, n], pairs[PAIR_AT, n]
        pairs[PAIR_LEFT, kept], pairs[PAIR_RIGHT, kept], pairs[PAIR_AT, kept] = left, right, at
        kept += same_key(store, cfg, keys, left, right)
    return kept


@compiled(f"void({V}, {M}, {J}, {V}, int64, {V}, {V}, int64)", inline=False)
def instants(
    store: Any, cfg: Any, pairs: Any, seq_ticks: Any, count: Any, ts: Any, seq_tick: Any, to: Any
) -> None:
    """The instants of pairs none of which leave, into the places from `to` on: those of their arrivals.

    `seq_ticks` are those of the call's arrivals, the left side's first; if empty, they are not written.
    """
    l_at, r_at = row_place(cfg, 0, 0), row_place(cfg, 1, 0)
    for n in range(count):
        side = pairs[PAIR_AT, n] & 1
        number = np.int64(pairs[PAIR_RIGHT, n] if side else pairs[PAIR_LEFT, n])
        ts[to + n] = store[np.uint64(number + (r_at if side else l_at))]
    if len(seq_ticks):
        l_at, r_at = -cfg[0, FIRST], cfg[0, COUNT] - cfg[1, FIRST]
        for n in range(count):
            side = pairs[PAIR_AT, n] & 1
            number = np.int64(pairs[PAIR_RIGHT, n] if side else pairs[PAIR_LEFT, n])
            seq_tick[to + n] = seq_ticks[np.uint64(number + (r_at if side else l_at))]


@compiled(f"void({V}, {M}, {J}, {V}, {V}, {V}, {V})", inline=False)
def mixed_instants(
    store: Any, cfg: Any, pairs: Any, seq_ticks: Any, ts: Any, seq_tick: Any, diff: Any
) -> None:
    """As `instants`, for pairs some of which leave."""
    for n in range(len(ts)):
        code = np.int64(pairs[PAIR_AT, n])
        side = (code if code >= 0 else ~code) & 1
        if code >= 0:
            at = pairs[PAIR_RIGHT if side else PAIR_LEFT, n] - cfg[side, FIRST]
        else:
            at = ~code >> 1
        diff[n] = 1 if code >= 0 else -1
        ts[n] = store[row_place(cfg, side, cfg[side, FIRST] + at)]
        seq_tick[n] = seq_ticks[at + cfg[0, COUNT] * side]


@compiled(f"void({V}, {M}, {J}, {M}, int64, {M}, int64)", inline=False)
def gather(store: Any, cfg: Any, pairs: Any, columns: Any, count: Any, data: Any, to: Any) -> None:
    """The pairs' values into the places of `data` from `to` on. `columns` are (side, word)."""
    for c in range(len(columns)):
        side = columns[c, 0]
        at = row_place(cfg, side, 0) + columns[c, 1] * cfg[side, ROOM]
        numbers = PAIR_RIGHT if side else PAIR_LEFT
        for n in range(count):
            data[c, to + n] = store[np.uint64(at + pairs[numbers, n])]


@compiled(f"void({V}, {M}, {J}, {M}, int64, {M}, int64)", inline=False)
def gather_nulls(store: Any, cfg: Any, pairs: Any, columns: Any, count: Any, data: Any, to: Any) -> None:
    """The pairs' NULL bits into the last row of `data`."""
    width = len(columns)
    for n in range(count):
        data[width, to + n] = 0
    for c in range(width):
        side, bit = columns[c, 0], columns[c, 1] - 1
        if cfg[side, ANY_NULLS]:
            at = row_place(cfg, side, 0) + cfg[side, WORDS] * cfg[side, ROOM]
            numbers = PAIR_RIGHT if side else PAIR_LEFT
            for n in range(count):
                data[width, to + n] |= ((store[np.uint64(at + pairs[numbers, n])] >> bit) & 1) << c
