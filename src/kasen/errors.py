"""Errors, split by who is at fault.

Every error that a user can cause names the fault, the place and the remedy. The command line turns
the four kinds into exit codes: a wrong query is 2, wrong data is 3, anything else is 1.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOSPC


@dataclass(frozen=True, slots=True)
class Place:
    """A spot in a CQL text: 1-based line and column, and how many characters the mark covers."""

    line: int
    column: int
    length: int = 1


class KasenError(Exception):
    """Base of all errors that Kasen raises on purpose."""

    exit_code = 1


class QueryError(KasenError):
    """The CQL text is wrong: it does not parse, or does not mean anything."""

    exit_code = 2

    def __init__(
        self,
        fault: str,
        *,
        remedy: str = "",
        place: Place | None = None,
        text: str = "",
        file: str = "",
    ) -> None:
        self.fault = fault
        self.remedy = remedy
        self.place = place
        self.text = text
        self.file = file
        super().__init__(fault)

    def __str__(self) -> str:
        lines = [f"error: {self.fault}"]
        if self.place is not None:
            lines += mark(self.text, self.place, self.file)
        if self.remedy:
            lines.append(f"help: {self.remedy}")
        return "\n".join(lines)


class DataError(KasenError):
    """The input is wrong: a missing file, a missing column, a row that does not fit its schema."""

    exit_code = 3


class ResourceError(KasenError):
    """A limit was reached: memory, groups, queries, ticks."""


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Names the file if the disk is full, or cannot be written for another reason."""
    try:
        yield
    except OSError as fault:
        remedy = "; free some space, then run the same command again" if fault.errno == ENOSPC else ""
        raise ResourceError(f"cannot write {path}: {fault.strerror or fault}{remedy}") from None


class InternalError(KasenError):
    """Kasen itself is at fault; please report it."""


_WIDEST = 100


def mark(text: str, place: Place, file: str = "") -> list[str]:
    """The source line that `place` is on, with a mark under the fault, as lines to print."""
    where = f"{file or 'line'}{':' if file else ' '}{place.line}:{place.column}"
    lines = text.split("\n")
    if not 1 <= place.line <= len(lines):
        return [f"  --> {where}"]
    source = lines[place.line - 1].rstrip("\r")
    before, marked, after = _excerpt(source, place)
    gutter = str(place.line)
    blank = " " * len(gutter)
    return [
        f"  --> {where}",
        f" {blank} |",
        f" {gutter} | {before}{marked}{after}".rstrip(),
        f" {blank} | {' ' * _width(before)}{'^' * max(1, _width(marked))}",
    ]


def _excerpt(source: str, place: Place) -> tuple[str, str, str]:
    """What stands before, under and behind the mark, of a long line only what is near it."""
    # A tab or another control character would shift the mark, as terminals choose what it does.
    if not source.isprintable():
        source = "".join(char if char.isprintable() else " " for char in source)
    start = place.column - 1
    end = start + max(1, place.length)
    before, marked, after = source[:start], source[start:end], source[end:]
    if len(source) > _WIDEST:
        if len(before) > 40:
            before = "..." + before[-37:]
        if len(marked) > 40:
            marked, after = marked[:40], "..."
        if len(after) > 20:
            after = after[:17] + "..."
    return before, marked, after


def _width(text: str) -> int:
    """How many columns a terminal takes for a text: East Asian characters take two."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )
