"""EXPLAIN, one step: the algorithm that runs, its arguments, and what it remembers between instants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kasen.cql.bound import (
    Now,
    PartitionRows,
    Range,
    Rows,
    SetKind,
    Slide,
    StreamKind,
    Unbounded,
    Window,
)
from kasen.cql.expr import Aggregate, Expr
from kasen.engine.text.dictionary import Dictionary
from kasen.plan import logical
from kasen.plan import physical_nodes as nodes
from kasen.plan.explain.show import show, show_aggregate, show_length, show_window
from kasen.plan.logical import Deletions, Node, SemiKind
from kasen.plan.lower.instantiate import is_netted, leaving
from kasen.plan.lower.selection import network_condition
from kasen.plan.physical_nodes import MultiJoin
from kasen.types import BIGINT, Type

#: Columns that lowering makes. Whoever reads them calls them by what they hold.
_MADE = re.compile(r"[ak_]\d+|#ordinal")

#: Names of columns, by input.
Names = Mapping[str, tuple[str, ...]]
_NO_NAMES: Names = {}


def algorithm(node: Node) -> str:
    """The name of what runs."""
    match node:
        case logical.WindowNode():
            return "Window"
        case logical.WindowReports():
            return "WindowBounds"
        case logical.WindowActivity():
            return "WindowActivity"
        case logical.InnerJoin() | nodes.LeftJoined():
            return "HashJoin"
        case MultiJoin():
            return "ParallelMJoin" if node.parallel else "PairJoin" if node.is_pair else "MJoin"
        case nodes.CountedJoin():
            return "CountedPairJoin"
        case nodes.OrdinalRows():
            return "OrdinalWindow"
        case nodes.Numbered():
            return "TreeInput"
        case nodes.Selected():
            return "TreeSelector"
        case logical.SemiJoin(kind=kind):
            return "AntiJoin" if kind is SemiKind.ANTI else "SemiJoin"
        case nodes.Pad():
            return "PadNulls"
        case logical.Aggregate():
            return "HashAggregate"
        case logical.SetOp(kind=kind, all=all_):
            return kind.value.capitalize() + ("All" if all_ else "")
        case logical.Streamify(kind=StreamKind.RSTREAM, every=every):
            return "RStream" if every is None else "PeriodicRStream"
        case logical.Streamify(kind=kind):
            return "IStream" if kind is StreamKind.ISTREAM else "DStream"
        case logical.Ref():
            return "Read"
    return type(node).__name__


def describe(node: Node, time: Type) -> str:
    """One line: the algorithm, its arguments, and its state."""
    remembered = state(node, time)
    parts = [*_arguments(node, time), *([f"state: {remembered}"] if remembered else [])]
    return f"{algorithm(node)}: {'; '.join(parts)}" if parts else algorithm(node)


def _arguments(node: Node, time: Type) -> Iterator[str]:
    match node:
        case logical.Scan(name=name) | logical.Ref(name=name):
            yield name
        case logical.Filter(condition=condition):
            yield show(condition)
            if network_condition(node, Dictionary()) is not None:
                yield f"in the selection network of {getattr(node.child, 'name', '')}"
        case logical.Project(items=items, schema=schema):
            named = [_item(item, field.name) for item, field in zip(items, schema, strict=True)]
            yield ", ".join(named) or "no columns"
        case logical.WindowNode(window=window, child=child):
            yield show_window(window, time, child.schema.names)
        case logical.WindowActivity(window=window, child=child):
            while isinstance(child, logical.Project):
                child = child.child  # the window's columns are the stream's, of which it needs none
            yield "any change" if window is None else show_window(window, time, child.schema.names)
        case logical.WindowReports(window=window) | nodes.OrdinalRows(window=window):
            yield show_window(window, time)
        case logical.InnerJoin(classes=classes, residual=residual):
            yield from _join((tuple(show(key) for _, key in each) for each in classes), residual)
        case nodes.LeftJoined(names=names, residual=residual):
            yield from _join(names, residual)
            yield "emits: what changes of the left input cause"
        case MultiJoin():
            yield from _multi_join(node, time)
        case nodes.CountedJoin(join=join, counted=counted):
            yield from _multi_join(join, time, counted)
        case logical.SemiJoin(keys=keys, residual=residual):
            yield from _join((tuple(map(show, pair)) for pair in keys), residual)
        case nodes.Numbered(number=number):
            yield f"input {number + 1}"
        case nodes.Selected(trees=trees):
            yield f"{len(trees)} trees"
        case nodes.Pad(before=before, after=after):
            yield f"{_many(before or after, 'column')} {'before' if before else 'behind'}"
        case logical.Aggregate(keys=keys, aggregates=calls):
            yield from _grouping(map(show, keys), calls)
            yield f"rows leave: {leaving(node).value}"
        case nodes.SlidingAggregate(window=window, aggregates=calls, child=child):
            yield from _grouping(column_names(child)[: node.keys], calls)
            yield f"window: {show_window(window, time)}"
            panes = window.length // node.pane
            yield f"panes: {panes} of {show_length(node.pane, time)}"
        case logical.Streamify(every=int() as every):
            yield f"every {show_length(every, time)}"
        case logical.Streamify(kind=StreamKind.ISTREAM | StreamKind.DSTREAM) if is_netted(node):
            yield "nothing to net"
        case logical.Delay(length=length, inserted=inserted):
            yield "<Now>" if length.length is None else f"<{show_length(length.length, time)}>"
            if inserted:
                yield "inserted"


def _item(item: Expr, name: str) -> str:
    text = show(item)
    is_known = text == name or text.endswith(f".{name}") or _MADE.fullmatch(name)
    return text if is_known else f"{text} AS {name}"


def column_names(node: Node, scans: Names = _NO_NAMES) -> tuple[str, ...]:
    """What people call a step's columns: those that lowering has made, by what they hold.

    `scans` has the names of inputs' columns where these are not those of their schemas.
    """
    match node:
        case logical.Scan(name=name, schema=schema):
            return scans.get(name) or schema.names
        case logical.Project(items=items, schema=schema):
            return tuple(
                show(item) if _MADE.fullmatch(field.name) else field.name
                for item, field in zip(items, schema, strict=True)
            )
        case logical.Filter(child=child) | logical.WindowNode(child=child) | logical.Distinct(child=child):
            return column_names(child, scans)
        case logical.Aggregate(keys=keys, aggregates=calls):
            return (*map(show, keys), *map(show_aggregate, calls))
        case nodes.SlidingAggregate(keys=count, aggregates=calls, child=child):
            return (*column_names(child, scans)[:count], *map(show_aggregate, calls))
        case logical.InnerJoin(inputs=inputs) | nodes.LeftJoined(inputs=inputs):
            return tuple(name for child in inputs for name in column_names(child, scans))
        case MultiJoin(inputs=inputs, columns=columns):
            known = [column_names(child, scans) for child in inputs]
            return tuple(known[at][index] for at, index in columns)
    return node.schema.names


def _join(keys: Iterable[Iterable[str]], residual: Expr | None) -> Iterator[str]:
    pairs = [" = ".join(each) for each in keys]
    yield " AND ".join(pairs) or ("all pairs" if residual is None else f"all pairs with {show(residual)}")
    if pairs and residual is not None:
        yield f"filter: {show(residual)}"


def _multi_join(node: MultiJoin, time: Type, counted: tuple[int, ...] = ()) -> Iterator[str]:
    residuals = [show(residual) for residual in node.residuals]
    yield " AND ".join(" = ".join(each) for each in node.names) or "all combinations"
    if residuals:
        yield f"filter: {' AND '.join(residuals)}"
    windows = []
    for at, (window, child) in enumerate(zip(node.windows, node.inputs, strict=True)):
        if at in counted:
            assert isinstance(child, logical.WindowNode)
            windows.append(f"{show_window(child.window, time)} by ordinals")
        else:
            windows.append("rows of the input" if window is None else show_window(window, time))
    yield f"windows: {', '.join(windows)}"
    if node.deletions is not Deletions.ALL and not node.insert_only:
        yield f"emits deletions: {node.deletions.value}"


def _grouping(keys: Iterable[str], calls: tuple[Aggregate, ...]) -> Iterator[str]:
    names = ", ".join(keys)
    if calls:
        yield ", ".join(map(show_aggregate, calls))
    yield f"group by: {names}" if names else "one group"
    if users := dict.fromkeys(call.function.upper() for call in calls if call.user is not None):
        yield f"in Python: {', '.join(users)}"


def state(node: Node, time: Type) -> str:
    """What the step remembers between instants; empty if nothing."""
    match node:
        case (
            logical.WindowNode(window=Unbounded())
            | logical.WindowActivity(window=Unbounded() | PartitionRows() | None)
        ):
            return ""  # whoever needs a tuple again keeps it; and any arrival is activity
        case logical.WindowActivity(window=Rows()):
            return "the tuples since the last slide"
        case logical.WindowNode(window=window) | nodes.OrdinalRows(window=window):
            return _window_state(window, time)
        case logical.WindowActivity() | logical.WindowReports():
            return "times of tuples in the window"
        case MultiJoin(windows=windows):
            return " + ".join(_input_state(window, time) for window in windows)
        case nodes.CountedJoin(join=join, counted=counted):
            inputs = enumerate(zip(join.inputs, join.windows, strict=True))
            held = [getattr(child, "window", None) if at in counted else own for at, (child, own) in inputs]
            return " + ".join(_input_state(window, time) for window in held)
        case logical.InnerJoin() | nodes.LeftJoined() | logical.SemiJoin():
            return "both inputs"
        case logical.Aggregate(aggregates=calls):
            # DISTINCT, percentiles and users' aggregates need the values themselves.
            is_whole = any(call.distinct or call.parameter is not None or call.user for call in calls)
            return "groups with their values" if is_whole else "groups"
        case nodes.SlidingAggregate(window=window):
            return f"{_many(window.length // node.pane, 'pane')} of groups"
        case logical.Distinct():
            return "rows with their counts"
        case logical.SetOp(kind=kind, all=all_):
            return "" if kind is SetKind.UNION and all_ else "rows with their counts"
        case logical.Streamify(kind=StreamKind.RSTREAM):
            return "the relation"
        case logical.Delay():
            return "tuples on their way"
    return ""


def _input_state(window: Window | None, time: Type) -> str:
    return "the input's rows" if window is None else _window_state(window, time)


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
            return f"{_many(count, 'tuple')} per partition"
    raise AssertionError
