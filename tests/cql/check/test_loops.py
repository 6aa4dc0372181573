"""Loops of queries: how their columns are found, that each needs a delay, and where one is put in."""

from __future__ import annotations

from itertools import permutations

import pytest

from kasen.cql.bind.app import bind_text
from kasen.cql.bound import App, Delay, Streamify
from kasen.cql.check.loops import find_loops, readings
from tests.cql.bind.binding import refused_text
from tests.cql.corpus import PRELUDE, TRADING, TRADING_INPUTS, TRADING_QUERIES

UNDELAYED = TRADING.replace("<Now>", "")
START = "SELECT a FROM s [NOW]"


def app(*statements: str) -> App:
    return bind_text(PRELUDE + ";\n".join(statements))


def schemas(bound: App) -> dict[str, str]:
    return {query.name: str(query.schema) for query in bound.queries}


def delays(bound: App) -> dict[str, Delay | None]:
    return {query.name: query.query.delay for query in bound.queries if isinstance(query.query, Streamify)}


# ---------------------------------------------------------------- columns


def test_the_trading_app_finds_its_columns_and_both_its_loops() -> None:
    bound = bind_text(TRADING)
    assert schemas(bound) == {
        "buy_event": "(id VARCHAR, num INTEGER, price INTEGER)",
        "resource": "(val BIGINT)",
        "resource_stream": "(val BIGINT)",
        "stock": "(id VARCHAR, num INTEGER, price INTEGER)",
    }
    assert bound.loops == (
        ("resource", "buy_event", "resource_stream"),
        ("resource", "resource_stream"),
    )


def test_the_trading_app_is_the_same_in_any_order() -> None:
    queries = TRADING_QUERIES.strip().split("\n\n")
    assert len(queries) == 4
    expected = schemas(bind_text(TRADING))
    for order in permutations(queries):
        bound = bind_text(TRADING_INPUTS + "\n".join(order))
        assert schemas(bound) == expected
        assert len(bound.loops) == 2


def test_a_loop_takes_its_columns_from_where_it_starts() -> None:
    again = "SELECT a + 1 AS a FROM q [NOW]"
    for query in (f"{START} UNION ALL {again}", f"{again} UNION ALL {START}"):
        assert schemas(app(f"REGISTER QUERY q AS ISTREAM({query})<Now>")) == {"q": "(a BIGINT)"}


def test_a_loops_columns_are_named_by_the_left_side_even_if_it_is_known_later() -> None:
    right = f"SELECT a + 1 AS n FROM q [NOW] UNION ALL {START}"
    assert refused_text(f"{PRELUDE}REGISTER QUERY q AS ISTREAM({right})<Now>").fault == "unknown column 'a'"
    left = app(f"REGISTER QUERY q AS ISTREAM({START} UNION ALL SELECT a + 1 AS n FROM q [NOW])<Now>")
    assert schemas(left) == {"q": "(a BIGINT)"}


def test_types_widen_until_they_settle() -> None:
    bound = app(
        f"REGISTER QUERY q AS ISTREAM({START} UNION ALL SELECT x FROM p [NOW])<Now>",
        "REGISTER QUERY p AS ISTREAM(SELECT a * 0.5e0 AS x FROM q [NOW])",
    )
    assert schemas(bound) == {"q": "(a DOUBLE)", "p": "(x DOUBLE)"}


def test_columns_may_come_from_elsewhere_than_the_loop() -> None:
    bound = app(
        "REGISTER QUERY p AS ISTREAM(SELECT s.a FROM s [NOW], q WHERE q.n > 5)",
        "REGISTER QUERY q AS SELECT COUNT(*) AS n FROM r2 [ROWS 5]",
        "REGISTER QUERY r2 AS ISTREAM(SELECT * FROM p [NOW])<Now>",
    )
    assert schemas(bound) == {"p": "(a INTEGER)", "q": "(n BIGINT)", "r2": "(a INTEGER)"}


def test_a_window_on_a_query_of_the_loop_is_judged_when_it_is_known() -> None:
    bound = app(
        "REGISTER QUERY p AS SELECT one FROM q [ROWS 5]",
        "REGISTER QUERY q AS SELECT 1 AS one FROM o",
        f"REGISTER QUERY o AS ISTREAM({START} UNION ALL SELECT one FROM p)<Now>",
    )
    assert schemas(bound) == {"p": "(one INTEGER)", "q": "(one INTEGER)", "o": "(a INTEGER)"}


def test_a_mistake_in_a_loop_is_told_and_not_hidden_by_the_loop() -> None:
    error = refused_text(
        f"{PRELUDE}REGISTER QUERY p AS SELECT prize FROM q, s; REGISTER QUERY q AS ISTREAM({START}"
        " UNION ALL SELECT a FROM p)<Now>"
    )
    assert error.fault == "unknown column 'prize'"


def test_a_loop_that_starts_nowhere_has_no_columns() -> None:
    error = refused_text(
        "REGISTER QUERY p AS ISTREAM(SELECT a FROM q)<Now>; REGISTER QUERY q AS SELECT a FROM p [NOW]"
    )
    assert error.fault == "the columns of 'p', 'q' cannot be told: they are defined by one another alone"


def test_a_loop_may_pass_through_with_sub_queries_and_conditions() -> None:
    bound = app(
        f"""REGISTER QUERY q AS WITH again AS (SELECT a FROM q [NOW])
            ISTREAM({START} UNION ALL SELECT a + 1 FROM (SELECT * FROM again) x
                    WHERE EXISTS (SELECT 1 FROM p WHERE p.a = x.a))<Now>""",
        "REGISTER QUERY p AS SELECT a FROM q [ROWS 5]",
    )
    assert schemas(bound) == {"q": "(a BIGINT)", "p": "(a BIGINT)"}
    assert set(bound.loops) == {("q",), ("q", "p")}


def test_readings_are_found_wherever_a_query_stands() -> None:
    bound = app(
        "REGISTER QUERY p AS SELECT a FROM t",
        """REGISTER QUERY q AS ISTREAM(
             SELECT a, (SELECT MAX(k) FROM r) AS m FROM s
             WHERE a IN (SELECT a FROM t) AND EXISTS (SELECT 1 FROM p)
               AND a > ALL (SELECT b FROM s [NOW]))<Now>""",
    )
    assert [reading.name for reading in readings(bound.queries[1].query)] == ["s", "t", "p", "s", "r"]
    assert all(reading.cut for reading in readings(bound.queries[1].query))


# ---------------------------------------------------------------- delays


def test_an_error_names_every_query_of_every_loop_and_what_is_not_monotone() -> None:
    error = refused_text(UNDELAYED)
    assert error.fault.split("\n") == [
        "these loops have no delay:",
        "    resource → buy_event → resource_stream → resource",
        "    resource → resource_stream → resource",
        "  not monotone there: resource_stream [ROWS 1] in resource",
    ]
    assert "such as resource_stream: ISTREAM(...)<Now>" in error.remedy


def test_every_loop_needs_a_delay_of_its_own() -> None:
    one = f"REGISTER QUERY p AS ISTREAM({START} UNION ALL SELECT a FROM p [NOW]){{}}"
    two = f"REGISTER QUERY q AS ISTREAM({START} UNION ALL SELECT a FROM q [NOW]){{}}"
    assert len(app(one.format("<Now>"), two.format("<1 SECOND>")).loops) == 2
    error = refused_text(PRELUDE + one.format("<Now>") + ";" + two.format(""))
    assert error.fault.split("\n")[:2] == ["this loop has no delay:", "    q → q"]


def test_a_delay_anywhere_on_the_way_round_cuts_the_loop() -> None:
    assert app(
        f"REGISTER QUERY p AS ISTREAM({START} UNION ALL SELECT a FROM q)",
        "REGISTER QUERY q AS SELECT a FROM (ISTREAM(SELECT a FROM p [NOW])<Now>) [NOW] x",
    ).loops == (("p", "q"),)


def test_a_delay_beside_the_loop_does_not_cut_it() -> None:
    error = refused_text(
        f"{PRELUDE}REGISTER QUERY p AS ISTREAM({START} UNION ALL SELECT a FROM q [NOW]);"
        "REGISTER QUERY q AS ISTREAM(SELECT p.a FROM p [NOW], (ISTREAM(SELECT a FROM t)<Now>) [NOW] x)"
    )
    assert "    p → q → p" in error.fault


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("SELECT COUNT(*) AS a FROM q [NOW]", "aggregate in q"),
        ("SELECT a FROM q [NOW] EXCEPT SELECT a FROM t", "EXCEPT in q"),
        ("SELECT a FROM q [ROWS 5]", "q [ROWS 5] in q"),
        ("SELECT a FROM q [PARTITION BY a ROWS 5]", "q [PARTITION BY #0 ROWS 5] in q"),
        ("SELECT a FROM (DSTREAM(SELECT a FROM q [NOW])) [NOW] x", "DSTREAM in q"),
    ],
)
def test_what_is_not_monotone_is_told(part: str, told: str) -> None:
    error = refused_text(f"{PRELUDE}REGISTER QUERY q AS ISTREAM({START} UNION ALL ({part}))")
    assert f"  not monotone there: {told}" in error.fault


def test_what_is_monotone_says_nothing() -> None:
    part = "SELECT DISTINCT q.a FROM q [RANGE 1 HOUR], t [NOW] WHERE q.a = t.a"
    assert (
        "monotone"
        not in refused_text(f"{PRELUDE}REGISTER QUERY q AS ISTREAM({START} UNION ALL {part})").fault
    )


def test_dense_loops_are_told_up_to_a_screenful_and_at_once() -> None:
    names = [f"q{number}" for number in range(12)]
    statements = [
        f"REGISTER QUERY {name} AS ISTREAM({START}"
        + "".join(f" UNION ALL SELECT a FROM {other} [NOW]" for other in names if other != name)
        + ")"
        for name in names
    ]
    error = refused_text(PRELUDE + ";".join(statements))
    assert len(error.fault.split("\n")) == 21
    bound = app("SET recursion = insert", *statements)
    assert sum(delay is not None for delay in delays(bound).values()) == 11
    assert not find_loops(bound.queries, cut=False)


# ---------------------------------------------------------------- SET recursion = insert


def test_insert_puts_a_delay_where_it_cuts_most_loops() -> None:
    bound = bind_text("SET recursion = insert;" + UNDELAYED)
    assert delays(bound) == {"buy_event": None, "resource_stream": Delay(None)}
    assert bound.warnings[0] == "a delay <Now> was inserted behind 'resource_stream' to cut a loop"
    resource_stream = bound.query("resource_stream")
    assert resource_stream is not None
    assert isinstance(resource_stream.query, Streamify)
    assert resource_stream.query.inserted
    assert bound.loops == bind_text(TRADING).loops


def test_insert_leaves_loops_alone_that_have_a_delay() -> None:
    bound = bind_text("SET recursion = insert;" + TRADING)
    assert [query.query for query in bound.queries] == [query.query for query in bind_text(TRADING).queries]
    assert not any("inserted" in warning for warning in bound.warnings)


def test_insert_cuts_nested_loops_one_by_one() -> None:
    bound = app(
        "SET recursion = insert",
        f"REGISTER QUERY outer_loop AS ISTREAM({START} UNION ALL SELECT a FROM inner_loop [NOW])",
        """REGISTER QUERY inner_loop AS
           ISTREAM(SELECT a FROM outer_loop [NOW] UNION ALL SELECT a FROM back [NOW])""",
        "REGISTER QUERY back AS ISTREAM(SELECT a FROM inner_loop [NOW])",
    )
    # One delay behind inner_loop cuts both.
    assert delays(bound) == {"outer_loop": None, "inner_loop": Delay(None), "back": None}
    assert set(bound.loops) == {("inner_loop", "outer_loop"), ("inner_loop", "back")}


def test_nested_loops_with_delays_of_their_own_are_both_found() -> None:
    bound = app(
        f"REGISTER QUERY uni_input AS ISTREAM({START} UNION ALL SELECT a FROM all_avg_delay [NOW])",
        """REGISTER QUERY part AS
           ISTREAM(SELECT a FROM uni_input [NOW] UNION ALL SELECT a FROM part_delay [NOW])""",
        "REGISTER QUERY part_delay AS ISTREAM(SELECT a FROM part [NOW])<Now>",
        "REGISTER QUERY all_avg_delay AS ISTREAM(SELECT a FROM part [NOW])<1 SECOND>",
    )
    assert set(bound.loops) == {("part", "all_avg_delay", "uni_input"), ("part", "part_delay")}


def test_insert_cannot_help_a_loop_of_relations() -> None:
    text = f"{PRELUDE}SET recursion = insert; REGISTER QUERY p AS SELECT a FROM s UNION SELECT a FROM q;"
    error = refused_text(text + "REGISTER QUERY q AS SELECT a FROM p")
    assert error.fault.startswith("this loop has no delay")
    assert error.remedy.startswith("no query of the loop is a stream")


def test_an_inserted_delay_moves_as_few_readers_outside_the_loop_as_it_can() -> None:
    app = bind_text(
        "SET recursion = insert;"
        "REGISTER STREAM s (n BIGINT) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');"
        "REGISTER QUERY read_outside AS ISTREAM(SELECT n FROM s [NOW] UNION ALL SELECT n FROM back [NOW]);"
        "REGISTER QUERY back AS ISTREAM(SELECT n + 1 AS n FROM read_outside [NOW] WHERE n < 3);"
        "REGISTER QUERY reader AS SELECT n FROM read_outside [NOW];"
    )
    assert "a delay <Now> was inserted behind 'back' to cut a loop" in app.warnings
