"""Files of JSON lines as sources."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from kasen.connect.text import blocks as text_blocks
from kasen.errors import DataError
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, decimal
from tests.connect.reading import read_path, schema_of

AB = schema_of(a=INTEGER, b=VARCHAR)


def write(folder: Path, *lines: str, end: str = "\n") -> Path:
    path = folder / "s.json"
    path.write_text("".join(line + end for line in lines), encoding="utf-8", newline="")
    return path


def test_names_in_any_order_and_case_and_a_missing_one_is_null(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"b": "x", "a": 1}',
        '{"A": 2, "more": 3, "B": "y"}',
        '{"a": null}',
        "{}",
        '{"b": "", "nested": {"a": [1, 2]}, "a": 3}',
    )
    read = read_path(path, AB)
    assert read.rows == [(1, "x"), (2, "y"), (None, None), (None, None), (3, "")]
    assert read.dead == []


def test_every_type_is_read(tmp_path: Path) -> None:
    schema = schema_of(f=BOOLEAN, i=INTEGER, l=BIGINT, x=DOUBLE, p=decimal(5, 2), t=VARCHAR, w=TIMESTAMP)
    path = write(
        tmp_path,
        '{"f": true, "i": 5.0, "l": 9000000000, "x": 3, "p": 2.005, "t": "河\\n川", "w": "2026-01-01"}',
        '{"f": "F", "i": "-1", "l": 1e3, "x": "NaN", "p": "2.5", "t": "", "w": 1000000}',
    )
    first, second = read_path(path, schema).rows
    assert first == (True, 5, 9000000000, 3.0, Decimal("2.01"), "河\n川", datetime(2026, 1, 1))
    assert second[:3] + second[4:] == (False, -1, 1000, Decimal("2.50"), "", datetime(1970, 1, 1, 0, 0, 1))
    assert second[3] != second[3]


def test_bad_lines_go_to_the_dead_letter_and_the_others_go_on(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{"a": 1, "b": "x"}',
        '{"a": 2, "b": "x"',
        "",
        "[1, 2]",
        '{"a": "many"}',
        '{"a": 5.5}',
        '{"a": true}',
        '{"a": 1, "b": 2}',
        '{"a": 2147483648}',
        '{"a": 1, "b": ["x"]}',
        '{"a": 9, "b": "y"} x',
        '{"a": 3, "b": "z"}',
    )
    read = read_path(path, AB)
    assert (read.rows, read.lines) == ([(1, "x"), (3, "z")], [1, 12])
    assert [(line, reason) for line, reason, _ in read.dead] == [
        (2, "bad row: not JSON: Expecting ',' delimiter at column 18"),
        (4, "bad row: not a JSON object"),
        (5, "bad value: column a is not an INTEGER: many"),
        (6, "bad value: column a is not an INTEGER: 5.5"),
        (7, "bad value: column a is not an INTEGER: true"),
        (8, "bad value: column b is not a VARCHAR: 2"),
        (9, "bad value: column a is not an INTEGER: 2147483648"),
        (10, "bad value: column b is not a VARCHAR: ['x']"),
        (11, "bad row: not JSON: Extra data at column 20"),
    ]
    assert read.dead[0][2] == '{"a": 2, "b": "x"'


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a": ' + "9" * 10_000 + "}"])
def test_a_line_that_no_parser_can_take_is_a_bad_row(tmp_path: Path, deep: str) -> None:
    read = read_path(write(tmp_path, deep, '{"a": 1}'), AB)
    assert (read.rows, read.lines) == ([(1, None)], [2])
    assert read.dead[0][1].startswith("bad row: not JSON: ")


def test_half_a_character_is_no_text(tmp_path: Path) -> None:
    read = read_path(write(tmp_path, '{"b": "\\ud83d\\ude00"}', '{"b": "\\ud83d"}'), AB)
    assert read.rows == [(None, "😀")]
    assert read.dead[0][1].startswith("bad value: column b is not a VARCHAR")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("block_bytes", [1, 50, 1 << 20])
def test_line_ends_blank_lines_and_blocks_do_not_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, block_bytes: int
) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block_bytes)
    path = write(tmp_path, '\ufeff{"a": 1}', "", "  ", '{"a": 2, "b": "é"}', "oops", end=end)
    path.write_bytes(path.read_bytes() + b'{"a": 3}')
    read = read_path(path, AB, chunk_rows=2)
    assert (read.rows, read.lines) == ([(1, None), (2, "é"), (3, None)], [1, 4, 6])
    assert [line for line, _, _ in read.dead] == [5]


def test_a_line_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 64)
    monkeypatch.setattr(text_blocks, "MOST_RECORD_BYTES", 3000)
    read = read_path(write(tmp_path, '{"a": 1}', '{"b": "' + "y" * 9000 + '"}', '{"a": 2}'), AB)
    assert (read.rows, read.lines) == ([(1, None), (2, None)], [1, 3])
    assert read.dead[0][:2] == (2, "bad row: longer than 3000 bytes")


def test_an_empty_file_is_an_input_without_rows(tmp_path: Path) -> None:
    assert read_path(write(tmp_path), AB) == ([], [], [], [])
    with pytest.raises(DataError, match="no file"):
        read_path(tmp_path / "gone.json", AB)


def test_the_last_of_equal_names_counts(tmp_path: Path) -> None:
    path = write(tmp_path, '{"a": 1, "A": 2}', '{"A": 1, "a": 2, "b": "\\u0061"}')
    assert read_path(path, AB).rows == [(2, None), (2, "a")]


def test_time_and_diff(tmp_path: Path) -> None:
    schema = schema_of(k=INTEGER, ts=BIGINT)
    path = write(
        tmp_path,
        '{"ts": 1, "k": 7}',
        '{"ts": 2, "k": 7, "diff": -1}',
        '{"k": 7}',
        '{"ts": 4, "k": 7, "diff": null}',
        '{"ts": "x", "k": 7}',
        '{"ts": 6, "k": 8, "diff": 1.0}',
    )
    read = read_path(path, schema, timestamp=1, is_relation=True)
    assert (read.rows, read.diffs) == ([(7, 1), (7, 2), (8, 6)], [1, -1, 1])
    assert [(line, reason) for line, reason, _ in read.dead] == [
        (3, "bad timestamp: column ts is NULL"),
        (4, "bad diff: column diff is neither 1 nor -1: NULL"),
        (5, "bad timestamp: column ts is not a BIGINT: x"),
    ]
