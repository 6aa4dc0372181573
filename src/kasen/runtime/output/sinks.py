"""The sinks of an app's queries, which come and go with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kasen.connect.decode import decode, output_schema
from kasen.connect.parquet.sink import ParquetSink
from kasen.connect.registry import SINKS, open_sink
from kasen.connect.sink import Sink
from kasen.engine.batch import Batch
from kasen.engine.parallel import share
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import DataError, QueryError
from kasen.plan.changes import CatalogChange, Register, RegisteredQuery
from kasen.plan.physical import Plan
from kasen.types import Connector, Schema

#: Opens a sink of a format that is not Kasen's own, at a position of an earlier run.
OpenForeign = Callable[[Connector, Path, str, int | None], Sink]
#: A query's sink, its changes, and their columns.
_Due = tuple[Sink, Batch, Schema]


class Sinks:
    """`notes` are those of an earlier run to go on from: sinks are cut back to where they were then."""

    def __init__(
        self,
        plan: Plan,
        queries: Iterable[RegisteredQuery],
        base: Path,
        out: Path | None,
        notes: dict[str, Any],
        foreign: OpenForeign | None = None,
    ) -> None:
        self._plan = plan
        self._base = base
        self._out = out
        self._foreign = foreign
        self._check_folder(notes)
        self._targets: dict[Path, str] = {}
        #: Where the sinks of queries that went have got to, and the columns they hold.
        self._gone: dict[str, int] = notes.get("gone", {})
        self._columns: dict[str, Schema] = {}
        self._sinks: dict[str, Sink] = {}
        reached: dict[str, int] = notes.get("sinks", {})
        try:
            for query in queries:
                self._open(query, reached.get(query.name))
                self._check_written(query, notes)
        except BaseException:
            self.close()
            raise
        # Queries that went after the notes were made.
        self._gone |= {name: place for name, place in reached.items() if name not in self._sinks}

    @property
    def _folder(self) -> str | None:
        return None if self._out is None else str(self._out.resolve())

    def _check_folder(self, notes: dict[str, Any]) -> None:
        """An earlier run's answers are where it wrote them, and nowhere else can they be gone on with."""
        if notes.get("out", self._folder) != self._folder:
            before = notes["out"] or "no files (there was no --out)"
            fault = f"the answers so far were written to {before}, and now --out is {self._folder}"
            raise DataError(f"{fault}; run it as before, or remove the checkpoint to start anew")

    def _check_written(self, query: RegisteredQuery, notes: dict[str, Any]) -> None:
        """An earlier run's answers are part of this one's, so they must be as they were written."""
        connector, folder = self._connector(query)
        if connector is not None:
            found, noted = self._sinks[query.name].checksum(), notes.get("checksums", {}).get(query.name)
            check_unchanged(folder / connector.option("path"), found, noted)

    def check(self, change: CatalogChange) -> None:
        """Refuses a change whose answers could not be written."""
        for action in change.actions:
            if not isinstance(action, Register):
                continue
            query = action.query
            before = self._columns.get(query.name)
            if before is not None and before != query.schema and self._connector(query)[0] is not None:
                raise QueryError(
                    f"{query.name} has been written with other columns: {', '.join(before.names)}",
                    remedy="choose another name, or keep the columns' names and types",
                )
            self._target(query)

    def follow(self, change: CatalogChange) -> None:
        """After a change: the sinks of queries that came and went."""
        for action in change.actions:
            if isinstance(action, Register):
                if action.query.name not in self._sinks:
                    self._open(action.query, self._gone.pop(action.query.name, None))
            elif action.name in self._sinks:
                sink = self._sinks.pop(action.name)
                sink.flush(sync=False)
                self._gone[action.name] = sink.position()
                sink.close()

    def _connector(self, query: RegisteredQuery) -> tuple[Connector | None, Path]:
        """Where a query's answers go: what INTO says, else a file of its name."""
        if query.sink is None and self._out is not None:
            return Connector("csv", (("path", f"{query.name}.csv"),)), self._out
        return query.sink, self._base

    def _open(self, query: RegisteredQuery, resume: int | None) -> None:
        connector, folder = self._connector(query)
        if connector is None:
            return
        self._target(query)
        self._columns[query.name] = query.schema
        schema = output_schema(query.schema, self._plan.app.time)
        if self._foreign is not None and connector.format not in SINKS:
            self._sinks[query.name] = self._foreign(connector, folder, query.name, resume)
        else:
            self._sinks[query.name] = open_sink(connector, folder, query.name, schema, resume)

    def _target(self, query: RegisteredQuery) -> None:
        """No answer is ever written over an input, nor over another query's answer."""
        connector, folder = self._connector(query)
        if connector is None:
            return
        sink = folder / connector.option("path")
        target = sink.resolve()
        for input_ in self._plan.app.inputs:
            source = (self._base / input_.connector.option("path")).resolve()
            if input_.connector.option("path") and source in (target, *target.parents):
                raise DataError(f"{query.name} would be written to {sink}, which {input_.name} is read from")
        if self._targets.setdefault(target, query.name) != query.name:
            raise DataError(f"{query.name} would be written to {sink}, to which another query is written")

    def write(
        self, changes: Mapping[str, Batch], queries: Mapping[str, RegisteredQuery], dictionary: Dictionary
    ) -> None:
        """The changes of an epoch by query, each to its sink; `queries` has those that came later."""
        if not self._sinks:
            return
        due: list[_Due] = []
        for name, sink in self._sinks.items():
            batch = changes.get(name)
            if batch is not None and len(batch):
                query = queries.get(name) or self._plan.app.query(name)
                assert query is not None
                due.append((sink, batch, query.schema))

        def write(some: Iterable[_Due]) -> None:
            for sink, batch, schema in some:
                sink.write(decode(batch, schema, dictionary, self._plan.app.time))

        # Arrow lets go of Python's lock as it writes Parquet: on two cores.
        if all(isinstance(sink, ParquetSink) for sink, _, _ in due):
            share(write, due, sum(len(batch) for _, batch, _ in due))
        else:
            write(due)

    def committed(self) -> dict[str, Any]:
        """Flushes everything to disk; returns the notes from which a later run can go on."""
        for sink in self._sinks.values():
            sink.flush(sync=True)
        return {
            "sinks": {name: sink.position() for name, sink in self._sinks.items()},
            "checksums": {name: sink.checksum() for name, sink in self._sinks.items()},
            "gone": self._gone,
            "out": self._folder,
        }

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()


def check_unchanged(path: Path, found: str, noted: str | None) -> None:
    """Refuses what was written, if it has another checksum than was noted."""
    if noted is not None and found != noted:
        fault = f"{path} is damaged, or was changed: its checksum is not that of what was written"
        raise DataError(f"{fault}; restore it, or remove the checkpoint to start anew")
