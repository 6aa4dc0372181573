"""Hostile csv, JSON and Parquet files: every row is read or refused with a reason, or the file is named."""

from __future__ import annotations

import io
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fuzz.file_reader import FileReader

_CELLS = [
    *(b"", b'""', b'"', b'""""', b'"a"b', b'"a,b"', b'"a\nb"', b'"a\r\nb"', b" ", b"\t", b"\x00", b"\x01"),
    *(b"1", b"-1", b"+1", b"01", b"1.5", b".5", b"5.", b"1e5", b"1e999", b"-1e-999", b"nan", b"inf", b"0x10"),
    *(b"9223372036854775807", b"9223372036854775808", b"9" * 400, b"0." + b"1" * 400, b"true", b"T", b"no"),
    *(b"2026-01-31", b"2026-01-31 23:59:59.999999", b"0000-00-00", b"9999-12-31T23:59:59", b"2026-02-30"),
    *(b"\xff", b"\xc3\xa4", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xef\xbb\xbf", b"x" * 5000),
]
_GOOD = [b"1", b"x", b"-7", b"1.5", b"2.25", b"2026-01-31", b"true"]
_ENDS = [b"\n", b"\n", b"\r\n", b"\r", b"\n\n", b""]
_JSON = [
    *(
        b"1",
        b"-1",
        b"1.0",
        b"1e5",
        b"1e-5",
        b"1e" + b"9" * 30,
        b"9" * 5000,
        b"-0",
        b"null",
        b"true",
        b"false",
    ),
    *(
        b'""',
        b'"a"',
        b'"\\n"',
        b'"\\ud800"',
        b'"\\ud83d\\ude00"',
        b'"\\u0000"',
        b'"\xff"',
        b'"\xc3\xa4"',
        b'"',
    ),
    *(b"[]", b"{}", b"[" * 50 + b"]" * 50, b"[" * 990 + b"]" * 990, b"[" * 3000, b"NaN", b"Infinity", b"tru"),
    *(b'{"a":{"a":1}}', b"\\", b"'a'", b"01", b".5", b"1.", b"+1", b'"2026-01-31"', b'"1"'),
]
_NAMES = [b"ts", b"a", b"i", b"d", b"c", b"t", b"b"]


def csv_file(dice: random.Random) -> bytes:
    rows = []
    for _ in range(dice.randrange(30)):
        width = 7 if dice.random() < 0.8 else dice.randrange(12)
        cells = [dice.choice(_CELLS) if dice.random() < 0.1 else _GOOD[place % 7] for place in range(width)]
        rows.append(b",".join(cells) + dice.choice(_ENDS))
    return b",".join(_NAMES) + b"\n" + b"".join(rows)


def json_file(dice: random.Random) -> bytes:
    rows = []
    for _ in range(dice.randrange(30)):
        names = [
            dice.choice([*_NAMES, b"A", b"x", b"", b"\xc4\xb0", b"\\u0061"]) for _ in range(dice.randrange(9))
        ]
        cells = [b'"' + name + b'":' + dice.choice(_JSON) for name in names]
        rows.append(
            b'{"ts":1' + b"".join(b"," + cell for cell in cells) + dice.choice([b"}", b"}", b"}", b"", b"}}"])
        )
    return b"".join(row + dice.choice(_ENDS) for row in rows)


def parquet_file(dice: random.Random) -> bytes:
    n = dice.randrange(200)
    columns = {
        "ts": pa.array([dice.choice([1, 2, None]) for _ in range(n)], pa.int64()),
        "a": pa.array([dice.choice(["", "x", "ä" * 9, None]) for _ in range(n)], pa.string()),
        "i": pa.array(
            [dice.randrange(9) for _ in range(n)], dice.choice([pa.int8(), pa.int32(), pa.uint64()])
        ),
        "d": pa.array([dice.random() for _ in range(n)], dice.choice([pa.float32(), pa.float64()])),
        "c": pa.array([dice.randrange(9) for _ in range(n)], pa.int32()),
        "t": pa.array([dice.randrange(9) for _ in range(n)], dice.choice([pa.timestamp("ns"), pa.date32()])),
        "b": pa.array([dice.choice([True, None]) for _ in range(n)], pa.bool_()),
    }
    out = io.BytesIO()
    codec = dice.choice(["none", "snappy", "zstd", "gzip"])
    size = dice.choice([10, 1000])
    pq.write_table(
        pa.table(columns), out, compression=codec, row_group_size=size, use_dictionary=dice.random() < 0.5
    )
    return out.getvalue()


def mutated(data: bytes, dice: random.Random) -> bytes:
    """Bytes changed, taken out, put in, doubled; of Parquet mostly near the end, where its numbers are."""
    found = bytearray(data)
    for _ in range(dice.choice([0, 1, 1, 2, 8])):
        if not found:
            break
        at = (
            dice.randrange(len(found))
            if dice.random() < 0.5
            else max(0, len(found) - 1 - dice.randrange(900))
        )
        match dice.randrange(5):
            case 0:
                found[at] = dice.randrange(256)
            case 1:
                found[at] ^= 1 << dice.randrange(8)
            case 2:
                del found[at : at + dice.choice([1, 2, 50])]
            case 3:
                found[at:at] = dice.choice(
                    [b'"', b"\n", b"\r", b",", b"\xff", b"\x00" * 8, b"\xff" * 8, b"{", b"\\"]
                )
            case 4:
                found[at:at] = found[at : at + dice.choice([1, 10, 100])]
    return bytes(found)


_MAKERS = {"csv": csv_file, "json": json_file, "parquet": parquet_file}


@pytest.fixture(scope="module")
def reader() -> Iterator[FileReader]:
    found = FileReader()
    yield found
    found.close()


#: So many files are tried at least, however slow the machine is.
_LEAST = 20


def fuzz(reader: FileReader, folder: Path, form: str, seconds: float, first: int) -> Counter[str]:
    """Tries files until the time is over; the number of a file tells all of it."""
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    path = folder / f"hostile.{form}"
    while time.monotonic() < end or counts["files"] < _LEAST:
        number = first + counts["files"]
        dice = random.Random(f"{form} {number}")
        path.write_bytes(mutated(_MAKERS[form](dice), dice))
        found = reader.read(path)
        assert not found.fault, f"{form} file {number}: {found.fault}"
        counts += Counter(files=1, rows=found.rows, refused=found.refused, errors=bool(found.error))
    return counts


@pytest.mark.parametrize("form", _MAKERS)
def test_hostile_files_end_in_rows_refusals_or_an_error(
    reader: FileReader, form: str, tmp_path: Path
) -> None:
    counts = fuzz(reader, tmp_path, form, 3.0, 0)
    assert counts["files"] >= _LEAST
    assert counts["rows"] > 0
    assert counts["refused"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("form", _MAKERS)
def test_many_hostile_files_end_in_rows_refusals_or_an_error(
    reader: FileReader, form: str, tmp_path: Path
) -> None:
    print(form, dict(fuzz(reader, tmp_path, form, 90.0, 1_000_000)))


def test_a_process_that_reads_too_long_or_dies_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits of the fuzzer itself hold."""
    reader = FileReader()
    try:
        monkeypatch.setattr("tests.fuzz.file_reader.MOST_SECONDS", 0.0)
        (tmp_path / "s.csv").write_bytes(b"ts,a,i,d,c,t,b\n" + b"1,x,,,,,\n" * 200_000)
        assert reader.read(tmp_path / "s.csv").fault == "longer than 0.0 s"
        monkeypatch.setattr("tests.fuzz.file_reader.MOST_SECONDS", 60.0)
        assert reader.read(tmp_path / "s.csv").rows == 200_000
    finally:
        reader.close()
