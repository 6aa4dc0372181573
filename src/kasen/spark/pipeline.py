"""The epoch loop on Spark: one streaming query, whose micro-batches are the pipeline's epochs.

Spark finds and scans the files, parses and types their rows, and remembers which it has delivered. In
each micro-batch the rows come to the driver as Arrow, where the same pipeline as in a local run orders
them and answers. With a checkpoint, results come first, then state and the epoch's number in one file: a
repeated micro-batch is known by its number and skipped, one that was cut off is undone and done again.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kasen.errors import InternalError, KasenError
from kasen.plan.physical import Input, Plan
from kasen.runtime.checkpoint import Checkpoints
from kasen.runtime.outputs import OnAnswer, OnProgress, Outputs, Progress
from kasen.runtime.pipeline import Pipeline
from kasen.spark import frames
from kasen.spark.intake import Intake
from kasen.spark.placement import InDriver, Placement
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
        self._flush = flush or plan.app.setting("flush") == "true"
        self._checkpoint = checkpoint
        self._files_per_epoch = files_per_epoch
        self._stopping = False
        self._error: KasenError | None = None
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
        self.outputs = Outputs(plan, self.pipeline, base, out, notes, on_progress, on_answer)
        streams = [one for one in plan.app.inputs if not one.is_static]
        self._intake = Intake(streams, self.pipeline.dictionary, notes.get("counts", {}))
        self._placement: Placement = InDriver(plan, self.pipeline, self.outputs, self._intake)
        self.spark: SparkSession = session(master)

    def stop(self) -> None:
        """Asks for an end after the epoch that is running."""
        self._stopping = True

    def run(self) -> Progress:
        """Runs until all files are read or `stop` is called."""
        for one in self._plan.app.inputs:
            if one.is_static and not self.pipeline.begun:
                frame = frames.open_frame(self.spark, one, self._base, None)
                self._placement.table(one, frame, again=self._resumed)
        streams = [one for one in self._plan.app.inputs if not one.is_static]
        if streams:
            self._run_query(self._start(streams))
        if not self._stopping:
            self._placement.end(flush=self._flush)
        self.outputs.close()
        self.outputs.progress.done = not self._stopping
        self.outputs.tell()
        return self.outputs.progress

    def _start(self, streams: list[Input]) -> StreamingQuery:
        opened = {
            one.name: frames.open_frame(self.spark, one, self._base, self._files_per_epoch) for one in streams
        }
        joined = self._placement.frame(opened)
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
            self._placement.epoch(batch, epoch)
            self._commit(epoch)
        except KasenError as error:
            self._error = error
            raise

    def _commit(self, epoch: int) -> None:
        self._last_epoch = epoch
        if self._checkpoints is not None:
            notes = self.outputs.committed()
            notes["epoch"] = epoch
            notes["counts"] = self._intake.counts
            self._checkpoints.save(self.pipeline.snapshot(), notes)
