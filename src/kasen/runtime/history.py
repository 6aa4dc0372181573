"""Since when a pipeline's state needs its input: what may be forgotten upstream, and how to start without it.

After some runs the pipeline is marked: at this frontier, the state follows from the input since such a time
on each input, and its counting windows had counted so far. Once everything below the frontier has left for
good, older input is needed by nobody, and a new copy that gets the rest, with the counts, has the same state
at the frontier and the same answers from there on. What it answers before is wrong, and is not to be used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kasen.engine.batch import Frontier
from kasen.plan.logical import Scan
from kasen.plan.physical import Plan
from kasen.plan.physical_nodes import MultiJoin
from kasen.runtime.pipeline import RunningPipeline

BEGIN = -(2**63)
_NO_NEED = 2**63 - 1
_MOST_MARKS = 2000


@dataclass(frozen=True, slots=True)
class Restart:
    """How to start in the middle: answers are right from `at` on if each input is given since `since`."""

    at: int
    since: tuple[tuple[str, int], ...]
    counts: tuple[tuple[int, int, int, int], ...]  # step, the oldest instant it holds, tuples before that
    begun: bool

    def of(self, name: str) -> int:
        return dict(self.since)[name]

    def as_json(self) -> dict[str, Any]:
        return {"at": self.at, "since": self.since, "counts": self.counts, "begun": self.begun}

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> Restart:
        since = tuple((str(name), int(ts)) for name, ts in given["since"])
        counts = tuple((int(a), int(b), int(c), int(d)) for a, b, c, d in given["counts"])
        return Restart(int(given["at"]), since, counts, bool(given["begun"]))


@dataclass(frozen=True, slots=True)
class _Mark:
    """What was true at a frontier; `steps` has the needs of the steps that windows read."""

    restart: Restart
    steps: Mapping[int, tuple[int, ...]]


class History:
    """The marks of one pipeline. Only for plans that `why_history` finds nothing in."""

    def __init__(self, plan: Plan, pipeline: RunningPipeline, restart: Restart | None = None) -> None:
        self._plan = plan
        self._pipeline = pipeline
        self._order = [step for stage in plan.stages() for step in stage]
        self._inputs = [input_.name for input_ in plan.app.inputs if not input_.is_static]
        #: Windows, delays and what else holds tuples; each reads one step.
        self._read_by_windows = {
            plan.steps[step].inputs[0]
            for step, operator in enumerate(pipeline.graph.operators)
            if operator is not None and len(plan.steps[step].inputs) == 1
        }
        # A join that holds its windows itself reads several.
        for each in plan.steps:
            if isinstance(each.node, MultiJoin):
                self._read_by_windows |= set(each.inputs)
        self._origin = tuple(restart.of(name) if restart else BEGIN for name in self._inputs)
        self._marks: list[_Mark] = []
        if restart is not None:
            self._begin_with(restart)

    def _begin_with(self, restart: Restart) -> None:
        if restart.begun:
            # What appears at the beginning has appeared long ago, so it must not show from `at` on.
            self._pipeline.begin_by(restart.at - 1)
        operators = self._pipeline.graph.operators
        for step, ts, seq_tick, before in restart.counts:
            if (operator := operators[step]) is not None:
                operator.count_from(Frontier(ts, seq_tick), before)

    def mark(self) -> None:
        """Remembers what the state needs now. Called between runs."""
        at = self._pipeline.upto
        if self._marks and self._marks[-1].restart.at == at:
            return
        needs: dict[int, tuple[int, ...]] = {}
        for step in self._order:
            needs[step] = self._need(step, at, needs)
        outputs = [needs[step] for _, step in self._plan.outputs]
        # Rows that wait for a slower input are part of the state too, but none is older than the frontier.
        vector = [min(at, *column) for column in zip(*outputs, strict=True)] if self._inputs else []
        counts = [
            (step, *counted[0], counted[1])
            for step, operator in enumerate(self._pipeline.graph.operators)
            if operator is not None and (counted := operator.counted()) is not None
        ]
        since = tuple(zip(self._inputs, vector, strict=True))
        restart = Restart(at, since, tuple(counts), self._pipeline.begun)
        kept = {step: need for step, need in needs.items() if step in self._read_by_windows}
        self._marks.append(_Mark(restart, kept))
        if len(self._marks) > _MOST_MARKS:
            # Long windows look far back. An older mark than could be found asks for more, never for less.
            del self._marks[:-1:2]

    def _need(self, step: int, at: int, needs: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
        node, inputs = self._plan.steps[step].node, self._plan.steps[step].inputs
        if isinstance(node, Scan):
            return tuple(at if name == node.name else _NO_NEED for name in self._inputs)
        operator = self._pipeline.graph.operators[step]
        assert operator is not None
        found = [
            needs[source]
            if (oldest := operator.oldest(position)) is None
            else self._need_at(source, oldest.ts, at)
            for position, source in enumerate(inputs)
        ]
        return tuple(min(column) for column in zip(*found, strict=True))

    def _need_at(self, step: int, ts: int, at: int) -> tuple[int, ...]:
        """What a step needs so that what it puts out from `ts` on is right."""
        node = self._plan.steps[step].node
        if isinstance(node, Scan):
            return tuple(min(ts, at) if name == node.name else _NO_NEED for name in self._inputs)
        before = bisect_right(self._marks, ts, key=lambda mark: mark.restart.at)
        return self._marks[before - 1].steps[step] if before else self._origin

    def restart(self, done: int) -> Restart | None:
        """How to start so that all answers from `done` on are right; None if nothing can be forgotten yet.

        Never called with an earlier `done` afterwards.
        """
        last = bisect_right(self._marks, done, key=lambda mark: mark.restart.at)
        if not last:
            return None
        found = self._marks[last - 1].restart
        # Windows over other queries' answers look back, to when their oldest tuple was put out.
        oldest = min((ts for _, ts in found.since), default=found.at)
        keep = max(0, bisect_right(self._marks, oldest, key=lambda mark: mark.restart.at) - 1)
        del self._marks[: min(keep, last - 1)]
        return found
