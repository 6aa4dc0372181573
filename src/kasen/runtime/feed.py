"""The order of the input: from rows as they are read to tuples with instants, in instant order.

A row is late if its time lies below the greatest time read so far minus SLACK: a function of the source
alone, so batch boundaries cannot change it. Rows wait here until no earlier one can come.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kasen.kernels.instants import check_times
from kasen.operators.base import State
from kasen.operators.batch import I64, TICK_BITS, Batch, ones, zeros

_NEVER = -(2**63)
_ALWAYS = 2**63 - 1


@dataclass(slots=True)
class Rows:
    """Rows of an input as read: time, +1 or -1, data [columns + 1, n], and where each stood in the source."""

    ts: I64
    diff: I64
    data: I64
    position: I64

    def __len__(self) -> int:
        return len(self.ts)

    def take(self, chosen: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Rows:
        return Rows(
            self.ts[chosen],
            self.diff[chosen],
            np.ascontiguousarray(self.data[:, chosen]),
            self.position[chosen],
        )

    def part(self, first: int, last: int) -> Rows:
        """The rows [first, last): a view, whose data is not contiguous."""
        return Rows(
            self.ts[first:last], self.diff[first:last], self.data[:, first:last], self.position[first:last]
        )


def no_rows(columns: int) -> Rows:
    none = np.empty(0, np.int64)
    return Rows(none, none, np.empty((columns + 1, 0), np.int64), none)


def join(parts: list[Rows]) -> Rows:
    """The rows one after the other, in memory of their own if there are several parts."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        np.concatenate([part.ts for part in parts]),
        np.concatenate([part.diff for part in parts]),
        np.concatenate([part.data for part in parts], axis=1),
        np.concatenate([part.position for part in parts]),
    )


class Feed:
    """One input's rows on their way into the pipeline.

    `_held` are pieces as they came in, none of them empty; `_ordered` says whether their times ascend from
    the first to the last row. As long as they do, rows are moved once: when they are released.
    """

    def __init__(self, columns: int, slack: int, timestamp: int | None = None) -> None:
        """`timestamp` is given for streams whose times are a column: then nothing else needs to be moved."""
        self._slack = slack
        self._timestamp = timestamp
        self._greatest = _NEVER
        self._advanced = _NEVER
        self._ended = False
        self._nothing = no_rows(columns)
        self._held: list[Rows] = []
        self._ordered = True

    def add(self, rows: Rows) -> Rows:
        """Takes rows in as read and returns those that came too late."""
        if not len(rows):
            return rows
        before = self._greatest
        late, ascending, self._greatest = check_times(rows.ts, before, self._slack, self._advanced)
        refused = self._nothing
        if late:
            is_late = self._late(rows.ts, before)
            rows, refused = rows.take(~is_late), rows.take(is_late)
            if not len(rows):
                return refused
        follows = not self._held or int(rows.ts[0]) >= int(self._held[-1].ts[-1])
        self._ordered = self._ordered and bool(ascending) and follows
        self._held.append(rows)
        return refused

    def _late(self, ts: I64, greatest: int) -> npt.NDArray[np.bool_]:
        so_far = np.maximum.accumulate(np.maximum(ts, greatest))
        before = np.concatenate([[greatest], so_far[:-1]])
        bound = np.where(before < _NEVER + self._slack, _NEVER, before - self._slack)
        late: npt.NDArray[np.bool_] = ts < np.maximum(bound, self._advanced)
        return late

    def advance(self, ts: int) -> None:
        """Punctuation: no row with a time below `ts` will come any more."""
        self._advanced = max(self._advanced, ts)

    def end(self) -> None:
        self._ended = True

    @property
    def frontier(self) -> int:
        """Every row with a time below this has been read."""
        if self._ended:
            return _ALWAYS
        by_rows = self._greatest - self._slack if self._greatest > _NEVER + self._slack else _NEVER
        return max(by_rows, self._advanced)

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def greatest(self) -> int:
        """The greatest time read so far, or the least possible one."""
        return self._greatest

    def waiting_below(self, ts: int) -> int:
        """How many held rows lie below a time."""
        if self._ordered:
            return sum(_below(part, ts) for part in self._held)
        return sum(int(np.count_nonzero(part.ts < ts)) for part in self._held)

    def release(self, upto: int) -> Rows:
        """The rows below a time, by time and then position in the source."""
        self._order()
        ready: list[Rows] = []
        kept: list[Rows] = []
        for part in self._held:
            cut = _below(part, upto)
            if cut == len(part):
                ready.append(part)
            elif cut == 0:
                kept.append(part)
            else:
                ready.append(part.part(0, cut))
                # A small rest must not keep the memory of all the rows it came with.
                rest = part.part(cut, len(part))
                kept.append(rest if 2 * cut < len(part) else _copy(rest))
        self._held = kept
        if not ready:
            return self._nothing
        if self._timestamp is not None:
            return self._slim(ready)
        if len(ready) > 1:
            return join(ready)
        return ready[0] if ready[0].data.flags.c_contiguous else _copy(ready[0])

    def _slim(self, ready: list[Rows]) -> Rows:
        """A stream's rows: all of them enter, times are a column, and positions have done their work."""
        assert self._timestamp is not None
        if len(ready) > 1:
            data = np.concatenate([part.data for part in ready], axis=1)
        else:
            data = np.ascontiguousarray(ready[0].data)
        return Rows(data[self._timestamp], ones(data.shape[1]), data, self._nothing.position)

    def _order(self) -> None:
        """Sorts what is held by time, if it is not. Sorting is stable, so rows of one time stay in order."""
        if not self._ordered:
            held = join(self._held)
            self._held = [held.take(np.argsort(held.ts, kind="stable"))]
            self._ordered = True

    def snapshot(self) -> State:
        self._order()
        marks = [self._greatest, self._advanced, int(self._ended)]
        held = join([self._nothing, *self._held])
        return {
            "marks": np.array(marks, np.int64),
            "ts": held.ts,
            "diff": held.diff,
            "data": held.data,
            "position": held.position,
        }

    def restore(self, state: State) -> None:
        self._greatest, self._advanced, ended = (int(mark) for mark in state["marks"])
        self._ended = bool(ended)
        data = np.ascontiguousarray(state["data"], np.int64)
        held = Rows(state["ts"], state["diff"], data, state["position"])
        self._held = [held] if len(held) else []


def _below(rows: Rows, ts: int) -> int:
    """How many rows, in order of time, lie below a time."""
    times = rows.ts
    if times[-1] < ts:
        return len(times)
    return 0 if times[0] >= ts else int(times.searchsorted(ts, "left"))


def _copy(rows: Rows) -> Rows:
    return Rows(rows.ts.copy(), rows.diff.copy(), rows.data.copy(order="C"), rows.position.copy())


def number_tuples(streams: list[Rows]) -> list[I64]:
    """`sub` for the rows of all TICK BY TUPLE streams, in declaration order: seq counts within each ts."""
    sizes = [len(rows) for rows in streams]
    ts = np.concatenate([rows.ts for rows in streams]) if streams else np.empty(0, np.int64)
    order = np.argsort(ts, kind="stable")
    ordered = ts[order]
    index = np.arange(len(ts), dtype=np.int64)
    starts = np.ones(len(ts), np.bool_)
    starts[1:] = ordered[1:] != ordered[:-1]
    first = np.maximum.accumulate(np.where(starts, index, 0))
    sub = np.empty(len(ts), np.int64)
    sub[order] = (index - first) << TICK_BITS
    return list(np.split(sub, np.cumsum(sizes)[:-1])) if streams else []


def as_batch(rows: Rows, sub: I64 | None) -> Batch:
    return Batch(rows.ts, zeros(len(rows)) if sub is None else sub, rows.diff, rows.data)
