"""csv files as sources."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from kasen.connect.chunk import Position
from kasen.connect.registry import open_source
from kasen.connect.text import blocks as text_blocks
from kasen.errors import DataError
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, Connector, decimal
from tests.connect.reading import collect, read_path, schema_of

AB = schema_of(a=INTEGER, b=VARCHAR)


def write(folder: Path, content: str | bytes, name: str = "s.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_columns_are_found_by_name_in_any_order_and_case(tmp_path: Path) -> None:
    path = write(tmp_path, "B,unused, A \nx,9,1\ny,,2\n")
    assert read_path(path, AB).rows == [(1, "x"), (2, "y")]


def test_every_type_is_read(tmp_path: Path) -> None:
    schema = schema_of(f=BOOLEAN, i=INTEGER, l=BIGINT, x=DOUBLE, p=decimal(5, 2), t=VARCHAR, w=TIMESTAMP)
    path = write(
        tmp_path,
        "f,i,l,x,p,t,w\n"
        "true,1,9000000000,1.5,2.5,hi,2026-01-01T12:00:00.5\n"
        "0,-1,-1,1e300,-0.25,河,1969-12-31 23:59:59\n"
        ',,,,,"",\n',
    )
    assert read_path(path, schema).rows == [
        (True, 1, 9000000000, 1.5, Decimal("2.50"), "hi", datetime(2026, 1, 1, 12, 0, 0, 500000)),
        (False, -1, -1, 1e300, Decimal("-0.25"), "河", datetime(1969, 12, 31, 23, 59, 59)),
        (None, None, None, None, None, "", None),
    ]


def test_an_empty_field_is_null_and_a_quoted_one_the_empty_string(tmp_path: Path) -> None:
    path = write(tmp_path, 'a,b\n1,\n2,""\n3," "\n')
    assert read_path(path, AB).rows == [(1, None), (2, ""), (3, " ")]


def test_quotes_may_hold_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    path = write(
        tmp_path, 'a,b\n1,"x,y"\n2,"say ""hi"""\n"3","two\nlines\r\nor three"\n4,in"side\n5,"be"hind\n'
    )
    read = read_path(path, AB)
    assert read.rows == [
        (1, "x,y"),
        (2, 'say "hi"'),
        (3, "two\nlines\r\nor three"),
        (4, 'in"side'),
        (5, "behind"),
    ]
    assert read.lines == [2, 3, 4, 7, 8]


def test_bad_rows_go_to_the_dead_letter_with_their_line_and_the_others_go_on(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a,b\n1,x\nten,y\n\n2\n3,z,z\n2147483648,w\n4,v\n",
    )
    read = read_path(path, AB)
    assert read.rows == [(1, "x"), (4, "v")]
    assert read.lines == [2, 8]
    assert read.dead == [
        (3, "bad value: column a is not an INTEGER: ten", "ten,y"),
        (5, "bad row: 1 field, 2 expected", "2"),
        (6, "bad row: 3 fields, 2 expected", "3,z,z"),
        (7, "bad value: column a is not an INTEGER: 2147483648", "2147483648,w"),
    ]


def test_lines_are_counted_through_quotes_and_blank_lines(tmp_path: Path) -> None:
    path = write(tmp_path, 'a,b\n\n1,"x\n\ny"\n\nbad,\n')
    read = read_path(path, AB)
    assert (read.lines, read.dead[0][0]) == ([3], 7)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "end"])
def test_line_ends_of_all_kinds(tmp_path: Path, end: str, last: str) -> None:
    content = end.join(["a,b", "1,x", "", "oops,y", '2,"p\nq"', "3,z"]) + (end if last else "")
    read = read_path(write(tmp_path, content), AB)
    assert read.rows == [(1, "x"), (2, "p\nq"), (3, "z")]
    assert read.lines == [2, 5, 7]
    assert read.dead == [(4, "bad value: column a is not an INTEGER: oops", "oops,y")]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    read = read_path(write(tmp_path, b"\xef\xbb\xbfa,b\n1,x\n"), AB)
    assert (read.rows, read.lines) == ([(1, "x")], [2])


def test_a_header_alone_is_an_input_without_rows(tmp_path: Path) -> None:
    for content in ("a,b\n", "a,b", "\n\na,b\n\n"):
        assert read_path(write(tmp_path, content), AB) == ([], [], [], [])


def test_an_empty_file_lacks_its_header(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"s: .*s\.csv is empty; a csv file begins with a header"):
        read_path(write(tmp_path, ""), AB)


def test_a_missing_column_is_named_beside_those_that_are_there(tmp_path: Path) -> None:
    path = write(tmp_path, "x,a\n1,2\n")
    with pytest.raises(DataError, match=r"s: .*s\.csv has no column 'b'; its columns are: x, a"):
        read_path(path, AB)
    with pytest.raises(DataError, match="has 2 columns named 'a'"):
        read_path(write(tmp_path, "a,b,A\n"), AB)


def test_a_missing_file_is_named_beside_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, "a,b\n", "other.csv")
    with pytest.raises(DataError, match=r"s: no file .*gone\.csv; .* has: other\.csv"):
        read_path(tmp_path / "gone.csv", AB)


def test_text_that_is_not_utf8_is_a_bad_row(tmp_path: Path) -> None:
    read = read_path(write(tmp_path, b"a,b\n1,caf\xe9\n2,caf\xc3\xa9\n3,x\n"), AB)
    assert read.rows == [(2, "café"), (3, "x")]
    assert read.dead == [(2, "bad row: not UTF-8 text", "1,caf\\xe9")]
    with pytest.raises(DataError, match="is not UTF-8 text"):
        read_path(write(tmp_path, "a,b\n".encode("utf-16")), AB)


def test_a_quote_that_is_never_closed_costs_one_line(tmp_path: Path) -> None:
    read = read_path(write(tmp_path, 'a,b\n1,x\n2,"oops\n3,y\n4,""\n'), AB)
    assert read.rows == [(1, "x"), (3, "y"), (4, "")]
    assert read.dead == [(3, "bad row: a quote is not closed", '2,"oops')]


def test_a_quote_that_is_not_closed_for_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 64)
    monkeypatch.setattr(text_blocks, "MOST_RECORD_BYTES", 100)
    rows = "".join(f"{number},row\n" for number in range(50))
    read = read_path(write(tmp_path, f'a,b\n7,"oops\n{rows}8,"x"\n'), AB)
    assert [row[0] for row in read.rows] == [*range(50), 8]
    assert read.dead == [(2, "bad row: a quote is not closed", '7,"oops')]
    assert read.lines == [*range(3, 54)]


def test_a_line_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 64)
    monkeypatch.setattr(text_blocks, "MOST_RECORD_BYTES", 3000)
    read = read_path(write(tmp_path, f"a,b\n1,x\n2,{'y' * 9000}\n3,z\n"), AB)
    assert read.rows == [(1, "x"), (3, "z")]
    assert read.lines == [2, 4]
    assert read.dead == [(3, "bad row: longer than 3000 bytes", "2," + "y" * 998 + "...")]


def test_a_huge_line_is_read(tmp_path: Path) -> None:
    huge = "y" * 5_000_000
    path = write(tmp_path, f'a,b\n1,{huge}\n2,"{huge},"\n3,z\n')
    read = read_path(path, AB, max_text_bytes=1 << 24)
    assert read.rows == [(1, huge), (2, huge + ","), (3, "z")]


def test_the_time_column_must_have_a_value(tmp_path: Path) -> None:
    schema = schema_of(a=INTEGER, ts=TIMESTAMP)
    path = write(tmp_path, "ts,a\n2026-01-01 00:00:00,1\n,2\n2026-01-01 00:00,3\n2026-01-01T00:00:00Z,4\n")
    read = read_path(path, schema, timestamp=1)
    assert len(read.rows) == 1
    assert read.dead == [
        (3, "bad timestamp: column ts is NULL", ",2"),
        (4, "bad timestamp: column ts is not a TIMESTAMP: 2026-01-01 00:00", "2026-01-01 00:00,3"),
        (5, "bad timestamp: column ts is not a TIMESTAMP: 2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z,4"),
    ]


def test_a_relations_rows_carry_their_diff(tmp_path: Path) -> None:
    schema = schema_of(k=INTEGER, ts=BIGINT)
    path = write(tmp_path, "ts,diff,k\n1,1,7\n2,-1,7\n3,+1,8\n4,2,8\n5,,8\n6,x,8\n")
    read = read_path(path, schema, timestamp=1, is_relation=True)
    assert (read.rows, read.diffs) == ([(7, 1), (7, 2), (8, 3)], [1, -1, 1])
    assert [reason for _, reason, _ in read.dead] == [
        "bad diff: column diff is neither 1 nor -1: 2",
        "bad diff: column diff is neither 1 nor -1: NULL",
        "bad diff: column diff is neither 1 nor -1: x",
    ]


def test_the_diff_column_may_be_named_declared_or_absent(tmp_path: Path) -> None:
    schema = schema_of(op=VARCHAR, ts=BIGINT)
    path = write(tmp_path, "ts,op\n1,1\n2,-1\n")
    assert read_path(path, schema, 1, True, diff="op") == ([("1", 1), ("-1", 2)], [2, 3], [1, -1], [])
    assert read_path(path, schema, 1, True).diffs == [1, 1]
    with pytest.raises(DataError, match="no column 'gone'"):
        read_path(path, schema, 1, True, diff="gone")


def test_only_relations_over_time_have_diffs(tmp_path: Path) -> None:
    path = write(tmp_path, "ts,diff\n1,oops\n")
    assert read_path(path, schema_of(ts=BIGINT), 0).rows == [(1,)]
    assert read_path(path, schema_of(ts=BIGINT), None, True).rows == [(1,)]


def test_a_folders_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    write(folder, "a,b\n3,z\n", "2.csv")
    write(folder, "b,a\nx,1\ny,oops\n", "1.csv")
    write(folder, "nothing to see", "1.txt")
    write(folder, "a,b\n9,hidden\n", "_0.csv")
    read = read_path(folder, AB, format="csv")
    assert (read.rows, read.lines) == ([(1, "x"), (3, "z")], [2, 2])
    assert read.dead == [(3, "bad value: column a is not an INTEGER: oops (1.csv)", "y,oops")]
    with pytest.raises(DataError, match=r"no \*\.json file in the folder"):
        read_path(folder, AB, format="json")


@pytest.mark.parametrize("chunk_rows", [1, 2, 7, 100])
@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 20])
def test_neither_chunks_nor_blocks_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_rows: int, block_bytes: int
) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", block_bytes)
    content = 'a,b\r\n1,x\r\n\r\noops,"p\r\nq"\r\n2,"r""s"\r\n3\r\n4,河川\r\n5,"'
    read = read_path(write(tmp_path, content), AB, chunk_rows=chunk_rows)
    assert read.rows == [(1, "x"), (2, 'r"s'), (4, "河川")]
    assert read.lines == [2, 6, 8]
    assert [(line, reason.split(":")[0]) for line, reason, _ in read.dead] == [
        (4, "bad value"),
        (7, "bad row"),
        (9, "bad row"),
    ]


def test_reading_goes_on_from_any_chunks_end(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    write(folder, 'a,b\n1,x\noops,\n2,"p\nq"\n', "1.csv")
    write(folder, "b,a\ny,3\nz,oops\nw,4\n", "2.csv")
    source = open_source(Connector("csv", (("path", "parts"),)), tmp_path, "s", AB, chunk_rows=1)
    chunks = list(source.chunks())
    whole = collect(chunks, AB)
    assert len(whole.rows) == 4
    for cut, chunk in enumerate(chunks, 1):
        assert isinstance(chunk.end, Position)
        first, rest = collect(chunks[:cut], AB), collect(source.chunks(chunk.end), AB)
        assert first.then(rest) == whole


def test_a_later_step_may_refuse_a_row(tmp_path: Path) -> None:
    path = write(tmp_path, 'a,b\noops,\n1,x\n2,"y\nz"\n')
    source = open_source(Connector("csv", (("path", path.name),)), tmp_path, "s", AB)
    (chunk,) = source.chunks()
    assert chunk.refuse(1, "late: 2 is below 3") == ("s", 4, "late: 2 is below 3", '2,"y\nz"')
