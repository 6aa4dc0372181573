"""Names in scope: which column of which FROM item does a name mean?"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from kasen.aggregates import UserAggregate
from kasen.cql.bound import Slide, Source
from kasen.cql.expr import Column
from kasen.cql.text import Text
from kasen.errors import QueryError
from kasen.types import Schema, Type


class UnknownSchema(Exception):
    """Raised while the schemas of mutually recursive queries are still being found."""


@dataclass(frozen=True, slots=True)
class Item:
    """A FROM item as names see it.

    The last `hidden` columns are left out of `*`. `timestamp` is the index of the TIMESTAMP BY column
    when the item is a stream straight from outside.
    """

    source: Source
    hidden: int = 0
    timestamp: int | None = None
    #: While the schemas of a loop are being found: this item's columns are not known yet.
    unknown: bool = False

    @property
    def alias(self) -> str:
        return self.source.alias

    @property
    def schema(self) -> Schema:
        return self.source.schema

    @property
    def visible(self) -> int:
        return len(self.schema) - self.hidden


@dataclass(slots=True)
class Scope:
    """The FROM items of a block, and the block around it (for EXISTS and IN)."""

    text: Text
    time: Type
    items: list[Item] = field(default_factory=list)
    parent: Scope | None = None
    # While ON is bound: the first item that it sees, as JOIN binds tighter than the comma.
    start: int = 0
    # Set on the scope around a sub-query that may not use its columns: what the sub-query is.
    closed_to: str = ""
    #: Aggregates that the user has written, by name.
    user: Mapping[str, UserAggregate] = field(default_factory=dict)

    def closed(self, to: str) -> Scope:
        """This scope for a sub-query that may not use its columns, but should hear so if it tries."""
        return Scope(self.text, self.time, self.items, self.parent, closed_to=to, user=self.user)

    def column(self, node: exp.Column) -> Column:
        """The column that a name stands for; unknown and ambiguous names are errors."""
        if "spot" in node.meta:
            position, index = node.meta["spot"]
            field_ = self.items[position].schema[index]
            return Column(field_.type, position, index, field_.name)
        found = self._find(node, 0)
        if found is None and self.parent is not None:
            found = self.parent._find(node, 1)
            if found is not None and self.parent.closed_to:
                what = f"{node.sql()!r} is a column of the query around"
                fault = f"{what}, which {self.parent.closed_to} cannot use"
                raise self.text.error(fault, node, "join the two in FROM, and GROUP BY for aggregates")
        around = self.parent.items if self.parent is not None else []
        if found is None and any(item.unknown for item in (*self.items, *around)):
            raise UnknownSchema(node.name)
        if found is None:
            raise self._unknown(node)
        return found

    def _find(self, node: exp.Column, outer: int) -> Column | None:
        hits = [
            (position, index)
            for position, item in enumerate(self.items)
            if position >= self.start and (not node.table or item.alias.lower() == node.table.lower())
            for index in (item.schema.find(node.name),)
            if index is not None
        ]
        if len(hits) > 1:
            raise self._ambiguous(node, [self.items[position].alias for position, _ in hits])
        if not hits:
            return None
        position, index = hits[0]
        field_ = self.items[position].schema[index]
        return Column(field_.type, position, index, field_.name, outer)

    def _ambiguous(self, node: exp.Column, aliases: list[str]) -> QueryError:
        remedy = "write which one is meant: " + ", ".join(f"{alias}.{node.name}" for alias in aliases)
        if not all(aliases):
            remedy = "give the sub-query a name, and write which one is meant: (SELECT ...) AS name"
        return self.text.error(f"the name {node.name!r} is ambiguous", node, remedy)

    def _unknown(self, node: exp.Column) -> QueryError:
        """The error for a name that means nothing here; it may mean something somewhere else."""
        shown = node.sql()
        if self.start and Scope(self.text, self.time, self.items)._find(node, 0) is not None:
            remedy = "JOIN binds tighter than the comma: put the condition into WHERE, or write CROSS JOIN"
            return self.text.error(f"ON cannot see {shown!r}, which stands before the comma", node, remedy)
        beyond = self.parent.parent if self.parent is not None else None
        if beyond is not None and beyond._find(node, 0) is not None:
            remedy = "a sub-query may use columns of the query directly around it: join in FROM instead"
            return self.text.error(f"{shown!r} is a column two queries further out", node, remedy)
        items = self.items[self.start :]
        aliases = [item.alias for item in items if item.alias]
        if node.table and node.table.lower() not in (alias.lower() for alias in aliases):
            remedy = self.table_remedy(node.table, node.name)
            return self.text.error(f"no {node.table!r} in FROM", node, remedy)
        names = [
            field_.name
            for item in items
            if not node.table or item.alias.lower() == node.table.lower()
            for field_ in item.schema
        ]
        return self.text.error(f"unknown column {shown!r}", node, suggest(node.name, names, "columns are"))

    def table_remedy(self, table: str, column: str) -> str:
        """What to write instead of `table`.`column` if FROM has no such item."""
        for item in self.items:
            if isinstance(item.source.input, str) and item.source.input.lower() == table.lower():
                return f"it is called {item.alias} here: write {item.alias}.{column}"
        return suggest(table, [item.alias for item in self.items if item.alias], "FROM has")

    def slide_item(self) -> int | None:
        """The only FROM item with a RANGE ... SLIDE window, or None if there is none or several."""
        if any(item.unknown for item in self.items):
            raise UnknownSchema
        slides = [i for i, item in enumerate(self.items) if isinstance(item.source.window, Slide)]
        return slides[0] if len(slides) == 1 else None


def suggest(name: str, known: Iterable[str], lead: str, most: int = 12) -> str:
    """A remedy for an unknown name: the nearest known ones, else all of them."""
    choices = list(dict.fromkeys(known))
    # Comparing takes the square of their lengths.
    near = difflib.get_close_matches(_short(name), [_short(choice) for choice in choices], 3, 0.6)
    if near:
        return "did you mean " + " or ".join(one for one in choices if _short(one) in near) + "?"
    if not choices:
        return ""
    shown = ", ".join(choices[:most]) + (", ..." if len(choices) > most else "")
    return f"{lead} {shown}"


def _short(name: str) -> str:
    return name[:100].lower()
