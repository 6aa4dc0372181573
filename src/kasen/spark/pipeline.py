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
from typing import NoReturn

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kasen import stops
from kasen.errors import DataError, InternalError, KasenError
from kasen.plan.physical import Input, Plan
from kasen.runtime.control.socket import Control
from kasen.runtime.durable.checkpoint import refuse_local
from kasen.runtime.durable.lock import RunLock
from kasen.runtime.output.outputs import OnAnswer
from kasen.runtime.output.progress import OnProgress, Progress
from kasen.runtime.pipeline import Answer
from kasen.spark.options import SparkOptions
from kasen.spark.scan import frames
from kasen.spark.scan.admission import StreamThrottle
from kasen.spark.scan.sources import adopt, follows, need_rereadable
from kasen.spark.session import need_utc, session
from kasen.spark.setup import Setup
from kasen.spark.state.epochs import bytes_held
from kasen.spark.state.spark_notes import SparkNotes
from kasen.spark.state.state_files import below

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


class SparkRun:
    """One run of an app on Spark, to the end of the files that are there now."""

    def __init__(
        self,
        plan: Plan,
        options: SparkOptions,
        on_progress: OnProgress = lambda _: None,
        on_answer: OnAnswer = lambda _: None,
        given: Mapping[str, DataFrame] | None = None,
    ) -> None:
        """`given` are streaming DataFrames for streams by name."""
        self._plan = plan
        self._options = options
        self._stopping = False
        self._given = {name.lower(): frame for name, frame in (given or {}).items()}
        self._streams = [input_ for input_ in plan.app.inputs if not input_.is_static]
        #: Whether it goes on when all that is there has been read.
        self.follows = any(map(follows, self._streams)) if options.follow is None else options.follow
        #: Streams that are too far ahead are slowed, by a streaming query that is begun again.
        self.admission = StreamThrottle(plan.app)
        self._beginning_again = False
        self._error: Exception | None = None
        self._query: StreamingQuery | None = None
        self._started = Event()
        #: A micro-batch has come that is not to run.
        self._parked = Event()
        self._temporary: TemporaryDirectory[str] | None = None
        self._control: Control | None = None
        self._told = on_answer
        # Held by an epoch, and by who looks at the queries between two of them.
        self._between = Lock()
        folder = options.local_checkpoint
        if folder is not None:
            refuse_local(folder)
        self.spark: SparkSession = session(options.master, options.conf)
        need_utc(self.spark)
        self._lock = RunLock(folder) if folder is not None else None
        self._spark_notes = SparkNotes(Path(self._offsets())) if folder is not None else None
        try:
            self._prepare(on_progress)
        except BaseException:
            self._unlock()
            raise

    def _prepare(self, on_progress: OnProgress) -> None:
        """Everything as the last commit left it."""
        setup = Setup(self._plan, self.spark, self._options, self._given)
        self._store = setup.open_store(self._temporary_folder)
        record = setup.load(self._store, self._spark_notes)
        self._resumed = record is not None
        self._last_epoch: int = record["epoch"] if record is not None else -1
        parts = setup.open(self._store, record, on_progress, self._on_answer, self._keep)
        self.pipeline, self.outputs = parts.pipeline, parts.outputs
        self._manager, self._placement = parts.manager, parts.placement

    def stop(self) -> None:
        """Asks for an end after the epoch that is running."""
        self._stopping = True

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
                self._placement.table(input_, frames.open_frame(self.spark, input_, self._options.base, None))
        if self._options.control is not None:
            self._control = Control(self._options.control, self._manager.handle)
        try:
            if self._streams:
                self._run_query(self._start())
                while self._beginning_again and not self._stopping:
                    self._beginning_again = False
                    self._run_query(self._start())
        finally:
            if self._control is not None:
                self._control.close()
        done = not self._stopping  # one who asks later finds it done
        if done:
            self._placement.end(flush=self._options.flush or self._plan.app.setting("flush") == "true")
        self.outputs.close()
        self.outputs.progress.done = done
        self.outputs.tell()
        return self.outputs.progress

    def _open(self, input_: Input) -> DataFrame:
        given = self._given.get(input_.name.lower())
        if given is not None:
            frame = adopt(input_, given)
        else:
            read = self.admission.as_read(input_)
            frame = frames.open_frame(self.spark, read, self._options.base, self._options.files_per_epoch)
        if self._options.checkpoint is not None:
            need_rereadable(input_, frame)
        return frame

    def _start(self) -> StreamingQuery:
        joined = self._placement.frame({input_.name: self._open(input_) for input_ in self._streams})
        writer = joined.writeStream.queryName("kasen").foreachBatch(self._epoch)
        # Without a trigger, an epoch begins as soon as the one before has ended and there is something.
        writer = writer if self.follows else writer.trigger(availableNow=True)
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
        if self._options.checkpoint is not None:
            return below(self._options.checkpoint, "spark")
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
        if self._store is not None and self._options.checkpoint is not None:
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
