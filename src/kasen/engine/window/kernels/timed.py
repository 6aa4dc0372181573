"""Time windows: when tuples of a queue enter and leave, and the changes that this makes."""

from __future__ import annotations

from typing import Any

from kasen.engine.kernels.compiled import M, V, compiled

#: Fields of `shape`: what kind of window, and its length and slide.
KIND, LENGTH, SLIDE, SHAPE = range(4)
RANGE, NOW, SLIDING = range(3)

_GREATEST = 2**63 - 1


@compiled("int64(int64, int64)")
def _plus(ts: Any, length: Any) -> Any:
    """ts + length, stopping at the end of time instead of wrapping around."""
    return _GREATEST if ts > _GREATEST - length else ts + length


@compiled(f"UniTuple(int64, 2)(int64, int64, {V})")
def entering(ts: Any, seq_tick: Any, shape: Any) -> Any:
    """The instant at which a tuple of this instant enters."""
    if shape[KIND] == SLIDING:
        return (ts // shape[SLIDE] + 1) * shape[SLIDE], 0
    return ts, seq_tick


@compiled(f"UniTuple(int64, 2)(int64, int64, {V})")
def leaving(ts: Any, seq_tick: Any, shape: Any) -> Any:
    """The instant at which it leaves."""
    if shape[KIND] == NOW:
        return ts, seq_tick + 1
    if shape[KIND] == RANGE:
        return _plus(ts, shape[LENGTH] + 1), 0
    return (_plus(ts, shape[LENGTH]) // shape[SLIDE] + 1) * shape[SLIDE], 0


@compiled(f"UniTuple(int64, 2)({M}, int64, int64, int64, {V})", inline=False)
def due(instants: Any, start: Any, entered: Any, end: Any, shape: Any) -> Any:
    """The next instant at which a tuple of the queue enters or leaves; the queue is as in `moved`."""
    ts, seq_tick = _GREATEST, _GREATEST
    if entered < end:
        ts, seq_tick = entering(instants[0, entered], instants[1, entered], shape)
    if start < entered:
        out_ts, out_seq_tick = leaving(instants[0, start], instants[1, start], shape)
        if out_ts < ts or (out_ts == ts and out_seq_tick < seq_tick):
            ts, seq_tick = out_ts, out_seq_tick
    return ts, seq_tick


@compiled(f"UniTuple(int64, 2)({M}, int64, int64, int64, {V}, int64, int64)", inline=False)
def moved(
    instants: Any, start: Any, entered: Any, end: Any, shape: Any, upto_ts: Any, upto_seq_tick: Any
) -> Any:
    """Up to where the queue's tuples have left, and have entered, before the frontier.

    `instants` [2, room]: ts and seq_tick. Those in [start, end) are held, those before `entered` entered.
    """
    while entered < end:
        ts, seq_tick = entering(instants[0, entered], instants[1, entered], shape)
        if ts > upto_ts or (ts == upto_ts and seq_tick >= upto_seq_tick):
            break
        entered += 1
    while start < entered:
        ts, seq_tick = leaving(instants[0, start], instants[1, start], shape)
        if ts > upto_ts or (ts == upto_ts and seq_tick >= upto_seq_tick):
            break
        start += 1
    return start, entered


@compiled(f"void({M}, {M}, int64, int64, int64, {V}, {V}, {V}, {V}, {M}, {V})", inline=False)
def changes(
    instants: Any,
    data: Any,
    start: Any,
    left: Any,
    entered: Any,
    order: Any,
    ts_out: Any,
    sub_out: Any,
    diff_out: Any,
    out: Any,
    shape: Any,
) -> None:
    """Writes the changes of tuples [start, left) leaving and of those from `entered` on entering.

    As many enter as there is room in the outputs beside those that leave. In instant order; within an
    instant those that enter come first. `order` is room for as many positions.
    """
    size = len(ts_out)
    end = entered + size - (left - start)
    i, j = entered, start
    for k in range(size):
        in_ts = in_seq_tick = out_ts = out_seq_tick = 0
        if i < end:
            in_ts, in_seq_tick = entering(instants[0, i], instants[1, i], shape)
        if j < left:
            out_ts, out_seq_tick = leaving(instants[0, j], instants[1, j], shape)
        if j == left or (i < end and (in_ts < out_ts or (in_ts == out_ts and in_seq_tick <= out_seq_tick))):
            ts_out[k], sub_out[k], diff_out[k], order[k] = in_ts, in_seq_tick, 1, i
            i += 1
        else:
            ts_out[k], sub_out[k], diff_out[k], order[k] = out_ts, out_seq_tick, -1, j
            j += 1
    for column in range(len(data)):
        for k in range(size):
            out[column, k] = data[column, order[k]]
