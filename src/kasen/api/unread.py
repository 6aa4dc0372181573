"""The changes of one query that nobody has read yet.

The pipeline delivers changes, in its own thread or in the program's; the program's threads take them. A
change is made Arrow or Python's values only when it is taken. REPLACE may give a query other columns: changes
keep those that they were made with.
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
from kasen.types import Kind, Schema, Type

ForeachBatch = Callable[[int, pa.Table], None]


class Readers(NamedTuple):
    """What makes tables, or Python's values, of changes of some columns with texts of one dictionary."""

    texts: Dictionary
    columns: Schema
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


class _Waiting(NamedTuple):
    """Changes of one epoch, the dictionary of their texts, and their columns."""

    answer: StoredAnswer
    texts: Dictionary
    columns: Schema


class UnreadChanges:
    """A queue of changes between the pipeline and the readers of one query."""

    def __init__(self, query: RegisteredQuery, time_type: Type) -> None:
        self.query = query
        self._has_texts = _has_texts(query.schema)
        #: How many changes wait to be read.
        self.count = 0
        self._time = time_type
        self._answers: deque[_Waiting] = deque()
        self._readers: Readers | None = None
        self._discards = False
        self._reader_thread: int | None = None
        self._arrived = threading.Condition()
        self._callbacks: list[ForeachBatch] = []

    @property
    def schema(self) -> pa.Schema:
        """The columns of changes that the query makes now."""
        return output_schema(self.query.schema, self._time)

    # ------------------------------------------------------------ for readers

    def take_first(self, is_running: Callable[[], bool]) -> TakenChanges | None:
        """The changes of the next epoch; waits for them while the pipeline runs. None if there are none."""
        with self._arrived:
            self._reader_thread = threading.get_ident()
            while not self._answers and is_running():
                self._arrived.wait(0.1)
            if not self._answers:
                return None
            first = self._take()
        return self._taken(first)

    def take_all(self, make_room: Callable[[], None], *, alike: bool = False) -> list[TakenChanges]:
        """All changes that wait, and those that `make_room` lets the pipeline add.

        If `alike`, only those up to the first that has other columns.
        """
        taken: list[_Waiting] = []
        self._reader_thread = threading.get_ident()
        while True:
            before = len(taken)
            with self._arrived:
                if alike:
                    while self._answers and (not taken or self._answers[0].columns == taken[0].columns):
                        taken.append(self._take())
                elif self._answers:
                    taken += self._answers
                    self._clear()
            if len(taken) == before:
                return list(map(self._taken, taken))
            make_room()

    def _take(self) -> _Waiting:
        """Called with the lock."""
        first = self._answers.popleft()
        self.count -= len(first.answer)
        self._arrived.notify_all()
        return first

    def _clear(self) -> None:
        """Called with the lock."""
        self._answers.clear()
        self.count = 0
        self._arrived.notify_all()

    def _taken(self, waiting: _Waiting) -> TakenChanges:
        return TakenChanges(waiting.answer, self._readers_of(waiting.texts, waiting.columns))

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

    def follow(self, query: RegisteredQuery) -> None:
        """From now on the changes are those of this query."""
        self.query = query
        self._has_texts = _has_texts(query.schema)

    def deliver(self, epoch: int, batch: Batch, texts: Dictionary, store: AnswerStore) -> None:
        """Hands an epoch's changes to the program's functions, or keeps them for its readers."""
        columns = self.query.schema
        if self._callbacks:
            table = self._readers_of(texts, columns).decoder.table(batch)
            for function in self._callbacks:
                function(epoch, table)
        if self.keeps:
            with self._arrived:
                if self._has_texts:
                    texts.keep(batch.data)
                    answer = StoredAnswer(Batch(batch.ts, batch.seq_tick, batch.diff, batch.data))
                else:
                    answer = store.keep(batch)
                self._answers.append(_Waiting(answer, texts, columns))
                self.count += len(batch)
                self._arrived.notify_all()

    def _readers_of(self, texts: Dictionary, columns: Schema) -> Readers:
        known = self._readers
        if known is None or known.texts is not texts or known.columns is not columns:
            self._readers = known = Readers(
                texts, columns, Decoder(columns, texts, self._time), ChangeReader(columns, self._time, texts)
            )
        return known


def _has_texts(columns: Schema) -> bool:
    return any(field.type.kind is Kind.VARCHAR for field in columns)
