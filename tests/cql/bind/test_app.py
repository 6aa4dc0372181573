"""Binding of whole apps: inputs, queries in any order, REPLACE and DROP, the kind of time."""

from __future__ import annotations

from itertools import permutations

import pytest

from kasen.cql.bind.app import bind_text
from kasen.cql.bound import (
    Select,
    Streamify,
    Tick,
)
from kasen.types import BIGINT, INTEGER, Connector
from tests.cql.bind.binding import refused_text
from tests.cql.corpus import PRELUDE, registered


def test_inputs_are_bound_with_all_their_clauses() -> None:
    text = """
        REGISTER STREAM s (ts TIMESTAMP, a VARCHAR(5)) TIMESTAMP BY ts
          SLACK 1 SECOND IDLE 2 SECONDS RETAIN 1 DAY TICK BY TUPLE
          FROM 'CSV' OPTIONS (Path 'x.csv', kafka.topic 5, header FALSE);
        REGISTER RELATION r (k INT) TIMESTAMP BY at FROM 'json';
        REGISTER RELATION static (k INT) FROM 'json';
    """
    stream, relation, static = bind_text(text).inputs
    assert (stream.timestamp, stream.hidden, stream.slack, stream.idle) == (0, 0, 1_000_000, 2_000_000)
    assert (stream.retain, stream.tick) == (86_400_000_000, Tick.TUPLE)
    assert stream.connector == Connector(
        "csv", (("path", "x.csv"), ("kafka.topic", "5"), ("header", "false"))
    )
    assert str(relation.schema) == "(k INTEGER, at TIMESTAMP)"
    assert (relation.is_relation, relation.timestamp, relation.hidden, relation.is_static) == (
        True,
        1,
        1,
        False,
    )
    assert static.is_static
    assert static.tick is Tick.TIME


def test_queries_bind_in_any_order() -> None:
    statements = [
        "REGISTER QUERY one AS SELECT a, COUNT(*) AS n FROM s [ROWS 5] GROUP BY a",
        "REGISTER QUERY two AS ISTREAM(SELECT n FROM one WHERE n > 1)",
        "REGISTER QUERY three AS SELECT 1 AS x FROM two [NOW]",
        "REGISTER QUERY four AS SELECT three.x, two.* FROM three, two [ROWS 1]",
    ]
    expected = {query.name: query.query for query in bind_text(PRELUDE + ";".join(statements)).queries}
    for order in permutations(statements):
        app = bind_text(PRELUDE + ";".join(order))
        assert {query.name: query.query for query in app.queries} == expected


def test_a_window_may_stand_on_a_query_that_comes_later() -> None:
    text = f"""{PRELUDE}
        REGISTER QUERY q AS SELECT one FROM p [ROWS 5];
        REGISTER QUERY p AS SELECT 1 AS one FROM o;
        REGISTER QUERY o AS ISTREAM(SELECT a FROM s);
    """
    assert [str(query.schema) for query in bind_text(text).queries] == ["(one INTEGER)"] * 2 + ["(a INTEGER)"]


def test_hundreds_of_queries_on_one_another_bind_quickly() -> None:
    chain = [f"REGISTER QUERY q{n} AS SELECT a FROM q{n + 1}" for n in range(400)]
    app = bind_text(f"{PRELUDE}{';'.join(chain)}; REGISTER QUERY q400 AS SELECT a FROM s")
    assert len(app.queries) == 401


def test_replace_and_drop_act_on_what_stands_above() -> None:
    text = f"""{PRELUDE}
        REGISTER QUERY p AS SELECT a FROM s;
        REGISTER QUERY q AS SELECT * FROM p;
        REPLACE QUERY P AS SELECT c, d FROM s INTO 'csv';
        REGISTER QUERY gone AS SELECT a FROM s;
        DROP QUERY gone;
        REGISTER QUERY gone AS SELECT f FROM s;
    """
    app = bind_text(text)
    assert [(query.name, str(query.schema)) for query in app.queries] == [
        ("P", "(c VARCHAR, d DOUBLE)"),
        ("q", "(c VARCHAR, d DOUBLE)"),
        ("gone", "(f BOOLEAN)"),
    ]
    assert app.queries[0].sink == Connector("csv")


def test_replacing_a_query_that_others_read_must_leave_them_right() -> None:
    text = f"""{PRELUDE}
        REGISTER QUERY p AS SELECT a FROM s;
        REGISTER QUERY q AS SELECT a + 1 AS b FROM p;
        REPLACE QUERY p AS SELECT {{}} FROM s;
    """
    assert refused_text(text.format("c")).fault == "unknown column 'a'"
    assert refused_text(text.format("c AS a")).fault == "a + b does not take VARCHAR and INTEGER"
    assert str(bind_text(text.format("d AS a")).queries[1].schema) == "(b DOUBLE)"


def test_dropping_a_query_that_others_read_is_refused_where_they_read_it() -> None:
    text = (
        f"{PRELUDE}REGISTER QUERY p AS SELECT a FROM s;\nREGISTER QUERY q AS SELECT a FROM p;\nDROP QUERY p;"
    )
    error = refused_text(text)
    assert error.fault == "unknown stream or query 'p'"
    assert error.remedy == "it is dropped on line 7"
    assert error.place is not None
    assert error.place.line == 6


def test_the_last_setting_counts() -> None:
    app = bind_text("SET flush = true; SET recursion = Insert; SET FLUSH = 'False'; SET max_ticks = 50")
    assert app.settings == (("flush", "false"), ("recursion", "insert"), ("max_ticks", "50"))


# ---------------------------------------------------------------- time

STREAM = "REGISTER STREAM z (a INTEGER{}) TIMESTAMP BY ts{} FROM 'csv';"


@pytest.mark.parametrize(
    ("text", "logical"),
    [
        (STREAM.format(", ts BIGINT", ""), True),
        (STREAM.format(", ts INTEGER", ""), True),
        (STREAM.format(", ts TIMESTAMP", ""), False),
        ("REGISTER STREAM z (a INTEGER) FROM 'csv';", False),
        (STREAM.format("", " SLACK 5"), True),
        (STREAM.format("", " SLACK 5 SECONDS"), False),
        (STREAM.format("", " IDLE 5 SECONDS RETAIN 3"), True),
        (STREAM.format("", "") + "REGISTER QUERY q AS SELECT a FROM z [RANGE 5]", True),
        (STREAM.format("", "") + "REGISTER QUERY q AS ISTREAM(SELECT a FROM z)<5 DAYS>", False),
        (STREAM.format("", "") + "REGISTER QUERY q AS SELECT a FROM z [ROWS 5]", False),
        (STREAM.format("", "") + "REGISTER STREAM y (t BIGINT) TIMESTAMP BY t FROM 'csv'", True),
    ],
)
def test_the_kind_of_time_is_told_by_columns_then_by_lengths_of_time(text: str, logical: bool) -> None:
    app = bind_text(text)
    assert (app.time == BIGINT) is logical
    assert app.inputs[0].schema[app.inputs[0].schema.find("ts") or 0].type in (app.time, INTEGER)


def test_the_data_tells_the_kind_of_time_where_nothing_else_does() -> None:
    seen = []

    def sniff(connector: Connector, column: str) -> object:
        seen.append((connector.format, column))
        return BIGINT

    app = bind_text(STREAM.format("", ""), sniff=sniff)  # type: ignore[arg-type]
    assert app.time == BIGINT
    assert seen == [("csv", "ts")]
    assert bind_text(STREAM.format("", ""), sniff=lambda *_: None).time != BIGINT


def test_window_bounds_have_the_apps_kind_of_time() -> None:
    text = STREAM.format(", ts INTEGER", "")
    app = bind_text(text + "REGISTER QUERY q AS SELECT ts, COUNT(*), window_end() FROM z [RANGE 4 SLIDE 1]")
    assert app.queries[0].schema.types == (BIGINT, BIGINT, BIGINT)


def test_a_source_is_called_as_it_was_registered() -> None:
    text = (
        PRELUDE + "REGISTER QUERY Up AS ISTREAM(SELECT a FROM S); REGISTER QUERY q AS SELECT a FROM UP [NOW]"
    )
    up, q = (query.query for query in bind_text(text).queries)
    assert isinstance(up, Streamify)
    assert isinstance(up.query, Select)
    assert isinstance(q, Select)
    assert [up.query.sources[0].input, q.sources[0].input] == ["s", "Up"]


def test_the_query_keeps_its_text() -> None:
    assert bind_text(registered("select  A\nfrom s -- hm")).queries[0].text == "SELECT A FROM s"


@pytest.mark.parametrize("policy", ["BLOCK", "SHED NEWEST", "SHED OLDEST", "SHED SAMPLE 0.25"])
def test_policies_under_pressure(policy: str) -> None:
    app = bind_text(f"REGISTER STREAM s (a BIGINT) TIMESTAMP BY a ON PRESSURE {policy} FROM 'memory';")
    assert str(app.inputs[0].pressure) == policy
