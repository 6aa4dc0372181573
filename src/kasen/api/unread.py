"""The changes of one query that nobody has read yet.

The pipeline delivers changes, in its own thread or in the program's; the program's threads take them. A
change is made Arrow or Python's values only when it is taken.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from kasen.connect.decode import Decoder, output_schema
from kasen.connect.plain import Change, ChangeReader
from kasen.cql.bound import RegisteredQuery
from kasen.engine.batch import Batch
from kasen.engine.text.dictionary import Dictionary
from kasen.runtime.output.answer_store import AnswerStore, StoredAnswer
from kasen.types import Kind, Type

ForeachBatch = Callable[[int, pa.Table], None]


class Readers(NamedTuple):
    """What makes tables, or Python's values, of changes whose texts are in one dictionary."""

    texts: Dictionary
    decoder: Decoder
    change_reader: ChangeReader


class TakenChanges(NamedTuple):
    """Changes of one epoch that a reader has taken."""

    answer: StoredAnswer
    readers: Readers

    def table(self) -> pa.Table:
        return self.readers.decoder.table(self.answer.batch())

    def changes(self) -> list[Change]:
        return self.readers.change_reader.changes(self.answer.batch())


class UnreadChanges:
    """A queue of changes between the pipeline and the readers of one query."""

    def __init__(self, query: RegisteredQuery, time_type: Type) -> None:
        self.query = query
        self.schema: pa.Schema = output_schema(query.schema, time_type)
        #: How many changes wait to be read.
        self.count = 0
        self._time = time_type
        #: Each with the dictionary of its texts.
        self._answers: deque[tuple[StoredAnswer, Dictionary]] = deque()
        self._has_texts = any(field.type.kind is Kind.VARCHAR for field in query.schema)
        self._readers: Readers | None = None
        self._discards = False
        self._reader_thread: int | None = None
        self._arrived = threading.Condition()
        self._callbacks: list[ForeachBatch] = []

    # ------------------------------------------------------------ for readers

    def take_first(self, is_running: Callable[[], bool]) -> TakenChanges | None:
        """The changes of the next epoch; waits for them while the pipeline runs. None if there are none."""
        with self._arrived:
            self._reader_thread = threading.get_ident()
            while not self._answers and is_running():
                self._arrived.wait(0.1)
            if not self._answers:
                return None
            answer, texts = self._answers.popleft()
            self.count -= len(answer)
            self._arrived.notify_all()
        return TakenChanges(answer, self._readers_of(texts))

    def take_all(self, make_room: Callable[[], None]) -> list[TakenChanges]:
        """All changes that wait, and those that `make_room` lets the pipeline add."""
        taken: list[tuple[StoredAnswer, Dictionary]] = []
        self._reader_thread = threading.get_ident()
        while True:
            with self._arrived:
                if not self._answers:
                    return [TakenChanges(answer, self._readers_of(texts)) for answer, texts in taken]
                taken += self._answers
                self._clear()
            make_room()

    def call(self, function: ForeachBatch) -> None:
        """From now on `function` gets the changes, and none are kept."""
        self._callbacks.append(function)

    def discard(self) -> None:
        """Forgets all changes, now and from now on."""
        self._discards = True
        with self._arrived:
            self._clear()

    # ------------------------------------------------------------ for the pipeline

    @property
    def is_needed(self) -> bool:
        """Whether something is unread, or the program has said what to do with changes."""
        return self.count > 0 or not self.keeps

    @property
    def keeps(self) -> bool:
        """Whether changes are kept for a reader, and not handed on at once."""
        return not self._callbacks and not self._discards

    @property
    def is_read_elsewhere(self) -> bool:
        """Whether another thread reads: only then does it make sense to wait for the reader here."""
        return self._reader_thread is not None and self._reader_thread != threading.get_ident()

    def wait_for_room(self, most: int, stopping: threading.Event) -> None:
        """Waits until fewer than `most` changes are unread, or the run is stopped."""
        with self._arrived:
            while self.count >= most and not stopping.is_set():
                self._arrived.wait(0.1)

    def deliver(self, epoch: int, batch: Batch, texts: Dictionary, store: AnswerStore) -> None:
        """Hands an epoch's changes to the program's functions, or keeps them for its readers."""
        if self._callbacks:
            table = self._readers_of(texts).decoder.table(batch)
            for function in self._callbacks:
                function(epoch, table)
        if self.keeps:
            with self._arrived:
                if self._has_texts:
                    texts.keep(batch.data)
                    answer = StoredAnswer(Batch(batch.ts, batch.seq_tick, batch.diff, batch.data))
                else:
                    answer = store.keep(batch)
                self._answers.append((answer, texts))
                self.count += len(batch)
                self._arrived.notify_all()

    # ------------------------------------------------------------

    def _clear(self) -> None:
        self._answers.clear()
        self.count = 0
        self._arrived.notify_all()

    def _readers_of(self, texts: Dictionary) -> Readers:
        if self._readers is None or self._readers.texts is not texts:
            schema = self.query.schema
            self._readers = Readers(
                texts, Decoder(schema, texts, self._time), ChangeReader(schema, self._time, texts)
            )
        return self._readers
