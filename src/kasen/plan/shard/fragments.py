"""The physical plan cut into fragments, level by level, with exchanges between them.

A fragment is what a shard can do without asking another. Each is a plan of its own, in which a scan
stands for every exchange that it receives: so a shard runs the very operators that a whole pipeline runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kasen.cql.bound import App, Rows
from kasen.cql.expr import Column
from kasen.plan import logical
from kasen.plan.logical import Node, Scan
from kasen.plan.physical import Plan, Step, plan_app
from kasen.plan.physical_nodes import CountedJoin, MultiJoin, OrdinalRows
from kasen.plan.shard.exchange import Destination, Exchange, Exchanges, is_loop
from kasen.plan.shard.split import Need, Split, all_columns
from kasen.types import BIGINT, Field, Schema

ORDINAL = "#ordinal"

#: Gives an exchange the name that it has among those of other plans.
Label = Callable[[Exchange], Exchange]


def _unlabelled(edge: Exchange) -> Exchange:
    return edge


@dataclass(frozen=True, slots=True)
class Fragment:
    """What the shards do at one level. Steps that have one shard run on the first only.

    `outputs` are the queries and exchanges that the plans' outputs are named for.
    """

    level: int
    first: Plan
    others: Plan
    inputs: tuple[Exchange, ...]
    outputs: tuple[Exchange, ...]
    #: Outputs that every shard has in full: only the first shard's count.
    everywhere: frozenset[str]
    #: The whole plan's steps that the plans' first steps are, in their order.
    steps: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    def plan(self, shard: int) -> Plan:
        return self.first if shard == 0 else self.others

    def origins(self, shard: int) -> tuple[int, ...]:
        return self.steps[min(shard, 1)]


@dataclass(frozen=True, slots=True)
class FragmentPlan:
    """A whole plan as fragments. `splits` has for each step how its rows lie; none for inputs.

    `edges` has for each step and input the exchange by which it comes, if it comes by one.
    """

    plan: Plan
    fragments: tuple[Fragment, ...]
    splits: tuple[Split | None, ...]
    edges: Mapping[tuple[int, int], Exchange] = field(default_factory=dict)

    @property
    def scanned(self) -> tuple[Exchange, ...]:
        """The exchanges by which the inputs' rows come."""
        scans = set(self.plan.scans.values())
        return tuple(edge for each in self.fragments for edge in each.inputs if edge.source in scans)


def cut(app: App, joins: str = "") -> FragmentPlan:
    """The fragments of an app; `joins` overrules the hints."""
    return cut_plan(plan_shards(app, joins))


def plan_shards(app: App, joins: str = "") -> Plan:
    """The plan that is to be cut."""
    return plan_app(app, joins, shards=True)


@dataclass(frozen=True, slots=True)
class Pin:
    """Where a step is already: its level, how its rows lie, and by which exchanges its inputs come."""

    level: int
    split: Split
    edges: tuple[Exchange | None, ...] = ()


def cut_plan(
    plan: Plan,
    label: Label = _unlabelled,
    pins: Mapping[int, Pin] | None = None,
    wants: Mapping[int, Need] | None = None,
) -> FragmentPlan:
    """The fragments of a plan that was made for shards. `pins` are steps that are on shards already.

    Steps of `wants` are to lie in a certain way, if that is free.
    """
    pins = pins or {}
    settled = {(step, at): edge for step, pin in pins.items() for at, edge in enumerate(pin.edges)}
    splits = {step: pin.split for step, pin in pins.items()}
    found = Exchanges(plan, splits, dict(settled), wants=dict(wants or {})).find()
    levels = _levels(found, {step: pin.level for step, pin in pins.items()})
    edges = {at: label(edge) for at, edge in _with_levels(found, levels).items()}
    live = _live(plan, found, edges)
    levels = {step: level for step, level in levels.items() if step in live}
    count = max([1, *levels.values()])
    joins = _counted_joins(plan, edges)
    fragments = tuple(
        _Level(plan, found, edges, levels, level, label, joins).fragment() for level in range(1, count + 1)
    )
    return FragmentPlan(plan, fragments, tuple(found.splits.get(step.id) for step in plan.steps), edges)


def _levels(found: Exchanges, given: Mapping[int, int]) -> dict[int, int]:
    """The earliest level at which each step has its inputs; chains over an input run where they are read."""
    plan, levels = found.plan, dict(given)
    inputs: dict[int, list[tuple[int, bool]]] = {}
    for (step, position), edge in found.edges.items():
        child = edge.source if edge is not None else found.inputs(step)[position]
        inputs.setdefault(step, []).append((child, edge is not None))
    for stage in plan.stages():
        if isinstance(plan.steps[stage[0]].node, Scan) or stage[0] in given:
            continue
        reads = [each for step in stage for each in inputs.get(step, []) if each[0] in levels]
        level = max([1, *(levels[child] + moved for child, moved in reads)])
        levels |= dict.fromkeys(stage, level)
    outputs = {step for _, step in plan.outputs}
    readers: dict[int, list[tuple[int, bool]]] = {}
    for step, children in inputs.items():
        for child, moved in children:
            readers.setdefault(child, []).append((step, moved))
    for stage in reversed(plan.stages()):
        step = stage[0]
        if is_loop(plan, stage) or step in outputs or step not in levels or step not in readers:
            continue
        if step in given:
            continue
        if all(child not in levels for child, _ in inputs.get(step, [])):
            levels[step] = min(levels[reader] - moved for reader, moved in readers[step])
    return levels


def _with_levels(found: Exchanges, levels: dict[int, int]) -> dict[tuple[int, int], Exchange]:
    """Every way between two levels, also of rows that stay on their shard."""
    edges: dict[tuple[int, int], Exchange] = {}
    for (step, position), edge in found.edges.items():
        child = found.inputs(step)[position] if edge is None else edge.source
        if edge is not None:
            edges[step, position] = replace(edge, level=levels[step])
        elif levels[child] != levels[step]:
            edges[step, position] = Exchange(child, Destination.SAME, level=levels[step])
    return edges


def _live(plan: Plan, found: Exchanges, edges: dict[tuple[int, int], Exchange]) -> set[int]:
    """The steps that something is read from: those of windows' own chains may be read by nobody else."""
    reads: dict[int, list[int]] = {}
    for step, position in found.edges:
        edge = edges.get((step, position))
        child = edge.source if edge is not None else found.inputs(step)[position]
        reads.setdefault(step, []).append(child)
    live: set[int] = set()
    todo = [step for _, step in plan.outputs]
    while todo:
        step = todo.pop()
        if step not in live:
            live.add(step)
            todo += reads.get(step, [])
    return live


def _counted_joins(plan: Plan, edges: dict[tuple[int, int], Exchange]) -> dict[int, tuple[int, ...]]:
    """The joins that can count by ordinals themselves; of each, which of its inputs are [ROWS] windows."""
    found = {}
    for step in plan.steps:
        if not isinstance(step.node, MultiJoin) or not step.node.only_enters:
            continue
        counted = tuple(
            at
            for at, child in enumerate(step.inputs)
            if (step.id, at) not in edges and _counts_each(plan, child, edges.get((child, 0)))
        )
        if counted and all(at in counted or held is not None for at, held in enumerate(step.node.windows)):
            found[step.id] = counted
    return found


def _counts_each(plan: Plan, step: int, edge: Exchange | None) -> bool:
    """Whether a step is a window whose tuples come with ordinals, and that moves with each of them."""
    window = getattr(plan.steps[step].node, "window", None)
    return edge is not None and edge.ordinals and isinstance(window, Rows) and window.slide == 1


class _Level:
    """Builds the plans of one level."""

    def __init__(
        self,
        plan: Plan,
        found: Exchanges,
        edges: dict[tuple[int, int], Exchange],
        levels: dict[int, int],
        level: int,
        label: Label,
        joins: dict[int, tuple[int, ...]],
    ) -> None:
        self._plan = plan
        self._joins = joins
        readers = [(child, step.id, at) for step in plan.steps for at, child in enumerate(step.inputs)]
        kept = {child for child, step, at in readers if at not in joins.get(step, ())}
        #: Windows that nobody reads but joins that count for themselves.
        self._spared = {child for child, *_ in readers} - kept - {step for _, step in plan.outputs}
        self._label = label
        self._found = found
        self._edges = {at: edge for at, edge in edges.items() if at[0] in levels}
        self._levels = levels
        self._level = level

    def fragment(self) -> Fragment:
        leaving = [
            edge
            for edge in dict.fromkeys(self._edges.values())
            if self._levels.get(edge.source) == self._level
        ]
        outputs = {edge.name: edge.source for edge in leaving}
        roots = {}
        for name, step in self._plan.outputs:
            if self._levels.get(step, 1) == self._level:
                outputs[name] = step
                if step not in self._levels:
                    columns = all_columns(self._plan.steps[step].node.schema)
                    roots[step] = self._label(Exchange(step, Destination.KEY, columns))
        inputs = {edge for at, edge in self._edges.items() if self._levels[at[0]] == self._level}
        splits = self._found.splits
        first, others = self._build(outputs, roots, first=True), self._build(outputs, roots, first=False)
        return Fragment(
            self._level,
            first[0],
            others[0],
            tuple(sorted(inputs | set(roots.values()), key=lambda edge: edge.name)),
            tuple(leaving),
            frozenset(name for name, step in outputs.items() if step in splits and splits[step].everywhere),
            (first[1], others[1]),
        )

    def _build(
        self, outputs: dict[str, int], roots: dict[int, Exchange], *, first: bool
    ) -> tuple[Plan, tuple[int, ...]]:
        here = [
            step
            for stage in self._plan.stages()
            for step in stage
            if self._levels.get(step) == self._level
            and step not in self._spared
            and (first or not self._found.splits[step].why)
        ]
        # Steps of a loop read one another, so their places are known before they are made.
        self._ids = {step: place for place, step in enumerate(here)}
        self._steps: list[Step | None] = [None] * len(here)
        self._made: dict[object, int] = {}
        for step in here:
            node, inputs = self._inputs(step)
            self._steps[self._ids[step]] = Step(self._ids[step], node, inputs)
        named = []
        for name, step in outputs.items():
            if step in self._ids:
                named.append((name, self._ids[step]))
            elif step in roots:
                named.append((name, self._scan(roots[step])))
        steps = tuple(step for step in self._steps if step is not None)
        return Plan(self._plan.app, steps, tuple(named)), tuple(here)

    def _inputs(self, step: int) -> tuple[Node, tuple[int, ...]]:
        node = self._plan.steps[step].node
        if step in self._joins:
            return self._counted_join(step)
        if step not in self._found.bases:
            children = self._plan.steps[step].inputs
            inputs = tuple(self._input(step, position, child) for position, child in enumerate(children))
            return self._unordered(step, node), inputs
        assert isinstance(node, logical.WindowNode)
        edge = self._edges.get((step, 0))
        if edge is None or not edge.ordinals:
            return node, (self._below(step, counted=False),)
        assert isinstance(node.window, Rows)
        return OrdinalRows(node.schema, node.window), (self._below(step, counted=True), self._every(step))

    def _below(self, window: int, *, counted: bool) -> int:
        """What a window reads that looks at the order of tuples."""
        below = self._input(window, 0, self._found.bases[window])
        for project in reversed(self._found.chains[window]):
            below = self._again(self._plan.steps[project].node, below, counted=counted)
        return below

    def _every(self, window: int) -> int:
        """The instants of all tuples of a window's stream."""
        return self._input(window, 1, self._found.bases[window])

    def _counted_join(self, step: int) -> tuple[Node, tuple[int, ...]]:
        node, counted = self._plan.steps[step].node, self._joins[step]
        assert isinstance(node, MultiJoin)
        children = self._plan.steps[step].inputs
        tuples = [
            self._numbered(child) if at in counted else self._input(step, at, child)
            for at, child in enumerate(children)
        ]
        every = [self._every(children[at]) for at in counted]
        return CountedJoin(node.schema, node, counted), (*tuples, *every)

    def _numbered(self, window: int) -> int:
        """The tuples of a window with their ordinals as first column."""
        (child,) = self._plan.steps[window].node.children
        columns = all_columns(child.schema)
        ordinal = Column(BIGINT, 0, len(columns), "ordinal")
        schema = Schema((Field(ORDINAL, BIGINT), *child.schema.fields))
        return self._make(
            logical.Project(schema, child, (ordinal, *columns)), (self._below(window, counted=True),)
        )

    def _unordered(self, step: int, node: Node) -> Node:
        """An aggregate behind an exchange: rows of several shards do not leave as they entered."""
        edge = self._edges.get((step, 0))
        if not isinstance(node, logical.Aggregate) or edge is None or node.child.insert_only:
            return node
        return node.with_children((Scan(node.child.schema, edge.name, True),))

    def _again(self, project: Node, below: int, *, counted: bool) -> int:
        """A window's own copy of a projection, with the ordinal as a last column if it needs it."""
        assert isinstance(project, logical.Project)
        if counted:
            ordinal = Column(BIGINT, 0, len(project.child.schema), "ordinal")
            schema = _counted(project.schema)
            project = logical.Project(schema, project.child, (*project.items, ordinal))
        return self._make(project, (below,))

    def _input(self, step: int, position: int, child: int) -> int:
        edge = self._edges.get((step, position))
        if edge is not None:
            return self._scan(edge)
        if child in self._ids:
            return self._ids[child]
        # It runs on the first shard only: here it never has a row.
        return self._make(Scan(self._plan.steps[child].node.schema, f"#{child} elsewhere", True), ())

    def _scan(self, edge: Exchange) -> int:
        node = self._plan.steps[edge.source].node
        return self._make(Scan(travelling(node.schema, edge), edge.name, not node.is_stream), ())

    def _make(self, node: Node, inputs: tuple[int, ...]) -> int:
        key = (node, inputs)
        if key not in self._made:
            self._made[key] = len(self._steps)
            self._steps.append(Step(len(self._steps), node, inputs))
        return self._made[key]


def travelling(schema: Schema, edge: Exchange) -> Schema:
    """The columns that go along an exchange."""
    if edge.instants:
        return Schema(())
    return _counted(schema) if edge.ordinals else schema


def _counted(schema: Schema) -> Schema:
    return Schema((*schema.fields, Field(ORDINAL, BIGINT)))
