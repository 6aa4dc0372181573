"""What must be true of reading a file, whatever is in it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kasen.connect.chunk import START, Chunk, Position
from kasen.connect.registry import open_source
from kasen.connect.text import blocks as text_blocks
from kasen.errors import KasenError
from kasen.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    TIMESTAMP,
    VARCHAR,
    Connector,
    Field,
    Kind,
    Schema,
    Type,
)
from tests.fuzz.file_reader import Outcome

SCHEMA = Schema(
    (
        Field("ts", BIGINT),
        Field("a", VARCHAR),
        Field("i", INTEGER),
        Field("d", DOUBLE),
        Field("c", Type(Kind.DECIMAL, 10, 2)),
        Field("t", TIMESTAMP),
        Field("b", BOOLEAN),
    )
)

#: Lines and texts of rows, and lines and reasons of refused ones.
Read = tuple[list[int], list[object], list[tuple[int, str]], str]


def outcome_of(path: Path) -> Outcome:
    try:
        read = _read(path, 1000, 1 << 22)
        rows, refused = len(read[0]), len(read[2])
        if any(not reason for _, reason in read[2]):
            return Outcome(fault="a row is refused without a reason")
        if path.stat().st_size < 20_000:
            for chunk_rows, block in ((1, 64), (7, 1000)):
                if path.suffix != ".parquet" and _read(path, chunk_rows, block) != read:
                    return Outcome(fault=f"blocks of {block} bytes give something else")
        if path.suffix == ".json" and not read[3]:
            lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
            if sum(bool(line.strip(b" \t\r")) for line in lines) != rows + refused:
                return Outcome(fault="a line is neither read nor refused")
        return Outcome(rows, refused, read[3])
    except Exception:
        return Outcome(fault=traceback.format_exc(limit=-4))


def _read(path: Path, chunk_rows: int, block: int) -> Read:
    lines: list[int] = []
    cells: list[object] = []
    dead: list[tuple[int, str]] = []
    place = START
    try:
        with _blocks_of(block):
            connector = Connector(path.suffix.removeprefix("."), (("path", path.name),))
            source = open_source(connector, path.parent, "s", SCHEMA, 0, False, chunk_rows)
            for chunk in source.chunks():
                lines += [int(line) for line in chunk.lines]
                cells += _cells(chunk)
                dead += [(letter.line, letter.reason) for letter in chunk.dead]
                place = _further(place, chunk.end)
    except KasenError as error:
        if path.name not in str(error) and "column" not in str(error):
            raise AssertionError(f"the error does not name the file: {error}") from error
        return lines, cells, dead, str(error)
    return lines, cells, dead, ""


def _further(before: Position, now: Position) -> Position:
    assert now.offset >= before.offset, "reading went back"
    return now


def _cells(chunk: Chunk) -> list[object]:
    texts = {index: array.to_pylist() for index, array in chunk.texts.items()}
    assert len(chunk.diff) == len(chunk) == len(chunk.data[0])
    found: list[object] = []
    for row in range(len(chunk)):
        nulls = int(chunk.data[-1][row])
        values = [int(column[row]) for column in chunk.data[:-1]]
        found.append(
            tuple(
                None if nulls >> index & 1 else texts[index][value] if index in texts else value
                for index, value in enumerate(values)
            )
        )
        chunk.raw(row)
    return found


@contextmanager
def _blocks_of(size: int) -> Iterator[None]:
    before = text_blocks.BLOCK_BYTES
    text_blocks.BLOCK_BYTES = size
    try:
        yield
    finally:
        text_blocks.BLOCK_BYTES = before
