"""The order of instants: of rows as they are read, and of two lists of changes to be made one."""

from __future__ import annotations

from typing import Any

import numpy as np

from kasen.engine.kernels.compiled import V, compiled

_NEVER = -(2**63)


@compiled(f"UniTuple(int64, 3)({V}, int64, int64, int64)", inline=False)
def check_times(ts: Any, greatest: Any, slack: Any, advanced: Any) -> Any:
    """How many rows are late, whether no time is below the one before it (0 or 1), and the greatest time.

    A row is late if its time lies below `advanced`, or below the greatest time before it minus `slack`.
    `greatest` is that of the rows read earlier, and the answer's is at least that. There is a row.
    """
    late = 0
    ascending = 1
    for i in range(len(ts)):
        if ts[i] < greatest:
            if i > 0 and ts[i] < ts[i - 1]:
                ascending = 0
            if ts[i] < advanced or (greatest >= _NEVER + slack and ts[i] < greatest - slack):
                late += 1
        else:
            greatest = ts[i]
            if ts[i] < advanced:
                late += 1
    return late, ascending, greatest


@compiled(f"void({V}, {V}, {V}, {V}, {V})", inline=False)
def merge_order(ts: Any, seq_tick: Any, other_ts: Any, other_seq_tick: Any, order: Any) -> None:
    """The order that makes one list of two, each in instant order; the first one's come first in an instant.

    Positions in `order` count through the first list and on into the other.
    """
    i = j = 0
    n, m = len(ts), len(other_ts)
    for k in range(n + m):
        if j == m or (
            i < n and (ts[i] < other_ts[j] or (ts[i] == other_ts[j] and seq_tick[i] <= other_seq_tick[j]))
        ):
            order[k] = i
            i += 1
        else:
            order[k] = n + j
            j += 1


@compiled(f"void({V}, {V}, int64, {V}, {V})", inline=False)
def number_two(ts: Any, other_ts: Any, step: Any, seq_tick: Any, other_seq_tick: Any) -> None:
    """Numbers the rows of two ascending lists within each time, by `step`; the first list's come first."""
    i = j = 0
    n, m = len(ts), len(other_ts)
    last = number = 0
    while i < n or j < m:
        is_first = j == m or (i < n and ts[i] <= other_ts[j])
        now = ts[i] if is_first else other_ts[j]
        number = number + step if i + j > 0 and now == last else 0
        last = now
        if is_first:
            seq_tick[i] = number
            i += 1
        else:
            other_seq_tick[j] = number
            j += 1


@compiled(f"boolean({V}, {V})", inline=False)
def share_a_time(ts: Any, other_ts: Any) -> Any:
    """Whether any two rows of two ascending lists, or of one of them, have the same time."""
    i = j = np.int64(0)
    n, m = len(ts), len(other_ts)
    equal = 0
    for k in range(1, n):
        equal += ts[k] == ts[k - 1]
    for k in range(1, m):
        equal += other_ts[k] == other_ts[k - 1]
    steps: Any = min(n, m)
    while steps > 0 and equal == 0:
        for _ in range(steps):
            a, b = ts[np.uint64(i)], other_ts[np.uint64(j)]
            equal += a == b
            # No branch: which is less cannot be guessed.
            first = np.int64(a <= b)
            i += first
            j += 1 - first
        steps = min(n - i, m - j)
    return equal > 0


@compiled(f"boolean({V}, int64)", inline=False)
def all_within(ts: Any, most: Any) -> Any:
    """Whether all times lie strictly between -most and most."""
    beyond = 0
    for i in range(len(ts)):
        beyond += (ts[i] >= most) | (ts[i] <= -most)
    return beyond == 0


@compiled(f"boolean({V})", inline=False)
def ascends(ts: Any) -> Any:
    """Whether no time is below the one before it."""
    descents = 0
    for i in range(1, len(ts)):  # no way out of the loop, so that it goes over several rows at a time
        descents += ts[i] < ts[i - 1]
    return descents == 0


@compiled(f"int64({V}, int64, int64)")
def below(ts: Any, first: Any, end: Any) -> Any:
    """Up to where, from `first` on, times lie below `end`. They ascend, so that few need to be looked at."""
    last = len(ts)
    if ts[last - 1] < end:
        return last
    while first < last:
        middle = (first + last) >> 1
        if ts[middle] < end:
            first = middle + 1
        else:
            last = middle
    return first
