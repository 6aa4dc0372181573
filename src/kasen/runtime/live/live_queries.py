"""The queries of a graph in this process, which come, are replaced and go while data flows.

Steps are found by what they are: the plan's node, the steps it reads and, if it remembers anything, since
when. So queries share all that remembers nothing at once, and state if they came together. A change is made
ready first (`prepare`), which may fail and then leaves no trace; `commit` cannot fail.

Queries on executors are changed by `runtime/shard/splice.py`. Both keep the same books (`shared_steps`), and
compute in the same way what was before a change (`contents_before`). The rest differs, because their
problems do:

- Here a query is a plan whose nodes name their inputs, and it may read any other query's steps. On a shard it
  is a fragment cut from a plan that several queries have together; its steps have numbers, inputs may come
  by exchanges, and the query that it reads may have no step on the shard.
- Here a change may be refused while it is placed. On a shard it cannot be refused any more: the driver has
  tried it without tuples (`dry_run`), and has cut the plan such that steps that go on stay where they are.
- Here windows of a replaced query may be replayed, groups regrouped, and streams backfilled. A shard has only
  parts of them, so there a replacement keeps steps as they are or is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from kasen.engine.batch import Batch, Frontier
from kasen.engine.operator import State
from kasen.errors import QueryError
from kasen.plan.changes import CatalogChange, Drop, LiveCatalog, Register, RegisteredQuery, statement_of
from kasen.plan.keep.memories import is_stateless
from kasen.plan.logical import Node, Ref, Scan, walk
from kasen.plan.lower.instantiate import Context
from kasen.plan.physical import own_nodes, plan_query
from kasen.runtime.graph.graph import Graph
from kasen.runtime.live.contents import Contents, Tables
from kasen.runtime.live.pending_splices import PendingSplices
from kasen.runtime.live.query_steps import QuerySteps
from kasen.runtime.live.shared_steps import StateOrigin
from kasen.runtime.live.splice import BEGINNING, LiveQuery, PlannedQuery, Retained, Splice
from kasen.runtime.live.splice_builder import SpliceBuilder


class LiveQueries:
    """The queries of a running graph."""

    def __init__(self, graph: Graph, context: Context, tables: Tables) -> None:
        self._graph = graph
        self._contents = Contents(graph, context, tables)
        self._steps = QuerySteps(graph)
        self._pending = PendingSplices()

    # ------------------------------------------------------------ what is live

    @property
    def queries(self) -> Mapping[str, LiveQuery]:
        """The queries by name in lower case."""
        return self._steps.queries

    def adopt(self, query: RegisteredQuery, plan: Node, steps: Mapping[Node, int], *, in_loop: bool) -> None:
        """Takes over a query that the graph was made with."""
        since = {node: None if is_stateless(node) else BEGINNING for node in steps}
        self._steps.enter(LiveQuery(query, plan, dict(steps), since, steps[plan], BEGINNING, in_loop))

    def shared_with(self, name: str) -> set[str]:
        """The other queries that have a step, or its panes, in common with this one, beyond the inputs."""
        query = self.queries[name.lower()]
        own = [step for node, step in query.steps.items() if node.children]
        found = {user for step in own for user in self.users(step)}
        fellows = {fellow for step in own for fellow in self._graph.operator(step).fellows()}
        if fellows:
            for step, operator in enumerate(self._graph.operators):
                if operator in fellows:
                    found |= self.users(step)
        return found - {name.lower()}

    def reads(self, name: str) -> list[str]:
        """The inputs and the other queries that a query reads."""
        query = self.queries[name.lower()]
        refs = (child for node in query.steps for child in node.children if isinstance(child, Ref))
        queries = {self.queries[ref.name.lower()].registered.name for ref in refs}
        return sorted(queries | {node.name for node in query.steps if isinstance(node, Scan)})

    def users(self, step: int) -> set[str]:
        """The queries that have a step, in lower case."""
        return set(self._steps.shared.users(step))

    @property
    def groups(self) -> int:
        """How many groups the aggregates of all queries have; one that several share counts once."""
        operators = (self._graph.operators[step] for step in self._steps.shared.used)
        return sum(operator.groups for operator in operators if operator is not None)

    @property
    def all_state_bytes(self) -> int:
        """The size of what all queries remember; what several share counts once."""
        return self._size({step for query in self.queries.values() for step in _remembering(query)})

    def state_bytes(self, name: str) -> int:
        """The size of what the steps of a query remember, those that it shares included."""
        return self._size(_remembering(self.queries[name.lower()]))

    def _size(self, steps: set[int]) -> int:
        states = (self._graph.operator(step).snapshot() for step in steps)
        return sum(int(array.nbytes) for state in states for array in state.values())

    # ------------------------------------------------------------ changing

    def prepare(
        self, change: CatalogChange, plans: Mapping[str, PlannedQuery], time: int | None, retained: Retained
    ) -> Splice:
        """Makes a change ready, to be committed before anything runs; `time` is None before the beginning."""
        self._check_stopped(change, plans)
        self._graph.save_loops()
        builder = SpliceBuilder(self._steps, self._contents, self._pending, time, retained)
        try:
            for action in change.actions:
                if isinstance(action, Register):
                    builder.place(action, plans[action.query.name.lower()])
            builder.begin()
        except BaseException:
            self._steps.undo(builder.splice.new_steps)
            raise
        return builder.splice

    def _check_stopped(self, change: CatalogChange, plans: Mapping[str, PlannedQuery]) -> None:
        """Nothing can go on from a query whose loop was stopped."""
        if not self._graph.dead:
            return
        for name in {action.query.name.lower() for action in change.actions if isinstance(action, Register)}:
            reads = {node.name.lower() for node in walk(plans[name].plan) if isinstance(node, Ref)}
            for key in sorted({name, *reads}):
                found = self.queries.get(key)
                if found is not None and found.root in self._graph.dead:
                    fault = f"{found.registered.name} was stopped: its loop did not come to rest"
                    remedy = f"DROP QUERY {found.registered.name} CASCADE first, and register the loop anew"
                    raise QueryError(fault, remedy=remedy)

    def commit(self, change: CatalogChange, splice: Splice, time: int | None) -> None:
        """The change takes effect: cheap, and sure to work."""
        steps, gone = self._steps, list[int]()
        replaced = {key: self.queries[key] for key in splice.new_queries if key in self.queries}
        for query in splice.new_queries.values():
            steps.enter(query)
        for step, position, key in splice.unresolved:
            steps.repoint(step, position, splice.new_queries[key].root)
        for key, old in replaced.items():
            new = splice.new_queries[key]
            steps.move_readers(key, old.root, new.root)
            gone += steps.release(key, old.steps.values(), keep=set(new.steps.values()))
        for action in change.actions:
            if isinstance(action, Drop):
                dropped, steps_gone = steps.drop(action.name.lower())
                gone += steps_gone
                self._pending.discard_query(dropped)
        for step in gone:
            self._pending.discard_step(step)
        self._graph.settle()
        for step, position, batch in splice.initial_inputs:
            if steps.shared.key(step) is not None:  # readers may be replaced, too
                self._graph.inject(step, position, batch)
        if time is not None:
            empty_yet = [step for step in splice.new_steps if step not in splice.primed]
            self._graph.begin_steps(empty_yet, Frontier(time))
            self._graph.share(empty_yet, Frontier(time))
            self._graph.share(splice.primed, None)
            self._pending.add(splice)

    @property
    def transitions(self) -> dict[str, Batch]:
        """What queries that came emit before their steps do, by name."""
        return self._pending.transitions

    def finish_run(self) -> dict[str, Batch]:
        """The graph has run: what came is like the rest from now on. Returns what queries emit first."""
        return self._pending.finish(self._steps.queries)

    # ------------------------------------------------------------ the durable catalog

    def save_queries(self) -> list[dict[str, Any]]:
        """The queries with the numbers of their steps, for `rebuild`."""
        return [
            {
                "name": key,
                "statement": statement_of(Register(query.registered)),
                "in_loop": query.in_loop,
                "began": query.began,
                "steps": list(query.steps.values()),
                "since": list(query.since.values()),
            }
            for key, query in self.queries.items()
        ]

    def rebuild(self, saved: list[dict[str, Any]], catalog: LiveCatalog) -> None:
        """The queries and steps as they were saved; `catalog` has inputs only, and gets the queries."""
        for change in catalog.bind(";\n".join(entry["statement"] for entry in saved)):
            catalog.apply(change)
        catalog.looped = {entry["name"] for entry in saved if entry["in_loop"]}
        found: list[LiveQuery] = []
        for entry in saved:
            query = catalog.queries[entry["name"]]
            plan = plan_query(query, catalog, in_loop=entry["in_loop"])
            nodes = own_nodes(plan)
            steps = dict(zip(nodes, entry["steps"], strict=True))
            began = (entry["began"][0], entry["began"][1])
            starts = [tuple(each) if each is not None else None for each in entry["since"]]
            since = cast("dict[Node, StateOrigin | None]", dict(zip(nodes, starts, strict=True)))
            found.append(LiveQuery(query, plan, steps, since, steps[plan], began, entry["in_loop"]))
        self._steps.rebuild(found)

    def save_pending(self) -> dict[str, State]:
        """What a change that has not run yet left behind."""
        return self._pending.save(self._graph, self.queries)

    def restore_pending(self, states: Mapping[str, State]) -> None:
        """The counterpart of `save_pending`."""
        self._pending.restore(states, self._graph, self.queries)


def _remembering(query: LiveQuery) -> set[int]:
    return {query.steps[node] for node, since in query.since.items() if since}
