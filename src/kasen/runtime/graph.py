"""The running operators of a pipeline, and how a stretch of instants passes through them.

Outside loops, each operator gets all instants of the stretch in one call. The steps of a loop are one
stage, which goes instant by instant (document E's time-splitting, runtime/loop).
"""

from __future__ import annotations

from collections.abc import Mapping

from kasen.errors import ResourceError
from kasen.operators.base import Operator, State, Stateless
from kasen.operators.batch import TICK_BITS, Batch, Bound, empty
from kasen.operators.delay import Delay
from kasen.operators.panes import SlidingAggregate
from kasen.operators.touches import Reports, Touches
from kasen.operators.window import Rows, Timed
from kasen.plan.instantiate import Context, instantiate
from kasen.plan.logical import Scan
from kasen.plan.physical import Plan
from kasen.runtime.loop import Loop


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
        self._loops = {
            stage: Loop(plan, stage, self._operators, context, self._max_ticks, plan.read_outside(stage))
            for stage in self._stages
            if stage not in self._alone
        }
        self._begun = False

    def begin(self, at: Bound) -> None:
        """The pipeline's first instant: rows that are always there appear now."""
        if not self._begun:
            self._begun = True
            for operator in self._operators:
                if operator is not None and hasattr(operator, "begin"):
                    operator.begin(at)
            self._load_loops()

    def run(self, sources: Mapping[str, Batch], upto: Bound) -> dict[str, Batch]:
        """The changes of every query's answer at the instants from the last frontier up to `upto`."""
        out = self._nothing.copy()
        for name, batch in sources.items():
            step = self._scans.get(name)
            if step is not None:
                out[step] = batch
        for stage in self._stages:
            if stage not in self._alone:
                self._run_loop(self._loops[stage], out, upto)
                continue
            step, inputs, stateless = self._alone[stage]
            if stateless and len(inputs) == 1 and not len(out[inputs[0]]):
                continue
            batches = [out[source] for source in inputs]
            out[step] = self._operators[step].process(batches, upto)  # type: ignore[union-attr]
        return {name: out[step] for name, step in self._plan.outputs}

    def _run_loop(self, loop: Loop, out: list[Batch], upto: Bound) -> None:
        stuck = loop.run(out, upto)
        if stuck is not None:
            members = set(loop.stage)
            names = ", ".join(name for name, step in self._plan.outputs if step in members)
            raise ResourceError(
                f"the loop of {names} still produces after {self._max_ticks} ticks of ts {stuck.ts}; "
                "end it with a condition, or raise SET max_ticks"
            )

    # ------------------------------------------------------------ state

    def _load_loops(self) -> None:
        for loop in self._loops.values():
            loop.load()

    def _save_loops(self) -> None:
        """Before anybody looks at operators."""
        for loop in self._loops.values():
            loop.save()

    def snapshot(self) -> dict[int, State]:
        self._save_loops()
        return {step: each.snapshot() for step, each in enumerate(self._operators) if each is not None}

    def restore(self, states: Mapping[int, State], begun: bool) -> None:
        self._begun = begun
        for step, operator in enumerate(self._operators):
            if operator is not None:
                operator.restore(states[step])
        self._load_loops()

    def next_instant(self) -> Bound | None:
        """The first instant at which some window or delay will move without input."""
        self._save_loops()
        found = [each.next_instant() for each in self._operators if each is not None]
        return min((each for each in found if each is not None), default=None)

    def last_instant(self) -> Bound | None:
        """The last instant at which what windows hold now will leave them."""
        self._save_loops()
        holders = (Timed, Reports, SlidingAggregate)
        found = [each.last_instant() for each in self._operators if isinstance(each, holders)]
        return max((each for each in found if each is not None), default=None)

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
        return self._operators

    @property
    def counters(self) -> dict[int, Rows]:
        """The windows that count tuples from the beginning on, by step."""
        found = {}
        for step, operator in enumerate(self._operators):
            window = operator.window if isinstance(operator, Touches) else operator
            if isinstance(window, Rows):
                found[step] = window
        return found
