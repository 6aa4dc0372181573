"""The answers of one query, as a program reads them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from kasen.connect.decode import Decoder, output_schema
from kasen.connect.plain import Change, ChangeReader
from kasen.cql.bound import RegisteredQuery
from kasen.engine.batch import Batch
from kasen.engine.text.dictionary import Dictionary
from kasen.runtime.output.answer_store import AnswerStore, StoredAnswer
from kasen.types import Kind, Type

if TYPE_CHECKING:  # Spark is loaded when it is first used
    from kasen.api.pipeline import Pipeline
    from kasen.spark.scan.sources import Frame

ForeachBatch = Callable[[int, pa.Table], None]
ForeachFrame = Callable[[int, "Frame"], None]
_Unread = tuple[StoredAnswer, Dictionary]


class Query:
    """A registered query's answers: changes as Arrow tables with columns ts, seq, tick, diff, and its own.

    Every change is handed out once, to whichever of the ways below asks first.
    """

    def __init__(self, registered: RegisteredQuery, time_type: Type, owner: Pipeline) -> None:
        self._registered = registered
        self._schema: pa.Schema = output_schema(registered.schema, time_type)
        self._owner = owner
        self._time = time_type
        #: Changes nobody has read yet, each with the dictionary of its texts.
        self._batches: deque[_Unread] = deque()
        self._has_texts = any(field.type.kind is Kind.VARCHAR for field in registered.schema)
        self._decoder: tuple[Decoder, ChangeReader, Dictionary] | None = None
        self._waiting = 0
        self._discards = False
        self._reader: int | None = None
        self._arrived = threading.Condition()
        self._callbacks: list[ForeachBatch] = []

    @property
    def name(self) -> str:
        return self._registered.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of the changes."""
        return self._schema

    def to_arrow(self) -> pa.Table:
        """All changes that have not been handed out yet, as one table."""
        tables = [self._reader_of(texts)[0].table(kept.batch()) for kept, texts in self._take_all()]
        return pa.concat_tables([self._schema.empty_table(), *tables])

    def changes(self) -> list[Change]:
        """All changes that have not been handed out yet, as Python's values: the quickest way for a few."""
        found = self._take_all()
        return [each for kept, texts in found for each in self._reader_of(texts)[1].changes(kept.batch())]

    def __iter__(self) -> Iterator[pa.Table]:
        """The changes epoch by epoch.

        While the pipeline runs in the background (after `start`) this waits for more until it ends, and
        raises what ended it if that was an error; otherwise it hands out what is there.
        """
        while True:
            with self._arrived:
                self._reader = threading.get_ident()
                while not self._batches and self._owner.running:
                    self._arrived.wait(0.1)
                if not self._batches:
                    self._owner._tell_error()
                    return
                kept, texts = self._batches.popleft()
                self._waiting -= len(kept)
                self._arrived.notify_all()
            self._owner._make_room()
            yield self._reader_of(texts)[0].table(kept.batch())

    def foreach_batch(self, function: ForeachBatch | ForeachFrame, *, frames: bool = False) -> Query:
        """From now on calls `function(epoch, changes)` instead of keeping changes.

        They come as an Arrow table; with `frames`, for engine='spark', as a DataFrame.
        """
        if frames:
            self._owner._need_spark()
            self._callbacks.append(lambda epoch, table: function(epoch, self._owner._frame(table)))
        else:
            self._callbacks.append(function)
        return self

    def discard(self) -> Query:
        """From now on keeps nothing: for a query that only others read, or that has a sink of its own."""
        self._discards = True
        with self._arrived:
            self._batches.clear()
            self._waiting = 0
        self._owner._make_room()
        return self

    @property
    def waiting(self) -> int:
        """How many changes wait to be read."""
        return self._waiting

    def _take_all(self) -> list[_Unread]:
        batches: list[_Unread] = []
        self._reader = threading.get_ident()
        while True:
            with self._arrived:
                if not self._batches:
                    return batches
                batches += self._batches
                self._batches.clear()
                self._waiting = 0
                self._arrived.notify_all()
            self._owner._make_room()

    def _reader_of(self, texts: Dictionary) -> tuple[Decoder, ChangeReader, Dictionary]:
        """What makes tables, or Python's values, of changes whose texts are there."""
        if self._decoder is None or self._decoder[2] is not texts:
            schema, time_type = self._registered.schema, self._time
            self._decoder = Decoder(schema, texts, time_type), ChangeReader(schema, time_type, texts), texts
        return self._decoder

    # ------------------------------------------------------------ for the pipeline

    @property
    def _is_needed(self) -> bool:
        """Whether something is unread, or the program has said what to do with changes."""
        return self._waiting > 0 or not self._keeps

    @property
    def _keeps(self) -> bool:
        """Whether changes are kept for a reader, or handed on at once."""
        return not self._callbacks and not self._discards

    @property
    def _is_read_elsewhere(self) -> bool:
        """Whether waiting here for its reader makes sense."""
        return self._reader is not None and self._reader != threading.get_ident()

    def _wait_for_room(self, most: int, stopping: threading.Event) -> None:
        """For a thread that reads files: it goes on when the reader has caught up, or the run is stopped."""
        with self._arrived:
            while self._waiting >= most and not stopping.is_set():
                self._arrived.wait(0.1)

    def _deliver(self, epoch: int, batch: Batch, texts: Dictionary, keeper: AnswerStore) -> None:
        if self._callbacks:
            table = self._reader_of(texts)[0].table(batch)
            for function in self._callbacks:
                function(epoch, table)
        if self._keeps:
            with self._arrived:
                # Made Arrow or Python's values when asked for.
                if self._has_texts:
                    texts.keep(batch.data)
                    kept = StoredAnswer(Batch(batch.ts, batch.seq_tick, batch.diff, batch.data))
                else:
                    kept = keeper.keep(batch)
                self._batches.append((kept, texts))
                self._waiting += len(batch)
                self._arrived.notify_all()
