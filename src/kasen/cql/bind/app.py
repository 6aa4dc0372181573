"""Binding of a whole app: inputs, queries in any order, settings, the time domain, loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlglot import exp

from kasen.aggregates import UserAggregate
from kasen.cql import nodes
from kasen.cql.bind.change import not_prepared, with_changes
from kasen.cql.bind.expr.scope import suggest
from kasen.cql.bind.expr.user_aggregates import by_name
from kasen.cql.bind.input import Sniff, bind_input, check_name, time_domain
from kasen.cql.bind.schemas import Schemas, registered_query
from kasen.cql.bound import App, Input, Query, RegisteredQuery
from kasen.cql.check.loops import find_loops, insert_delays, non_monotone_parts, show
from kasen.cql.check.warnings import unbounded_state, unknown_hints
from kasen.cql.parse.cursor import SPLIT_IT, TOO_DEEP
from kasen.cql.settings import check_setting
from kasen.cql.statements import parse
from kasen.cql.text import Text, read_file
from kasen.errors import QueryError
from kasen.types import TIMESTAMP, Type

__all__ = ["AppBinder", "Sniff", "bind_file", "bind_text"]


def bind_text(
    text: str,
    base: Path | None = None,
    file: str = "",
    sniff: Sniff | None = None,
    aggregates: Iterable[UserAggregate] = (),
) -> App:
    """Parse and bind a CQL text that may call these aggregates. Everything wrong in it is a QueryError."""
    source = Text(text, file)
    try:
        return AppBinder(source, base, sniff, by_name(aggregates)).bind(parse(source))
    except RecursionError:
        # The parser limits nesting, so this needs a caller that is deep in the stack itself.
        raise QueryError(TOO_DEEP, remedy=SPLIT_IT) from None


def bind_file(path: Path, sniff: Sniff | None = None, aggregates: Iterable[UserAggregate] = ()) -> App:
    """Parse and bind an app file; its relative paths are relative to it."""
    return bind_text(read_file(path), path.parent, str(path), sniff, aggregates)


@dataclass(slots=True)
class AppBinder:
    """Collects statements and binds them; also the catalog that queries are bound against."""

    text: Text
    base: Path | None = None
    sniff: Sniff | None = None
    user: Mapping[str, UserAggregate] = field(default_factory=dict)
    time: Type = TIMESTAMP
    _inputs: dict[str, Input] = field(default_factory=dict)
    _nodes: dict[str, nodes.RegisterQuery] = field(default_factory=dict)
    _dropped: dict[str, nodes.DropQuery] = field(default_factory=dict)
    _prepared: dict[str, nodes.RegisterQuery] = field(default_factory=dict)
    _schemas: Schemas | None = None

    def bind(self, statements: list[nodes.Statement]) -> App:
        settings = self._settings(statements)
        streams = self._collect([node for node in statements if node.args.get("at") is None])
        self.time = time_domain(streams, statements, self.text, self.sniff)
        for node in streams:
            one = bind_input(node, self.time, self.text)
            most = int(settings.get("max_text_bytes", one.max_text_bytes))
            self._inputs[node.this.name.lower()] = replace(one, max_text_bytes=most)
        queries = self._queries()
        warnings: list[str] = []
        uncut = find_loops(queries, cut=False)
        if uncut:
            queries = self._cut_or_refuse(queries, uncut, settings, warnings)
        for query in queries:
            warnings += unbounded_state(query) + unknown_hints(query)
        loops = tuple(find_loops(queries, cut=True))
        inputs = tuple(self._inputs.values())
        told = tuple(warnings)
        app = App(inputs, queries, tuple(settings.items()), self.time, loops, told, user=self.user)
        waiting = list(self._prepared.values())
        timed = [node for node in statements if node.args.get("at") is not None]
        return with_changes(app, waiting, timed, self.text) if waiting or timed else app

    # ------------------------------------------------------------ the catalog

    def input(self, name: str) -> Input | None:
        return self._inputs.get(name.lower())

    def query(self, name: str) -> Query | None:
        key = name.lower()
        if key not in self._nodes:
            return None
        assert self._schemas is not None
        return self._schemas.read(key)

    def registered_name(self, name: str) -> str:
        return str(self._nodes[name.lower()].this.name)

    def names(self) -> list[str]:
        return [input_.name for input_ in self._inputs.values()] + [
            node.this.name for node in self._nodes.values()
        ]

    def gone(self, name: str) -> str:
        drop = self._dropped.get(name.lower())
        place = self.text.place_of(drop.this) if drop is not None else None
        return f"it is dropped on line {place.line}" if place is not None else ""

    # ------------------------------------------------------------ statements

    def _settings(self, statements: list[nodes.Statement]) -> dict[str, str]:
        settings: dict[str, str] = {}
        for node in statements:
            if isinstance(node, nodes.Setting):
                name = node.this.name.lower()
                settings[name] = check_setting(name, node.args["value"].name.lower(), node, self.text)
        return settings

    def _collect(self, statements: list[nodes.Statement]) -> list[nodes.RegisterInput]:
        """Sorts statements by kind; REPLACE and DROP act on what stands above them."""
        streams: dict[str, nodes.RegisterInput] = {}
        for node in statements:
            key = node.this.name.lower()
            match node:
                case nodes.RegisterInput():
                    self._check_free(node, streams)
                    streams[key] = node
                case nodes.RegisterQuery() if node.args.get("prepare"):
                    check_name(node.this, self.text)
                    self._prepared[key] = node
                case nodes.Activate():
                    for name in node.names:
                        self._activate(name)
                case nodes.RegisterQuery() if node.args.get("replace"):
                    self._require_query(node, streams)
                    self._nodes[key] = node
                case nodes.RegisterQuery():
                    self._check_free(node, streams)
                    self._nodes[key] = node
                case nodes.DropQuery():
                    self._require_query(node, streams)
                    del self._nodes[key]
                    self._dropped[key] = node
        return list(streams.values())

    def _activate(self, name: exp.Expr) -> None:
        prepared = self._prepared.pop(name.name.lower(), None)
        if prepared is None:
            raise not_prepared(name, [node.this.name for node in self._prepared.values()], self.text)
        self._nodes[name.name.lower()] = prepared

    def _check_free(self, node: nodes.Statement, streams: dict[str, nodes.RegisterInput]) -> None:
        check_name(node.this, self.text)
        name = node.this.name
        taken = streams.get(name.lower()) or self._nodes.get(name.lower())
        if taken is None:
            return
        remedy = "choose another name"
        if isinstance(taken, nodes.RegisterQuery) and isinstance(node, nodes.RegisterQuery):
            remedy += f", or write REPLACE QUERY {name}"
        raise self.text.error(f"{name!r} is registered already", node.this, remedy)

    def _require_query(self, node: nodes.Statement, streams: dict[str, nodes.RegisterInput]) -> None:
        name = node.this.name
        if name.lower() in self._nodes:
            return
        known = [each.this.name for each in self._nodes.values()]
        remedy = suggest(name, known, "queries are") or "register it first"
        if name.lower() in streams:
            remedy = "it is an input; only queries can be replaced or dropped"
        elif name.lower() in self._dropped:
            remedy = self.gone(name)
        raise self.text.error(f"no query {name!r} above", node.this, remedy)

    # ------------------------------------------------------------ queries

    def _queries(self) -> tuple[RegisteredQuery, ...]:
        self._schemas = Schemas(self._nodes, self, self.text)
        self._schemas.settle()
        registered = []
        for key, node in self._nodes.items():
            registered.append(registered_query(node, self._schemas.bound[key], self.text))
        return tuple(registered)

    # ------------------------------------------------------------ loops

    def _cut_or_refuse(
        self,
        queries: tuple[RegisteredQuery, ...],
        loops: list[tuple[str, ...]],
        settings: dict[str, str],
        warnings: list[str],
    ) -> tuple[RegisteredQuery, ...]:
        if settings.get("recursion") == "insert":
            queries, chosen = insert_delays(queries)
            warnings += [f"a delay <Now> was inserted behind {name!r} to cut a loop" for name in chosen]
            loops = find_loops(queries, cut=False)
            if not loops:
                return queries
        raise self._loop_error(queries, loops)

    def _loop_error(self, queries: tuple[RegisteredQuery, ...], loops: list[tuple[str, ...]]) -> QueryError:
        many = len(loops) > 1
        lines = [f"{'these loops have' if many else 'this loop has'} no delay:"]
        lines += [f"    {show(loop)}" for loop in loops]
        parts = non_monotone_parts(queries, loops)
        if parts:
            lines.append("  not monotone there: " + "; ".join(parts))
        streams = [
            query.name for query in queries if query.is_stream and any(query.name in loop for loop in loops)
        ]
        if streams:
            best = max(streams, key=lambda name: sum(name in loop for loop in loops))
            remedy = (
                f"write <Now> or <duration> behind a stream of each loop, such as {best}: ISTREAM(...)<Now>"
            )
            remedy += "; or SET recursion = insert"
        else:
            remedy = (
                "no query of the loop is a stream: make one ISTREAM(...)<Now> and read it through a window"
            )
        node = self._nodes[loops[0][0].lower()]
        return self.text.error("\n".join(lines), node.this, remedy)
