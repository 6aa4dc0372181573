"""SET max_text_bytes: no row and no query makes a text that fills the memory."""

from __future__ import annotations

import time
import tracemalloc

import pyarrow as pa
import pytest

import kasen

STREAM = "REGISTER STREAM s (v VARCHAR, w VARCHAR) TIMESTAMP BY ts FROM 'memory';"


def run(query: str, rows: object, setting: str = "") -> tuple[list[object], int, list[str]]:
    """The last column of each change, the failures, and why rows were refused."""
    p = kasen.Pipeline(engine="local")
    p.aggregate("all_of", AllOf, ["VARCHAR"], "VARCHAR")
    p.execute(f"{setting} {STREAM} REGISTER QUERY q AS {query};")
    p.push("s", rows)
    p.drain()
    found = p.query("q").to_arrow()
    answers = found.column(found.num_columns - 1).to_pylist()
    return answers, p.failures[0], [letter.reason for letter in p.dead_letters]


class AllOf:
    """All texts, one after the other."""

    def init(self) -> str:
        return ""

    def add(self, state: str, text: str) -> str:
        return state + text

    def merge(self, one: str, other: str) -> str:
        return one + other

    def result(self, state: str) -> str:
        return state


@pytest.mark.parametrize(
    "expression",
    [
        "||".join(["v"] * 400),
        "REPLACE(v, 'x', v)",
        "REPLACE(v, SUBSTRING(w, 1, 1), v)",
        "CONCAT(" + ", ".join(["v", "w"] * 200) + ")",
        "||".join(["(CASE WHEN LENGTH(w) > 0 THEN v||w END)"] * 100),
    ],
    ids=["chain", "replace", "replace by another column", "concat of columns", "nested"],
)
def test_a_text_that_would_fill_the_memory_is_null_and_counts_as_failed(expression: str) -> None:
    began = time.process_time()
    tracemalloc.start()
    try:
        found = run(
            f"ISTREAM (SELECT {expression} AS t FROM s [NOW])", [{"ts": 1, "v": "x" * 600_000, "w": "x"}]
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == ([None], 1, [])
    assert peak < 100 << 20
    assert time.process_time() - began < 60


def test_the_limit_may_be_set_and_counts_bytes() -> None:
    texts = ["x" * 32, "ä" * 16, "ä" * 17, None]
    rows = [{"ts": ts, "v": text, "w": ""} for ts, text in enumerate(texts)]
    answers, failures, _ = run("ISTREAM (SELECT v || v AS t FROM s [NOW])", rows, "SET max_text_bytes = 64;")
    assert answers == ["x" * 64, "ä" * 32, None, None]
    assert failures == 1


def test_a_result_that_nobody_needs_does_not_fail() -> None:
    query = f"ISTREAM (SELECT CASE WHEN LENGTH(v) < 9 THEN {'||'.join('v' * 8)} END AS t FROM s [NOW])"
    rows = [{"ts": 1, "v": "x" * 8, "w": ""}, {"ts": 2, "v": "x" * 9, "w": ""}]
    assert run(query, rows, "SET max_text_bytes = 64;") == (["x" * 64, None], 0, [])


def test_a_users_aggregate_that_returns_a_long_text_fails() -> None:
    rows = [{"ts": ts, "v": "x" * 32, "w": ""} for ts in (1, 2, 3)]
    answers, failures, _ = run("RSTREAM (SELECT ALL_OF(v) AS t FROM s)", rows, "SET max_text_bytes = 64;")
    assert answers == ["x" * 32, "x" * 64, None]
    assert failures == 1


@pytest.mark.parametrize("as_arrow", [False, True])
def test_a_pushed_row_with_a_long_text_goes_to_the_dead_letter(as_arrow: bool) -> None:
    rows: object = [
        {"ts": 1, "v": "x" * 65, "w": ""},
        {"ts": 2, "v": "x" * 64, "w": ""},
        {"ts": 3, "v": "ä" * 33, "w": ""},
    ]
    if as_arrow:
        rows = pa.Table.from_pylist(rows)
    answers, failures, reasons = run("ISTREAM (SELECT v FROM s [NOW])", rows, "SET max_text_bytes = 64;")
    assert answers == ["x" * 64]
    assert failures == 0
    assert reasons == [
        f"bad value: column v is longer than 64 bytes: {'x' * 65}",
        f"bad value: column v is longer than 64 bytes: {'ä' * 33}",
    ]


def test_without_a_setting_a_text_has_at_most_one_mebibyte() -> None:
    rows = [{"ts": 1, "v": "x" * (1 << 20), "w": ""}, {"ts": 2, "v": "x" * (1 + (1 << 20)), "w": ""}]
    answers, _, reasons = run("ISTREAM (SELECT LENGTH(v) AS n FROM s [NOW])", rows)
    assert answers == [1 << 20]
    assert reasons == [f"bad value: column v is longer than 1048576 bytes: {'x' * 100}..."]
