"""The schemas of queries that read one another in any order.

Queries may refer to one another in any order and in loops, so their schemas are found by iteration:
each round binds what is not settled against what the rounds before found, until nothing changes. A set
operation in a loop takes its first columns from the operand that is already known (the start of the
recursion); later rounds widen types. Types only widen and the lattice is finite, so it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from kasen.cql import nodes
from kasen.cql.bind.expr.scope import UnknownSchema
from kasen.cql.bind.input import bind_connector
from kasen.cql.bind.query import Catalog, QueryBinder
from kasen.cql.bound import Query, RegisteredQuery
from kasen.cql.check.loops import readings
from kasen.cql.statements import render
from kasen.cql.text import Text
from kasen.errors import InternalError, QueryError

_MOST_ROUNDS = 64


def registered_query(
    node: nodes.RegisterQuery, query: Query, text: Text, *, as_written: bool = False
) -> RegisteredQuery:
    """A query's statement with what binding it gave. Its text `as_written` costs nothing to find."""
    sink = node.args.get("connector")
    return RegisteredQuery(
        name=node.this.name,
        query=query,
        sink=bind_connector(sink, text) if sink is not None else None,
        text=node.meta["written"] if as_written else render(node.args["query"]),
        place=text.place_of(node.this),
        reads=frozenset(reading.name.lower() for reading in readings(query)),
    )


def sources_first(reads: Mapping[str, Iterable[str]]) -> list[str]:
    """The names, each behind those of them that it reads, as far as loops let it."""
    order: dict[str, None] = {}
    seen: set[str] = set()
    stack = list(reversed(list(reads)))
    while stack:
        key = stack[-1]
        if key in seen:
            order.setdefault(stack.pop())
            continue
        seen.add(key)
        stack += [each for each in reads[key] if each in reads and each not in seen]
    return list(order)


class Schemas:
    """Binds statements by name against a catalog, which asks `read` for the names among them."""

    def __init__(self, statements: dict[str, nodes.RegisterQuery], catalog: Catalog, text: Text) -> None:
        self._nodes = statements
        self._catalog = catalog
        self._text = text
        self.bound: dict[str, Query] = {}
        # Queries that were bound although something they read was not known; what may be wrong with them.
        self.holes: set[str] = set()
        self.errors: dict[str, QueryError] = {}
        self._readers: dict[str, set[str]] = {key: set() for key in statements}
        self._current = ""
        self._hole = self._unsure = False

    def read(self, key: str) -> Query:
        """A query as bound so far; UnknownSchema if it has not been."""
        self._readers[key].add(self._current)
        self._unsure |= key in self.holes
        if key not in self.bound:
            self._hole = True
            raise UnknownSchema(key)
        return self.bound[key]

    def settle(self) -> None:
        """Binds every query, those of loops again and again until what they read has settled."""
        todo = dict.fromkeys(self._sources_first())
        order = list(todo)
        for _ in range(_MOST_ROUNDS + len(todo)):
            progress = False
            again: dict[str, None] = {}
            for key in todo:
                progress |= self._bind(key, again)
            todo = {key: None for key in order if key in again}
            if not progress:
                break
        else:
            raise InternalError(f"the column types of {next(iter(todo))} do not settle")
        self._check_all_known()

    def _sources_first(self) -> list[str]:
        """The queries, each behind those that it reads, as far as loops let it."""
        if len(self._nodes) == 1:
            return list(self._nodes)
        reads = {
            key: [table.name.lower() for table in node.args["query"].find_all(exp.Table)]
            for key, node in self._nodes.items()
        }
        return sources_first(reads)

    def _bind(self, key: str, again: dict[str, None]) -> bool:
        """Binds one query; notes what must be bound again. Whether this brought something new."""
        before, had_hole = self.bound.get(key), key in self.holes
        self._current, self._hole, self._unsure = key, False, False
        self.holes.discard(key)
        self.errors.pop(key, None)
        try:
            node = self._nodes[key].args["query"]
            self.bound[key] = QueryBinder(self._catalog, self._text).query(node)
        except UnknownSchema:
            self._hole = True
        except QueryError as error:
            if not (self._hole or self._unsure):
                raise
            self.errors[key] = error
            again[key] = None
        if self._hole:
            self.holes.add(key)
            again[key] = None
        after = self.bound.get(key)
        changed = after is not None and (before is None or before.schema != after.schema)
        if changed:
            again.update(dict.fromkeys(self._readers[key]))
        return changed or (had_hole and not self._hole)

    def _check_all_known(self) -> None:
        for error in self.errors.values():
            raise error
        unknown = [node for key, node in self._nodes.items() if key not in self.bound]
        if unknown:
            names = ", ".join(repr(node.this.name) for node in unknown)
            raise self._text.error(
                f"the columns of {names} cannot be told: they are defined by one another alone",
                unknown[0].this,
                "start the recursion from an input: SELECT ... FROM input [NOW] UNION ALL SELECT ...",
            )
