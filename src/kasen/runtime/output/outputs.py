"""Where answers and refused rows go, and how far they have got. Shared by all ways of running an app."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kasen.connect.chunk import Chunk, DeadLetter
from kasen.connect.dead_letter import FILE_NAME as DEAD_LETTER
from kasen.connect.dead_letter import DeadLetterFile
from kasen.connect.decode import decode, output_schema
from kasen.connect.parquet.sink import ParquetSink
from kasen.connect.registry import SINKS, open_sink
from kasen.connect.sink import Sink
from kasen.engine.batch import I64, Batch
from kasen.engine.kernels.instants import all_within
from kasen.engine.parallel import share
from kasen.engine.text.dictionary import Dictionary
from kasen.errors import DataError, QueryError
from kasen.plan.changes import CatalogChange, Register, RegisteredQuery
from kasen.plan.physical import Plan
from kasen.runtime.input.feed import InputRows
from kasen.runtime.pipeline import Answer
from kasen.types import Connector, Schema

#: Times lie strictly between -MOST_TIME and MOST_TIME, as lengths do, so that their sums never overflow.
MOST_TIME = 2**62
#: Why a row whose time is outside is refused.
BEYOND = "bad timestamp: beyond what windows and delays can be added to"

#: A query's sink, its changes, and their columns.
_Due = tuple[Sink, Batch, Schema]


@dataclass(slots=True)
class Progress:
    """What a run has done so far; told after every epoch.

    All instants below `frontier` are answered. `waiting` rows have been read and wait for it to move on; it
    is `lag` behind the latest of them, in the app's unit of time. On Spark: how long the last epoch took, and
    how many bytes of state the checkpoint holds, and which streams are read slowly, as they are far ahead.
    """

    rows: int = 0
    dead: int = 0
    epochs: int = 0
    results: dict[str, int] = field(default_factory=dict)
    frontier: int | None = None
    waiting: int = 0
    lag: int = 0
    seconds: float = 0.0
    epoch_seconds: float | None = None
    state_bytes: int | None = None
    slowed: tuple[str, ...] = ()
    done: bool = False
    had_ended: bool = (
        False  # a checkpoint of a run that got to the end of its input: nothing is read any more
    )


class RowReceiver(Protocol):
    """What rows are handed to: a pipeline, or what stands for one that runs elsewhere."""

    dictionary: Dictionary

    def add(self, name: str, rows: InputRows) -> InputRows: ...

    def check_changes(self, check: Callable[[CatalogChange], None]) -> None:
        """Whoever writes answers may refuse a change of the queries."""
        ...

    @property
    def queries(self) -> Mapping[str, RegisteredQuery]: ...

    @property
    def pending(self) -> list[CatalogChange]:
        """The changes of queries that have not taken effect."""
        ...

    @property
    def frontier(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def lag(self) -> int: ...


def is_beyond(ts: I64) -> npt.NDArray[np.bool_]:
    """Which times are out of range."""
    return (ts >= MOST_TIME) | (ts <= -MOST_TIME)


def are_within(rows: InputRows) -> bool:
    """Whether all times are in range."""
    ts = rows.ts
    if len(ts) and rows.ascends:
        return ts.item(0) > -MOST_TIME and ts.item(-1) < MOST_TIME
    return bool(all_within(ts, MOST_TIME))


def within(rows: InputRows) -> InputRows:
    """The rows whose times are in range."""
    return rows if are_within(rows) else rows.take(~is_beyond(rows.ts))


OnProgress = Callable[[Progress], None]
#: Opens a sink of a format that is not Kasen's own, at a position of an earlier run.
OpenForeign = Callable[[Connector, Path, str, int | None], Sink]
OnAnswer = Callable[[Answer], None]


class Outputs:
    """The sinks of an app's queries, its dead letter, and the counts of both.

    `notes` are those of an earlier run to go on from: sinks are cut back to where they were then.
    """

    def __init__(
        self,
        plan: Plan,
        pipeline: RowReceiver,
        base: Path,
        out: Path | None,
        notes: dict[str, Any],
        on_progress: OnProgress | None,
        on_answer: OnAnswer,
        foreign: OpenForeign | None = None,
    ) -> None:
        self._plan = plan
        self._foreign = foreign
        self._pipeline = pipeline
        self._relations = {input_.name for input_ in plan.app.inputs if input_.is_relation}
        self._on_progress = on_progress
        self._on_answer = on_answer
        self._started = time.monotonic()
        queries = pipeline.queries.values()
        self.progress = Progress(results={query.name: 0 for query in queries})
        self.progress.rows = notes.get("rows", 0)
        self.progress.dead = notes.get("refused", 0)
        #: How many answers were delivered, by earlier runs too.
        self.answers: int = notes.get("answers", 0)
        self.progress.results |= notes.get("results", {})
        self._base = base
        self._out = out
        self._check_folder(notes)
        self._targets: dict[Path, str] = {}
        #: Where the sinks of queries that went have got to, and the columns they hold.
        self._gone: dict[str, int] = notes.get("gone", {})
        self._columns: dict[str, Schema] = {}
        self.sinks: dict[str, Sink] = {}
        self._file: DeadLetterFile | None = None
        reached: dict[str, int] = notes.get("sinks", {})
        try:
            self._open(queries, reached, notes)
        except BaseException:
            self.close()
            raise
        # Queries that went after the notes were made.
        self._gone |= {name: place for name, place in reached.items() if name not in self.sinks}
        pipeline.check_changes(self.check)
        for change in pipeline.pending:
            self.check(change)
        self.dead_letters: list[DeadLetter] = []
        # Whether a deletion finds its row is only known later; its dead letter must be at hand then.
        self._deletions: dict[str, dict[int, DeadLetter]] = {
            name: {int(position): DeadLetter(*letter) for position, letter in letters.items()}
            for name, letters in notes.get("deletions", {}).items()
        }

    # ------------------------------------------------------------ sinks

    @property
    def _folder(self) -> str | None:
        return None if self._out is None else str(self._out.resolve())

    def _check_folder(self, notes: dict[str, Any]) -> None:
        """An earlier run's answers are where it wrote them, and nowhere else can they be gone on with."""
        if notes.get("out", self._folder) != self._folder:
            before = notes["out"] or "no files (there was no --out)"
            fault = f"the answers so far were written to {before}, and now --out is {self._folder}"
            raise DataError(f"{fault}; run it as before, or remove the checkpoint to start anew")

    def _open(
        self, queries: Iterable[RegisteredQuery], reached: dict[str, int], notes: dict[str, Any]
    ) -> None:
        for query in queries:
            self._open_sink(query, reached.get(query.name))
            self._check_written(query, notes)
        if self._out is not None:
            self._file = DeadLetterFile(self._out, notes.get("dead"))
            _compare(self._out / DEAD_LETTER, self._file.checksum(), notes.get("dead_checksum"))

    def _check_written(self, query: RegisteredQuery, notes: dict[str, Any]) -> None:
        """An earlier run's answers are part of this one's, so they must be as they were written."""
        connector, folder = self._connector(query)
        if connector is not None:
            found, noted = self.sinks[query.name].checksum(), notes.get("checksums", {}).get(query.name)
            _compare(folder / connector.option("path"), found, noted)

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
                if action.query.name not in self.sinks:
                    self._open_sink(action.query, self._gone.pop(action.query.name, None))
            elif action.name in self.sinks:
                sink = self.sinks.pop(action.name)
                sink.flush(sync=False)
                self._gone[action.name] = sink.position()
                sink.close()

    def _connector(self, query: RegisteredQuery) -> tuple[Connector | None, Path]:
        """Where a query's answers go: what INTO says, else a file of its name."""
        if query.sink is None and self._out is not None:
            return Connector("csv", (("path", f"{query.name}.csv"),)), self._out
        return query.sink, self._base

    def _open_sink(self, query: RegisteredQuery, resume: int | None) -> None:
        connector, folder = self._connector(query)
        if connector is None:
            return
        self._target(query)
        self._columns[query.name] = query.schema
        schema = output_schema(query.schema, self._plan.app.time)
        if self._foreign is not None and connector.format not in SINKS:
            self.sinks[query.name] = self._foreign(connector, folder, query.name, resume)
        else:
            self.sinks[query.name] = open_sink(connector, folder, query.name, schema, resume)

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

    # ------------------------------------------------------------ rows

    def take(
        self, name: str, rows: InputRows, dead: list[DeadLetter], chunk: Chunk, offset: int
    ) -> list[int]:
        """Hands rows of a chunk to the pipeline; what is refused, to the dead letter.

        A row's position minus `offset` is its row in the chunk. Returns the chunk's rows that were refused.
        """
        if dead:
            self.bury(dead)
        self.progress.rows += len(rows)
        refused: list[int] = []
        if not are_within(rows):
            beyond = is_beyond(rows.ts)
            refused = (rows.position[beyond] - offset).tolist()
            chunk.expect(refused)
            for row in refused:
                self.bury([chunk.refuse(row, BEYOND)])
            rows = within(rows)
        late = self._pipeline.add(name, rows)
        if len(late):
            too_late = (late.position - offset).tolist()
            chunk.expect(too_late)
            for row, ts in zip(too_late, late.ts.tolist(), strict=True):
                self.bury([chunk.refuse(row, f"late: {ts} is below what SLACK allows")])
            refused += too_late
        if name not in self._relations:
            return refused
        for position in rows.position[rows.diff < 0].tolist():
            letter = chunk.refuse(position - offset, "unmatched delete: no such row")
            self._deletions.setdefault(name, {})[position] = letter
        return refused

    def bury(self, letters: list[DeadLetter]) -> None:
        self.progress.dead += len(letters)
        if self._file is not None:
            self._file.write(letters)
        else:
            self.dead_letters += letters

    def deliver(self, answer: Answer) -> None:
        """Writes the answers of an epoch, and tells of it."""
        self.progress.epochs += 1
        self.answers += 1
        due: list[_Due] = []
        for name, batch in answer.changes.items():
            if not len(batch):
                continue
            self.progress.results[name] = self.progress.results.get(name, 0) + len(batch)
            sink = self.sinks.get(name)
            if sink is not None:
                query = answer.queries.get(name) or self._plan.app.query(name)
                assert query is not None
                due.append((sink, batch, query.schema))
        self._write(due)
        for name, refused in answer.refused:
            self.bury([self._deletions[name][position] for position in refused.tolist()])
        for name, applied in answer.deletions:
            for position in applied.tolist():
                del self._deletions[name][position]
        self._on_answer(answer)
        if answer.change is not None:
            self.follow(answer.change)
        self.tell()

    def _write(self, due: Sequence[_Due]) -> None:
        """To each sink its rows. Arrow lets go of Python's lock as it writes Parquet: on two cores."""

        def write(some: Iterable[_Due]) -> None:
            for sink, batch, schema in some:
                sink.write(decode(batch, schema, self._pipeline.dictionary, self._plan.app.time))

        if all(isinstance(sink, ParquetSink) for sink, _, _ in due):
            share(write, due, sum(len(batch) for _, batch, _ in due))
        else:
            write(due)

    def tell(self) -> None:
        if self._on_progress is None:
            return
        self.progress.frontier = self._pipeline.frontier
        self.progress.waiting = self._pipeline.waiting
        self.progress.lag = self._pipeline.lag
        self.progress.seconds = time.monotonic() - self._started
        self._on_progress(self.progress)

    def committed(self) -> dict[str, Any]:
        """Flushes everything to disk; returns the notes from which a later run can go on."""
        for sink in self.sinks.values():
            sink.flush(sync=True)
        if self._file is not None:
            self._file.flush(sync=True)
        return {
            "sinks": {name: sink.position() for name, sink in self.sinks.items()},
            "checksums": {name: sink.checksum() for name, sink in self.sinks.items()},
            "gone": self._gone,
            "dead": self._file.position() if self._file is not None else None,
            "dead_checksum": self._file.checksum() if self._file is not None else None,
            "deletions": self._deletions,
            "rows": self.progress.rows,
            "refused": self.progress.dead,
            "out": self._folder,
            "answers": self.answers,
            "results": self.progress.results,
        }

    def close(self) -> None:
        for sink in self.sinks.values():
            sink.close()
        if self._file is not None:
            self._file.close()


def _compare(path: Path, found: str, noted: str | None) -> None:
    """Refuses what was written, if it has another checksum than was noted."""
    if noted is not None and found != noted:
        fault = f"{path} is damaged, or was changed: its checksum is not that of what was written"
        raise DataError(f"{fault}; restore it, or remove the checkpoint to start anew")
