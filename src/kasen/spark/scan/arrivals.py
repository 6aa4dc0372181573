"""The rows of a micro-batch as the pipeline takes them: in reading order, refused ones apart.

Files are read in the order of their names. Only what operators need has crossed; the text of a row that comes
too late is read again from its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kasen.connect.chunk import Chunk, DeadLetter
from kasen.connect.encode import encode
from kasen.connect.layout import Layout
from kasen.connect.memory.source import chunk_of
from kasen.engine.batch import I64, Batch, Columns, are_zeros, matrix, orderings, zeros
from kasen.engine.stream.value_order import ValueOrder
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.native.lower import is_foreign
from kasen.plan.physical import Input
from kasen.runtime.input.feed import InputRows
from kasen.spark.scan.file_names import FileNames
from kasen.spark.scan.names import BAD, DIFF, NO_TIME, RAW
from kasen.spark.scan.scan import FAILS, Slots, of_files
from kasen.types import Schema

#: The texts of a file's rows: the refused ones (None), or those of times from the first to the second.
Texts = Callable[[Input, str, tuple[int, int] | None], list[str]]


@dataclass(frozen=True, slots=True)
class CrossingInput:
    """An input as it crosses: the columns that come, by name, and which of the input's each is."""

    input_: Input
    names: tuple[str, ...]
    columns: tuple[int, ...]

    @property
    def time(self) -> str:
        """The column that has the times; "" if there is none."""
        timestamp = self.input_.timestamp
        return "" if timestamp is None else self.names[self.columns.index(timestamp)]

    @property
    def layout(self) -> Layout:
        fields = tuple(self.input_.schema[index] for index in self.columns)
        timestamp = self.input_.timestamp
        place = None if timestamp is None else self.columns.index(timestamp)
        return Layout(self.input_.name, Schema(fields), place)


def sources_of(streams: list[Input], slots: Slots) -> tuple[CrossingInput, ...]:
    """Each stream as it crosses in its slots."""
    found = []
    for input_, places in zip(streams, slots.places, strict=True):
        kept = [(place, slot) for place, slot in enumerate(places) if slot is not None]
        found.append(
            CrossingInput(input_, tuple(slot for _, slot in kept), tuple(place for place, _ in kept))
        )
    return tuple(found)


def whole(input_: Input) -> CrossingInput:
    """All columns, under their own names."""
    return CrossingInput(input_, tuple(input_.schema.names), tuple(range(len(input_.schema))))


#: A chunk, its rows, and how many operations failed in each of them.
Arrived = tuple[Chunk, InputRows, I64 | None]


class Arrivals:
    """Counts rows: `counts` has how many of each input's came before, which a later run goes on from."""

    def __init__(
        self,
        dictionary: Dictionary,
        counts: dict[str, int],
        texts: Texts,
        files: FileNames,
        folders: frozenset[str],
    ) -> None:
        """`folders` are the inputs of which there may be several files: a refused row tells which."""
        self._dictionary = dictionary
        self._files = files
        self._folders = folders
        self._texts = texts
        self._lines: dict[tuple[str, str], int] = {}
        self.counts = dict(counts)
        #: When the rows of this epoch came, for streams without times of their own.
        self.stamp = 0

    def read(self, source: CrossingInput, table: pa.Table) -> Iterator[Arrived]:
        """An input's rows file by file; beside each chunk, how many operations failed in each row."""
        return self.read_files(source, of_files(table, partial(self._files.find, source.input_.name)))

    def read_files(self, source: CrossingInput, files: Iterable[tuple[str, pa.Table]]) -> Iterator[Arrived]:
        """The same of rows that are apart already: by the names of their files, and in this order."""
        for file, part in files:
            if len(part):
                yield self._chunk(source, part, file)

    def _chunk(
        self, source: CrossingInput, table: pa.Table, file: str
    ) -> tuple[Chunk, InputRows, I64 | None]:
        input_ = source.input_
        lines: I64 | range = self._numbers(input_, file, len(table))
        dead: list[DeadLetter] = []
        is_bad = refused(table, source.time)
        if is_bad is not None:
            numbers = np.asarray(lines, np.int64)
            dead = self._dead(input_, table.filter(is_bad), numbers[is_bad.to_numpy()], file)
            table, lines = table.filter(pc.invert(is_bad)), numbers[~is_bad.to_numpy()]
        chunk = chunk_of_source(source, table)
        chunk.lines, chunk.dead, chunk.where = lines, dead, self._where(input_, file)
        if DIFF in table.column_names and input_.is_relation:
            chunk.diff = table.column(DIFF).to_numpy().copy()
        data = encode(chunk, self._dictionary)
        ts = data[input_.timestamp] if input_.timestamp is not None else self._stamps(input_, len(chunk))
        first = self.counts.get(input_.name, 0)
        self.counts[input_.name] = first + len(chunk)
        if input_.is_relation or is_foreign(input_):
            raw = table.column(RAW)
            chunk.raw_of, chunk.on_expect = lambda row: raw[row].as_py() or "", None
        else:
            texts = DeferredTexts(self._texts, input_, file, ts)
            chunk.raw_of, chunk.on_expect = texts.text, texts.expect
        failed = table.column(FAILS).to_numpy() if FAILS in table.column_names else None
        rows = InputRows(ts, chunk.diff, data, range(first, first + len(chunk)))
        # The positions stay with their rows, so chunk and failures need not be moved.
        return chunk, self._by_value(input_, rows) if is_foreign(input_) else rows, failed

    def _stamps(self, input_: Input, count: int) -> I64:
        """A static table's rows have no time at all."""
        return zeros(count) if input_.is_relation else np.full(count, self.stamp, np.int64)

    def _by_value(self, input_: Input, rows: InputRows) -> InputRows:
        """Rows that have no place of their own in order of time, and then of value."""
        order = ValueOrder(orderings(input_.schema), self._dictionary)
        batch = Batch(rows.ts, zeros(len(rows)), rows.diff, matrix(rows.data))
        return rows.take(order.sorted(batch, np.argsort(rows.ts, kind="stable")))

    def times(self, input_: Input, table: pa.Table, name: str) -> tuple[I64, list[DeadLetter]]:
        """The times of a stream's rows in reading order, and the rows that are bad."""
        found: list[I64] = [np.empty(0, np.int64)]
        dead: list[DeadLetter] = []
        for file, part in of_files(table, partial(self._files.find, input_.name)):
            is_bad = refused(part, name)
            if is_bad is not None:
                lines = np.flatnonzero(is_bad.to_numpy()) + self._first_line(input_, file)
                dead += self._dead(input_, part.filter(is_bad), lines, file)
                part = part.filter(pc.invert(is_bad))
            found.append(part.column(name).to_numpy())
        return np.concatenate(found), dead

    def reduced(self, source: CrossingInput, table: pa.Table) -> tuple[Chunk, InputRows]:
        """Rows that stand for several, in order of time. They are never refused, so they have no text."""
        chunk = chunk_of(source.layout, table)
        data = encode(chunk, self._dictionary)
        assert source.input_.timestamp is not None
        return chunk, InputRows(data[source.input_.timestamp], chunk.diff, data, np.arange(len(chunk)))

    def _dead(self, input_: Input, bad: pa.Table, lines: I64, file: str) -> list[DeadLetter]:
        noted = BAD in bad.column_names
        texts = bad.column(RAW).to_pylist() if noted else [None]
        if None in texts:
            texts = self._texts(input_, file, None)
        reasons = bad.column(BAD).to_pylist() if noted else [NO_TIME] * len(bad)
        found = zip(lines.tolist(), reasons, texts, strict=True)
        where = self._where(input_, file)
        return [DeadLetter(input_.name, line, reason + where, raw) for line, reason, raw in found]

    def _numbers(self, input_: Input, file: str, count: int) -> range:
        """The rows' lines, counted from the file's first row. A csv file's first line is its header."""
        first = self._first_line(input_, file)
        self._lines[input_.name, file] = first + count
        return range(first, first + count)

    def _first_line(self, input_: Input, file: str) -> int:
        return self._lines.get((input_.name, file), 2 if input_.connector.format == "csv" else 1)

    def _where(self, input_: Input, file: str) -> str:
        return f" ({file})" if input_.name in self._folders else ""


class DeferredTexts:
    """The texts of a chunk's rows, read again when some are asked for."""

    def __init__(self, texts: Texts, input_: Input, file: str, ts: I64) -> None:
        self._read = texts
        self._one = input_
        self._file = file
        self._ts = ts
        self._found: dict[int, str] = {}

    def expect(self, rows: list[int]) -> None:
        times = self._ts[rows]
        low, high = int(times.min()), int(times.max())
        there = np.flatnonzero((self._ts >= low) & (self._ts <= high))
        texts = self._read(self._one, self._file, (low, high))
        self._found = dict(zip(there.tolist(), texts, strict=True))

    def text(self, row: int) -> str:
        if row not in self._found:
            self.expect([row])
        return self._found[row]


def refused(table: pa.Table, time: str) -> pa.ChunkedArray | None:
    """Which rows are bad, if any is. Where nothing else can be wrong, those without a time are."""
    if BAD in table.column_names:
        notes = table.column(BAD)
        return notes.is_valid() if notes.null_count < len(notes) else None
    if not time or not table.column(time).null_count:
        return None
    return table.column(time).is_null()


def chunk_of_source(source: CrossingInput, table: pa.Table) -> Chunk:
    """Good rows as they crossed; the columns that nobody reads are there, and zero."""
    names = [source.input_.schema[index].name for index in source.columns]
    chunk = chunk_of(source.layout, table.select(source.names).rename_columns(names))
    chunk.data, chunk.texts = _widened(chunk, source)
    return chunk


def _widened(chunk: Chunk, source: CrossingInput) -> tuple[Columns, dict[int, pa.StringArray]]:
    """The columns that came, each in its place; of the others nobody asks."""
    width = len(source.input_.schema)
    if source.columns == tuple(range(width)):
        return chunk.data, chunk.texts
    data: list[I64] = [zeros(len(chunk))] * (width + 1)
    words = chunk.data[-1]
    for place, index in enumerate(source.columns):
        data[index] = chunk.data[place]
        if not are_zeros(words):
            data[-1] = data[-1] | (words >> place & 1) << index
    return data, {source.columns[place]: texts for place, texts in chunk.texts.items()}
