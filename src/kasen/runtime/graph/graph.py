"""The running operators of a pipeline, and how a stretch of instants passes through them.

Outside loops, each operator gets all instants of the stretch in one call. The steps of a loop are one
stage, which goes instant by instant (time-splitting, [DTS]; see loop.py).

Steps may come and go between two runs (see live.py); a step's place is used again once it is free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kasen.engine import parallel
from kasen.engine.batch import I64, TICK_BITS, Batch, Frontier, concat, empty
from kasen.engine.operator import Operator, SharingPool, State
from kasen.errors import ResourceError
from kasen.plan.logical import Node, Scan, twice
from kasen.plan.lower.instantiate import Context, instantiate
from kasen.plan.physical import Plan, Step, stages_of
from kasen.runtime.graph.loop import Loop
from kasen.runtime.graph.parallel_steps import ROWS_PER_STEP, ParallelStepRunner, SingleStep
from kasen.runtime.graph.runaway_loops import loop_error, stopped_before
from kasen.types import Kind, Schema

#: For steps that just came: further input, by step and number of the input.
InitialInputs = dict[int, dict[int, Batch]]


class Graph:
    """Operators by step. `run` is called with ever later frontiers."""

    def __init__(self, plan: Plan, context: Context, max_ticks: int = 1_000_000) -> None:
        self._context = context
        self._time = plan.app.time
        self._max_ticks = min(max_ticks, (1 << TICK_BITS) - 2)
        self._nodes: list[Node | None] = []
        self._inputs: list[tuple[int, ...]] = []
        #: How many steps read each one.
        self._readers: defaultdict[int, int] = defaultdict(int)
        self._operators: list[Operator | None] = []
        self._nothing: list[Batch] = []
        self._steps: dict[int, Step] = {}
        self._free: list[int] = []
        self._pool: SharingPool = {}
        self._scans: dict[str, int] = {}
        self.outputs: dict[str, int] = dict(plan.outputs)
        #: Stages in an order in which inputs come first, by their first step: the operator and what it
        #: reads; or None for a loop.
        self._stages: dict[int, SingleStep | None] = {}
        self._loops: dict[int, Loop] = {}
        #: The steps of loops, and whether steps came and went so that the order must be found again.
        self._looped: set[int] = set()
        self._stale = False
        self._initial_inputs: InitialInputs = {}
        #: Whether the first instant has come.
        self.begun = False
        #: Why loops were stopped. The rest of the pipeline lives on.
        self.stopped: list[ResourceError] = []
        self._dead: set[int] = set()
        self._handed_out = False
        for step in plan.steps:
            self._add(step.node, step.inputs)
        self.order_stages()

    # ------------------------------------------------------------ steps

    def _add(self, node: Node, inputs: tuple[int, ...]) -> int:
        step = self._free.pop() if self._free else len(self._nodes)
        if step == len(self._nodes):
            self._nodes.append(None)
            self._inputs.append(())
            self._operators.append(None)
            self._nothing.append(empty(0))
        self._set(step, node, inputs)
        return step

    def _set(self, step: int, node: Node, inputs: tuple[int, ...]) -> None:
        self._nodes[step] = node
        self._read(step, inputs)
        self._steps[step] = Step(step, node, inputs)
        self._make(step, node, inputs)
        self._nothing[step] = empty(len(node.schema))
        if isinstance(node, Scan):
            self._scans[node.name] = step

    def _read(self, step: int, inputs: tuple[int, ...]) -> None:
        """From now on the step reads these."""
        for source in set(self._inputs[step]):
            self._readers[source] -= 1
        for source in set(inputs):
            self._readers[source] += 1
        self._inputs[step] = inputs

    def _make(self, step: int, node: Node, inputs: tuple[int, ...]) -> None:
        if not isinstance(node, Scan):
            self._operators[step] = operator = instantiate(node, self._context)
            operator.read_from(inputs, self._pool)

    def rebuild(self, steps: Mapping[int, tuple[Node, tuple[int, ...]]]) -> None:
        """Other steps in the place of all that are there, each at its number."""
        size = max(steps, default=-1) + 1
        self._nodes, self._operators = [None] * size, [None] * size
        self._inputs, self._nothing = [()] * size, [empty(0)] * size
        self._steps, self._scans, self._initial_inputs, self._loops, self._pool = {}, {}, {}, {}, {}
        self._readers.clear()
        self._free = [step for step in reversed(range(size)) if step not in steps]
        for step, (node, inputs) in steps.items():
            self._set(step, node, inputs)
        self.order_stages()

    @property
    def initial_inputs(self) -> InitialInputs:
        """What steps that just came get besides, in the next run."""
        return self._initial_inputs

    def add(self, node: Node, inputs: tuple[int, ...]) -> int:
        """A new step behind all others, outside loops. It reads steps that are there."""
        step = self._add(node, inputs)
        self._enter_stage(step)
        return step

    def remove(self, step: int) -> None:
        """A step that nobody reads goes; its place is used again."""
        node, operator = self._nodes[step], self._operators[step]
        if isinstance(node, Scan):
            del self._scans[node.name]
        if operator is not None:
            operator.close()
        self._nodes[step] = self._operators[step] = None
        del self._steps[step]
        self._stale |= step in self._looped
        self._dead.discard(step)
        self._read(step, ())
        self._stages.pop(step, None)
        self._initial_inputs.pop(step, None)
        self._free.append(step)

    def point(self, step: int, inputs: tuple[int, ...]) -> None:
        """The step reads others from now on; `settle` sees to the order."""
        self._stale = True
        self.operator(step).read_from(inputs, self._pool)
        self._read(step, inputs)
        self._steps[step] = Step(step, self.node(step), inputs)

    def order_stages(self) -> None:
        """Finds the order of all steps, and the loops among them."""
        self.save_loops()
        self._stages, self._loops, self._looped, self._stale = {}, {}, set(), False
        for stage in stages_of(self._nodes, self._inputs):
            if stage[0] in self._dead:
                continue
            if len(stage) > 1 or stage[0] in self._inputs[stage[0]]:
                self._stages[stage[0]] = None
                self._loops[stage[0]] = self._make_loop(stage)
                self._looped.update(stage)
            else:
                self._enter_stage(stage[0])

    def settle(self) -> None:
        """After steps came and went: finds the order again, if that changed more than its end."""
        if self._stale or any(self._wanted(loop.stage) != loop.kept for loop in self._loops.values()):
            self.order_stages()

    def _enter_stage(self, step: int) -> None:
        operator = self._operators[step]
        if operator is not None:
            self._stages[step] = (operator, self._inputs[step])

    def node(self, step: int) -> Node:
        node = self._nodes[step]
        assert node is not None, step
        return node

    def operator(self, step: int) -> Operator:
        operator = self._operators[step]
        assert operator is not None, step
        return operator

    def inputs(self, step: int) -> tuple[int, ...]:
        return self._inputs[step]

    def scan(self, name: str) -> int | None:
        return self._scans.get(name)

    @property
    def steps(self) -> list[int]:
        """The steps that are there."""
        return [step for step, node in enumerate(self._nodes) if node is not None]

    # ------------------------------------------------------------ running

    def begin(self, at: Frontier) -> None:
        """The pipeline's first instant: rows that are always there appear now."""
        if not self.begun:
            self.begun = True
            self.begin_steps(self.steps, at)
            self.share(self.steps, at)
            self._load_loops()

    def begin_steps(self, steps: Iterable[int], at: Frontier) -> None:
        for step in steps:
            operator = self._operators[step]
            if operator is not None:
                operator.begin(at)

    def share(self, steps: Iterable[int], at: Frontier | None) -> None:
        """From now on these may share windows; they begin at an instant, or with what they hold (None)."""
        found = [self._operators[step] for step in steps if step not in self._looped]
        operators = [operator for operator in found if operator is not None]
        for operator in operators:
            operator.let_share()
        if at is not None:
            for operator in operators:
                operator.share_from(at)

    def inject(self, step: int, position: int, batch: Batch) -> None:
        """Further input for a step that just came, before all else that it gets in the next run."""
        if len(batch):
            before = self._initial_inputs.setdefault(step, {}).get(position)
            both = batch if before is None else concat((before, batch), batch.columns)
            self._initial_inputs[step][position] = both

    def run(self, sources: Mapping[str, Batch], upto: Frontier) -> dict[str, Batch]:
        """The changes of queries' answers at the instants from the last frontier up to `upto`."""
        out = self._nothing.copy()
        rows = 0
        for name, batch in sources.items():
            step = self._scans.get(name)
            if step is not None:
                out[step] = batch
                rows += len(batch)
        if self._handed_out:
            self._load_loops()
        initial_inputs = self._initial_inputs
        if initial_inputs:
            self._initial_inputs = {}
        elif rows >= ROWS_PER_STEP * len(self._stages) and parallel.worth(rows) and not self._loops:
            self._run_in_parallel(out, upto)
            return self._answers(out)
        ends: dict[int, Frontier] = {}
        for step, stage in self._stages.items():
            if ends and (end := self._end_of(step, ends, upto)) < upto:
                self._run_to_its_end(step, out, end, ends, initial_inputs)
            elif stage is None:
                self._run_loop(self._loops[step], out, upto, ends, initial_inputs)
            elif initial_inputs or len(stage[1]) != 1:
                self._run_step(step, stage, out, upto, initial_inputs)
            else:  # as _run_step, in fewer calls: most steps have one input, and single tuples feel it
                operator, (source,) = stage
                batch = out[source]
                if len(batch) or ((due := operator.next_instant()) is not None and due < upto):
                    out[step] = operator.process((batch,), upto)
        if ends:
            self._stop(set(ends))
        return self._answers(out)

    def _answers(self, out: list[Batch]) -> dict[str, Batch]:
        return {name: batch for name, step in self.outputs.items() if len(batch := out[step])}

    def _run_in_parallel(self, out: list[Batch], upto: Frontier) -> None:
        """Runs independent steps side by side. Only for many rows, and without loops."""
        stages = {step: stage for step, stage in self._stages.items() if stage is not None}

        def run_step(step: int, stage: SingleStep) -> None:
            self._run_step(step, stage, out, upto, {})

        ParallelStepRunner(stages, self._readers, self.outputs.values(), out, run_step).run()

    def _run_step(
        self, step: int, stage: SingleStep, out: list[Batch], upto: Frontier, initial_inputs: InitialInputs
    ) -> None:
        operator, inputs = stage
        batches = [out[source] for source in inputs]
        if initial_inputs and step in initial_inputs:
            batches = self._with_initial_inputs(step, batches, initial_inputs)
        if not any(map(len, batches)):
            due = operator.next_instant()
            if due is None or due >= upto:
                return
        out[step] = operator.process(batches, upto)

    def _with_initial_inputs(
        self, step: int, batches: list[Batch], initial_inputs: InitialInputs
    ) -> list[Batch]:
        for position, batch in initial_inputs[step].items():
            batches[position] = concat((batch, batches[position]), batch.columns)
        return batches

    def stirs_before(self, upto: Frontier) -> bool:
        """Whether anything may happen before `upto` if nothing comes in. Of loops, only they know."""
        if self._loops or self._initial_inputs:
            return True
        for operator in self._operators:
            if operator is not None and (due := operator.next_instant()) is not None and due < upto:
                return True
        return False

    # ------------------------------------------------------------ loops

    def _make_loop(self, stage: tuple[int, ...]) -> Loop:
        for step in stage:
            self.operator(step).go_alone()
        return Loop(self._steps, stage, self._operators, self._context, self._max_ticks, self._wanted(stage))

    def _wanted(self, stage: tuple[int, ...]) -> tuple[int, ...]:
        """The steps of a loop that others read, or that are queries."""
        members = set(stage)
        wanted = set(self.outputs.values())
        for step in self.steps:
            if step not in members:
                wanted.update(self._inputs[step])
        return tuple(sorted(members & wanted))

    def _run_loop(
        self,
        loop: Loop,
        out: list[Batch],
        upto: Frontier,
        ends: dict[int, Frontier],
        initial_inputs: InitialInputs,
    ) -> None:
        """A loop that goes round for ever is stopped, and with it all that read it, at the same instant."""
        if initial_inputs and not initial_inputs.keys().isdisjoint(loop.stage):
            stuck = self._run_newborn(loop, out, upto, initial_inputs)
        else:
            stuck = loop.run(out, upto)
        if stuck is None:
            return
        below = self._downstream(loop.stage)
        error = loop_error(
            self._names,
            loop.stage,
            below,
            out,
            stuck,
            self._max_ticks,
            self._context.dictionary,
            self._time,
        )
        self.stopped.append(error)
        for step in below:
            ends[step] = min(stuck, ends.get(step, stuck))

    @property
    def _names(self) -> list[tuple[str, int, Schema]]:
        """Each query with its step and its columns."""
        return [(name, step, self.node(step).schema) for name, step in self.outputs.items()]

    def _downstream(self, stage: tuple[int, ...]) -> set[int]:
        """The steps of a stage and all that read them, directly or not."""
        reached = set(stage)
        for first in self._stages:
            each = self._loops[first].stage if first in self._loops else (first,)
            if any(source in reached for step in each for source in self._inputs[step]):
                reached.update(each)
        return reached

    def _end_of(self, first: int, ends: dict[int, Frontier], upto: Frontier) -> Frontier:
        stage = self._loops[first].stage if first in self._loops else (first,)
        return min((ends[step] for step in stage if step in ends), default=upto)

    def _run_to_its_end(
        self,
        first: int,
        out: list[Batch],
        end: Frontier,
        ends: dict[int, Frontier],
        initial_inputs: InitialInputs,
    ) -> None:
        """Runs a stage that reads a stopped loop, on what there was before that."""
        stage = self._stages[first]
        members = self._loops[first].stage if stage is None else (first,)
        cut = out.copy()
        for step in members:
            for source in self._inputs[step]:
                cut[source] = below(out[source], end)
        if stage is None:
            self._run_loop(self._loops[first], cut, end, ends, initial_inputs)
        else:
            self._run_step(first, stage, cut, end, initial_inputs)
        for step in members:
            out[step] = cut[step]

    def _stop(self, steps: set[int]) -> None:
        """These steps say nothing any more."""
        self._dead |= steps
        self._stages = {first: stage for first, stage in self._stages.items() if first not in self._dead}
        self._loops = {first: loop for first, loop in self._loops.items() if first not in self._dead}

    @property
    def dead(self) -> set[int]:
        """The steps that were stopped."""
        return self._dead

    def _run_newborn(
        self, loop: Loop, out: list[Batch], upto: Frontier, initial_inputs: InitialInputs
    ) -> Frontier | None:
        """Runs a loop whose steps get further input, each its own: there it reads a union for this once."""
        seen, steps, operators = out.copy(), dict(self._steps), self._operators.copy()
        stage: list[int] = []
        for step in loop.stage:
            inputs = list(self._inputs[step])
            for position, batch in initial_inputs.get(step, {}).items():
                node = self.node(inputs[position])
                both = twice(node)
                given, united = len(seen), len(seen) + 1
                steps[given] = Step(given, node, ())
                steps[united] = Step(united, both, (given, inputs[position]))
                seen += [batch, empty(batch.columns)]
                operators += [None, instantiate(both, self._context)]
                stage.append(united)
                inputs[position] = united
            steps[step] = Step(step, self.node(step), tuple(inputs))
            stage.append(step)
        once = Loop(steps, stage, operators, self._context, self._max_ticks, loop.kept)
        stuck = once.run(seen, upto)
        once.save()
        loop.load()
        for step in loop.stage:
            out[step] = seen[step]
        return stuck

    def save_loops(self) -> None:
        """Before anybody looks at operators; whoever changes one does so before the next run."""
        self._handed_out = True
        for loop in self._loops.values():
            loop.save()

    def _load_loops(self) -> None:
        self._handed_out = False
        for loop in self._loops.values():
            loop.load()

    # ------------------------------------------------------------ state

    def snapshot(self) -> dict[int, State]:
        self.save_loops()
        return {step: each.snapshot() for step, each in enumerate(self._operators) if each is not None}

    def held_words(self) -> Iterator[I64]:
        """Every word that steps hold and that may be the code of a text."""
        self.save_loops()
        for initial_inputs in self._initial_inputs.values():
            yield from (batch.data for batch in initial_inputs.values())
        for step, operator in enumerate(self._operators):
            if operator is not None and _knows_texts(self.node(step)):
                yield from operator.held_words()

    def restore(self, states: Mapping[int, State], begun: bool, dead: Sequence[int] = ()) -> None:
        self.begun = begun
        if dead:
            self._stop(set(dead))
            self.stopped.append(stopped_before(self._names, self._dead))
        for step, operator in enumerate(self._operators):
            if operator is not None:
                operator.restore(states[step])
        self.share(self.steps, None)
        self._load_loops()

    def renew(self) -> None:
        """Throws all operators away and makes them anew from their snapshots, as a restart does."""
        states = self.snapshot()
        self._pool = {}
        for step, state in states.items():
            self._make(step, self.node(step), self._inputs[step])
            self.operator(step).restore(state)
        self._loops = {}
        self.order_stages()
        self.share(self.steps, None)

    def next_instant(self) -> Frontier | None:
        """The first instant at which some window or delay will move without input."""
        self.save_loops()
        found = [each.next_instant() for each in self._living()]
        return min((each for each in found if each is not None), default=None)

    def last_instant(self) -> Frontier | None:
        """The last instant at which what windows hold now will leave them."""
        self.save_loops()
        found = [each.last_instant() for each in self._living()]
        return max((each for each in found if each is not None), default=None)

    def _living(self) -> Iterator[Operator]:
        for step, operator in enumerate(self._operators):
            if operator is not None and step not in self._dead:
                yield operator

    def end_input(self) -> None:
        """From now on delays deliver nothing."""
        self.save_loops()
        for operator in self._operators:
            if operator is not None:
                operator.end_input()
        self._load_loops()

    @property
    def operators(self) -> list[Operator | None]:
        """The operator of each step; None for an input's."""
        self.save_loops()
        return self._operators


def _knows_texts(node: Node) -> bool:
    """Whether any column is a text of what a step reads or puts out: it holds nothing else."""
    return any(field.type.kind is Kind.VARCHAR for each in (node, *node.children) for field in each.schema)


def below(batch: Batch, end: Frontier) -> Batch:
    """The changes before an instant."""
    if not len(batch) or (batch.ts[-1], batch.seq_tick[-1]) < end:
        return batch
    return batch.where((batch.ts < end.ts) | ((batch.ts == end.ts) & (batch.seq_tick < end.seq_tick)))
