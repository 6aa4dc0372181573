"""Changes of queries in running pipelines: through the API, and after crashes at every point."""

from __future__ import annotations

from pathlib import Path

import pytest

import kasen
from kasen.errors import QueryError, ResourceError
from kasen.plan.physical import Plan, plan_app
from kasen.runtime.local import LocalRun, Options
from kasen.runtime.pipeline import Answer
from tests.cases_format import Case, all_cases
from tests.test_cases import bind

LIVE = [case for case in all_cases() if case.name.startswith("live/")]


class Crash(Exception):
    """The machine goes down."""


def crash_and_go_on(plan: Plan, options: Options, answers: int) -> None:
    """Runs an app, which crashes after so many answers, and is run again to its end."""
    left = answers

    def crash(_: Answer) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Crash

    job = LocalRun(plan, options, on_answer=crash)
    try:
        job.run()
    except Crash:
        job.outputs.close()
        LocalRun(plan, options).run()


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.glob("*.csv"))}


@pytest.mark.parametrize("case", LIVE, ids=[case.name for case in LIVE])
def test_after_a_crash_the_same_queries_are_live_since_the_same_instants(case: Case, tmp_path: Path) -> None:
    app = bind(case, tmp_path)
    plan = plan_app(app)
    LocalRun(plan, Options(tmp_path, tmp_path / "right", batch=1)).run()
    right = files(tmp_path / "right")
    assert right
    for last in range(9):
        out, checkpoint = tmp_path / f"out{last}", tmp_path / f"checkpoint{last}"
        options = Options(tmp_path, out, 1, checkpoint, checkpoint_seconds=0)
        crash_and_go_on(plan, options, last)
        assert files(out) == right, f"after a crash at epoch {last}"


BIDS = """
REGISTER STREAM bids (item BIGINT, price BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER QUERY high AS ISTREAM(SELECT item, price FROM bids WHERE price > 10);
"""


def rows(p: kasen.Pipeline, query: str) -> list[tuple[int, ...]]:
    table = p.query(query).to_arrow()
    return list(
        zip(*(table.column(name).to_pylist() for name in ("ts", *table.column_names[4:])), strict=True)
    )


def test_a_query_registered_between_pushes_sees_what_comes_then() -> None:
    p = kasen.Pipeline()
    p.execute(BIDS)
    p.push("bids", [{"ts": 1, "item": 1, "price": 20}])
    p.advance("bids", 5)
    p.execute("REGISTER QUERY n AS SELECT COUNT(*) AS n FROM bids [RANGE 100]")
    p.push("bids", [{"ts": 7, "item": 2, "price": 30}])
    p.advance("bids", 8)
    assert rows(p, "n") == [(5, 0), (7, 0), (7, 1)]
    assert rows(p, "high") == [(1, 1, 20), (7, 2, 30)]


def test_a_replaced_and_a_dropped_query() -> None:
    p = kasen.Pipeline()
    p.execute(BIDS)
    p.push("bids", [{"ts": 1, "item": 1, "price": 20}])
    p.advance("bids", 5)
    p.execute("REPLACE QUERY high AS ISTREAM(SELECT item, price FROM bids WHERE price > 25)")
    p.push("bids", [{"ts": 7, "item": 2, "price": 24}, {"ts": 7, "item": 3, "price": 26}])
    p.advance("bids", 8)
    p.execute("DROP QUERY high")
    p.push("bids", [{"ts": 9, "item": 3, "price": 26}])
    p.advance("bids", 10)
    assert rows(p, "high") == [(1, 1, 20), (7, 3, 26)]


def test_a_text_with_other_columns_begins_with_its_whole_bag() -> None:
    p = kasen.Pipeline()
    p.execute(BIDS + "REGISTER QUERY last AS SELECT item, price FROM bids [ROWS 2];")
    p.push("bids", [{"ts": 1, "item": 1, "price": 20}, {"ts": 2, "item": 2, "price": 30}])
    p.advance("bids", 5)
    assert rows(p, "last") == [(1, 1, 20), (2, 2, 30)]
    p.execute("REPLACE QUERY last AS SELECT price > 25 AS is_high FROM bids [ROWS 2]")
    p.push("bids", [{"ts": 7, "item": 2, "price": 10}])
    p.advance("bids", 8)
    table = p.query("last").to_arrow()
    assert table.column_names == ["ts", "seq", "tick", "diff", "is_high"]
    told = zip(*(table.column(name).to_pylist() for name in ("ts", "diff", "is_high")), strict=True)
    # At 7 one false leaves and another enters: nothing to tell. The old rows are of another table.
    assert list(told) == [(5, 1, False), (5, 1, True)]


def test_a_text_that_needs_more_than_was_kept_is_refused_and_the_query_goes_on() -> None:
    p = kasen.Pipeline()
    p.execute(BIDS + "REGISTER QUERY n AS SELECT item, COUNT(*) AS n FROM bids GROUP BY item;")
    p.push("bids", [{"ts": 1, "item": 1, "price": 20}])
    p.advance("bids", 5)
    more = "REPLACE QUERY n AS SELECT item, SUM(price) AS n FROM bids GROUP BY item"
    with pytest.raises(QueryError, match=r"what its old text keeps of bids .UNBOUNDED. is not its rows"):
        p.execute(more)
    with pytest.raises(QueryError, match="what its old text keeps"):
        p.execute(f"AT 9 {more}")
    # A change that waits, too, must be possible when its time has come.
    p.execute(
        "AT 20 REPLACE QUERY n AS SELECT item, COUNT(*) AS n FROM bids GROUP BY item HAVING COUNT(*) > 1"
    )
    with pytest.raises(QueryError, match=r"the rows so far of bids .UNBOUNDED. are kept nowhere"):
        p.execute("REPLACE QUERY n AS ISTREAM(SELECT item, 1 AS n FROM bids)")
    p.push("bids", [{"ts": 7, "item": 2, "price": 24}])
    p.advance("bids", 21)
    assert rows(p, "n") == [(1, 1, 1), (7, 2, 1), (20, 1, 1), (20, 2, 1)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("REGISTER STREAM t (a BIGINT) FROM 'memory'", "REGISTER STREAM cannot be given now"),
        ("SET flush = true", "SET cannot be given now"),
        ("AT 3 DROP QUERY high", "the time 3 has run already: the next is 5"),
        ("DROP QUERY low", "no query 'low'"),
        (
            "REGISTER QUERY r AS SELECT COUNT(*) AS n FROM all_bids",
            "the rows so far of bids are kept nowhere",
        ),
    ],
)
def test_what_cannot_be_done_changes_nothing(text: str, fault: str) -> None:
    p = kasen.Pipeline()
    p.execute(BIDS + "REGISTER QUERY all_bids AS SELECT item FROM bids;")
    p.push("bids", [{"ts": 1, "item": 1, "price": 20}])
    p.advance("bids", 5)
    before = len(p._running.graph.steps) if p._running is not None else 0
    with pytest.raises(QueryError, match=fault):
        p.execute(text)
    p.push("bids", [{"ts": 7, "item": 2, "price": 24}])
    p.advance("bids", 8)
    assert rows(p, "high") == [(1, 1, 20), (7, 2, 24)]
    assert p._running is not None
    assert len(p._running.graph.steps) == before


def test_a_newcomer_beyond_the_limit_is_refused_and_the_others_go_on() -> None:
    p = kasen.Pipeline()
    p.execute("SET max_queries = 2;" + BIDS)
    p.push("bids", [{"ts": 1, "item": 1, "price": 20}])
    p.execute("REGISTER QUERY second AS ISTREAM(SELECT item FROM bids)")
    with pytest.raises(ResourceError, match="2 queries are live and 2 is the most"):
        p.execute("REGISTER QUERY third AS ISTREAM(SELECT item FROM bids)")
    p.advance("bids", 5)
    assert rows(p, "high") == [(1, 1, 20)]


@pytest.mark.parametrize(
    ("limit", "fault"),
    [
        ("max_groups = 3", "the live queries have 3 groups and 3 is the most"),
        ("max_state_bytes = 200", "the live queries remember [0-9]+ bytes and 200 is the most"),
    ],
)
def test_a_newcomer_is_refused_when_the_others_hold_too_much(limit: str, fault: str) -> None:
    p = kasen.Pipeline()
    p.execute(f"SET {limit};" + BIDS)
    text = "SELECT item, COUNT(*) AS n FROM bids [ROWS 1000] GROUP BY item"
    p.execute(f"REGISTER QUERY counts AS {text}")
    newcomer = "REGISTER QUERY newcomer AS ISTREAM(SELECT item FROM bids)"
    for ts in range(3):
        p.push("bids", [{"ts": ts, "item": ts, "price": 20}])
    p.advance("bids", 5)
    with pytest.raises(ResourceError, match=fault):
        p.execute(newcomer)
    p.push("bids", [{"ts": 6, "item": 9, "price": 20}])
    p.advance("bids", 8)
    assert rows(p, "counts")[-1] == (6, 9, 1)
    p.execute("DROP QUERY counts")
    p.execute(newcomer)


def test_a_query_that_goes_before_it_has_run_is_not_in_a_snapshot() -> None:
    p = kasen.Pipeline()
    p.execute(BIDS)
    p.push("bids", [{"ts": 1, "item": 1, "price": 20}])
    p.advance("bids", 2)
    p.execute("REGISTER QUERY brief AS SELECT item FROM bids [ROWS 2]")
    p.execute("DROP QUERY brief")
    assert p._running is not None
    assert [name for name in p._running.snapshot() if "brief" in name] == []


def test_dropped_queries_leave_no_steps_behind() -> None:
    p = kasen.Pipeline()
    p.execute(BIDS)
    p.push("bids", [{"ts": 1, "item": 1, "price": 20}])
    running = p._running
    assert running is not None
    before = len(running.graph.steps)
    for number in range(50):
        p.execute(
            f"REGISTER QUERY q AS SELECT item, COUNT(*) AS n FROM bids [ROWS {number + 1}] GROUP BY item"
        )
        p.push("bids", [{"ts": 2 + number, "item": number, "price": 1}])
        p.execute("DROP QUERY q")
    assert len(running.graph.steps) == before
    assert len(running.graph.operators) <= before + 8
