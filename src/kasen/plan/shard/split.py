"""How the rows of a lowered plan's steps may lie on shards: what a step needs, and what it leaves.

`need` says for each input which rows must be together on a shard. A `Split` says how the rows of a step
do lie. Where the two do not fit, plan/shard/exchange.py puts an exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kasen.cql.bound import PartitionRows, Rows, SetKind, StreamKind
from kasen.cql.expr import Column, Expr
from kasen.plan import logical
from kasen.plan.explain.show import show
from kasen.plan.exprs import shift, substitute
from kasen.plan.logical import Node
from kasen.plan.physical_nodes import LeftJoined, MultiJoin, Pad, SlidingAggregate
from kasen.types import Schema

#: What tells a row's shard.
Key = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """Rows equal in `by` must be together; without it any split will do.

    `everywhere`: every shard must have all rows. `why` says why one shard must have all of them.
    """

    by: tuple[Expr, ...] | None = None
    everywhere: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """Rows lie on the shard of the hash of `keys`; with None anywhere, each on one shard.

    `also` are other keys that are equal to `keys` in every row, as both sides' of a join are.
    `everywhere`: every shard has all of them. `why` says why all of them are on the first shard.
    """

    keys: tuple[Expr, ...] | None = None
    also: tuple[tuple[Expr, ...], ...] = ()
    everywhere: bool = False
    why: str = ""

    @property
    def ways(self) -> tuple[tuple[Expr, ...], ...]:
        """All keys that tell a row's shard."""
        return () if self.keys is None else (self.keys, *self.also)

    @staticmethod
    def by(ways: Iterable[tuple[Expr, ...] | None]) -> Split:
        """A split by any of these keys, those that are None left out."""
        known = [keys for keys in dict.fromkeys(ways) if keys is not None]
        return Split(known[0], tuple(known[1:])) if known else SPREAD

    def __str__(self) -> str:
        if self.everywhere:
            return "every shard"
        if self.why:
            return f"one shard ({self.why})"
        if self.keys is None:
            return "any"
        return "by " + ", ".join(show(key) for key in self.keys)


ANY = Need()
SPREAD = Split()
EVERYWHERE = Split(everywhere=True)


def all_columns(schema: Schema) -> tuple[Expr, ...]:
    return tuple(Column(field.type, 0, index, field.name) for index, field in enumerate(schema))


def plain_columns(key: Key) -> list[int]:
    """The columns of a key, without what must be computed."""
    return [part.index for part in key if isinstance(part, Column)]


def need(node: Node) -> list[Need]:
    """What each input of a lowered step must be like."""
    match node:
        case logical.WindowNode(window=PartitionRows(keys=keys)):
            columns = all_columns(node.child.schema)
            return [Need(tuple(columns[key] for key in keys))]
        case logical.WindowNode(window=Rows()):
            return [Need(why="the rows of a query's output are counted on one shard")]
        case logical.Aggregate(keys=keys):
            return [Need(keys) if keys else _one_group()]
        case SlidingAggregate(keys=count):
            return [Need(all_columns(node.child.schema)[:count]) if count else _one_group()]
        case logical.InnerJoin(classes=classes):
            return [Need(tuple(dict(each)[at] for each in classes)) for at in range(2)]
        case MultiJoin(full_classes=classes):
            columns_of = [all_columns(child.schema) for child in node.inputs]
            return [
                Need(tuple(columns[each[at]] for each in classes)) for at, columns in enumerate(columns_of)
            ]
        case LeftJoined(keys=pairs):
            left, right = (all_columns(child.schema) for child in node.inputs)
            return [Need(tuple(left[a] for a, _ in pairs)), Need(tuple(right[b] for _, b in pairs))]
        case logical.SemiJoin(keys=pairs):
            if not pairs:
                return [Need(why="the join has no equality")] * 2
            return [Need(tuple(left for left, _ in pairs)), Need(tuple(right for _, right in pairs))]
        case logical.SetOp(kind=SetKind.UNION, all=True):
            return [ANY, ANY]
        case logical.Distinct() | logical.SetOp():
            return [_whole_rows(child) for child in node.children]
        case logical.Streamify(kind=StreamKind.RSTREAM):
            return [ANY, *[Need(everywhere=True)] * len(node.leaves)]
        case logical.Streamify():
            return [_whole_rows(node.child) if node.needs_deletions else ANY]
    return [ANY] * len(node.children)


def _one_group() -> Need:
    return Need(why="an aggregate without GROUP BY is one group")


def _whole_rows(child: Node) -> Need:
    """Equal rows must meet to cancel."""
    columns = all_columns(child.schema)
    return Need(columns) if columns else Need(why="its rows have no columns to split them by")


def below(node: Node, keys: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Keys over the output of a step that looks at rows one by one, as keys over its input."""
    match node:
        case logical.Project(items=items):
            return tuple(substitute(key, items) for key in keys)
    return keys


def above(node: Node, split: Split) -> Split:
    """How the output of a step is split, if its (first) input is split so when it gets there."""
    if split.keys is None:
        return split
    return Split.by(_above(node, keys) for keys in split.ways)


def _above(node: Node, keys: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    match node:
        case logical.Project(items=items):
            places = [next((at for at, item in enumerate(items) if item == key), None) for key in keys]
            columns = all_columns(node.schema)
            found = tuple(columns[at] for at in places if at is not None)
            return found if len(found) == len(keys) else None
        case Pad(before=count):
            return tuple(shift(key, count) for key in keys)
        case logical.Aggregate() | SlidingAggregate():
            # Keys come first, in their order, in a lowered aggregate's input and output.
            columns = all_columns(node.schema)
            found = tuple(columns[key.index] for key in keys if isinstance(key, Column))
            return found if len(found) == len(keys) else None
    return keys


def shifted(split: Split, by: int) -> Split:
    """The split of a join's right side in the joined row."""
    if split.keys is None:
        return split
    return Split.by(tuple(shift(key, by) for key in keys) for keys in split.ways)


def joined(node: MultiJoin, splits: Sequence[Split]) -> Split:
    """How joined rows are split, if the inputs are split so: all inputs' keys are equal in them."""
    columns = all_columns(node.schema)
    places = {source: columns[at] for at, source in enumerate(node.columns)}
    ways = []
    for at, split in enumerate(splits):
        for keys in split.ways:
            found = [places.get((at, key.index)) for key in keys if isinstance(key, Column)]
            known = tuple(each for each in found if each is not None)
            ways.append(known if len(known) == len(keys) else None)
    return Split.by(ways)


def part_of(split: Split, keys: tuple[Expr, ...]) -> tuple[int, ...] | None:
    """Which of the keys a split goes by, if by nothing else: then rows equal in all keys are together."""
    for way in split.ways:
        found = tuple(keys.index(key) for key in way if key in keys)
        if way and len(found) == len(way):
            return found
    return None
