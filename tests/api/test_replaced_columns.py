"""Readers of a query read on when REPLACE gives it other columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

import kasen

OLD = "SELECT a AS x FROM s [RANGE 9]"
RENAMED = "SELECT a AS y FROM s [RANGE 9]"
WIDER = "SELECT a AS x, a + 1 AS z FROM s [RANGE 9]"


def pipeline(change: str = "") -> kasen.Pipeline:
    return kasen.Pipeline().execute(
        f"""REGISTER STREAM s (a BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
        REGISTER QUERY q AS {OLD}; {change}"""
    )


def push(p: kasen.Pipeline, *times: int) -> None:
    for ts in times:
        p.push("s", [{"ts": ts, "a": ts}]).advance("s", ts + 1)


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize(
    ("new", "after"),
    [
        (RENAMED, [(2, (2,)), (3, (3,))]),
        (WIDER, [(2, (0, 1)), (2, (1, 2)), (2, (2, 3)), (3, (3, 4))]),
    ],
)
def test_changes_of_old_and_new_columns_are_all_read(
    new: str, after: list[tuple[int, tuple[int, ...]]], later: bool
) -> None:
    p = pipeline(f"AT 2 REPLACE QUERY q AS {new};" if later else "")
    push(p, 0, 1)
    if not later:
        p.execute(f"REPLACE QUERY q AS {new}")
    push(p, 2, 3)
    found = [(change.ts, change.values) for change in p.query("q").changes()]
    assert found == [(0, (0,)), (1, (1,)), *after]


def test_a_table_has_the_columns_of_its_changes() -> None:
    p = pipeline()
    held = p.query("q")
    push(p, 0, 1)
    p.execute(f"REPLACE QUERY q AS {WIDER}")
    push(p, 2)
    assert p.query("q") is held
    assert held.schema.names == ["ts", "seq", "tick", "diff", "x", "z"]
    assert held.to_arrow()["x"].to_pylist() == [0, 1]
    assert held.waiting == 3
    assert held.to_arrow().select(["x", "z"]).to_pylist() == [
        {"x": 0, "z": 1},
        {"x": 1, "z": 2},
        {"x": 2, "z": 3},
    ]
    assert held.to_arrow().num_rows == 0


def test_iteration_hands_out_each_epoch_with_its_columns() -> None:
    p = pipeline()
    push(p, 0)
    p.execute(f"REPLACE QUERY q AS {RENAMED}")
    push(p, 1)
    assert [table.column_names[4] for table in p.query("q")] == ["x", "y"]


def test_a_function_hears_what_the_new_query_says() -> None:
    p = pipeline()
    heard: list[pa.Table] = []
    p.query("q").foreach_batch(lambda _, table: heard.append(table))
    push(p, 0)
    p.execute(f"REPLACE QUERY q AS {RENAMED}")
    push(p, 1)
    assert [(table.column_names[4], table.column(4).to_pylist()) for table in heard] == [
        ("x", [0]),
        ("y", [1]),
    ]


def test_a_change_that_has_yet_to_come_changes_no_columns() -> None:
    p = pipeline()
    p.execute(f"AT 5 REPLACE QUERY q AS {RENAMED}")
    push(p, 0)
    assert p.query("q").schema.names[4] == "x"
    assert p.query("q").to_arrow()["x"].to_pylist() == [0]
    push(p, 5)
    assert p.query("q").to_arrow()["y"].to_pylist() == [5]
