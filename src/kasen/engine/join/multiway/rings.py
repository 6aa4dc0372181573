"""The windows inside a join: their arena, and how it grows. See kernels/rings."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier
from kasen.engine.join.multiway.kernels import rings as kernel
from kasen.engine.operator import State

#: What an input is seen through.
ROWS, RANGE, NOW, UNBOUNDED, BAG = kernel.ROWS, kernel.RANGE, kernel.NOW, kernel.UNBOUNDED, kernel.BAG
COUNTED = kernel.COUNTED

_LEAST = 64
# Words of a cache line: rings begin at one, so that short rows do not lie across two.
_LINE = 8
# Words from which on an arena is mapped: rings grow by moving, and a heap keeps every place that they left.
_MAPPED = 1 << 17


@dataclass(frozen=True, slots=True)
class Side:
    """One input of a join: its columns, what it is seen through, and its keys (columns of each).

    `kind` and `length` are those of kernels/rings. A BAG's changes come from outside.
    """

    columns: int
    kind: int
    length: int = 0
    keys: tuple[tuple[int, ...], ...] = ()

    @property
    def indexes(self) -> tuple[tuple[int, ...], ...]:
        """The keys; a BAG's rows are also found by the whole row."""
        return (*self.keys, tuple(range(self.columns + 1))) if self.kind == kernel.BAG else self.keys


class Rings:
    """The rings of all inputs of a join, in one arena; `cfg`, `index` and `arena` are what kernels take."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self.sides = tuple(sides)
        longest = max((len(key) for side in sides for key in side.indexes), default=0)
        total = sum(len(side.indexes) for side in sides)
        self.cfg: I64 = np.zeros((len(sides), kernel.FIELDS), np.int64)
        self.index: I64 = np.zeros((total, kernel.KEY + longest), np.int64)
        self._describe()
        self.arena: I64 = np.empty(0, np.int64)
        self._lay_out([_LEAST] * len(sides))
        self.inbox: I64 = np.empty(0, np.int64)

    def _describe(self) -> None:
        slot = 0
        for i, side in enumerate(self.sides):
            words_at = len(side.indexes)
            words = side.columns + 1
            nulls = sum(1 << column for column in {c for key in side.keys for c in key})
            fields = (
                side.kind,
                side.length,
                words_at + words,
                words_at,
                words,
                slot,
                len(side.indexes),
                nulls,
            )
            self.cfg[i, : kernel.IN_STRIDE] = fields
            self.cfg[i, kernel.IN_STRIDE] = kernel.IN_HASH + len(side.indexes) + words
            for own, key in enumerate(side.indexes):
                self.index[slot, kernel.LINK] = own
                self.index[slot, kernel.KEYS] = len(key)
                self.index[slot, kernel.KEY : kernel.KEY + len(key)] = [words_at + column for column in key]
                slot += 1

    def _lay_out(self, capacities: Sequence[int]) -> None:
        """A new arena with room for so many rows of each input; the living rows move into it."""
        buckets = [2 * _power_above(capacity) for capacity in capacities]
        size = 0
        heads: list[tuple[int, int]] = []
        for side, count in zip(self.sides, buckets, strict=True):
            for _ in side.indexes:
                heads.append((size, count))
                size += count
        rows, times = [], []
        for i, capacity in enumerate(capacities):
            size += -size % _LINE
            rows.append(size)
            size += capacity * int(self.cfg[i, kernel.STRIDE])
            times.append(size)
            size += capacity
        arena = aligned(size)
        for slot, (at, count) in enumerate(heads):
            arena[at : at + count] = kernel.NONE
            self.index[slot, kernel.HEADS] = at
            self.index[slot, kernel.MASK] = count - 1
        for i, capacity in enumerate(capacities):
            kernel.move(self.arena, self.cfg, self.index, i, arena, rows[i], times[i], capacity)
        self.arena = arena

    def grow(self, i: int) -> None:
        """Makes room in input i's ring: by half, or only by dropping dead rows if that is enough."""
        capacities = [int(each) for each in self.cfg[:, kernel.CAPACITY]]
        living = int(kernel.living(self.arena, self.cfg, i))
        if 4 * living > 3 * capacities[i]:
            side = self.sides[i]
            wanted = 2 * capacities[i] if capacities[i] < 1 << 14 else capacities[i] * 3 // 2
            most = side.length if side.kind == kernel.ROWS else wanted
            capacities[i] = max(min(wanted, most), living + 1)
        self._lay_out(capacities)

    def make_room(self, i: int, arrivals: int) -> None:
        """Room for so many arrivals beside all that input i holds now."""
        held = int(self.cfg[i, kernel.NEXT] - self.cfg[i, kernel.START])
        capacities = [int(each) for each in self.cfg[:, kernel.CAPACITY]]
        if held + arrivals > capacities[i]:
            capacities[i] = max(held + arrivals, capacities[i] * 3 // 2)
            self._lay_out(capacities)

    def receive(self, inputs: Sequence[Batch]) -> None:
        """Puts the arrivals of a call into the inbox."""
        cfg = self.cfg
        size = 0
        for i, batch in enumerate(inputs):
            count = len(batch.ts)
            cfg[i, kernel.COUNT] = count
            if count:
                cfg[i, kernel.INBOX] = size
                size += count * int(cfg[i, kernel.IN_STRIDE])
        cfg[:, kernel.AT] = 0
        cfg[:, kernel.AHEAD] = 0
        if size > len(self.inbox) or (size < len(self.inbox) // 8 and len(self.inbox) > 1 << 20):
            self.inbox = np.empty(size, np.int64)
        for i, batch in enumerate(inputs):
            if len(batch.ts):
                kernel.receive(
                    batch.ts, batch.seq_tick, batch.diff, batch.data, cfg, self.index, i, self.inbox
                )

    def since(self, only: int | None = None) -> Frontier | None:
        """The ts of the oldest row in any of the windows, or in one of them."""
        oldest = [
            int(self.arena[kernel.time_place(self.cfg, i, int(each[kernel.START]))])
            for i, each in enumerate(self.cfg)
            if each[kernel.START] < each[kernel.NEXT] and only in (None, i)
        ]
        return Frontier(min(oldest)) if oldest else None

    def rows(self, i: int) -> I64:
        """The living rows of input i, oldest first: [n, 1 + words], ts and the words."""
        cfg = self.cfg[i]
        numbers = np.arange(cfg[kernel.START], cfg[kernel.NEXT])
        at = numbers - cfg[kernel.ZERO]
        at = np.where(at < 0, at + cfg[kernel.CAPACITY], at)
        ring = self.arena[cfg[kernel.RING] : cfg[kernel.RING] + cfg[kernel.CAPACITY] * cfg[kernel.STRIDE]]
        rows = ring.reshape(-1, cfg[kernel.STRIDE])[at, cfg[kernel.WORDS_AT] :]
        times = self.arena[cfg[kernel.TIMES] + at]
        living: I64 = np.column_stack([times, rows])[times != kernel.DEAD]
        return living

    def snapshot(self) -> State:
        state: State = {f"rows{i}": self.rows(i) for i in range(len(self.sides))}
        state["now"] = self.cfg[:, [kernel.NOW_TS, kernel.NOW_SEQ_TICK]].copy()
        return state

    def restore(self, state: State) -> None:
        held = [np.ascontiguousarray(state[f"rows{i}"], np.int64) for i in range(len(self.sides))]
        self.cfg[:, [kernel.NOW_TS, kernel.NOW_SEQ_TICK]] = state["now"]
        self._lay_out([max(_LEAST, len(rows)) for rows in held])
        for i, rows in enumerate(held):
            cfg = self.cfg[i]
            size = len(rows) * cfg[kernel.STRIDE]
            ring = self.arena[cfg[kernel.RING] : cfg[kernel.RING] + size].reshape(-1, cfg[kernel.STRIDE])
            self.arena[cfg[kernel.TIMES] : cfg[kernel.TIMES] + len(rows)] = rows[:, 0]
            ring[:, cfg[kernel.WORDS_AT] :] = rows[:, 1:]
            cfg[kernel.START], cfg[kernel.NEXT] = 0, len(rows)
        # Once more, to index what has just been put there.
        self._lay_out([int(each) for each in self.cfg[:, kernel.CAPACITY]])


def _power_above(count: int) -> int:
    return 1 << (count - 1).bit_length()


def aligned(size: int) -> I64:
    """An array that begins at a cache line. Large ones are mapped, and given back when left."""
    if size >= _MAPPED:
        pages = mmap.mmap(-1, 8 * size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(pages, np.int64)
    room = np.empty(size + _LINE, np.int64)
    skip = (-room.ctypes.data // 8) % _LINE
    return room[skip : skip + size]
