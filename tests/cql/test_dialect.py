"""The grammar: every statement, window and operator parses, prints, and parses again to the same tree."""

from __future__ import annotations

import re

import pytest
import sqlglot

from kasen.cql import nodes
from kasen.cql.bind.app import bind_text
from kasen.cql.bound import (
    Delay,
    Now,
    PartitionRows,
    Range,
    Rows,
    Select,
    Slide,
    Streamify,
    Unbounded,
    Window,
)
from kasen.cql.dialect import CQL
from kasen.cql.statements import Text, parse, render
from kasen.types import BIGINT
from tests.cql.bind.binding import bind, block
from tests.cql.corpus import INPUTS, OTHERS, PAPERS, QUERIES, TRADING, registered

STATEMENTS = [*INPUTS, *OTHERS, *(f"REGISTER QUERY q AS {query}" for query in QUERIES)]

MINUTE = 60_000_000


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_printed_and_parsed_again_is_the_same(text: str) -> None:
    (statement,) = parse(Text(text))
    printed = render(statement)
    (again,) = parse(Text(printed))
    assert again == statement
    assert render(again) == printed


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_printed_and_bound_again_means_the_same(query: str) -> None:
    registered_query = bind_text(registered(query)).queries[-1]
    assert bind(registered_query.text) == registered_query.query


@pytest.mark.parametrize("query", QUERIES)
def test_words_of_the_language_are_read_in_any_case(query: str) -> None:
    def change(text: str, word: str) -> str:
        # Quoted pieces stay as they are.
        parts = re.split(r"""('(?:[^']|'')*'|"[^"]*")""", text)
        return "".join(part if part[:1] in ("'", '"') else getattr(part, word)() for part in parts)

    plain = str(bind(query)).lower()
    assert str(bind(change(query, "upper"))).lower() == plain
    assert str(bind(change(query, "lower"))).lower() == plain


@pytest.mark.parametrize("name", PAPERS)
def test_the_documents_queries_bind_as_they_are_printed(name: str) -> None:
    assert bind_text(PAPERS[name]).queries


@pytest.mark.parametrize("name", PAPERS)
def test_the_documents_queries_mean_the_same_with_semicolons_and_as(name: str) -> None:
    text = re.sub(r"\n(?=REGISTER)", ";\n", PAPERS[name])
    text = re.sub(r"(REGISTER QUERY \w+)", r"\1 AS", text)
    plain, dressed = bind_text(PAPERS[name]), bind_text(text)
    assert [query.query for query in dressed.queries] == [query.query for query in plain.queries]
    assert dressed.loops == plain.loops


def test_statements_end_with_a_semicolon_or_before_register() -> None:
    text = ";;SET flush = true; ;REGISTER STREAM a (x INT) FROM 'csv' REGISTER QUERY q SELECT x FROM a"
    statements = parse(Text(text))
    kinds = [type(statement) for statement in statements]
    assert kinds == [nodes.Setting, nodes.RegisterInput, nodes.RegisterQuery]
    assert parse(Text("")) == parse(Text(" \n -- nothing\n")) == []


def test_sqlglot_knows_the_dialect() -> None:
    (statement,) = sqlglot.parse("REGISTER QUERY q SELECT a FROM s [ROWS 5]", read=CQL)
    assert statement is not None
    assert statement.sql(dialect=CQL) == "REGISTER QUERY q AS SELECT a FROM s [ROWS 5]"


# ---------------------------------------------------------------- windows, streamify operators, delays


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("", Unbounded()),
        ("[UNBOUNDED]", Unbounded()),
        ("[Rows Unbounded]", Unbounded()),
        ("[Range Unbounded]", Unbounded()),
        ("[NOW]", Now()),
        ("[RANGE 4 MINUTES]", Range(4 * MINUTE)),
        ("[RANGE 0 MINUTES]", Range(0)),
        ("[RANGE 0.5 MINUTES]", Range(MINUTE // 2)),
        ("[RANGE 4 MINUTES WATTR ts]", Range(4 * MINUTE)),
        ("[RANGE 4 MINUTES SLIDE 1 MINUTE]", Slide(4 * MINUTE, MINUTE)),
        ("[RANGE 4m SLIDE 1m WATTR TS]", Slide(4 * MINUTE, MINUTE)),
        ("[ROWS 10]", Rows(10)),
        ("[ROWS 10 SLIDE 1]", Rows(10)),
        ("[ROWS 10 SLIDE 20]", Rows(10, 20)),
        ("[PARTITION BY b ROWS 2]", PartitionRows((1,), 2)),
        ("[partition by s.b, A rows 2]", PartitionRows((1, 0), 2)),
    ],
)
def test_every_window(text: str, window: Window) -> None:
    assert block(f"SELECT a FROM s {text}").sources[0].window == window


@pytest.mark.parametrize(
    ("unit", "spellings", "micros"),
    [
        ("MICROSECOND", "MICROSECOND MICROSECONDS US USEC USECS µs μs", 1),
        ("MILLISECOND", "MILLISECOND MILLISECONDS MS MSEC MSECS", 1_000),
        ("SECOND", "SECOND SECONDS S SEC SECS", 1_000_000),
        ("MINUTE", "MINUTE MINUTES M MIN MINS", MINUTE),
        ("HOUR", "HOUR HOURS H HR HRS", 60 * MINUTE),
        ("DAY", "DAY DAYS D", 24 * 60 * MINUTE),
    ],
)
def test_every_unit_of_time_in_every_spelling(unit: str, spellings: str, micros: int) -> None:
    for word in spellings.split():
        for spelling in (word, word.lower(), word.capitalize()):
            assert block(f"SELECT a FROM s [RANGE 3 {spelling}]").sources[0].window == Range(3 * micros)
            assert block(f"SELECT a FROM s [RANGE 3{spelling}]").sources[0].window == Range(3 * micros)
            assert bind(f"SELECT u + INTERVAL '3' {spelling} FROM s") == bind(
                f"SELECT u + INTERVAL '3 {unit}' FROM s"
            )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ISTREAM(SELECT a FROM s)", ("ISTREAM", None, None)),
        ("dstream(SELECT a FROM s)", ("DSTREAM", None, None)),
        ("Rstream(SELECT a FROM s)", ("RSTREAM", None, None)),
        ("RSTREAM[2 MINUTES](SELECT a FROM s)", ("RSTREAM", 2 * MINUTE, None)),
        ("ISTREAM(SELECT a FROM s)<Now>", ("ISTREAM", None, Delay(None))),
        ("ISTREAM(SELECT a FROM s) < now >", ("ISTREAM", None, Delay(None))),
        ("ISTREAM(SELECT a FROM s)<5 minutes>", ("ISTREAM", None, Delay(5 * MINUTE))),
        ("RSTREAM[1 MINUTE](SELECT a FROM s)<1us>", ("RSTREAM", MINUTE, Delay(1))),
        ("SELECT ISTREAM(a) FROM s", ("ISTREAM", None, None)),
        ("SELECT RSTREAM[1 MINUTE](a) FROM s", ("RSTREAM", MINUTE, None)),
    ],
)
def test_every_streamify_operator_and_delay(text: str, expected: tuple[object, ...]) -> None:
    bound = bind(text)
    assert isinstance(bound, Streamify)
    assert (bound.kind.value, bound.every, bound.delay) == expected


def test_streamify_in_the_select_list_is_streamify_around_the_query() -> None:
    inside = bind("SELECT DISTINCT ISTREAM(a, COUNT(*) AS n) FROM s [ROWS 5] GROUP BY a HAVING COUNT(*) > 1")
    around = bind("ISTREAM(SELECT DISTINCT a, COUNT(*) AS n FROM s [ROWS 5] GROUP BY a HAVING COUNT(*) > 1)")
    assert inside == around


def test_bare_numbers_are_lengths_of_time_where_time_is_bigint() -> None:
    text = """
        REGISTER STREAM z (a INT) TIMESTAMP BY ts SLACK 3 RETAIN 100 IDLE 5 SECONDS FROM 'csv';
        REGISTER QUERY q AS RSTREAM[2](SELECT a FROM z [RANGE 4 SLIDE 1])<3>;
    """
    app = bind_text(text)
    query = app.queries[0].query
    assert app.time == BIGINT
    assert (app.inputs[0].slack, app.inputs[0].retain, app.inputs[0].idle) == (3, 100, 5_000_000)
    assert isinstance(query, Streamify)
    assert (query.every, query.delay) == (2, Delay(3))
    assert isinstance(query.query, Select)
    assert query.query.sources[0].window == Slide(4, 1)


# ---------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("a + b * 2", "a + (b * 2)"),
        ("a - b - 1", "(a - b) - 1"),
        ("a / b / 2 % 3", "((a / b) / 2) % 3"),
        ("-a * b", "(-a) * b"),
        ("- -a", "-(-a)"),
        ("+a - +b", "a - b"),
        ("c || 'x' || 'y'", "(c || 'x') || 'y'"),
        ("a::DOUBLE / 2", "CAST(a AS DOUBLE) / 2"),
        ("-a::DOUBLE", "-(CAST(a AS DOUBLE))"),
        ("f OR f AND NOT f", "f OR (f AND (NOT f))"),
        ("NOT a = 1", "NOT (a = 1)"),
        ("NOT a IS NULL", "NOT (a IS NULL)"),
        ("a + 1 < b - 1", "(a + 1) < (b - 1)"),
        ("a < b IS NULL", "(a < b) IS NULL"),
        ("a IN (1, 2) IS NOT TRUE", "(a IN (1, 2)) IS NOT TRUE"),
        ("a NOT IN (1, 2)", "NOT (a IN (1, 2))"),
        ("a NOT BETWEEN 1 AND b + 1", "NOT (a BETWEEN 1 AND (b + 1))"),
        ("c NOT LIKE 'x' || '%'", "NOT (c LIKE ('x' || '%'))"),
        ("a BETWEEN 1 AND 2 AND f", "(a BETWEEN 1 AND 2) AND f"),
        ("a != b", "a <> b"),
        ("CASE a WHEN 1 THEN 2 END", "CASE WHEN a = 1 THEN 2 ELSE NULL END"),
        ("IF(f, 1, 2)", "CASE WHEN f THEN 1 ELSE 2 END"),
        ("NULLIF(a, 1)", "CASE WHEN a = 1 THEN NULL ELSE a END"),
        ("SUBSTRING(c FROM 2 FOR 3)", "SUBSTR(c, 2, 3)"),
        ("POSITION('x' IN c)", "STRPOS(c, 'x')"),
        ("TIMESTAMP '2026-01-01 00:00:00'", "CAST('2026-01-01' AS TIMESTAMP)"),
        ("u + INTERVAL '90' SECOND", "INTERVAL 1.5 MINUTES + u"),
        ("u - INTERVAL '5' DAY", "u + INTERVAL -5 DAYS"),
        ("u - INTERVAL '5' DAY", "u + -INTERVAL '5 days'"),
    ],
)
def test_operators_bind_as_the_parentheses_say(short: str, full: str) -> None:
    assert block(f"SELECT {short} FROM s").items == block(f"SELECT {full} FROM s").items


def test_a_chain_of_and_or_or_is_one_call_however_long() -> None:
    chain = " AND ".join(["a = 1"] * 5000)
    assert len(str(block(f"SELECT a FROM s WHERE {chain}").where).split("op='='")) == 5001


def test_words_that_are_not_reserved_can_be_names() -> None:
    words = "range rows now slide partition stream query timestamp date interval key value all any count"
    columns = ", ".join(f"{word} INTEGER" for word in words.split())
    names = ", ".join(words.split())
    text = f"REGISTER STREAM window ({columns}) FROM 'csv'; REGISTER QUERY set AS SELECT {names} FROM window"
    assert list(bind_text(text).queries[0].schema.names) == words.split()


def test_anything_in_double_quotes_is_a_name() -> None:
    text = """
        REGISTER STREAM "select" ("from" INT, "a ""b" INT, "価格" INT, "now" INT) FROM 'csv';
        REGISTER QUERY "register" AS SELECT "from", "a ""b" AS "group", 価格, s."now" FROM "select" AS s;
    """
    query = bind_text(text).queries[0]
    assert query.name == "register"
    assert query.schema.names == ("from", "group", "価格", "now")


def test_names_are_the_same_in_any_case_also_in_quotes() -> None:
    assert block('SELECT A, S."B" FROM "S"').items == block("SELECT a, s.b FROM s").items


@pytest.mark.parametrize(
    "text",
    [
        "-- before\nSELECT a FROM s",
        "SELECT a -- the column\nFROM s",
        "SELECT a FROM s -- at the end",
        "SELECT a FROM s --",
        "/* before */ SELECT a FROM s",
        "SELECT/**/a/* in ' between */FROM/* \n */s",
        "SELECT a /* with /* another */ inside */ FROM s",
        "SELECT a FROM /*+ not a hint here */ s",
    ],
)
def test_comments_say_nothing(text: str) -> None:
    assert bind(text) == bind("SELECT a FROM s")


def test_what_looks_like_a_comment_in_quotes_is_text() -> None:
    items = block("SELECT '-- no', '/* no */', 'no;' FROM s").items
    assert [getattr(item, "value", None) for item in items] == ["-- no", "/* no */", "no;"]


def test_a_hint_behind_select_is_kept() -> None:
    assert block("SELECT /*+ parallel trees */ a FROM s").hint == "PARALLEL TREES"


def test_the_trading_app_parses_with_windows_line_ends() -> None:
    assert bind_text(TRADING.replace("\n", "\r\n")).queries[0].query == bind_text(TRADING).queries[0].query
