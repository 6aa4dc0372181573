"""Errors, split by who is at fault.

Every error that a user can cause names the fault, the place and the remedy. The command line turns
the four kinds into exit codes: a wrong query is 2, wrong data is 3, anything else is 1.
"""

from __future__ import annotations

from dataclasses import dataclass


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


class InternalError(KasenError):
    """Kasen itself is at fault; please report it."""


def mark(text: str, place: Place, file: str = "") -> list[str]:
    """The source line that `place` is on, with a mark under the fault, as lines to print."""
    where = f"{file or 'line'}{':' if file else ' '}{place.line}:{place.column}"
    lines = text.split("\n")
    if not 1 <= place.line <= len(lines):
        return [f"  --> {where}"]
    # A tab would shift the mark, as its width is the terminal's choice.
    source = lines[place.line - 1].replace("\t", " ").rstrip("\r")
    gutter = str(place.line)
    length = max(1, min(place.length, len(source) - place.column + 1))
    blank = " " * len(gutter)
    return [
        f"  --> {where}",
        f" {blank} |",
        f" {gutter} | {source}",
        f" {blank} | {' ' * (place.column - 1)}{'^' * length}",
    ]
