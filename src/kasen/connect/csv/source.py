"""csv files with a header: columns by name, an empty field is NULL, "" the empty string.

Kasen reads csv itself and not by way of Arrow, whose reader takes 0x10 for an integer and 12:30 for a time,
stops at the first bad row, and does not say which line a row was on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kasen.connect.files import FileSource, need_files
from kasen.connect.layout import ColumnPositions, Layout, find_columns
from kasen.connect.text import blocks as text_blocks
from kasen.connect.text.blocks import TextBlocks
from kasen.connect.text.reader import Spans, TextReader
from kasen.connect.values import BAD_ROW, RefusedRow
from kasen.engine.batch import I64
from kasen.engine.text.kernels.csv_scan import CUT, DONE, find_endless, scan_csv
from kasen.errors import DataError

_BOM = b"\xef\xbb\xbf"
#: Nobody has so many columns; a quote that is not closed must not make a header of a whole file.
MOST_HEADER_BYTES = 1 << 20


def csv_source(path: Path, layout: Layout, chunk_rows: int) -> FileSource:
    """Looks at every file's header at once, so that a missing column is told before anything runs."""
    files = need_files(path, "csv", layout.name)
    many = path.is_dir()
    return FileSource([_reader(file, layout, many, chunk_rows) for file in files])


def _reader(file: Path, layout: Layout, many: bool, chunk_rows: int) -> TextReader:
    header, begin, line = read_header(file, layout.name)
    scanner = CsvScanner(header, find_columns(layout, header, str(file)))
    return TextReader(file, layout, scanner, begin, line, f" ({file.name})" if many else "", chunk_rows)


def read_header(path: Path, stream: str) -> tuple[list[str], int, int]:
    """The column names, and the byte and the line at which the rows begin."""
    with path.open("rb") as file:
        return header_of(file, str(path), stream)


def header_of(file: BinaryIO, path: str, stream: str) -> tuple[list[str], int, int]:
    spans = Spans(1, 1)
    begin = len(_BOM) if file.read(len(_BOM)) == _BOM else 0
    text = TextBlocks(file, begin, 1)
    n, why = 0, DONE
    while n == 0 and not _is_long(text, why) and text.more():
        n, text.pos, text.line, why = _scan(text, MOST_HEADER_BYTES, np.empty(0, np.int64), spans)
    if n == 0 and why == CUT:
        fault = f"the header does not end within {MOST_HEADER_BYTES} bytes, or a quote in it is not closed"
        raise DataError(f"{stream}: {path}, line {text.line}: {fault}")
    if n == 0:
        raise DataError(f"{stream}: {path} is empty; a csv file begins with a header that names its columns")
    try:
        header = text.bytes[spans.rows[0, 0] : spans.rows[1, 0]].decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{stream}: {path} is not UTF-8 text") from None
    return [(name or "").strip() for name in split_record(header)], text.offset, text.line


def _is_long(text: TextBlocks, why: int) -> bool:
    return why == CUT and len(text.bytes) - text.pos > MOST_HEADER_BYTES + 1


def _scan(text: TextBlocks, most: int, fields: I64, spans: Spans) -> tuple[int, int, int, int]:
    at = text.data, text.pos, text.line, text.final
    arrays = spans.starts, spans.ends, spans.marks, spans.rows
    n, pos, line, why = scan_csv(*at, most, text.endless, fields, *arrays)
    return n, pos, line, why


class CsvScanner:
    """Reads records of one file."""

    line_end = re.compile(rb"\r\n?|\n")

    def __init__(self, header: list[str], found: ColumnPositions) -> None:
        self._header = [name.lower() for name in header]
        self._fields = np.full(len(header), -1, np.int64)
        wanted = found.wanted
        self._fields[list(wanted)] = range(len(wanted))
        self.sure = len(header)
        self.slots = ColumnPositions(
            tuple(wanted.index(column) for column in found.columns),
            None if found.diff is None else wanted.index(found.diff),
        )

    def scan(self, text: TextBlocks, spans: Spans) -> tuple[int, int, int, int]:
        return _scan(text, text_blocks.MOST_RECORD_BYTES, self._fields, spans)

    def look_ahead(self, text: TextBlocks) -> bool:
        if len(text.endless):
            return False
        text.endless = np.zeros(len(text.bytes), np.uint8)
        find_endless(text.data, text.pos, text.final, text_blocks.MOST_RECORD_BYTES, text.endless)
        return True

    def cells(self, raw: str) -> Mapping[str, object]:
        fields = split_record(raw)
        if len(fields) != len(self._header):
            many = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
            raise RefusedRow(f"{BAD_ROW}: {many}, {len(self._header)} expected")
        return dict(zip(self._header, fields, strict=True))


def split_record(text: str) -> list[str | None]:
    """The fields of one record, as the kernel scan_csv sees them; None is an empty field without quotes."""
    fields: list[str | None] = []
    pos = 0
    while True:
        begin = pos
        field = ""
        if text.startswith('"', pos):
            field, pos = _quoted(text, pos + 1)
        end = text.find(",", pos)
        end = len(text) if end < 0 else end
        fields.append(None if end == begin else field + text[pos:end])
        if end == len(text):
            return fields
        pos = end + 1


#: The rest of a quoted field, and its closing quote; what must be there is there, as the kernel has seen it.
_TO_CLOSING_QUOTE = re.compile(r'([^"]*+(?:""[^"]*+)*+)"')


def _quoted(text: str, pos: int) -> tuple[str, int]:
    """The text up to the closing quote, and the place behind it."""
    found = _TO_CLOSING_QUOTE.match(text, pos)
    assert found is not None
    return found[1].replace('""', '"'), found.end()
