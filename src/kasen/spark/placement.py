"""Where an epoch's operators run.

The epoch loop (pipeline.py) knows when an epoch begins and when it counts. A placement knows how the rows of
a micro-batch get to the operators, and how their answers come back: in the driver (driver.py), or on
executors (executors.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from kasen.connect.chunk import Chunk
from kasen.engine.operator import State
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.native.lower import NativePlan
from kasen.plan.physical import Input
from kasen.runtime.input.feed import InputRows
from kasen.runtime.output.outputs import Outputs
from kasen.spark.row_log import RowLog
from kasen.spark.scan import scan
from kasen.spark.scan.arrivals import Arrivals, Texts, sources_of, whole
from kasen.spark.scan.file_names import FileNames
from kasen.spark.scan.timing import Timing
from kasen.spark.state.epochs import Store

#: The frame of an only stream's files, by their paths.
OpensFiles = Callable[[SparkSession, tuple[str, ...]], DataFrame]


@dataclass(frozen=True, slots=True)
class RunInputs:
    """How the inputs of a run are read, wherever its operators run.

    `native` is what Spark does of the app; its plan is the rest, which the operators do. `texts` reads rows
    again from their `files`. `folders` are the inputs that are several files. The cells of streams in `cast`
    are of other types in their Parquet files than declared. With `opens`, large epochs of the only stream
    may be scanned anew (whole_files.py).
    """

    native: NativePlan
    texts: Texts
    files: FileNames
    folders: frozenset[str] = frozenset()
    cast: frozenset[str] = frozenset()
    opens: OpensFiles | None = None


class Frontiers(Protocol):
    """What knows how far each input has got: the driver's pipeline, or the clock of shards."""

    dictionary: Dictionary

    def advance(self, name: str, ts: int) -> None: ...

    def skip(self, name: str) -> int | None: ...


class Placement(ABC):
    """Called in this order: `table` for each static table, `frame` once, `epoch` often, `end`."""

    def __init__(
        self,
        inputs: RunInputs,
        frontiers: Frontiers,
        outputs: Outputs,
        store: Store | None,
        record: dict[str, Any] | None,
    ) -> None:
        """`record` is the commit record of the last epoch of an earlier run, to go on from."""
        native = inputs.native
        self._frontiers = frontiers
        self._outputs = outputs
        self._streams = [input_ for input_ in native.plan.app.inputs if not input_.is_static]
        self._scans = {input_.name: native.scan(input_) for input_ in self._streams}
        types = {input_.name: native.types(input_) for input_ in self._streams}
        self._slots = scan.slots_of(self._streams, self._scans, types, inputs.cast)
        self._sources = sources_of(self._streams, self._slots)
        counts = (record or {}).get("counts", {})
        self._arrivals = Arrivals(frontiers.dictionary, counts, inputs.texts, inputs.files, inputs.folders)
        self._timing = Timing(self._streams, store.files if store is not None else None)
        self._row_log = RowLog(native.plan.app.inputs, frontiers.dictionary)
        #: What the epoch has read.
        self._segment: dict[str, State] = {}
        # Static tables are part of the first epoch's segment: a replay must begin with them.
        self._tables: dict[str, State] = {}

    def table(self, input_: Input, frame: DataFrame) -> None:
        """A static table's rows, before the first epoch."""
        for chunk, rows, _ in self._arrivals.read(whole(input_), frame.toArrow()):
            self._take_rows(self._tables, input_, chunk, rows)

    def frame(self, opened: dict[str, DataFrame]) -> DataFrame:
        """Of the streams' own frames (frames.open_frame), the one whose micro-batches `epoch` gets."""
        return scan.union(opened, self._streams, self._scans, self._slots)

    @abstractmethod
    def epoch(self, batch: DataFrame, number: int) -> None:
        """Takes a micro-batch's rows and delivers the answers of every instant that is complete."""

    @abstractmethod
    def end(self, *, flush: bool) -> None:
        """No more rows come: delivers what is left."""

    @abstractmethod
    def save(self, epoch: int) -> dict[str, Any]:
        """Makes the epoch's state durable; what the commit record must hold, the files' names among it."""

    @abstractmethod
    def _log(self, segment: dict[str, State], input_: Input, rows: InputRows) -> None:
        """Rows as they were read, for a replay."""

    @abstractmethod
    def _note_advance(self, name: str, ts: int) -> None:
        """How far an input's time went without rows, for a replay."""

    def _take_rows(
        self, segment: dict[str, State], input_: Input, chunk: Chunk, rows: InputRows
    ) -> list[int]:
        """Whole rows: into the segment, and to the operators; the chunk's rows that were refused."""
        self._log(segment, input_, rows)
        return self._outputs.take(input_.name, rows, chunk.dead, chunk, _offset(rows))

    def _advance(self) -> None:
        """Time goes on where it does so without rows, and where nobody waits for them any longer."""
        for name in self._timing.stamped:
            # Whatever comes next comes later, so these rows need not wait for it.
            after = self._arrivals.stamp + 1
            self._frontiers.advance(name, after)
            self._note_advance(name, after)
        for name in self._timing.silent():
            ts = self._frontiers.skip(name)
            if ts is not None:
                self._note_advance(name, ts)


def _offset(rows: InputRows) -> int:
    """What to take from a row's position to get its row in its chunk."""
    if isinstance(rows.stood, range):
        return rows.stood.start
    return int(rows.stood.min()) if len(rows) else 0
