"""What a run on Spark is made of: its store, its pipeline and its placement, as the last commit left them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kasen.errors import DataError
from kasen.plan.native.lower import NativePlan, lower
from kasen.plan.physical import Input, Plan
from kasen.plan.shard.fragments import plan_shards
from kasen.runtime.control.requests import RequestHandler, ShardRequestHandler
from kasen.runtime.output.outputs import OnAnswer, Outputs
from kasen.runtime.output.progress import OnProgress
from kasen.runtime.pipeline import RunningPipeline
from kasen.spark.driver import InDriver, replay
from kasen.spark.executors.placement import InExecutors, RemotePipeline
from kasen.spark.options import SparkOptions
from kasen.spark.place import OperatorPlace, reduces_panes
from kasen.spark.placement import OpensFiles, Placement, RunInputs
from kasen.spark.scan import frames
from kasen.spark.scan.file_names import FileNames
from kasen.spark.sinks import SparkSink
from kasen.spark.state.epochs import Store
from kasen.spark.state.spark_notes import SparkNotes
from kasen.spark.state.state_files import Damage, DriverFiles, Files
from kasen.types import Connector


def is_local(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local")


@dataclass(frozen=True, slots=True)
class RunParts:
    """What runs the epochs, in one of the two placements."""

    pipeline: RunningPipeline | RemotePipeline
    outputs: Outputs
    manager: RequestHandler | ShardRequestHandler
    placement: Placement


class Setup:
    """Makes the parts of a run. `given` are the DataFrames of streams, by their names in lower case."""

    def __init__(
        self, plan: Plan, spark: SparkSession, options: SparkOptions, given: Mapping[str, DataFrame]
    ) -> None:
        self._plan = plan
        self._spark = spark
        self._options = options
        self._given = given
        self._streams = [input_ for input_ in plan.app.inputs if not input_.is_static]
        #: One shard for each core that Spark knows of, unless it is told otherwise.
        self._shards = options.shards or max(1, int(spark.sparkContext.defaultParallelism))
        self._in_driver = (options.place is None and is_local(spark)) or options.place is OperatorPlace.driver
        self._panes = reduces_panes(plan.app, is_local=is_local(spark))

    # ------------------------------------------------------------ state

    def open_store(self, temporary: Callable[[], str]) -> Store | None:
        """Where state is durable. Executors need such a place even if no restart is asked for."""
        checkpoint = self._options.checkpoint
        panes = " and native panes" if self._panes else ""
        layout = f"the driver{panes}" if self._in_driver else f"executors with {self._shards} shards"
        if self._options.control is not None:
            layout += " with a control socket"
        if checkpoint is not None:
            return Store(DriverFiles(self._spark, checkpoint), self._plan.fingerprint, layout)
        if self._in_driver:
            return None
        if not is_local(self._spark):
            raise DataError("on the executors of a cluster, give --checkpoint: a folder that all hosts reach")
        return Store(Files(temporary()), self._plan.fingerprint, layout)

    def load(self, store: Store | None, spark_notes: SparkNotes | None) -> dict[str, Any] | None:
        """The record to resume from, if all that belongs to it is as it was written."""
        if store is None:
            return None
        files = store.files

        def find_damage(names: list[str]) -> Damage | None:
            if self._in_driver or not names:
                return files.find_damage(names)
            # On a cluster these are many, and large together.
            parts = self._spark.sparkContext.parallelize([[name] for name in names], self._shards)
            root = files.root
            found = parts.map(lambda names: Files(root).find_damage(names)).collect()
            return next(filter(None, found), None)

        record = store.load(spark_notes, find_damage)
        if record is not None and spark_notes is not None:
            spark_notes.check(store.noted, record["epoch"])
        return record

    # ------------------------------------------------------------ parts

    def open(
        self,
        store: Store | None,
        record: dict[str, Any] | None,
        on_progress: OnProgress,
        on_answer: OnAnswer,
        keep: Callable[[str], None],
    ) -> RunParts:
        """The parts at the record's epoch. `keep` makes a text durable that has changed queries."""
        native = self._native()
        inputs = self._inputs(native)
        pipeline: RunningPipeline | RemotePipeline
        if self._in_driver:
            pipeline = RunningPipeline(native.plan)
            if record is not None:
                assert store is not None
                replay(native.plan, pipeline, store, record)
        else:
            pipeline = RemotePipeline(native.plan, changing=self._options.control is not None)
            if record is not None and "live" in record:
                pipeline.live.restore(record["live"])
        notes = record["notes"] if record is not None else {}
        base, out, time = self._options.base, self._options.out, self._plan.app.time
        outputs = Outputs(native.plan, pipeline, base, out, notes, on_progress, on_answer, self._sink)
        try:
            if isinstance(pipeline, RunningPipeline):
                driver = InDriver(inputs, pipeline, outputs, store, record)
                return RunParts(pipeline, outputs, RequestHandler(pipeline, outputs, time, keep), driver)
            assert store is not None
            executors = InExecutors(inputs, self._spark, self._shards, pipeline, outputs, store, record)
            # What was changed by hand after the last epoch is in no record yet.
            for text in store.changes().get(record["epoch"] if record is not None else -1, ()):
                pipeline.execute(text)
            return RunParts(pipeline, outputs, ShardRequestHandler(pipeline, outputs, time, keep), executors)
        except BaseException:
            outputs.close()
            raise

    def _native(self) -> NativePlan:
        """What Spark does of the app; nothing, if queries may come that read other columns."""
        plan = self._plan if self._in_driver else plan_shards(self._plan.app)
        if self._options.control is not None:
            return NativePlan(plan, {})
        return lower(plan, partials=self._in_driver and self._panes)

    def _inputs(self, native: NativePlan) -> RunInputs:
        every, base = self._plan.app.inputs, self._options.base
        folders = frozenset(input_.name for input_ in every if frames.has_many(input_, base))
        cast = frozenset(input_.name for input_ in self._streams if self._casts(input_))
        opens = self._opens_files(cast)
        return RunInputs(native, self._texts, FileNames(every, base), folders, cast, opens)

    def _casts(self, input_: Input) -> bool:
        """Whether a stream's Parquet files have other types than declared."""
        return input_.connector.format == "parquet" and not frames.has_declared_types(
            self._spark, input_, self._options.base
        )

    def _opens_files(self, cast: frozenset[str]) -> OpensFiles | None:
        """How files of the only stream are opened once more, if it is one of Parquet files."""
        input_ = self._streams[0] if len(self._streams) == 1 else None
        if input_ is None or input_.is_relation or input_.connector.format != "parquet":
            return None
        if input_.name.lower() in self._given or input_.name in cast:
            return None
        return lambda spark, paths: frames.open_files(spark, input_, paths)

    def _sink(self, connector: Connector, base: Path, name: str, resume: int | None) -> SparkSink:
        return SparkSink(self._spark, connector, base, name, resume)

    def _texts(self, input_: Input, file: str, times: tuple[int, int] | None) -> list[str]:
        """The texts of a file's rows, read from it again."""
        declared = self._plan.app.input(input_.name)
        assert declared is not None
        return frames.texts(self._spark, declared, self._options.base, file, times, self._plan.app.time)
