"""The time to read a text file grows with its bytes, whatever they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kasen.connect.csv import source as csv_source
from kasen.connect.registry import open_source
from kasen.connect.text import blocks as text_blocks
from kasen.connect.values import from_text
from kasen.errors import DataError
from kasen.text_values import parse_text
from kasen.types import BIGINT, DOUBLE, INTEGER, VARCHAR, Connector, Kind, Type
from tests.connect.reading import read_path, schema_of

SCHEMA = schema_of(ts=BIGINT, a=VARCHAR, d=DOUBLE, i=INTEGER, c=Type(Kind.DECIMAL, 10, 2))
HEADER = b"ts,a,d,i,c\n"

#: What doubling the bytes may cost. Twice over, so that noise has less weight.
MOST_GROWTH = 2.5**2

#: Bytes of the shorter file, and the seconds below which a machine that has other work shows no ratios. What
#: takes the square of the bytes takes seconds for the longer file.
SIZE, NOTHING = 1 << 16, 0.1

Make = Callable[[int], bytes]

CSV: dict[str, Make] = {
    "stray quotes at the end of each line": lambda n: b'"","a","\n' * (n // 8),
    "a quote on each line, the last one not closed": lambda n: b'"\n' * (n // 2) + b'"',
    "lines that are complete and lines that never are, in turn": lambda n: b'1,x\n"","a","\n' * (n // 12),
    "a refused row of quotes in quotes": lambda n: b'1,"' + b'""' * (n // 2) + b'"\n',
    "a row of quotes in quotes": lambda n: b'1,"' + b'""' * (n // 2) + b'",1,1,1\n',
    "empty lines": lambda n: b"\n" * n,
    "lines of CR": lambda n: b"\r" * n,
    "a row of commas": lambda n: b"," * n + b"\n",
    "rows that are not UTF-8": lambda n: b"1,\xff\n" * (n // 4),
    "a row that is not UTF-8": lambda n: b"1," + b"\xff" * n + b",1,1,1\n",
    "digits that are no DOUBLE": lambda n: b"1,x," + b"1" * n + b"x,1,1\n",
    "zeros that are no INTEGER": lambda n: b"1,x,1," + b"0" * n + b"x,1\n",
    "zeros that are no DECIMAL": lambda n: b"1,x,1,1," + b"0" * n + b"x\n",
    "a DOUBLE of many digits": lambda n: b"1,x,0." + b"1" * n + b",1,1\n",
    "blanks around nothing": lambda n: b"1,x,1," + b" " * n + b"x,1\n",
}
JSON: dict[str, Make] = {
    "deep nesting": lambda n: b'{"ts":1,"a":' + b"[" * (n // 2) + b"]" * (n // 2) + b"}\n",
    "rows of nested values": lambda n: (b'{"ts":1,"a":' + b"[" * 200 + b"]" * 200 + b"}\n") * (n // 414),
    "escapes": lambda n: b'{"ts":1,"a":"' + b"\\n" * (n // 2) + b'"}\n',
    "halves of surrogate pairs": lambda n: b'{"ts":1,"a":"' + b"\\ud800" * (n // 6) + b'"}\n',
    "one name again and again": lambda n: b"{" + b'"a":1,' * (n // 6) + b'"ts":1}\n',
    "blanks": lambda n: b" " * n + b"\n",
    "empty lines": lambda n: b"\n" * n,
    "a number of many digits": lambda n: b'{"ts":1,"d":0.' + b"1" * n + b"}\n",
    "an exponent of many digits": lambda n: b'{"ts":1,"i":1e' + b"9" * n + b"}\n",
    "digits in a text that are no DOUBLE": lambda n: b'{"ts":1,"d":"' + b"1" * n + b'x"}\n',
    "rows that are not UTF-8": lambda n: b'{"ts":1,"a":"\xff"}\n' * (n // 17),
    "objects that are not closed": lambda n: b'{"ts":1,"a":"' * (n // 13) + b"\n",
}


def seconds(path: Path) -> float:
    connector = Connector(path.suffix.removeprefix("."), (("path", path.name),))
    best = float("inf")
    for _ in range(2):
        source = open_source(connector, path.parent, "s", SCHEMA, 0, False, 1 << 14)
        began = time.process_time()
        for _chunk in source.chunks():
            pass
        best = min(best, time.process_time() - began)
    return best


def check_growth(path: Path, head: bytes, make: Make) -> None:
    """Other work on the machine may spoil a measurement, but not three; the square spoils all of them."""
    growths = []
    for _ in range(3):
        path.write_bytes(head + make(SIZE))
        once = seconds(path)
        path.write_bytes(head + make(4 * SIZE))
        growths.append(seconds(path) / max(once, NOTHING / MOST_GROWTH))
        if growths[-1] <= MOST_GROWTH:
            return
    raise AssertionError(f"four times the bytes take {growths} times as long")


@pytest.mark.parametrize("name", CSV)
def test_four_times_the_csv_takes_little_more_than_four_times_as_long(tmp_path: Path, name: str) -> None:
    check_growth(tmp_path / "s.csv", HEADER, CSV[name])


@pytest.mark.parametrize("name", JSON)
def test_four_times_the_json_takes_little_more_than_four_times_as_long(tmp_path: Path, name: str) -> None:
    check_growth(tmp_path / "s.json", b"", JSON[name])


@pytest.mark.parametrize("text", ["1" * 200_000 + "x", "." + "1" * 200_000 + "x", "0" * 200_000 + "x"])
@pytest.mark.parametrize("type_", [INTEGER, DOUBLE, Type(Kind.DECIMAL, 10, 2)], ids=str)
def test_a_long_text_that_is_no_number_is_soon_known_to_be_none(text: str, type_: Type) -> None:
    began = time.process_time()
    assert parse_text(text, type_) is None
    with pytest.raises(ValueError, match="text"):
        from_text(text, type_)
    assert time.process_time() - began < 1


def test_stray_quotes_beyond_the_longest_record_cost_their_lines_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.csv"
    path.write_bytes(HEADER + b'"","a","\n' * 3000 + b"2,x,,,\n" + b'"","a","\n' * 50)
    whole = read_path(path, SCHEMA, timestamp=0)
    assert whole.rows == [(2, "x", None, None, None)]
    assert len(whole.dead) == 3050
    for block, most in ((64, 300), (1 << 12, 300), (64, 1000), (1 << 14, 1000)):
        monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block)
        monkeypatch.setattr(text_blocks, "MOST_RECORD_BYTES", most)
        assert read_path(path, SCHEMA, timestamp=0) == whole


@pytest.mark.parametrize("length", [97, 98, 99, 100, 101, 102, 103])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_which_record_is_too_long_does_not_depend_on_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, end: bytes
) -> None:
    """A row that is plain text, one that is in quotes, and one with a line end in quotes."""
    monkeypatch.setattr(text_blocks, "MOST_RECORD_BYTES", 100)
    plain = b"1," + b"x" * (length - 2)
    quoted = b'2,"' + b"y" * (length - 4) + b'"'
    lines = b'3,"a' + end + b"z" * (length - 5 - len(end)) + b'"'
    path = tmp_path / "s.csv"
    path.write_bytes(b"ts,a\n" + end.join([plain, b"7,", quoted, b"8,", lines, b"9,", b""]))
    schema = schema_of(ts=BIGINT, a=VARCHAR)
    reads = []
    for block in (1, 2, 3, 50, 101, 102, 103, 1000):
        monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block)
        reads.append(read_path(path, schema, timestamp=0))
    assert all(read == reads[0] for read in reads)
    times = [row[0] for row in reads[0].rows]
    assert times == ([1, 7, 2, 8, 3, 9] if length <= 100 else [7, 8, 9])
    assert reads[0].lines[-1] == 8


def test_an_exponent_that_no_number_has_makes_a_bad_value_and_ends_nothing(tmp_path: Path) -> None:
    far = "9" * 500
    path = tmp_path / "s.json"
    cells = [f'"i":1e{far}', f'"d":-1e{far}', f'"d":1e-{far}', f'"i":0e{far}', f'"i":1e-{far}']
    path.write_text("".join(f'{{"ts":{ts},{cell}}}\n' for ts, cell in enumerate(cells)))
    read = read_path(path, SCHEMA, timestamp=0)
    assert [row[0] for row in read.rows] == [1, 2, 3]
    assert [row[2] for row in read.rows] == [float("-inf"), 0.0, None]
    assert [dead[0] for dead in read.dead] == [1, 5]


@pytest.mark.parametrize("head", [b'ts,"a\n' + b"x\n" * 2000, b"," * 5000 + b"\n", b'"' + b'""' * 3000])
def test_a_header_without_end_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 64)
    monkeypatch.setattr(csv_source, "MOST_HEADER_BYTES", 1000)
    path = tmp_path / "s.csv"
    path.write_bytes(b"\n\n" + head)
    with pytest.raises(DataError, match=r"s\.csv, line 3: the header does not end within 1000 bytes"):
        read_path(path, SCHEMA, timestamp=0)
