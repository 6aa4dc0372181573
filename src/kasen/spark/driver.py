"""Operators in the driver: rows come there as Arrow, and its own pipeline answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from kasen.connect.chunk import Chunk
from kasen.engine.batch import I64
from kasen.engine.operator import State
from kasen.plan.physical import Input, Plan
from kasen.runtime.input.feed import InputRows
from kasen.runtime.output.answers import PiecewiseRun
from kasen.runtime.output.outputs import Outputs
from kasen.runtime.pipeline import RunningPipeline
from kasen.spark.placement import Placement, RunInputs
from kasen.spark.row_log import RowLog
from kasen.spark.scan import scan
from kasen.spark.scan.arrivals import Arrived, CrossingInput
from kasen.spark.scan.panes import by_panes
from kasen.spark.scan.whole_files import read_whole_files
from kasen.spark.state.epochs import StateJournal, Store

#: In a segment: from when to when rows were, that were reduced to fewer; how far time went without rows.
_SAW, _ADVANCED = "saw", "advanced"


def replay(plan: Plan, pipeline: RunningPipeline, store: Store, record: dict[str, Any]) -> None:
    """Brings a new pipeline to where the commit record's epoch left one: the answers have been delivered.

    First the last snapshot, then what was read since, and in between what a user changed between epochs.
    """
    journal = StateJournal.of(record["journal"])
    row_log = RowLog(plan.app.inputs, pipeline.dictionary)
    changes = store.changes()
    if journal.snapshot is not None:
        pipeline.restore(store.files.arrays(journal.snapshot[1]))
    _execute(pipeline, changes.get(journal.since, ()))
    for epoch, file, _ in journal.log:
        for name, pieces in store.files.arrays(file).items():
            saw, advanced = pieces.pop(_SAW, None), pieces.pop(_ADVANCED, None)
            for packed in pieces.values():
                pipeline.add(name, row_log.rows(name, packed))
            if saw is not None:
                pipeline.saw(name, *saw.tolist())
            if advanced is not None:
                pipeline.advance(name, int(advanced[0]))
        for _ in pipeline.answers():
            pass
        pipeline.forget_texts()
        _execute(pipeline, changes.get(epoch, ()))


def _execute(pipeline: RunningPipeline, texts: Iterable[str]) -> None:
    for text in texts:
        pipeline.execute(text)


class InDriver(Placement):
    """One Spark job per epoch, and no exchange."""

    def __init__(
        self,
        inputs: RunInputs,
        pipeline: RunningPipeline,
        outputs: Outputs,
        store: Store | None,
        record: dict[str, Any] | None,
    ) -> None:
        """`replay` has brought the pipeline to the `record`'s epoch."""
        super().__init__(inputs, pipeline, outputs, store, record)
        self._opens = inputs.opens
        self._in_pieces = PiecewiseRun(pipeline)
        self._pipeline = pipeline
        self._store = store
        self._journal = StateJournal.of(record["journal"]) if record is not None else StateJournal()

    def epoch(self, batch: DataFrame, number: int) -> None:
        self._arrivals.stamp = self._timing.begin(number)
        partials = self._scans[self._streams[0].name].partials
        if partials is None:
            files = read_whole_files(batch, self._files_frame) if self._opens is not None else None
            if files is None:
                self.take(batch.toArrow())
            else:
                self.take_files(files)
            return
        self._segment, self._tables = self._tables, {}
        input_, base = self._streams[0], batch.withColumnsRenamed(self._base_names())
        saw = by_panes(input_, partials, base, self._pipeline, self._arrivals, self._take)
        if saw is not None:
            self._pipeline.saw(input_.name, *saw)
            self._segment.setdefault(input_.name, {})[_SAW] = np.array(saw, np.int64)
        self._advance()
        self._answer()

    def take(self, table: pa.Table) -> None:
        """A micro-batch's rows, in the slots that `frame` laid out."""
        parts = ((self._sources[index], mine) for index, mine in scan.of_streams(table, self._slots))
        self._take_all((source, self._arrivals.read(source, mine)) for source, mine in parts)

    def take_files(self, files: Iterable[tuple[str, pa.Table]]) -> None:
        """The same of an only stream, file by file."""
        self._take_all([(self._sources[0], self._arrivals.read_files(self._sources[0], files))])

    def _take_all(self, parts: Iterable[tuple[CrossingInput, Iterable[Arrived]]]) -> None:
        self._segment, self._tables = self._tables, {}
        for source, arrived in parts:
            for chunk, rows, failed in arrived:
                self._take(source.input_, chunk, rows, failed)
        self._advance()
        self._answer()

    def _files_frame(self, batch: DataFrame, paths: tuple[str, ...]) -> DataFrame:
        """Files of the only stream as a micro-batch has them, but for the number of the file."""
        assert self._opens is not None
        return self.frame({self._streams[0].name: self._opens(batch.sparkSession, paths)})

    def _base_names(self) -> dict[str, str]:
        return {slot: f"b{place}" for place, slot in enumerate(self._slots.places[0]) if slot is not None}

    def _take(
        self, input_: Input, chunk: Chunk, rows: InputRows, failed: I64 | None, read: int | None = None
    ) -> None:
        """Adds rows to the pipeline, and to the epoch's segment; `read` is how many rows they stand for."""
        self._timing.hear(input_.name)
        refused = self._take_rows(self._segment, input_, chunk, rows)
        if read is not None:
            self._outputs.progress.rows += read - len(rows)
        if failed is not None:
            # What comes too late is never computed, so it cannot fail either.
            self._pipeline.failures.count += int(failed.sum()) - int(failed[refused].sum())

    def _log(self, segment: dict[str, State], input_: Input, rows: InputRows) -> None:
        if self._store is not None:
            self._row_log.add(segment.setdefault(input_.name, {}), input_.name, rows)

    def _note_advance(self, name: str, ts: int) -> None:
        self._segment.setdefault(name, {})[_ADVANCED] = np.array([ts], np.int64)

    def _answer(self) -> None:
        for answer in self._in_pieces.answers():
            self._outputs.deliver(answer)
        self._pipeline.forget_texts()

    def end(self, *, flush: bool) -> None:
        for input_ in self._streams:
            self._pipeline.end(input_.name)
        self._answer()
        if flush:
            for answer in self._pipeline.flush():
                self._outputs.deliver(answer)

    def save(self, epoch: int) -> dict[str, Any]:
        assert self._store is not None
        name = f"files/driver-{epoch:012}-{uuid.uuid4().hex}"
        state = self._pipeline.snapshot if self._pipeline.begun else None
        self._journal.write(self._store.files, name, epoch, self._segment, state)
        return {"journal": self._journal.to_json(), "counts": self._arrivals.counts}
