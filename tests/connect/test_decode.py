"""Encoding of chunks and decoding of batches."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa

from kasen.connect.decode import decode, output_schema
from kasen.connect.encode import encode
from kasen.connect.layout import Layout
from kasen.connect.memory.source import chunk_of
from kasen.engine.batch import TICK_BITS, Batch, empty, matrix
from kasen.engine.text.dictionary import Dictionary
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, decimal
from tests.connect.reading import schema_of

SCHEMA = schema_of(f=BOOLEAN, i=INTEGER, l=BIGINT, x=DOUBLE, p=decimal(18, 4), t=VARCHAR, w=TIMESTAMP)
ROWS: list[dict[str, object]] = [
    {"f": True, "i": -1, "l": 2**63 - 1, "x": -0.0, "p": "-0.0001", "t": "河", "w": "2026-01-01"},
    {"f": False, "i": 7, "l": -(2**63), "x": math.inf, "p": "99999999999999.9999", "t": "", "w": None},
    {},
    {"t": "河", "x": 2.5, "f": True, "l": 0, "i": 0, "p": 0, "w": 1},
]


def batch_of(rows: list[dict[str, object]], dictionary: Dictionary) -> Batch:
    data = encode(chunk_of(Layout("s", SCHEMA), rows), dictionary)
    n = len(rows)
    seq_tick = np.array([(k << TICK_BITS) | (k + 1) for k in range(n)], np.int64)
    return Batch(np.arange(n, dtype=np.int64), seq_tick, np.full(n, -1, np.int64), matrix(data))


def test_a_row_goes_in_and_comes_out() -> None:
    dictionary = Dictionary()
    table = decode(batch_of(ROWS, dictionary), SCHEMA, dictionary, TIMESTAMP)
    assert table.schema == output_schema(SCHEMA, TIMESTAMP)
    first, second, third, fourth = table.to_pylist()
    assert first == {
        "ts": datetime(1970, 1, 1),
        "seq": 0,
        "tick": 1,
        "diff": -1,
        "f": True,
        "i": -1,
        "l": 2**63 - 1,
        "x": 0.0,
        "p": Decimal("-0.0001"),
        "t": "河",
        "w": datetime(2026, 1, 1),
    }
    assert (second["seq"], second["tick"], second["t"], second["w"]) == (1, 2, "", None)
    assert second["p"] == Decimal("99999999999999.9999")
    assert [third[name] for name in SCHEMA.names] == [None] * len(SCHEMA)
    assert (fourth["t"], fourth["w"], fourth["p"]) == ("河", datetime(1970, 1, 1, 0, 0, 0, 1), Decimal(0))


def test_equal_rows_have_equal_numbers_and_nulls_are_zero() -> None:
    dictionary = Dictionary()
    rows: list[dict[str, object]] = [
        {"x": -0.0, "t": "a"},
        {"x": 0.0, "t": "a"},
        {"x": math.nan},
        {"x": -math.nan},
        {},
    ]
    data = batch_of(rows, dictionary).data
    assert (data[:, 0] == data[:, 1]).all()
    assert (data[:, 2] == data[:, 3]).all()
    assert data[:-1, 4].tolist() == [0] * len(SCHEMA)
    assert data[-1, 4] == (1 << len(SCHEMA)) - 1


def test_texts_get_the_pipelines_codes() -> None:
    dictionary = Dictionary()
    dictionary.encode(["z", "y", "x"])
    layout = Layout("s", schema_of(t=VARCHAR, u=VARCHAR))
    chunk = chunk_of(layout, {"t": ["x", None, "new", "x"], "u": ["y", "y", "new", None]})
    data = matrix(encode(chunk, dictionary))
    assert data.tolist() == [[2, 0, 3, 2], [1, 1, 3, 0], [0, 1, 0, 2]]
    assert matrix(encode(chunk, dictionary)).tolist() == data.tolist()


def test_an_empty_batch_is_a_table_with_all_columns() -> None:
    table = decode(empty(len(SCHEMA)), SCHEMA, Dictionary(), BIGINT)
    assert len(table) == 0
    assert table.schema == output_schema(SCHEMA, BIGINT)
    assert table.schema.field("ts").type == pa.int64()
