"""The join of N inputs with their windows inside, as one operator (MJoin, [LowDelayJoin])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier, empty
from kasen.engine.join.multiway.kernels import mjoin as kernel
from kasen.engine.join.multiway.kernels import rings
from kasen.engine.join.multiway.probe_order import KeyClass, find_keys, order, plan
from kasen.engine.join.multiway.rings import Rings, Side
from kasen.engine.operator import Operator, State
from kasen.engine.out_buffer import OutBuffer, Residual
from kasen.engine.stream.net import net
from kasen.engine.stream.streamify import units
from kasen.engine.window.held_tuples import HeldTuples, from_rows

# After so many arrivals the probe orders are looked at again; what was counted before then weighs half.
_REVIEW = 2048

_GREATEST = 2**63 - 1

#: Which combinations that leave are put out; see MJoin.
ALL, MIXED, NETTED = kernel.ALL, kernel.MIXED, kernel.NETTED


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One input of the join: its columns, and what it is seen through (see kernels/rings)."""

    columns: int
    kind: int
    length: int = 0


class MJoin(Operator):
    """Combinations of one row of each input, equal in each of `classes`, for which `residuals` are true.

    `columns` are the output's, as (input, column). Which combinations that leave are put out is up to
    `mode`: ALL of them; in MIXED those of instants at which some enter, too, which is enough to net what
    enters; with NETTED none, as the operator nets by itself (all columns must be in the output then).
    """

    def __init__(
        self,
        inputs: Sequence[JoinInput],
        classes: Sequence[KeyClass],
        columns: Sequence[tuple[int, int]],
        residuals: Sequence[Residual] = (),
        mode: int = kernel.ALL,
    ) -> None:
        self._keys = find_keys(len(inputs), classes)
        own = [self._keys.columns(i) for i in range(len(inputs))]
        sides = [Side(each.columns, each.kind, each.length, own[i]) for i, each in enumerate(inputs)]
        self._rings = Rings(sides)
        self._bags = [i for i, each in enumerate(inputs) if each.kind == rings.BAG]
        self._timed = any(each.kind in (rings.RANGE, rings.NOW) for each in inputs) and mode == kernel.ALL
        words_at = self._rings.cfg[:, rings.WORDS_AT]
        self._columns: I64 = np.array([(i, words_at[i] + c, c) for i, c in columns], np.int64).reshape(-1, 3)
        self._out = OutBuffer(len(columns), residuals)
        self._nothing = empty(len(columns))
        self._bound: I64 = np.zeros(len(inputs), np.int64)
        self._chosen: I64 = np.zeros(len(inputs), np.int64)
        self._state: I64 = np.zeros(kernel.STATE, np.int64)
        self._state[kernel.MODE] = mode
        self._state[kernel.DEPTH] = rings.NONE
        self._seen: I64 = np.zeros((len(inputs), len(inputs), 2), np.int64)
        self._until_review = _REVIEW
        self._set_orders([order(self._keys, i, [0.0] * len(inputs)) for i in range(len(inputs))])

    # ------------------------------------------------------------ running

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        arrivals = sum([len(batch.ts) for batch in inputs])
        if not arrivals and not self._timed:
            return self._nothing
        if self._bags:
            inputs = list(inputs)
            for i in self._bags:
                inputs[i] = units(net(inputs[i])) if len(inputs[i]) else inputs[i]
        self._rings.receive(inputs)
        answer = self._join(min(upto.ts, _GREATEST), upto.seq_tick)
        self._until_review -= arrivals
        if self._until_review < 0:
            self._review()
        return answer

    def _join(self, ts: int, seq_tick: int) -> Batch:
        state, windows = self._state, self._rings
        state[kernel.WRITTEN] = state[kernel.CANCELS] = 0
        while True:
            status = kernel.join(
                windows.arena, windows.cfg, windows.index, self._probe, self._seen, self._bound, self._chosen,
                windows.inbox, state, ts, seq_tick, *self._out.arrays, self._columns,
            )  # fmt: skip
            if status == kernel.DONE:
                return self._written()
            if status == kernel.RING_FULL:
                windows.grow(int(state[kernel.INPUT]))
            else:
                self._out.next_chunk()
                state[kernel.WRITTEN] = 0

    def _written(self) -> Batch:
        """What kernels have written, net if some of it cancels."""
        answer = self._out.take(int(self._state[kernel.WRITTEN]))
        if self._state[kernel.CANCELS]:
            answer = net(answer)
            answer = answer.where(answer.diff > 0)
        return answer

    # ------------------------------------------------------------ probe orders

    def _set_orders(self, orders: list[list[int]]) -> None:
        cfg = self._rings.cfg
        self.orders = orders
        self._probe = plan(self._keys, orders, cfg[:, rings.WORDS_AT], cfg[:, rings.FIRST_INDEX])

    def _review(self) -> None:
        """Orders the probes anew by what they have found lately: fewest matches first."""
        self._until_review = _REVIEW
        probes, matches = self._seen[:, :, 0], self._seen[:, :, 1]
        expected = (matches + 1) / (probes + 1)
        orders = [order(self._keys, i, expected[i].tolist()) for i in range(len(expected))]
        if orders != self.orders:
            self._set_orders(orders)
        self._seen //= 2

    # ------------------------------------------------------------ time and state

    def next_instant(self) -> Frontier | None:
        return self._expiry(rings.START, 0) if self._timed else None

    def last_instant(self) -> Frontier | None:
        return self._expiry(rings.NEXT, -1) if self._timed else None

    def _expiry(self, mark: int, offset: int) -> Frontier | None:
        """When the oldest row (START) or the newest (NEXT - 1) of the time windows leaves."""
        found = []
        for i, cfg in enumerate(self._rings.cfg):
            if cfg[rings.START] == cfg[rings.NEXT]:
                continue
            if cfg[rings.KIND] == rings.NOW:
                found.append(Frontier(int(cfg[rings.NOW_TS]), int(cfg[rings.NOW_SEQ_TICK]) + 1))
            elif cfg[rings.KIND] == rings.RANGE:
                at = rings.time_place(self._rings.cfg, i, int(cfg[mark]) + offset)
                ts = int(self._rings.arena[at]) + int(cfg[rings.LENGTH]) + 1
                found.append(Frontier(min(ts, _GREATEST)))
        if not found:
            return None
        return min(found) if mark == rings.START else max(found)

    def snapshot(self) -> State:
        return self._rings.snapshot()

    def restore(self, state: State) -> None:
        self._rings.restore(state)

    def needs_input_since(self) -> Frontier | None:
        return self._rings.since()

    def held_tuples(self, position: int) -> HeldTuples:
        return from_rows(self._rings.rows(position))

    def oldest(self, position: int) -> Frontier | None:
        return None if position in self._bags else self._rings.since(position)
