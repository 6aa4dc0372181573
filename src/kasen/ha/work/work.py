"""What a node does with what comes over its links: an app's queries, or writing to files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from kasen.connect.decode import decode, output_schema
from kasen.connect.registry import open_source
from kasen.engine.operator import State
from kasen.errors import DataError, QueryError
from kasen.ha.config import Neighbour
from kasen.ha.link.journal import PieceJournal
from kasen.ha.link.link_rows import LinkRows
from kasen.ha.link.out_queue import since
from kasen.ha.link.wire import BEGIN, LinkPiece
from kasen.plan.history import is_without_history, why_history
from kasen.plan.physical import Plan
from kasen.runtime.history import History, Restart
from kasen.runtime.input.reader import Reader
from kasen.runtime.pipeline import Answer, RunningPipeline

_MOST_READERS = 64


@dataclass(frozen=True, slots=True)
class Result:
    """The answers below `upto`, by query; `ended` if there will be no more."""

    answers: dict[str, pa.RecordBatch] = field(default_factory=dict)
    upto: int = BEGIN
    ended: bool = False


class Work:
    """What a node asks of its work. Made by the main thread, which calls `start` once, when the node listens,
    and `close` once, when all its threads are told to stop; nothing is called after that. In between, the
    working thread alone calls `process` and `begin`.
    """

    #: Where another engine reads the pieces that came, if it does the work; the node's server gives them out.
    journal: PieceJournal | None = None

    def start(self) -> None:
        """The node listens: another engine may ask it for pieces from now on."""

    def close(self) -> None:
        """The node ends."""

    def accept(self, link: Neighbour, schema: pa.Schema) -> None:
        """DataError if a link's columns are not what is expected."""
        raise NotImplementedError

    def check(self, stream: str, batch: pa.RecordBatch) -> None:
        """DataError if rows that came over a link are not what is expected.

        Called for every message, by the thread that receives it: what is wrong ends the link, not the node.
        """
        raise NotImplementedError

    def process(self, pieces: list[tuple[str, LinkPiece]]) -> Result:
        """What came over links, by stream, in order; and the answers up to there."""
        raise NotImplementedError

    def begin(self, restart: Restart | None) -> None:
        """Throws all state away and starts anew, in the middle if told how."""
        raise NotImplementedError


class AppWork(Work):
    """The local engine, fed by links."""

    def __init__(self, plan: Plan, base: Path, inputs: tuple[Neighbour, ...]) -> None:
        self.plan = plan
        self.why_history = why_history(plan)
        self.without_history = is_without_history(plan)
        if plan.app.changes:
            raise QueryError("queries come and go on nodes of their own only", remedy="leave AT out")
        self.schemas = {query.name: output_schema(query.schema, plan.app.time) for query in plan.app.queries}
        self._base = base
        self._streams = [input_ for input_ in plan.app.inputs if not input_.is_static]
        self._check_links(inputs)
        self._readers: dict[tuple[str, pa.Schema], LinkRows] = {}
        self.begin(None)

    def _check_links(self, inputs: tuple[Neighbour, ...]) -> None:
        linked = {link.stream.lower() for link in inputs}
        for input_ in self._streams:
            if input_.name.lower() not in linked:
                raise DataError(f"{input_.name} is to come over a link, but no input of the node is for it")
        names = {input_.name.lower() for input_ in self._streams}
        for link in inputs:
            if link.stream.lower() not in names:
                raise DataError(f"the app has no stream {link.stream!r} for the link from {link.node}")

    def accept(self, link: Neighbour, schema: pa.Schema) -> None:
        self._reader(link.stream, schema)

    def check(self, stream: str, batch: pa.RecordBatch) -> None:
        self._reader(stream, batch.schema).check(batch)

    def _reader(self, stream: str, schema: pa.Schema) -> LinkRows:
        """For each schema that a copy upstream has: one that was started anew may have another one."""
        found = self._readers.get((stream, schema))
        if found is None:
            one = self.plan.app.input(stream)
            assert one is not None
            found = LinkRows(one, self.plan.app.time, schema)
            while len(self._readers) >= _MOST_READERS:
                self._readers.pop(next(iter(self._readers)), None)
            self._readers[stream, schema] = found
        return found

    def begin(self, restart: Restart | None) -> None:
        self.pipeline = RunningPipeline(self.plan)
        self.history = History(self.plan, self.pipeline, restart) if self.why_history is None else None
        self._right_from = restart.at if restart is not None else BEGIN
        self._frontiers = {input_.name: BEGIN for input_ in self._streams}
        self._ends: dict[str, int] = {}
        self._load_tables()

    def _load_tables(self) -> None:
        for input_ in self.plan.app.inputs:
            if input_.is_static:
                most = input_.max_text_bytes
                source = open_source(
                    input_.connector,
                    self._base,
                    input_.name,
                    input_.schema,
                    is_relation=True,
                    max_text_bytes=most,
                )
                reader = Reader(input_.name, source, None, self.pipeline.dictionary)
                while (piece := reader.read(None)) is not None:
                    self.pipeline.add(input_.name, piece.rows)

    def process(self, pieces: list[tuple[str, LinkPiece]]) -> Result:
        for stream, piece in pieces:
            if piece.batch is not None:
                rows = self._reader(stream, piece.batch.schema).rows(piece.batch, self.pipeline.dictionary)
                self.pipeline.add(stream, rows)
            self._frontiers[stream] = max(self._frontiers[stream], piece.upto)
            if piece.ended:
                self._ends[stream] = piece.upto
        # An input that has ended holds nobody back; when all have, the last of their ends is reached.
        open_ = [ts for name, ts in self._frontiers.items() if name not in self._ends]
        upto = min(open_) if open_ else max(self._ends.values())
        for name in self._frontiers:
            self.pipeline.advance(name, upto)
        answers = [self.pipeline.run()]
        if not open_ and self.plan.app.setting("flush") == "true":
            answers += self.pipeline.flush()
        result = Result(self._batches(answers), max(upto, self.pipeline.upto), not open_)
        self.pipeline.forget_texts()
        return result

    def _batches(self, answers: list[Answer]) -> dict[str, pa.RecordBatch]:
        found: dict[str, pa.RecordBatch] = {}
        for query in self.plan.app.queries:
            parts = []
            for answer in answers:
                changes = answer.changes.get(query.name)
                if changes is None or not len(changes):
                    continue
                table = decode(changes, query.schema, self.pipeline.dictionary, self.plan.app.time)
                batch: pa.RecordBatch | None = table.to_batches()[0]
                if int(changes.ts[0]) < self._right_from:
                    batch = since(batch, self._right_from)
                if batch is not None:
                    parts.append(batch)
            if parts:
                found[query.name] = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        return found

    # ------------------------------------------------------------ state

    def snapshot(self) -> dict[str, State]:
        return self.pipeline.snapshot()

    def restore(self, state: dict[str, State], frontiers: dict[str, int]) -> None:
        """On work that has just begun."""
        self.pipeline.restore(state)
        self._frontiers |= frontiers
