"""The running operators of a pipeline, and how a stretch of instants passes through them.

Outside loops, each operator gets all instants of the stretch in one call. The steps of a loop are one
stage, which goes instant by instant (document E's time-splitting, runtime/loop).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kasen.errors import ResourceError
from kasen.operators.base import Operator, State
from kasen.operators.batch import TICK_BITS, Batch, Bound, empty
from kasen.operators.delay import Delay
from kasen.operators.mjoin import MJoin
from kasen.operators.panes import SlidingAggregate
from kasen.operators.touches import Reports, Touches
from kasen.operators.user_aggregate import UserAggregate
from kasen.operators.window import Rows, Timed
from kasen.plan.instantiate import Context, instantiate
from kasen.plan.logical import Scan
from kasen.plan.physical import Plan
from kasen.runtime.loop import Loop
from kasen.runtime.stopped import loop_error, stopped_before


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
        #: The stages of a single step outside loops, and what each reads.
        self._alone: dict[tuple[int, ...], tuple[int, tuple[int, ...]]] = {
            (step,): (step, plan.steps[step].inputs)
            for step, operator in enumerate(self._operators)
            if operator is not None and step not in plan.steps[step].inputs
        }
        self._stages = [stage for stage in plan.stages() if self._operators[stage[0]] is not None]
        self._loops = {
            stage: Loop(plan, stage, self._operators, context, self._max_ticks, plan.read_outside(stage))
            for stage in self._stages
            if stage not in self._alone
        }
        self._begun = False
        #: Why loops were stopped. The rest of the pipeline lives on.
        self.stopped: list[ResourceError] = []
        self._dead: set[int] = set()
        self._handed_out = False

    def begin(self, at: Bound) -> None:
        """The pipeline's first instant: rows that are always there appear now."""
        if not self._begun:
            self._begun = True
            for operator in self._operators:
                if operator is not None and hasattr(operator, "begin"):
                    operator.begin(at)
            self._load_loops()

    def stirs_before(self, upto: Bound) -> bool:
        """Whether anything may happen before `upto` if nothing comes in. Of loops, only they know."""
        if self._loops:
            return True
        for operator in self._operators:
            if operator is not None and (due := operator.next_instant()) is not None and due < upto:
                return True
        return False

    def run(self, sources: Mapping[str, Batch], upto: Bound) -> dict[str, Batch]:
        """The changes of every query's answer at the instants from the last frontier up to `upto`."""
        out = self._nothing.copy()
        for name, batch in sources.items():
            step = self._scans.get(name)
            if step is not None:
                out[step] = batch
        if self._handed_out:
            self._load_loops()
        ends: dict[int, Bound] = {}
        for stage in self._stages:
            if ends and (end := min((ends[step] for step in stage if step in ends), default=upto)) < upto:
                self._run_to_its_end(stage, out, end, ends)
            elif stage in self._alone:
                self._run_step(stage, out, upto)
            else:
                self._run_loop(self._loops[stage], out, upto, ends)
        if ends:
            self._stop(set(ends))
        return {name: out[step] for name, step in self._plan.outputs}

    def _run_step(self, stage: tuple[int, ...], out: list[Batch], upto: Bound) -> None:
        step, inputs = self._alone[stage]
        operator = self._operators[step]
        assert operator is not None
        batches = [out[source] for source in inputs]
        if not any(map(len, batches)):
            due = operator.next_instant()
            if due is None or due >= upto:
                return
        out[step] = operator.process(batches, upto)

    # ------------------------------------------------------------ loops that do not end

    def _run_loop(self, loop: Loop, out: list[Batch], upto: Bound, ends: dict[int, Bound]) -> None:
        """A loop that goes round for ever is stopped, and with it all that read it, at the same instant."""
        stuck = loop.run(out, upto)
        if stuck is None:
            return
        error = loop_error(self._plan, loop.stage, out, stuck, self._max_ticks, self._context.dictionary)
        self.stopped.append(error)
        for step in self._plan.downstream(loop.stage):
            ends[step] = min(stuck, ends.get(step, stuck))

    def _run_to_its_end(
        self, stage: tuple[int, ...], out: list[Batch], end: Bound, ends: dict[int, Bound]
    ) -> None:
        """Runs a stage that reads a stopped loop, on what there was before that."""
        cut = out.copy()
        for step in stage:
            for source in self._plan.steps[step].inputs:
                cut[source] = _below(out[source], end)
        if stage in self._alone:
            self._run_step(stage, cut, end)
        else:
            self._run_loop(self._loops[stage], cut, end, ends)
        for step in stage:
            out[step] = cut[step]

    def _stop(self, steps: set[int]) -> None:
        """These steps say nothing any more."""
        self._dead |= steps
        self._stages = [stage for stage in self._stages if stage[0] not in self._dead]
        self._loops = {stage: loop for stage, loop in self._loops.items() if stage[0] not in self._dead}

    @property
    def dead(self) -> set[int]:
        """The steps that were stopped."""
        return self._dead

    # ------------------------------------------------------------ state

    def _load_loops(self) -> None:
        self._handed_out = False
        for loop in self._loops.values():
            loop.load()

    def _save_loops(self) -> None:
        """Before anybody looks at operators; whoever changes one does so before the next run."""
        self._handed_out = True
        for loop in self._loops.values():
            loop.save()

    def snapshot(self) -> dict[int, State]:
        self._save_loops()
        return {step: each.snapshot() for step, each in enumerate(self._operators) if each is not None}

    def restore(self, states: Mapping[int, State], begun: bool, dead: Sequence[int] = ()) -> None:
        self._begun = begun
        if dead:
            self._stop(set(dead))
            self.stopped.append(stopped_before(self._plan, self._dead))
        for step, operator in enumerate(self._operators):
            if operator is not None:
                operator.restore(states[step])
        self._load_loops()

    def next_instant(self) -> Bound | None:
        """The first instant at which some window or delay will move without input."""
        self._save_loops()
        found = [each.next_instant() for each in self._living()]
        return min((each for each in found if each is not None), default=None)

    def last_instant(self) -> Bound | None:
        """The last instant at which what windows hold now will leave them."""
        self._save_loops()
        holders = (Timed, Reports, SlidingAggregate, UserAggregate, MJoin)
        found = [each.last_instant() for each in self._living() if isinstance(each, holders)]
        return max((each for each in found if each is not None), default=None)

    def _living(self) -> Iterator[Operator]:
        for step, operator in enumerate(self._operators):
            if operator is not None and step not in self._dead:
                yield operator

    def close_delays(self) -> None:
        """From now on delays deliver nothing."""
        self._save_loops()
        for operator in self._operators:
            if isinstance(operator, Delay):
                operator.close()
        self._load_loops()

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def operators(self) -> list[Operator | None]:
        """The operator of each step; None for an input's."""
        self._save_loops()
        return self._operators

    @property
    def counters(self) -> dict[int, Rows]:
        """The windows that count tuples from the beginning on, by step."""
        self._save_loops()
        found = {}
        for step, operator in enumerate(self._operators):
            window = operator.window if isinstance(operator, Touches) else operator
            if isinstance(window, Rows):
                found[step] = window
        return found


def _below(batch: Batch, end: Bound) -> Batch:
    """The changes before an instant."""
    if not len(batch) or (batch.ts[-1], batch.sub[-1]) < end:
        return batch
    return batch.where((batch.ts < end.ts) | ((batch.ts == end.ts) & (batch.sub < end.sub)))
