"""The order of the input: from rows as they are read to tuples with instants, in instant order.

A row is late if its time lies below the greatest time read so far minus SLACK: a function of the source
alone, so batch boundaries cannot change it. Rows wait here until no earlier one can come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from kasen.engine import parallel
from kasen.engine.batch import I64, TICK_BITS, Batch, Columns, Frontier, matrix, ones, zeros
from kasen.engine.deferred_batch import DeferredBatch, RowSelection
from kasen.engine.kernels.instants import ascends, check_times, number_two, share_a_time
from kasen.engine.operator import State

_NEVER = -(2**63)
_ALWAYS = 2**63 - 1
_NO_TIMES = np.empty(0, np.int64)
# Rows that wait may keep so many times their own memory.
_KEEP = 8
#: So many pieces, of fewer rows than this, are joined.
_MANY, _SMALL = 64, 4096


@dataclass(slots=True)
class InputRows:
    """Rows of an input as read: times, +1 or -1, columns and NULL bits, where each stood in the source.

    Rows that stood one after the other say so by a range: few ever ask where a row stood.
    """

    ts: I64
    diff: I64
    data: Columns
    stood: I64 | range
    _ascends: bool | None = None

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def position(self) -> I64:
        if isinstance(self.stood, range):
            self.stood = np.arange(self.stood.start, self.stood.stop, dtype=np.int64)
        return self.stood

    @property
    def ascends(self) -> bool:
        """Whether no time is below the one before it: the usual case, and then the ends tell of all."""
        if self._ascends is None:
            ts = self.ts
            if len(ts) < 2:
                self._ascends = True
            elif parallel.worth(len(ts)):
                cut = len(ts) // 2
                there, here = parallel.both(partial(ascends, ts[cut - 1 :]), partial(ascends, ts[:cut]))
                self._ascends = bool(there) and bool(here)
            else:
                self._ascends = bool(ascends(ts))
        return self._ascends

    def take(self, chosen: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> InputRows:
        data = [column[chosen] for column in self.data]
        return InputRows(self.ts[chosen], self.diff[chosen], data, self.position[chosen])

    def part(self, first: int, last: int) -> InputRows:
        """The rows [first, last): a view."""
        data = [column[first:last] for column in self.data]
        kept = True if self._ascends else None
        return InputRows(self.ts[first:last], self.diff[first:last], data, self.stood[first:last], kept)

    def entering(self, at: Frontier) -> Batch:
        """The rows, those of a static table, as changes that enter at one instant."""
        count = len(self)
        ts, seq_tick = np.full(count, at.ts, np.int64), np.full(count, at.seq_tick, np.int64)
        return Batch(ts, seq_tick, np.ones(count, np.int64), matrix(self.data))


def no_rows(columns: int) -> InputRows:
    none = np.empty(0, np.int64)
    return InputRows(none, none, np.empty((columns + 1, 0), np.int64), none)


def join(parts: list[InputRows]) -> InputRows:
    """The rows one after the other, in memory of their own if there are several parts."""
    if len(parts) == 1:
        return parts[0]
    return InputRows(
        np.concatenate([part.ts for part in parts]),
        np.concatenate([part.diff for part in parts]),
        [np.concatenate(columns) for columns in zip(*(part.data for part in parts), strict=True)],
        np.concatenate([part.position for part in parts]),
    )


class Feed:
    """One input's rows on their way into the pipeline.

    `_held` are pieces as they came in, none of them empty; `_ordered` says whether their times ascend from
    the first to the last row. As long as they do, rows are moved once: when they are released.
    """

    def __init__(self, columns: int, slack: int) -> None:
        self._slack = slack
        self._greatest = _NEVER
        self._advanced = _NEVER
        #: Every row with a time below this has been read; it is asked for at every push.
        self.frontier = _NEVER
        self.ended = False
        #: The least time of rows that came as fewer; None if all came as they are.
        self.least: int | None = None
        self._nothing = no_rows(columns)
        self._held: list[InputRows] = []
        self._ordered = True

    def add(self, rows: InputRows) -> InputRows:
        """Takes rows in as read and returns those that came too late."""
        ts = rows.ts
        count = len(ts)
        if not count:
            return rows
        before, first = self._greatest, ts.item(0)
        if before <= first >= self._advanced and (count == 1 or rows.ascends):
            late, ascending, self._greatest = 0, 1, ts.item(-1)
        else:
            late, ascending, self._greatest = check_times(ts, before, self._slack, self._advanced)
        self._move_to(self._greatest - self._slack)
        refused = self._nothing
        if late:
            is_late = self._late(ts, before)
            rows, refused = rows.take(~is_late), rows.take(is_late)
            if not len(rows):
                return refused
        follows = not self._held or rows.ts.item(0) >= self._held[-1].ts.item(-1)
        self._ordered = self._ordered and bool(ascending) and follows
        self._held.append(rows)
        if len(self._held) % _MANY == 0:
            self._join_small()
        return refused

    def _join_small(self) -> None:
        """Many small pieces, as of a folder of small files, would each be looked at whenever one comes."""
        first = len(self._held)
        while first and len(self._held[first - 1]) < _SMALL:
            first -= 1
        if len(self._held) - first > 1:
            self._held[first:] = [join(self._held[first:])]

    def _late(self, ts: I64, greatest: int) -> npt.NDArray[np.bool_]:
        so_far = np.maximum.accumulate(np.maximum(ts, greatest))
        before = np.concatenate([[greatest], so_far[:-1]])
        bound = np.where(before < _NEVER + self._slack, _NEVER, before - self._slack)
        late: npt.NDArray[np.bool_] = ts < np.maximum(bound, self._advanced)
        return late

    def in_time(self, ts: I64) -> bool:
        """Whether none of these rows, in this order, would come too late."""
        late, _, _ = check_times(ts, self._greatest, self._slack, self._advanced)
        return not late

    def saw(self, least: int, greatest: int) -> None:
        """Rows of times from `least` to `greatest` were read, though they come as fewer rows, or as none."""
        self._greatest = max(self._greatest, greatest)
        self._move_to(self._greatest - self._slack)
        self.least = least if self.least is None else min(self.least, least)

    def advance(self, ts: int) -> None:
        """Punctuation: no row with a time below `ts` will come any more."""
        if ts > self._advanced:
            self._advanced = ts
            if ts > self.frontier:
                self.frontier = ts

    def end(self) -> None:
        self.ended = True
        self._move_to(_ALWAYS)

    def _move_to(self, ts: int) -> None:
        if ts > self.frontier:
            self.frontier = ts

    @property
    def greatest(self) -> int:
        """The greatest time read so far, or the least possible one."""
        return self._greatest

    @property
    def first(self) -> int:
        """The least time of the rows held, or the greatest possible one."""
        firsts = (part.ts[0] if self._ordered else part.ts.min() for part in self._held)
        return min(map(int, firsts), default=_ALWAYS)

    @property
    def waiting(self) -> int:
        """How many rows are held."""
        return sum(map(len, self._held))

    def waiting_below(self, ts: int) -> int:
        """How many held rows lie below a time."""
        if self._ordered:
            return sum(_below(part, ts) for part in self._held)
        return sum(int(np.count_nonzero(part.ts < ts)) for part in self._held)

    def release(self, upto: int) -> list[InputRows]:
        """The rows below a time, by time and then position in the source, in pieces that are not empty."""
        held = self._held
        if not held:
            return []
        if self._ordered and held[-1].ts.item(-1) < upto:  # as a rule all of them
            self._held = []
            return held
        self._order()
        ready: list[InputRows] = []
        kept: list[InputRows] = []
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
                kept.append(rest if len(rest) * _KEEP > len(part) else _copy(rest))
        self._held = kept
        return ready

    def _order(self) -> None:
        """Sorts what is held by time, if it is not. Sorting is stable, so rows of one time stay in order."""
        if not self._ordered:
            held = join(self._held)
            self._held = [held.take(np.argsort(held.ts, kind="stable"))]
            self._ordered = True

    def held_words(self) -> Iterator[I64]:
        """The columns of the rows that are held."""
        return (column for part in self._held for column in part.data)

    def snapshot(self) -> State:
        self._order()
        least = _ALWAYS if self.least is None else self.least
        marks = [self._greatest, self._advanced, int(self.ended), least]
        held = join([self._nothing, *self._held])
        return {
            "marks": np.array(marks, np.int64),
            "ts": held.ts,
            "diff": held.diff,
            "data": matrix(held.data),
            "position": held.position,
        }

    def restore(self, state: State) -> None:
        self._greatest, self._advanced, ended, least = (int(mark) for mark in state["marks"])
        self.ended = bool(ended)
        self._move_to(_ALWAYS if ended else max(self._greatest - self._slack, self._advanced))
        self.least = None if least == _ALWAYS else least
        data = np.ascontiguousarray(state["data"], np.int64)
        held = InputRows(state["ts"], state["diff"], data, state["position"])
        self._held = [held] if len(held) else []


def _below(rows: InputRows, ts: int) -> int:
    """How many rows, in order of time, lie below a time."""
    times = rows.ts
    if times.item(-1) < ts:
        return len(times)
    return 0 if times.item(0) >= ts else int(times.searchsorted(ts, "left"))


def _copy(rows: InputRows) -> InputRows:
    data = [column.copy() for column in rows.data]
    stood = rows.stood if isinstance(rows.stood, range) else rows.stood.copy()
    return InputRows(rows.ts.copy(), rows.diff.copy(), data, stood, rows.ascends)


def times_of(pieces: list[InputRows]) -> I64:
    """The times of the pieces' rows."""
    if len(pieces) == 1:
        return pieces[0].ts
    return np.concatenate([rows.ts for rows in pieces])


def _share_a_time(one: I64, other: I64) -> bool:
    """Whether any two rows of two ascending lists, or of one of them, have the same time."""
    if not parallel.worth(len(one) + len(other)) or not len(one):
        return bool(share_a_time(one, other))
    # Rows of one time are all in the same half.
    middle = one[len(one) // 2]
    cut, cut_other = one.searchsorted(middle), other.searchsorted(middle)
    there, here = parallel.both(
        partial(share_a_time, one[cut:], other[cut_other:]),
        partial(share_a_time, one[:cut], other[:cut_other]),
    )
    return bool(there) or bool(here)


def number_tuples(streams: list[I64]) -> list[I64]:
    """`seq_tick` of all TICK BY TUPLE streams, in declaration order: seq counts within each ts."""
    if len(streams) == 1 and len(streams[0]) == 1:
        return [zeros(1)]
    filled = [each for each in streams if len(each)]
    if len(filled) < 3:
        one, other = (*filled, _NO_TIMES, _NO_TIMES)[:2]
        if not _share_a_time(one, other):
            return [zeros(len(each)) for each in streams]
        subs = np.empty(len(one), np.int64), np.empty(len(other), np.int64)
        number_two(one, other, 1 << TICK_BITS, *subs)
        numbered = iter(subs)
        return [next(numbered) if len(each) else each for each in streams]
    ts = np.concatenate(streams)
    order = np.argsort(ts, kind="stable")
    ordered = ts[order]
    index = np.arange(len(ts), dtype=np.int64)
    starts = np.ones(len(ts), np.bool_)
    starts[1:] = ordered[1:] != ordered[:-1]
    first = np.maximum.accumulate(np.where(starts, index, 0))
    seq_tick = np.empty(len(ts), np.int64)
    seq_tick[order] = (index - first) << TICK_BITS
    return list(np.split(seq_tick, np.cumsum([len(each) for each in streams])[:-1]))


def as_batch(pieces: list[InputRows], seq_tick: I64 | None, *, enter: bool) -> Batch:
    """Pieces in instant order as one batch; `enter` says that all rows do, as a stream's."""
    if len(pieces) == 1 and isinstance(data := (rows := pieces[0]).data, np.ndarray):
        count = len(rows.ts)
        diff = ones(count) if enter else rows.diff
        return Batch(rows.ts, zeros(count) if seq_tick is None else seq_tick, diff, matrix(data))
    parts = []
    first = 0
    for rows in pieces:
        count = len(rows)
        of_rows = zeros(count) if seq_tick is None else seq_tick[first : first + count]
        parts.append(RowSelection(rows.ts, of_rows, ones(count) if enter else rows.diff, rows.data))
        first += count
    return DeferredBatch(parts)


def skip(feeds: dict[str, Feed], name: str) -> int | None:
    """Lets an idle feed go along with the others; returns how far, None if there is no other."""
    others = [feed.frontier for other, feed in feeds.items() if other != name]
    if not others or name not in feeds:
        return None
    feeds[name].advance(min(others))
    return min(others)


def input_words(tables: Mapping[str, InputRows], feeds: Mapping[str, Feed]) -> Iterator[I64]:
    """Every word of static tables and of rows that wait that may be the code of a text."""
    for rows in tables.values():
        yield from rows.data
    for feed in feeds.values():
        yield from feed.held_words()
