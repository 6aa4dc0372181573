"""Finds the pairs of two windows' arrivals; see kernels/pair_join."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from kasen.engine.batch import I64
from kasen.engine.join.pair.kernels import output as output
from kasen.engine.join.pair.kernels import pair_join as kernel
from kasen.engine.join.pair.output import I32, PairOutput
from kasen.engine.join.pair.rows import PairRows

# Room for pairs at first; a rare large answer's is given back.
PAIRS = 1 << 12
_MANY_PAIRS = 1 << 20

#: Of a piece's arrivals on the left and on the right: their seq_ticks, then their marks (see CountedJoin).
Arrivals = tuple[I64, I64, I64, I64]


class PairMatch:
    """The memory in which `rows` are matched. Its arrays are what kernels take."""

    def __init__(self, rows: PairRows) -> None:
        self.rows = rows
        self.cursor: I64 = np.zeros(kernel.CURSOR, np.int64)
        self.cursor[[kernel.SIZE, kernel.SPAN]] = kernel.BLOCK
        self.work: I32 = np.empty((kernel.WORK, kernel.BLOCK), np.int32)
        self.words: I64 = np.empty(kernel.BLOCK, np.int64)
        self.found: I32 = np.empty((2, kernel.FOUND), np.int32)
        # Two, because pairs may be written from one while the other is filled.
        self.pairs, self._other = room_for_pairs(), room_for_pairs()

    def match(self, arrivals: Arrivals) -> int:
        """Finds the pairs of the arrivals received; returns how many."""
        self.begin()
        return self.go_on(arrivals)

    def begin(self) -> None:
        """From now on the arrivals received are those to match."""
        cursor = self.cursor
        cursor[: kernel.PHASE] = 0
        cursor[kernel.CANCELS], cursor[kernel.USED] = 0, self.rows.used

    def go_on(self, arrivals: Arrivals) -> int:
        """Finds the pairs that have not been found."""
        rows, cursor = self.rows, self.cursor
        while status := kernel.match(
            rows.store, rows.cfg, rows.keys, rows.links, rows.table, rows.heads, *arrivals, cursor, self.work,
            self.words, self.found, self.pairs,
        ):  # fmt: skip
            if status == kernel.PAIRS_FULL:
                self.widen()
            else:
                self.make_slots()
        rows.used = int(cursor[kernel.USED])
        return verified(rows.store, rows.cfg, rows.keys, self.pairs, int(cursor[kernel.WRITTEN]))

    def widen(self) -> None:
        self.pairs = wider(self.pairs)

    def make_slots(self) -> None:
        """Room in the table for the keys that might come next."""
        self.rows.make_slots(int(self.cursor[kernel.WANTED]))
        self.cursor[kernel.USED] = self.rows.used

    def writing(self, answer: PairOutput, count: int, arrivals: Arrivals) -> Callable[[], None]:
        """What writes the pairs just found into the answer, now or while others are looked for."""
        rows = self.rows
        pairs = self.pairs
        self.pairs, self._other = given_back(self._other, count), pairs
        l_seq_tick, r_seq_tick, *_ = arrivals
        if self.cursor[kernel.CANCELS]:
            answer.write_netted(rows.store, rows.cfg, pairs, count, l_seq_tick, r_seq_tick)
            return nothing_to_do
        at = answer.make_room(count)
        return partial(answer.write, at, rows.store, rows.cfg.copy(), pairs, count, l_seq_tick, r_seq_tick)


def verified(store: I64, cfg: I64, keys: I64, pairs: I32, count: int) -> int:
    """How many of the pairs have equal keys; the others, found by equal hashes, are left out."""
    return count if keys.shape[1] == 1 else int(output.verify(store, cfg, keys, pairs, count))


def room_for_pairs() -> I32:
    return np.empty((3, PAIRS), np.int32)


def wider(pairs: I32) -> I32:
    wide = np.empty((3, 2 * pairs.shape[1]), np.int32)
    wide[:, : pairs.shape[1]] = pairs
    return wide


def given_back(pairs: I32, count: int) -> I32:
    """Less room, if there is much more than so many pairs need."""
    room = pairs.shape[1]
    return room_for_pairs() if room > _MANY_PAIRS and count < room // 8 else pairs


def nothing_to_do() -> None:
    pass
