"""Plain Python rows are read quickly, and as all other rows are."""

from __future__ import annotations

import math
import random

import pytest

from kasen.connect.encode import encode
from kasen.connect.layout import Layout
from kasen.connect.memory.row_reader import RowReader
from kasen.connect.memory.source import chunk_of
from kasen.engine.batch import matrix
from kasen.engine.text.dictionary import Dictionary
from kasen.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, TIMESTAMP, VARCHAR, Field, Schema

LAYOUT = Layout(
    "s",
    Schema(
        (
            Field("ts", TIMESTAMP),
            Field("i", INTEGER),
            Field("l", BIGINT),
            Field("x", DOUBLE),
            Field("t", VARCHAR),
            Field("f", BOOLEAN),
        )
    ),
    timestamp=0,
)
ROW: dict[str, object] = {"ts": 5, "i": 7, "l": 2**63 - 1, "x": -0.0, "t": "河", "f": True}


def random_row(rng: random.Random) -> dict[str, object]:
    choices: dict[str, list[object]] = {
        "ts": [0, -5, 2**61],
        "i": [1, -(2**31), None],
        "l": [-(2**63), 12, None],
        "x": [math.nan, math.inf, -0.0, 1.5, None],
        "t": ["", "a", "b", None],
        "f": [True, False, None],
    }
    names = list(choices)
    rng.shuffle(names)
    return {name: rng.choice(choices[name]) for name in names}


@pytest.mark.parametrize("seed", range(20))
def test_the_quick_way_reads_what_the_careful_way_does(seed: int) -> None:
    rng = random.Random(seed)
    rows = [random_row(rng) for _ in range(rng.randint(1, 5))]
    quick, careful = Dictionary(), Dictionary()
    # Codes go row by row in one and column by column in the other: both know the texts beforehand.
    quick.encode(["", "a", "b"])
    careful.encode(["", "a", "b"])
    read = RowReader(LAYOUT, quick).read(rows)
    assert read is not None
    assert read.flags.c_contiguous
    assert read.tolist() == matrix(encode(chunk_of(LAYOUT, rows), careful)).tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        {"ts": None},
        {"i": 2**31},
        {"l": 2**63},
        {"l": True},
        {"x": 1},
        {"t": 3},
        {"f": 1},
        {"ts": "2026-01-01"},
        {"extra": 1},
    ],
)
def test_what_is_not_plain_is_left_to_the_careful_way(wrong: dict[str, object]) -> None:
    assert RowReader(LAYOUT, Dictionary()).read([ROW, ROW | wrong]) is None


def test_names_in_other_letters_missing_cells_and_no_rows_are_left_to_the_careful_way() -> None:
    reader = RowReader(LAYOUT, Dictionary())
    assert reader.read([{name.upper(): value for name, value in ROW.items()}]) is None
    assert reader.read([{name: value for name, value in ROW.items() if name != "x"}]) is None
    assert reader.read([]) is None
    assert reader.read(["not a row"]) is None
