"""The growable arrays behind one side of a join, and joins that have two of them."""

from __future__ import annotations

import numpy as np

from kasen.engine.batch import I64, Frontier
from kasen.engine.join.hash.kernels.hash_join import LEFT_FULL
from kasen.engine.kernels import multimap
from kasen.engine.loop.kernels import state_steps as loop_state
from kasen.engine.loop.steps import LoopStep, lend
from kasen.engine.operator import Operator, State
from kasen.engine.window.held_tuples import HeldTuples, without_times

_FIRST_CAPACITY = 256
#: Words of the cursors that kernels of joins have in loops, at most.
_CURSOR = 5


class RowStore:
    """A bag of rows of `words` words, found by the words in `keys`; see kernels/multimap."""

    __slots__ = ("arrays", "counts", "heads", "keys", "slots", "words")

    def __init__(self, words: int, keys: tuple[int, ...], payload: int = 0) -> None:
        self.words = words
        self.keys: I64 = np.array(keys, np.int64)
        self.counts: I64 = np.array([multimap.NONE, 0, 0], np.int64)
        self._hold(np.zeros((_FIRST_CAPACITY, multimap.WORDS + words + payload), np.int64))

    def is_half_full(self) -> bool:
        return 2 * int(self.counts[multimap.LIVE]) >= len(self.slots)

    def grow(self, least: int = 0) -> None:
        """At least doubles the room; slots keep their numbers."""
        capacity = 2 * len(self.slots)
        while capacity < least:
            capacity *= 2
        slots = np.zeros((capacity, self.slots.shape[1]), np.int64)
        slots[: len(self.slots)] = self.slots
        self._hold(slots)
        multimap.rebuild_heads(self.slots, self.heads, self.counts, self.keys, self.words)

    def _hold(self, slots: I64) -> None:
        self.slots = slots
        self.heads: I64 = np.full((2, len(slots)), multimap.NONE, np.int64)
        #: What kernels take of a bag, in their order.
        self.arrays = (self.keys, self.slots, self.heads, self.counts)

    def since(self) -> Frontier | None:
        """The ts at which the longest present row entered."""
        live = self._live()
        return Frontier(int(live[:, multimap.SINCE].min())) if len(live) else None

    def held_tuples(self) -> HeldTuples:
        """The rows, each as often as it is there."""
        live = self._live()
        rows = np.repeat(
            live[:, multimap.WORDS : multimap.WORDS + self.words], live[:, multimap.WEIGHT], axis=0
        )
        return without_times(rows.T)

    def snapshot(self, name: str) -> State:
        live = self._live()
        return {
            f"{name}_rows": np.ascontiguousarray(live[:, multimap.WORDS : multimap.WORDS + self.words].T),
            f"{name}_payload": live[:, multimap.WORDS + self.words :].copy(),
            f"{name}_weights": live[:, multimap.WEIGHT].copy(),
            f"{name}_since": live[:, multimap.SINCE].copy(),
        }

    def restore(self, state: State, name: str) -> None:
        rows, weights, since = (
            np.ascontiguousarray(state[f"{name}_{part}"], np.int64) for part in ("rows", "weights", "since")
        )
        if len(weights) > len(self.slots):
            self.grow(len(weights))
        multimap.fill(self.slots, self.heads, self.counts, self.keys, rows, weights, since)
        self.slots[: len(weights), multimap.WORDS + self.words :] = state[f"{name}_payload"]

    def lend(self, row: I64, first: int) -> None:
        """To the loop machine, in the fields from `first` on."""
        lend(row, first + loop_state.KEYS, self.keys)
        lend(row, first + loop_state.SLOTS, self.slots)
        lend(row, first + loop_state.HEADS, self.heads, size=False)
        lend(row, first + loop_state.COUNTS, self.counts, size=False)

    def _live(self) -> I64:
        used = self.slots[: self.counts[multimap.USED]]
        live: I64 = used[used[:, multimap.PREV] != multimap.UNLINKED]
        return live


class TwoBags(Operator, LoopStep):
    """What joins of two relations have in common: each keeps the rows of both sides."""

    def __init__(self, left: RowStore, right: RowStore) -> None:
        self._left = left
        self._right = right
        self._cursor: I64 = np.zeros(_CURSOR, np.int64)  # the loop machine's

    def held_tuples(self, position: int) -> HeldTuples:
        return (self._left, self._right)[position].held_tuples()

    def snapshot(self) -> State:
        return self._left.snapshot("left") | self._right.snapshot("right")

    def restore(self, state: State) -> None:
        self._left.restore(state, "left")
        self._right.restore(state, "right")

    def needs_input_since(self) -> Frontier | None:
        """The ts at which the first of the rows on either side entered."""
        return min(filter(None, (self._left.since(), self._right.since())), default=None)

    def oldest(self, position: int) -> Frontier | None:
        del position  # both sides follow from the windows below them
        return None

    def lend_state(self, row: I64) -> None:
        self._left.lend(row, loop_state.LEFT)
        self._right.lend(row, loop_state.RIGHT)
        lend(row, loop_state.CURSOR, self._cursor, size=False)

    def make_room(self, wanted: int) -> None:
        (self._left if wanted == LEFT_FULL else self._right).grow()
