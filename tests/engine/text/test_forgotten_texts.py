"""Texts that nothing holds are forgotten, and only those: who forgets all that it can answers the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import cast
from unittest.mock import patch

import pytest

import kasen
from kasen.aggregates import UserAggregate
from kasen.cql.bind.app import bind_text
from kasen.cql.bound import App
from kasen.engine.batch import I64
from kasen.engine.operator import Operator
from kasen.errors import QueryError
from tests.engines import Engine, forgetful, local, networked, sharded
from tests.oracle import sniffer
from tests.random_apps.apps import RandomApp, random_app
from tests.runtime.live.test_live_random import changing_app

INPUTS = {
    "s": "STREAM s (k VARCHAR, v BIGINT, c VARCHAR) TIMESTAMP BY ts",
    "r": "STREAM r (k VARCHAR, w BIGINT) TIMESTAMP BY ts",
    "t": "STREAM t (k VARCHAR, u VARCHAR) TIMESTAMP BY ts SLACK 3",
    "z": "STREAM z (k VARCHAR, c VARCHAR) TIMESTAMP BY ts RETAIN 6",
    "p": "RELATION p (k VARCHAR, name VARCHAR)",
    "o": "RELATION o (k VARCHAR, owner VARCHAR) TIMESTAMP BY ts",
}

LOOP = "ISTREAM(SELECT k, c FROM s [NOW] UNION ALL SELECT c AS k, k AS c FROM q_loop [NOW] WHERE k < c)<2>"
QUERIES = {
    "rows": "SELECT k, c FROM s [ROWS 3]",
    "range": "SELECT k, c FROM s [RANGE 4]",
    "now": "SELECT k, c FROM s [NOW]",
    "rows_slide": "SELECT k, c FROM s [ROWS 4 SLIDE 2]",
    "range_slide": "SELECT k, c FROM s [RANGE 4 SLIDE 2]",
    "partition": "SELECT k, c FROM s [PARTITION BY k ROWS 1]",
    "groups": "SELECT k, COUNT(*) AS n FROM s GROUP BY k",
    "extremes": "SELECT v, MIN(c) AS lo, MAX(c) AS hi, COUNT(DISTINCT c) AS n FROM s [RANGE 5] GROUP BY v",
    "sliding_groups": "SELECT k, MAX(v) AS v FROM s [RANGE 4 SLIDE 2] GROUP BY k",
    "longer_groups": "SELECT k, MAX(v) AS v FROM s [RANGE 8 SLIDE 4] GROUP BY k",
    "sliding_extremes": "SELECT v, MIN(c) AS lo, MAX(c) AS hi FROM s [RANGE 4 SLIDE 2] GROUP BY v",
    "users": "SELECT k, LONGEST(c) AS c FROM s [RANGE 5] GROUP BY k",
    "users_ever": "SELECT k, LONGEST(c) AS c FROM s GROUP BY k",
    "join_ever": "SELECT s.c, r.w FROM s, r WHERE s.k = r.k",
    "join": "SELECT s.c, r.w FROM s [RANGE 5], r [RANGE 5] WHERE s.k = r.k",
    "pairs": "ISTREAM(SELECT s.c, r.w FROM s [RANGE 5], r [RANGE 5] WHERE s.k = r.k)",
    "three": "SELECT s.c, r.w, t.u FROM s [RANGE 9], r [RANGE 9], t [RANGE 9] WHERE s.k = r.k AND r.k = t.k",
    "left_join": "SELECT s.c, r.w FROM s [RANGE 5] LEFT JOIN r [RANGE 5] ON s.k = r.k",
    "semi_join_ever": "SELECT c FROM s WHERE k NOT IN (SELECT k FROM r)",
    "semi_join": "SELECT c FROM s [RANGE 5] WHERE k IN (SELECT k FROM r [RANGE 5])",
    "distinct_ever": "SELECT DISTINCT k FROM s",
    "distinct": "SELECT DISTINCT k FROM s [RANGE 6]",
    "minus": "SELECT k FROM s [RANGE 6] EXCEPT SELECT k FROM r [RANGE 3]",
    "whole_ever": "RSTREAM(SELECT k FROM s WHERE v = 1)",
    "whole": "RSTREAM(SELECT k FROM s [RANGE 3])",
    "every": "RSTREAM[3](SELECT k FROM s)",
    "gone": "DSTREAM(SELECT k, c FROM s [RANGE 4])",
    "delay": "ISTREAM(SELECT c FROM s [NOW])<3>",
    "table": "SELECT s.c, p.name FROM s [NOW], p WHERE s.k = p.k",
    "relation": "SELECT s.c, o.owner FROM s [NOW], o WHERE s.k = o.k",
    "functions": "ISTREAM(SELECT UPPER(k) AS a, k || c AS b, c LIKE 'c1%' AS d, k < c AS e FROM s [ROWS 2])",
    "constants": "ISTREAM(SELECT 'new' AS a, 'a' || 'b' AS b, CAST(17 AS VARCHAR) AS d, c FROM s [NOW])",
    "chosen": "ISTREAM(SELECT c FROM s [NOW] WHERE k = 'k3' OR k LIKE 'k1%' OR c > 'c5')",
    "loop": LOOP,
    "late": "ISTREAM(SELECT k, u FROM t [NOW])",
}


@kasen.aggregate(name="longest", arguments=["VARCHAR"], returns="VARCHAR")
class Longest:
    """The longest text, the greatest of those."""

    def init(self) -> str:
        return ""

    def add(self, state: str, text: str) -> str:
        return max(state, text, key=lambda one: (len(one), one))

    merge = add

    def result(self, state: str) -> str:
        return state


def write(folder: Path) -> None:
    """Sixty rows each, most of their texts in a row or two."""
    random = Random(7)

    def key() -> str:
        return f"k{random.randrange(12)}"

    def rows(header: str, *cells: str) -> str:
        return "\n".join([header, *cells]) + "\n"

    (folder / "s.csv").write_text(
        rows("ts,k,v,c", *(f"{i},{key()},{random.randrange(3)},c{random.randrange(40)}" for i in range(60)))
    )
    (folder / "z.csv").write_text(rows("ts,k,c", *(f"{i},{key()},z{i}" for i in range(60))))
    (folder / "r.csv").write_text(rows("ts,k,w", *(f"{i},{key()},{i}" for i in range(60))))
    (folder / "t.csv").write_text(rows("ts,k,u", *(f"{i + i % 3},{key()},u{i}" for i in range(60))))
    (folder / "p.csv").write_text(rows("k,name", *(f"k{i},name{i}" for i in range(6))))
    signed = [f"{i},{1 if i < 20 else -1},k{i % 20 % 9},owner{i % 20}" for i in range(40)]
    (folder / "o.csv").write_text(rows("ts,diff,k,owner", *signed))


def bind(folder: Path, *queries: str) -> App:
    """An app of some queries, by name or as changes, with the inputs that they read."""
    write(folder)
    lines = [f"REGISTER QUERY q_{one} AS {QUERIES[one]};" if one in QUERIES else one for one in queries]
    used = [name for name in INPUTS if re.search(rf"(FROM|JOIN|,) {name}\b", " ".join(lines))]
    inputs = [f"REGISTER {INPUTS[name]} FROM 'csv' OPTIONS (path '{name}.csv');" for name in used]
    return bind_text(
        "\n".join([*inputs, *lines]), folder, "", sniffer(folder), [cast(UserAggregate, Longest)]
    )


def answers(engine: Engine, app: App, folder: Path) -> dict[str, list[str]]:
    return {name: [repr(row) for row in rows] for name, rows in engine(app, folder).queries.items()}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_over_texts_answers_the_same_however_much_is_forgotten(name: str, tmp_path: Path) -> None:
    app = bind(tmp_path, name)
    expected = answers(local(1 << 16), app, tmp_path)
    assert any(expected.values())
    for engine in (local(3, restart=True), networked(local(1)), sharded(7, 2)):
        assert answers(forgetful(engine), app, tmp_path) == expected


#: Operators, and queries in which nothing else holds their texts.
HOLDERS = {
    "RowsWindow": "rows",
    "RangeWindow": "range",
    "SlideWindow": "range_slide",
    "PartitionWindow": "partition",
    "Aggregate": "groups",
    "SharableSlidingAggregate": "longer_groups",
    "SlidingAggregate": "sliding_extremes",
    "UserAggregate": "users_ever",
    "HashJoin": "join_ever",
    "MJoin": "three",
    "SemiJoin": "semi_join_ever",
    "Bag": "distinct_ever",
    "RStream": "whole_ever",
    "PeriodicRStream": "every",
    "Delay": "delay",
}


def operators() -> dict[str, type[Operator]]:
    found = [Operator]
    for each in found:
        found += each.__subclasses__()
    return {each.__name__: each for each in found}


@pytest.mark.parametrize("holder", HOLDERS)
def test_an_operator_that_does_not_tell_what_it_holds_is_noticed(holder: str, tmp_path: Path) -> None:
    """So the test before this one can fail."""
    app = bind(tmp_path, HOLDERS[holder])
    asked = False

    def no_words(_: Operator) -> Iterable[I64]:
        nonlocal asked
        asked = True
        return ()

    with patch.object(operators()[holder], "held_words", no_words):
        try:
            found = answers(forgetful(local(1, restart=True)), app, tmp_path)
        except IndexError:  # a code that no text has
            found = {}
    assert asked
    assert found != answers(local(1 << 16), app, tmp_path)


def test_all_of_them_together_answer_the_same_as_queries_come_and_go(tmp_path: Path) -> None:
    comes = "AT 20 REGISTER QUERY later BACKFILL AS SELECT c FROM z [RANGE 9];"
    goes = "AT 30 DROP QUERY q_rows;\nAT 35 REPLACE QUERY q_distinct AS SELECT DISTINCT k FROM s [RANGE 9];"
    app = bind(tmp_path, *QUERIES, comes, goes)
    expected = answers(local(1 << 16), app, tmp_path)
    for engine in (local(1), local(7, restart=True)):
        assert answers(forgetful(engine), app, tmp_path) == expected


def with_more_texts(app: RandomApp, random: Random) -> RandomApp:
    """The app with most texts in a row or two, and more rows."""
    files = {}
    for name, content in app.files.items():
        header, *rows = content.splitlines()
        column = header.split(",").index("name" if name == "p.csv" else "c")
        changed = []
        for row in rows:
            cells = row.split(",")
            if cells[column] not in ("", '""') and random.random() < 0.8:
                cells[column] += str(random.randrange(30))
            changed += [",".join(cells)] * random.choice([1, 1, 2])
        files[name] = "\n".join([header, *changed]) + "\n"
    return RandomApp(app.text, files)


@pytest.mark.parametrize("make", [random_app, changing_app], ids=["fixed", "changing"])
@pytest.mark.parametrize("block", range(2))
def test_random_apps_answer_the_same_however_much_is_forgotten(
    make: Callable[[Random], RandomApp], block: int, tmp_path: Path
) -> None:
    ran = 0
    for seed in range(block * 20, block * 20 + 20):
        app = with_more_texts(make(Random(seed)), Random(seed))
        app.write(tmp_path)
        try:
            bound = bind_text(app.text, tmp_path, "", sniffer(tmp_path))
            expected = answers(local(1 << 16), bound, tmp_path)
        except QueryError:
            continue
        for engine in (local(1, restart=True), local(3)):
            assert answers(forgetful(engine), bound, tmp_path) == expected, app.text
        ran += 1
    assert ran > 5
