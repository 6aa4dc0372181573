"""Where an epoch's operators run.

The epoch loop (pipeline.py) knows when an epoch begins and when it counts. A placement knows how the rows of
a micro-batch get to the operators, and how their answers come back.
"""

from __future__ import annotations

import uuid
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from kasen.operators.base import State
from kasen.plan.physical import Input, Plan
from kasen.runtime.arrays import pack_arrays, unpack_arrays
from kasen.runtime.feed import Rows
from kasen.runtime.outputs import Outputs, within
from kasen.runtime.pipeline import Pipeline
from kasen.runtime.shipment import Shipper
from kasen.spark import frames
from kasen.spark.epochs import Journal, Store
from kasen.spark.intake import Intake

#: What a row in a segment carries besides its columns.
_ROW = ("ts", "diff", "position")


class Placement(Protocol):
    """Called in this order: `table` for each static table, `frame` once, `epoch` often, `end`."""

    def table(self, one: Input, frame: DataFrame, *, again: bool) -> None:
        """A static table's rows; `again` says that an earlier run has buried its bad ones."""
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


class InDriver:
    """Rows come to the driver as Arrow, and its own pipeline answers: one Spark job an epoch, no exchange."""

    def __init__(
        self,
        plan: Plan,
        pipeline: Pipeline,
        outputs: Outputs,
        store: Store | None,
        record: dict[str, Any] | None,
    ) -> None:
        """`record` is the commit record of the last epoch of an earlier run to go on from."""
        record = record or {}
        self._streams = [one for one in plan.app.inputs if not one.is_static]
        self._pipeline = pipeline
        self._outputs = outputs
        self._store = store
        self._intake = Intake(self._streams, pipeline.dictionary, record.get("counts", {}))
        self._shippers = {one.name: Shipper(one.schema, pipeline.dictionary, _ROW) for one in self._streams}
        self._journal = Journal.of(record["journal"]) if "journal" in record else Journal()
        self._segment: dict[str, State] = {}
        if store is not None:
            self._restore(store)

    def _restore(self, store: Store) -> None:
        """The last snapshot, and then again what was read since; the answers have been delivered."""
        if self._journal.snapshot is not None:
            self._pipeline.restore(unpack_arrays(store.files.read(self._journal.snapshot[1])))
        for _, file, _ in self._journal.log:
            for name, pieces in unpack_arrays(store.files.read(file)).items():
                for packed in pieces.values():
                    (ts, diff, position), data = self._shippers[name].unpack([packed.tobytes()])
                    self._pipeline.add(name, within(Rows(ts, diff, data, position)))
            self._pipeline.run()

    def table(self, one: Input, frame: DataFrame, *, again: bool) -> None:
        for chunk, rows in self._intake.of_input(one, frames.numbered(frame).toArrow()):
            self._outputs.take(one.name, rows, [] if again else chunk.dead, chunk, _offset(rows))

    def frame(self, opened: dict[str, DataFrame]) -> DataFrame:
        return frames.union(opened)

    def epoch(self, batch: DataFrame, number: int) -> None:
        del number
        self.take(frames.numbered(batch).toArrow())

    def take(self, table: pa.Table) -> None:
        """A micro-batch's rows, all streams side by side."""
        self._segment = {}
        for one, chunk, rows in self._intake.of_union(table):
            if self._store is not None:
                pieces = self._segment.setdefault(one.name, {})
                packed = self._shippers[one.name].pack((rows.ts, rows.diff, rows.position), rows.data)
                pieces[str(len(pieces))] = np.frombuffer(packed, np.uint8)
            self._outputs.take(one.name, rows, chunk.dead, chunk, _offset(rows))
        self._answer()

    def end(self, *, flush: bool) -> None:
        for one in self._streams:
            self._pipeline.end(one.name)
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
        if self._journal.wants_snapshot(len(packed)):
            state = pack_arrays(self._pipeline.snapshot())
            snapshot = self._store.files.write(f"{name}.snapshot", state)
        self._journal.add(epoch, segment, snapshot)
        return {"journal": self._journal.to_json(), "counts": self._intake.counts}

    def _answer(self) -> None:
        for answer in self._pipeline.answers():
            self._outputs.deliver(answer)


def _offset(rows: Rows) -> int:
    """What to take from a row's position to get its row in its chunk."""
    return int(rows.position[0]) if len(rows) else 0
