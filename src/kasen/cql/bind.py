"""Binding of a whole app: inputs, queries in any order, settings, the time domain, loops.

Queries may refer to one another in any order and in loops, so their schemas are found by iteration:
each round binds every query against what the round before found, until nothing changes. A set
operation in a loop takes its first columns from the operand that is already known (the start of the
recursion); later rounds widen types. Types only widen and the lattice is finite, so it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sqlglot import exp

from kasen.cql import literals, nodes
from kasen.cql.bind_query import QueryBinder
from kasen.cql.bound import App, Input, Query, RegisteredQuery, Tick
from kasen.cql.loops import find_loops, insert_delays, non_monotone_parts, show
from kasen.cql.scope import UnknownSchema, suggest
from kasen.cql.settings import check_setting
from kasen.cql.statements import parse, render
from kasen.cql.text import Text
from kasen.cql.warnings import unbounded_state
from kasen.types import BIGINT, TIMESTAMP, Connector, Field, Schema, Type

# Tells the type of an undeclared timestamp column by looking at the source; None if it cannot.
Sniff = Callable[[Connector, str], Type | None]

_MOST_ROUNDS = 64


def bind_text(text: str, base: Path | None = None, file: str = "", sniff: Sniff | None = None) -> App:
    """Parse and bind a CQL text. Everything wrong in it is a QueryError."""
    source = Text(text, file)
    return AppBinder(source, base, sniff).bind(parse(source))


def bind_file(path: Path, sniff: Sniff | None = None) -> App:
    """Parse and bind an app file; its relative paths are relative to it."""
    return bind_text(path.read_text(encoding="utf-8"), path.parent, str(path), sniff)


@dataclass(slots=True)
class AppBinder:
    """Collects statements and binds them; also the catalog that queries are bound against."""

    text: Text
    base: Path | None = None
    sniff: Sniff | None = None
    time: Type = TIMESTAMP
    _inputs: dict[str, Input] = field(default_factory=dict)
    _nodes: dict[str, nodes.RegisterQuery] = field(default_factory=dict)
    _bound: dict[str, Query] = field(default_factory=dict)

    def bind(self, statements: list[nodes.Statement]) -> App:
        settings = self._settings(statements)
        streams = self._collect(statements)
        self.time = self._time_domain(streams, statements)
        for node in streams:
            self._inputs[node.this.name.lower()] = self._input(node)
        queries = self._queries()
        warnings: list[str] = []
        uncut = find_loops(queries, cut=False)
        if uncut:
            queries = self._cut_or_refuse(queries, uncut, settings, warnings)
        for query in queries:
            warnings += unbounded_state(query)
        loops = tuple(find_loops(queries, cut=True))
        inputs = tuple(self._inputs.values())
        return App(inputs, queries, tuple(settings.items()), self.time, loops, tuple(warnings))

    # ------------------------------------------------------------ the catalog

    def input(self, name: str) -> Input | None:
        return self._inputs.get(name.lower())

    def query(self, name: str) -> Query | None:
        key = name.lower()
        if key not in self._nodes:
            return None
        if key not in self._bound:
            raise UnknownSchema(name)
        return self._bound[key]

    def names(self) -> list[str]:
        return [one.name for one in self._inputs.values()] + [node.this.name for node in self._nodes.values()]

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
            match node:
                case nodes.RegisterInput():
                    self._check_free(node, streams)
                    streams[node.this.name.lower()] = node
                case nodes.RegisterQuery() if node.args.get("replace"):
                    self._require_query(node)
                    self._nodes[node.this.name.lower()] = node
                case nodes.RegisterQuery():
                    self._check_free(node, streams)
                    self._nodes[node.this.name.lower()] = node
                case nodes.DropQuery():
                    self._require_query(node)
                    del self._nodes[node.this.name.lower()]
        return list(streams.values())

    def _check_free(self, node: nodes.Statement, streams: dict[str, nodes.RegisterInput]) -> None:
        name = node.this.name
        if name.lower() in streams or name.lower() in self._nodes:
            remedy = (
                f"choose another name, or write REPLACE QUERY {name}" if name.lower() in self._nodes else ""
            )
            raise self.text.error(f"{name!r} is registered already", node.this, remedy)

    def _require_query(self, node: nodes.Statement) -> None:
        name = node.this.name
        if name.lower() not in self._nodes:
            known = [each.this.name for each in self._nodes.values()]
            raise self.text.error(f"no query {name!r} above", node.this, suggest(name, known, "queries are"))

    # ------------------------------------------------------------ inputs

    def _time_domain(self, streams: list[nodes.RegisterInput], statements: list[nodes.Statement]) -> Type:
        """TIMESTAMP or BIGINT, for the whole app: declared, or told by durations, or by the data."""
        told: list[tuple[Type, exp.Expr]] = []
        for node in streams:
            declared = self._declared_time(node)
            if declared is not None:
                told.append((declared, node.args.get("timestamp") or node.this))
        if not told:
            for statement in statements:
                for length in statement.find_all(nodes.Duration):
                    told.append((TIMESTAMP if length.args.get("unit") else BIGINT, length))
                    break
        if not told:
            told = [(sniffed, node.this) for node in streams if (sniffed := self._sniffed(node)) is not None]
        for type_, where in told:
            if type_ != told[0][0]:
                raise self.text.error(
                    f"this stream's time is {type_}, another's is {told[0][0]}",
                    where,
                    "all streams of an app share one kind of time: make them all TIMESTAMP or all BIGINT",
                )
        return told[0][0] if told else TIMESTAMP

    def _declared_time(self, node: nodes.RegisterInput) -> Type | None:
        by = node.args.get("timestamp")
        if by is None:
            return None if node.args["kind"] == "RELATION" else TIMESTAMP
        for column in node.args["columns"]:
            if column.this.name.lower() == by.name.lower():
                type_ = literals.cql_type(column.args["kind"], self.text)
                if type_ not in (TIMESTAMP, BIGINT) and not type_.is_integer:
                    fault = f"TIMESTAMP BY needs a TIMESTAMP or BIGINT column, {by.name!r} is {type_}"
                    raise self.text.error(fault, by)
                return BIGINT if type_.is_integer else TIMESTAMP
        return None

    def _sniffed(self, node: nodes.RegisterInput) -> Type | None:
        by = node.args.get("timestamp")
        if by is None or self.sniff is None:
            return None
        return self.sniff(self._connector(node.args["connector"]), by.name)

    def _input(self, node: nodes.RegisterInput) -> Input:
        fields: list[Field] = []
        for column in node.args["columns"]:
            name = column.this.name
            if any(each.name.lower() == name.lower() for each in fields):
                raise self.text.error(f"column {name!r} is declared twice", column)
            fields.append(Field(name, literals.cql_type(column.args["kind"], self.text)))
        timestamp, hidden = self._timestamp(node, fields)
        is_relation = node.args["kind"] == "RELATION"
        self._check_clauses(node, is_relation)
        return Input(
            name=node.this.name,
            schema=Schema(tuple(fields)),
            is_relation=is_relation,
            timestamp=timestamp,
            hidden=hidden,
            slack=self._length(node, "slack") or 0,
            idle=self._length(node, "idle"),
            retain=self._length(node, "retain"),
            tick=Tick(node.args["tick"].name if node.args.get("tick") else "TIME"),
            connector=self._connector(node.args["connector"]),
            place=self.text.place_of(node.this),
        )

    def _timestamp(self, node: nodes.RegisterInput, fields: list[Field]) -> tuple[int | None, int]:
        by = node.args.get("timestamp")
        if by is None:
            return None, 0
        for index, each in enumerate(fields):
            if each.name.lower() == by.name.lower():
                return index, 0
        fields.append(Field(by.name, self.time))
        return len(fields) - 1, 1

    def _check_clauses(self, node: nodes.RegisterInput, is_relation: bool) -> None:
        untimed = node.args.get("timestamp") is None
        for key in ("slack", "idle", "retain"):
            value = node.args.get(key)
            if value is not None and is_relation and untimed:
                fault = f"{key.upper()} needs TIMESTAMP BY: without it this relation is a static table"
                raise self.text.error(fault, value)
        if node.args.get("slack") is not None and untimed and not is_relation:
            raise self.text.error(
                "SLACK needs TIMESTAMP BY: arrival time is never out of order", node.args["slack"]
            )

    def _length(self, node: nodes.RegisterInput, key: str) -> int | None:
        value = node.args.get(key)
        if value is None:
            return None
        # IDLE waits by the clock, whatever the stream's own time is.
        time = TIMESTAMP if key == "idle" else self.time
        return literals.duration(value, time, self.text)

    def _connector(self, node: nodes.ConnectorSpec) -> Connector:
        options: list[tuple[str, str]] = []
        for option in node.expressions:
            name = option.this.name.lower()
            if any(name == key for key, _ in options):
                raise self.text.error(f"option {name!r} is given twice", option)
            options.append((name, str(option.args["value"].this)))
        return Connector(str(node.this.this).lower(), tuple(options))

    # ------------------------------------------------------------ queries

    def _queries(self) -> tuple[RegisteredQuery, ...]:
        self._infer_schemas()
        registered = []
        for key, node in self._nodes.items():
            query = QueryBinder(self, self.text).query(node.args["query"])
            if query.schema != self._bound[key].schema:
                raise self.text.error(
                    f"the column types of {node.this.name!r} do not settle", node.this, "CAST them"
                )
            sink = node.args.get("connector")
            registered.append(
                RegisteredQuery(
                    name=node.this.name,
                    query=query,
                    sink=self._connector(sink) if sink is not None else None,
                    text=render(node.args["query"]),
                    place=self.text.place_of(node.this),
                )
            )
        return tuple(registered)

    def _infer_schemas(self) -> None:
        for _ in range(_MOST_ROUNDS):
            changed = False
            for key, node in self._nodes.items():
                try:
                    query = QueryBinder(self, self.text, infer=True).query(node.args["query"])
                except UnknownSchema:
                    continue
                known = self._bound.get(key)
                changed |= known is None or known.schema != query.schema
                self._bound[key] = query
            if not changed:
                break
        unknown = [node for key, node in self._nodes.items() if key not in self._bound]
        if unknown:
            names = ", ".join(repr(node.this.name) for node in unknown)
            raise self.text.error(
                f"the columns of {names} cannot be told: they are defined by one another alone",
                unknown[0].this,
                "start the recursion from an input: SELECT ... FROM input [NOW] UNION ALL SELECT ...",
            )

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

    def _loop_error(self, queries: tuple[RegisteredQuery, ...], loops: list[tuple[str, ...]]) -> Exception:
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
