"""The Python API: push and advance, files, background runs, errors."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kasen

BIDS = "REGISTER STREAM bids (item BIGINT, price BIGINT) TIMESTAMP BY ts FROM 'memory';"
BEST = "REGISTER QUERY best AS SELECT item, MAX(price) AS price FROM bids [RANGE 10] GROUP BY item;"


def rows(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_one_pushed_tuple_and_one_advance_are_answered_at_once() -> None:
    p = kasen.Pipeline(engine="local").execute(BIDS + BEST.replace("RANGE 10", "RANGE 10"))
    best = p.query("best")
    p.push("bids", [{"ts": 1, "item": 7, "price": 100}])
    assert rows(best.to_arrow()) == []
    p.advance("bids", 2)
    assert rows(best.to_arrow()) == [(1, 0, 0, 1, 7, 100)]
    p.advance("bids", 13)
    assert rows(best.to_arrow()) == [(12, 0, 0, -1, 7, 100)]


def test_rows_come_as_dicts_columns_tables_and_frames() -> None:
    p = kasen.Pipeline(engine="local").execute("SET flush = false;" + BIDS + BEST)
    p.push("bids", {"ts": [1], "item": [1], "price": [5]})
    p.push("bids", pa.table({"ts": [2], "item": [1], "price": [6]}))
    p.push("bids", pa.table({"ts": [3], "item": [1], "price": [7]}).to_pandas())
    p.drain()
    assert [row[4:] for row in rows(p.query("best").to_arrow()) if row[3] == 1] == [(1, 5), (1, 6), (1, 7)]


def test_late_and_bad_rows_are_kept_as_dead_letters() -> None:
    p = kasen.Pipeline(engine="local").execute(BIDS + BEST)
    p.push("bids", [{"ts": 5, "item": 1, "price": 1}, {"ts": 4, "item": 1, "price": 1}])
    p.push("bids", [{"ts": 6, "item": "x", "price": 1}])
    assert [(one.line, one.reason.split(":")[0]) for one in p.dead_letters] == [(2, "late"), (3, "bad value")]


def test_a_pushed_text_without_an_encoding_is_a_dead_letter() -> None:
    p = kasen.Pipeline()
    p.execute(
        "REGISTER STREAM s (c VARCHAR) TIMESTAMP BY ts FROM 'memory'; REGISTER QUERY q AS SELECT c FROM s"
    )
    p.push("s", [{"ts": 1, "c": "é"}, {"ts": 2, "c": "a\ud800b"}, {"ts": 3, "c": "\U0001f600"}])
    p.advance("s", 10)
    assert p.query("q").to_arrow()["c"].to_pylist() == ["é", "\U0001f600"]
    assert [(one.line, one.reason.split(":")[0]) for one in p.dead_letters] == [(2, "bad value")]


def test_timestamps_can_be_told_as_text_and_datetime() -> None:
    p = kasen.Pipeline(engine="local")
    p.execute("REGISTER STREAM s (t TIMESTAMP, a INTEGER) TIMESTAMP BY t FROM 'memory'")
    p.execute("REGISTER QUERY q AS SELECT a FROM s [RANGE 1 SECOND]")
    p.push("s", [{"t": datetime(2026, 1, 1), "a": 1}])
    p.advance("s", "2026-01-01 00:00:01")
    assert rows(p.query("q").to_arrow()) == [(datetime(2026, 1, 1), 0, 0, 1, 1)]
    p.advance("s", datetime(2026, 1, 1, 0, 0, 2))
    assert [row[3] for row in rows(p.query("q").to_arrow())] == [-1]


def test_a_stream_without_a_timestamp_runs_on_arrival_time() -> None:
    p = kasen.Pipeline(engine="local").execute("REGISTER STREAM s (a INTEGER) FROM 'memory'")
    p.execute("REGISTER QUERY q AS SELECT a FROM s")
    p.push("s", [{"a": 1}])
    p.push("s", [{"a": 2}])
    p.drain()
    assert [row[4] for row in rows(p.query("q").to_arrow())] == [1, 2]


def test_an_idle_stream_no_longer_holds_the_others_back() -> None:
    now = [0.0]
    p = kasen.Pipeline(engine="local", clock=lambda: now[0])
    p.execute("""
        REGISTER STREAM a (x INTEGER) TIMESTAMP BY ts IDLE 5 SECONDS FROM 'memory';
        REGISTER STREAM b (ts BIGINT, x INTEGER) TIMESTAMP BY ts FROM 'memory';
        REGISTER QUERY q AS SELECT b.x FROM b [NOW];
    """)
    p.push("a", [{"ts": 1, "x": 1}])
    p.push("b", [{"ts": 5, "x": 2}, {"ts": 6, "x": 3}])
    assert rows(p.query("q").to_arrow()) == []
    now[0] = 6.0
    p.poll()
    assert [row[4] for row in rows(p.query("q").to_arrow()) if row[3] == 1] == [2]
    p.push("a", [{"ts": 4, "x": 1}])
    assert [one.reason.split(":")[0] for one in p.dead_letters] == ["late"]


def test_static_tables_are_read_beside_pushed_streams(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("item,name\n7,lamp\n")
    p = kasen.Pipeline(engine="local", base=tmp_path).execute(BIDS)
    p.execute("REGISTER RELATION t (item BIGINT, name VARCHAR) FROM 'csv' OPTIONS (path 't.csv')")
    p.execute("REGISTER QUERY q AS SELECT t.name FROM bids [ROWS 1], t WHERE bids.item = t.item")
    p.push("bids", [{"ts": 1, "item": 7, "price": 1}]).drain()
    assert [row[4] for row in rows(p.query("q").to_arrow())] == ["lamp"]


def test_what_cannot_be_pushed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(kasen.DataError, match="FROM 'memory'"):
        files(tmp_path).push("s", [{"ts": 1, "a": 1}])
    p = kasen.Pipeline(engine="local").execute(BIDS + BEST)
    p.push("bids", [{"ts": 1, "item": 7, "price": 1}])
    p.drain()
    with pytest.raises(kasen.DataError, match="drained"):
        p.push("bids", [])


def test_drain_flushes_windows_if_the_app_says_so() -> None:
    p = kasen.Pipeline(engine="local").execute("SET flush = true;" + BIDS + BEST)
    p.push("bids", [{"ts": 1, "item": 7, "price": 1}]).drain()
    assert [row[:4] for row in rows(p.query("best").to_arrow())] == [(1, 0, 0, 1), (12, 0, 0, -1)]


@pytest.mark.parametrize("wrong", [None, 1.5, True, "2026-01-01"])
def test_a_wrong_time_is_refused(wrong: object) -> None:
    p = kasen.Pipeline(engine="local").execute(BIDS + BEST)
    p.push("bids", [{"ts": 1, "item": 7, "price": 1}])
    with pytest.raises(kasen.DataError, match="not a time"):
        p.advance("bids", wrong)  # type: ignore[arg-type]


def test_zoned_times_mean_the_same_in_push_and_advance() -> None:
    nine = datetime(2026, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    p = kasen.Pipeline(engine="local")
    p.execute("REGISTER STREAM s (t TIMESTAMP, a INTEGER) TIMESTAMP BY t FROM 'memory'")
    p.execute("REGISTER QUERY q AS SELECT a FROM s [RANGE 1 SECOND]")
    p.push("s", [{"t": nine, "a": 1}]).advance("s", nine).push(
        "s", [{"t": nine + timedelta(seconds=1), "a": 2}]
    )
    assert p.dead_letters == []


def test_a_fault_in_a_callers_function_comes_out_of_drain(tmp_path: Path) -> None:
    def fail(_: int, __: pa.Table) -> None:
        raise ZeroDivisionError

    p = files(tmp_path)
    p.query("q").foreach_batch(fail)
    p.start()
    with pytest.raises(ZeroDivisionError):
        p.drain()


def test_times_out_of_range_are_dead_letters() -> None:
    p = kasen.Pipeline(engine="local").execute(BIDS + BEST.replace("RANGE 10", "RANGE 4 SLIDE 3"))
    p.push("bids", [{"ts": ts, "item": 7, "price": 1} for ts in (-(2**63), 5, 2**63 - 1)]).drain()
    assert [one.reason.split(":")[0] for one in p.dead_letters] == ["bad timestamp"] * 2


def files(folder: Path) -> kasen.Pipeline:
    (folder / "s.csv").write_text("ts,a\n" + "".join(f"{i},{i % 3}\n" for i in range(1000)))
    p = kasen.Pipeline(engine="local", base=folder, batch=100)
    p.execute("REGISTER STREAM s (a INTEGER) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv')")
    return p.execute("REGISTER QUERY q AS SELECT a, COUNT(*) AS n FROM s GROUP BY a")


def test_drain_runs_the_sources_to_their_end(tmp_path: Path) -> None:
    p = files(tmp_path).drain()
    assert [row[4:] for row in rows(p.query("q").to_arrow())][-1] == (0, 334)


def test_a_background_run_can_be_iterated(tmp_path: Path) -> None:
    p = files(tmp_path)
    q = p.query("q")
    p.start()
    tables = list(q)
    p.drain()
    assert len(tables) > 1
    assert sum(len(table) for table in tables) == 1997


def test_an_error_that_ends_a_background_run_is_told_once(tmp_path: Path) -> None:
    def fail(epoch: int, changes: pa.Table) -> None:
        raise ZeroDivisionError("a fault of the user's")

    iterated = files(tmp_path)
    iterated.query("q").foreach_batch(fail)
    iterated.start()
    with pytest.raises(ZeroDivisionError, match=r"^a fault of the user's$"):
        list(iterated.query("q"))
    iterated.stop()
    stopped = files(tmp_path)
    stopped.query("q").foreach_batch(fail)
    stopped.start()
    while stopped.running:
        time.sleep(0.01)
    with pytest.raises(ZeroDivisionError):
        stopped.stop()
    stopped.stop()


def test_foreach_batch_gets_the_epoch_and_the_changes(tmp_path: Path) -> None:
    p = files(tmp_path)
    seen: list[tuple[int, int]] = []
    p.query("q").foreach_batch(lambda epoch, table: seen.append((epoch, len(table))))
    p.drain()
    assert [epoch for epoch, _ in seen] == sorted(epoch for epoch, _ in seen)
    assert sum(size for _, size in seen) == 1997


def test_errors_name_what_is_there() -> None:
    p = kasen.Pipeline(engine="local").execute(BIDS + BEST)
    with pytest.raises(kasen.DataError, match="registered are: best"):
        p.query("beast")
    with pytest.raises(kasen.DataError, match="registered are: bids"):
        p.push("bid", [])
    with pytest.raises(kasen.QueryError, match="unknown column"):
        p.execute("REGISTER QUERY q AS SELECT nope FROM bids")
    assert [query.name for query in p.app.queries] == ["best"]


def test_explain_is_that_of_the_command_line() -> None:
    assert "query best: relation" in kasen.Pipeline(engine="local").execute(BIDS + BEST).explain()
    on_spark = kasen.Pipeline(engine="spark", master="local[2]").execute(BIDS + BEST).explain()
    assert on_spark.startswith("engine: Spark, operators in the driver\n")
    on_cluster = kasen.Pipeline(engine="spark", master="spark://host:7077").execute(BIDS + BEST).explain()
    assert on_cluster.startswith("engine: Spark, operators on executors\n")


def test_explain_knows_the_queries_that_have_come_since() -> None:
    p = kasen.Pipeline().execute(BIDS + BEST)
    p.push("bids", [{"ts": 1, "item": 7, "price": 100}])
    before = p.explain()
    p.execute("REGISTER QUERY few AS SELECT item FROM bids [ROWS 3]")
    assert "query few: relation (item BIGINT)" in p.explain()
    p.execute("DROP QUERY few")
    assert p.explain() == before


def test_changes_are_pythons_values() -> None:
    p = kasen.Pipeline().execute(
        "REGISTER STREAM s (ts TIMESTAMP, t VARCHAR, x DOUBLE, f BOOLEAN, d DECIMAL(5, 2), n BIGINT)"
        " TIMESTAMP BY ts FROM 'memory'; REGISTER QUERY q AS SELECT t, x, f, d, n FROM s [RANGE 1 SECOND];"
    )
    p.push("s", [{"ts": 1_000_000, "t": "河", "x": 1.5, "f": True, "d": None, "n": 3}])
    assert p.query("q").changes() == []
    p.push("s", [{"ts": "1970-01-01 00:00:09", "t": None, "x": None, "f": None, "d": "1.25", "n": None}])
    p.advance("s", 9_000_001)
    first = datetime(1970, 1, 1, 0, 0, 1)
    row = ("河", 1.5, True, None, 3)
    assert p.query("q").changes() == [
        (first, 0, 0, 1, row),
        (datetime(1970, 1, 1, 0, 0, 2, 1), 0, 0, -1, row),
        (datetime(1970, 1, 1, 0, 0, 9), 0, 0, 1, (None, None, None, Decimal("1.25"), None)),
    ]
    assert p.query("q").changes() == []


def test_a_large_table_is_taken_in_pieces_and_its_memory_is_not_changed() -> None:
    rows_ = 200_000
    times = [each // 1000 for each in range(rows_)]
    table = pa.table({"ts": pa.array(times, pa.int64()), "v": pa.array(range(rows_), pa.int64())})
    before = table.to_pydict()
    p = kasen.Pipeline().execute(
        "REGISTER STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts FROM 'memory';"
        "REGISTER QUERY q AS SELECT COUNT(v) AS n, SUM(v) AS total, MAX(v) AS top FROM s WHERE v % 2 = 0;"
    )
    p.push("s", table).drain()
    last = p.query("q").changes()[-1]
    assert (last.ts, last.values) == (199, (100_000, sum(range(0, rows_, 2)), 199_998))
    assert table.to_pydict() == before


def test_numpy_memory_may_be_used_again_after_a_push() -> None:
    ts, v = np.array([1, 2, 3]), np.array([10, 20, 30])
    p = kasen.Pipeline().execute(
        "REGISTER STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts FROM 'memory';"
        "REGISTER QUERY q AS SELECT SUM(v) AS total FROM s [UNBOUNDED];"
    )
    p.push("s", {"ts": ts, "v": v})
    v[:] = 99
    p.drain()
    assert p.query("q").changes()[-1].values == (60,)


def test_a_text_need_not_end_with_a_semicolon_for_the_next_one() -> None:
    p = kasen.Pipeline(engine="local").execute(BIDS.rstrip(";") + " -- auctions")
    p.execute("REGISTER QUERY a AS ISTREAM(SELECT price FROM bids)").execute("DROP QUERY a").execute(BEST)
    with pytest.raises(kasen.DataError, match="registered are: best"):
        p.query("nothing")


def test_what_a_pipeline_returns_is_exported() -> None:
    assert [name for name in kasen.__all__ if not hasattr(kasen, name)] == []
    p = kasen.Pipeline().execute(BIDS + BEST)
    p.push("bids", [{"ts": 1, "item": 7, "price": 100}, {"ts": 0, "item": 7, "price": 100}])
    p.advance("bids", 2)
    found = [p.app, p.query("best"), *p.query("best").changes(), *p.dead_letters, *p.pressure.values()]
    assert [type(each) for each in found] == [
        kasen.App,
        kasen.Query,
        kasen.Change,
        kasen.DeadLetter,
        kasen.Admission,
    ]
