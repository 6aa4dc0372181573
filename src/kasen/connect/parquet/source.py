"""Parquet files. A row's line is its number in the file, from 1; its text is JSON of the columns read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kasen.connect.arrow_columns import cells_of, check_types, is_text, read_batch
from kasen.connect.chunk import Chunk, Position
from kasen.connect.draft import Draft
from kasen.connect.files import FileSource, need_files
from kasen.connect.layout import ColumnPositions, Layout, find_columns
from kasen.connect.text.row_text import row_text
from kasen.errors import DataError

#: So many bytes of cells are read at once.
_MOST_BYTES = 1 << 26


def parquet_source(path: Path, layout: Layout, chunk_rows: int) -> FileSource:
    files = need_files(path, "parquet", layout.name)
    many = path.is_dir()
    return FileSource([ParquetReader(file, layout, many, chunk_rows) for file in files])


class ParquetReader:
    def __init__(self, path: Path, layout: Layout, many: bool, chunk_rows: int) -> None:
        self.path = path
        self._layout = layout
        self._where = f" ({path.name})" if many else ""
        self._chunk_rows = chunk_rows
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, OSError, ValueError) as fault:
            raise DataError(f"{layout.name}: {path} is not a Parquet file: {fault}") from None
        found = find_columns(layout, schema.names, str(path))
        check_types(layout, found, schema, str(path))
        wanted = found.wanted
        self._names = [schema.names[column] for column in wanted]
        self._are_texts = [is_text(schema.field(column).type) for column in wanted]
        self._found = ColumnPositions(
            tuple(wanted.index(column) for column in found.columns),
            None if found.diff is None else wanted.index(found.diff),
        )

    def chunks(self, offset: int, line: int) -> Iterator[Chunk]:
        """The offset counts rows."""
        del line
        row = offset
        # Texts come as places in a dictionary: a file of one long text, a million times, must stay small.
        texts = [name for name, is_text in zip(self._names, self._are_texts, strict=True) if is_text]
        try:
            with pq.ParquetFile(self.path, read_dictionary=texts) as file:
                groups, skip = _groups_from(file.metadata, offset)
                row = offset - skip
                size = min(self._chunk_rows, _rows_at_once(file.metadata, groups))
                for batch in file.iter_batches(size, row_groups=groups, columns=self._names):
                    row += len(batch)
                    if skip < len(batch):
                        yield self._chunk(batch.select(self._names).slice(skip), row)
                    skip = max(0, skip - len(batch))
        except (pa.ArrowException, OSError, ValueError) as fault:
            raise DataError(
                f"{self._layout.name}: {self.path} cannot be read beyond row {row}: {fault}"
            ) from None

    def _chunk(self, batch: pa.RecordBatch, end: int) -> Chunk:
        draft = Draft(self._layout, len(batch), lend=True)
        read_batch(draft, batch, self._found)
        return draft.finish(
            range(end - len(batch) + 1, end + 1),
            lambda row: row_text(cells_of(batch, self._names, row)),
            lambda row: cells_of(batch, self._names, row),
            Position(self.path.name, end, end + 1),
            self._where,
        )


def _rows_at_once(metadata: pq.FileMetaData, groups: list[int]) -> int:
    """So many rows that their cells do not fill the memory, as far as the file tells their size."""
    sizes = [
        (metadata.row_group(group).total_byte_size, metadata.row_group(group).num_rows) for group in groups
    ]
    widest = max((size // max(rows, 1) for size, rows in sizes), default=0)
    return max(1, _MOST_BYTES // max(widest, 1))


def _groups_from(metadata: pq.FileMetaData, offset: int) -> tuple[list[int], int]:
    """The row groups that hold rows from `offset` on, and how many rows of the first to skip."""
    groups = list(range(metadata.num_row_groups))
    while groups and offset >= metadata.row_group(groups[0]).num_rows:
        offset -= metadata.row_group(groups.pop(0)).num_rows
    return groups, offset
