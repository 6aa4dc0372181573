"""Reading of case files: an app with its inputs and expected answers in `/*# name` comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kasen.cql.bound import App
from kasen.types import BIGINT, Schema, Type
from tests.oracle import OutputRow
from tests.oracle.csv_text import records
from tests.oracle.values import parse, text
from tests.paths import TESTS

CASES = TESTS / "cases"
INSTANT_AND_DIFF = ("ts", "seq", "tick", "diff")

_SECTION = re.compile(r"/\*# (.*?)\n(.*?)\*/", re.DOTALL)
_INPUT = re.compile(r"[\w.-]+\.(csv|json)")


@dataclass(frozen=True, slots=True)
class Case:
    """A case file: its whole text (which is a valid app) and its sections by name, in order."""

    path: Path
    text: str
    sections: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        return str(self.path.relative_to(CASES).with_suffix("")) if self.path.is_relative_to(CASES) else ""

    def section(self, name: str) -> str | None:
        return next((body for title, body in self.sections if title == name), None)

    @property
    def queries(self) -> tuple[str, ...]:
        """The queries whose answers are given."""
        special = ("dead_letter", "error", "warning")
        return tuple(t for t, _ in self.sections if t not in special and not _INPUT.fullmatch(t))

    def write_inputs(self, folder: Path) -> None:
        for title, body in self.sections:
            if _INPUT.fullmatch(title):
                content = unpadded(body) if title.endswith(".csv") else body
                (folder / title).write_text(content, encoding="utf-8")


def load(path: Path) -> Case:
    return parse_case(path, path.read_text(encoding="utf-8"))


def parse_case(path: Path, content: str) -> Case:
    sections = tuple((title.strip(), body) for title, body in _SECTION.findall(content))
    titles = [title for title, _ in sections]
    repeated = {title for title in titles if titles.count(title) > 1}
    if repeated or content.count("/*#") != len(sections):
        raise ValueError(f"{path}: sections that are repeated or not closed: {sorted(repeated)}")
    return Case(path, content, sections)


def all_cases() -> list[Case]:
    return [load(path) for path in sorted(CASES.rglob("*.cql"))]


# ---------------------------------------------------------------- cells


def unpadded(body: str) -> str:
    """The csv with the blanks around its cells taken off, line for line."""
    return "".join(",".join(_cells(line)) + "\n" for line in body.splitlines())


def _cells(line: str) -> Iterator[str]:
    """A line's cells as they are written, blanks outside quotes taken off."""
    for cell in re.findall(r'(?:^|,)((?:"(?:[^"]|"")*"|[^,"])*)', line):
        yield cell.strip()


def table(body: str) -> tuple[list[str], list[list[str | None]]]:
    """Header and rows of a section; None is NULL."""
    header, *rows = (row.fields for row in records(unpadded(body)))
    return [name or "" for name in header], rows


def expected_rows(body: str, schema: Schema, time: Type) -> list[OutputRow]:
    """The rows of a query's section, typed as the query's answer is."""
    header, rows = table(body)
    wanted = [*INSTANT_AND_DIFF, *schema.names]
    if [name.lower() for name in header] != [name.lower() for name in wanted]:
        raise AssertionError(f"the section's columns are {header}, the answer's are {wanted}")
    types = [time, BIGINT, BIGINT, BIGINT, *schema.types]
    return [
        tuple(None if cell is None else parse(cell, type_) for cell, type_ in zip(row, types, strict=True))
        for row in rows
    ]


def shown(rows: Iterable[Sequence[object]], schema: Schema, time: Type) -> list[str]:
    """Rows as lines of text, for a reader and for comparing: equal lines are equal rows."""
    types = [time, BIGINT, BIGINT, BIGINT, *schema.types]
    return [
        ", ".join(text(cell, type_) for cell, type_ in zip(row, types, strict=True))  # type: ignore[arg-type]
        for row in rows
    ]


def query_schema(app: App, name: str) -> Schema:
    found = [query for query in app.all_queries if query.name.lower() == name.lower()]
    if not found:
        raise AssertionError(f"the case expects rows of {name!r}, which is no query of the app")
    return found[-1].schema
