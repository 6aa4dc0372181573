"""A node whose work runs in a Spark application: each epoch is a micro-batch of a streaming query."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa

from kasen.errors import KasenError
from kasen.ha.config import Neighbour
from kasen.ha.link.journal import PieceJournal, pieces_of
from kasen.ha.link.wire import LinkPiece
from kasen.ha.work.work import AppWork, Result
from kasen.plan.physical import Plan
from kasen.spark.link_source import LinkQuery


class SparkWork(AppWork):
    """Puts pieces into a journal, from which Spark reads them, and waits for the answers of its epochs."""

    def __init__(self, plan: Plan, base: Path, inputs: tuple[Neighbour, ...], file: Path) -> None:
        super().__init__(plan, base, inputs)
        self.journal: PieceJournal = PieceJournal()
        self._link_schemas: dict[str, pa.Schema] = {}
        self._answered = threading.Condition()
        self._done = 0
        self._results: list[Result] = []
        self._fault: KasenError | None = None
        self._query = LinkQuery(str(file), self._epoch)

    def start(self) -> None:
        self._query.start()

    def close(self) -> None:
        self._query.stop()

    def accept(self, link: Neighbour, schema: pa.Schema) -> None:
        super().accept(link, schema)
        self._link_schemas[link.stream] = schema

    def process(self, pieces: list[tuple[str, LinkPiece]]) -> Result:
        last = self.journal.add(pieces)
        with self._answered:
            while self._done < last:
                if not self._answered.wait(0.5):
                    self._query.check()
                if self._fault is not None:
                    raise self._fault
            results, self._results = self._results, []
        answers = {}
        for name in self.schemas:
            parts = [result.answers[name] for result in results if name in result.answers]
            if parts:
                answers[name] = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        return Result(answers, results[-1].upto, results[-1].ended)

    def _epoch(self, table: pa.Table) -> None:
        """A micro-batch; Spark may bring one again that it could not commit."""
        with self._answered:
            new = [each for each in pieces_of(table, self._link_schemas) if each[0] >= self._done]
            try:
                if new:
                    self._results.append(super().process([(stream, piece) for _, stream, piece in new]))
                    self._done = new[-1][0] + 1
            except KasenError as fault:
                self._fault = fault
            self._answered.notify_all()
