"""EXPLAIN: the plan as text. What is shared, how it may be sharded, where loops are cut."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from textwrap import wrap

from kasen.cql.bound import (
    App,
    Input,
    Now,
    PartitionRows,
    Range,
    Rows,
    Slide,
    Tick,
    Unbounded,
    Window,
)
from kasen.cql.check.loops import show as show_loop
from kasen.cql.expr import Aggregate, Column, Expr
from kasen.plan import logical
from kasen.plan.exprs import rebuild, show, show_aggregate
from kasen.plan.logical import Node
from kasen.plan.lower.joins import MJOIN, method
from kasen.plan.lower.loops import why_called
from kasen.plan.physical import Plan, plan_app
from kasen.plan.rules.rewrite import rewrite_app
from kasen.plan.shard.loops import loop_sharding
from kasen.plan.shard.partition import sharding
from kasen.types import BIGINT, TIMESTAMP, Pressure, Type

_STATELESS = (logical.Scan, logical.Ref, logical.Filter, logical.Project)
_WIDTH = 110


def explain(app: App) -> str:
    """The whole app: inputs, then each query's plan, then its loops."""
    plans = rewrite_app(app)
    printer = _Printer(app.time, _shared(plans))
    blocks = [_inputs(app)]
    blocks += [printer.query(name, plan) for name, plan in plans.items()]
    if app.loops:
        blocks.append(_loops(app))
    if app.warnings:
        blocks.append("\n".join(f"warning: {text}" for text in app.warnings))
    return "\n\n".join(blocks) + "\n"


def _shared(plans: dict[str, Node]) -> dict[Node, int]:
    """The sub-plans that stand in several places and are computed once, numbered; the largest only.

    A scan is always shared, so it says nothing.
    """
    counts = Counter(node for plan in plans.values() for node in _shown(plan))
    found: dict[Node, int] = {}

    def visit(node: Node) -> None:
        if counts[node] > 1 and not isinstance(node, logical.Scan | logical.Ref):
            found.setdefault(node, len(found) + 1)
            return
        for child in _branches(node):
            visit(child)

    for plan in plans.values():
        visit(plan)
    return found


def _branches(node: Node) -> list[Node]:
    """The inputs that are drawn as branches. The instants at which RSTREAM fires are a note instead."""
    return [child for child in node.children if not isinstance(child, logical.WindowActivity)]


def _shown(node: Node) -> list[Node]:
    """The node and everything drawn below it."""
    return [node, *(below for child in _branches(node) for below in _shown(child))]


def _inputs(app: App) -> str:
    lines = [f"time: {app.time}"]
    for input_ in app.inputs:
        kind = "relation" if input_.is_relation else "stream"
        text = f"{kind} {input_.name} {input_.schema} from {input_.connector.format}"
        lines += _noted("", text, [_order(input_, app.time)])
    return "\n".join(lines)


def _order(one: Input, time: Type) -> str:
    """How the input's tuples are ordered."""
    if one.is_static:
        return "static table, holds from the beginning"
    by = one.schema[one.timestamp].name if one.timestamp is not None else "arrival"
    parts = [f"by {by}, then position in the source"]
    if one.tick is Tick.TUPLE:
        parts.append("every tuple an instant")
    # IDLE waits by the clock, whatever the stream's own time is.
    lengths = (("slack", one.slack, time), ("idle", one.idle, TIMESTAMP), ("retain", one.retain, time))
    parts += [f"{name} {show_length(length, unit)}" for name, length, unit in lengths if length]
    if one.pressure.policy is not Pressure.BLOCK:
        parts.append(f"on pressure {str(one.pressure).lower()}")
    return ", ".join(parts)


@dataclass(slots=True)
class _Printer:
    """Prints plans as trees; a shared sub-plan is printed where it is met first."""

    time: Type
    shared: dict[Node, int]
    printed: set[Node] = field(default_factory=set)

    def query(self, name: str, plan: Node) -> str:
        kind = "stream" if plan.is_stream else "relation"
        lines = [f"query {name}: {kind} {plan.schema}"]
        self._tree(plan, "  ", "  ", lines)
        return "\n".join(lines)

    def _tree(self, node: Node, lead: str, indent: str, lines: list[str]) -> None:
        again = node in self.printed
        children = [] if again else _branches(node)
        below = indent + ("│" if children else " ")
        lines += _noted(lead, describe(node, self.time), self._notes(node, again), below)
        if node in self.shared:
            self.printed.add(node)
        for position, child in enumerate(children):
            last = position == len(children) - 1
            deeper = indent + ("   " if last else "│  ")
            self._tree(child, indent + ("└─ " if last else "├─ "), deeper, lines)

    def _notes(self, node: Node, again: bool) -> list[str]:
        if again:
            return [f"shared #{self.shared[node]}, see above"]
        notes = [f"shared #{self.shared[node]}"] if node in self.shared else []
        if not isinstance(node, _STATELESS):
            notes += [f"shard: {sharding(node)}", f"state: {state(node, self.time)}"]
        if isinstance(node, logical.InnerJoin | logical.WindowJoin):
            notes += _how(node)
        if isinstance(node, logical.Streamify) and not node.needs_deletions:
            notes.append("no deletions")
        if isinstance(node, logical.Streamify) and node.leaves:
            notes.append("fires with " + ", ".join(_leaf(leaf, self.time) for leaf in node.leaves))
        return notes


def _noted(lead: str, text: str, notes: list[str], below: str = "") -> list[str]:
    """A line with its notes behind it, or below it (each line led in by `below`) where they do not fit."""
    if not notes:
        return _wrapped(lead, text, below)
    line = f"{lead}{text}   -- {'; '.join(notes)}"
    if len(line) <= _WIDTH:
        return [line]
    noted = [part for note in notes for part in _wrapped(f"{below}    -- ", note, f"{below}       ")]
    return [*_wrapped(lead, text, f"{below}  "), *noted]


def _wrapped(first: str, text: str, later: str) -> list[str]:
    return wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _leaf(leaf: Node, time: Type) -> str:
    """A leaf of an RSTREAM: what its window stands on, and the window."""
    assert isinstance(leaf, logical.WindowActivity)
    stream = leaf.child
    while isinstance(stream, logical.Project | logical.Filter):
        stream = stream.child
    name = stream.name if isinstance(stream, logical.Scan | logical.Ref) else "a sub-query"
    return name if leaf.window is None else f"{name} {show_window(leaf.window, time, stream)}"


def describe(node: Node, time: Type) -> str:
    """One line about a node."""
    match node:
        case logical.Scan(name=name):
            return f"Scan {name}"
        case logical.Ref(name=name):
            return f"Read {name}"
        case logical.WindowNode(window=window):
            return f"Window {show_window(window, time, node.child)}"
        case logical.WindowReports(window=window):
            return f"Reports of {show_window(window, time)}"
        case logical.WindowActivity():
            return f"Instants of {_leaf(node, time)}"
        case logical.Filter(condition=condition):
            return f"Filter {show(condition)}"
        case logical.Project(items=items, schema=schema):
            named = [_item(item, field.name) for item, field in zip(items, schema, strict=True)]
            return "Project " + (", ".join(named) or "no columns")
        case logical.InnerJoin() | logical.WindowJoin():
            return _join(node, time)
        case logical.OuterJoin(kind=kind, keys=keys, residual=residual):
            return f"{kind.value.capitalize()}Join {_condition(keys, residual) or 'all pairs'}"
        case logical.SemiJoin(kind=kind):
            name = "".join(word.capitalize() for word in kind.value.replace("-", " ").split())
            return f"{name}Join {_condition(*_apart(node)) or 'any row'}"
        case logical.Aggregate(keys=keys, aggregates=calls):
            return f"Aggregate {_grouping(keys, calls)}"
        case logical.WindowAggregate(window=window, keys=keys, aggregates=calls, condition=condition):
            where = f" WHERE {show(condition)}" if condition is not None else ""
            return f"WindowAggregate {show_window(window, time, node.child)}{where} {_grouping(keys, calls)}"
        case logical.PaneAggregate(pane=pane, keys=keys, aggregates=calls, condition=condition):
            where = f" WHERE {show(condition)}" if condition is not None else ""
            return f"PaneAggregate pane {show_length(pane, time)}{where} {_grouping(keys, calls)}"
        case logical.WindowCombine(window=window, keys=count, aggregates=calls, child=panes):
            keys = panes.keys if isinstance(panes, logical.PaneAggregate) else ()
            assert len(keys) == count
            return f"WindowCombine {show_window(window, time)} {_grouping(keys, calls)}"
        case logical.Distinct():
            return "Distinct"
        case logical.SetOp(kind=kind, all=all_):
            return f"{kind.value.capitalize()}{' all' if all_ else ''}"
        case logical.Streamify(kind=kind, every=every):
            return kind.value + (f" every {show_length(every, time)}" if every is not None else "")
        case logical.Delay(length=length, inserted=inserted):
            text = "<Now>" if length.length is None else f"<{show_length(length.length, time)}>"
            return f"Delay {text}" + (" (inserted)" if inserted else "")
    raise AssertionError(f"no description for {type(node).__name__}")


def _item(item: Expr, name: str) -> str:
    text = show(item)
    return text if text == name or text.endswith(f".{name}") else f"{text} AS {name}"


def _join(node: logical.InnerJoin | logical.WindowJoin, time: Type) -> str:
    name = "Join" if isinstance(node, logical.InnerJoin) else "WindowJoin"
    parts = [" = ".join(show(key) for _, key in each) for each in node.classes]
    if node.residual is not None:
        parts.append(show(node.residual))
    text = f"{name} {' AND '.join(parts) or 'all pairs'}"
    if isinstance(node, logical.WindowJoin):
        windows = zip(node.windows, node.inputs, strict=True)
        text += " over " + " ".join(show_window(window, time, child) for window, child in windows)
    return text


def _how(node: logical.InnerJoin | logical.WindowJoin) -> list[str]:
    """By which method a join is run, and what it leaves out."""
    name = method(node)
    notes = [f"by {name.replace('_', ' ').lower()}"]
    if name == MJOIN and isinstance(node, logical.WindowJoin) and node.deletions is not logical.Deletions.ALL:
        notes.append(f"deletions: {node.deletions.value}")
    return notes


def _apart(node: logical.SemiJoin) -> tuple[tuple[tuple[Expr, Expr], ...], Expr | None]:
    """Keys and residual with the sub-query's columns marked: both sides may call theirs the same."""
    width = len(node.left.schema)

    def inside(part: Expr) -> Expr:
        return replace(part, name=f"query.{part.name}") if isinstance(part, Column) else part

    def beyond(part: Expr) -> Expr:
        return inside(part) if isinstance(part, Column) and part.index >= width else part

    keys = tuple((left, rebuild(right, inside)) for left, right in node.keys)
    return keys, None if node.residual is None else rebuild(node.residual, beyond)


def _condition(keys: tuple[tuple[Expr, Expr], ...], residual: Expr | None) -> str:
    parts = [f"{show(left)} = {show(right)}" for left, right in keys]
    if residual is not None:
        parts.append(show(residual))
    return " AND ".join(parts)


def _grouping(keys: tuple[Expr, ...], calls: tuple[Aggregate, ...]) -> str:
    aggregates = ", ".join(show_aggregate(call) for call in calls)
    names = ", ".join(show(key) for key in keys)
    return " ".join(part for part in (aggregates, f"by {names}" if names else "") if part)


_UNITS = (("DAY", 86_400_000_000), ("HOUR", 3_600_000_000), ("MINUTE", 60_000_000), ("SECOND", 1_000_000))


def show_length(length: int, time: Type) -> str:
    """A length of time in the largest unit that divides it."""
    if time == BIGINT:
        return str(length)
    for unit, size in _UNITS:
        if length and length % size == 0:
            return f"{length // size} {unit}"
    return f"{length // 1000} MILLISECOND" if length and length % 1000 == 0 else f"{length} MICROSECOND"


def show_window(window: Window, time: Type, child: Node | None = None) -> str:
    match window:
        case Range(length):
            return f"[RANGE {show_length(length, time)}]"
        case Slide(length, slide):
            return f"[RANGE {show_length(length, time)} SLIDE {show_length(slide, time)}]"
        case PartitionRows(keys, count) if child is not None:
            return f"[PARTITION BY {', '.join(child.schema[key].name for key in keys)} ROWS {count}]"
    return str(window)


def state(node: Node, time: Type) -> str:
    """What the step remembers between instants."""
    match node:
        case logical.WindowNode(window=Unbounded()):
            return "none"  # whoever needs a tuple again keeps it
        case logical.WindowNode(window=window):
            return _window_state(window, time)
        case logical.WindowJoin(windows=windows):
            return " + ".join(_window_state(window, time) for window in windows)
        case logical.WindowAggregate(window=Unbounded(), aggregates=calls):
            return _groups(calls)
        case logical.WindowAggregate(window=window, aggregates=calls):
            return f"{_window_state(window, time)}, {_groups(calls)}"
        case logical.PaneAggregate():
            return "groups of the open pane"
        case logical.WindowCombine(window=window, child=logical.PaneAggregate(pane=pane)):
            return f"{_many(window.length // pane, 'pane')} of groups"
        case logical.Aggregate(aggregates=calls):
            return _groups(calls)
        case logical.Streamify(kind=kind):
            return "the relation" if kind.value == "RSTREAM" else "none"
        case logical.Delay():
            return "tuples on their way"
        case logical.WindowReports():
            return "times of tuples in the window"
        case logical.SetOp(kind=kind, all=all_) if kind.value == "UNION" and all_:
            return "none"
    return "the relations below it"


def _groups(calls: tuple[Aggregate, ...]) -> str:
    """DISTINCT, percentiles and users' aggregates need the values themselves, whatever their window."""
    whole = any(call.distinct or call.parameter is not None or call.user is not None for call in calls)
    return "groups with their values" if whole else "groups"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _window_state(window: Window, time: Type) -> str:
    match window:
        case Unbounded():
            return "every tuple (grows for ever)"
        case Now():
            return "one instant"
        case Range(length) | Slide(length, _):
            return f"{_many(length, 'unit') if time == BIGINT else show_length(length, time)} of tuples"
        case Rows(count, slide):
            waiting = f" and up to {slide - 1} waiting" if slide > 1 else ""
            return _many(count, "tuple") + waiting
        case PartitionRows(_, count):
            return f"{_many(count, 'tuple')} a partition"
    raise AssertionError


def _loops(app: App) -> str:
    cut = {query.name for query in app.queries if getattr(query.query, "delay", None) is not None}
    lines = ["loops:"]
    for loop in app.loops:
        cuts = [name for name in loop if name in cut]
        where = f"cut at the delay of {', '.join(cuts)}" if cuts else "cut at a delay inside"
        lines += _noted("  ", show_loop(loop), [where, "runs instant by instant"], "  ")
    plan = plan_app(app)
    for stage in plan.stages():
        if len(stage) > 1 or stage[0] in plan.steps[stage[0]].inputs:
            names = ", ".join(name for name, step in plan.outputs if step in stage)
            lines += _noted("  ", f"{names}: {_many(len(stage), 'step')}", _loop_notes(plan, stage), "  ")
    return "\n".join(lines)


def _loop_notes(plan: Plan, stage: tuple[int, ...]) -> list[str]:
    """What the loop machine runs itself, and whether the loop can be sharded."""
    called = list(dict.fromkeys(why for step in stage if (why := why_called(plan.steps[step].node))))
    if called:
        machine = f"called by the loop machine, which does not know them: {', '.join(called)}"
    else:
        machine = "all inside the loop machine"
    return [machine, str(loop_sharding(plan, stage))]
