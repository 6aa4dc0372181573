"""What of a plan Spark does itself: the part directly above the scans, as Spark SQL.

For every stream the plan is cut above the filters and projections over its scan. Below it Spark computes:
the columns that somebody needs, each condition as a BOOLEAN column, each computed item as a column. All rows
cross, because order and lateness are judged over all of them; the filter above the cut reads one column. If a
stream is read by sliding aggregates alone, whole panes are reduced in the JVM instead (see `partials`).
The rest of the plan is a plan again, over wider or reduced inputs, and runs as any plan does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kasen.cql.expr import Column, Expr, Literal, conjunction, conjuncts
from kasen.plan import logical
from kasen.plan.explain.show import brief, show
from kasen.plan.exprs import columns_used, substitute
from kasen.plan.logical import Node, Scan, walk
from kasen.plan.native.partials import Grouping, NoPartials, Partials, group
from kasen.plan.native.sql import NotNative, condition_failures, failures, sql
from kasen.plan.native.sql_text import quoted
from kasen.plan.physical import Input, Plan, share
from kasen.plan.physical_nodes import SlidingAggregate
from kasen.types import BOOLEAN, MAX_COLUMNS, Field, Schema, Type

#: Formats whose rows have a file and a place in it.
FILES = ("csv", "json", "parquet")
#: With more conditions and computed items than this, sending what they are made of is cheaper.
_MOST_COMPUTED = 8


@dataclass(frozen=True, slots=True)
class StreamView:
    """What a consumer sees of a stream: rows that meet the conditions, as items over the scan's columns."""

    scan: Scan
    conditions: tuple[Expr, ...]
    items: tuple[Expr, ...]

    @property
    def condition(self) -> Expr | None:
        return conjunction(self.conditions)


@dataclass(frozen=True, slots=True)
class NativeScan:
    """What Spark computes of one stream.

    `columns` are the residual input's columns as SQL over the source's, None for one that nobody reads.
    `failures` counts the operations that failed in a row. With `partials` the rows can be reduced first.
    """

    source: str
    columns: tuple[str | None, ...]
    failures: str | None
    notes: tuple[str, ...]
    partials: Partials | None = None
    #: What people call the columns.
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NativePlan:
    """The cut plan: what is left for the operators, and what Spark computes for each of its streams."""

    plan: Plan
    scans: dict[str, NativeScan]

    def scan(self, input_: Input) -> NativeScan:
        """What Spark computes of an input; an outside relation's columns cross as they are."""
        columns = tuple(quoted(field.name) for field in input_.schema)
        return self.scans.get(input_.name, NativeScan(input_.name, columns, None, ()))

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """What people call the columns of each stream."""
        return {name: scan.names for name, scan in self.scans.items()}

    def types(self, input_: Input) -> tuple[Type, ...]:
        """The types of what crosses."""
        partials = self.scan(input_).partials
        return input_.schema.types if partials is None else partials.types


def lower(plan: Plan, *, partials: bool = True) -> NativePlan:
    """Cuts the plan above what Spark can compute exactly; without `partials`, panes are not reduced."""
    if plan.app.changes:
        return NativePlan(plan, {})  # a query that comes later may need any column
    roots = {name: plan.steps[step].node for name, step in plan.outputs}
    streams = {input_.name: input_ for input_ in plan.app.inputs if not input_.is_relation}
    nodes = list(roots.values())
    cuts = {
        name: _cut(one, nodes, plan) if partials else _by_rows(one, nodes, "")
        for name, one in streams.items()
    }
    app = replace(plan.app, inputs=tuple(_input(input_, cuts.get(input_.name)) for input_ in plan.app.inputs))
    left = {name: _residual(root, cuts) for name, root in roots.items()}
    return NativePlan(share(app, left), {name: cut.scan for name, cut in cuts.items()})


def is_foreign(input_: Input) -> bool:
    """Whether an input's rows come without positions."""
    return input_.connector.format not in FILES


# ---------------------------------------------------------------- cutting one stream


@dataclass(frozen=True, slots=True)
class _ResidualLayout:
    """How a stream's consumers read the residual input: each view by the columns that stand for it."""

    scan: NativeScan
    schema: Schema
    timestamp: int | None
    places: dict[Expr, int]
    grouping: Grouping | None = None


def _cut(input_: Input, roots: list[Node], plan: Plan) -> _ResidualLayout:
    try:
        grouping = _grouping(input_, roots, plan)
    except NoPartials as refused:
        return _by_rows(input_, roots, str(refused))
    scan = NativeScan(input_.name, grouping.partials.base, None, grouping.notes, grouping.partials)
    return _ResidualLayout(scan, grouping.schema, 0, {}, grouping)


def _grouping(input_: Input, roots: list[Node], plan: Plan) -> Grouping:
    """Pane partials, if sliding aggregates are all that reads the stream."""
    readers: list[tuple[SlidingAggregate, StreamView]] = []
    others = 0

    def visit(node: Node) -> None:
        nonlocal others
        if isinstance(node, SlidingAggregate) and (view := _view(node.child)) is not None:
            if view.scan.name == input_.name and node not in dict(readers):
                readers.append((node, view))
            return
        others += isinstance(node, Scan) and node.name == input_.name
        for child in node.children:
            visit(child)

    for root in roots:
        visit(root)
    if not readers:
        raise NoPartials("")
    if others:
        raise NoPartials("other steps need the rows themselves")
    return group(input_, readers, plan.app)


def _by_rows(input_: Input, roots: list[Node], why: str) -> _ResidualLayout:
    try:
        return _with_columns(input_, roots, why)
    except NotNative as reason:
        # Each condition is native, but all of them together, or the count of their failures, is too long.
        return _with_columns(input_, roots, why, refused=str(reason))


def _with_columns(input_: Input, roots: list[Node], why: str, refused: str = "") -> _ResidualLayout:
    views = [view for root in roots for view in _tops(root) if view.scan.name == input_.name]
    computed = list(dict.fromkeys(expr for view in views for expr in _computed(view)))
    notes = [f"Spark does not reduce to panes: {why}"] if why else []
    names = [quoted(field.name) for field in input_.schema]
    if len(computed) > _MOST_COMPUTED or len(input_.schema) + len(computed) > MAX_COLUMNS:
        notes.append(
            f"Spark does not compute expressions: {len(computed)} columns more cost more than they save"
        )
        computed = []
    elif refused:
        notes.append(f"Spark does not compute expressions: {refused}")
        computed = []
    lowered = bool(computed)
    # At least one column crosses, or nothing would tell how many rows there are.
    used = {input_.timestamp if input_.timestamp is not None else 0}
    if is_foreign(input_):
        used |= set(range(len(input_.schema)))
    for view in views:
        kept = [expr for expr in (*view.items, *view.conditions) if not lowered or isinstance(expr, Column)]
        used |= {index for expr in kept for index in columns_used(expr)}
    columns = [names[index] if index in used else None for index in range(len(names))]
    fields = list(input_.schema.fields)
    shown = list(input_.schema.names)
    places = {}
    for expr in computed:
        places[expr] = len(columns)
        columns.append(sql(expr, names))
        fields.append(Field(f"_{len(places)}", expr.type))
        shown.append(f"native({brief(expr)})")
        notes.append(f"Spark computes: {show(expr)}")
    unread = [field.name for field, column in zip(input_.schema, columns, strict=False) if column is None]
    if unread:
        notes.append(f"Spark does not hand over: {', '.join(unread)}")
    count = _failures(roots, input_, names) if lowered else None
    scan = NativeScan(input_.name, tuple(columns), count, tuple(notes), names=tuple(shown))
    return _ResidualLayout(scan, Schema(tuple(fields)), input_.timestamp, places)


def _computed(view: StreamView) -> Iterator[Expr]:
    """What Spark computes for a view; a condition that is one column needs no other."""
    condition = view.condition
    if condition is not None and not isinstance(condition, Column):
        yield condition
    yield from (item for item in view.items if not isinstance(item, Column | Literal))


def _failures(roots: list[Node], input_: Input, names: list[str]) -> str | None:
    """The failures of every lowered step, each counted once however many read it."""
    counts: list[str] = []
    nodes = [node for root in roots for node in walk(root)]
    for node in dict.fromkeys(node for node in nodes if isinstance(node, logical.Filter | logical.Project)):
        below = _view(node.child)
        if _view(node) is None or below is None or below.scan.name != input_.name:
            continue
        if isinstance(node, logical.Filter):
            found = [condition_failures(substitute(node.condition, below.items), names)]
        else:
            found = [failures(substitute(item, below.items), names) for item in node.items]
        there = " + ".join(count for count in found if count is not None)
        guard = below.condition
        if there:
            counts.append(f"IF({sql(guard, names)}, {there}, 0)" if guard is not None else f"({there})")
    return " + ".join(counts) or None


# ---------------------------------------------------------------- views


def _view(node: Node) -> StreamView | None:
    """The node as a view of a stream, if Spark can compute all of it."""
    match node:
        case Scan(relation=False):
            items = tuple(Column(field.type, 0, i, field.name) for i, field in enumerate(node.schema))
            return StreamView(node, (), items)
        case logical.Filter(child=child, condition=condition):
            below = _view(child)
            if below is None:
                return None
            parts = tuple(substitute(part, below.items) for part in conjuncts(condition))
            view = replace(below, conditions=(*below.conditions, *parts))
            return view if _is_native(view, parts) else None
        case logical.Project(child=child):
            below = _view(child)
            if below is None:
                return None
            computed = tuple(substitute(item, below.items) for item in node.items)
            view = replace(below, items=computed)
            return view if _is_native(view, computed) else None
    return None


def _is_native(view: StreamView, exprs: tuple[Expr, ...]) -> bool:
    names = [quoted(field.name) for field in view.scan.schema]
    try:
        for expr in exprs:
            sql(expr, names)
    except NotNative:
        return False
    return True


def _tops(node: Node) -> Iterator[StreamView]:
    """The highest views of a plan: what is read by steps that are none."""
    view = _view(node)
    if view is not None:
        yield view
        return
    for child in node.children:
        yield from _tops(child)


# ---------------------------------------------------------------- the rest of the plan


def _input(input_: Input, cut: _ResidualLayout | None) -> Input:
    if cut is None:
        return input_
    return replace(input_, schema=cut.schema, timestamp=cut.timestamp)


def _residual(node: Node, cuts: dict[str, _ResidualLayout]) -> Node:
    """The node over the residual inputs; its schema stays what it was."""
    if isinstance(node, SlidingAggregate):
        view = _view(node.child)
        grouping = cuts[view.scan.name].grouping if view is not None else None
        if view is not None and grouping is not None:
            scan = replace(view.scan, schema=cuts[view.scan.name].schema)
            return grouping.combine(node, scan)
    view = _view(node)
    if view is not None:
        return _read(view, cuts[view.scan.name], node)
    children = tuple(_residual(child, cuts) for child in node.children)
    return node.with_children(children) if children else node


def _read(view: StreamView, cut: _ResidualLayout, node: Node) -> Node:
    """The view, from the columns that Spark computed for it."""
    if not cut.places:
        return _over_raw(node, view.scan, replace(view.scan, schema=cut.schema))
    scan: Node = replace(view.scan, schema=cut.schema)
    condition = view.condition
    if condition is not None:
        place = condition.index if isinstance(condition, Column) else cut.places[condition]
        scan = logical.Filter(scan.schema, scan, Column(BOOLEAN, 0, place, f"native({show(condition)})"))
    items = tuple(_instead(item, cut) for item in view.items)
    return logical.Project(node.schema, scan, items)


def _instead(item: Expr, cut: _ResidualLayout) -> Expr:
    if item not in cut.places:
        return item
    return Column(item.type, 0, cut.places[item], f"native({brief(item)})")


def _over_raw(node: Node, scan: Scan, instead: Scan) -> Node:
    if node == scan:
        return instead
    return node.with_children(tuple(_over_raw(child, scan, instead) for child in node.children))
