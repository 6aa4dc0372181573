"""What a step's relation holds now: for queries that come later and read it.

A relation is a function of the windows and outside relations below it. Therefore windows are asked what they
hold, and everything above is computed from that by new operators, which are thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kasen.engine.batch import I64, Batch, Frontier, concat, empty, ones
from kasen.engine.stream.net import net
from kasen.engine.stream.streamify import units
from kasen.engine.window.held_tuples import HeldTuples
from kasen.errors import QueryError
from kasen.plan.keep.kept_windows import Replay
from kasen.plan.logical import (
    Filter,
    InnerJoin,
    Node,
    Project,
    Ref,
    Scan,
    Streamify,
    WindowActivity,
    WindowNode,
)
from kasen.plan.lower.instantiate import Context, instantiate
from kasen.plan.physical_nodes import LeftJoined, MultiJoin, Numbered, Selected
from kasen.runtime.graph.graph import Graph

#: What an outside relation holds, by its name: data [columns + 1, n].
Tables = Callable[[str], Batch]

_BEFORE = -(2**62)
_REMEDY = "register both before data flows, or put a window on the stream that it reads without one"


class Contents:
    """Reads the relations of a graph between two runs."""

    def __init__(self, graph: Graph, context: Context, tables: Tables) -> None:
        self._graph = graph
        self._context = context
        self._tables = tables

    def of(self, step: int) -> Batch:
        """The rows of a step's relation, as insertions. QueryError if no operator keeps them."""
        node = self._graph.node(step)
        if node.is_stream or isinstance(node, Streamify | WindowActivity):
            return empty(len(node.schema))
        if isinstance(node, Scan):
            return self.table(node.name)
        operator = self._graph.operator(step)
        held = operator.contents()
        if held is not None:
            return inserted(held)
        if isinstance(node, WindowNode):
            fault = f"the rows so far of {_source(node)} are kept nowhere, and this change would need them"
            raise QueryError(fault, remedy=_REMEDY)
        below = self._graph.inputs(step)
        if isinstance(node, Numbered | Selected):
            return self.of(below[0])  # each of parallel trees has all combinations, if asked by itself
        if isinstance(node, MultiJoin | InnerJoin):
            # Such a join has all rows of its inputs, also those that no other step keeps.
            return self.above(node, [operator.held_tuples(position).batch for position in range(len(below))])
        # A join on a shard may contain the windows below it: then its inputs are streams.
        if any(child.is_stream for child in node.children) or any(
            self._graph.node(source).is_stream for source in below
        ):
            fault = f"what {type(operator).__name__} holds cannot be told, and this change would need it"
            raise QueryError(fault, remedy=_REMEDY)
        return self.above(node, [self.of(source) for source in below])

    def table(self, name: str) -> Batch:
        """The rows of an outside relation."""
        return self._tables(name)

    def replayed(self, replay: Replay, source: int, to: Node, position: int, before: int) -> HeldTuples:
        """The tuples that a step holds of a window, as another step reads them.

        A tuple without a time is just before the change, which is at `before`.
        """
        held = self._graph.operator(source).held_tuples(replay.position)
        batch = held.batch if held.has_times else at(held.batch, Frontier(before - 1))
        below = replay.source.children[replay.position]
        if replay.condition is not None:
            batch = self._through(Filter(below.schema, below, replay.condition), batch)
        if not isinstance(to, WindowActivity):
            batch = self._through(Project(to.children[position].schema, below, replay.items), batch)
        return replace(held, batch=batch)

    def _through(self, node: Node, batch: Batch) -> Batch:
        """A batch after a step that remembers nothing."""
        return instantiate(node, self._context).process([batch], Frontier(2**63 - 1))

    def above(self, node: Node, inputs: list[Batch]) -> Batch:
        """What a relation holds over what its inputs hold."""
        fresh = instantiate(node, self._context)
        fresh.begin(Frontier(_BEFORE))
        # The left side of a tree's root finds what its right side holds by then.
        last = len(inputs) - 1 if isinstance(node, LeftJoined) else 0
        moved = [
            at(held, Frontier(_BEFORE + max(0, last - position))) for position, held in enumerate(inputs)
        ]
        return bag(fresh.process(moved, Frontier(_BEFORE + 2)))


def inserted(data: I64) -> Batch:
    """Rows as insertions, at no instant in particular."""
    count = data.shape[1]
    return at(Batch(ones(count), ones(count), ones(count), data), Frontier(_BEFORE))


def bag(changes: Batch) -> Batch:
    """The sum of changes: each row once for as often as it is there, all at one instant."""
    if not len(changes):
        return changes
    total = net(at(changes, Frontier(_BEFORE)))
    return units(total)


def at(batch: Batch, instant: Frontier) -> Batch:
    """The changes, moved to one instant."""
    count = len(batch)
    ts, seq_tick = np.full(count, instant.ts, np.int64), np.full(count, instant.seq_tick, np.int64)
    return Batch(ts, seq_tick, batch.diff, batch.data)


def difference(new: Batch, old: Batch, instant: Frontier) -> Batch:
    """The changes that turn the old bag into the new one."""
    gone = Batch(old.ts, old.seq_tick, -old.diff, old.data)
    return net(at(concat((gone, new), new.columns), instant))


def _source(node: Node) -> str:
    while node.children:
        node = node.children[0]
    return node.name if isinstance(node, Scan | Ref) else "a stream"
