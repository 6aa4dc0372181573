"""A pipeline that a program feeds: rows are admitted, matched while answers have room, and handed out.

The match unit of [WindowJoin], with readers for its output: READY when nothing waits, MATCH while it runs,
WAIT when a reader is too slow. In WAIT nothing is matched and nothing is lost: rows stay in the gate, and
what finds no room there goes by its stream's ON PRESSURE policy. Whoever makes room lets matching go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from kasen.errors import ResourceError
from kasen.plan.changes import CatalogChange
from kasen.plan.physical import Plan
from kasen.runtime.control.requests import explain_running
from kasen.runtime.input.pressure import Gate, Punctuation, PushedRows, ShedLog, read_log
from kasen.runtime.output.outputs import OnAnswer, Outputs
from kasen.runtime.pipeline import PreparedChange, RunningPipeline

INPUT_ROWS = 1 << 19
OUTPUT_ROWS = 8_000_000
#: Runs that may bring less than this are not cut: it would cost more than it saves.
_LOTS = 1 << 19

#: The query whose reader is furthest behind, and how many more changes it can take.
Room = Callable[[], tuple[str, int]]


class Matching(Enum):
    READY = "READY"
    MATCH = "MATCH"
    WAIT = "WAIT"


class PushedRun:
    """Runs in the pushing and reading threads, or after `start` in a thread of its own."""

    def __init__(
        self,
        plan: Plan,
        base: Path,
        on_answer: OnAnswer,
        room: Room,
        is_read_elsewhere: Callable[[str], bool],
        patience: float = 60.0,
        shed_log: Path | None = None,
        replay: Path | None = None,
    ) -> None:
        """A push under BLOCK waits at most `patience` seconds without any progress of the readers."""
        self.pipeline = RunningPipeline(plan)
        self.outputs = Outputs(plan, self.pipeline, base, None, {}, None, on_answer)
        app = plan.app
        self._log = ShedLog(shed_log) if shed_log is not None else None
        self.gate = Gate(
            {input_.name: input_.pressure for input_ in app.inputs},
            int(app.setting("input_rows", str(INPUT_ROWS))),
            int(app.setting("pressure_seed", "1")),
            self._log,
            read_log(replay) if replay is not None else None,
            self.pipeline.dictionary.keep,
        )
        self._flush = app.setting("flush") == "true"
        self._room = room
        self._is_read_elsewhere = is_read_elsewhere
        self._patience = patience
        self._changed = threading.Condition(threading.RLock())
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._stopping = False
        #: Changes that are ready and wait for their turn.
        self._changers: list[PreparedChange] = []
        self._moved = 0
        # How many changes a row brings: measured, for cutting runs so that answers fit; a guess at first.
        self._yield = 64.0
        self._is_behind = False
        self.state = Matching.READY

    # ------------------------------------------------------------ the pushing side

    def push(self, pushed: PushedRows) -> None:
        """Admits rows as their stream's policy says and, without a thread of its own, matches them."""
        with self._changed:
            self._let_changes_in()
            self._check()
            rest = self.gate.admit(pushed)
            if rest is None:
                self._go_on()
                return
            give_up, moved = time.monotonic() + self._patience, self._moved
            while rest is not None:
                self._go_on()
                if self.gate.streams[rest.stream].waiting < self.gate.most:
                    rest = self.gate.admit(rest)
                    continue
                if self._moved != moved:
                    give_up, moved = time.monotonic() + self._patience, self._moved
                if not self._changed.wait(max(0.0, give_up - time.monotonic())):
                    self.gate.give_up(rest)
                    raise self._stuck(f"{len(rest)} rows of {rest.stream} were not admitted")
                self._check()
            self._go_on()

    def advance(self, stream: str, ts: int) -> None:
        with self._changed:
            self._check()
            self.gate.punctuate(stream, ts)
            self._go_on()

    def skip(self, stream: str) -> None:
        with self._changed:
            self.pipeline.skip(stream)
            self._is_behind = True

    def poll(self) -> None:
        """Goes on matching, if there is anything to match and room for it."""
        with self._changed:
            self._check()
            self._go_on()

    def execute(self, text: str, on_change: Callable[[CatalogChange], None]) -> None:
        """Queries come and go, between what has been matched and what waits; `on_change` hears of it.

        Other threads' pushes go on while the text is made ready; then they let the change go first.
        """
        ready = self.pipeline.make_ready(text)
        self._changers.append(ready)
        with self._changed:
            self._changers.remove(ready)
            try:
                self._check()
                for change in self.pipeline.apply(ready):
                    if change not in self.pipeline.pending:
                        self.outputs.follow(change)
                    on_change(change)
            finally:
                self._changed.notify_all()

    def explain(self) -> str:
        """The plan that runs now."""
        with self._changed:
            return explain_running(self.pipeline)

    def _let_changes_in(self) -> None:
        """A lock is not fair: who pushes without a pause would keep everybody else out."""
        while self._changers and self.state is not Matching.MATCH:
            self._changed.wait()

    # ------------------------------------------------------------ matching

    def _go_on(self) -> None:
        if self._thread is None:
            self._match()
        self._changed.notify_all()

    def _match(self, asked_for_all: bool = False) -> None:
        """Matches what has been admitted, as long as every reader has room."""
        if self.state is Matching.MATCH:
            return  # called by a reader from inside: the loop that is running goes on with what came in
        while True:
            if not self._is_behind and not self.gate:
                self.state = Matching.READY
                return
            room = OUTPUT_ROWS if asked_for_all else self._room()[1]
            if room <= 0:
                self.state = Matching.WAIT
                return
            most = max(1, int(room / self._yield))
            if self._is_behind:
                self._run(most)
            elif (item := self.gate.take(most)) is None:
                continue
            elif isinstance(item, Punctuation):
                self.pipeline.advance(item.stream, item.ts)
                self._is_behind = True
            else:
                self.outputs.take(item.stream, item.rows, item.dead, item.chunk, item.offset)
                self._is_behind = True

    def _run(self, most: int) -> None:
        self.state = Matching.MATCH
        self._moved += 1
        try:
            pace = self.pipeline.pace
            most = min(most, pace.most(len(self.pipeline.queries)))
            answer = self.pipeline.run(most if most < _LOTS else None)
            pace.saw(answer.rows, answer.size)
            self._is_behind = answer.is_cut
            if answer.rows:
                # Rises at once, falls slowly: one burst of matches must not be followed by another.
                changes = max(map(len, answer.changes.values()), default=0)
                self._yield = max(changes / answer.rows, self._yield / 2, 1 / 16)
            self.outputs.deliver(answer)
            self.pipeline.forget_texts()
        finally:
            self.state = Matching.READY

    # ------------------------------------------------------------ in the background, and the end

    def start(self) -> None:
        """From now on matching has a thread of its own; pushes only admit."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="kasen-match", daemon=True)
                self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _serve(self) -> None:
        try:
            with self._changed:
                while not self._stopping:
                    self._match()
                    self._changed.notify_all()
                    self._changed.wait(0.05)
        except Exception as error:  # of a sink, or of a reader's own function: the next call tells
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def stop(self) -> None:
        """Ends the thread after what it is running; what was admitted stays."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()
        self._thread, self._stopping = None, False
        self.outputs.committed()

    def drain(self) -> None:
        """Matches everything that was pushed, to the end of the input, and closes the sinks."""
        self.stop()
        self._finish_waiting()
        with self._changed:
            for name in self.gate.streams:
                self.pipeline.end(name)
            self._is_behind = True
        self._finish_waiting()
        if self._flush:
            for answer in self.pipeline.flush():
                self.outputs.deliver(answer)
        self.outputs.close()
        if self._log is not None:
            self._log.close()

    def _finish_waiting(self) -> None:
        """Waits for readers in other threads; a caller who is the only reader has asked for everything."""
        with self._changed:
            give_up, moved = time.monotonic() + self._patience, -1
            while True:
                self._check()
                self._match(asked_for_all=not self._is_read_elsewhere(self._room()[0]))
                self._changed.notify_all()
                if not self.gate and not self._is_behind:
                    return
                if self._moved != moved:
                    give_up, moved = time.monotonic() + self._patience, self._moved
                if not self._changed.wait(max(0.0, give_up - time.monotonic())):
                    raise self._stuck("not everything that was pushed has been matched")

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _stuck(self, what: str) -> ResourceError:
        query, _ = self._room()
        return ResourceError(
            f"{what}: nobody has read {query} for {self._patience:g} s and its answers fill its room; "
            "read it from another thread, give it a foreach_batch, discard() it, or raise SET output_rows"
        )
