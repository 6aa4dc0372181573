"""Where answers and refused rows go, and how far they have got. Shared by all ways of running an app."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from kasen.connect.chunk import Chunk, DeadLetter
from kasen.connect.dead_letter import FILE_NAME as DEAD_LETTER
from kasen.connect.dead_letter import DeadLetterFile
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.changes import CatalogChange, RegisteredQuery
from kasen.plan.physical import Plan
from kasen.runtime.input.feed import InputRows
from kasen.runtime.output.progress import OnProgress, Progress
from kasen.runtime.output.sinks import OpenForeign, Sinks, check_unchanged
from kasen.runtime.pipeline import Answer
from kasen.runtime.time_range import BEYOND, are_within, is_beyond, within


class RowReceiver(Protocol):
    """What rows are handed to: a pipeline, or what stands for one that runs elsewhere."""

    dictionary: Dictionary

    def add(self, name: str, rows: InputRows) -> InputRows: ...

    def check_changes(self, check: Callable[[CatalogChange], None]) -> None:
        """Whoever writes answers may refuse a change of the queries."""
        ...

    @property
    def queries(self) -> Mapping[str, RegisteredQuery]: ...

    @property
    def pending(self) -> list[CatalogChange]:
        """The changes of queries that have not taken effect."""
        ...

    @property
    def frontier(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def lag(self) -> int: ...


OnAnswer = Callable[[Answer], None]


class Outputs:
    """The sinks of an app's queries, its dead letter, and the counts of both.

    `notes` are those of an earlier run to go on from: sinks are cut back to where they were then.
    """

    def __init__(
        self,
        plan: Plan,
        pipeline: RowReceiver,
        base: Path,
        out: Path | None,
        notes: dict[str, Any],
        on_progress: OnProgress | None,
        on_answer: OnAnswer,
        foreign: OpenForeign | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._relations = {input_.name for input_ in plan.app.inputs if input_.is_relation}
        self._on_progress = on_progress
        self._on_answer = on_answer
        self._started = time.monotonic()
        queries = pipeline.queries.values()
        self.progress = Progress(results={query.name: 0 for query in queries})
        self.progress.rows = notes.get("rows", 0)
        self.progress.dead = notes.get("refused", 0)
        #: How many answers were delivered, by earlier runs too.
        self.answers: int = notes.get("answers", 0)
        self.progress.results |= notes.get("results", {})
        self._sinks = Sinks(plan, queries, base, out, notes, foreign)
        self._file: DeadLetterFile | None = None
        if out is not None:
            try:
                self._file = DeadLetterFile(out, notes.get("dead"))
                check_unchanged(out / DEAD_LETTER, self._file.checksum(), notes.get("dead_checksum"))
            except BaseException:
                self.close()
                raise
        pipeline.check_changes(self._sinks.check)
        for change in pipeline.pending:
            self._sinks.check(change)
        self.dead_letters: list[DeadLetter] = []
        # Whether a deletion finds its row is only known later; its dead letter must be at hand then.
        self._deletions: dict[str, dict[int, DeadLetter]] = {
            name: {int(position): DeadLetter(*letter) for position, letter in letters.items()}
            for name, letters in notes.get("deletions", {}).items()
        }

    def follow(self, change: CatalogChange) -> None:
        """After a change: the sinks of queries that came and went."""
        self._sinks.follow(change)

    # ------------------------------------------------------------ rows

    def take(
        self, name: str, rows: InputRows, dead: list[DeadLetter], chunk: Chunk, offset: int
    ) -> list[int]:
        """Hands rows of a chunk to the pipeline; what is refused, to the dead letter.

        A row's position minus `offset` is its row in the chunk. Returns the chunk's rows that were refused.
        """
        if dead:
            self.bury(dead)
        self.progress.rows += len(rows)
        refused: list[int] = []
        if not are_within(rows):
            beyond = is_beyond(rows.ts)
            refused = (rows.position[beyond] - offset).tolist()
            chunk.expect(refused)
            for row in refused:
                self.bury([chunk.refuse(row, BEYOND)])
            rows = within(rows)
        late = self._pipeline.add(name, rows)
        if len(late):
            too_late = (late.position - offset).tolist()
            chunk.expect(too_late)
            for row, ts in zip(too_late, late.ts.tolist(), strict=True):
                self.bury([chunk.refuse(row, f"late: {ts} is below what SLACK allows")])
            refused += too_late
        if name not in self._relations:
            return refused
        for position in rows.position[rows.diff < 0].tolist():
            letter = chunk.refuse(position - offset, "unmatched delete: no such row")
            self._deletions.setdefault(name, {})[position] = letter
        return refused

    def bury(self, letters: list[DeadLetter]) -> None:
        self.progress.dead += len(letters)
        if self._file is not None:
            self._file.write(letters)
        else:
            self.dead_letters += letters

    def deliver(self, answer: Answer) -> None:
        """Writes the answers of an epoch, and tells of it."""
        self.progress.epochs += 1
        self.answers += 1
        for name, batch in answer.changes.items():
            if len(batch):
                self.progress.results[name] = self.progress.results.get(name, 0) + len(batch)
        self._sinks.write(answer.changes, answer.queries, self._pipeline.dictionary)
        for name, refused in answer.refused:
            self.bury([self._deletions[name][position] for position in refused.tolist()])
        for name, applied in answer.deletions:
            for position in applied.tolist():
                del self._deletions[name][position]
        self._on_answer(answer)
        if answer.change is not None:
            self.follow(answer.change)
        self.tell()

    def tell(self) -> None:
        if self._on_progress is None:
            return
        self.progress.frontier = self._pipeline.frontier
        self.progress.waiting = self._pipeline.waiting
        self.progress.lag = self._pipeline.lag
        self.progress.seconds = time.monotonic() - self._started
        self._on_progress(self.progress)

    def committed(self) -> dict[str, Any]:
        """Flushes everything to disk; returns the notes from which a later run can go on."""
        notes = self._sinks.committed()
        if self._file is not None:
            self._file.flush(sync=True)
        return {
            **notes,
            "dead": self._file.position() if self._file is not None else None,
            "dead_checksum": self._file.checksum() if self._file is not None else None,
            "deletions": self._deletions,
            "rows": self.progress.rows,
            "refused": self.progress.dead,
            "answers": self.answers,
            "results": self.progress.results,
        }

    def close(self) -> None:
        self._sinks.close()
        if self._file is not None:
            self._file.close()
