"""The running operators of a pipeline, and how a stretch of instants passes through them.

Outside loops, each operator gets all instants of the stretch in one call. Inside a loop, the stage goes
instant by instant (document E's time-splitting): the least instant at which anything in it can
happen is finished by all its operators before the next one starts.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kasen.errors import ResourceError
from kasen.operators.base import Operator, State, Stateless
from kasen.operators.batch import TICK_BITS, Batch, Bound, concat, empty
from kasen.operators.delay import Delay
from kasen.operators.panes import SlidingAggregate
from kasen.operators.touches import Reports
from kasen.operators.window import Timed
from kasen.plan.instantiate import Context, instantiate
from kasen.plan.logical import Scan
from kasen.plan.physical import Plan


class Graph:
    """Operators by step. `run` is called with ever later frontiers."""

    def __init__(self, plan: Plan, context: Context, max_ticks: int = 1_000_000) -> None:
        self._plan = plan
        self._context = context
        self._widths = [len(step.node.schema) for step in plan.steps]
        self._max_ticks = min(max_ticks, (1 << TICK_BITS) - 2)
        self._operators: list[Operator | None] = [
            None if isinstance(step.node, Scan) else instantiate(step.node, context) for step in plan.steps
        ]
        self._nothing = [empty(width) for width in self._widths]
        self._scans = plan.scans
        #: The stages of a single step outside loops: what it reads, and whether it needs input to answer.
        self._alone = {
            (step,): (step, plan.steps[step].inputs, isinstance(operator, Stateless))
            for step, operator in enumerate(self._operators)
            if operator is not None and step not in plan.steps[step].inputs
        }
        self._stages = [stage for stage in plan.stages() if self._operators[stage[0]] is not None]
        self._begun = False

    def begin(self, at: Bound) -> None:
        """The pipeline's first instant: rows that are always there appear now."""
        if not self._begun:
            self._begun = True
            for operator in self._operators:
                if operator is not None and hasattr(operator, "begin"):
                    operator.begin(at)

    def run(self, sources: Mapping[str, Batch], upto: Bound) -> dict[str, Batch]:
        """The changes of every query's answer at the instants from the last frontier up to `upto`."""
        out = self._nothing.copy()
        for name, batch in sources.items():
            step = self._scans.get(name)
            if step is not None:
                out[step] = batch
        for stage in self._stages:
            if stage not in self._alone:
                self._run_loop(stage, out, upto)
                continue
            step, inputs, stateless = self._alone[stage]
            if stateless and len(inputs) == 1 and not len(out[inputs[0]]):
                continue
            batches = [out[source] for source in inputs]
            out[step] = self._operators[step].process(batches, upto)  # type: ignore[union-attr]
        return {name: out[step] for name, step in self._plan.outputs}

    # ------------------------------------------------------------ loops

    def _run_loop(self, stage: tuple[int, ...], out: list[Batch], upto: Bound) -> None:
        members = set(stage)
        outside = {
            source for step in stage for source in self._plan.steps[step].inputs if source not in members
        }
        waiting = {source: _Cursor(out[source]) for source in outside}
        gathered: dict[int, list[Batch]] = {step: [] for step in stage}
        while (instant := self._next(stage, waiting)) is not None and instant < upto:
            self._check_ticks(stage, instant)
            now = {source: cursor.take(instant) for source, cursor in waiting.items()}
            self._run_instant(stage, now, instant)
            for step in stage:
                if len(now[step]):
                    gathered[step].append(now[step])
        for step in stage:
            out[step] = concat(gathered[step], self._widths[step])

    def _run_instant(self, stage: tuple[int, ...], now: dict[int, Batch], instant: Bound) -> None:
        after = Bound(instant.ts, instant.sub + 1)
        delays = []
        for step in stage:
            operator = self._operators[step]
            assert operator is not None
            if isinstance(operator, Delay):
                # First what is due now; what its input is at this instant is only known at the end.
                now[step] = operator.process((empty(self._widths[step]),), after)
                delays.append(step)
            else:
                now[step] = operator.process([now[s] for s in self._plan.steps[step].inputs], after)
        for step in delays:
            operator = self._operators[step]
            assert operator is not None
            operator.process([now[s] for s in self._plan.steps[step].inputs], after)

    def _next(self, stage: tuple[int, ...], waiting: Mapping[int, _Cursor]) -> Bound | None:
        found = [cursor.first() for cursor in waiting.values()]
        for step in stage:
            operator = self._operators[step]
            assert operator is not None
            found.append(operator.next_instant())
        return min((each for each in found if each is not None), default=None)

    def _check_ticks(self, stage: tuple[int, ...], instant: Bound) -> None:
        tick = instant.sub & ((1 << TICK_BITS) - 1)
        if tick > self._max_ticks:
            members = set(stage)
            names = ", ".join(name for name, step in self._plan.outputs if step in members)
            raise ResourceError(
                f"the loop of {names} still produces after {self._max_ticks} ticks of ts {instant.ts}; "
                "end it with a condition, or raise SET max_ticks"
            )

    # ------------------------------------------------------------ state

    def snapshot(self) -> dict[int, State]:
        return {step: each.snapshot() for step, each in enumerate(self._operators) if each is not None}

    def restore(self, states: Mapping[int, State], begun: bool) -> None:
        self._begun = begun
        for step, operator in enumerate(self._operators):
            if operator is not None:
                operator.restore(states[step])

    def next_instant(self) -> Bound | None:
        """The first instant at which some window or delay will move without input."""
        found = [each.next_instant() for each in self._operators if each is not None]
        return min((each for each in found if each is not None), default=None)

    def last_instant(self) -> Bound | None:
        """The last instant at which what windows hold now will leave them."""
        holders = (Timed, Reports, SlidingAggregate)
        found = [each.last_instant() for each in self._operators if isinstance(each, holders)]
        return max((each for each in found if each is not None), default=None)

    def close_delays(self) -> None:
        """From now on delays deliver nothing."""
        for operator in self._operators:
            if isinstance(operator, Delay):
                operator.close()

    @property
    def begun(self) -> bool:
        return self._begun


class _Cursor:
    """A batch read instant by instant."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._at = 0

    def first(self) -> Bound | None:
        if self._at == len(self._batch):
            return None
        return Bound(int(self._batch.ts[self._at]), int(self._batch.sub[self._at]))

    def take(self, instant: Bound) -> Batch:
        """The changes at exactly this instant."""
        batch, start = self._batch, self._at
        end = start
        while end < len(batch) and (batch.ts[end], batch.sub[end]) == instant:
            end += 1
        self._at = end
        return batch if end - start == len(batch) else batch.take(np.arange(start, end))
