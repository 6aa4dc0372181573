"""csv text to fields, telling the empty field (NULL) from the quoted empty field (the empty string)."""

from __future__ import annotations

from typing import NamedTuple


class CsvRow(NamedTuple):
    """A row: the line it starts on, its text, and its fields (None where a field is empty and unquoted)."""

    line: int
    raw: str
    fields: list[str | None]


def records(text: str) -> list[CsvRow]:
    """The rows of a csv text. Quotes may hold commas, line ends, doubled quotes; blank lines are skipped."""
    rows = []
    position, line = 0, 1
    while position < len(text):
        start = position
        fields: list[str | None] = []
        while True:
            field, position = _field(text, position)
            fields.append(field)
            if position >= len(text) or text[position] != ",":
                break
            position += 1
        raw = text[start:position]
        if text.startswith("\r\n", position):
            position += 2
        elif position < len(text):
            position += 1
        if raw:
            rows.append(CsvRow(line, raw, fields))
        line += text.count("\n", start, position)
    return rows


def _field(text: str, position: int) -> tuple[str | None, int]:
    """The field that starts at `position`, and where it ends."""
    if not text.startswith('"', position):
        end = position
        while end < len(text) and text[end] not in ",\r\n":
            end += 1
        return text[position:end] or None, end
    found = ""
    position += 1
    while position < len(text):
        if text.startswith('""', position):
            found, position = found + '"', position + 2
        elif text[position] == '"':
            position += 1
            break
        else:
            found, position = found + text[position], position + 1
    # Whatever stands between the closing quote and the comma belongs to the field.
    if position < len(text) and text[position] not in ',"\r\n':
        rest, position = _field(text, position)
        found += rest or ""
    return found, position
