"""RSTREAM over relation queries: which of these cannot begin or be replaced while data flows.

RSTREAM fires when the windows below it move, also those of the relation queries that it reads. It looks at
these windows by steps of its own, which know only what comes from now on.
"""

from __future__ import annotations

from kasen.cql.bound import StreamKind
from kasen.errors import QueryError
from kasen.plan.logical import Node, Ref, Streamify, walk


def rstreams(plan: Node) -> list[Streamify]:
    """Those that fire when windows move, and not at regular times."""
    return [
        node
        for node in walk(plan)
        if isinstance(node, Streamify) and node.kind is StreamKind.RSTREAM and node.every is None
    ]


def relations_below_rstream(plan: Node) -> list[Ref]:
    """The relation queries that RSTREAM reads."""
    below = [node for rstream in rstreams(plan) for node in walk(rstream.child)]
    return [node for node in below if isinstance(node, Ref) and not node.is_stream]


def cannot_begin(name: str) -> QueryError:
    fault = f"RSTREAM cannot begin over {name} now: it fires when windows of {name} move"
    remedy = f"register both together, or write RSTREAM[d] or ISTREAM over {name}"
    return QueryError(fault, remedy=remedy)


def cannot_be_replaced(name: str, reader: str) -> QueryError:
    fault = f"RSTREAM in {reader} fires when windows of {name} move: it cannot be replaced"
    return QueryError(fault, remedy=f"drop {reader} first, and register it again then")
