"""The oracle's own definitions, each rule on a small example worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kasen.cql.bind.app import bind_text
from kasen.cql.bound import (
    Delay,
    RegisteredQuery,
    Select,
    Source,
    Streamify,
    StreamKind,
    Unbounded,
)
from kasen.cql.expr import Aggregate, AggregateValue
from kasen.errors import DataError, ResourceError
from kasen.types import BIGINT, Field, Schema
from tests.cases_format import table
from tests.oracle import Result, run_app
from tests.oracle.csv_text import records
from tests.oracle.instants import Instant
from tests.oracle.relations import moved
from tests.oracle.values import bag_difference, in_value_order

S = "REGISTER STREAM s (ts BIGINT, a INTEGER) TIMESTAMP BY ts FROM 'memory';"
R = "REGISTER RELATION r (ts BIGINT, k INTEGER) TIMESTAMP BY ts FROM 'memory';"


def run(cql: str, **tables: str) -> Result:
    """The answers to an app whose inputs are the given csv tables."""
    given = {}
    for name, body in tables.items():
        header, rows = table(body)
        given[name] = [dict(zip(header, row, strict=True)) for row in rows]
    return run_app(bind_text(cql), given=given)


def rows_of(result: Result, query: str) -> list[str]:
    """A query's rows as text: 'ts.seq.tick +value,value'."""
    return [
        f"{row[0]}.{row[1]}.{row[2]} {'+' if row[3] == 1 else '-'}{','.join(map(str, row[4:]))}"
        for row in result.queries[query]
    ]


# ---------------------------------------------------------------- values and bags


def test_value_order_is_null_first_then_bytes_with_nan_greatest() -> None:
    nan = float("nan")
    assert in_value_order([(nan,), (1.0,), (None,), (float("inf"),)])[:3] == [
        (None,),
        (1.0,),
        (float("inf"),),
    ]
    assert in_value_order([("é",), ("z",), ("Z",), (None,), ("",)]) == [
        (None,),
        ("",),
        ("Z",),
        ("z",),
        ("é",),
    ]
    assert in_value_order([(True,), (False,), (None,)]) == [(None,), (False,), (True,)]


def test_a_bag_difference_counts_and_takes_nan_and_zero_as_one_value() -> None:
    assert bag_difference([(1,), (1,), (2,)], [(1,), (3,)]) == [(1,), (2,)]
    assert bag_difference([(float("nan"),), (-0.0,), (None,)], [(float("nan"),), (0.0,), (None,)]) == []


def test_a_delay_moves_the_time_or_by_one_tick() -> None:
    assert moved(Instant(5, 2, 1), Delay(3)) == Instant(8, 2, 1)
    assert moved(Instant(5, 2, 1), Delay(None)) == Instant(5, 2, 2)


# ---------------------------------------------------------------- inputs


def test_csv_tells_null_from_the_empty_string_and_keeps_line_numbers() -> None:
    found = records('a,b\n1,""\n\n"x\ny",\r\n"say ""hi""",z\n')
    assert [(row.line, row.fields) for row in found] == [
        (1, ["a", "b"]),
        (2, ["1", ""]),
        (4, ["x\ny", None]),
        (6, ['say "hi"', "z"]),
    ]


def test_late_is_below_the_greatest_time_read_so_far_minus_slack() -> None:
    cql = S.replace("BY ts", "BY ts SLACK 2") + "REGISTER QUERY q AS ISTREAM(SELECT a FROM s)"
    result = run(cql, s="ts, a\n5, 1\n3, 2\n2, 3\n6, 4\n4, 5\n3, 6")
    assert rows_of(result, "q") == ["3.0.0 +2", "4.0.0 +5", "5.0.0 +1", "6.0.0 +4"]
    assert [(one.line, one.reason.split(":")[0]) for one in result.dead_letters] == [(3, "late"), (6, "late")]


def test_rows_that_cannot_be_read_go_to_the_dead_letter_and_set_no_time() -> None:
    result = run(S + "REGISTER QUERY q AS ISTREAM(SELECT a FROM s)", s="ts, a\nx, 1\n, 2\n9, z\n1, 3")
    assert rows_of(result, "q") == ["1.0.0 +3"]
    assert [one.reason.split(":")[0] for one in result.dead_letters] == [
        "bad timestamp",
        "bad timestamp",
        "bad value",
    ]


def test_tick_by_tuple_numbers_tuples_of_one_time_over_all_such_streams() -> None:
    cql = """
    REGISTER STREAM s (ts BIGINT, a INTEGER) TIMESTAMP BY ts TICK BY TUPLE FROM 'memory';
    REGISTER STREAM t (ts BIGINT, a INTEGER) TIMESTAMP BY ts TICK BY TUPLE FROM 'memory';
    REGISTER STREAM u (ts BIGINT, a INTEGER) TIMESTAMP BY ts FROM 'memory';
    REGISTER QUERY q AS ISTREAM(SELECT a FROM s UNION ALL SELECT a FROM t UNION ALL SELECT a FROM u)
    """
    result = run(cql, s="ts, a\n1, 10\n1, 11\n2, 12", t="ts, a\n1, 20\n2, 21", u="ts, a\n1, 30\n1, 31")
    assert rows_of(result, "q") == [
        "1.0.0 +10", "1.0.0 +30", "1.0.0 +31", "1.1.0 +11", "1.2.0 +20", "2.0.0 +12", "2.1.0 +21"
    ]  # fmt: skip


def test_json_lines_and_parquet_are_read_by_their_own_types(tmp_path: Path) -> None:
    cql = """
    REGISTER STREAM j (ts BIGINT, d DOUBLE, n DECIMAL(5, 2), t VARCHAR, b BOOLEAN)
        TIMESTAMP BY ts FROM 'json' OPTIONS (path 'j.json');
    REGISTER STREAM p (ts BIGINT, d DOUBLE, n DECIMAL(5, 2), t VARCHAR, b BOOLEAN)
        TIMESTAMP BY ts FROM 'parquet' OPTIONS (path 'p.parquet');
    REGISTER QUERY q AS ISTREAM(SELECT d, n, t, b FROM j UNION ALL SELECT d, n, t, b FROM p)
    """
    (tmp_path / "j.json").write_text(
        '{"ts": 1, "d": 2, "n": 1.5, "t": "x", "b": true, "more": 0}\n\n{"ts": 2}\n[1]\n{"ts": 3, "d": []}\n'
    )
    pq.write_table(
        pa.table({"ts": [4], "d": [0.5], "n": [1.25], "t": ["é"], "b": [False]}), tmp_path / "p.parquet"
    )
    result = run_app(bind_text(cql), tmp_path)
    assert rows_of(result, "q") == [
        "1.0.0 +2.0,1.50,x,True", "2.0.0 +None,None,None,None", "4.0.0 +0.5,1.25,é,False"
    ]  # fmt: skip
    assert [(one.line, one.reason.split(":")[0]) for one in result.dead_letters] == [
        (4, "bad row"),
        (5, "bad value"),
    ]


def test_a_missing_file_or_column_is_an_error_of_the_data(tmp_path: Path) -> None:
    cql = S.replace("'memory'", "'csv' OPTIONS (path 's.csv')")
    with pytest.raises(DataError, match="no file"):
        run_app(bind_text(cql), tmp_path)
    (tmp_path / "s.csv").write_text("ts,b\n1,2\n")
    with pytest.raises(DataError, match="no column a"):
        run_app(bind_text(cql), tmp_path)


# ---------------------------------------------------------------- relations from outside


def test_an_outside_relation_inserts_before_it_deletes_and_reports_unmatched_deletes() -> None:
    result = run(
        R + "REGISTER QUERY q AS SELECT k FROM r",
        r="ts, diff, k\n1, 1, 5\n2, -1, 6\n2, 1, 6\n3, -1, 5\n3, -1, 5\n4, 2, 5",
    )
    assert rows_of(result, "q") == ["1.0.0 +5", "3.0.0 -5"]
    assert [(one.line, one.reason.split(":")[0]) for one in result.dead_letters] == [
        (6, "bad diff"),
        (5, "unmatched delete"),
    ]


def test_a_static_table_holds_from_the_beginning() -> None:
    cql = S + "REGISTER RELATION r (k INTEGER) FROM 'memory'; REGISTER QUERY q AS SELECT k FROM r"
    assert rows_of(run(cql, s="ts, a\n7, 1\n9, 1", r="k\n2\n1\n2"), "q") == [
        "7.0.0 +1",
        "7.0.0 +2",
        "7.0.0 +2",
    ]


# ---------------------------------------------------------------- beginning, end, flush


def test_without_any_input_the_beginning_is_zero_and_aggregates_report_there() -> None:
    result = run(S + "REGISTER QUERY q AS SELECT COUNT(*) AS n, SUM(a) AS t FROM s", s="ts, a")
    assert rows_of(result, "q") == ["0.0.0 +0,None"]
    assert result.instants == [Instant(0)]


def test_the_end_runs_all_ticks_of_the_last_time_and_nothing_later() -> None:
    cql = S + "REGISTER QUERY q AS SELECT a FROM s [NOW]; REGISTER QUERY r AS SELECT a FROM s [RANGE 1]"
    result = run(cql, s="ts, a\n1, 1\n2, 2")
    assert rows_of(result, "q") == ["1.0.0 +1", "1.0.1 -1", "2.0.0 +2", "2.0.1 -2"]
    assert rows_of(result, "r") == ["1.0.0 +1", "2.0.0 +2"]


def test_a_flush_lets_windows_expire_and_rstream_go_on_but_delivers_no_delays() -> None:
    cql = f"""SET flush = true; {S}
    REGISTER QUERY gone AS DSTREAM(SELECT a FROM s [RANGE 4]);
    REGISTER QUERY late AS DSTREAM(SELECT a FROM s [RANGE 4])<Now>;
    REGISTER QUERY again AS SELECT a FROM gone [RANGE 1];
    REGISTER QUERY sampled AS RSTREAM[2](SELECT COUNT(*) AS n FROM s [RANGE 4]);
    """
    result = run(cql, s="ts, a\n1, 10")
    assert rows_of(result, "gone") == ["6.0.0 +10"]
    assert rows_of(result, "late") == []
    assert rows_of(result, "again") == ["6.0.0 +10", "8.0.0 -10"]
    assert rows_of(result, "sampled") == ["2.0.0 +1", "4.0.0 +1", "6.0.0 +0", "8.0.0 +0"]


# ---------------------------------------------------------------- relation -> stream


def test_istream_and_dstream_are_bag_differences_between_instants() -> None:
    cql = f"""{S}
    REGISTER QUERY i AS ISTREAM(SELECT a FROM s [ROWS 1]);
    REGISTER QUERY d AS DSTREAM(SELECT a FROM s [ROWS 1])
    """
    result = run(cql, s="ts, a\n1, 7\n2, 7\n3, 8")
    assert rows_of(result, "i") == ["1.0.0 +7", "3.0.0 +8"]
    assert rows_of(result, "d") == ["3.0.0 +7"]


def test_rstream_fires_when_a_leaf_is_touched_even_if_nothing_changes() -> None:
    cql = f"""{S} REGISTER STREAM t (ts BIGINT, b INTEGER) TIMESTAMP BY ts FROM 'memory';
    REGISTER QUERY named AS SELECT a FROM s [ROWS 1];
    REGISTER QUERY q AS RSTREAM(SELECT a FROM named)
    """
    result = run(cql, s="ts, a\n1, 7\n3, 7", t="ts, b\n2, 0")
    assert rows_of(result, "q") == ["1.0.0 +7", "3.0.0 +7"]


def test_rstream_fires_when_a_tuple_takes_the_place_of_an_equal_one() -> None:
    cql = S.replace("BY ts", "BY ts TICK BY TUPLE") + "REGISTER QUERY q AS RSTREAM(SELECT a FROM s [ROWS 1])"
    assert rows_of(run(cql, s="ts, a\n1, 7\n1, 7"), "q") == ["1.0.0 +7", "1.1.0 +7"]


def test_rstream_of_a_slide_fires_at_every_report() -> None:
    result = run(
        S + "REGISTER QUERY q AS RSTREAM(SELECT COUNT(*) AS n FROM s [RANGE 4 SLIDE 2])",
        s="ts, a\n1, 1\n20, 1",
    )
    assert rows_of(result, "q") == ["2.0.0 +1", "4.0.0 +1", "6.0.0 +0"]


def test_rstream_every_d_fires_between_beginning_and_end() -> None:
    result = run(
        S + "REGISTER QUERY q AS RSTREAM[5](SELECT a FROM s [ROWS 1])", s="ts, a\n5, 1\n12, 2\n15, 3"
    )
    assert rows_of(result, "q") == ["5.0.0 +1", "10.0.0 +1", "15.0.0 +3"]


# ---------------------------------------------------------------- composition, delays, loops


def test_tuples_of_one_instant_of_a_derived_stream_are_in_value_order() -> None:
    cql = f"{S} REGISTER QUERY i AS ISTREAM(SELECT a FROM s); REGISTER QUERY q AS SELECT a FROM i [ROWS 1]"
    assert rows_of(run(cql, s="ts, a\n1, 9\n1, 3\n1,"), "q") == ["1.0.0 +9"]


def test_queries_may_stand_in_any_order() -> None:
    cql = f"""{S}
    REGISTER QUERY q AS SELECT a FROM i [ROWS 1];
    REGISTER QUERY i AS ISTREAM(SELECT a FROM s [NOW])
    """
    assert rows_of(run(cql, s="ts, a\n1, 9\n2, 3"), "q") == ["1.0.0 +9", "2.0.0 +3", "2.0.0 -9"]


def test_a_delayed_stream_shows_and_feeds_the_moved_instant_up_to_the_end() -> None:
    cql = f"""{S}
    REGISTER QUERY d AS ISTREAM(SELECT a FROM s [NOW])<3>;
    REGISTER QUERY q AS SELECT a FROM d [NOW]
    """
    result = run(cql, s="ts, a\n1, 10\n2, 20\n4, 40")
    assert rows_of(result, "d") == ["4.0.0 +10"]
    assert rows_of(result, "q") == ["4.0.0 +10", "4.0.1 -10"]


def test_a_loop_runs_tick_by_tick_until_nothing_happens_before_the_next_seq() -> None:
    cql = f"""{S.replace("BY ts", "BY ts TICK BY TUPLE")}
    REGISTER QUERY down AS ISTREAM(
        SELECT a FROM s [NOW] UNION ALL SELECT a - 1 AS a FROM down [NOW] WHERE a > 0)<Now>
    """
    result = run(cql, s="ts, a\n1, 2\n1, 1")
    assert rows_of(result, "down") == ["1.0.1 +2", "1.0.2 +1", "1.0.3 +0", "1.1.1 +1", "1.1.2 +0"]


def test_a_loop_may_start_from_what_it_reports_at_the_beginning() -> None:
    count = Aggregate("count", (), distinct=False, type=BIGINT)
    schema = Schema((Field("n", BIGINT),))
    counted = Select(
        schema,
        Source("c", "c", Unbounded(), schema),
        None,
        (),
        (count,),
        None,
        (AggregateValue(BIGINT, 0),),
        False,
    )
    loop = Streamify(StreamKind.ISTREAM, counted, delay=Delay(1))
    app = bind_text(S)
    result = run_app(
        replace(app, queries=(RegisteredQuery("c", loop, None, ""),)), given={"s": [{"ts": 1}, {"ts": 4}]}
    )
    assert rows_of(result, "c") == ["2.0.0 +0", "3.0.0 +1", "4.0.0 +2"]


def test_a_loop_that_never_rests_is_stopped() -> None:
    cql = f"""SET max_ticks = 50; {S}
    REGISTER QUERY up AS ISTREAM(SELECT a FROM s [NOW] UNION ALL SELECT a + 1 AS a FROM up [NOW])<Now>
    """
    with pytest.raises(ResourceError, match="more than 50 ticks"):
        run(cql, s="ts, a\n1, 2")


TRADING = """
REGISTER STREAM market (ts BIGINT, stock_id VARCHAR, price BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER STREAM initial_resource (val BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER STREAM stock_stream (ts BIGINT, id VARCHAR, num BIGINT, price BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER QUERY buy_event
ISTREAM(SELECT stock.id, 1000 AS num, market.price
        FROM stock, resource, market [Now]
        WHERE stock.id = market.stock_id AND stock.num = 0
          AND market.price < 500 AND resource.val > market.price * 1000)
REGISTER QUERY resource SELECT * FROM resource_stream [Rows 1]
REGISTER QUERY resource_stream
ISTREAM(SELECT * FROM initial_resource [Now]
        UNION ALL
        SELECT resource.val - buy_event.price * buy_event.num AS val FROM resource, buy_event [Now])<Now>
REGISTER QUERY stock SELECT * FROM stock_stream [Partition By stock_stream.id Rows 1]
"""


def test_the_trading_app_buys_once_and_the_resource_shrinks_one_tick_later() -> None:
    result = run(
        TRADING,
        market="ts, stock_id, price\n1, a, 480\n2, b, 1\n3, a, 600",
        initial_resource="ts, val\n0, 3000000",
        stock_stream="ts, id, num, price\n0, a, 0, 0",
    )
    assert rows_of(result, "buy_event") == ["1.0.0 +a,1000,480"]
    assert rows_of(result, "resource") == ["0.0.1 +3000000", "1.0.1 +2520000", "1.0.1 -3000000"]


def test_the_window_join_of_the_order_hazard_loses_no_pair() -> None:
    cql = """
    REGISTER STREAM l (ts BIGINT, x VARCHAR) TIMESTAMP BY ts FROM 'memory';
    REGISTER STREAM d (ts BIGINT, y VARCHAR) TIMESTAMP BY ts FROM 'memory';
    REGISTER QUERY q AS ISTREAM(SELECT x, y FROM l [ROWS 1], d [ROWS 1])
    """
    result = run(cql, l="ts, x\n1, a\n3, b", d="ts, y\n2, 1\n4, 2")
    assert rows_of(result, "q") == ["2.0.0 +a,1", "3.0.0 +b,1", "4.0.0 +b,2"]
