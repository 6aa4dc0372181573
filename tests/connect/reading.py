"""Helpers: read a source wholly, as Python values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kasen.connect.chunk import START, Chunk, Position
from kasen.connect.decode import decode
from kasen.connect.encode import encode
from kasen.connect.registry import open_source
from kasen.engine.batch import Batch, matrix
from kasen.engine.text.dictionary import Dictionary
from kasen.types import BIGINT, MAX_TEXT_BYTES, Connector, Field, Schema, Type

INSTANT_AND_DIFF = 4


class Read(NamedTuple):
    """What came of a source: rows with their lines and diffs, and (line, reason, raw) of what was refused."""

    rows: list[tuple[Any, ...]]
    lines: list[int]
    diffs: list[int]
    dead: list[tuple[int, str, str]]

    def then(self, rest: Read) -> Read:
        return Read(
            self.rows + rest.rows, self.lines + rest.lines, self.diffs + rest.diffs, self.dead + rest.dead
        )


def schema_of(**columns: Type) -> Schema:
    return Schema(tuple(Field(name, type_) for name, type_ in columns.items()))


def table_of(chunk: Chunk, schema: Schema, dictionary: Dictionary) -> pa.Table:
    data = encode(chunk, dictionary)
    ts = np.arange(len(chunk), dtype=np.int64)
    return decode(Batch(ts, np.zeros_like(ts), chunk.diff, matrix(data)), schema, dictionary, BIGINT)


def collect(chunks: Iterable[Chunk], schema: Schema) -> Read:
    dictionary = Dictionary()
    read = Read([], [], [], [])
    for chunk in chunks:
        columns = table_of(chunk, schema, dictionary).columns[INSTANT_AND_DIFF:]
        read.rows.extend(zip(*(column.to_pylist() for column in columns), strict=True))
        read.lines.extend(int(line) for line in chunk.lines)
        read.diffs.extend(chunk.diff.tolist())
        read.dead.extend((letter.line, letter.reason, letter.raw) for letter in chunk.dead)
    return read


def read_path(
    path: Path,
    schema: Schema,
    timestamp: int | None = None,
    is_relation: bool = False,
    chunk_rows: int = 1000,
    start: Position = START,
    max_text_bytes: int = MAX_TEXT_BYTES,
    **options: str,
) -> Read:
    """Reads a file or a folder; its format is its suffix, or the option `format`."""
    format_ = options.pop("format", path.suffix.removeprefix("."))
    connector = Connector(format_, (("path", path.name), *options.items()))
    source = open_source(
        connector, path.parent, "s", schema, timestamp, is_relation, chunk_rows, max_text_bytes
    )
    return collect(source.chunks(start), schema)
