"""How far a bound query extends once the queries within it are put in place.

Plans are trees: a query of WITH stands wherever it is read, and a rewrite puts the expression that a
sub-query computes in the place of each column that reads it. A short text can therefore stand for a plan
of any size. The binder measures every query by its parts, each measured once, and refuses what is too
deep for those who walk plans by recursion, or too large to plan while a stream waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kasen.cql.bound import Query, Select, SetOperation, Source, Streamify
from kasen.cql.expr import Column, Exists, Expr, GroupKey, InQuery, ScalarQuery, children, conjuncts, walk

#: How many levels of a plan, and of an expression, may stand on one another. Whoever walks a plan takes two
#: of Python's frames per level, and EXPLAIN four per level of an expression; there are 1000 in all.
MAX_LEVELS = 250
MAX_EXPRESSION = 150
#: How many parts a query, or an expression, may have.
MAX_PARTS = 250_000

#: Levels and parts of an expression.
_Measure = tuple[int, int]
_PLAIN: _Measure = (1, 1)


@dataclass(frozen=True, slots=True)
class Extent:
    """The levels of a query's plan and of its deepest expression, its parts, and those of its columns."""

    levels: int
    expression: int
    parts: int
    columns: tuple[_Measure, ...]

    @property
    def is_too_deep(self) -> bool:
        return self.levels > MAX_LEVELS or self.expression > MAX_EXPRESSION

    @property
    def is_too_large(self) -> bool:
        return self.parts > MAX_PARTS


def extent_of(query: Query) -> Extent:
    """The extent of a query; computed once, from that of the queries within it."""
    try:
        return query.known_extent
    except AttributeError:
        found = _measured(query)
        object.__setattr__(query, "known_extent", found)
        return found


def _measured(query: Query) -> Extent:
    match query:
        case Streamify(query=inner):
            below = extent_of(inner)
            plain = (_PLAIN,) * len(below.columns)  # nothing is moved through a stream
            return Extent(below.levels + 2, below.expression, below.parts + 2, plain)
        case SetOperation(left=left, right=right):
            one, other = extent_of(left), extent_of(right)
            both = zip(one.columns, other.columns, strict=True)
            return Extent(
                max(one.levels, other.levels) + 1,
                max(one.expression, other.expression),
                one.parts + other.parts + 1,
                tuple(max(pair) for pair in both),
            )
    return _block(query)


def _block(block: Select) -> Extent:
    sources = block.sources
    inner = [extent_of(each.input) for each in sources if not isinstance(each.input, str)]
    columns = [_columns_of(source) for source in sources]
    keys = tuple(_measure(key, columns, ()) for key in block.group_by or ())
    items = tuple(_measure(item, columns, keys) for item in block.items)
    others = [_measure(part, columns, keys) for part in _conditions(block)]
    others += [_measure(arg, columns, keys) for call in block.aggregates for arg in call.args]
    whole = [*keys, *items, *others, _PLAIN]
    within = [extent_of(query) for query in _queries_within(block)]
    steps = len(sources) + len(within) + 1 + len(list(conjuncts(block.where)) and [1])
    steps += (block.group_by is not None) + (block.having is not None) + block.distinct
    steps += any(source.window is not None for source in sources)
    return Extent(
        max((each.levels for each in (*inner, *within)), default=0) + steps,
        max([levels for levels, _ in whole] + [each.expression for each in (*inner, *within)]),
        sum(parts for _, parts in whole) + sum(each.parts for each in (*inner, *within)) + steps,
        items,
    )


def _columns_of(source: Source) -> tuple[_Measure, ...] | None:
    """What a source's columns stand for; None if they are plain."""
    if isinstance(source.input, str):
        return None
    columns = extent_of(source.input).columns
    return None if all(each == _PLAIN for each in columns) else columns


def _conditions(block: Select) -> Iterator[Expr]:
    yield from conjuncts(block.where)
    if block.having is not None:
        yield block.having
    todo = [block.from_]
    while todo:
        each = todo.pop()
        if not isinstance(each, Source):
            todo += [each.left, each.right]
            if each.on is not None:
                yield each.on


def _queries_within(block: Select) -> Iterator[Query]:
    for root in (*_conditions(block), *block.items):
        for part in walk(root):
            if isinstance(part, InQuery | Exists | ScalarQuery):
                yield part.query


def _measure(expr: Expr, columns: list[tuple[_Measure, ...] | None], keys: tuple[_Measure, ...]) -> _Measure:
    """Levels and parts of an expression with what its columns and keys stand for in their place."""
    if all(each is None for each in columns) and all(each == _PLAIN for each in keys):
        return expr.levels, expr.parts
    match expr:
        case Column(source=source, index=index, outer=0) if (found := columns[source]) is not None:
            return found[index]
        case GroupKey(index=index):
            return keys[index]
    below = [_measure(child, columns, keys) for child in children(expr)]
    if not below:
        return _PLAIN
    return 1 + max(levels for levels, _ in below), 1 + sum(parts for _, parts in below)
