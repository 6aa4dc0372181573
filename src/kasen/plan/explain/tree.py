"""EXPLAIN, the steps of a graph as trees: every step stands once, where it is met first.

Whoever else reads it says so (`see step 5`, `see query alarm`). Inputs are no steps: each reader names them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kasen.engine.aggregate.sliding.pane_reduction import PaneRequirements
from kasen.plan.explain.step import algorithm, describe
from kasen.plan.logical import Node, Ref, Scan
from kasen.plan.lower.instantiate import pane_requirements
from kasen.plan.lower.loops import why_called
from kasen.plan.physical import Plan, stages_of
from kasen.plan.physical_nodes import SlidingAggregate
from kasen.types import Schema, Type

_INDENT = "  "


def no_notes(_: int) -> list[str]:
    return []


@dataclass(slots=True)
class Forest:
    """The trees of a graph's outputs. A missing node is no step.

    `queries` are outputs that steps refer to by name. `leaf` describes an input, `notes` has what else is to
    be said of a step.
    """

    nodes: Sequence[Node | None]
    inputs: Sequence[tuple[int, ...]]
    queries: Mapping[str, int]
    time: Type
    leaf: Callable[[Node], str] | None = None
    notes: Callable[[int], list[str]] = no_notes
    #: Steps that are read from outside the graph besides.
    sent: Sequence[int] = ()
    #: Whether every step tells its number, or only those that others refer to.
    numbered: bool = False
    loops: list[tuple[int, ...]] = field(init=False)
    _roots: dict[int, str] = field(init=False)
    _printed: set[int] = field(init=False, default_factory=set)
    _referred: set[int] = field(init=False)
    _machine: dict[int, str] = field(init=False)
    _users: dict[int, list[str]] = field(init=False)
    _peers: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        stages = stages_of(self.nodes, self.inputs)
        self.loops = [each for each in stages if len(each) > 1 or each[0] in self.inputs[each[0]]]
        self._machine = {step: why_called(self._node(step)) or "" for each in self.loops for step in each}
        self._roots = {}
        for name, step in self.queries.items():
            self._roots.setdefault(step, name)
        self._users = self._find_users()
        self._peers = self._find_peers()
        read = Counter([*self.sent, *(source for inputs in self.inputs for source in inputs)])
        self._referred = {step for step, count in read.items() if count > 1 and step not in self._roots}
        self._referred |= {step for peers in self._peers.values() for step in peers}

    @staticmethod
    def of(plan: Plan) -> Forest:
        steps = plan.steps
        return Forest(
            [step.node for step in steps],
            [step.inputs for step in steps],
            dict(plan.outputs),
            plan.app.time,
        )

    def _node(self, step: int) -> Node:
        node = self.nodes[step]
        assert node is not None, step
        return node

    def _is_leaf(self, step: int) -> bool:
        return isinstance(self.nodes[step], Scan | Ref)

    def _below(self, step: int) -> Iterator[int]:
        """The step and those below it, as far as they are in its tree."""
        todo, seen = [step], {step}
        while todo:
            yield (each := todo.pop())
            for source in self.inputs[each]:
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
        for step, node in enumerate(self.nodes):
            wanted = pane_requirements(node) if node is not None and step not in self._machine else None
            if wanted is not None:
                assert isinstance(node, SlidingAggregate)
                groups[self.inputs[step][0], wanted, node.pane].append(step)
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
                todo += [(source, lead + _INDENT) for source in reversed(self.inputs[step])]
        return lines

    @property
    def printed(self) -> frozenset[int]:
        """The steps that stand in the trees so far."""
        return frozenset(self._printed)

    def _leaf(self, step: int) -> str:
        node = self._node(step)
        return describe(node, self.time) if self.leaf is None else self.leaf(node)

    def _line(self, step: int) -> str:
        node = self._node(step)
        text = describe(node, self.time)
        if self.numbered or step in self._referred:
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
        return notes + self.notes(step)

    def loop_lines(self) -> list[str]:
        """What the loop machine runs."""
        lines = []
        for stage in self.loops:
            names = ", ".join(name for name, step in self.queries.items() if step in stage)
            called = sum(bool(self._machine[step]) for step in stage)
            inside = f"{called} of them called" if called else "all inside"
            lines.append(f"loop machine of {names}: {len(stage)} steps, {inside}")
        return lines
