"""A loop that goes round for ever is stopped; the rest of the pipeline lives on."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import kasen
from kasen.cli import app as cli
from kasen.cql.bind.app import bind_text
from kasen.errors import QueryError, ResourceError
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from tests.engines import local
from tests.oracle import sniffer

# From 7 on, up goes round at every tick. What reads it ends there; what does not, goes on.
APP = """
SET max_ticks = 50;
REGISTER STREAM s (a BIGINT) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');
REGISTER QUERY up AS ISTREAM(SELECT a FROM s [NOW] UNION ALL
                             SELECT a + 1 AS a FROM up [NOW] WHERE a >= 7 OR a < 2)<Now>;
REGISTER QUERY seen AS SELECT COUNT(*) AS n FROM up, s [ROWS 1];
REGISTER QUERY innocent AS ISTREAM(SELECT a FROM s [NOW]);
"""
ROWS = "ts,a\n1,1\n2,5\n3,7\n4,1\n5,6\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.csv").write_text(ROWS)
    (tmp_path / "app.cql").write_text(APP)
    return tmp_path


@pytest.mark.parametrize("engine", [local(1 << 16), local(1), local(2, restart=True)])
def test_the_loop_and_its_readers_end_and_others_go_on(folder: Path, engine: object) -> None:
    result = engine(bind_text(APP, folder, "", sniffer(folder)), folder)  # type: ignore[operator]
    up, innocent = result.queries["up"], result.queries["innocent"]
    assert [row[0] for row in innocent] == [1, 2, 3, 4, 5]
    assert [row[4] for row in up[:3]] == [1, 2, 5]
    assert [(row[0], row[2], row[4]) for row in up[3:]] == [(3, tick, 6 + tick) for tick in range(1, 51)]
    # The reader has seen all of that, and nothing later.
    assert result.queries["seen"][-1] == (3, 0, 50, 1, 53)


def test_the_error_names_the_loop_and_shows_its_last_tuples(folder: Path) -> None:
    run = LocalRun(plan_app(bind_text(APP, folder, "", sniffer(folder))), Options(folder))
    run.run()
    (error,) = run.pipeline.stopped
    assert isinstance(error, ResourceError)
    assert str(error).split("\n") == [
        "the loop of up still produces after 50 ticks of ts 3",
        "  stopped: up, seen; the other queries go on",
        "  last of up: (54) at ts 3, seq 0, tick 48",
        "  last of up: (55) at ts 3, seq 0, tick 49",
        "  last of up: (56) at ts 3, seq 0, tick 50",
        "help: end the loop with a condition, or raise SET max_ticks",
    ]


def test_a_stopped_loop_stays_stopped_after_a_restart(folder: Path) -> None:
    plan = plan_app(bind_text(APP, folder, "", sniffer(folder)))
    options = Options(folder, checkpoint=folder / "points", checkpoint_seconds=0, batch=1)
    LocalRun(plan, options).run()
    again = LocalRun(plan, options)
    assert "up, seen" in str(again.pipeline.stopped[0])


def test_the_command_says_so_and_its_exit_code_too(folder: Path) -> None:
    out = folder / "out"
    args = ["run", str(folder / "app.cql"), "--engine", "local", "--out", str(out)]
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 1
    assert "the loop of up still produces after 50 ticks" in result.output
    assert len((out / "innocent.csv").read_text().splitlines()) == 6


def test_the_python_api_raises_at_the_end(folder: Path) -> None:
    pipeline = kasen.Pipeline(engine="local", base=folder)
    pipeline.execute(APP)
    with pytest.raises(kasen.ResourceError, match="still produces after 50 ticks"):
        pipeline.drain()
    assert pipeline.query("innocent").to_arrow().num_rows == 5


def test_a_stopped_loop_is_dropped_and_comes_back_with_an_end() -> None:
    p = kasen.Pipeline()
    memory = APP.replace("(a BIGINT)", "(a BIGINT, ts BIGINT)")
    p.execute(memory.replace("FROM 'csv' OPTIONS (path 's.csv')", "FROM 'memory'"))
    p.push("s", [{"ts": 1, "a": 7}])
    p.advance("s", 2)
    turn = "SELECT a + 1 AS a FROM up [NOW] WHERE a < 9"
    bounded = f"QUERY up AS ISTREAM(SELECT a FROM s [NOW] UNION ALL {turn})<Now>"
    for text in (f"REPLACE {bounded}", "REGISTER QUERY more AS SELECT a FROM up [ROWS 1]"):
        with pytest.raises(QueryError, match="up was stopped: its loop did not come to rest"):
            p.execute(text)
    p.execute("DROP QUERY up CASCADE")
    p.execute(f"REGISTER {bounded}; REGISTER QUERY seen AS SELECT COUNT(*) AS n FROM up")
    p.push("s", [{"ts": 5, "a": 7}])
    p.advance("s", 6)
    assert [row["a"] for row in p.query("up").to_arrow().to_pylist() if row["ts"] == 5] == [7, 8, 9]
    assert [row["n"] for row in p.query("seen").to_arrow().to_pylist() if row["diff"] > 0][-1] == 3
