"""Files of JSON lines: one object a line, columns by name, a missing name is NULL."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np

from kasen.connect.files import FileSource, need_files
from kasen.connect.layout import ColumnPositions, Layout
from kasen.connect.text import blocks as text_blocks
from kasen.connect.text.blocks import TextBlocks
from kasen.connect.text.reader import Spans, TextReader
from kasen.connect.values import BAD_ROW, RefusedRow
from kasen.engine.text.kernels.json_scan import scan_json

_BOM = b"\xef\xbb\xbf"


def json_source(path: Path, layout: Layout, chunk_rows: int) -> FileSource:
    files = need_files(path, "json", layout.name)
    many = path.is_dir()
    return FileSource([_reader(file, layout, many, chunk_rows) for file in files])


def _reader(file: Path, layout: Layout, many: bool, chunk_rows: int) -> TextReader:
    with file.open("rb") as opened:
        begin = len(_BOM) if opened.read(len(_BOM)) == _BOM else 0
    return TextReader(
        file, layout, JsonScanner(layout), begin, 1, f" ({file.name})" if many else "", chunk_rows
    )


class JsonScanner:
    """Reads lines. All files have the same slots: the schema's columns, then the diff column."""

    sure = 1
    line_end = re.compile(rb"\n")

    def __init__(self, layout: Layout) -> None:
        names = [name.lower() for name in layout.schema.names]
        diff = None if layout.diff is None else layout.diff.lower()
        if diff is not None and diff not in names:
            names.append(diff)
        encoded = [name.encode() for name in names]
        self._names = np.frombuffer(bytearray(b"".join(encoded)), np.uint8)
        self._bounds = np.cumsum([0, *(len(name) for name in encoded)], dtype=np.int64)
        self.slots = ColumnPositions(tuple(range(layout.width)), None if diff is None else names.index(diff))

    def scan(self, text: TextBlocks, spans: Spans) -> tuple[int, int, int, int]:
        n, pos, line, why = scan_json(
            text.data,
            text.pos,
            text.line,
            text.final,
            text_blocks.MOST_RECORD_BYTES,
            self._names,
            self._bounds,
            spans.starts,
            spans.ends,
            spans.marks,
            spans.rows,
        )
        return n, pos, line, why

    def look_ahead(self, _: TextBlocks) -> bool:
        return False  # a record is a line, and ends with it

    def cells(self, raw: str) -> Mapping[str, object]:
        try:
            found = json.loads(raw, parse_float=_decimal, object_pairs_hook=_lower)
        except (ValueError, RecursionError) as fault:
            raise RefusedRow(f"{BAD_ROW}: not JSON: {_first_sentence(fault)}") from None
        if not isinstance(found, dict):
            raise RefusedRow(f"{BAD_ROW}: not a JSON object")
        return found


def _lower(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Of a name that is given twice, the last counts, in whatever case."""
    return {name.lower(): cell for name, cell in pairs}


def _decimal(text: str) -> Decimal:
    """The number; one whose exponent Python cannot hold becomes another that is beyond every type."""
    try:
        return Decimal(text)
    except InvalidOperation:
        mantissa, _, exponent = text.lower().partition("e")
        number = Decimal(mantissa)
        return number if not number else _FAR["-" in exponent].copy_sign(number)


#: By whether the exponent is negative.
_FAR = (Decimal("1e1000"), Decimal("1e-1000"))


def _first_sentence(fault: Exception) -> str:
    if isinstance(fault, json.JSONDecodeError):
        return f"{fault.msg} at column {fault.colno}"
    return "nested too deeply" if isinstance(fault, RecursionError) else "a number without end"
