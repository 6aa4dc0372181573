"""Plans as text, for tests that show the plan before and after."""

from __future__ import annotations

from textwrap import dedent

from kasen.cql.bind.app import bind_text
from kasen.cql.bound import App
from kasen.plan.build import build
from kasen.plan.explain.explain import describe
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
    lines = [lead + describe(node, BIGINT)]
    for child in node.children:
        lines += _lines(child, lead + "  ")
    return lines


def shown(text: str) -> str:
    """An expected outline, as a test writes it."""
    return dedent(text).strip("\n").rstrip()
