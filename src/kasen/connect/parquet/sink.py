"""A folder of Parquet files of changes.

A Parquet file can be read only once it is whole, and cannot be cut back. So every flush makes a file of its
own, and recovery removes those behind the committed one: exactly once. A file appears under its name only
when it is whole; the files in the order of their names are the changes in instant order.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kasen.checksum import Checksum, checksum_of_file
from kasen.errors import DataError

#: Fewer rows than this are kept until there are more, as small row groups compress badly.
_GROUP_ROWS = 1 << 16
#: So many values tell whether a column's repeat; and those that lie closer together than this are near.
_SAMPLE, _NEAR = 1024, 1 << 24


class ParquetSink:
    """Positions count files."""

    def __init__(self, path: Path, schema: pa.Schema, resume: int | None = None) -> None:
        if path.exists() and not path.is_dir():
            raise DataError(
                f"cannot write {path}: Parquet is written as a folder of files, and this is a file"
            )
        path.mkdir(parents=True, exist_ok=True)
        self._folder = path
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._parts = len(self._files())
        self._checksum = Checksum()
        self.truncate(resume or 0)

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._rows += len(table)
        if self._rows >= _GROUP_ROWS:
            self._write_group()

    def flush(self, sync: bool = False) -> None:
        if self._rows:
            self._write_group()
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        if sync:
            _sync(self._unfinished)
        self._checksum.add(checksum_of_file(self._unfinished).encode())
        self._unfinished.rename(self._part(self._parts))
        self._parts += 1
        if sync:
            _sync(self._folder)

    def position(self) -> int:
        return self._parts

    def checksum(self) -> str:
        """Of the checksums of all files."""
        return self._checksum.text

    def truncate(self, position: int) -> None:
        self._checksum = Checksum()
        for number in range(position):
            if not self._part(number).exists():
                raise DataError(
                    f"{self._part(number)} is missing, but was written: it was changed or replaced"
                )
            self._checksum.add(checksum_of_file(self._part(number)).encode())
        self._waiting, self._rows = [], 0
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._unfinished.unlink(missing_ok=True)
        for file in self._files()[position:]:
            file.unlink()
        self._parts = position

    def close(self) -> None:
        self.flush()

    @property
    def _unfinished(self) -> Path:
        return self._folder / ".unfinished"

    def _part(self, number: int) -> Path:
        return self._folder / f"part-{number:08d}.parquet"

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("part-*.parquet"))

    def _write_group(self) -> None:
        group = pa.concat_tables(self._waiting).combine_chunks()
        if self._writer is None:
            self._writer = _writer(self._unfinished, self._schema, group)
        self._writer.write_table(group)
        self._waiting, self._rows = [], 0


def _writer(path: Path, schema: pa.Schema, first: pa.Table) -> pq.ParquetWriter:
    """Integers are written as differences where that takes less time and room than a dictionary of them."""
    differing = [name for name in schema.names if _suits_differences(first[name])]
    return pq.ParquetWriter(
        path,
        schema,
        use_dictionary=[name for name in schema.names if name not in differing],
        column_encoding=dict.fromkeys(differing, "DELTA_BINARY_PACKED") or None,
    )


def _suits_differences(column: pa.ChunkedArray) -> bool:
    """Whether values are near each other, and seldom the same."""
    if not pa.types.is_integer(column.type) or 4 * pc.count_distinct(column[:_SAMPLE]).as_py() < _SAMPLE:
        return False
    ends = pc.min_max(column).as_py()
    return bool(ends["max"] - ends["min"] < _NEAR)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
