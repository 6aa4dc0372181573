"""[PARTITION BY ... ROWS n]: the last n tuples of each combination of the key columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kasen.engine.batch import BEGIN, I64, Batch, Frontier, merge
from kasen.engine.kernels.hashing import hash_columns
from kasen.engine.loop.kernels import queue_steps as loop_windows
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import LoopStep, lend
from kasen.engine.operator import Operator, State
from kasen.engine.window.held_tuples import HeldTuples, without_times
from kasen.engine.window.kernels.partition import COUNT, HEAD, push, rehash

_LEAST = 64


class PartitionWindow(Operator, LoopStep):
    """Keys are column numbers; NULLs among them are equal to one another."""

    is_independent = True
    loop_kind = loop_table.PARTITION

    def __init__(self, columns: int, keys: tuple[int, ...], count: int) -> None:
        self._width = columns + 1
        self._keys = np.array(keys, np.int64)
        self._mask = sum(1 << key for key in keys)
        self._count = count
        self._table = np.full(2 * _LEAST, -1, np.int64)
        self._meta = np.zeros((_LEAST, 3), np.int64)
        self._part_hash = np.zeros(_LEAST, np.uint64)
        self._part_key = np.zeros((len(keys) + 1, _LEAST), np.int64)
        self._store = np.empty((self._width, _LEAST), np.int64)
        self._links = np.empty(_LEAST, np.int64)
        self._free = np.arange(_LEAST - 1, -1, -1, dtype=np.int64)
        self._sizes = np.array([0, _LEAST], np.int64)
        self._leaving: I64 = np.empty(0, np.int64)  # where the loop machine puts what an instant pushes out

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        del upto
        batch = inputs[0]
        if not len(batch):
            return batch
        self.make_room(len(batch))
        leaving = np.empty((self._width + 1, len(batch)), np.int64)
        pushed = push(
            batch.data,
            self._hash(batch.data),
            self._keys,
            self._mask,
            self._count,
            self._table,
            self._meta,
            self._part_hash,
            self._store,
            self._part_key,
            self._links,
            self._free,
            self._sizes,
            leaving,
        )
        if not pushed:
            return batch
        by = leaving[self._width, :pushed]
        gone = np.ascontiguousarray(leaving[: self._width, :pushed])
        out = Batch(batch.ts[by], batch.seq_tick[by], np.full(pushed, -1, np.int64), gone)
        return merge((batch, out), self._width - 1)

    def contents(self) -> I64:
        held = np.ones(len(self._links), np.bool_)
        held[self._free[: self._sizes[1]]] = False
        return np.ascontiguousarray(self._store[:, held])

    def held_tuples(self, position: int) -> HeldTuples:
        """The tuples, in each partition the oldest first."""
        del position
        slots = self._meta[: int(self._sizes[0]), HEAD]
        left = self._meta[: int(self._sizes[0]), COUNT]
        found = []
        while len(slots):
            found.append(slots)
            more = left > 1
            slots, left = self._links[slots[more]], left[more] - 1
        return without_times(self._store[:, np.concatenate(found) if found else []])

    def _hash(self, data: I64) -> npt.NDArray[np.uint64]:
        """The key's hash: the key columns and which of them are NULL."""
        key = np.empty((len(self._keys) + 1, data.shape[1]), np.int64)
        key[:-1] = data[self._keys]
        key[-1] = data[-1] & self._mask
        hashes: npt.NDArray[np.uint64] = hash_columns(key, np.arange(len(key), dtype=np.int64), data.shape[1])
        return hashes

    def make_room(self, wanted: int) -> None:
        """Room for as many new tuples and new partitions."""
        partitions, free = (int(size) for size in self._sizes)
        slots = len(self._links)
        if free < wanted:
            more = max(slots, wanted)
            self._store = np.concatenate([self._store, np.empty((self._width, more), np.int64)], axis=1)
            self._links = np.concatenate([self._links, np.empty(more, np.int64)])
            fresh = np.arange(slots + more - 1, slots - 1, -1, dtype=np.int64)
            self._free = np.concatenate([fresh, self._free[:free], np.empty(slots - free, np.int64)])
            self._sizes[1] = free + more
        room = len(self._meta)
        if partitions + wanted > room:
            more = max(room, wanted)
            self._meta = np.concatenate([self._meta, np.zeros((more, 3), np.int64)])
            self._part_hash = np.concatenate([self._part_hash, np.zeros(more, np.uint64)])
            blank = np.zeros((len(self._part_key), more), np.int64)
            self._part_key = np.concatenate([self._part_key, blank], axis=1)
        size = len(self._table)
        while size < 2 * (partitions + wanted):
            size *= 2
        if size > len(self._table):
            self._table = np.full(size, -1, np.int64)
            rehash(self._part_hash, partitions, self._table)

    def snapshot(self) -> State:
        partitions = int(self._sizes[0])
        return {
            "meta": self._meta[:partitions].copy(),
            "part_hash": self._part_hash[:partitions].copy(),
            "part_key": self._part_key[:, :partitions].copy(),
            "store": self._store.copy(),
            "links": self._links.copy(),
            "free": self._free.copy(),
            "sizes": self._sizes.copy(),
        }

    def restore(self, state: State) -> None:
        self._meta = state["meta"].astype(np.int64)
        self._part_hash = state["part_hash"].astype(np.uint64)
        self._part_key = np.ascontiguousarray(state["part_key"], np.int64)
        self._store = np.ascontiguousarray(state["store"], np.int64)
        self._links = state["links"].astype(np.int64)
        self._free = state["free"].astype(np.int64)
        self._sizes = state["sizes"].astype(np.int64)
        size = len(self._table)
        while size < 2 * len(self._meta):
            size *= 2
        self._table = np.full(size, -1, np.int64)
        rehash(self._part_hash, len(self._meta), self._table)

    def needs_input_since(self) -> Frontier | None:
        """A partition may have been silent for ever, so recent input cannot rebuild it."""
        return BEGIN if self._sizes[0] else None

    def lend_state(self, row: I64) -> None:
        lend(row, loop_windows.KEYS, self._keys)
        lend(row, loop_windows.TABLE, self._table)
        self._leaving = np.empty((row[loop_table.WORDS] + 1) * row[loop_table.ROOM], np.int64)
        for field, array in (
            (loop_windows.META, self._meta),
            (loop_windows.PART_HASH, self._part_hash),
            (loop_windows.STORE, self._store),
            (loop_windows.PART_KEY, self._part_key),
            (loop_windows.LINKS, self._links),
            (loop_windows.FREE, self._free),
            (loop_windows.SIZES, self._sizes),
            (loop_windows.LEAVING, self._leaving),
        ):
            lend(row, field, array, size=False)
        row[loop_windows.NULL_MASK], row[loop_windows.LIMIT] = self._mask, self._count
        row[loop_windows.SLOTS], row[loop_windows.PARTITIONS] = len(self._links), len(self._meta)
