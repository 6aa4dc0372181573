"""The order of the input: from rows as they are read to tuples with instants, in instant order.

A row is late if its time lies below the greatest time read so far minus SLACK: a function of the source
alone, so batch boundaries cannot change it. Rows wait here until no earlier one can come.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kasen.operators.base import State
from kasen.operators.batch import I64, TICK_BITS, Batch

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


def join(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    return Rows(
        np.concatenate([part.ts for part in parts]),
        np.concatenate([part.diff for part in parts]),
        np.concatenate([part.data for part in parts], axis=1),
        np.concatenate([part.position for part in parts]),
    )


class Feed:
    """One input's rows on their way into the pipeline."""

    def __init__(self, columns: int, slack: int) -> None:
        self._slack = slack
        self._greatest = _NEVER
        self._advanced = _NEVER
        self._ended = False
        self._held = Rows(
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            np.empty((columns + 1, 0), np.int64),
            np.empty(0, np.int64),
        )

    def add(self, rows: Rows) -> Rows:
        """Takes rows in as read and returns those that came too late."""
        if not len(rows):
            return rows
        so_far = np.maximum.accumulate(np.maximum(rows.ts, self._greatest))
        before = np.concatenate([[self._greatest], so_far[:-1]])
        bound = np.where(before < _NEVER + self._slack, _NEVER, before - self._slack)
        late = rows.ts < np.maximum(bound, self._advanced)
        self._greatest = int(so_far[-1])
        if late.any():
            kept, refused = rows.take(~late), rows.take(late)
        else:
            kept, refused = rows, rows.take(np.zeros(len(rows), np.bool_))
        self._held = join([self._held, kept]) if len(self._held) else kept
        return refused

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
        return int(np.count_nonzero(self._held.ts < ts))

    def release(self, upto: int) -> Rows:
        """The rows below a time, by time and then position in the source."""
        held = self._held
        ready = held.ts < upto
        if not ready.any():
            return held.take(ready)
        released = held if ready.all() else held.take(ready)
        self._held = held.take(~ready)
        if np.any(released.ts[1:] < released.ts[:-1]):
            released = released.take(np.argsort(released.ts, kind="stable"))
        return released

    def snapshot(self) -> State:
        marks = [self._greatest, self._advanced, int(self._ended)]
        held = self._held
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
        self._held = Rows(state["ts"], state["diff"], data, state["position"])


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
    return Batch(rows.ts, np.zeros(len(rows), np.int64) if sub is None else sub, rows.diff, rows.data)
