"""Chains of thousands of operators, and the deepest nesting there may be: bound, planned, shown and run."""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable

import pytest

import kasen
from kasen.cql.bind.app import bind_text
from kasen.cql.bind.change import LiveCatalog
from kasen.cql.bound import Query, SetOperation
from kasen.cql.check.extent import MAX_EXPRESSION, extent_of
from kasen.errors import QueryError
from kasen.plan.explain.explain import explain
from kasen.plan.physical import plan_app

INPUTS = """
REGISTER STREAM s (a BIGINT, b INTEGER, c VARCHAR, d DOUBLE, e DECIMAL(5, 2), f BOOLEAN, ts BIGINT)
  TIMESTAMP BY ts FROM 'memory';
"""
MANY = 10_000
#: For chains that are treated as one of the others is.
FEWER = 2_000
#: Seconds of this process. The longest takes ten on a laptop; the square of it would take hours.
SLOWEST = 120.0


def app(query: str) -> str:
    return f"{INPUTS}REGISTER QUERY q AS {query}"


def answers(query: str) -> list[tuple[int, tuple[object, ...]]]:
    p = kasen.Pipeline().execute(app(query))
    row = {"b": 7, "c": "x", "d": 0.5, "e": "1.25", "f": True}
    p.push("s", [row | {"ts": ts, "a": ts} for ts in (1, 2, 3)])
    p.advance("s", 10)
    return [(change.diff, change.values) for change in p.query("q").changes()]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a FROM s WHERE " + " AND ".join(f"a <> {i}" for i in range(2, MANY)), [1]),
        ("SELECT a FROM s WHERE " + " AND ".join(f"(a <> {i} OR b = 8)" for i in range(2, FEWER)), [1]),
        ("SELECT a FROM s WHERE " + " OR ".join(f"a = {i}" for i in range(2, MANY)), [2, 3]),
        ("SELECT a FROM s WHERE a IN (" + ", ".join(map(str, range(2, MANY))) + ")", [2, 3]),
        (" UNION ALL ".join(f"SELECT a FROM s WHERE a = {i}" for i in range(3, MANY)), [3]),
        (" UNION ".join(["SELECT a FROM s"] * FEWER), [1, 2, 3]),
        (" INTERSECT ".join(["SELECT a FROM s"] * FEWER), [1, 2, 3]),
        ("SELECT LENGTH(" + " || ".join(["c"] * FEWER) + ") AS n FROM s", [FEWER] * 3),
        (
            "SELECT CASE " + " ".join(f"WHEN a = {i} THEN {-i}" for i in range(FEWER)) + " END AS x FROM s",
            [-1, -2, -3],
        ),
    ],
    ids=["and", "and of or", "or", "in", "union all", "union", "intersect", "||", "case"],
)
def test_thousands_in_a_chain_work(query: str, expected: list[int]) -> None:
    begun = time.process_time()
    assert answers(query) == [(1, (value,)) for value in expected]
    assert time.process_time() - begun < SLOWEST


JOINED = "FROM s [RANGE 5] AS x, s [RANGE 6] AS y"

GROWING: dict[str, Callable[[int], str]] = {
    "conditions of a join": lambda n: (
        f"SELECT x.a {JOINED} WHERE " + " AND ".join(f"x.a + {i} <> y.b" for i in range(n))
    ),
    "conditions of a join of three": lambda n: (
        f"SELECT x.a {JOINED}, s [RANGE 7] AS z WHERE " + " AND ".join(f"x.a + {i} <> z.b" for i in range(n))
    ),
    "keys of one class": lambda n: (
        f"SELECT x.a {JOINED} WHERE " + " AND ".join(f"x.a + {i} = y.a" for i in range(n))
    ),
    "keys of classes that become one": lambda n: (
        f"SELECT x.a {JOINED} WHERE "
        + " AND ".join(
            [*(f"x.a + {i} = y.a + {i}" for i in range(n)), *(f"x.a = y.a + {i}" for i in range(n))]
        )
    ),
    "conditions of an outer join": lambda n: (
        "SELECT x.a FROM s [RANGE 5] AS x LEFT JOIN s [RANGE 6] AS y ON x.a = y.a AND "
        + " AND ".join(f"y.a + {i} <> y.b" for i in range(n))
    ),
}


def seconds_to_plan(query: str) -> float:
    """CPU seconds of this process, without the collector's, which looks at all that the tests hold."""
    gc.collect()
    gc.disable()
    begun = time.process_time()
    try:
        plan_app(bind_text(app(query)))
    finally:
        gc.enable()
    return time.process_time() - begun


@pytest.mark.parametrize("query", GROWING.values(), ids=GROWING.keys())
def test_twice_as_many_parts_cost_at_most_two_and_a_half_times_as_much(query: Callable[[int], str]) -> None:
    seconds_to_plan(query(10))
    short, long = (min(seconds_to_plan(query(n)) for _ in range(2)) for n in (2_500, 5_000))
    assert long < 2.5 * max(short, 0.3)


def test_a_statement_that_is_too_long_is_refused_before_anything_is_made_of_it() -> None:
    """As long as the control socket takes. Others in the text are as long as they may be together."""
    others = ";".join(f"REGISTER QUERY r{i} AS SELECT a FROM s [NOW]" for i in range(3))
    text = app("SELECT a FROM s WHERE " + " AND ".join(f"a <> {n}" for n in range(400_000)))
    begun = time.process_time()
    with pytest.raises(QueryError, match="this statement has more than 600,000 words and signs") as error:
        bind_text(f"{text};{others}")
    assert time.process_time() - begun < 15
    assert "REGISTER QUERY q" in str(error.value)


def test_queries_that_read_one_another_in_a_chain_come_in_linear_time() -> None:
    catalog = LiveCatalog.of(bind_text(app("SELECT a FROM s")))

    def seconds(n: int) -> float:
        text = ";".join(
            f"REGISTER QUERY r{i} AS ISTREAM(SELECT a FROM {f'r{i - 1}' if i else 's'} [NOW])"
            for i in range(n)
        )
        gc.collect()
        gc.disable()
        begun = time.process_time()
        try:
            (change,) = catalog.bind(text)
            catalog.copy().apply(change)
        finally:
            gc.enable()
        return time.process_time() - begun

    seconds(10)
    short, long = (min(seconds(n) for _ in range(2)) for n in (1_000, 2_000))
    assert long < 2.5 * max(short, 0.3)


def test_the_64th_aggregate_is_refused_with_its_place() -> None:
    having = " AND ".join(f"SUM(a + {i}) > 0" for i in range(20_000))
    begun = time.process_time()
    with pytest.raises(QueryError, match="more than 63 different aggregates") as caught:
        bind_text(app(f"SELECT 1 AS x FROM s HAVING {having}"))
    assert time.process_time() - begun < SLOWEST / 10
    text = app(f"SELECT 1 AS x FROM s HAVING {having}")
    assert caught.value.place is not None
    assert (
        "SUM(a + 63)" in text.splitlines()[caught.value.place.line - 1][caught.value.place.column - 1 :][:11]
    )


def height(query: Query) -> int:
    return 1 + max(height(query.left), height(query.right)) if isinstance(query, SetOperation) else 0


def test_a_chain_of_unions_is_a_balanced_tree() -> None:
    (query,) = bind_text(app(" UNION ALL ".join(["SELECT a FROM s"] * 1000))).queries
    assert height(query.query) == 10


ITEMS = ["a", "b", "d", "e", "NULL", "a * 3000000000", "1.5", "12345678901"]


@pytest.mark.parametrize("seed", range(25))
def test_a_chain_means_what_it_means_from_left_to_right(seed: int) -> None:
    """Also where types widen from operand to operand, and a cast on the way loses a value."""
    rng = random.Random(seed)
    chain = nested = f"SELECT {rng.choice(ITEMS)} AS x FROM s"
    for _ in range(rng.randint(2, 7)):
        word = rng.choice(["UNION", "UNION", "UNION ALL", "UNION ALL", "EXCEPT", "EXCEPT ALL"])
        side = f"SELECT {rng.choice(ITEMS)} AS x FROM s WHERE a <> {rng.randint(0, 3)}"
        chain, nested = f"{chain} {word} {side}", f"({nested}) {word} {side}"
    assert answers(chain) == answers(nested), chain


NESTED = {
    "+": "SELECT " + " + ".join(["a"] * 117) + " AS x FROM s",
    "sums of sub-queries": "SELECT a + 1 + 1 + 1 + 1 + 1 + 1 AS a FROM (" * 23 + "SELECT a FROM s" + ")" * 23,
    "parentheses": f"SELECT {'(' * 50}a{' + a)' * 50} AS x FROM s",
    "calls": f"SELECT {'COALESCE(a, ' * 50}a{')' * 50} AS x FROM s",
    "CASE": f"SELECT {'CASE WHEN f THEN 1 ELSE ' * 50}a{' END' * 50} AS x FROM s",
    "NOT": f"SELECT a FROM s WHERE {'NOT ' * 50}f",
    "AND in OR": f"SELECT a FROM s WHERE {'(a = 1 AND (f OR ' * 25}f{'))' * 25}",
    "FROM": "SELECT DISTINCT a + 1 AS a FROM (" * 38 + "SELECT a FROM s [ROWS 3]" + ") WHERE a > 1" * 38,
    "streams": "ISTREAM(SELECT a FROM (" * 24 + "ISTREAM(SELECT a FROM s [ROWS 3])" + ") [ROWS 2])" * 24,
    "IN": "SELECT a FROM s [ROWS 2] WHERE a IN (" * 27 + "SELECT a FROM s" + ")" * 27,
    "values": "SELECT MAX(a) AS a FROM s WHERE a > (" * 28 + "SELECT MIN(a) AS a FROM s" + ")" * 28,
    "joins": "SELECT s0.a FROM s [NOW] AS s0" + "".join(f", s [NOW] AS s{i}" for i in range(1, 100)),
    "EXCEPT": " EXCEPT ".join(["SELECT a FROM s"] * 110),
    "WITH": "WITH x0 AS (SELECT a FROM s [ROWS 2])"
    + "".join(f", x{i} AS (SELECT DISTINCT a + 1 AS a FROM x{i - 1} WHERE a > 1)" for i in range(1, 60))
    + " SELECT a FROM x59",
}


@pytest.mark.parametrize("query", NESTED.values(), ids=NESTED.keys())
def test_the_deepest_nesting_leaves_room_on_the_stack(query: str) -> None:
    """Whoever calls may be 300 calls deep already."""
    bound = bind_text(app(query))
    assert extent_of(bound.queries[0].query).expression <= MAX_EXPRESSION
    kasen.Pipeline().execute(app(query)).push("s", [])  # what is imported or compiled late is there now
    frames, frame = 0, sys._getframe()
    while frame.f_back is not None:
        frames, frame = frames + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(frames + 700)
    try:
        plan_app(bind_text(app(query)))
        explain(bound)
        answers(query)
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT " + " + ".join(["a"] * 200) + " AS x FROM s",
        f"SELECT {'(' * 51}a{')' * 51} AS x FROM s",
        "SELECT a + 1 + 1 + 1 + 1 + 1 + 1 AS a FROM (" * 26 + "SELECT a FROM s" + ")" * 26,
        "SELECT a FROM s WHERE " + " AND ".join(["EXISTS (SELECT a FROM s)"] * 300),
        " EXCEPT ".join(["SELECT a FROM s"] * 200),
        " ".join(["SELECT a FROM s INTERSECT SELECT a FROM s INTERSECT ALL"] * 200) + " SELECT a FROM s",
    ],
    ids=["+", "parentheses", "sums of sub-queries", "AND of EXISTS", "EXCEPT", "INTERSECT and INTERSECT ALL"],
)
def test_what_is_nested_deeper_is_refused_with_its_place(query: str) -> None:
    with pytest.raises(QueryError, match="nested too deeply") as caught:
        bind_text(app(query))
    assert caught.value.place is not None
