"""Makes a change of the queries of this process ready: places steps, and finds what these begin with.

The change may be refused until it is ready; then it leaves no trace. A query that comes at t gets windows of
its own, empty at t. What the relations that it reads hold enters at t. A query that replaces another one, or
that is backfilled, takes in what was before in silence, and its relation emits the difference at t.
"""

from __future__ import annotations

from kasen.engine.batch import Batch, Frontier, empty
from kasen.engine.window.held_tuples import HeldTuples
from kasen.plan.changes import Register
from kasen.plan.keep.kept_windows import KeptWindows
from kasen.plan.keep.memories import is_stateless
from kasen.plan.keep.rstream import cannot_be_replaced, cannot_begin, relations_below_rstream
from kasen.plan.logical import Node, Ref, Scan, WindowActivity
from kasen.runtime.live.contents import Contents, at, bag, difference, inserted
from kasen.runtime.live.contents_before import ContentsBefore
from kasen.runtime.live.pending_splices import PendingSplices
from kasen.runtime.live.query_steps import QuerySteps
from kasen.runtime.live.shared_steps import UNRESOLVED, StateOrigin, StepKey
from kasen.runtime.live.splice import (
    BACKFILLED,
    BEGINNING,
    NEW,
    REPLACED,
    LiveQuery,
    PlannedQuery,
    Retained,
    Splice,
)


class SpliceBuilder:
    """One change on its way to take effect at `time`, which is None before the beginning."""

    def __init__(
        self,
        live: QuerySteps,
        contents: Contents,
        pending: PendingSplices,
        time: int | None,
        retained: Retained,
    ) -> None:
        self.splice = Splice()
        self.contents = contents
        self._live = live
        self.graph = live.graph
        self._pending = pending
        self._time = time
        self._retained = retained
        self._placed: dict[str, PlacedQuery] = {}

    # ------------------------------------------------------------ steps

    def place(self, action: Register, planned: PlannedQuery) -> None:
        """Finds or makes the steps of a query."""
        key, time = action.query.name.lower(), self._time
        old = self._live.queries.get(key)
        began = BEGINNING if time is None else (time, BACKFILLED if action.backfill else NEW)
        kept = planned.kept if time is not None else KeptWindows()
        if old is not None and time is not None:
            began = (time, REPLACED)
            if kept.refusal is not None:
                raise kept.refusal
        query = LiveQuery(action.query, planned.plan, {}, {}, UNRESOLVED, began, planned.in_loop)
        own_steps: set[int] = set()
        for node in planned.nodes:
            since = began if node in planned.remember else None
            if old is not None and node in kept.steps:
                since = old.since[node]
            elif time is not None and node in kept.rebuilt:
                since = self._live.rebuilt_since(time)
            step, is_new = self._place_step(node, query, since)
            if is_new and not isinstance(node, Scan):
                own_steps.add(step)
        query.root = query.steps[planned.plan]
        self.splice.new_queries[key] = query
        if time is not None:
            past = self._retained if action.backfill else None
            self._placed[key] = PlacedQuery(self, query, old, kept, own_steps, time, past)

    def _place_step(self, node: Node, query: LiveQuery, since: StateOrigin | None) -> tuple[int, bool]:
        inputs = tuple([self._source(child, query) for child in node.children])
        step, is_new = self._live.place(StepKey(node, inputs, since))
        if is_new:
            self.splice.new_steps.append(step)
            for position, child in enumerate(node.children):
                if inputs[position] == UNRESOLVED:
                    assert isinstance(child, Ref)
                    self.splice.unresolved.append((step, position, child.name.lower()))
        query.steps[node] = step
        query.since[node] = since
        return step, is_new

    def _source(self, child: Node, query: LiveQuery) -> int:
        if not isinstance(child, Ref):
            return query.steps[child]
        key = child.name.lower()
        # A query that the same change replaces is read where it was: then steps that are kept are found.
        # All its readers move when the change is committed.
        found = self._live.queries.get(key) or self.splice.new_queries.get(key)
        # A loop leads to a query that is still to be placed.
        return UNRESOLVED if found is None else found.root

    # ------------------------------------------------------------ what a query begins with

    def begin(self) -> None:
        """Finds what the queries that come while data flows begin with.

        Queries of a loop read one another: all must have been placed.
        """
        for placed in self._placed.values():
            self._begin(placed)

    def _begin(self, placed: PlacedQuery) -> None:
        query = placed.query
        if placed.old is not None:
            self._check_rstream_readers(query.registered.name)
        self._check_rstream(placed)
        if placed.silent:
            self._prime(placed)
        else:
            self._inject(placed)
        if placed.has_transition:
            self._emit_transition(placed)

    def _inject(self, placed: PlacedQuery) -> None:
        """What the relations that a query reads hold enters at the instant it comes."""
        for node, step in placed.query.steps.items():
            if step not in placed.new_steps:
                continue
            for position, child in enumerate(node.children):
                flows = not isinstance(child, Ref) and placed.query.steps[child] in placed.new_steps
                if not flows and not child.is_stream:
                    batch = at(placed.contents(child), placed.change_at)
                    self.splice.initial_inputs.append((step, position, batch))

    def _prime(self, placed: PlacedQuery) -> None:
        """New steps of a query take in what was before, in silence."""
        for node, step in placed.query.steps.items():
            if step in placed.new_steps and not is_stateless(node):
                changes = placed.contents(node)
                self.splice.primed[step] = empty(changes.columns) if node.is_stream else bag(changes)

    def _emit_transition(self, placed: PlacedQuery) -> None:
        """A relation changes from what it held to what it holds now, for its sink and its readers."""
        query, old = placed.query, placed.old
        name = query.registered.name
        holds = self.relation_before(name)
        if old is None or old.registered.schema.types != query.registered.schema.types:
            self.splice.transitions[name] = at(holds, placed.change_at)
            return
        held = empty(len(old.plan.schema)) if old.plan.is_stream else self._live_contents(old)
        change = difference(holds, held, placed.change_at)
        self.splice.transitions[name] = change
        for step, position in self._live.readers(query.key):
            self.splice.initial_inputs.append((step, position, change))

    # ------------------------------------------------------------ what was before

    def step_before(self, step: int) -> Batch:
        """What a step that remembers held before the change, as far as it will not flow in by itself."""
        for primed in (self.splice.primed, self._pending.primed):
            if step in primed:
                return primed[step]
        if step in self.splice.new_steps or step in self._pending.steps:
            return empty(len(self.graph.node(step).schema))
        return self.contents.of(step)

    def relation_before(self, name: str) -> Batch:
        """What another query's relation holds before the change, as far as it will not flow in by itself."""
        key = name.lower()
        placed = self._placed.get(key)
        if placed is None:
            return self._live_contents(self._live.queries[key])
        query = placed.query
        if not placed.has_transition:
            return empty(len(query.plan.schema))
        if query.initial is None:
            query.initial = bag(placed.contents(query.plan))
        return query.initial

    def _live_contents(self, query: LiveQuery) -> Batch:
        """What a live relation holds, as far as it will not flow in by itself."""
        if query.initial is not None:
            return query.initial
        has_not_run = query.key in self._pending.queries
        return empty(len(query.plan.schema)) if has_not_run else self.contents.of(query.root)

    # ------------------------------------------------------------ RSTREAM

    def _check_rstream(self, placed: PlacedQuery) -> None:
        if not any(isinstance(self.graph.node(step), WindowActivity) for step in placed.new_steps):
            return
        began = placed.query.began
        for ref in relations_below_rstream(placed.query.plan):
            key = ref.name.lower()
            found = self.splice.new_queries.get(key) or self._live.queries[key]
            if found.began != began or began[1] != NEW:
                raise cannot_begin(ref.name)

    def _check_rstream_readers(self, name: str) -> None:
        """RSTREAM has steps of its own for the windows of the relation queries below it."""
        todo, seen = [name.lower()], {name.lower()}
        while todo:
            for step, _ in self._live.readers(todo.pop()):
                for reader in self._live.shared.users(step) - seen - self.splice.new_queries.keys():
                    seen.add(reader)
                    plan = self._live.queries[reader].plan
                    if name.lower() in {ref.name.lower() for ref in relations_below_rstream(plan)}:
                        raise cannot_be_replaced(name, reader)
                    if not plan.is_stream:
                        todo.append(reader)


class PlacedQuery(ContentsBefore[Node]):
    """A query whose steps are in the graph, before the change takes effect; `new_steps` were made for it.

    `past` is what streams have retained, if the query is backfilled.
    """

    def __init__(
        self,
        builder: SpliceBuilder,
        query: LiveQuery,
        old: LiveQuery | None,
        kept: KeptWindows,
        new_steps: set[int],
        time: int,
        past: Retained | None,
    ) -> None:
        self.query = query
        self.old = old
        #: Whether it takes in what was before in silence.
        self.silent = old is not None or past is not None
        self._builder = builder
        self._kept = kept
        self._past = past
        #: What inputs of new steps begin with, of windows that the replaced query has, too.
        self._replayed: dict[tuple[Node, int], HeldTuples] = {}
        if old is not None:
            for (node, position), replay in kept.replays.items():
                source = old.steps[replay.source]
                held = builder.contents.replayed(replay, source, node, position, time)
                self._replayed[node, position] = held
        before = [*(past or {}).values(), *(held.batch for held in self._replayed.values())]
        start = min((int(batch.ts[0]) for batch in before if len(batch)), default=time - 1)
        super().__init__(builder.graph, new_steps, Frontier(start), Frontier(time))

    @property
    def has_transition(self) -> bool:
        """Whether what its relation holds at the beginning does not flow out of its steps by itself."""
        return not self.query.plan.is_stream and (self.silent or self.query.root not in self.new_steps)

    def _node(self, plan_step: Node) -> Node:
        return plan_step

    def _step(self, plan_step: Node) -> int:
        return self.query.steps[plan_step]

    def _stream(self, node: Ref | Scan) -> Batch:
        nothing = super()._stream(node)
        return self._past.get(node.name, nothing) if self._past and isinstance(node, Scan) else nothing

    def _has_past(self) -> bool:
        return self._past is not None

    def _relation(self, node: Ref | Scan) -> Batch:
        if isinstance(node, Scan):
            return self._builder.contents.table(node.name)
        return self._builder.relation_before(node.name)

    def _held(self, step: int) -> Batch:
        return self._builder.step_before(step)

    def _fill(self, plan_step: Node, node: Node, step: int) -> Batch:
        if node in self._kept.regroups:
            return self._take_over(node, step)
        return super()._fill(plan_step, node, step)

    def _take_over(self, node: Node, step: int) -> Batch:
        """A new aggregate goes on with the groups of an old one."""
        regroup = self._kept.regroups[node]
        assert self.old is not None
        new = self.graph.operator(step)
        old = self.graph.operator(self.old.steps[regroup.source])
        new.take_over(old, regroup.calls, self.change_at.ts)
        held = new.contents()
        assert held is not None
        return at(inserted(held), self.begins_at)

    def _inputs(self, plan_step: Node) -> list[Batch]:
        operator = self.graph.operator(self._step(plan_step))
        inputs = []
        for position, child in enumerate(plan_step.children):
            replayed = self._replayed.get((plan_step, position))
            if replayed is not None:
                operator.count_on(replayed.first)
            inputs.append(self.contents(child) if replayed is None else replayed.batch)
        return inputs
