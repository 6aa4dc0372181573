"""By which key may a step be sharded without changing any answer?

A step may run on many shards if rows that must meet always share a key. What has no such key runs on
one shard, and EXPLAIN says why.
"""

from __future__ import annotations

from dataclasses import dataclass

from kasen.cql.bound import PartitionRows
from kasen.cql.expr import Column, Expr
from kasen.plan.exprs import show
from kasen.plan.logical import (
    Aggregate,
    Delay,
    Distinct,
    Filter,
    InnerJoin,
    Node,
    OuterJoin,
    PaneAggregate,
    Project,
    Ref,
    Scan,
    SemiJoin,
    SetOp,
    Streamify,
    WindowActivity,
    WindowAggregate,
    WindowCombine,
    WindowJoin,
    WindowNode,
    WindowReports,
)


@dataclass(frozen=True, slots=True)
class Sharding:
    """How a step's work may be split.

    `keys` has for each input the expressions to exchange it by; None means any split will do (the step
    looks at rows one by one). `why` says why there is none and the step runs on one shard.
    """

    keys: tuple[tuple[Expr, ...], ...] | None = None
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return f"one shard ({self.why})"
        if self.keys is None:
            return "any"
        return "by " + ", ".join(show(key) for key in self.keys[0])


ANY = Sharding()


def sharding(node: Node) -> Sharding:
    """The key by which this step alone may be sharded; a different one than its input's is an exchange."""
    match node:
        case Scan() | Ref() | Filter() | Project() | PaneAggregate() | Delay() | WindowActivity():
            return ANY
        case WindowReports():
            return Sharding(why="the reports are those of the whole stream")
        case WindowNode(window=PartitionRows(keys=keys)):
            return _by_columns(node.child, keys)
        case WindowNode():
            # RANGE and SLIDE look at a tuple's own time; ROWS at its ordinal, which the epoch's clock gives.
            return ANY
        case WindowAggregate(keys=keys, window=PartitionRows(keys=columns)):
            return _within_partitions(node.child, keys, columns)
        case Aggregate(keys=keys) | WindowAggregate(keys=keys):
            return _by_keys(keys)
        case WindowCombine(keys=count):
            return _by_columns(node.child, tuple(range(count))) if count else _one_group()
        case InnerJoin() | WindowJoin():
            return _join(node)
        case OuterJoin(keys=pairs) | SemiJoin(keys=pairs):
            return _pairs(node, pairs)
        case Distinct() | SetOp() | Streamify():
            return _whole_rows(node)
    raise AssertionError(f"no sharding rule for {type(node).__name__}")


def _by_keys(keys: tuple[Expr, ...]) -> Sharding:
    return Sharding((keys,)) if keys else _one_group()


def _one_group() -> Sharding:
    return Sharding(why="an aggregate without GROUP BY is one group")


def _within_partitions(child: Node, keys: tuple[Expr, ...], columns: tuple[int, ...]) -> Sharding:
    """The window needs whole partitions on its shard, the aggregate whole groups: split by what both know."""
    partition = [_column(child, index) for index in columns]
    common = tuple(key for key in keys if key in partition)
    if not common:
        return Sharding(why="PARTITION BY and GROUP BY have no column in common")
    return Sharding((common,))


def _by_columns(child: Node, columns: tuple[int, ...]) -> Sharding:
    return Sharding((tuple(_column(child, index) for index in columns),))


def _column(node: Node, index: int) -> Expr:
    field = node.schema[index]
    return Column(field.type, 0, index, field.name)


def _join(node: InnerJoin | WindowJoin) -> Sharding:
    """An equi-join is sharded by the classes that every input takes part in."""
    full = [dict(each) for each in node.classes if len({at for at, _ in each}) == len(node.inputs)]
    if not full:
        return Sharding(why="no key is common to all inputs of the join")
    for position, window in enumerate(node.windows if isinstance(node, WindowJoin) else ()):
        if isinstance(window, PartitionRows):
            # A PARTITION BY window inside the join must find whole partitions on its shard.
            columns = [_column(node.inputs[position], index) for index in window.keys]
            full = [each for each in full if each[position] in columns]
            if not full:
                return Sharding(why="PARTITION BY and the join have no key in common")
    return Sharding(tuple(tuple(each[at] for each in full) for at in range(len(node.inputs))))


def _pairs(node: OuterJoin | SemiJoin, pairs: tuple[tuple[Expr, Expr], ...]) -> Sharding:
    if not pairs:
        return Sharding(why="the join has no equality")
    if isinstance(node, SemiJoin) and node.kind.value.startswith("NULL"):
        return Sharding(why="NOT IN must see every NULL of the sub-query")
    return Sharding((tuple(a for a, _ in pairs), tuple(b for _, b in pairs)))


def _whole_rows(node: Node) -> Sharding:
    """Equal rows must meet to cancel: exchange by the whole row."""
    return Sharding(
        tuple(tuple(_column(child, index) for index in range(len(child.schema))) for child in node.children)
    )
