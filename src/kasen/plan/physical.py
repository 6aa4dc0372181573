"""The physical plan: one graph of steps for all queries, in which equal sub-plans are one step.

A registered query that others read is the step at its root; the edges between queries are resolved
here, and those of loops run through a delay, which `order` knows to cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kasen.cql.bind.change import LiveCatalog
from kasen.cql.bound import App, CatalogChange, Input, Register, RegisteredQuery
from kasen.cql.expr import Column
from kasen.engine.batch import check_width
from kasen.plan.build import Builder, Names
from kasen.plan.keep.kept_windows import QueryInCatalog, keep
from kasen.plan.logical import Delay, Node, Project, Ref, Scan
from kasen.plan.lower.lower import lower
from kasen.plan.rules.rewrite import chained, queries_in_loops, rewrite, rewrite_app

__all__ = [
    "App",
    "Input",
    "Plan",
    "RegisteredQuery",
    "Step",
    "instant_order",
    "plan_app",
    "plan_query",
    "share",
    "stages_of",
]


@dataclass(frozen=True, slots=True)
class Step:
    """A node of the graph; `inputs` are the ids of the steps it reads."""

    id: int
    node: Node
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps by id, and which step each query's answers come from."""

    app: App
    steps: tuple[Step, ...]
    outputs: tuple[tuple[str, int], ...]

    @property
    def fingerprint(self) -> str:
        """What a state belongs to: the app's inputs, queries and settings as text."""
        inputs = [f"{input_.name} {input_.schema} {input_.connector}" for input_ in self.app.inputs]
        queries = [f"{query.name}: {query.text}" for query in self.app.all_queries]
        return "\n".join([*inputs, *queries, str(self.app.settings)])

    @property
    def scans(self) -> dict[str, int]:
        """The step that stands for each input."""
        return {step.node.name: step.id for step in self.steps if isinstance(step.node, Scan)}

    def has_step(self, node: Node) -> bool:
        return any(step.node == node for step in self.steps)

    def behind(self, ref: Ref) -> Node:
        """The node that a query's answers come from; itself, if the query is not of this plan."""
        found = {name.lower(): step for name, step in self.outputs}.get(ref.name.lower())
        return ref if found is None else self.steps[found].node

    def stages(self) -> list[tuple[int, ...]]:
        """The steps in an order in which inputs come first; the steps of a loop are one stage."""
        return stages_of([step.node for step in self.steps], [step.inputs for step in self.steps])


def stages_of(nodes: Sequence[Node | None], inputs: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The steps in an order in which inputs come first; the steps of a loop are one stage.

    Within a loop's stage the order is that of one instant: a delay comes before its readers and does
    not wait for its input, because what enters it now leaves it later. A missing node is no step.
    """
    done: list[tuple[int, ...]] = []
    for component in _components(nodes, inputs):
        if len(component) == 1 and component[0] not in inputs[component[0]]:
            done.append(component)
        else:
            done.append(instant_order(component, nodes, inputs))
    return done


def _components(nodes: Sequence[Node | None], inputs: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Strongly connected components, inputs first (Tarjan's algorithm, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[tuple[int, ...]] = []
    for root, node in enumerate(nodes):
        if root in index or node is None:
            continue
        work = [(root, 0)]
        while work:
            step, edge = work.pop()
            if edge == 0:
                index[step] = low[step] = len(index)
                stack.append(step)
                on_stack.add(step)
            reads = inputs[step]
            if edge < len(reads):
                work.append((step, edge + 1))
                if reads[edge] not in index:
                    work.append((reads[edge], 0))
                elif reads[edge] in on_stack:
                    low[step] = min(low[step], index[reads[edge]])
                continue
            if low[step] == index[step]:
                cut = stack.index(step)
                found.append(tuple(sorted(stack[cut:])))
                on_stack.difference_update(stack[cut:])
                del stack[cut:]
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[step])
    return found


def instant_order(
    component: tuple[int, ...], nodes: Sequence[Node | None], inputs: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """Some steps in the order of one instant; see stages_of."""
    members = set(component)
    order: dict[int, None] = {}
    todo = [(step, False) for step in reversed(component)]
    while todo:
        step, is_ready = todo.pop()
        if is_ready or isinstance(nodes[step], Delay):
            order.setdefault(step)
        elif step not in order:
            todo.append((step, True))
            todo += [(source, False) for source in reversed(inputs[step]) if source in members]
    return tuple(order)


def plan_app(app: App, joins: str = "", *, shards: bool = False) -> Plan:
    """The control path: bound app, logical plans, rewrites, lowering, one shared graph.

    `joins` is a method for all joins outside loops, whatever their hints say. With `shards`, the plan is made
    to be cut into what shards do.
    """
    check_changes(LiveCatalog.of(app), app.changes)
    looping = queries_in_loops(app)
    plans = rewrite_app(app).items()
    methods = {name: "" if name in looping else joins for name, _ in plans}
    return share(app, {name: lowered(node, methods[name], shards=shards) for name, node in plans})


def plan_query(query: RegisteredQuery, names: Names, *, in_loop: bool = False, shards: bool = False) -> Node:
    """The control path of one query."""
    plan = rewrite(Builder(names).query(query.query))
    return lowered(chained(plan) if in_loop else plan, shards=shards)


def check_changes(catalog: LiveCatalog, changes: Iterable[CatalogChange]) -> None:
    """Refuses what no operator could run, and texts that will replace others whose windows they keep, if
    these do not remember enough."""
    for change in changes:
        after = catalog.after(change)
        for action in change.actions:
            if not isinstance(action, Register):
                continue
            plan = plan_query(action.query, after, in_loop=after.in_loop(action.query.name))
            for node in own_nodes(plan):
                check_width(node.schema, type(node).__name__)
            old = catalog.query(action.query.name)
            if old is not None:
                before = plan_query(old, catalog, in_loop=old.name.lower() in catalog.looped)
                refusal = keep(
                    QueryInCatalog(old, catalog), before, QueryInCatalog(action.query, after), plan
                ).refusal
                if refusal is not None:
                    raise refusal
        catalog = catalog.copy()
        catalog.apply(change)


def lowered(plan: Node, joins: str = "", *, shards: bool = False) -> Node:
    """A rewritten plan as operators run it. A query that is another's answer has a step of its own."""
    plan = lower(plan, joins, shards=shards)
    if isinstance(plan, Ref):
        items = tuple(Column(field.type, 0, i, field.name) for i, field in enumerate(plan.schema))
        return Project(plan.schema, plan, items)
    return plan


def share(app: App, plans: dict[str, Node]) -> Plan:
    """One step for each different node. Nodes are values, so sharing is looking them up.

    A query that is not among the plans is a step without inputs: whoever runs the plan has it already.
    """
    ids: dict[Node, int] = {}
    order: list[Node] = []
    by_name = {name.lower(): plan for name, plan in plans.items()}

    def behind(node: Node) -> Node:
        return by_name.get(node.name.lower(), node) if isinstance(node, Ref) else node

    for plan in plans.values():
        for node in _bottom_up(plan):
            if node not in ids and behind(node) is node:
                ids[node] = len(order)
                order.append(node)

    def resolve(node: Node) -> int:
        """The step behind a node."""
        return ids[behind(node)]

    steps = tuple(Step(ids[node], node, tuple(resolve(child) for child in node.children)) for node in order)
    return Plan(app, steps, tuple((name, resolve(plan)) for name, plan in plans.items()))


def own_nodes(plan: Node) -> list[Node]:
    """The nodes of a query's plan, each once, inputs first; what it reads of other queries is theirs."""
    return [node for node in dict.fromkeys(_bottom_up(plan)) if not isinstance(node, Ref)]


def _bottom_up(node: Node) -> list[Node]:
    """The node and everything below it, inputs first; what is below several nodes comes once."""
    found: dict[int, Node] = {}
    todo = [(node, False)]
    while todo:
        node, is_ready = todo.pop()
        if is_ready:
            found.setdefault(id(node), node)
        elif id(node) not in found:
            todo.append((node, True))
            todo += [(child, False) for child in reversed(node.children)]
    return list(found.values())
