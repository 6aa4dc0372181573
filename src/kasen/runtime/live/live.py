"""Queries come and go while data flows: which steps each of them has, and how a change is spliced in.

Steps are found by what they are: the plan's node, the steps it reads, and, if it remembers anything, since
when. So queries share all that remembers nothing at once, and state if they came together. A query that
comes at t gets windows of its own, empty at t; what it reads of relations that are there enters at t.
A change is made ready first, which may fail and then leaves no trace; committing it cannot fail.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from kasen.engine.batch import Batch, Frontier, concat, empty
from kasen.engine.operator import State
from kasen.engine.window.held_tuples import HeldTuples
from kasen.errors import QueryError
from kasen.plan.build import Names
from kasen.plan.changes import (
    CatalogChange,
    Drop,
    LiveCatalog,
    Register,
    RegisteredQuery,
    StreamKind,
    statement_of,
)
from kasen.plan.keep.kept_windows import KeptWindows, QueryInCatalog, keep
from kasen.plan.keep.memories import is_stateless
from kasen.plan.logical import Delay, Node, Ref, Scan, Streamify, WindowActivity, walk
from kasen.plan.lower.instantiate import Context
from kasen.plan.physical import own_nodes, plan_query
from kasen.runtime.graph.graph import Graph
from kasen.runtime.live.contents import Contents, Tables, at, bag, difference, inserted

#: When a step began to remember, and how: steps that began in different ways are not the same.
StateOrigin = tuple[int, int]
_NEW, _BACKFILLED, _REPLACED = range(3)
#: From here on: steps that began with the contents of other steps; each of them is unique.
_FIRST_REBUILT = 3
BEGINNING: StateOrigin = (-(2**63), 0)

#: The tuples that streams have retained, by name, at their own instants.
Retained = Mapping[str, Batch]

_StepKey = tuple[Node, StateOrigin | None, tuple[int, ...]]
_UNRESOLVED = -1


@dataclass(slots=True)
class LiveQuery:
    """A query with its steps, inputs first; the last is where its answers come from.

    `since` says for each step since when it remembers (None: it remembers nothing).
    """

    registered: RegisteredQuery
    plan: Node
    steps: dict[Node, int]
    since: dict[Node, StateOrigin | None]
    root: int
    began: StateOrigin
    in_loop: bool = False
    #: Until it has run: what it held before it came, if that does not flow out of its steps by itself.
    initial: Batch | None = None


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query that is to come: its plan, the plan's own nodes, inputs first, and those that remember.

    `kept` is what it goes on with of the query that it replaces.
    """

    plan: Node
    nodes: tuple[Node, ...]
    remember: frozenset[Node]
    kept: KeptWindows
    in_loop: bool

    @staticmethod
    def of(
        text: QueryInCatalog, plan: Node, old: LiveQuery | None, before: Names, *, in_loop: bool
    ) -> PlannedQuery:
        """`old` is the query that has its name, as the catalog `before` the change knows it."""
        nodes = own_nodes(plan)
        kept = (
            KeptWindows()
            if old is None
            else keep(QueryInCatalog(old.registered, before), old.plan, text, plan)
        )
        remember = frozenset(node for node in nodes if not is_stateless(node))
        return PlannedQuery(plan, tuple(nodes), remember, kept, in_loop)


@dataclass(slots=True)
class _PlacedQuery:
    """A query that is being placed: the steps made for it, and what it begins from."""

    query: LiveQuery
    old: LiveQuery | None
    own_steps: set[int]
    time: int
    begins_at: Frontier
    retained: Retained
    backfilled: bool
    kept: KeptWindows
    #: What inputs of new steps begin with.
    replayed: Mapping[tuple[Node, int], HeldTuples]
    contents_before: dict[Node, Batch] = field(default_factory=dict)

    @property
    def silent(self) -> bool:
        """Whether it takes in what was before in silence, because it goes on or is backfilled."""
        return self.old is not None or self.backfilled


@dataclass(slots=True)
class Splice:
    """A change made ready: what comes, what is then read elsewhere, what is to be told at once."""

    new_queries: dict[str, LiveQuery] = field(default_factory=dict)
    placed: dict[str, _PlacedQuery] = field(default_factory=dict)
    new_steps: list[int] = field(default_factory=list)
    #: What relations hold that were made anew just now; their changes begin from there.
    primed: dict[int, Batch] = field(default_factory=dict)
    initial_inputs: list[tuple[int, int, Batch]] = field(default_factory=list)
    #: What leaves a query at the instant of the change beside what its step puts out.
    transitions: dict[str, Batch] = field(default_factory=dict)
    unresolved: list[tuple[int, int, str]] = field(default_factory=list)


class LiveQueries:
    """The queries of a running graph."""

    def __init__(self, graph: Graph, context: Context, tables: Tables) -> None:
        self._graph = graph
        self._contents = Contents(graph, context, tables)
        self._steps: dict[_StepKey, int] = {}
        self._keys: dict[int, _StepKey] = {}
        self._users: dict[int, set[str]] = {}
        self._readers: dict[str, set[tuple[int, int]]] = {}
        self._new_steps: set[int] = set()
        self._new_queries: set[str] = set()
        self._primed: dict[int, Batch] = {}
        self._rebuilt = _FIRST_REBUILT
        self.queries: dict[str, LiveQuery] = {}
        self.transitions: dict[str, Batch] = {}

    # ------------------------------------------------------------ what is there

    def adopt(self, query: RegisteredQuery, plan: Node, steps: Mapping[Node, int], *, in_loop: bool) -> None:
        """A query that the graph was made with."""
        since = {node: None if is_stateless(node) else BEGINNING for node in steps}
        self._enter(LiveQuery(query, plan, dict(steps), since, steps[plan], BEGINNING, in_loop))

    def shared_with(self, name: str) -> set[str]:
        """The other queries that have a step, or its panes, in common with this one, beyond the inputs."""
        mine = self.queries[name.lower()]
        own = [step for node, step in mine.steps.items() if node.children]
        found = {each for step in own for each in self._users[step]}
        fellows = {each for step in own for each in self._graph.operator(step).fellows()}
        if fellows:
            for step, operator in enumerate(self._graph.operators):
                if operator in fellows:
                    found |= self._users[step]
        return found - {name.lower()}

    def reads(self, name: str) -> list[str]:
        """The inputs and the other queries that a query reads."""
        mine = self.queries[name.lower()]
        refs = (child for node in mine.steps for child in node.children if isinstance(child, Ref))
        queries = {self.queries[each.name.lower()].registered.name for each in refs}
        return sorted(queries | {node.name for node in mine.steps if isinstance(node, Scan)})

    def users(self, step: int) -> set[str]:
        """The queries that have a step, in lower case."""
        return set(self._users.get(step, ()))

    @property
    def groups(self) -> int:
        """How many groups the aggregates of all queries have; one that several share counts once."""
        operators = (self._graph.operators[step] for step, users in self._users.items() if users)
        return sum(each.groups for each in operators if each is not None)

    @property
    def all_state_bytes(self) -> int:
        """The size of what all queries remember; what several share counts once."""
        remembering = {
            query.steps[node]
            for query in self.queries.values()
            for node, since in query.since.items()
            if since
        }
        states = (self._graph.operator(step).snapshot() for step in remembering)
        return sum(int(array.nbytes) for state in states for array in state.values())

    def state_bytes(self, name: str) -> int:
        """The size of what the steps of a query remember, those that it shares included."""
        query = self.queries[name.lower()]
        states = [
            self._graph.operator(query.steps[node]).snapshot() for node, since in query.since.items() if since
        ]
        return sum(int(array.nbytes) for state in states for array in state.values())

    def finish_run(self) -> dict[str, Batch]:
        """Everything that came has run: from now on it is like the rest. Returns what is to be told first."""
        told = self.transitions
        if not (self._new_queries or self._new_steps or self._primed or told):
            return told
        for key in self._new_queries:
            if key in self.queries:
                self.queries[key].initial = None
        self._new_queries.clear()
        self._new_steps.clear()
        self._primed.clear()
        self.transitions = {}
        return told

    # ------------------------------------------------------------ the durable catalog

    def save_queries(self) -> list[dict[str, Any]]:
        """The queries with the numbers of their steps, for `rebuild`."""
        return [
            {
                "name": query.registered.name.lower(),
                "statement": statement_of(Register(query.registered)),
                "in_loop": query.in_loop,
                "began": query.began,
                "steps": list(query.steps.values()),
                "since": list(query.since.values()),
            }
            for query in self.queries.values()
        ]

    def rebuild(self, saved: list[dict[str, Any]], catalog: LiveCatalog) -> None:
        """The queries and steps as they were saved; `catalog` has inputs only, and gets the queries."""
        self._steps, self._keys, self._users, self._readers = {}, {}, {}, {}
        self.queries = {}
        self._graph.outputs = {}
        for change in catalog.bind(";\n".join(one["statement"] for one in saved)):
            catalog.apply(change)
        catalog.looped = {one["name"] for one in saved if one["in_loop"]}
        found: list[LiveQuery] = []
        for one in saved:
            query = catalog.queries[one["name"]]
            plan = plan_query(query, catalog, in_loop=one["in_loop"])
            nodes = own_nodes(plan)
            since = [tuple(each) if each is not None else None for each in one["since"]]
            steps = dict(zip(nodes, one["steps"], strict=True))
            began = (one["began"][0], one["began"][1])
            kept = cast("dict[Node, StateOrigin | None]", dict(zip(nodes, since, strict=True)))
            found.append(LiveQuery(query, plan, steps, kept, steps[plan], began, one["in_loop"]))
        roots = {one.registered.name.lower(): one.root for one in found}
        placed: dict[int, tuple[Node, tuple[int, ...]]] = {}
        for each in found:
            for node, step in each.steps.items():
                reads = (
                    roots[c.name.lower()] if isinstance(c, Ref) else each.steps[c] for c in node.children
                )
                placed[step] = (node, tuple(reads))
        self._graph.rebuild(placed)
        for each in found:
            self._enter(each)
        self._graph.settle()

    def save_pending(self) -> dict[str, State]:
        """What a change that has not run yet left behind."""
        found: dict[str, State] = {}
        if self._new_steps or self._new_queries or self.transitions:
            names = {"came": sorted(self._new_queries), "born": sorted(self._new_steps)}
            found["live.names"] = {"json": np.frombuffer(json.dumps(names).encode(), np.uint8)}
            for step, initial_inputs in self._graph.initial_inputs.items():
                for position, batch in initial_inputs.items():
                    found[f"live.birth.{step}.{position}"] = _pack(batch)
            found |= {f"live.told.{name}": _pack(batch) for name, batch in self.transitions.items()}
            found |= {f"live.primed.{step}": _pack(batch) for step, batch in self._primed.items()}
            for key in self._new_queries:
                initial = self.queries[key].initial
                if initial is not None:
                    found[f"live.initial.{key}"] = _pack(initial)
        return found

    def restore_pending(self, states: Mapping[str, State]) -> None:
        """The counterpart of `pending`."""
        names = json.loads(states["live.names"]["json"].tobytes())
        self._new_queries, self._new_steps = set(names["came"]), set(names["born"])
        for key, state in states.items():
            if key.startswith("live.birth."):
                step, position = key.removeprefix("live.birth.").split(".")
                self._graph.inject(int(step), int(position), _unpack(state))
            elif key.startswith("live.told."):
                self.transitions[key.removeprefix("live.told.")] = _unpack(state)
            elif key.startswith("live.primed."):
                self._primed[int(key.removeprefix("live.primed."))] = _unpack(state)
            elif key.startswith("live.initial."):
                self.queries[key.removeprefix("live.initial.")].initial = _unpack(state)

    # ------------------------------------------------------------ changing

    def prepare(
        self, change: CatalogChange, plans: Mapping[str, PlannedQuery], time: int | None, retained: Retained
    ) -> Splice:
        """Makes a change ready, to be committed before anything runs; `time` is None before the beginning."""
        splice = Splice()
        self._check_stopped(change, plans)
        self._graph.save_loops()
        try:
            for action in change.actions:
                if isinstance(action, Register):
                    self._place(action, plans[action.query.name.lower()], time, splice, retained)
            # Queries of a loop read one another: all are placed before any begins.
            for placed in splice.placed.values():
                self._begin(placed, splice)
        except BaseException:
            self._undo(splice)
            raise
        return splice

    def _check_stopped(self, change: CatalogChange, plans: Mapping[str, PlannedQuery]) -> None:
        """What was stopped has no end that anything could go on from."""
        if not self._graph.dead:
            return
        comes = {action.query.name.lower() for action in change.actions if isinstance(action, Register)}
        for name in comes:
            reads = {node.name.lower() for node in walk(plans[name].plan) if isinstance(node, Ref)}
            for key in sorted({name, *reads}):
                found = self.queries.get(key)
                if found is not None and found.root in self._graph.dead:
                    fault = f"{found.registered.name} was stopped: its loop did not come to rest"
                    remedy = f"DROP QUERY {found.registered.name} CASCADE first, and register the loop anew"
                    raise QueryError(fault, remedy=remedy)

    def commit(self, change: CatalogChange, splice: Splice, time: int | None) -> None:
        """The change takes effect: cheap, and sure to work."""
        old = {key: self.queries[key] for key in splice.new_queries if key in self.queries}
        for query in splice.new_queries.values():
            self._enter(query)
        for step, position, name in splice.unresolved:
            self._repoint(step, position, splice.new_queries[name].root)
        for key, query in old.items():
            self._move_readers(key, query.root, splice.new_queries[key].root)
            self._release(key, query.steps.values(), keep=set(splice.new_queries[key].steps.values()))
        for action in change.actions:
            if isinstance(action, Drop):
                key = action.name.lower()
                query = self.queries.pop(key)
                self._release(key, query.steps.values(), keep=set())
                self._graph.outputs.pop(query.registered.name)
                self._readers.pop(key, None)
                self.transitions.pop(query.registered.name, None)
        self._graph.settle()
        for step, position, batch in splice.initial_inputs:
            if step in self._keys:  # readers may be replaced, too
                self._graph.inject(step, position, batch)
        if time is not None:
            empty_yet = [step for step in splice.new_steps if step not in splice.primed]
            self._graph.begin_steps(empty_yet, Frontier(time))
            self._graph.share(empty_yet, Frontier(time))
            self._graph.share(splice.primed, None)
            self._new_steps.update(splice.new_steps)
            self._new_queries.update(splice.new_queries)
            self._primed |= splice.primed
            for name, batch in splice.transitions.items():
                before = self.transitions.get(name)
                self.transitions[name] = batch if before is None else concat((before, batch), batch.columns)

    # ------------------------------------------------------------ placing

    def _place(
        self,
        action: Register,
        planned: PlannedQuery,
        time: int | None,
        splice: Splice,
        retained: Retained,
    ) -> None:
        name = action.query.name
        old = self.queries.get(name.lower())
        began = BEGINNING if time is None else (time, _BACKFILLED if action.backfill else _NEW)
        kept = planned.kept if time is not None else KeptWindows()
        if old is not None and time is not None:
            began = (time, _REPLACED)
            if kept.refusal is not None:
                raise kept.refusal
        query = LiveQuery(action.query, planned.plan, {}, {}, _UNRESOLVED, began, planned.in_loop)
        mine: list[int] = []
        for node in planned.nodes:
            since = began if node in planned.remember else None
            if old is not None and node in kept.steps:
                since = old.since[node]
            elif time is not None and node in kept.rebuilt:
                since = (time, self._rebuilt)
                self._rebuilt += 1
            self._step(node, query, since, splice, mine)
        query.root = query.steps[planned.plan]
        splice.new_queries[name.lower()] = query
        if time is not None:
            past = retained if action.backfill else {}
            replayed = {} if old is None else self._replayed(kept, old, time)
            known = [*past.values(), *(held.batch for held in replayed.values())]
            start = min((int(batch.ts[0]) for batch in known if len(batch)), default=time - 1)
            splice.placed[name.lower()] = _PlacedQuery(
                query, old, set(mine), time, Frontier(start), past, action.backfill, kept, replayed
            )

    def _replayed(self, kept: KeptWindows, old: LiveQuery, time: int) -> dict[tuple[Node, int], HeldTuples]:
        """What inputs of new steps begin with of the windows that the old text has, too."""
        return {
            (node, position): self._contents.replayed(replay, old.steps[replay.source], node, position, time)
            for (node, position), replay in kept.replays.items()
        }

    def _begin(self, placed: _PlacedQuery, splice: Splice) -> None:
        """What a query that comes while data flows begins with."""
        query = placed.query
        if placed.old is not None:
            self._check_rstream_readers(query.registered.name, splice)
        self._check_rstream(query.plan, placed.own_steps, query.began, splice)
        if placed.silent:
            self._prime(placed, splice)
        else:
            self._inject(placed, splice)
        if _has_transition(placed):
            self._emit_transition(placed, splice)

    def _step(
        self, node: Node, query: LiveQuery, since: StateOrigin | None, splice: Splice, mine: list[int]
    ) -> None:
        """The step for a node: one that is there, or a new one."""
        inputs = tuple([self._source(child, query, splice) for child in node.children])
        key = (node, since, inputs)
        step = self._steps.get(key)
        if step is None:
            step = self._graph.add(node, inputs)
            self._steps[key] = step
            self._keys[step] = key
            splice.new_steps.append(step)
            if not isinstance(node, Scan):
                mine.append(step)
            for position, child in enumerate(node.children):
                if inputs[position] == _UNRESOLVED:
                    assert isinstance(child, Ref)
                    splice.unresolved.append((step, position, child.name.lower()))
        query.steps[node] = step
        query.since[node] = since

    def _source(self, child: Node, query: LiveQuery, splice: Splice) -> int:
        if not isinstance(child, Ref):
            return query.steps[child]
        key = child.name.lower()
        # One that is replaced in the same change is read where it was: so steps that are kept are found.
        # All its readers move when the change is committed.
        found = self.queries.get(key) or splice.new_queries.get(key)
        # A loop leads to a query that is still to be placed.
        return _UNRESOLVED if found is None else found.root

    # ------------------------------------------------------------ what is there enters

    def _inject(self, placed: _PlacedQuery, splice: Splice) -> None:
        """A query's beginning: what the relations that it reads hold enters at the instant it comes."""
        time = placed.time
        for node, step in placed.query.steps.items():
            if step not in placed.own_steps:
                continue
            for position, child in enumerate(node.children):
                flows = not isinstance(child, Ref) and placed.query.steps[child] in placed.own_steps
                if not flows and not child.is_stream:
                    batch = at(self._seen_before(child, placed, splice), Frontier(time))
                    splice.initial_inputs.append((step, position, batch))

    def _prime(self, placed: _PlacedQuery, splice: Splice) -> None:
        """New steps of a query that goes on, or that is backfilled, take in what was before, in silence."""
        for node, step in placed.query.steps.items():
            if step in placed.own_steps and not is_stateless(node):
                changes = self._seen_before(node, placed, splice)
                splice.primed[step] = empty(changes.columns) if node.is_stream else bag(changes)

    def _seen_before(self, node: Node, placed: _PlacedQuery, splice: Splice) -> Batch:
        """What a query sees at a node before the change: of streams, what is retained for it.

        Windows of its own that remember nothing are empty, also if other queries have the same ones.
        """
        if node not in placed.contents_before:
            placed.contents_before[node] = self._compute_before(node, placed, splice)
        return placed.contents_before[node]

    def _compute_before(self, node: Node, placed: _PlacedQuery, splice: Splice) -> Batch:
        nothing = empty(len(node.schema))
        if isinstance(node, Ref):
            return (
                nothing if node.is_stream else at(self._relation_before(node.name, splice), placed.begins_at)
            )
        if isinstance(node, Scan):
            if node.is_stream:
                return placed.retained.get(node.name, nothing)
            return at(self._contents.table(node.name), placed.begins_at)
        step = placed.query.steps[node]
        if not is_stateless(node) and step not in placed.own_steps:
            return nothing if node.is_stream else at(self._step_before(step, splice), placed.begins_at)
        if isinstance(node, Delay):
            return nothing  # what was on its way before the change is never delivered
        if node in placed.kept.regroups:
            return self._take_over(node, placed)
        if not is_stateless(node):
            self._graph.begin_steps([step], placed.begins_at)
        operator = self._graph.operator(step)
        inputs = []
        for position, child in enumerate(node.children):
            replayed = placed.replayed.get((node, position))
            inputs.append(self._seen_before(child, placed, splice) if replayed is None else replayed.batch)
            if replayed is not None:
                operator.count_on(replayed.first)
        changes = operator.process(inputs, Frontier(placed.time))
        # A stream within a query that goes on does not tell again what its relation held before.
        return nothing if isinstance(node, Streamify) and not placed.backfilled else changes

    def _take_over(self, node: Node, placed: _PlacedQuery) -> Batch:
        """A new aggregate goes on with the groups of an old one."""
        regroup = placed.kept.regroups[node]
        assert placed.old is not None
        new = self._graph.operator(placed.query.steps[node])
        old = self._graph.operator(placed.old.steps[regroup.source])
        new.take_over(old, regroup.calls, placed.time)
        holds = new.contents()
        assert holds is not None
        return at(inserted(holds), placed.begins_at)

    def _step_before(self, step: int, splice: Splice) -> Batch:
        """What a step that remembers held before the change, as far as it will not flow in by itself."""
        if step in splice.primed:
            return splice.primed[step]
        if step in self._primed:
            return self._primed[step]
        if step in splice.new_steps or step in self._new_steps:
            return empty(len(self._graph.node(step).schema))
        return self._contents.of(step)

    def _relation_before(self, name: str, splice: Splice) -> Batch:
        """What another query's relation holds before the change, as far as it will not flow in by itself."""
        key = name.lower()
        placed = splice.placed.get(key)
        if placed is None:
            return self._live_contents(self.queries[key])
        if not _has_transition(placed):
            return empty(len(placed.query.plan.schema))
        if placed.query.initial is None:
            placed.query.initial = bag(self._seen_before(placed.query.plan, placed, splice))
        return placed.query.initial

    def _live_contents(self, query: LiveQuery) -> Batch:
        """What a relation that is there holds, as far as it will not flow in by itself."""
        if query.initial is not None:
            return query.initial
        born = query.registered.name.lower() in self._new_queries
        return empty(len(query.plan.schema)) if born else self._contents.of(query.root)

    def _emit_transition(self, placed: _PlacedQuery, splice: Splice) -> None:
        """A relation goes over from what it held to what it holds now, for its sink and its readers."""
        query, old = placed.query, placed.old
        name = query.registered.name
        holds = self._relation_before(name, splice)
        if old is None or old.registered.schema.types != query.registered.schema.types:
            splice.transitions[name] = at(holds, Frontier(placed.time))
            return
        was = empty(len(old.plan.schema)) if old.plan.is_stream else self._live_contents(old)
        change = difference(holds, was, Frontier(placed.time))
        splice.transitions[name] = change
        for step, position in self._readers.get(name.lower(), ()):
            splice.initial_inputs.append((step, position, change))

    def _check_rstream(self, plan: Node, mine: set[int], began: StateOrigin, splice: Splice) -> None:
        """RSTREAM over a relation query fires when that one's windows move, also by what they held before.

        It looks at these windows by steps of its own, which know only what comes from now on.
        """
        if not any(isinstance(self._graph.node(step), WindowActivity) for step in mine):
            return
        for name in _relations_below_rstream(plan):
            found = splice.new_queries.get(name.lower()) or self.queries[name.lower()]
            if found.began != began or began[1] != _NEW:
                fault = f"RSTREAM cannot begin over {name} now: it fires when windows of {name} move"
                remedy = f"register both together, or write RSTREAM[d] or ISTREAM over {name}"
                raise QueryError(fault, remedy=remedy)

    def _check_rstream_readers(self, name: str, splice: Splice) -> None:
        """RSTREAM has steps of its own for the windows of the relation queries below it."""
        todo, seen = [name.lower()], {name.lower()}
        while todo:
            for step, _ in self._readers.get(todo.pop(), ()):
                for reader in self._users[step] - seen - splice.new_queries.keys():
                    seen.add(reader)
                    plan = self.queries[reader].plan
                    if name.lower() in {each.lower() for each in _relations_below_rstream(plan)}:
                        fault = (
                            f"RSTREAM in {reader} fires when windows of {name} move: it cannot be replaced"
                        )
                        raise QueryError(fault, remedy=f"drop {reader} first, and register it again then")
                    if not plan.is_stream:
                        todo.append(reader)

    # ------------------------------------------------------------ books

    def _enter(self, query: LiveQuery) -> None:
        key = query.registered.name.lower()
        self.queries[key] = query
        self._rebuilt = max(
            self._rebuilt, *(each[1] + 1 for each in query.since.values() if each), _FIRST_REBUILT
        )
        self._graph.outputs[query.registered.name] = query.root
        for node, step in query.steps.items():
            self._users.setdefault(step, set()).add(key)
            if step not in self._keys:
                self._keys[step] = (node, query.since[node], self._graph.inputs(step))
                self._steps[self._keys[step]] = step
            for position, child in enumerate(node.children):
                if isinstance(child, Ref):
                    self._readers.setdefault(child.name.lower(), set()).add((step, position))

    def _release(self, key: str, steps: Iterable[int], keep: set[int]) -> None:
        for step in reversed(list(steps)):
            if step in keep:
                continue
            users = self._users[step]
            users.discard(key)
            if not users:
                self._free(step)

    def _free(self, step: int) -> None:
        for position, child in enumerate(self._graph.node(step).children):
            if isinstance(child, Ref):
                self._readers.get(child.name.lower(), set()).discard((step, position))
        self._forget_key(step)
        self._users.pop(step, None)
        self._new_steps.discard(step)
        self._primed.pop(step, None)
        self._graph.remove(step)

    def _undo(self, splice: Splice) -> None:
        for step in reversed(splice.new_steps):
            self._forget_key(step)
            self._graph.remove(step)

    def _forget_key(self, step: int) -> None:
        """Equal steps may be two, if one was made before what it reads: only one of them is found."""
        key = self._keys.pop(step)
        if self._steps.get(key) == step:
            del self._steps[key]

    def _repoint(self, step: int, position: int, source: int) -> None:
        inputs = list(self._graph.inputs(step))
        inputs[position] = source
        node, since, _ = self._keys[step]
        self._forget_key(step)
        self._keys[step] = (node, since, tuple(inputs))
        self._steps.setdefault(self._keys[step], step)
        self._graph.point(step, tuple(inputs))

    def _move_readers(self, key: str, old: int, new: int) -> None:
        if old == new:
            return
        moved = [edge for edge in self._readers.get(key, ()) if self._graph.inputs(edge[0])[edge[1]] == old]
        for step, position in moved:
            self._repoint(step, position, new)


def _has_transition(placed: _PlacedQuery) -> bool:
    """Whether what a relation holds at its beginning does not flow out of its steps by itself."""
    query = placed.query
    return not query.plan.is_stream and (placed.silent or query.root not in placed.own_steps)


def _pack(batch: Batch) -> State:
    return {"ts": batch.ts, "sub": batch.seq_tick, "diff": batch.diff, "data": batch.data}


def _unpack(state: State) -> Batch:
    ts, seq_tick, diff = (np.array(state[name], np.int64) for name in ("ts", "sub", "diff"))
    return Batch(ts, seq_tick, diff, np.array(state["data"], np.int64, order="C"))


def _relations_below_rstream(plan: Node) -> list[str]:
    """The relation queries below RSTREAM."""
    whole = [
        node
        for node in walk(plan)
        if isinstance(node, Streamify) and node.kind is StreamKind.RSTREAM and node.every is None
    ]
    below = [each for node in whole for each in walk(node.child)]
    return [each.name for each in below if isinstance(each, Ref) and not each.is_stream]
