"""What to read from a source, and where it lies in a file that has columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kasen.errors import DataError
from kasen.types import MAX_TEXT_BYTES, Schema


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that an input reads.

    `schema` has all of them, an undeclared TIMESTAMP BY column too; `timestamp` is that column's index, or
    None if rows carry no time. `diff` names the column that tells whether a row enters (1) or leaves (-1);
    None if all rows enter. Such a column may be absent, and then all rows enter, unless it `must_diff`.
    Texts have at most `max_text_bytes` bytes of UTF-8.
    """

    name: str
    schema: Schema
    timestamp: int | None = None
    diff: str | None = None
    must_diff: bool = False
    max_text_bytes: int = MAX_TEXT_BYTES

    @property
    def width(self) -> int:
        return len(self.schema)


@dataclass(frozen=True, slots=True)
class ColumnPositions:
    """For every column of a layout's schema its index in a file, and the diff column's, if there is one."""

    columns: tuple[int, ...]
    diff: int | None

    @property
    def wanted(self) -> tuple[int, ...]:
        """The file's columns that are read, each once, in the file's order."""
        diff = () if self.diff is None else (self.diff,)
        return tuple(sorted({*self.columns, *diff}))


def find_columns(layout: Layout, have: Sequence[str], file: str) -> ColumnPositions:
    """Finds the layout's columns among a file's, by name, in any order and case, or raises DataError."""
    names = [name.strip().lower() for name in have]
    columns = tuple(_find(layout, field.name, names, have, file) for field in layout.schema)
    diff = None
    if layout.diff is not None and (layout.must_diff or layout.diff.lower() in names):
        diff = _find(layout, layout.diff, names, have, file)
    return ColumnPositions(columns, diff)


def _find(layout: Layout, wanted: str, names: list[str], have: Sequence[str], file: str) -> int:
    count = names.count(wanted.lower())
    if count == 1:
        return names.index(wanted.lower())
    fault = "no column" if count == 0 else f"{count} columns named"
    there = ", ".join(name.strip() for name in have) or "none"
    raise DataError(f"{layout.name}: {file} has {fault} {wanted!r}; its columns are: {there}")
