"""The rows of two joined windows: where they lie, and how they get room. See kernels/rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import I64, Batch, Frontier
from kasen.engine.deferred_batch import DeferredBatch
from kasen.engine.join.multiway.rings import Side, aligned
from kasen.engine.join.pair.kernels import rows as kernel
from kasen.engine.operator import State
from kasen.errors import ResourceError

I32 = npt.NDArray[np.int32]
#: Some of a batch's changes: the first, and where they end.
Span = tuple[int, int]
#: What is taken of each side at once.
Pieces = tuple[Span, Span]

_LEAST = 64
# Room is made for so many times the rows that need some.
_AHEAD = 8
_NOTHING = np.empty(0, np.int64)
# Rooms this much larger than what they hold are given back.
_TOO_LARGE = 8
_LARGE = 1 << 16


class PairRows:
    """`store`, `cfg`, `keys`, `links`, `table` and `heads` are what kernels take."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self.cfg: I64 = np.zeros((2, kernel.FIELDS), np.int64)
        for at, side in enumerate(sides):
            nulls = sum(1 << column for column in side.keys[0])
            self.cfg[at, : kernel.ROWS_AT] = side.kind, side.length, side.columns + 1, nulls
        self.keys: I64 = np.array([side.keys[0] for side in sides], np.int64).reshape(2, -1) + 1
        self._lay_out((_LEAST, _LEAST))
        self._make_table(_LEAST)
        #: How many keys the table has.
        self.used = 0

    # ------------------------------------------------------------ room

    def _lay_out(self, rooms: Sequence[int]) -> None:
        """New memory with room for so many rows of each side; those in the windows move into it."""
        cfg = self.cfg
        widths = [int(cfg[side, kernel.WORDS]) + 1 for side in (0, 1)]
        store = aligned(widths[0] * rooms[0] + widths[1] * rooms[1])
        links: I32 = aligned((rooms[0] + rooms[1] + 1) // 2).view(np.int32)
        views = [
            store[: widths[0] * rooms[0]].reshape(widths[0], rooms[0]),
            store[widths[0] * rooms[0] :].reshape(widths[1], rooms[1]),
        ]
        for side in (0, 1):
            first = side * rooms[0]
            if held := self.held(side):
                views[side][:, :held] = self._rows(side)
                links[first : first + held] = self._links(side)
            cfg[side, kernel.ROWS_AT] = side * widths[0] * rooms[0]
            cfg[side, kernel.LINKS_AT], cfg[side, kernel.ROOM] = first, rooms[side]
            cfg[side, kernel.BASE] = cfg[side, kernel.START]
        self.store, self.links, self._views = store, links, views

    def held(self, side: int) -> int:
        """How many rows a window has."""
        return int(self.cfg[side, kernel.NEXT] - self.cfg[side, kernel.START])

    def _span(self, side: int) -> slice:
        base = self.cfg[side, kernel.BASE]
        return slice(self.cfg[side, kernel.START] - base, self.cfg[side, kernel.NEXT] - base)

    def _rows(self, side: int) -> I64:
        """A window's rows: [1 + words, n]."""
        return self._views[side][:, self._span(side)]

    def _links(self, side: int) -> I32:
        at = self.cfg[side, kernel.LINKS_AT]
        span = self._span(side)
        return self.links[at + span.start : at + span.stop]

    def must_move(self, *several: Sequence[Span]) -> bool:
        """Whether rows will move before so many more can be received."""
        return not self._have_room([sum(counts) for counts in zip(*map(_counts, several), strict=True)])

    def _have_room(self, counts: Sequence[int]) -> bool:
        for side, count in enumerate(counts):
            next_ = self.cfg.item(side, kernel.NEXT)
            end = next_ - self.cfg.item(side, kernel.BASE) + count
            if end > self.cfg.item(side, kernel.ROOM) or next_ + count >= kernel.MOST_ROWS:
                return False
        return True

    def _make_room(self, counts: Sequence[int]) -> None:
        """Room for so many more rows of each side."""
        if self._have_room(counts):
            return
        for side, count in enumerate(counts):
            if self.held(side) + count >= kernel.MOST_ROWS:
                raise ResourceError(
                    f"a joined window of {self.held(side)} rows: it can have {kernel.MOST_ROWS} at most"
                )
        # Both sides at once, because the other's turn would come soon.
        if self._fit(counts):
            for side in (0, 1):
                self._move_back(side)
        else:
            self._lay_out([self._room_for(side, count) for side, count in enumerate(counts)])
        if not self._have_room(counts):
            self._renumber()

    def _fit(self, counts: Sequence[int]) -> bool:
        """Whether so many more rows, and some after them, can be received in the memory that there is."""
        return all(self._fits(side, count) for side, count in enumerate(counts))

    def _fits(self, side: int, count: int) -> bool:
        held, room = self.held(side), self.cfg.item(side, kernel.ROOM)
        least = max(_LEAST, held + max(held // 8, _AHEAD * count))
        return least <= room and (room <= _LARGE or room <= _TOO_LARGE * least)

    def _room_for(self, side: int, count: int) -> int:
        """For how many rows new memory has room; a little more than it needs, so that it lasts."""
        held = self.held(side)
        return max(_LEAST, held + count + max(held // 8, _AHEAD * count))

    def _move_back(self, side: int) -> None:
        """The rows in the window move to where the memory begins."""
        held = self.held(side)
        for word, to in zip(self._rows(side), self._views[side], strict=True):
            to[:held] = word  # one by one: of a matrix numpy would make a copy first, in case it overlaps
        at = self.cfg.item(side, kernel.LINKS_AT)
        self.links[at : at + held] = self._links(side)
        self.cfg[side, kernel.BASE] = self.cfg[side, kernel.START]

    def starts(self) -> Sequence[int]:
        """The oldest row of each window."""
        return self.cfg.item(0, kernel.START), self.cfg.item(1, kernel.START)

    def would_overwrite(self, spans: Sequence[Span], since: Sequence[int]) -> bool:
        """Whether to receive `spans` could write over rows from `since` on, where they lie now."""
        counts = _counts(spans)
        return (
            not self._have_room(counts)
            and self._fit(counts)
            and any(
                since[side] - self.cfg.item(side, kernel.BASE) < self.held(side) + counts[side]
                for side in (0, 1)
            )
        )

    def _renumber(self) -> None:
        """Rows are numbered from 0 again."""
        rooms = [int(each) for each in self.cfg[:, kernel.ROOM]]
        self._lay_out(rooms)
        left, right = (2 * int(each) for each in self.cfg[:, kernel.START])
        kernel.renumber(self.heads, self.links, rooms[0], rooms[0] + rooms[1], left, right)
        self.cfg[:, [kernel.NEXT, kernel.BASE]] -= self.cfg[:, kernel.START : kernel.START + 1]
        self.cfg[:, kernel.START] = 0
        self.make_slots(
            0
        )  # keys without rows look like free slots now, among others that are looked up behind them

    def _make_table(self, slots: int) -> None:
        self.table: I64 = aligned(2 * slots)
        self.table.fill(kernel.NONE)
        self.heads: I32 = self.table.view(np.int32)

    def make_slots(self, more: int) -> None:
        """Room for so many more keys; those whose rows have all left go."""
        old = self.table
        starts = [2 * int(each) for each in self.cfg[:, kernel.START]]
        keys = int(kernel.rehash(old, _NOTHING, *starts))
        slots = _LEAST
        while keys > slots // 2 or keys + more > kernel.most_keys(slots):
            slots *= 2
        self._make_table(slots)
        self.used = int(kernel.rehash(old, self.table, *starts))

    # ------------------------------------------------------------ rows

    def receive(self, inputs: Sequence[Batch], spans: Sequence[Span]) -> None:
        """Writes arrivals behind the rows of each side; it is up to kernels to let them enter."""
        self._make_room(_counts(spans))
        self.begin(spans, [self.place(side, inputs, spans) for side in (0, 1)])

    def place(
        self, side: int, inputs: Sequence[Batch], spans: Sequence[Span], behind: Sequence[Span] = ()
    ) -> bool:
        """Writes a side's arrivals, for which there is room, behind the rows and behind those of `behind`.

        Returns whether there are any NULLs. Changes no marks: kernels may run meanwhile.
        """
        begin, end = spans[side]
        if begin == end:
            return False
        at = self.cfg.item(side, kernel.FIRST if behind else kernel.NEXT) - self.cfg.item(side, kernel.BASE)
        at += behind[side][1] - behind[side][0] if behind else 0
        return _write(inputs[side], begin, end, self._views[side][:, at : at + end - begin])

    def begin(self, spans: Sequence[Span], any_nulls: Sequence[bool]) -> None:
        """From now on the arrivals that were placed next are those that kernels let enter."""
        for side, (begin, end) in enumerate(spans):
            cfg = self.cfg[side]
            cfg[kernel.FIRST], cfg[kernel.COUNT] = cfg[kernel.NEXT], end - begin
            if any_nulls[side]:
                cfg[kernel.ANY_NULLS] = 1

    def since(self, side: int) -> Frontier | None:
        """The ts of the oldest row of a window."""
        return Frontier(int(self._rows(side)[0, 0])) if self.held(side) else None

    def rows(self, side: int) -> I64:
        """A copy of a window's rows: [n, 1 + words], ts and the words."""
        return np.ascontiguousarray(self._rows(side).T)

    def snapshot(self) -> State:
        state: State = {f"rows{side}": self.rows(side) for side in (0, 1)}
        state["now"] = self.cfg[:, [kernel.NOW_TS, kernel.NOW_SEQ_TICK]].copy()
        return state

    def restore(self, state: State) -> None:
        self.cfg[:, [kernel.NOW_TS, kernel.NOW_SEQ_TICK]] = state["now"]
        for side in (0, 1):
            rows = np.ascontiguousarray(state[f"rows{side}"], np.int64).T
            count = rows.shape[1]
            self._make_room([0, count] if side else [count, 0])
            self._views[side][:, :count] = rows
            self.cfg[side, kernel.ANY_NULLS] = bool(np.count_nonzero(rows[-1]))
            self.make_slots(count)
            self.used += kernel.enter_rows(
                self.store, self.cfg, self.keys, self.links, self.table, self.heads, side, 0, count
            )
            self.cfg[side, kernel.NEXT] = count


def _counts(spans: Sequence[Span]) -> list[int]:
    return [end - begin for begin, end in spans]


def _write(batch: Batch, begin: int, end: int, to: I64) -> bool:
    """Writes the changes from `begin` to `end`, ts and words; whether there are any NULLs."""
    to[0] = batch.ts[begin:end]
    if not isinstance(batch, DeferredBatch):
        to[1:] = batch.data[:, begin:end]
        return bool(to[-1, 0]) if end - begin == 1 else bool(np.count_nonzero(to[-1]))
    part = batch if end - begin == len(batch) else batch.between(begin, end)
    for column in range(part.columns):
        part.fill(column, to[1 + column])
    any_nulls = part.has_nulls()
    to[-1] = part.column(-1) if any_nulls else 0
    return any_nulls
