"""Reading in bulk and reading row by row come to the same, for any text; and both to what the oracle says."""

from __future__ import annotations

import json
import random
import struct
from decimal import Decimal
from pathlib import Path

import pytest

from kasen.connect.chunk import Chunk
from kasen.connect.csv.source import split_record
from kasen.connect.json.source import JsonScanner
from kasen.connect.layout import Layout
from kasen.connect.registry import open_source
from kasen.connect.values import RefusedRow, Value, from_text, read_row
from kasen.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    TIMESTAMP,
    VARCHAR,
    Connector,
    Kind,
    Schema,
    Type,
    decimal,
)
from tests.connect.reading import schema_of
from tests.oracle import values as oracle
from tests.oracle.csv_text import records

SEEDS = range(6)
ROWS = 1500
TYPES = {
    "f": BOOLEAN,
    "i": INTEGER,
    "l": BIGINT,
    "x": DOUBLE,
    "p": decimal(18, 4),
    "d": decimal(6, 6),
    "q": decimal(9, 0),
    "t": VARCHAR,
    "w": TIMESTAMP,
}
SCHEMA = schema_of(**TYPES)
#: Texts at the edges of what is a value, and pieces to make more of.
EDGES = [
    "+5",
    "-5",
    "005",
    "5.",
    ".5",
    ".",
    "-",
    "+",
    "1e3",
    "1E-3",
    "1e",
    "1e+",
    "1_000",
    "0x10",
    "nan",
    "NaN",
    "nan(1)",
    "inf",
    "-Infinity",
    "TRUE",
    "t",
    "F",
    "0",
    "1",
    "yes",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "999999999999999999",
    "1000000000000000000",
    "9007199254740992",
    "9007199254740993",
    "9007199254740991e22",
    "1e22",
    "1e23",
    "5e-324",
    "0.1",
    "0.30000000000000004",
    "123456.7890123456789",
    "2.2250738585072011e-308",
    "1.7976931348623157e308",
    "1e309",
    "0e999",
    "-0",
    "-0.0",
    "0.99995",
    "0.999949",
    "0.5",
    "0.4999",
    "99999.99995",
    "0.000000499",
    "1.00000000000000000000",
    "0.0000005",
    "2026-01-01",
    "2026-01-01T00:00:00",
    "2026-02-29",
    "2024-02-29",
    "1900-02-29",
    "2000-02-29",
    "0001-01-01",
    "9999-12-31",
    "0000-01-01",
    "2026-13-01",
    "2026-00-10",
    "2026-01-00",
    "2026-01-32",
    "2026-01-01T23:59:59.999999",
    "2026-01-01T23:59:60",
    "2026-01-01T00:00",
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.1234567",
    "2026-01-01T00:00:00.",
    "26-01-01",
]
PIECES = [
    *"0123456789",
    *"+-.eE:T tfaxI,",
    "00",
    "99",
    "2026-",
    "-01",
    ":00",
    '"',
    '""',
    "\n",
    "\r\n",
    "é",
    "河",
]


def some_text(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(EDGES)
    if kind < 0.5:
        return " " * rng.randrange(3) + rng.choice(EDGES) + " " * rng.randrange(3)
    if kind < 0.6:
        return repr(struct.unpack("<d", rng.randbytes(8))[0])
    if kind < 0.75:
        return str(round(rng.uniform(-1000, 1000), rng.randrange(8)))
    return "".join(rng.choices(PIECES, k=rng.randrange(8)))


def good_text(rng: random.Random, type_: Type) -> str:
    """Mostly values of the type, so that whole rows are good now and then."""
    if rng.random() < 0.15:
        return some_text(rng)
    match type_.kind:
        case Kind.BOOLEAN:
            return rng.choice(["true", "False", "1", "t"])
        case Kind.TIMESTAMP:
            day = f"{rng.randrange(1, 9999):04d}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
            return day + rng.choice(["", " 01:02:03", "T23:59:59.5"])
        case Kind.VARCHAR:
            return "".join(rng.choices(PIECES, k=rng.randrange(5)))
    return rng.choice(["0.25", "0.1"]) if type_ == TYPES["d"] else str(rng.randrange(-99999, 99999))


def csv_field(rng: random.Random, text: str) -> str:
    if text.startswith('"') or any(char in text for char in ",\r\n") or rng.random() < 0.2:
        return '"' + text.replace('"', '""') + '"' + ("x" if rng.random() < 0.02 else "")
    return text


def expected(layout: Layout, cells: dict[str, object]) -> list[Value] | str:
    try:
        return read_row(layout, cells)[0]
    except RefusedRow as refused:
        return str(refused)


def outcomes(chunks: list[Chunk], schema: Schema) -> dict[int, list[Value] | str]:
    """By line, what came of a row: its values, or why it was refused."""
    found: dict[int, list[Value] | str] = {}
    for chunk in chunks:
        texts = {index: column.to_pylist() for index, column in chunk.texts.items()}
        for row, line in enumerate(map(int, chunk.lines)):
            values: list[Value] = []
            for index in range(len(schema)):
                value = int(chunk.data[index][row])
                if chunk.data[-1][row] >> index & 1:
                    assert value == 0
                    values.append(None)
                else:
                    values.append(texts[index][value] if index in texts else value)
            found[line] = values
        found |= {letter.line: letter.reason for letter in chunk.dead}
    return found


def read(path: Path, schema: Schema, timestamp: int | None = None) -> dict[int, list[Value] | str]:
    connector = Connector(path.suffix[1:], (("path", path.name),))
    source = open_source(connector, path.parent, "s", schema, timestamp, chunk_rows=97)
    return outcomes(list(source.chunks()), schema)


@pytest.mark.parametrize("seed", SEEDS)
def test_csv_is_read_alike_in_bulk_and_row_by_row(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    lines = [",".join(TYPES)]
    for _ in range(ROWS):
        fields = [csv_field(rng, good_text(rng, type_)) for type_ in TYPES.values()]
        if rng.random() < 0.02:
            fields = fields[: rng.randrange(1, 9)] + ["7"] * rng.randrange(3)
        lines.append(",".join(fields))
    text = "\n".join(lines)
    (tmp_path / "s.csv").write_bytes(text.encode())
    layout = Layout("s", SCHEMA, timestamp=8)
    want: dict[int, list[Value] | str] = {}
    for record in records(text)[1:]:
        fields_read = split_record(record.raw)
        assert fields_read == record.fields, f"seed {seed}"
        if len(fields_read) == len(TYPES):
            want[record.line] = expected(layout, dict(zip(TYPES, fields_read, strict=True)))
        else:
            many = "1 field" if len(fields_read) == 1 else f"{len(fields_read)} fields"
            want[record.line] = f"bad row: {many}, {len(TYPES)} expected"
    found = read(tmp_path / "s.csv", SCHEMA, timestamp=8)
    assert found == want, f"seed {seed}"
    good = sum(isinstance(each, list) for each in want.values())
    assert 100 < good < ROWS - 100


@pytest.mark.parametrize("type_", TYPES.values(), ids=str)
def test_a_column_of_odd_texts_is_read_alike(tmp_path: Path, type_: Type) -> None:
    rng = random.Random(str(type_))
    texts = EDGES + [some_text(rng) for _ in range(3000)]
    rows = [csv_field(rng, text) + ",1" for text in texts]
    text = "v,n\n" + "\n".join(rows)
    (tmp_path / "s.csv").write_bytes(text.encode())
    schema = schema_of(v=type_)
    want = {
        record.line: expected(Layout("s", schema), {"v": record.fields[0]}) for record in records(text)[1:]
    }
    assert read(tmp_path / "s.csv", schema) == want


@pytest.mark.parametrize("type_", TYPES.values(), ids=str)
def test_texts_mean_what_the_oracle_says(type_: Type) -> None:
    rng = random.Random(str(type_))
    for text in EDGES + [some_text(rng) for _ in range(3000)]:
        try:
            want = oracle.parse(text, type_)
        except ValueError:
            with pytest.raises(ValueError, match=r".*"):
                from_text(text, type_)
            continue
        found = from_text(text, type_)
        if isinstance(want, float):
            assert found == struct.unpack("<q", struct.pack("<d", want))[0]
        elif isinstance(want, Decimal):
            assert found == int(want.scaleb(type_.scale, oracle.EXACT))
        else:
            assert found == want


def json_value(rng: random.Random, type_: Type) -> str:
    kind = rng.random()
    if kind < 0.55:
        text = good_text(rng, type_)
        return json.dumps(text, ensure_ascii=rng.random() < 0.2)
    if kind < 0.8:
        return rng.choice(
            ["5", "5.0", "-0", "1e2", "0.25", "2147483648", "1.5", "-7", "00", "1.", "123456789012"]
        )
    return rng.choice(
        ["null", "true", "false", "[1]", "{}", "nul", "NaN", '"a\\nb"', '"\\ud800"', '"tab\there"', "-"]
    )


def json_line(rng: random.Random) -> str:
    names = [
        rng.choice([name, name.upper(), "other", f"{name} "]) if rng.random() < 0.1 else name
        for name in TYPES
    ]
    rng.shuffle(names)
    blank = rng.choice(["", " ", "\t "])
    types = {name.lower(): type_ for name, type_ in TYPES.items()}
    pairs = [
        f'"{name}"{blank}:{blank}'
        + (
            json_value(rng, types.get(name.lower(), VARCHAR))
            if rng.random() < 0.2
            else plain(rng, types, name)
        )
        for name in names[: rng.randrange(1, 10)]
    ]
    line = (
        blank
        + "{"
        + f"{blank},{blank}".join(pairs)
        + "}"
        + rng.choice(["", "", "\r", " ", "}"][: 4 + (rng.random() < 0.1)])
    )
    if rng.random() < 0.05:
        at = rng.randrange(len(line))
        line = line[:at] + rng.choice(['"', ",", "\\", "é", "}", ""]) + line[at + 1 :]
    return line


def plain(rng: random.Random, types: dict[str, Type], name: str) -> str:
    """Mostly a value of the column's type."""
    match types.get(name.lower(), VARCHAR).kind:
        case Kind.BOOLEAN:
            return rng.choice(["true", "false", "null"])
        case Kind.VARCHAR:
            return json.dumps(rng.choice(["", "x", "河川", "a b"]), ensure_ascii=False)
        case Kind.TIMESTAMP:
            return rng.choice(['"2026-01-01"', "123456"])
    return rng.choice(["0", "0.25", "-0.5"]) if name.lower() in "xdp" else str(rng.randrange(-999, 999))


@pytest.mark.parametrize("seed", SEEDS)
def test_json_is_read_alike_in_bulk_and_row_by_row(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    lines = [json_line(rng) for _ in range(ROWS)]
    (tmp_path / "s.json").write_bytes("\n".join(lines).encode())
    layout = Layout("s", SCHEMA)
    scanner = JsonScanner(layout)
    want: dict[int, list[Value] | str] = {}
    for number, line in enumerate(lines, 1):
        try:
            want[number] = expected(layout, dict(scanner.cells(line)))
        except RefusedRow as refused:
            want[number] = str(refused)
    found = read(tmp_path / "s.json", SCHEMA)
    assert found == want, f"seed {seed}"
    good = sum(isinstance(each, list) for each in want.values())
    assert 100 < good < ROWS - 100
