"""Bound statements: names resolved, types known, windows and delays checked.

This is what the front end hands on. The planner turns it into logical plans, and the test oracle
reads it to recompute every instant, so it says what was asked and nothing about how to run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from kasen.aggregates import UserAggregate
from kasen.cql.expr import Aggregate, Expr
from kasen.errors import Place
from kasen.types import MAX_TEXT_BYTES, TIMESTAMP, Connector, OnPressure, Schema, Type

if TYPE_CHECKING:
    from kasen.cql.check.extent import Extent

# ---------------------------------------------------------------- windows (stream -> relation)


@dataclass(frozen=True, slots=True)
class Unbounded:
    """Every tuple so far."""

    def __str__(self) -> str:
        return "[UNBOUNDED]"


@dataclass(frozen=True, slots=True)
class Now:
    """The tuples of this very instant; they leave one tick later."""

    def __str__(self) -> str:
        return "[NOW]"


@dataclass(frozen=True, slots=True)
class Range:
    """Alive while the instant's ts <= its ts + length."""

    length: int

    def __str__(self) -> str:
        return f"[RANGE {self.length}]"


@dataclass(frozen=True, slots=True)
class Slide:
    """Windows [k*slide - length, k*slide); the relation changes only at k*slide."""

    length: int
    slide: int

    def __str__(self) -> str:
        return f"[RANGE {self.length} SLIDE {self.slide}]"


@dataclass(frozen=True, slots=True)
class Rows:
    """The last `count` tuples; with slide > 1 the relation changes only at ordinals divisible by it."""

    count: int
    slide: int = 1

    def __str__(self) -> str:
        return f"[ROWS {self.count}{f' SLIDE {self.slide}' if self.slide > 1 else ''}]"


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The last `count` tuples of each combination of the key columns."""

    keys: tuple[int, ...]
    count: int

    def __str__(self) -> str:
        return f"[PARTITION BY {', '.join(f'#{key}' for key in self.keys)} ROWS {self.count}]"


Window = Unbounded | Now | Range | Slide | Rows | PartitionRows

# ---------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class Source:
    """A FROM item: a named stream or relation, or a sub-query, seen through a window.

    `window` is None exactly for relations. `input` is a name of the catalog or a query.
    """

    alias: str
    input: str | Query
    window: Window | None
    schema: Schema


class JoinKind(Enum):
    CROSS = "CROSS"
    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"


@dataclass(frozen=True, slots=True)
class Join:
    """Two FROM items joined; commas are CROSS joins. `on` may use columns of both sides."""

    kind: JoinKind
    left: From
    right: From
    on: Expr | None


From = Source | Join


#: What a hint may say about a block's inner joins; blanks do for underscores.
JOIN_HINTS = ("JOIN_TREE", "PARALLEL_TREES", "MJOIN", "PARALLEL_MJOIN")


class HasExtent:
    """The base of queries: where one keeps its extent (kasen.cql.check.extent)."""

    __slots__ = ("known_extent",)
    known_extent: Extent


@dataclass(frozen=True, slots=True)
class Select(HasExtent):
    """A query block.

    Without aggregation `group_by` is None and `items` range over the FROM items' columns. With it,
    `items` and `having` range over GroupKey and AggregateValue; an empty `group_by` is one group that
    is always there.
    """

    schema: Schema
    from_: From
    where: Expr | None
    group_by: tuple[Expr, ...] | None
    aggregates: tuple[Aggregate, ...]
    having: Expr | None
    items: tuple[Expr, ...]
    distinct: bool
    hint: str = ""

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(sources_of(self.from_))


class SetKind(Enum):
    UNION = "UNION"
    EXCEPT = "EXCEPT"
    INTERSECT = "INTERSECT"


@dataclass(frozen=True, slots=True)
class SetOperation(HasExtent):
    """UNION, EXCEPT or INTERSECT [ALL]; both sides have been cast to `schema`'s types."""

    schema: Schema
    kind: SetKind
    all: bool
    left: Query
    right: Query


class StreamKind(Enum):
    ISTREAM = "ISTREAM"
    DSTREAM = "DSTREAM"
    RSTREAM = "RSTREAM"


@dataclass(frozen=True, slots=True)
class Delay:
    """`<d>` moves by `length` units; `<Now>` is one tick (length None)."""

    length: int | None

    def __str__(self) -> str:
        return "<Now>" if self.length is None else f"<{self.length}>"


@dataclass(frozen=True, slots=True)
class Streamify(HasExtent):
    """A relation turned into a stream. `every` is the d of RSTREAM[d].

    `inserted` marks a delay that `SET recursion = insert` put in.
    """

    kind: StreamKind
    query: Query
    every: int | None = None
    delay: Delay | None = None
    inserted: bool = False

    @property
    def schema(self) -> Schema:
        return self.query.schema


Query = Select | SetOperation | Streamify

# ---------------------------------------------------------------- statements


class Tick(Enum):
    TIME = "TIME"
    TUPLE = "TUPLE"


@dataclass(frozen=True, slots=True)
class Input:
    """A registered stream or outside relation.

    `timestamp` is the TIMESTAMP BY column; an undeclared one is the last field of `schema` and
    `hidden` is then 1: SELECT * leaves that many trailing fields out. None means arrival time for
    a stream, and a static table for a relation.
    """

    name: str
    schema: Schema
    is_relation: bool
    timestamp: int | None
    hidden: int
    slack: int
    idle: int | None
    retain: int | None
    tick: Tick
    connector: Connector
    pressure: OnPressure = field(default_factory=OnPressure)
    place: Place | None = None
    #: A row with a longer text is refused.
    max_text_bytes: int = MAX_TEXT_BYTES

    @property
    def is_static(self) -> bool:
        return self.is_relation and self.timestamp is None


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """A continuous query by name. A streamified one is a stream, a bare one a relation."""

    name: str
    query: Query
    sink: Connector | None
    #: A text that gives the query again: in one form in an app, as written in a change while data flows.
    text: str
    place: Place | None = None
    #: The inputs and queries that it reads, in lower case.
    reads: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def schema(self) -> Schema:
        return self.query.schema

    @property
    def is_stream(self) -> bool:
        return isinstance(self.query, Streamify)


@dataclass(frozen=True, slots=True)
class Register:
    """A query comes; with `replaces`, in the place of the one that has its name.

    `backfill`: it starts with what its streams have retained, not with empty windows.
    """

    query: RegisteredQuery
    replaces: bool = False
    backfill: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """A query goes."""

    name: str


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """What happens to the set of queries between the instants below (at, 0, 0) and those from it on.

    `at` is None until the time is decided: a running pipeline takes the first that it has not run.
    Queries come in an order in which those that are read come first; then others go. `prepared` ones wait
    for a later ACTIVATE.
    """

    at: int | None
    actions: tuple[Register | Drop, ...]
    prepared: tuple[Register, ...] = ()


@dataclass(frozen=True, slots=True)
class App:
    """A whole bound app: its inputs in declaration order, and its queries.

    `queries` are there from the beginning, `changes` come at their times, `prepared` wait for ACTIVATE.
    """

    inputs: tuple[Input, ...]
    queries: tuple[RegisteredQuery, ...]
    settings: tuple[tuple[str, str], ...] = ()
    time: Type = TIMESTAMP
    loops: tuple[tuple[str, ...], ...] = ()
    warnings: tuple[str, ...] = field(default=(), compare=False)
    changes: tuple[CatalogChange, ...] = ()
    prepared: tuple[Register, ...] = ()
    #: The users' own aggregates, by name, for queries that come later.
    user: Mapping[str, UserAggregate] = field(default_factory=dict, compare=False)

    def input(self, name: str) -> Input | None:
        return next((input_ for input_ in self.inputs if input_.name.lower() == name.lower()), None)

    def query(self, name: str) -> RegisteredQuery | None:
        return next((query for query in self.queries if query.name.lower() == name.lower()), None)

    def setting(self, name: str, default: str = "") -> str:
        return dict(self.settings).get(name, default)

    @property
    def max_text_bytes(self) -> int:
        """The longest text in UTF-8; what would give a longer one fails."""
        return int(self.setting("max_text_bytes", str(MAX_TEXT_BYTES)))

    @property
    def all_queries(self) -> tuple[RegisteredQuery, ...]:
        """The queries from the beginning, then each text that a change brings."""
        later = [
            action.query
            for change in self.changes
            for action in change.actions
            if isinstance(action, Register)
        ]
        return (*self.queries, *later)


def sources_of(from_: From) -> Iterator[Source]:
    """The FROM items from left to right: the order in which Column.source counts."""
    if isinstance(from_, Source):
        yield from_
    else:
        yield from sources_of(from_.left)
        yield from sources_of(from_.right)
