"""Rows that a program hands over: Arrow tables, or Python rows and columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from kasen.connect.arrow_columns import cells_of, check_types, read_batch
from kasen.connect.chunk import START, Chunk, Position
from kasen.connect.draft import Draft
from kasen.connect.layout import ColumnPositions, Layout, find_columns
from kasen.connect.text.row_text import row_text
from kasen.connect.values import BAD_ROW, RefusedRow, cell_text
from kasen.engine.batch import I64, ones
from kasen.errors import DataError

#: A sequence of rows (each a mapping by column name), a mapping of columns, or anything that Arrow can take
#: for a table: a Table, a RecordBatch, a data frame.
Rows = Sequence[Mapping[str, object]] | Mapping[str, Sequence[object]] | Any

_FILE = "the pushed batch"


def chunk_of(layout: Layout, rows: Rows, before: int = 0) -> Chunk:
    """The rows as a chunk. `before` is how many rows came before them: the first one's line is the next."""
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return _from_rows(layout, rows, before)
    # Arrow's memory never changes; that of a data frame or of numpy may.
    lend = isinstance(rows, pa.RecordBatch | pa.Table)
    return _from_arrow(layout, _as_batch(layout, rows), before, lend)


def chunk_of_numbers(layout: Layout, rows: Sequence[Any], numbers: I64, before: int) -> Chunk:
    """Rows that have been read already, VARCHARs as codes."""
    count = len(rows)
    lines, end = _lines(before, count), _position(before + count)
    return Chunk(layout.name, numbers, {}, lines, ones(count), [], end, lambda row: row_text(rows[row]))


def _from_rows(layout: Layout, rows: Sequence[Mapping[str, object]], before: int) -> Chunk:
    for row in rows:
        if not isinstance(row, Mapping):
            raise DataError(
                f"{layout.name}: a row must be a mapping by column name, not {type(row).__name__}"
            )
    draft = Draft(layout, len(rows))
    draft.unsure[:] = True
    return draft.finish(
        _lines(before, len(rows)),
        lambda row: row_text(rows[row]),
        lambda row: _cells(rows[row]),
        _position(before + len(rows)),
    )


def _cells(row: Mapping[str, object]) -> Mapping[str, object]:
    try:
        return {cell_text(name).lower(): cell for name, cell in row.items()}
    except Exception as error:  # a mapping of the program's own
        fault = f"{BAD_ROW}: reading it raises {type(error).__name__}"
        raise RefusedRow(fault) from None


def _from_arrow(layout: Layout, batch: pa.RecordBatch, before: int, lend: bool) -> Chunk:
    try:
        found = _find(layout, batch.schema)
    except TypeError:  # an extension type without a hash
        found = _find.__wrapped__(layout, batch.schema)
    draft = Draft(layout, len(batch), lend=lend)
    read_batch(draft, batch, found)
    names = batch.schema.names
    return draft.finish(
        _lines(before, len(batch)),
        lambda row: row_text(cells_of(batch, names, row)),
        lambda row: cells_of(batch, names, row),
        _position(before + len(batch)),
    )


@lru_cache(maxsize=256)
def _find(layout: Layout, schema: pa.Schema) -> ColumnPositions:
    found = find_columns(layout, schema.names, _FILE)
    check_types(layout, found, schema, _FILE)
    return found


def _as_batch(layout: Layout, rows: Rows) -> pa.RecordBatch:
    if isinstance(rows, pa.RecordBatch):
        return rows
    try:
        table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    except Exception as fault:  # Arrow asks values of the program's own classes, which may raise anything
        raise DataError(f"{layout.name}: cannot take {type(rows).__name__} for rows: {fault}") from None
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.num_chunks > 1 and (pat.is_dictionary(column.type) or pat.is_string_view(column.type)):
            _check_pieces(layout, name, column)
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def _check_pieces(layout: Layout, name: str, column: pa.ChunkedArray) -> None:
    """Putting pieces together trusts their indices and views; all else is checked when a column is read."""
    try:
        column.validate(full=True)
    except pa.ArrowException as fault:
        raise DataError(f"{layout.name}: column {name!r} is not valid: {fault}") from None


def _lines(before: int, n: int) -> range:
    return range(before + 1, before + n + 1)


def _position(rows: int) -> Position:
    return Position("", rows, rows + 1)


class MemorySource:
    """What was pushed and not yet read. It cannot be read again: who needs that keeps the chunks."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._count = 0
        self._waiting: deque[Chunk] = deque()

    def push(self, rows: Rows) -> Chunk:
        """Parses rows at once, so that whoever pushes a table without a column learns it here."""
        chunk = chunk_of(self._layout, rows, self._count)
        self._count = chunk.end.offset
        self._waiting.append(chunk)
        return chunk

    def chunks(self, start: Position = START) -> Iterator[Chunk]:
        """Everything pushed and not read so far."""
        self._count = max(self._count, start.offset)
        while self._waiting:
            yield self._waiting.popleft()
