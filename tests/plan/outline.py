"""Plans as text, for tests that show the plan before and after."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

from kasen.cql.bind.app import bind_text
from kasen.cql.bound import App, Window
from kasen.cql.expr import Aggregate, Column, Expr
from kasen.plan import logical
from kasen.plan.build import build
from kasen.plan.explain.show import show, show_aggregate, show_window
from kasen.plan.exprs import rebuild
from kasen.plan.logical import Node
from kasen.types import BIGINT

INPUTS = """
REGISTER STREAM s (a INTEGER, b INTEGER, c VARCHAR) TIMESTAMP BY ts FROM 'memory';
REGISTER STREAM t (a INTEGER, b INTEGER, d DOUBLE) TIMESTAMP BY ts FROM 'memory';
REGISTER STREAM u (a INTEGER, e INTEGER) TIMESTAMP BY ts FROM 'memory';
REGISTER RELATION r (a INTEGER, name VARCHAR) FROM 'memory';
"""


def bind(query: str) -> App:
    """An app with one query, q, over streams s, t, u and the relation r."""
    return bind_text(f"{INPUTS}REGISTER QUERY q AS {query};", sniff=lambda *_: BIGINT)


def plan_of(query: str) -> Node:
    """The plan of a query before any rewrite."""
    return build(bind(query))["q"]


def outline(node: Node) -> str:
    """A line a node, inputs further in; nothing about shards or state."""
    return "\n".join(_lines(node, ""))


def _lines(node: Node, lead: str) -> list[str]:
    lines = [lead + _describe(node)]
    for child in node.children:
        lines += _lines(child, lead + "  ")
    return lines


def _describe(node: Node) -> str:
    """One line about a logical node."""
    match node:
        case logical.Scan(name=name):
            return f"Scan {name}"
        case logical.Ref(name=name):
            return f"Read {name}"
        case logical.WindowNode(window=window, child=child):
            return f"Window {_window(window, child)}"
        case logical.WindowReports(window=window, child=child):
            return f"Reports of {_window(window, child)}"
        case logical.Filter(condition=condition):
            return f"Filter {show(condition)}"
        case logical.Project(items=items, schema=schema):
            named = [_item(item, field.name) for item, field in zip(items, schema, strict=True)]
            return "Project " + (", ".join(named) or "no columns")
        case logical.InnerJoin() | logical.WindowJoin():
            return _join(node)
        case logical.OuterJoin(kind=kind, keys=keys, residual=residual):
            return f"{kind.value.capitalize()}Join {_condition(keys, residual) or 'all pairs'}"
        case logical.SemiJoin(kind=kind):
            name = "".join(word.capitalize() for word in kind.value.replace("-", " ").split())
            return f"{name}Join {_condition(*_apart(node)) or 'any row'}"
        case logical.Aggregate(keys=keys, aggregates=calls):
            return f"Aggregate {_grouping(keys, calls)}"
        case logical.WindowAggregate(window=window, keys=keys, aggregates=calls, condition=condition):
            where = f" WHERE {show(condition)}" if condition is not None else ""
            return f"WindowAggregate {_window(window, node.child)}{where} {_grouping(keys, calls)}"
        case logical.SetOp(kind=kind, all=all_):
            return f"{kind.value.capitalize()}{' all' if all_ else ''}"
        case logical.Streamify(kind=kind):
            return kind.value
    return type(node).__name__


def _window(window: Window, child: Node) -> str:
    return show_window(window, BIGINT, child.schema.names)


def _item(item: Expr, name: str) -> str:
    text = show(item)
    return text if text == name or text.endswith(f".{name}") else f"{text} AS {name}"


def _join(node: logical.InnerJoin | logical.WindowJoin) -> str:
    name = "Join" if isinstance(node, logical.InnerJoin) else "WindowJoin"
    parts = [" = ".join(show(key) for _, key in each) for each in node.classes]
    if node.residual is not None:
        parts.append(show(node.residual))
    text = f"{name} {' AND '.join(parts) or 'all pairs'}"
    if isinstance(node, logical.WindowJoin):
        windows = zip(node.windows, node.inputs, strict=True)
        text += " over " + " ".join(_window(window, child) for window, child in windows)
    return text


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


def shown(text: str) -> str:
    """An expected outline, as a test writes it."""
    return dedent(text).strip("\n").rstrip()
