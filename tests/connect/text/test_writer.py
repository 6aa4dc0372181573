"""Rows as text, against the oracle's text of each value."""

from __future__ import annotations

import random
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kasen.connect.decode import decode
from kasen.connect.text.writer import RowWriter, csv_text
from kasen.engine.batch import Batch, double_bits
from kasen.engine.text.dictionary import Dictionary
from kasen.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    TIMESTAMP,
    VARCHAR,
    Kind,
    Schema,
    Type,
    decimal,
)
from tests.connect.reading import schema_of
from tests.oracle.values import text

SCHEMA = schema_of(
    f=BOOLEAN, i=INTEGER, l=BIGINT, x=DOUBLE, p=decimal(18, 4), s=decimal(18, 18), t=VARCHAR, w=TIMESTAMP
)
YEAR_1, YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
DOUBLES = [0.0, 1.0, -1.0, 100.0, 0.1, 1e-4, 9.999e-5, 1e-5, 1e-300, 5e-324, 1e15, 1e16, 9.99e15, 1e17, 1e22]
DOUBLES += [999999999999999.9, 123456789012345.6, 1e300, float("inf"), float("-inf"), float("nan"), 2.5e-7]


def some(rng: random.Random, type_: Type) -> Any:
    match type_.kind:
        case Kind.BOOLEAN:
            return rng.randrange(2)
        case Kind.INTEGER:
            return rng.choice([0, -1, 2**31 - 1, -(2**31), rng.randrange(-(10**6), 10**6)])
        case Kind.BIGINT:
            return rng.choice([0, 2**63 - 1, -(2**63), rng.randrange(-(2**63), 2**63)])
        case Kind.DECIMAL:
            return rng.choice([0, -1, 10**18 - 1, 1 - 10**18, rng.randrange(-(10**9), 10**9)])
        case Kind.TIMESTAMP:
            ts = rng.choice([0, -1, YEAR_1, YEAR_10000 - 1, rng.randrange(YEAR_1, YEAR_10000)])
            return ts // 10**6 * 10**6 if rng.random() < 0.5 else ts
        case Kind.VARCHAR:
            return rng.choice(["", " ", "x", 'say "hi"', "a,b", "two\nlines", "河川", "x" * 300])
    number = rng.choice(
        [*DOUBLES, struct.unpack("<d", rng.randbytes(8))[0], rng.gauss(0, 1), rng.uniform(-1e17, 1e17)]
    )
    return round(number, 3) if rng.random() < 0.3 and abs(number) < 1e300 else number


def value(cell: Any, type_: Type) -> Any:
    if type_.kind is Kind.DECIMAL:
        return Decimal(cell).scaleb(-type_.scale)
    if type_.kind is Kind.DOUBLE:
        return cell + 0.0
    return bool(cell) if type_.kind is Kind.BOOLEAN else cell


def table_of(rows: list[list[Any]], schema: Schema) -> pa.Table:
    dictionary = Dictionary()
    n = len(rows)
    data = np.zeros((len(schema) + 1, n), np.int64)
    for row, cells in enumerate(rows):
        for index, cell in enumerate(cells):
            if cell is None:
                data[-1, row] |= 1 << index
            elif isinstance(cell, float):
                data[index, row] = double_bits(np.array([cell]))[0]
            else:
                data[index, row] = dictionary.code(cell) if isinstance(cell, str) else cell
    zeros = np.zeros(n, np.int64)
    return decode(Batch(zeros, zeros, zeros, data), schema, dictionary, BIGINT).select(list(schema.names))


@pytest.mark.parametrize("count", [1, 20, 33, 500])
@pytest.mark.parametrize("seed", range(3))
def test_values_are_written_as_the_oracle_writes_them(count: int, seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        [None if rng.random() < 0.1 else some(rng, type_) for type_ in SCHEMA.types] for _ in range(count)
    ]
    pieces = ["", *[","] * (len(SCHEMA) - 1), "\n"]
    table = table_of(rows, SCHEMA)
    writer = RowWriter(table.schema, pieces, null="", text=csv_text, quoted=False)
    want = [
        ",".join(
            text(None if cell is None else value(cell, type_), type_)
            for cell, type_ in zip(row, SCHEMA.types, strict=True)
        )
        + "\n"
        for row in rows
    ]
    assert b"".join(writer.rows(table)).decode() == "".join(want), f"seed {seed}"
    first = count // 3
    assert b"".join(writer.rows(table.slice(first))).decode() == "".join(want[first:]), f"seed {seed}"


def test_columns_of_nulls_alone() -> None:
    count = 100
    table = table_of([[None] * len(SCHEMA)] * count, SCHEMA)
    pieces = ["<", *["|"] * (len(SCHEMA) - 1), ">"]
    writer = RowWriter(table.schema, pieces, null="null", text=csv_text, quoted=True)
    assert b"".join(writer.rows(table)).decode() == ("<" + "|".join(["null"] * len(SCHEMA)) + ">") * count


def test_times_far_from_today_are_still_written() -> None:
    table = table_of([[-(2**63)], [2**63 - 1]], schema_of(w=TIMESTAMP))
    writer = RowWriter(table.schema, ["", "\n"], null="", text=csv_text, quoted=False)
    assert b"".join(writer.rows(table)).decode() == (
        "-290308-12-21 19:59:05.224192\n294247-01-10 04:00:54.775807\n"
    )
