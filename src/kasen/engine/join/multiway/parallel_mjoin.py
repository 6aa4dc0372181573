"""The parallel MJoin of [LowDelayJoin]: each window looks up the others' arrivals in a worker of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from queue import SimpleQueue
from threading import Thread
from weakref import finalize

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier
from kasen.engine.join.multiway.kernels import mjoin, rings
from kasen.engine.join.multiway.kernels import parallel_mjoin as kernel
from kasen.engine.join.multiway.mjoin import ALL, JoinInput, MJoin
from kasen.engine.join.multiway.probe_order import KeyClass
from kasen.engine.out_buffer import Residual

_GREATEST = 2**63 - 1
# Fewer events than this are looked up sooner than they are handed over.
_WORTH_IT = 256


class Workers:
    """Threads that wait for work, without looking for it: each blocks on its own queue."""

    def __init__(self, count: int) -> None:
        self._inboxes: list[SimpleQueue[partial[None] | None]] = [SimpleQueue() for _ in range(count)]
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        for inbox in self._inboxes:
            Thread(target=_work, args=(inbox, self._done), daemon=True, name="kasen-join").start()
        finalize(self, _dismiss, self._inboxes)

    def run(self, tasks: Sequence[partial[None]]) -> None:
        """Runs the tasks, the first of them here, and returns when all are done."""
        for place, task in enumerate(tasks[1:]):
            self._inboxes[place % len(self._inboxes)].put(task)
        tasks[0]()
        failed = [error for _ in tasks[1:] if (error := self._done.get()) is not None]
        if failed:
            raise failed[0]


def _work(inbox: SimpleQueue[partial[None] | None], done: SimpleQueue[BaseException | None]) -> None:
    while (task := inbox.get()) is not None:
        try:
            task()
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)


def _dismiss(inboxes: Sequence[SimpleQueue[partial[None] | None]]) -> None:
    for inbox in inboxes:
        inbox.put(None)


class ParallelMJoin(MJoin):
    """MJoin for inputs that all share a key and hold their windows here; other equalities are checked after.

    `workers`: how many windows are looked up at the same time; by default as many as there are cores.
    """

    def __init__(
        self,
        inputs: Sequence[JoinInput],
        classes: Sequence[KeyClass],
        columns: Sequence[tuple[int, int]],
        residuals: Sequence[Residual] = (),
        mode: int = ALL,
        workers: int | None = None,
    ) -> None:
        super().__init__(inputs, classes, columns, residuals, mode)
        count = len(inputs)
        common = next(g for g, key in enumerate(self._keys.shared) if len(key) == count and key[0])
        self._keyed: I64 = np.array([own.index(common) for own in self._keys.own], np.int64)
        words_at = self._rings.cfg[:, rings.WORDS_AT]
        checks = [
            (one, words_at[one] + a, other, words_at[other] + b)
            for g, key in enumerate(self._keys.shared)
            if g != common
            for one, *rest in [sorted(key)]
            for other in rest
            for a, b in zip(key[one], key[other], strict=True)
        ]
        self._checks: I64 = np.array(checks, np.int64).reshape(-1, 4)
        workers = min(count, workers or os.cpu_count() or 1)
        self._shares = [list(range(first, count, workers)) for first in range(workers)]
        self._workers = Workers(workers - 1) if workers > 1 else None
        self._events: I64 = np.empty((0, kernel.FIELDS), np.int64)
        self._spans: I64 = np.empty((count, 1), np.int64)
        self._noted: I64 = np.empty((count, 64), np.int64)
        self._hands: I64 = np.zeros(count, np.int64)

    def process(self, inputs: Sequence[Batch], upto: Frontier) -> Batch:
        if not self._timed and not sum([len(batch.ts) for batch in inputs]):
            return self._nothing
        windows, cfg = self._rings, self._rings.cfg
        windows.receive(inputs)
        for i, batch in enumerate(inputs):
            windows.make_room(i, len(batch.ts))
        starts = cfg[:, rings.START].copy()
        # A row enters once, leaves once, and may make its window's start known once.
        most = 3 * (sum([len(batch.ts) for batch in inputs]) + self._held()) + 1
        if most > len(self._events):
            self._events = np.empty((most, kernel.FIELDS), np.int64)
        state = self._state
        state[mjoin.CANCELS] = 0
        count = int(
            kernel.dispatch(
                windows.arena,
                cfg,
                windows.inbox,
                state,
                min(upto.ts, _GREATEST),
                upto.seq_tick,
                self._events,
                starts.copy(),
            )
        )
        self._look_up(count, starts)
        return self._merge(count)

    def _held(self) -> int:
        """How many rows may leave without an arrival of their own input."""
        cfg = self._rings.cfg
        timed = (cfg[:, rings.KIND] == rings.RANGE) | (cfg[:, rings.KIND] == rings.NOW)
        return int(((cfg[:, rings.NEXT] - cfg[:, rings.START]) * timed).sum())

    def _look_up(self, count: int, starts: I64) -> None:
        if self._spans.shape[1] <= count:
            self._spans = np.empty((len(starts), 2 * count + 2), np.int64)
        waiting = {j: np.array([0, kernel.FRESH, 0], np.int64) for j in range(len(starts))}
        while waiting:
            shares = [[j for j in share if j in waiting] for share in self._shares]
            done: list[int] = []
            tasks = [partial(self._share, share, count, starts, waiting, done) for share in shares if share]
            if self._workers is not None and count >= _WORTH_IT:
                self._workers.run(tasks)
            else:
                for task in tasks:
                    task()
            for j in done:
                del waiting[j]
            if waiting:
                more = np.empty((len(starts), 2 * self._noted.shape[1]), np.int64)
                more[:, : self._noted.shape[1]] = self._noted
                self._noted = more

    def _share(
        self, share: list[int], count: int, starts: I64, waiting: dict[int, I64], done: list[int]
    ) -> None:
        windows = self._rings
        for j in share:
            finished = kernel.semi_join(
                windows.arena, windows.cfg, windows.index, self._keyed, j, self._events, count, starts,
                self._spans[j], self._noted[j], waiting[j],
            )  # fmt: skip
            if finished:
                done.append(j)

    def _merge(self, count: int) -> Batch:
        state, windows = self._state, self._rings
        state[mjoin.INPUT], state[mjoin.DEPTH], state[mjoin.WRITTEN] = 0, rings.NONE, 0
        while not kernel.merge(
            windows.arena, windows.cfg, self._events, count, self._spans, self._noted, self._checks,
            self._bound, self._hands, state, *self._out.arrays, self._columns,
        ):  # fmt: skip
            self._out.next_chunk()
            state[mjoin.WRITTEN] = 0
        return self._written()
