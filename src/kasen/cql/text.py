"""A CQL text with its file name: turns offsets and syntax nodes into places and errors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlglot import exp

from kasen.cql import nodes
from kasen.errors import Place, QueryError


@dataclass(frozen=True, slots=True)
class Text:
    """What the user wrote; `file` is empty for text that is in no file."""

    text: str
    file: str = ""

    def place(self, start: int, end: int | None = None) -> Place:
        """The place of the characters from `start` to `end` (inclusive)."""
        line = self.text.count("\n", 0, start) + 1
        column = start - self.text.rfind("\n", 0, start)
        return Place(line, column, 1 if end is None else max(1, end - start + 1))

    def place_of(self, node: exp.Expr | None) -> Place | None:
        if node is None:
            return None
        start = nodes.start_of(node)
        return None if start is None else self.place(start, nodes.end_of(node))

    def error(self, fault: str, node: exp.Expr | None, remedy: str = "") -> QueryError:
        return QueryError(fault, remedy=remedy, place=self.place_of(node), text=self.text, file=self.file)

    def error_at(self, fault: str, start: int, end: int, remedy: str = "") -> QueryError:
        return QueryError(fault, remedy=remedy, place=self.place(start, end), text=self.text, file=self.file)


def read_file(path: Path) -> str:
    """A file with CQL; QueryError at the first byte that is not UTF-8."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = len(content[: error.start].decode("utf-8"))
        source = Text(content.decode("utf-8", "replace"), str(path))
        raise QueryError(
            f"{path} is not a text in UTF-8: it has the byte {content[error.start]:02X} here",
            remedy="save it in that encoding",
            place=source.place(before),
            text=source.text,
            file=source.file,
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
