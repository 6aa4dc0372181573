"""EXPLAIN, the steps of a graph as trees: every step stands once, where it is met first.

Whoever else reads it says so (`see step 5`, `see query alarm`). Inputs are no steps: each reader names them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from kasen.engine.aggregate.sliding.pane_reduction import PaneRequirements
from kasen.plan.explain.step import algorithm, describe
from kasen.plan.logical import Node, Ref, Scan
from kasen.plan.lower.instantiate import pane_requirements
from kasen.plan.lower.loops import why_called
from kasen.plan.physical import Plan, stages_of
from kasen.plan.physical_nodes import SlidingAggregate
from kasen.types import Schema, Type

_INDENT = "  "


def _no_notes(_: int) -> list[str]:
    return []


class Forest:
    """The trees of a graph's outputs; a missing node is no step."""

    def __init__(
        self,
        nodes: Sequence[Node | None],
        inputs: Sequence[tuple[int, ...]],
        queries: Mapping[str, int],
        time: Type,
        *,
        leaf: Callable[[Node], str] | None = None,
        notes: Callable[[int], list[str]] = _no_notes,
        sent: Sequence[int] = (),
        numbered: bool = False,
    ) -> None:
        """`queries` are outputs that steps refer to by name, `sent` are steps whose rows are sent on.

        `leaf` describes an input, `notes` has what else is to be said of a step. If `numbered`, every step
        tells its number, and not only those that others refer to.
        """
        self.queries = queries
        self._nodes = nodes
        self._inputs = inputs
        self._time = time
        self._describe_leaf = leaf
        self._extra = notes
        self._numbered = numbered
        self._printed: set[int] = set()
        self._roots: dict[int, str] = {}
        for name, step in queries.items():
            self._roots.setdefault(step, name)
        stages = stages_of(nodes, inputs)
        self._loops = [each for each in stages if len(each) > 1 or each[0] in inputs[each[0]]]
        #: Of each step in a loop, why the loop machine calls it; empty if it runs it.
        self._machine = {step: why_called(self._node(step)) or "" for each in self._loops for step in each}
        self._users = self._find_users()
        self._peers = self._find_peers()
        read = Counter([*sent, *(source for each in inputs for source in each)])
        self._referred = {step for step, count in read.items() if count > 1 and step not in self._roots}
        self._referred |= {step for peers in self._peers.values() for step in peers}

    @staticmethod
    def of(plan: Plan) -> Forest:
        nodes, inputs = [step.node for step in plan.steps], [step.inputs for step in plan.steps]
        return Forest(nodes, inputs, dict(plan.outputs), plan.app.time)

    def _node(self, step: int) -> Node:
        node = self._nodes[step]
        assert node is not None, step
        return node

    def _is_leaf(self, step: int) -> bool:
        return isinstance(self._nodes[step], Scan | Ref)

    def _below(self, step: int) -> Iterator[int]:
        """The step and those below it, as far as they are in its tree."""
        todo, seen = [step], {step}
        while todo:
            yield (each := todo.pop())
            for source in self._inputs[each]:
                if source not in seen and source not in self._roots:
                    seen.add(source)
                    todo.append(source)

    def _find_users(self) -> dict[int, list[str]]:
        """In which queries' trees each step is."""
        users: dict[int, list[str]] = defaultdict(list)
        for name, root in self.queries.items():
            for step in self._below(root):
                users[step].append(name)
        return users

    def _find_peers(self) -> dict[int, list[int]]:
        """The sliding aggregates that may share panes with others: those over one input, of equal needs."""
        groups: dict[tuple[int, PaneRequirements, int], list[int]] = defaultdict(list)
        for step, node in enumerate(self._nodes):
            wanted = pane_requirements(node) if node is not None and step not in self._machine else None
            if wanted is not None:
                assert isinstance(node, SlidingAggregate)
                groups[self._inputs[step][0], wanted, node.pane].append(step)
        return {step: group for group in groups.values() if len(group) > 1 for step in group}

    # ------------------------------------------------------------ printing

    def query(self, name: str, schema: Schema, indent: str = "") -> list[str]:
        """The tree of a query's answers."""
        root = self.queries[name]
        kind = "stream" if self._node(root).is_stream else "relation"
        return [f"{indent}query {name}: {kind} {schema}", *self.tree(root, indent + _INDENT, name)]

    def tree(self, root: int, indent: str, name: str = "") -> list[str]:
        """The steps from a root down; `name` is the query whose tree this is."""
        lines = []
        todo = [(root, indent)]
        while todo:
            step, lead = todo.pop()
            query = self._roots.get(step)
            if self._is_leaf(step):
                lines.append(lead + self._leaf(step))
            elif query is not None and (lines or query != name):
                lines.append(f"{lead}see query {query}")
            elif step in self._printed:
                lines.append(f"{lead}see step {step}")
            else:
                self._printed.add(step)
                lines.append(lead + self._line(step))
                todo += [(source, lead + _INDENT) for source in reversed(self._inputs[step])]
        return lines

    @property
    def printed(self) -> frozenset[int]:
        """The steps that stand in the trees so far."""
        return frozenset(self._printed)

    def _leaf(self, step: int) -> str:
        node = self._node(step)
        return describe(node, self._time) if self._describe_leaf is None else self._describe_leaf(node)

    def _line(self, step: int) -> str:
        node = self._node(step)
        text = describe(node, self._time)
        if self._numbered or step in self._referred:
            name = algorithm(node)
            text = f"{name} (step {step}){text.removeprefix(name)}"
        notes = self._notes(step)
        if not notes:
            return text
        return f"{text}{'; ' if ': ' in text else ': '}{'; '.join(notes)}"

    def _notes(self, step: int) -> list[str]:
        notes = []
        users = self._users.get(step, [])
        if len(users) > 1 and step not in self._roots:
            notes.append(f"shared by: {', '.join(users)}")
        peers = [str(each) for each in self._peers.get(step, ()) if each != step]
        if peers:
            notes.append(f"may share panes with {'step' if len(peers) == 1 else 'steps'} {', '.join(peers)}")
        if step in self._machine:
            why = self._machine[step]
            notes.append(f"called by the loop machine: {why}" if why else "in the loop machine")
        return notes + self._extra(step)

    def loop_lines(self) -> list[str]:
        """What the loop machine runs."""
        lines = []
        for stage in self._loops:
            names = ", ".join(name for name, step in self.queries.items() if step in stage)
            called = sum(bool(self._machine[step]) for step in stage)
            inside = f"{called} of them called" if called else "all inside"
            lines.append(f"loop machine of {names}: {len(stage)} steps, {inside}")
        return lines
