"""Relation to stream: ISTREAM, DSTREAM, RSTREAM and RSTREAM[d]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kasen.kernels.columns import all_units, signed
from kasen.operators.base import State, Stateless
from kasen.operators.batch import BEGIN, I64, Batch, Bound, concat, empty, ones
from kasen.operators.net import net
from kasen.operators.value_order import ValueOrder

_FEW = 4


def units(batch: Batch) -> Batch:
    """The batch with every diff +1 or -1: a change of multiplicity k becomes k changes."""
    if all_units(batch.diff):
        return batch
    size = np.abs(batch.diff)
    spread = batch.take(np.repeat(np.arange(len(batch)), size))
    return Batch(spread.ts, spread.sub, np.sign(spread.diff), spread.data)


class Inserted(Stateless):
    """ISTREAM: what entered between one instant and the next, as bags. With sign -1, DSTREAM: what left."""

    def __init__(self, order: ValueOrder, sign: int, *, netted: bool) -> None:
        self._order = order
        self._sign = sign
        self._netted = netted  # equal rows never enter and leave in one instant: nothing to cancel

    def process(self, inputs: Sequence[Batch], upto: Bound) -> Batch:
        del upto
        batch = inputs[0]
        if not len(batch):
            return batch
        if not self._netted:
            batch = net(batch)
        if len(batch) <= _FEW and (only := self._only(batch)) is not None:
            return only
        rows = np.empty(len(batch), np.int64)
        rows = rows[: signed(batch.diff, self._sign, rows)]
        if len(rows) > 1:
            rows = self._order.sorted(batch, rows)
        elif len(rows) == len(batch) and self._sign > 0:
            return units(batch)
        taken = batch.take(rows)
        if self._sign < 0:
            taken.diff = -taken.diff
        return units(taken)

    def _only(self, batch: Batch) -> Batch | None:
        """The answer if a few changes have just one of the sign, which is then not looked for by kernels."""
        diffs = batch.diff.tolist()
        if diffs.count(self._sign) != 1 or any(diff * self._sign > 1 for diff in diffs):
            return None
        at = diffs.index(self._sign)
        data = batch.data[:, at : at + 1].copy()
        return Batch(batch.ts[at : at + 1], batch.sub[at : at + 1], ones(1), data)


class Whole:
    """RSTREAM: the whole bag at every instant that the touches (inputs 1, 2, ...) name."""

    def __init__(self, columns: int, order: ValueOrder) -> None:
        self._columns = columns
        self._order = order
        self._bag = empty(columns)  # rows with their multiplicity in diff

    def process(self, inputs: Sequence[Batch], upto: Bound) -> Batch:
        del upto
        return self._fire(inputs[0], _instants(inputs[1:]))

    def _fire(self, changes: Batch, firings: I64) -> Batch:
        """The bag at each firing instant; then the bag takes in all changes."""
        out: list[Batch] = []
        done = 0
        for ts, sub in firings.tolist():
            upto = _position(changes, ts, sub)
            if upto > done:
                self._apply(changes.take(np.arange(done, upto)))
                done = upto
            size = len(self._bag)
            if size:
                whole = np.full(size, ts, np.int64), np.full(size, sub, np.int64)
                out.append(units(Batch(*whole, self._bag.diff, self._bag.data)))
        if done < len(changes):
            self._apply(changes.take(np.arange(done, len(changes))))
        return self._order.sort(concat(out, self._columns))

    def _apply(self, changes: Batch) -> None:
        timeless = concat((self._bag, changes), self._columns)
        zeros = np.zeros(len(timeless), np.int64)
        self._bag = net(Batch(zeros, zeros, timeless.diff, timeless.data))

    def next_instant(self) -> Bound | None:
        return None

    def snapshot(self) -> State:
        return {"diff": self._bag.diff, "data": self._bag.data}

    def restore(self, state: State) -> None:
        zeros = np.zeros(len(state["diff"]), np.int64)
        self._bag = Batch(zeros, zeros, state["diff"].astype(np.int64), np.ascontiguousarray(state["data"]))

    def needs_input_since(self) -> Bound | None:
        return BEGIN if len(self._bag) else None


class Every(Whole):
    """RSTREAM[d]: the whole bag at every (k*d, 0, 0) from the beginning on."""

    def __init__(self, columns: int, order: ValueOrder, every: int) -> None:
        super().__init__(columns, order)
        self._every = every
        self._next: int | None = None

    def begin(self, at: Bound) -> None:
        first = at.ts // self._every * self._every
        self._next = first if Bound(first, 0) >= at else first + self._every

    def process(self, inputs: Sequence[Batch], upto: Bound) -> Batch:
        firings: list[tuple[int, int]] = []
        while self._next is not None and Bound(self._next, 0) < upto:
            firings.append((self._next, 0))
            self._next += self._every
        return self._fire(inputs[0], np.array(firings, np.int64).reshape(-1, 2))

    def next_instant(self) -> Bound | None:
        return None if self._next is None else Bound(self._next, 0)

    def snapshot(self) -> State:
        return {**super().snapshot(), "next": np.array([] if self._next is None else [self._next], np.int64)}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._next = int(state["next"][0]) if len(state["next"]) else None


def _instants(touches: Sequence[Batch]) -> I64:
    """The different instants of several batches, in order, as [n, 2]."""
    pairs = [np.stack([batch.ts, batch.sub], axis=1) for batch in touches if len(batch)]
    if not pairs:
        return np.empty((0, 2), np.int64)
    return np.unique(np.concatenate(pairs), axis=0)


def _position(batch: Batch, ts: int, sub: int) -> int:
    """How many changes lie at or below the instant."""
    first = int(np.searchsorted(batch.ts, ts, "left"))
    last = int(np.searchsorted(batch.ts, ts, "right"))
    return first + int(np.searchsorted(batch.sub[first:last], sub, "right"))
