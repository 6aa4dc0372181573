"""Where an epoch's operators run.

The epoch loop (pipeline.py) knows when an epoch begins and when it counts. A placement knows how the rows of
a micro-batch get to the operators, and how their answers come back.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kasen.connect.chunk import Chunk
from kasen.engine.batch import I64
from kasen.engine.operator import State
from kasen.plan.native.lower import NativePlan
from kasen.plan.physical import Input
from kasen.runtime.durable.arrays import pack_arrays
from kasen.runtime.input.feed import InputRows
from kasen.runtime.output.answers import PiecewiseRun
from kasen.runtime.output.outputs import Outputs, within
from kasen.runtime.pipeline import RunningPipeline
from kasen.runtime.shard.shipment import Shipper
from kasen.spark.scan import scan
from kasen.spark.scan.arrivals import Arrivals, Arrived, CrossingInput, Texts, sources_of, whole
from kasen.spark.scan.file_names import FileNames
from kasen.spark.scan.panes import by_panes
from kasen.spark.scan.timing import Timing
from kasen.spark.scan.whole_files import read_whole_files
from kasen.spark.state.epochs import StateJournal, Store

#: The frame of an only stream's files, by their paths.
OpensFiles = Callable[[SparkSession, tuple[str, ...]], DataFrame]
#: What a row in a segment carries besides its columns.
_ROW = ("ts", "diff", "position")
#: In a segment: from when to when rows were, that were reduced to fewer; how far time went without rows.
_SAW, _ADVANCED = "saw", "advanced"


class Placement(Protocol):
    """Called in this order: `table` for each static table, `frame` once, `epoch` often, `end`."""

    def table(self, one: Input, frame: DataFrame) -> None:
        """A static table's rows, before the first epoch."""
        ...

    def frame(self, opened: dict[str, DataFrame]) -> DataFrame:
        """Of the streams' own frames (frames.open_frame), the one whose micro-batches `epoch` gets."""
        ...

    def epoch(self, batch: DataFrame, number: int) -> None:
        """Takes a micro-batch's rows and delivers the answers of every instant that is complete."""
        ...

    def end(self, *, flush: bool) -> None:
        """No more rows come: delivers what is left."""
        ...

    def save(self, epoch: int) -> dict[str, Any]:
        """Makes the epoch's state durable; what the commit record must hold, the files' names among it."""
        ...


def _shippers(native: NativePlan, pipeline: RunningPipeline) -> dict[str, Shipper]:
    inputs = native.plan.app.inputs
    return {input_.name: Shipper(input_.schema, pipeline.dictionary, _ROW) for input_ in inputs}


def replay(native: NativePlan, pipeline: RunningPipeline, store: Store, record: dict[str, Any]) -> None:
    """Brings a new pipeline to where the commit record's epoch left one: the answers have been delivered.

    First the last snapshot, then what was read since, and in between what a user changed between epochs.
    """
    journal = StateJournal.of(record["journal"])
    shippers = _shippers(native, pipeline)
    changes = store.changes()
    if journal.snapshot is not None:
        pipeline.restore(store.files.arrays(journal.snapshot[1]))
    _execute(pipeline, changes.get(journal.since, ()))
    for epoch, file, _ in journal.log:
        for name, pieces in store.files.arrays(file).items():
            saw, advanced = pieces.pop(_SAW, None), pieces.pop(_ADVANCED, None)
            for packed in pieces.values():
                (ts, diff, position), data = shippers[name].unpack([packed.tobytes()])
                pipeline.add(name, within(InputRows(ts, diff, data, position)))
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


class InDriver:
    """Rows come to the driver as Arrow, and its own pipeline answers: one Spark job an epoch, no exchange."""

    def __init__(
        self,
        native: NativePlan,
        pipeline: RunningPipeline,
        outputs: Outputs,
        store: Store | None,
        record: dict[str, Any] | None,
        texts: Texts,
        files: FileNames,
        folders: frozenset[str],
        opens: OpensFiles | None = None,
        cast: frozenset[str] = frozenset(),
    ) -> None:
        """`native` is what Spark does of the app; its plan is the rest, which the pipeline runs.

        `record` is the commit record of the last epoch of an earlier run, to which `replay` has brought the
        pipeline. With `opens`, large epochs of the only stream are scanned anew (whole_files.py).
        The cells of streams in `cast` are of other types in their Parquet files than declared.
        """
        record = record or {}
        self._opens = opens
        self._in_pieces = PiecewiseRun(pipeline)
        self._streams = [input_ for input_ in native.plan.app.inputs if not input_.is_static]
        self._pipeline = pipeline
        self._outputs = outputs
        self._store = store
        self._arrivals = Arrivals(pipeline.dictionary, record.get("counts", {}), texts, files, folders)
        self._scans = {input_.name: native.scan(input_) for input_ in self._streams}
        types = {input_.name: native.types(input_) for input_ in self._streams}
        self._slots = scan.slots_of(self._streams, self._scans, types, cast)
        self._sources = sources_of(self._streams, self._slots)
        self._shippers = _shippers(native, pipeline)
        # Static tables are part of the first epoch's segment: a replay must begin with them.
        self._tables: dict[str, State] = {}
        self._journal = StateJournal.of(record["journal"]) if "journal" in record else StateJournal()
        self._segment: dict[str, State] = {}
        self._timing = Timing(self._streams, store.files if store is not None else None)

    def table(self, one: Input, frame: DataFrame) -> None:
        for chunk, rows, _ in self._arrivals.read(whole(one), frame.toArrow()):
            self._log(self._tables, one, rows)
            self._outputs.take(one.name, rows, chunk.dead, chunk, _offset(rows))

    def frame(self, opened: dict[str, DataFrame]) -> DataFrame:
        return scan.union(opened, self._streams, self._scans, self._slots)

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
        one, base = self._streams[0], batch.withColumnsRenamed(self._base_names())
        saw = by_panes(one, partials, base, self._pipeline, self._arrivals, self._take)
        if saw is not None:
            self._pipeline.saw(one.name, *saw)
            self._segment.setdefault(one.name, {})[_SAW] = np.array(saw, np.int64)
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
                self._take(source.one, chunk, rows, failed)
        self._advance()
        self._answer()

    def _files_frame(self, batch: DataFrame, paths: tuple[str, ...]) -> DataFrame:
        """Files of the only stream as a micro-batch has them, but for the number of the file."""
        assert self._opens is not None
        return self.frame({self._streams[0].name: self._opens(batch.sparkSession, paths)})

    def _advance(self) -> None:
        """Time goes on where it does so without rows, and where nobody waits for them any longer."""
        for name in self._timing.stamped:
            # Whatever comes next comes later, so these rows need not wait for it.
            self._pipeline.advance(name, self._arrivals.stamp + 1)
            self._note_advance(name, self._arrivals.stamp + 1)
        for name in self._timing.silent():
            ts = self._pipeline.skip(name)
            if ts is not None:
                self._note_advance(name, ts)

    def _note_advance(self, name: str, ts: int) -> None:
        self._segment.setdefault(name, {})[_ADVANCED] = np.array([ts], np.int64)

    def _base_names(self) -> dict[str, str]:
        return {slot: f"b{place}" for place, slot in enumerate(self._slots.places[0]) if slot is not None}

    def _take(
        self, one: Input, chunk: Chunk, rows: InputRows, failed: I64 | None, read: int | None = None
    ) -> None:
        """Adds rows to the pipeline, and to the epoch's segment; `read` is how many rows they stand for."""
        self._timing.hear(one.name)
        self._log(self._segment, one, rows)
        refused = self._outputs.take(one.name, rows, chunk.dead, chunk, _offset(rows))
        if read is not None:
            self._outputs.progress.rows += read - len(rows)
        if failed is not None:
            # What comes too late is never computed, so it cannot fail either.
            self._pipeline.failures.count += int(failed.sum()) - int(failed[refused].sum())

    def _log(self, segment: dict[str, State], one: Input, rows: InputRows) -> None:
        """Rows as they were read, for a replay."""
        if self._store is not None:
            pieces = segment.setdefault(one.name, {})
            packed = self._shippers[one.name].pack((rows.ts, rows.diff, rows.position), rows.data)
            pieces[str(len(pieces))] = np.frombuffer(packed, np.uint8)

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
        packed = pack_arrays(self._segment)
        segment = self._store.files.write(f"{name}.segment", packed)
        snapshot = None
        # Before the beginning, static tables are in the log only.
        if self._pipeline.begun:
            state = self._journal.snapshot_due(len(packed), lambda: pack_arrays(self._pipeline.snapshot()))
            snapshot = None if state is None else self._store.files.write(f"{name}.snapshot", state)
        self._journal.add(epoch, segment, snapshot)
        return {"journal": self._journal.to_json(), "counts": self._arrivals.counts}

    def _answer(self) -> None:
        for answer in self._in_pieces.answers():
            self._outputs.deliver(answer)
        self._pipeline.forget_texts()


def _offset(rows: InputRows) -> int:
    """What to take from a row's position to get its row in its chunk."""
    if isinstance(rows.stood, range):
        return rows.stood.start
    return int(rows.stood.min()) if len(rows) else 0
