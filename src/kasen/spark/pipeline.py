"""The epoch loop on Spark: one streaming query, whose micro-batches are the pipeline's epochs.

Spark finds and scans the files, parses and types their rows, and remembers which it has delivered. In
each micro-batch the rows come to the driver as Arrow, where the same pipeline as in a local run orders
them and answers. With a checkpoint, results come first, then state and the epoch's number in one file: a
repeated micro-batch is known by its number and skipped, one that was cut off is undone and done again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kasen.connect.chunk import Chunk, DeadLetter
from kasen.connect.encode import encode
from kasen.connect.layout import Layout
from kasen.connect.memory import chunk_of
from kasen.errors import InternalError, KasenError
from kasen.plan.physical import Input, Plan
from kasen.runtime.checkpoint import Checkpoints
from kasen.runtime.feed import Rows
from kasen.runtime.outputs import OnAnswer, OnProgress, Outputs, Progress
from kasen.runtime.pipeline import Pipeline
from kasen.spark import frames
from kasen.spark.frames import BAD, BLOCK, DIFF, FILE, PLACE, RAW
from kasen.spark.session import session


class SparkRun:
    """One run of an app on Spark, to the end of the files that are there now."""

    def __init__(
        self,
        plan: Plan,
        base: Path,
        out: Path | None = None,
        master: str | None = None,
        checkpoint: Path | None = None,
        files_per_epoch: int | None = None,
        flush: bool = False,
        on_progress: OnProgress = lambda _: None,
        on_answer: OnAnswer = lambda _: None,
    ) -> None:
        self._plan = plan
        self._base = base
        self._flush = flush
        self._checkpoint = checkpoint
        self._files_per_epoch = files_per_epoch
        self._stopping = False
        self._error: KasenError | None = None
        self._lines: dict[tuple[str, str], int] = {}
        self._counts: dict[str, int] = {}
        self.pipeline = Pipeline(plan)
        self._checkpoints = (
            # Spark does not repeat epochs that it has finished, so only the newest state will do.
            Checkpoints(checkpoint / "state", plan.fingerprint, older_will_do=False) if checkpoint else None
        )
        states, notes = (self._checkpoints and self._checkpoints.load()) or (None, {})
        self._resumed = states is not None
        if states is not None:
            self.pipeline.restore(states)
        self._last_epoch: int = notes.get("epoch", -1)
        self._counts |= notes.get("counts", {})
        self.outputs = Outputs(plan, self.pipeline, base, out, notes, on_progress, on_answer)
        self.spark: SparkSession = session(master)

    def stop(self) -> None:
        """Asks for an end after the epoch that is running."""
        self._stopping = True

    def run(self) -> Progress:
        """Runs until all files are read or `stop` is called."""
        self._load_tables()
        streams = [one for one in self._plan.app.inputs if not one.is_static]
        if streams:
            self._run_query(self._start(streams))
        if not self._stopping:
            for one in streams:
                self.pipeline.end(one.name)
            self.outputs.deliver(self.pipeline.run())
            if self._flush or self._plan.app.setting("flush") == "true":
                for answer in self.pipeline.flush():
                    self.outputs.deliver(answer)
        self.outputs.close()
        self.outputs.progress.done = not self._stopping
        self.outputs.tell()
        return self.outputs.progress

    # ------------------------------------------------------------ the streaming query

    def _start(self, streams: list[Input]) -> StreamingQuery:
        opened = {
            one.name: frames.open_frame(self.spark, one, self._base, self._files_per_epoch) for one in streams
        }
        joined = frames.union(opened)
        writer = joined.writeStream.queryName("kasen").foreachBatch(self._epoch).trigger(availableNow=True)
        if self._checkpoint is not None:
            writer = writer.option("checkpointLocation", str((self._checkpoint / "spark").resolve()))
        return writer.start()

    def _run_query(self, query: StreamingQuery) -> None:
        try:
            while query.isActive:
                query.awaitTermination(1)
                if self._stopping and query.isActive:
                    query.stop()
        except Exception as error:
            if self._stopping:
                return
            if self._error is not None:
                raise self._error from None
            raise InternalError(f"Spark's streaming query failed: {error}") from error

    def _epoch(self, batch: DataFrame, epoch: int) -> None:
        """One micro-batch. A repeated one has been answered already.

        A stop must not let a micro-batch pass as done, or its rows would be lost: it is refused.
        """
        if epoch <= self._last_epoch:
            return
        if self._stopping:
            raise InternalError("stopped between epochs")
        try:
            table = frames.numbered(batch).toArrow()
            for one, chunk, rows in self._chunks(table):
                self.outputs.take(one.name, rows, chunk.dead, chunk, _offset(rows))
            self.outputs.deliver(self.pipeline.run())
            self._commit(epoch)
        except KasenError as error:
            self._error = error
            raise

    def _commit(self, epoch: int) -> None:
        self._last_epoch = epoch
        if self._checkpoints is not None:
            notes = self.outputs.committed()
            notes["epoch"] = epoch
            notes["counts"] = self._counts
            self._checkpoints.save(self.pipeline.snapshot(), notes)

    # ------------------------------------------------------------ rows

    def _load_tables(self) -> None:
        for one in self._plan.app.inputs:
            if one.is_static and not self.pipeline.begun:
                table = frames.numbered(frames.open_frame(self.spark, one, self._base, None)).toArrow()
                for chunk, rows in self._in_files(one, table):
                    dead = [] if self._resumed else chunk.dead
                    self.outputs.take(one.name, rows, dead, chunk, _offset(rows))

    def _chunks(self, table: pa.Table) -> Iterator[tuple[Input, Chunk, Rows]]:
        names = table.column("stream")
        streams = [one for one in self._plan.app.inputs if not one.is_static]
        for index, one in enumerate(streams):
            mine = table.filter(pc.equal(names, one.name))
            prefix = f"{index}."
            own = [name for name in mine.column_names if name.startswith(prefix)]
            flat = mine.select([*own, PLACE]).rename_columns([*(n[len(prefix) :] for n in own), PLACE])
            for chunk, rows in self._in_files(one, flat):
                yield one, chunk, rows

    def _in_files(self, one: Input, table: pa.Table) -> Iterator[tuple[Chunk, Rows]]:
        """The rows file by file, in the order of names and of rows in each."""
        if not len(table):
            return
        table = table.sort_by([(FILE, "ascending"), (BLOCK, "ascending"), (PLACE, "ascending")])
        for file in sorted(set(table.column(FILE).to_pylist())):
            yield self._chunk(one, table.filter(pc.equal(table.column(FILE), file)), file)

    def _chunk(self, one: Input, table: pa.Table, file: str) -> tuple[Chunk, Rows]:
        before = self._lines.get((one.name, file), 1)
        self._lines[one.name, file] = before + len(table)
        lines = pa.chunked_array([np.arange(before + 1, before + 1 + len(table))])
        is_bad = table.column(BAD).is_valid()
        is_good = pc.invert(is_bad)
        good = table.filter(is_good)
        layout = Layout(one.name, one.schema, one.timestamp)
        chunk = chunk_of(layout, good.select(list(one.schema.names)))
        # Copies: Arrow's memory must not be written to, and kernels ask for arrays that may be.
        chunk.lines = lines.filter(is_good).to_numpy().copy()
        chunk.diff = good.column(DIFF).to_numpy().copy()
        chunk.dead += self._dead(one, table.filter(is_bad), lines.filter(is_bad))
        data = encode(chunk, self.pipeline.dictionary)
        ts = data[one.timestamp].copy() if one.timestamp is not None else data[-1] * 0
        first = self._counts.get(one.name, 0)
        self._counts[one.name] = first + len(chunk)
        return chunk, Rows(ts, chunk.diff, data, np.arange(first, first + len(chunk)))

    def _dead(self, one: Input, bad: pa.Table, lines: pa.ChunkedArray) -> list[DeadLetter]:
        columns = (lines, bad.column(BAD), bad.column(RAW))
        found = zip(*(column.to_pylist() for column in columns), strict=True)
        return [DeadLetter(one.name, line, reason, raw) for line, reason, raw in found]


def _offset(rows: Rows) -> int:
    """What to take from a row's position to get its row in its chunk."""
    return int(rows.position[0]) if len(rows) else 0
