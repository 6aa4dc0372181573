"""What a source yields: rows parsed to their schema, what was refused, and where to go on from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa

from kasen.engine.batch import I64, Columns


class DeadLetter(NamedTuple):
    """A row that was refused: its stream, its 1-based line in its file, why, and its text."""

    stream: str
    line: int
    reason: str
    raw: str


class Position(NamedTuple):
    """Where a source has been read to: a file's name, how far (bytes, or rows of Parquet), the next line.

    Files are read in the order of their names, so this also tells which files have been read wholly.
    """

    file: str = ""
    offset: int = 0
    line: int = 1


START = Position()


@dataclass(slots=True)
class Chunk:
    """Rows in source order.

    `data` has the columns and the NULL bits, as in a batch, except that a VARCHAR column holds indices into
    its `texts`. Its arrays may be memory that others lend: they are never changed. `lines` are the rows'
    1-based line numbers, `diff` is +1 or -1. Everything up to `end` is in this chunk and those before it: as
    a row in `data`, or refused and in `dead` (in order of line).
    """

    stream: str
    data: Columns
    texts: dict[int, pa.StringArray]
    lines: I64 | range
    diff: I64
    dead: list[DeadLetter]
    end: Position
    raw_of: Callable[[int], str] = field(repr=False)
    where: str = ""
    on_expect: Callable[[list[int]], None] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.lines)

    def raw(self, row: int) -> str:
        """The row's text in the source."""
        return self.raw_of(row)

    def expect(self, rows: list[int]) -> None:
        """Says which rows will be refused: some sources must read their texts again, best all at once."""
        if rows and self.on_expect is not None:
            self.on_expect(rows)

    def refuse(self, row: int, reason: str) -> DeadLetter:
        """The dead letter of a row that a later step refuses, such as a late one."""
        return DeadLetter(self.stream, int(self.lines[row]), reason + self.where, self.raw(row))


class Source(Protocol):
    """Something to read an input's rows from."""

    def chunks(self, start: Position = START) -> Iterator[Chunk]:
        """The rows after `start`, which is START or the `end` of an earlier chunk, in chunks.

        Neither rows nor dead letters depend on how they are cut into chunks. A chunk may have dead
        letters and no rows.
        """
        ...
