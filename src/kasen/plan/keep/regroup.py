"""How an aggregate takes over the groups of another over the same tuples.

An aggregate over [UNBOUNDED] or [RANGE ... SLIDE ...] keeps groups, not rows. If another one has the same
keys, and of its calls each is one of the old aggregate's or COUNT(*), which every group knows, then the
groups are all that it needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kasen.cql.expr import Aggregate as AggregateCall
from kasen.cql.expr import Expr
from kasen.plan import logical
from kasen.plan.exprs import substitute
from kasen.plan.logical import Node
from kasen.plan.physical_nodes import SlidingAggregate

#: These keep a few words in a group's record. Percentiles, DISTINCT and the users' own keep more elsewhere.
_IN_RECORD = frozenset(
    {"count", "sum", "avg", "min", "max", "stddev_samp", "stddev_pop", "var_samp", "var_pop"}
)

#: A call that has no counterpart in the old aggregate: COUNT(*).
ROWS = -1


@dataclass(frozen=True, slots=True)
class Regroup:
    """A new aggregate has the groups of `source`; of each of its calls the old one's place, or ROWS."""

    source: Node
    calls: tuple[int, ...]


def regrouped(
    old: Node, old_items: tuple[Expr, ...], new: Node, new_items: tuple[Expr, ...]
) -> Regroup | None:
    """How a step takes over the groups of another, if it can; `items` are their inputs over one stream."""
    match old, new:
        case logical.Aggregate(), logical.Aggregate():
            before, after = len(old.keys), len(new.keys)
        case SlidingAggregate(), SlidingAggregate() if old.window == new.window:
            before, after = old.keys, new.keys
        case _:
            return None
    if old_items[:before] != new_items[:after]:
        return None
    had = [_over_stream(call, old_items) for call in old.aggregates]
    calls = [_over_stream(call, new_items) for call in new.aggregates]
    known = all(_is_rows(call) or call in had for call in calls)
    if not known or not all(map(_is_in_record, (*had, *calls))):
        return None
    if isinstance(new, SlidingAggregate) and _counted_apart(had) != _counted_apart(calls):
        return None  # panes and queues lie by their calls: these must be the same
    return Regroup(old, tuple(had.index(call) if call in had else ROWS for call in calls))


def _over_stream(call: AggregateCall, items: tuple[Expr, ...]) -> AggregateCall:
    return replace(call, args=tuple(substitute(arg, items) for arg in call.args))


def _is_rows(call: AggregateCall) -> bool:
    return call.function == "count" and not call.args


def _is_in_record(call: AggregateCall) -> bool:
    return call.user is None and call.function in _IN_RECORD and not call.distinct


def _counted_apart(calls: list[AggregateCall]) -> list[AggregateCall]:
    return [call for call in calls if not _is_rows(call)]
