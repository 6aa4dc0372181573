"""Runs an app in this process, from its sources to its sinks.

Reading goes round by need: always the input that holds the others back. Every epoch runs the instants
that are complete and writes their answers. A checkpoint is taken between epochs: first the sinks are
flushed to disk, then state, places in the sources and positions in the sinks are written as one file; after a
crash the sinks are cut back to those positions, so no result is lost or repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kasen.connect.chunk import DeadLetter
from kasen.connect.dead_letter import DeadLetterFile
from kasen.connect.decode import decode, output_schema
from kasen.connect.registry import open_sink, open_source
from kasen.connect.sink import Sink
from kasen.errors import DataError
from kasen.plan.physical import Input, Plan
from kasen.runtime.checkpoint import Checkpoints
from kasen.runtime.pipeline import Answer, Pipeline
from kasen.runtime.reader import Piece, Reader
from kasen.types import Connector

DEFAULT_BATCH = 1 << 16
_CHECKPOINT_SECONDS = 5.0


@dataclass(slots=True)
class Progress:
    """What a run has done so far; told after every epoch."""

    rows: int = 0
    dead: int = 0
    epochs: int = 0
    results: dict[str, int] = field(default_factory=dict)
    frontier: int | None = None
    seconds: float = 0.0
    done: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. `out` is the folder of the answers; None keeps them in memory or drops them."""

    base: Path
    out: Path | None = None
    batch: int = DEFAULT_BATCH
    checkpoint: Path | None = None
    checkpoint_seconds: float = _CHECKPOINT_SECONDS
    flush: bool = False


class LocalRun:
    """One run of an app, to the end of its input or until `stop` is called."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_answer: Callable[[Answer], None] = lambda _: None,
    ) -> None:
        self._plan = plan
        self._options = options
        self._on_progress = on_progress
        self._on_answer = on_answer
        self._stopping = False
        self.progress = Progress(results={query.name: 0 for query in plan.app.queries})
        self.pipeline = Pipeline(plan)
        self._checkpoints = self._open_checkpoints()
        states, notes = (self._checkpoints and self._checkpoints.load()) or (None, {})
        if states is not None:
            self.pipeline.restore(states)
            self.progress.rows = notes["rows"]
            self.progress.results |= notes["results"]
        self._readers = {one.name: self._reader(one, notes) for one in plan.app.inputs}
        self.sinks = self._open_sinks(notes.get("sinks", {}))
        self._dead = self._open_dead_letters(notes.get("dead"))
        self.dead_letters: list[DeadLetter] = []
        self._deletions: dict[str, dict[int, str]] = {
            name: {int(line): text for line, text in texts.items()}
            for name, texts in notes.get("deletions", {}).items()
        }

    # ------------------------------------------------------------ opening

    def _open_checkpoints(self) -> Checkpoints | None:
        if self._options.checkpoint is None:
            return None
        memory = [one.name for one in self._plan.app.inputs if one.connector.format == "memory"]
        if memory:
            raise DataError(f"{memory[0]} cannot be read again after a crash, so it cannot be checkpointed")
        text = "\n".join(
            [*(f"{one.name} {one.schema} {one.connector}" for one in self._plan.app.inputs)]
            + [f"{query.name}: {query.text}" for query in self._plan.app.queries]
        )
        return Checkpoints(self._options.checkpoint, text)

    def _reader(self, one: Input, notes: dict[str, object]) -> Reader:
        if one.timestamp is None and not one.is_relation:
            raise DataError(
                f"{one.name} has no TIMESTAMP BY: arrival time is for streams that are pushed, "
                "not for files; name the column that holds the time"
            )
        source = open_source(
            one.connector, self._options.base, one.name, one.schema, one.timestamp, one.is_relation
        )
        places = notes.get("places", {})
        assert isinstance(places, dict)
        return Reader(one.name, source, one.timestamp, self.pipeline.dictionary, places.get(one.name))

    def _open_sinks(self, resume: dict[str, int]) -> dict[str, Sink]:
        sinks: dict[str, Sink] = {}
        for query in self._plan.app.queries:
            connector = query.sink
            base = self._options.base
            if self._options.out is not None and connector is None:
                connector = Connector("csv", (("path", f"{query.name}.csv"),))
                base = self._options.out
            if connector is not None:
                schema = output_schema(query.schema, self._plan.app.time)
                sinks[query.name] = open_sink(connector, base, query.name, schema, resume.get(query.name))
        return sinks

    def _open_dead_letters(self, resume: int | None) -> DeadLetterFile | None:
        return DeadLetterFile(self._options.out, resume) if self._options.out is not None else None

    # ------------------------------------------------------------ running

    def stop(self) -> None:
        """Asks for an end after the epoch that is running."""
        self._stopping = True

    def run(self) -> Progress:
        """Runs until the input ends or `stop` is called; always leaves the sinks flushed."""
        started = time.monotonic()
        saved = started
        self._load_tables()
        while not self._stopping and not self.pipeline.ended:
            self._read()
            if self.pipeline.ready() >= self._options.batch and not self.pipeline.ended:
                self._epoch(self.pipeline.run(), started)
                if time.monotonic() - saved >= self._options.checkpoint_seconds:
                    self._save()
                    saved = time.monotonic()
        if not self._stopping:
            self._finish(started)
        self._save()
        for sink in self.sinks.values():
            sink.close()
        if self._dead is not None:
            self._dead.close()
        self.progress.done = not self._stopping
        self.progress.seconds = time.monotonic() - started
        self._on_progress(self.progress)
        return self.progress

    def _finish(self, started: float) -> None:
        """The end of the input: all instants of the last time, then (if asked for) expiring windows."""
        self._epoch(self.pipeline.run(), started)
        if self._options.flush or self._plan.app.setting("flush") == "true":
            for answer in self.pipeline.flush():
                self._epoch(answer, started)

    def _load_tables(self) -> None:
        """Static tables hold from the beginning, so they are read before anything else."""
        for one in self._plan.app.inputs:
            while one.is_static and (piece := self._readers[one.name].read(None)) is not None:
                self._take(one.name, piece)

    def _read(self) -> None:
        name = self.pipeline.slowest
        assert name is not None
        piece = self._readers[name].read(self._options.batch)
        if piece is None:
            self.pipeline.end(name)
        else:
            self._take(name, piece)

    def _take(self, name: str, piece: Piece) -> None:
        """Hands a piece to the pipeline; its dead letters and late rows to the dead letter."""
        self._bury(piece.dead)
        self.progress.rows += len(piece.rows)
        late = self.pipeline.add(name, piece.rows)
        for line, ts in zip(late.position.tolist(), late.ts.tolist(), strict=True):
            reason = f"late: {ts} is below what SLACK allows"
            self._bury([piece.chunk.refuse(piece.row_at(line), reason)])
        leaving = piece.rows.position[piece.rows.diff < 0]
        if len(leaving):
            # Whether a deletion finds its row is only known later; its text must be at hand then.
            texts = self._deletions.setdefault(name, {})
            texts |= {line: piece.chunk.raw(piece.row_at(line)) for line in leaving.tolist()}

    def _bury(self, letters: list[DeadLetter]) -> None:
        self.progress.dead += len(letters)
        if self._dead is not None:
            self._dead.write(letters)
        else:
            self.dead_letters += letters

    def _epoch(self, answer: Answer, started: float) -> None:
        self.progress.epochs += 1
        time_type = self._plan.app.time
        for query in self._plan.app.queries:
            batch = answer.changes.get(query.name)
            if batch is None or not len(batch):
                continue
            self.progress.results[query.name] += len(batch)
            sink = self.sinks.get(query.name)
            if sink is not None:
                sink.write(decode(batch, query.schema, self.pipeline.dictionary, time_type))
        for name, lines, reason in answer.refused:
            texts = self._deletions.get(name, {})
            self._bury([DeadLetter(name, line, reason, texts.get(line, "")) for line in lines.tolist()])
        for name, lines in answer.deletions:
            for line in lines.tolist():
                self._deletions.get(name, {}).pop(line, None)
        self._on_answer(answer)
        self.progress.frontier = self.pipeline.frontier
        self.progress.seconds = time.monotonic() - started
        self._on_progress(self.progress)

    def _save(self) -> None:
        if self._checkpoints is None:
            return
        for sink in self.sinks.values():
            sink.flush(sync=True)
        if self._dead is not None:
            self._dead.flush(sync=True)
        notes = {
            "places": {name: reader.place for name, reader in self._readers.items()},
            "sinks": {name: sink.position() for name, sink in self.sinks.items()},
            "dead": self._dead.position() if self._dead is not None else None,
            "deletions": self._deletions,
            "rows": self.progress.rows,
            "results": self.progress.results,
        }
        self._checkpoints.save(self.pipeline.snapshot(), notes)
