"""A few arrivals of two joined windows, from batches to a batch in one call: what takes long is to call."""

from __future__ import annotations

from typing import Any

from kasen.engine.join.pair.kernels.output import gather, gather_nulls
from kasen.engine.join.pair.kernels.pair_join import (
    CANCELS,
    DONE,
    PAIR_AT,
    PAIR_LEFT,
    PAIR_RIGHT,
    PHASE,
    WRITTEN,
    J,
    match,
)
from kasen.engine.join.pair.kernels.rows import (
    ANY_NULLS,
    BASE,
    COUNT,
    FIRST,
    MOST_ROWS,
    NEXT,
    ROOM,
    WORDS,
    I,
    row_place,
)
from kasen.engine.kernels.compiled import M, V, compiled

#: What `join_small_batch` says if it has not done all: there was no room for the arrivals; `match` is to go
#: on; the pairs are found, but not written.
NO_ROOM, UNFINISHED, UNWRITTEN = -1, -2, -3
#: The rows of its output.
OUT_TS, OUT_SEQ_TICK, OUT_DATA = range(3)


@compiled(f"boolean({M}, int64, int64)")
def has_room(cfg: Any, side: Any, count: Any) -> Any:
    return (
        cfg[side, NEXT] - cfg[side, BASE] + count <= cfg[side, ROOM] and cfg[side, NEXT] + count < MOST_ROWS
    )


@compiled(f"void({V}, {M}, int64, {V}, {M})")
def receive(store: Any, cfg: Any, side: Any, ts: Any, data: Any) -> None:
    """Writes arrivals behind a side's rows."""
    cfg[side, FIRST], cfg[side, COUNT] = cfg[side, NEXT], len(ts)
    at, room, words = row_place(cfg, side, cfg[side, NEXT]), cfg[side, ROOM], cfg[side, WORDS]
    for n in range(len(ts)):
        store[at + n] = ts[n]
        for w in range(words):
            store[at + n + (1 + w) * room] = data[w, n]
        cfg[side, ANY_NULLS] |= data[words - 1, n] != 0


_SIDE = f"{V}, {V}, {M}"


@compiled(
    f"int64({V}, {M}, {M}, {I}, {V}, {I}, {_SIDE}, {_SIDE}, {M}, {M}, {V}, {J}, {V}, {J}, {J}, {M}, {M})",
    inline=False,
)
def join_small_batch(
    store: Any, cfg: Any, keys: Any, links: Any, table: Any, heads: Any,
    l_ts: Any, l_seq_tick: Any, l_data: Any, r_ts: Any, r_seq_tick: Any, r_data: Any,
    l_marks: Any, r_marks: Any, cursor: Any, work: Any, words: Any,
    found: Any, pairs: Any, columns: Any, out: Any,
) -> Any:  # fmt: skip
    """Receives and matches the arrivals and writes their pairs; returns how many, or what is left to do.

    The first arguments are those of `match`; `out` is room for pairs: ts, seq_tick, then the columns.
    """
    if not has_room(cfg, 0, len(l_ts)) or not has_room(cfg, 1, len(r_ts)):
        return NO_ROOM
    receive(store, cfg, 0, l_ts, l_data)
    receive(store, cfg, 1, r_ts, r_data)
    for field in range(PHASE):
        cursor[field] = 0
    cursor[CANCELS] = 0
    status = match(
        store, cfg, keys, links, table, heads, l_seq_tick, r_seq_tick, l_marks, r_marks,
        cursor, work, words, found, pairs,
    )  # fmt: skip
    if status != DONE:
        return UNFINISHED
    count = cursor[WRITTEN]
    if cursor[CANCELS] or keys.shape[1] > 1 or count > out.shape[1]:
        return UNWRITTEN
    for n in range(count):
        side = pairs[PAIR_AT, n] & 1
        number = pairs[PAIR_RIGHT if side else PAIR_LEFT, n]
        out[OUT_TS, n] = store[row_place(cfg, side, number)]
        at = number - cfg[side, FIRST]
        out[OUT_SEQ_TICK, n] = r_seq_tick[at] if side else l_seq_tick[at]
    data = out[OUT_DATA:]
    gather(store, cfg, pairs, columns, count, data, 0)
    gather_nulls(store, cfg, pairs, columns, count, data, 0)
    return count
