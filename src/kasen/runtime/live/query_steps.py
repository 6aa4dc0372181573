"""Which steps each query of this process has, and which steps read its answers."""

from __future__ import annotations

from collections.abc import Iterable, Set

from kasen.plan.logical import Node, Ref
from kasen.runtime.graph.graph import Graph
from kasen.runtime.live.shared_steps import SharedSteps, StateOrigin, StepKey
from kasen.runtime.live.splice import FIRST_REBUILT, LiveQuery


class QuerySteps:
    """The live queries by name in lower case, and their steps in the graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.queries: dict[str, LiveQuery] = {}
        self.shared: SharedSteps[str] = SharedSteps(graph)
        self._readers: dict[str, set[tuple[int, int]]] = {}
        self._next_rebuilt = FIRST_REBUILT

    def rebuild(self, queries: list[LiveQuery]) -> None:
        """These queries in the place of all that are there; their steps have numbers already."""
        self.shared.clear()
        self._readers, self.queries, self.graph.outputs = {}, {}, {}
        roots = {query.key: query.root for query in queries}
        placed: dict[int, tuple[Node, tuple[int, ...]]] = {}
        for query in queries:
            for node, step in query.steps.items():
                sources = (
                    roots[child.name.lower()] if isinstance(child, Ref) else query.steps[child]
                    for child in node.children
                )
                placed[step] = (node, tuple(sources))
        self.graph.rebuild(placed)
        for query in queries:
            self.enter(query)
        self.graph.settle()

    def readers(self, key: str) -> Set[tuple[int, int]]:
        """The steps that read a query, each with the position of that input."""
        return self._readers.get(key, set())

    def rebuilt_since(self, time: int) -> StateOrigin:
        """Of a step that begins with the contents of another one: no other step is like it."""
        self._next_rebuilt += 1
        return (time, self._next_rebuilt - 1)

    # ------------------------------------------------------------ steps that come

    def place(self, key: StepKey) -> tuple[int, bool]:
        """The step of that key, and whether it is new. It has no user yet."""
        step = self.shared.find(key)
        if step is not None:
            return step, False
        step = self.graph.add(key.node, key.inputs)
        self.shared.share(step, key)
        return step, True

    def undo(self, steps: list[int]) -> None:
        """New steps go again: their change cannot be made."""
        for step in reversed(steps):
            self.shared.remove(step)

    def enter(self, query: LiveQuery) -> None:
        """The query is live, and uses its steps."""
        self.queries[query.key] = query
        rebuilt = (each[1] + 1 for each in query.since.values() if each)
        self._next_rebuilt = max(self._next_rebuilt, *rebuilt, FIRST_REBUILT)
        self.graph.outputs[query.registered.name] = query.root
        for node, step in query.steps.items():
            self.shared.use(step, query.key)
            if self.shared.key(step) is None:
                self.shared.share(step, StepKey(node, self.graph.inputs(step), query.since[node]))
            for position, child in enumerate(node.children):
                if isinstance(child, Ref):
                    self._readers.setdefault(child.name.lower(), set()).add((step, position))

    # ------------------------------------------------------------ steps that go

    def drop(self, key: str) -> tuple[LiveQuery, list[int]]:
        """The query is not live any more. Returns it, and the steps that went with it."""
        query = self.queries.pop(key)
        gone = self.release(key, query.steps.values(), keep=set())
        self.graph.outputs.pop(query.registered.name)
        self._readers.pop(key, None)
        return query, gone

    def release(self, key: str, steps: Iterable[int], keep: set[int]) -> list[int]:
        """The query does not use these steps any more, but for those to keep. Returns those that are gone."""
        gone: list[int] = []
        for step in reversed(list(steps)):
            if step in keep:
                continue
            node = self.graph.node(step)
            if self.shared.release(step, key):
                gone.append(step)
                for position, child in enumerate(node.children):
                    if isinstance(child, Ref):
                        self._readers.get(child.name.lower(), set()).discard((step, position))
        return gone

    # ------------------------------------------------------------ steps that read others

    def move_readers(self, key: str, old: int, new: int) -> None:
        """Whoever read the old step as the answers of a query reads the new one."""
        if old == new:
            return
        moved = [edge for edge in self.readers(key) if self.graph.inputs(edge[0])[edge[1]] == old]
        for step, position in moved:
            self.repoint(step, position, new)

    def repoint(self, step: int, position: int, source: int) -> None:
        inputs = list(self.graph.inputs(step))
        inputs[position] = source
        key = self.shared.key(step)
        assert key is not None
        self.shared.share(step, key._replace(inputs=tuple(inputs)))
        self.graph.point(step, tuple(inputs))
