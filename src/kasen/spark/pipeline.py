"""The epoch loop on Spark: one streaming query, whose micro-batches are the pipeline's epochs.

Spark finds and scans the files, parses and types their rows, and remembers which it has delivered. What
happens with a micro-batch's rows is the placement's business. When its results are written, its state is
made durable, and then the epoch is committed: a repeated micro-batch is known by its number and
skipped, one that was cut off is undone and done again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock
from typing import Any, NoReturn

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kasen import stops
from kasen.connect.files import is_address
from kasen.errors import DataError, InternalError, KasenError
from kasen.plan.native.lower import NativePlan, lower
from kasen.plan.physical import Input, Plan
from kasen.plan.shard.fragments import plan_shards
from kasen.runtime.control.requests import RequestHandler, ShardRequestHandler
from kasen.runtime.control.socket import Control
from kasen.runtime.durable.checkpoint import refuse_local
from kasen.runtime.durable.lock import RunLock
from kasen.runtime.output.outputs import OnAnswer, OnProgress, Outputs, Progress
from kasen.runtime.pipeline import Answer, RunningPipeline
from kasen.spark.executors.placement import InExecutors, RemotePipeline
from kasen.spark.place import OperatorPlace
from kasen.spark.placement import InDriver, OpensFiles, Placement, replay
from kasen.spark.scan import frames
from kasen.spark.scan.admission import StreamThrottle
from kasen.spark.scan.file_names import FileNames
from kasen.spark.scan.sources import adopt, follows, need_rereadable
from kasen.spark.session import need_utc, session
from kasen.spark.sinks import SparkSink
from kasen.spark.state.epochs import Store, bytes_held
from kasen.spark.state.spark_notes import SparkNotes
from kasen.spark.state.state_files import Damage, DriverFiles, Files, below
from kasen.types import Connector

#: How often, in seconds, requests of `kasen ctl` are looked for between epochs.
_ASKED_EVERY = 0.1
#: How many queries a job's description names.
_NAMED = 8
#: How long, in seconds, Spark may take to stop a streaming query.
_LONGEST_STOP = 60
#: What Spark takes for an interrupt (StreamExecution.PROXY_ERROR). Its pattern recurs for each character that
#: follows, so nothing long may.
_INTERRUPT = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling stop: java.lang.InterruptedException"
)


def is_local(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local")


def reduces_panes(plan: Plan, spark: SparkSession) -> bool:
    """Whether Spark reduces rows to panes before they cross to the driver.

    Their times cross anyway, in a job of their own: on one machine whole rows cross in less time.
    """
    return {"on": True, "off": False}.get(plan.app.setting("native_panes"), not is_local(spark))


def default_place(spark: SparkSession) -> OperatorPlace:
    return OperatorPlace.driver if is_local(spark) else OperatorPlace.executors


def default_shards(spark: SparkSession) -> int:
    """One for each core that Spark knows of."""
    return max(1, int(spark.sparkContext.defaultParallelism))


class SparkRun:
    """One run of an app on Spark, to the end of the files that are there now."""

    def __init__(
        self,
        plan: Plan,
        base: Path,
        out: Path | None = None,
        master: str | None = None,
        checkpoint: str | Path | None = None,
        files_per_epoch: int | None = None,
        flush: bool = False,
        on_progress: OnProgress = lambda _: None,
        on_answer: OnAnswer = lambda _: None,
        place: OperatorPlace | None = None,
        shards: int | None = None,
        given: Mapping[str, DataFrame] | None = None,
        follow: bool | None = None,
        control: Path | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        """`place` and `shards` say where operators run and on how many shards; if None, the master does.

        `given` are streaming DataFrames for streams by name. `follow` says whether to go on when all that is
        there has been read; if None, a run does so for streams that are told to, or are never finished.
        At the socket `control` the run listens for changes of its queries. As the next may read any column,
        all of them come to the operators then, and Spark computes nothing for those that are there.
        `checkpoint` is a folder, or an address on a file system that all hosts reach; `conf` is for Spark.
        """
        self._plan = plan
        self._base = base
        self._flush = flush or plan.app.setting("flush") == "true"
        self._checkpoint = checkpoint
        self._files_per_epoch = files_per_epoch
        self._stopping = False
        self._given = {name.lower(): frame for name, frame in (given or {}).items()}
        streams = [input_ for input_ in plan.app.inputs if not input_.is_static]
        self._follow = any(map(follows, streams)) if follow is None else follow
        #: Streams that are too far ahead are slowed, by a streaming query that is begun again.
        self.admission = StreamThrottle(plan.app)
        self._beginning_again = False
        self._error: Exception | None = None
        self._query: StreamingQuery | None = None
        self._started = Event()
        #: A micro-batch has come that is not to run.
        self._parked = Event()
        self._temporary: TemporaryDirectory[str] | None = None
        self._control_path = control
        self._control: Control | None = None
        self._manager: RequestHandler | ShardRequestHandler | None = None
        self._told = on_answer
        # Held by an epoch, and by who looks at the queries between two of them.
        self._between = Lock()
        is_here = checkpoint is not None and not is_address(checkpoint)
        if is_here:
            refuse_local(Path(str(checkpoint)))
        self.spark: SparkSession = session(master, conf or {})
        need_utc(self.spark)
        place = place or default_place(self.spark)
        self._panes = reduces_panes(plan, self.spark)
        self._lock = RunLock(Path(str(checkpoint))) if is_here else None
        self._spark_notes = SparkNotes(Path(self._offsets())) if is_here else None
        try:
            self._prepare(place, shards or default_shards(self.spark), out, on_progress)
        except BaseException:
            if hasattr(self, "outputs"):
                self.outputs.close()
            self._unlock()
            raise

    def _prepare(self, place: OperatorPlace, shards: int, out: Path | None, on_progress: OnProgress) -> None:
        """Everything as the last commit left it."""
        plan, base, control = self._plan, self._base, self._control_path
        streams = [input_ for input_ in plan.app.inputs if not input_.is_static]
        self._store = self._open_store(place, shards)
        record = self._load(place, shards)
        self._resumed = record is not None
        self._last_epoch: int = record["epoch"] if record is not None else -1
        notes = record["notes"] if record is not None else {}
        self.pipeline: RunningPipeline | RemotePipeline
        self._placement: Placement
        files = FileNames(plan.app.inputs, base)
        folders = frozenset(input_.name for input_ in plan.app.inputs if frames.has_many(input_, base))
        cast = frozenset(input_.name for input_ in streams if self._casts(input_))
        if place is OperatorPlace.driver:
            native = lower(plan, partials=self._panes) if control is None else NativePlan(plan, {})
            self.pipeline = RunningPipeline(native.plan)
            if record is not None:
                assert self._store is not None
                replay(native, self.pipeline, self._store, record)
            self.outputs = Outputs(
                native.plan, self.pipeline, base, out, notes, on_progress, self._on_answer, self._sink
            )
            self._manager = RequestHandler(self.pipeline, self.outputs, plan.app.time, self._keep)
            self._placement = InDriver(
                native,
                self.pipeline,
                self.outputs,
                self._store,
                record,
                self._texts,
                files,
                folders,
                self._opens_files(streams, cast),
                cast,
            )
        else:
            assert self._store is not None
            whole = plan_shards(plan.app)
            native = lower(whole, partials=False) if control is None else NativePlan(whole, {})
            self.pipeline = remote = RemotePipeline(native.plan, changing=control is not None)
            if record is not None and "live" in record:
                remote.live.restore(record["live"])
            self.outputs = Outputs(
                native.plan, self.pipeline, base, out, notes, on_progress, self._on_answer, self._sink
            )
            self._manager = ShardRequestHandler(remote, self.outputs, plan.app.time, self._keep)
            self._placement = InExecutors(
                native,
                self.spark,
                shards,
                remote,
                self.outputs,
                self._store,
                record,
                self._texts,
                files,
                folders,
                cast,
            )
            # What was changed by hand after the last epoch is in no record yet.
            for text in self._store.changes().get(self._last_epoch, ()):
                remote.execute(text)

    def _open_store(self, place: OperatorPlace, shards: int) -> Store | None:
        """Where state is durable. Executors need such a place even if no restart is asked for."""
        panes = " and native panes" if self._panes else ""
        layout = f"the driver{panes}" if place is OperatorPlace.driver else f"executors with {shards} shards"
        if self._control_path is not None:
            layout += " with a control socket"
        if self._checkpoint is not None:
            return Store(DriverFiles(self.spark, self._checkpoint), self._plan.fingerprint, layout)
        if place is OperatorPlace.driver:
            return None
        if not is_local(self.spark):
            raise DataError("on the executors of a cluster, give --checkpoint: a folder that all hosts reach")
        return Store(Files(self._temporary_folder()), self._plan.fingerprint, layout)

    def _load(self, place: OperatorPlace, shards: int) -> dict[str, Any] | None:
        """The record to resume from, if all that belongs to it is as it was written."""
        if self._store is None:
            return None
        files = self._store.files

        def find_damage(names: list[str]) -> Damage | None:
            if place is OperatorPlace.driver or not names:
                return files.find_damage(names)
            # On a cluster these are many, and large together.
            parts = self.spark.sparkContext.parallelize([[name] for name in names], shards)
            root = files.root
            found = parts.map(lambda names: Files(root).find_damage(names)).collect()
            return next(filter(None, found), None)

        record = self._store.load(self._spark_notes, find_damage)
        if record is not None and self._spark_notes is not None:
            self._spark_notes.check(self._store.noted, record["epoch"])
        return record

    def stop(self) -> None:
        """Asks for an end after the epoch that is running."""
        self._stopping = True

    @property
    def follows(self) -> bool:
        """Whether it goes on when all that is there has been read."""
        return self._follow

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def run(self) -> Progress:
        """Runs until all files are read or `stop` is called."""
        try:
            return self._run()
        except BaseException:
            with suppress(KasenError, OSError):
                self.outputs.close()
            raise
        finally:
            self._unlock()

    def _run(self) -> Progress:
        for input_ in self._plan.app.inputs:
            # Once an epoch is committed, static tables are part of the state.
            if input_.is_static and not self._resumed:
                self._placement.table(input_, frames.open_frame(self.spark, input_, self._base, None))
        streams = [input_ for input_ in self._plan.app.inputs if not input_.is_static]
        if self._control_path is not None:
            assert self._manager is not None
            self._control = Control(self._control_path, self._manager.handle)
        try:
            if streams:
                self._run_query(self._start(streams))
                while self._beginning_again and not self._stopping:
                    self._beginning_again = False
                    self._run_query(self._start(streams))
        finally:
            if self._control is not None:
                self._control.close()
        done = not self._stopping  # one who asks later finds it done
        if done:
            self._placement.end(flush=self._flush)
        self.outputs.close()
        self.outputs.progress.done = done
        self.outputs.tell()
        return self.outputs.progress

    def _open(self, one: Input) -> DataFrame:
        given = self._given.get(one.name.lower())
        if given is not None:
            frame = adopt(one, given)
        else:
            read = self.admission.as_read(one)
            frame = frames.open_frame(self.spark, read, self._base, self._files_per_epoch)
        if self._checkpoint is not None:
            need_rereadable(one, frame)
        return frame

    def _casts(self, one: Input) -> bool:
        """Whether a stream's Parquet files have other types than declared."""
        return one.connector.format == "parquet" and not frames.has_declared_types(
            self.spark, one, self._base
        )

    def _opens_files(self, streams: list[Input], cast: frozenset[str]) -> OpensFiles | None:
        """How files of the only stream are opened once more, if it is one of Parquet files."""
        one = streams[0] if len(streams) == 1 else None
        if one is None or one.is_relation or one.connector.format != "parquet":
            return None
        if one.name.lower() in self._given or one.name in cast:
            return None
        return lambda spark, paths: frames.open_files(spark, one, paths)

    def _sink(self, connector: Connector, base: Path, name: str, resume: int | None) -> SparkSink:
        return SparkSink(self.spark, connector, base, name, resume)

    def _texts(self, one: Input, file: str, times: tuple[int, int] | None) -> list[str]:
        """The texts of a file's rows, read from it again."""
        declared = self._plan.app.input(one.name)
        assert declared is not None
        return frames.texts(self.spark, declared, self._base, file, times, self._plan.app.time)

    def _start(self, streams: list[Input]) -> StreamingQuery:
        joined = self._placement.frame({input_.name: self._open(input_) for input_ in streams})
        writer = joined.writeStream.queryName("kasen").foreachBatch(self._epoch)
        # Without a trigger, an epoch begins as soon as the one before has ended and there is something.
        writer = writer if self._follow else writer.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", self._offsets())
        # Its first micro-batch may come before it is known here.
        self._started.clear()
        self._parked.clear()
        query = writer.start()
        self._query = query
        self._started.set()
        return query

    @property
    def _pauses(self) -> bool:
        """Whether no further epoch is to run in the streaming query that is there."""
        return self._stopping or self._beginning_again

    def _offsets(self) -> str:
        """Where Spark notes what it has read: without a checkpoint, for as long as this run lasts."""
        if self._checkpoint is not None:
            return below(self._checkpoint, "spark")
        return (Path(self._temporary_folder()) / "spark").resolve().as_uri()

    def _temporary_folder(self) -> str:
        if self._temporary is None:
            self._temporary = TemporaryDirectory(prefix="kasen-")
            stops.at_end(self._temporary.cleanup)
        return self._temporary.name

    def _run_query(self, query: StreamingQuery) -> None:
        try:
            while query.isActive:
                if self._control is None:
                    query.awaitTermination(1)
                else:
                    query.awaitTermination(_ASKED_EVERY)  # type: ignore[arg-type]
                    with self._between:
                        self._control.serve()
                # An epoch that is running ends first; the next one, or one that has failed, waits for this.
                if self._parked.is_set() or (self._pauses and not query.status["isTriggerActive"]):
                    query.stop()
            if self._error is not None:
                raise self._error
        except Exception as error:
            if self._pauses and self._error is None:
                return
            if isinstance(self._error, PySparkException | Py4JError):
                raise InternalError(f"Spark failed in an epoch: {self._error}") from self._error
            if self._error is not None:
                raise self._error from None  # as it was: also one of a user's own function
            raise InternalError(f"Spark's streaming query failed: {error}") from error

    def _keep(self, text: str) -> None:
        """Queries were changed by `kasen ctl`, after the last epoch."""
        if self._store is not None:
            self._store.note_change(self._last_epoch, text)

    def _on_answer(self, answer: Answer) -> None:
        self._told(answer)
        if self._control is not None:
            assert self._manager is not None
            self._manager.tell(answer, self._control)

    def _epoch(self, batch: DataFrame, epoch: int) -> None:
        """One micro-batch. A repeated one has been answered already."""
        done = False
        if not self._pauses:
            with self._between, suppress(KasenError):
                self._run_epoch(batch, epoch)
                done = True
        if not done:
            self._park()

    def _park(self) -> NoReturn:
        """Waits until the streaming query is stopped, and then fails as what a stop interrupts does.

        A micro-batch that did not run must not pass as done, or its rows would be lost. Spark logs every
        failure as an error, with its stack, unless the query is stopped and the text names an interrupt as
        py4j does.
        """
        self._started.wait()
        assert self._query is not None
        self._parked.set()
        deadline = time.monotonic() + _LONGEST_STOP
        while self._query.isActive and time.monotonic() < deadline:
            time.sleep(_ASKED_EVERY)
        raise InternalError(f"stopped between epochs ({_INTERRUPT})")

    def _run_epoch(self, batch: DataFrame, epoch: int) -> None:
        if epoch <= self._last_epoch:
            return
        if epoch != self._last_epoch + 1:
            self._error = DataError(
                f"Spark goes on at epoch {epoch}, but the last one that was committed is {self._last_epoch}:"
                " commit records were removed, or are of another run; remove the checkpoint to start anew"
            )
            raise self._error
        begun = time.monotonic()
        live = [*self.pipeline.queries]
        names = ", ".join(live[:_NAMED]) + (", ..." if len(live) > _NAMED else "")
        kind = "query" if len(live) == 1 else "queries"
        self.spark.sparkContext.setJobDescription(f"kasen: epoch {epoch}, {kind} {names}")
        try:
            self._check_query(epoch)
            # Stages of a few tasks each: planning them anew between stages costs more than it saves.
            batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
            # What is kept between an epoch's jobs is read once more, at once.
            batch.sparkSession.conf.set("spark.sql.inMemoryColumnarStorage.compressed", "false")
            self._placement.epoch(batch, epoch)
            slows = self.admission.check(self.pipeline.waiting_by_input)
            self._commit(epoch)
            self._beginning_again = slows
            self.outputs.progress.slowed = tuple(self.admission.slowed)
            self.outputs.progress.epoch_seconds = time.monotonic() - begun
            self.outputs.tell()
        except Exception as error:
            self._error = error
            raise

    def _check_query(self, epoch: int) -> None:
        """State belongs to one streaming query, whose epochs Spark numbers."""
        if self._store is not None and self._checkpoint is not None:
            self._started.wait()
            assert self._query is not None
            self._store.check_query(str(self._query.id), epoch)

    def _commit(self, epoch: int) -> None:
        """Results first, then state, then the record that makes both count."""
        self._last_epoch = epoch
        if self._store is not None:
            notes = self.outputs.committed()
            record = self._placement.save(epoch)
            # What Spark has noted of the epoch must outlast a power cut if the commit does.
            noted = self._spark_notes.sync() if self._spark_notes is not None else {}
            self.outputs.progress.state_bytes = bytes_held(record)
            self._store.commit({**record, "epoch": epoch, "notes": notes, "noted": noted})
