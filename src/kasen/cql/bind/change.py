"""Binding of changes to the set of queries: REGISTER, REPLACE, DROP and ACTIVATE while data flows.

A change is bound against the queries that are there before it; those it brings may read one another and
form loops. It is all right or it is refused as a whole: what others read cannot go, nor get other columns.
Nothing here costs more the more queries there are, but for a check of loops when a change closes one.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import cast

from sqlglot import exp

from kasen.aggregates import UserAggregate
from kasen.cql import nodes
from kasen.cql.bind.expr.scope import suggest
from kasen.cql.bind.input import check_name
from kasen.cql.bind.query import is_monotone_select
from kasen.cql.bind.schemas import Schemas, registered_query, sources_first
from kasen.cql.bound import App, CatalogChange, Drop, Input, Query, Register, RegisteredQuery, Streamify
from kasen.cql.check.loops import circles, find_loops, has_stream, non_monotone_parts, readings, show
from kasen.cql.check.warnings import unbounded_state
from kasen.cql.parse import literals
from kasen.cql.statements import parse
from kasen.cql.text import Text
from kasen.errors import QueryError
from kasen.types import TIMESTAMP, Type

# More digits than a time has; Python refuses to read thousands of them.
_WHOLE = re.compile("-?[0-9]{1,25}")
_ONLY_QUERIES = "only queries come and go while data flows: register streams and settings before the start"


@dataclass(slots=True)
class LiveCatalog:
    """The inputs of an app, and the queries that are there now. Names are kept in lower case."""

    time: Type
    inputs: dict[str, Input]
    queries: dict[str, RegisteredQuery] = field(default_factory=dict)
    prepared: dict[str, Register] = field(default_factory=dict)
    #: For each query, the queries that read it.
    readers: dict[str, set[str]] = field(default_factory=dict)
    #: The queries that were in a loop when they came: they are planned otherwise.
    looped: set[str] = field(default_factory=set)
    user: Mapping[str, UserAggregate] = field(default_factory=dict)
    #: How often it has changed.
    version: int = 0
    #: Whether queries read themselves, as far as somebody has asked; forgotten when queries come or go.
    _in_loop: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    @staticmethod
    def of(app: App) -> LiveCatalog:
        catalog = LiveCatalog(app.time, {input_.name.lower(): input_ for input_ in app.inputs}, user=app.user)
        for query in app.queries:
            catalog._enter(query)
        catalog.looped = {name.lower() for loop in app.loops for name in loop}
        catalog.prepared = {one.query.name.lower(): one for one in app.prepared}
        return catalog

    def input(self, name: str) -> Input | None:
        return self.inputs.get(name.lower())

    def query(self, name: str) -> RegisteredQuery | None:
        return self.queries.get(name.lower())

    def bind(self, text: str, file: str = "") -> tuple[CatalogChange, ...]:
        """What a text asks for, as changes in the order of their times; this catalog stays as it is."""
        source = Text(text, file)
        statements = parse(source)
        for node in statements:
            if isinstance(node, nodes.RegisterInput | nodes.Setting):
                place = source.place_of(node.this)
                fault = f"{_kind(node)} cannot be given now"
                raise QueryError(fault, remedy=_ONLY_QUERIES, place=place, text=text, file=file)
        return self.bind_all(statements, source, as_written=True)

    def bind_all(
        self, statements: Iterable[nodes.Statement], text: Text, *, as_written: bool = False
    ) -> tuple[CatalogChange, ...]:
        """Changes, each bound against the catalog as those before leave it. Those for one time are one."""
        by_time: dict[int | None, list[nodes.Statement]] = {}
        for node in statements:
            by_time.setdefault(_time(node, self.time, text), []).append(node)
        catalog = self if len(by_time) < 2 else self.copy()
        changes = []
        for at in sorted(by_time, key=lambda at: (at is not None, at or 0)):
            changes.append(_Binder(catalog, text, at, as_written).bind(by_time[at]))
            if catalog is not self:
                catalog.apply(changes[-1])
        return tuple(changes)

    def bind_again(self, changes: Iterable[CatalogChange]) -> list[CatalogChange]:
        """Changes that wait, in the order of their times, as names mean it when each time has come.

        QueryError if one of them would no longer be right then.
        """
        catalog = self.copy()
        found: list[CatalogChange] = []
        for change in changes:
            try:
                (again,) = catalog.bind(replace(catalog, prepared={}).as_text([change]))
            except QueryError as error:
                fault = f"the change that waits for {change.at} could not be made then: {error.fault}"
                raise QueryError(fault, remedy="ask for another time, or for something else") from None
            catalog.apply(again)
            found.append(again)
        return found

    def copy(self) -> LiveCatalog:
        readers = {name: set(found) for name, found in self.readers.items()}
        return LiveCatalog(
            self.time,
            self.inputs,
            dict(self.queries),
            dict(self.prepared),
            readers,
            set(self.looped),
            self.user,
        )

    # ------------------------------------------------------------ changing

    def apply(self, change: CatalogChange) -> None:
        """The catalog after a change."""
        self.version += 1
        self.prepared |= {one.query.name.lower(): one for one in change.prepared}
        for action in change.actions:
            if isinstance(action, Register):
                self._leave(action.query.name)
                self._enter(action.query)
                self.prepared.pop(action.query.name.lower(), None)
            else:
                self._leave(action.name)
        for action in change.actions:
            if isinstance(action, Register) and self.in_loop(action.query.name):
                self.looped.add(action.query.name.lower())

    def after(self, change: CatalogChange) -> LiveCatalog:
        """A catalog in which names mean what they will mean after a change; only for looking up."""
        comes = {
            action.query.name.lower(): action.query
            for action in change.actions
            if isinstance(action, Register)
        }
        return LiveCatalog(
            self.time, self.inputs, cast("dict[str, RegisteredQuery]", ChainMap(comes, self.queries))
        )

    def in_loop(self, name: str) -> bool:
        """Whether a query reads itself, directly or not."""
        key = name.lower()
        if key not in self._in_loop:
            # What is known already is in no circle with what is not, so each query is looked at once.
            edges: dict[str, set[str]] = {}
            todo = [key]
            while todo:
                each = todo.pop()
                if each not in edges:
                    query = self.queries.get(each)
                    reads = self.reads(query) if query is not None else set()
                    edges[each] = {read for read in reads if read not in self._in_loop}
                    todo += edges[each]
            looping = {each for circle in circles(edges) for each in circle}
            self._in_loop |= {each: each in looping for each in edges}
        return self._in_loop[key]

    def as_text(self, changes: Iterable[CatalogChange]) -> str:
        """Changes as a text that asks for them, and PREPARE for what waits."""
        lines = [f"PREPARE{statement_of(one)[8:]}" for one in self.prepared.values()]
        for change in changes:
            at = "" if change.at is None else f"AT {_time_text(change.at, self.time)} "
            lines += [f"{at}PREPARE{statement_of(one)[8:]}" for one in change.prepared]
            for action in change.actions:
                if isinstance(action, Drop):
                    lines.append(f"{at}DROP QUERY {_quoted(action.name)}")
                else:
                    verb = "REPLACE" if action.replaces else "REGISTER"
                    lines.append(f"{at}{verb}{statement_of(action)[8:]}")
        return ";\n".join(lines)

    def reads(self, query: RegisteredQuery) -> set[str]:
        """The names of the queries that a query reads."""
        return {name for name in query.reads if name not in self.inputs}

    def _enter(self, query: RegisteredQuery) -> None:
        self._in_loop.clear()
        self.queries[query.name.lower()] = query
        for name in self.reads(query):
            self.readers.setdefault(name, set()).add(query.name.lower())

    def _leave(self, name: str) -> None:
        self._in_loop.clear()
        query = self.queries.pop(name.lower(), None)
        self.looped.discard(name.lower())
        if query is not None:
            for read in self.reads(query):
                found = self.readers.get(read, set())
                found.discard(name.lower())
                if not found:
                    self.readers.pop(read, None)


def with_changes(
    app: App, prepared: list[nodes.RegisterQuery], timed: list[nodes.Statement], text: Text
) -> App:
    """An app with the queries that wait for ACTIVATE, and the changes whose times its own text gives."""
    catalog = LiveCatalog.of(app)
    for change in catalog.bind_all(prepared, text):
        catalog.apply(change)
    waiting = tuple(catalog.prepared.values())
    changes = catalog.bind_all(timed, text)
    warnings = [
        warning
        for change in changes
        for action in change.actions
        if isinstance(action, Register)
        for warning in unbounded_state(action.query)
    ]
    return replace(app, changes=changes, prepared=waiting, warnings=(*app.warnings, *warnings))


def statement_of(one: Register) -> str:
    """A text that registers a bound query again."""
    text = (
        f"REGISTER QUERY {_quoted(one.query.name)}{' BACKFILL' if one.backfill else ''} AS {one.query.text}"
    )
    sink = one.query.sink
    if sink is None:
        return text
    options = ", ".join(f"{_quoted(name)} {_literal(value)}" for name, value in sink.options)
    return f"{text} INTO {_literal(sink.format)}" + (f" OPTIONS ({options})" if options else "")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def not_prepared(name: exp.Expr, known: list[str], text: Text) -> QueryError:
    remedy = suggest(name.name, known, "prepared are") or f"write PREPARE QUERY {name.name} AS ... first"
    return text.error(f"no prepared query {name.name!r}", name, remedy)


class _Binder:
    """Binds the statements of one change; also the catalog that its queries are bound against."""

    def __init__(self, live: LiveCatalog, text: Text, at: int | None, as_written: bool) -> None:
        self._live = live
        self._text = text
        self._at = at
        self._as_written = as_written
        self.time = live.time
        self.user = live.user
        self._nodes: dict[str, nodes.RegisterQuery] = {}
        self._prepared: dict[str, nodes.RegisterQuery] = {}
        self._dropped: dict[str, nodes.DropQuery] = {}
        self._cascade: set[str] = set()
        self._schemas: Schemas | None = None

    def bind(self, statements: list[nodes.Statement]) -> CatalogChange:
        for node in statements:
            self._collect(node)
        comes = self._bind_all(self._nodes)
        waits = self._bind_all(self._prepared) if self._prepared else {}
        gone = self._gone(comes)
        self._check_readers(comes, gone)
        self._check_loops(comes)
        ordered = [comes[name] for name in self._sources_first(comes)]
        drops = [Drop(self._live.queries[name].name) for name in gone]
        return CatalogChange(self._at, (*ordered, *drops), tuple(waits.values()))

    # ------------------------------------------------------------ the catalog

    def input(self, name: str) -> Input | None:
        return self._live.input(name)

    def query(self, name: str) -> Query | None:
        key = name.lower()
        if key in self._current:
            assert self._schemas is not None
            return self._schemas.read(key)
        found = self._live.queries.get(key)
        return found.query if found is not None and key not in self._dropped else None

    def registered_name(self, name: str) -> str:
        key = name.lower()
        if key in self._current:
            return str(self._current[key].this.name)
        return self._live.queries[key].name

    def names(self) -> list[str]:
        known = [input_.name for input_ in self._live.inputs.values()]
        known += [one.name for key, one in self._live.queries.items() if key not in self._dropped]
        return known + [str(node.this.name) for node in self._nodes.values()]

    def gone(self, name: str) -> str:
        return "it is dropped by this change" if name.lower() in self._dropped else ""

    # ------------------------------------------------------------ statements

    def _collect(self, node: nodes.Statement) -> None:
        key = node.this.name.lower()
        match node:
            case nodes.RegisterQuery() if node.args.get("prepare"):
                check_name(node.this, self._text)
                self._prepared[key] = node
            case nodes.RegisterQuery():
                if node.args.get("replace"):
                    self._require(node.this)
                else:
                    self._check_free(node.this)
                self._nodes[key] = node
                self._dropped.pop(key, None)
            case nodes.DropQuery():
                self._require(node.this)
                self._nodes.pop(key, None)
                if key in self._live.queries:
                    self._dropped[key] = node
                if node.args.get("cascade"):
                    self._cascade.add(key)
            case nodes.Activate():
                for name in node.names:
                    self._activate(name)

    def _activate(self, name: exp.Expr) -> None:
        key = name.name.lower()
        if key in self._prepared:
            self._nodes[key] = self._prepared.pop(key)
        elif key in self._live.prepared:
            # Names may mean something else by now, so it is bound anew.
            (node,) = parse(Text(statement_of(self._live.prepared[key])))
            assert isinstance(node, nodes.RegisterQuery)
            self._nodes[key] = node
        else:
            known = [*(node.this.name for node in self._prepared.values())]
            known += [one.query.name for one in self._live.prepared.values()]
            raise not_prepared(name, known, self._text)

    def _exists(self, key: str) -> bool:
        return key in self._nodes or (key in self._live.queries and key not in self._dropped)

    def _check_free(self, name: exp.Expr) -> None:
        check_name(name, self._text)
        key = name.name.lower()
        if not self._exists(key) and key not in self._live.inputs:
            return
        remedy = "choose another name"
        if key not in self._live.inputs:
            remedy += f", or write REPLACE QUERY {name.name}"
        raise self._text.error(f"{name.name!r} is registered already", name, remedy)

    def _require(self, name: exp.Expr) -> None:
        key = name.name.lower()
        if self._exists(key):
            return
        known = [query.name for query in self._live.queries.values()]
        remedy = suggest(name.name, known, "queries are") or "register it first"
        if key in self._live.inputs:
            remedy = "it is an input; only queries can be replaced or dropped"
        raise self._text.error(f"no query {name.name!r}", name, remedy)

    # ------------------------------------------------------------ queries

    _current: dict[str, nodes.RegisterQuery] = {}  # noqa: RUF012 - replaced before each use

    def _bind_all(self, statements: dict[str, nodes.RegisterQuery]) -> dict[str, Register]:
        self._current = statements
        self._schemas = Schemas(statements, self, self._text)
        self._schemas.settle()
        found = {}
        for key, node in statements.items():
            bound = self._schemas.bound[key]
            query = registered_query(node, bound, self._text, as_written=self._as_written)
            backfill = bool(node.args.get("backfill"))
            if backfill:
                self._check_backfill(query, node)
            found[key] = Register(query, key in self._live.queries, backfill)
        return found

    def _check_backfill(self, query: RegisteredQuery, node: nodes.RegisterQuery) -> None:
        """Only what is declared RETAIN is there to start from."""
        inner = query.query.query if isinstance(query.query, Streamify) else query.query
        if has_stream(inner):
            fault = f"{query.name} cannot be backfilled: it reads a stream made within it"
            raise self._text.error(fault, node.this, "leave BACKFILL out, or the streamified sub-query")
        for reading in readings(query.query):
            one = self._live.input(reading.name)
            if one is None and reading.window is None:
                continue  # a relation holds what it holds
            if one is not None and (one.is_relation or one.retain is not None):
                continue
            fault = f"{query.name} cannot be backfilled: nothing keeps the past of {reading.name}"
            remedy = "declare the stream with RETAIN"
            if one is None:
                remedy = "only a stream from outside can, if it is declared with RETAIN"
            raise self._text.error(fault, node.this, remedy)

    def _gone(self, comes: dict[str, Register]) -> list[str]:
        """The queries to drop; CASCADE takes along whoever reads them. Readers first."""
        gone = dict.fromkeys(key for key in self._dropped if key not in comes)
        todo = [key for key in gone if key in self._cascade]
        while todo:
            for reader in self._live.readers.get(todo.pop(), ()):
                if reader not in gone and reader not in comes:
                    gone[reader] = None
                    todo.append(reader)
        return list(reversed(gone))

    def _check_readers(self, comes: dict[str, Register], gone: list[str]) -> None:
        for key in gone:
            readers = self._untouched(key, comes, gone)
            if readers:
                fault = f"{self._live.queries[key].name} is read by {_listed(readers)}"
                remedy = "drop its readers first, or write DROP QUERY ... CASCADE"
                raise self._text.error(fault, self._dropped[key].this, remedy)
        for key, one in comes.items():
            lost = sorted(self._live.queries[name].name for name in self._live.reads(one.query) & set(gone))
            if lost:
                fault = f"{one.query.name} reads {_listed(lost)}, which CASCADE drops in the same change"
                raise self._text.error(fault, self._place(key), "drop it at another time, or not at all")
            before = self._live.queries.get(key)
            if before is None or _kind_of(before) == _kind_of(one.query):
                continue
            readers = self._untouched(key, comes, gone)
            if readers:
                what = "other columns" if before.schema != one.query.schema else "another kind"
                fault = f"{one.query.name} is read by {_listed(readers)}, and would get {what}"
                raise self._text.error(fault, self._place(key), "replace its readers in the same text")

    def _untouched(self, key: str, comes: dict[str, Register], gone: list[str]) -> list[str]:
        found = [name for name in self._live.readers.get(key, ()) if name not in gone and name not in comes]
        return sorted(self._live.queries[name].name for name in found)

    def _place(self, key: str) -> exp.Expr | None:
        return self._nodes[key].this if key in self._nodes else None

    # ------------------------------------------------------------ loops and order

    def _sources_first(self, comes: dict[str, Register]) -> list[str]:
        return sources_first({key: sorted(self._live.reads(one.query)) for key, one in comes.items()})

    def _check_loops(self, comes: dict[str, Register]) -> None:
        """A loop among the queries must hold a delay; only a change that closes one is looked at."""
        after = {key: one.query for key, one in comes.items()}

        def query_of(key: str) -> RegisteredQuery | None:
            return after.get(key) or self._live.queries.get(key)

        edges: dict[str, set[str]] = {}
        todo = list(comes)
        while todo:
            key = todo.pop()
            if key not in edges:
                query = query_of(key)
                edges[key] = self._live.reads(query) if query is not None else set()
                todo += edges[key]
        looping = {key for circle in circles(edges) for key in circle}
        for key in comes:
            if key in looping:
                self._refuse_uncut({**self._live.queries, **after}, key)

    def _refuse_uncut(self, queries: dict[str, RegisteredQuery], key: str) -> None:
        loops = find_loops(tuple(queries.values()), cut=False)
        if loops:
            fault = f"this loop has no delay: {show(loops[0])}"
            parts = non_monotone_parts(tuple(queries.values()), loops[:1])
            if parts:
                fault += f"\n  not monotone there: {', '.join(parts)}"
            remedy = "write <Now> or <duration> behind a stream of the loop: ISTREAM(...)<Now>"
            raise self._text.error(fault, self._place(key), remedy)


def _time(node: nodes.Statement, time: Type, text: Text) -> int | None:
    """The time of AT, as the app counts it."""
    at = node.args.get("at")
    if at is None:
        return None
    found: object = None
    if time == TIMESTAMP:
        found = literals.parse_timestamp(str(at.this)) if at.is_string else None
        remedy = "write it as '2026-01-31 23:59:59', with up to six digits after the seconds"
    else:
        digits = str(at.this)
        found = int(digits) if not at.is_string and _WHOLE.fullmatch(digits) else None
        remedy = "time is BIGINT here: write a whole number"
    if not isinstance(found, int) or abs(found) >= 2**62:
        raise text.error(f"{literals.shortened(str(at.this))} is not a time of this app", at, remedy)
    return found


def _time_text(at: int, time: Type) -> str:
    return _literal(str(datetime(1970, 1, 1) + timedelta(microseconds=at))) if time == TIMESTAMP else str(at)


def _kind(node: nodes.RegisterInput | nodes.Setting) -> str:
    return "SET" if isinstance(node, nodes.Setting) else f"REGISTER {node.args['kind']}"


def _kind_of(query: RegisteredQuery) -> tuple[object, ...]:
    """What the plans of a query's readers rest on."""
    return query.schema, query.is_stream, is_monotone_select(query.query)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
