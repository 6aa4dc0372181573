"""Runs an app in this process, from its sources to its sinks.

Reading goes round by need: always the input that holds the others back. Every epoch runs the instants
that are complete and writes their answers. A checkpoint is taken between epochs: first the sinks are
flushed to disk, then state, places in the sources and positions in the sinks are written as one file; after a
crash the sinks are cut back to those positions, so no result is lost or repeated.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kasen.connect.registry import open_source
from kasen.errors import DataError
from kasen.plan.physical import Input, Plan
from kasen.runtime.control.requests import RequestHandler
from kasen.runtime.control.socket import Control
from kasen.runtime.durable.checkpoint import Checkpoints, refuse_spark
from kasen.runtime.durable.lock import RunLock
from kasen.runtime.input.arrival import ArrivalClock
from kasen.runtime.input.reader import Reader
from kasen.runtime.output.outputs import OnAnswer, Outputs
from kasen.runtime.output.progress import OnProgress, Progress
from kasen.runtime.pipeline import Answer, RunningPipeline

DEFAULT_BATCH = 1 << 16
_CHECKPOINT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. `out` is the folder of the answers; without it only sinks named by INTO are written."""

    base: Path
    out: Path | None = None
    batch: int = DEFAULT_BATCH
    checkpoint: Path | None = None
    checkpoint_seconds: float = _CHECKPOINT_SECONDS
    flush: bool = False
    control: Path | None = None


class LocalRun:
    """One run of an app, to the end of its input or until `stop` is called."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        on_progress: OnProgress = lambda _: None,
        on_answer: OnAnswer = lambda _: None,
    ) -> None:
        self._plan = plan
        self._options = options
        self._stopping = False
        self.pipeline = RunningPipeline(plan)
        self._arrival = ArrivalClock()
        self._checkpoints = self._open_checkpoints()
        self._lock = RunLock(options.checkpoint) if options.checkpoint is not None else None
        try:
            self._prepare(on_progress, on_answer)
        except BaseException:
            self._unlock()
            raise

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _prepare(self, on_progress: OnProgress, on_answer: OnAnswer) -> None:
        """Everything as the last checkpoint left it."""
        plan, options = self._plan, self._options
        states, notes = (self._checkpoints and self._checkpoints.load()) or (None, {})
        self._resumed = states is not None
        if states is not None:
            self.pipeline.restore(states)
        self._readers = {input_.name: self._reader(input_, notes) for input_ in plan.app.inputs}
        self._control: Control | None = None
        self._told = on_answer
        self.outputs = Outputs(
            plan, self.pipeline, options.base, options.out, notes, on_progress, self._on_answer
        )
        self._manager = RequestHandler(self.pipeline, self.outputs, plan.app.time, self._keep)

    def _open_checkpoints(self) -> Checkpoints | None:
        if self._options.checkpoint is None:
            return None
        for input_ in self._plan.app.inputs:
            if input_.connector.format == "memory" or (input_.timestamp is None and not input_.is_relation):
                why = "is in memory" if input_.connector.format == "memory" else "is on arrival time"
                raise DataError(
                    f"{input_.name} {why}: it cannot be read again after a crash, nor checkpointed"
                )
        refuse_spark(self._options.checkpoint)
        return Checkpoints(self._options.checkpoint, self._plan.fingerprint)

    def _reader(self, input_: Input, notes: dict[str, Any]) -> Reader:
        source = open_source(
            input_.connector,
            self._options.base,
            input_.name,
            input_.schema,
            input_.timestamp,
            input_.is_relation,
            max_text_bytes=input_.max_text_bytes,
        )
        # A static table is not part of the state: it is read again from its start.
        place = None if input_.is_static else notes.get("places", {}).get(input_.name)
        clock = None if input_.is_relation or input_.timestamp is not None else self._arrival
        return Reader(input_.name, source, input_.timestamp, self.pipeline.dictionary, place, clock)

    def stop(self) -> None:
        """Asks for an end after the epoch that is running."""
        self._stopping = True

    def run(self) -> Progress:
        """Runs until the input ends or `stop` is called; always leaves the sinks flushed."""
        saved = time.monotonic()
        self.outputs.progress.had_ended = self._resumed and self.pipeline.ended
        try:
            self._load_tables()
            if self._options.control is not None:
                self._control = Control(self._options.control, self._manager.handle)
            self._run(saved)
        finally:
            if self._control is not None:
                self._control.close()
            self._unlock()
        self.outputs.tell()
        return self.outputs.progress

    @property
    def follows(self) -> bool:
        """Whether it goes on when all that is there has been read."""
        return False

    def _run(self, saved: float) -> None:
        while not self._stopping and not self.pipeline.ended:
            if self._control is not None:
                self._control.serve()
            self._read()
            if self.pipeline.ready() >= self._options.batch and not self.pipeline.ended:
                self._answer()
                if time.monotonic() - saved >= self._options.checkpoint_seconds:
                    self._save()
                    saved = time.monotonic()
        done = not self._stopping  # one who asks later finds it done
        if done:
            self._finish()
        self._save()
        self.outputs.close()
        self.outputs.progress.done = done

    def _on_answer(self, answer: Answer) -> None:
        self._told(answer)
        if self._control is not None:
            self._manager.tell(answer, self._control)

    def _finish(self) -> None:
        """The end of the input: all instants of the last time, then (if asked for) expiring windows."""
        self._answer()
        if self._options.flush or self._plan.app.setting("flush") == "true":
            for answer in self.pipeline.flush():
                self.outputs.deliver(answer)

    def _answer(self) -> None:
        for answer in self.pipeline.answers():
            self.outputs.deliver(answer)
            if answer.is_cut and answer.change is None:  # a change has yet to take effect in steps
                self.pipeline.forget_texts()
        self.pipeline.forget_texts()

    def _load_tables(self) -> None:
        """Static tables hold from the beginning, so they are read before anything else.

        Once the pipeline has begun they are part of its state. An earlier run has buried their bad rows.
        """
        for input_ in self._plan.app.inputs:
            if not input_.is_static:
                continue
            while (piece := self._readers[input_.name].read(None)) is not None:
                if self.pipeline.begun:
                    self.pipeline.add(input_.name, piece.rows)  # for queries that come later
                    continue
                dead = [] if self._resumed else piece.dead
                self.outputs.take(input_.name, piece.rows, dead, piece.chunk, piece.offset)

    def _read(self) -> None:
        name = self.pipeline.slowest
        assert name is not None
        piece = self._readers[name].read(self._options.batch)
        if piece is None:
            self.pipeline.end(name)
        else:
            self.outputs.take(name, piece.rows, piece.dead, piece.chunk, piece.offset)

    def _keep(self, _: str) -> None:
        """Queries were changed by hand. No input tells of that, so both restore points must."""
        self._save()
        self._save()

    def _save(self) -> None:
        if self._checkpoints is None:
            return
        notes = self.outputs.committed()
        notes["places"] = {name: reader.place for name, reader in self._readers.items()}
        self._checkpoints.save(self.pipeline.snapshot(), notes)
