from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest
from pyspark import cloudpickle

import kasen
from kasen.aggregates import UserAggregate, load_python
from kasen.cli import check, explain, run
from kasen.cql.bind.app import bind_text
from kasen.engine.aggregate.user.state_text import apart, from_json, to_json
from kasen.errors import DataError, QueryError
from tests.cases_format import shown
from tests.engine.aggregate.user.user_aggregates import ALL, SPREAD, WEIGHTED
from tests.engines import ENGINES
from tests.oracle import run_app, sniffer
from tests.paths import DOCS

STREAM = (
    "REGISTER STREAM s (k VARCHAR, a INTEGER, d DOUBLE, x DECIMAL(6, 2)) TIMESTAMP BY ts FROM 'csv' "
    "OPTIONS (path 's.csv');"
)


def answers(queries: dict[str, str], rows: str, engine: str, folder: Path) -> dict[str, list[str]]:
    (folder / "s.csv").write_text("ts,k,a,d,x\n" + rows)
    text = STREAM + "".join(f"REGISTER QUERY {name} AS {query};" for name, query in queries.items())
    app = bind_text(text, folder, "", sniffer(folder), ALL)
    found = ENGINES[engine](app, folder)
    return {
        one.name: [line.replace(", ", ",") for line in shown(found.queries[one.name], one.schema, app.time)]
        for one in app.queries
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_a_users_aggregate_is_right_at_every_instant(engine: str, tmp_path: Path) -> None:
    rows = "1,x,5,,\n2,x,9,,\n3,y,4,,\n4,x,,,\n5,y,8,,\n"
    found = answers(
        {
            "by_key": "SELECT k, SPREAD(a) AS s, COUNT(*) AS n FROM s [RANGE 2] GROUP BY k",
            "ever": "SELECT spread(a) AS s FROM s",
            "panes": "SELECT MAX(a) AS hi, spread(a) AS s FROM s [RANGE 4 SLIDE 2]",
            "wide": "ISTREAM(SELECT k FROM s [ROWS 3] GROUP BY k HAVING spread(a) > 3)",
        },
        rows,
        engine,
        tmp_path,
    )
    assert found["by_key"] == [
        "1,0,0,1,x,0,1",
        "2,0,0,-1,x,0,1",
        "2,0,0,1,x,4,2",
        "3,0,0,1,y,0,1",
        "4,0,0,1,x,0,2",
        "4,0,0,-1,x,4,2",
        "5,0,0,1,x,,1",
        "5,0,0,-1,x,0,2",
        "5,0,0,-1,y,0,1",
        "5,0,0,1,y,4,2",
    ]
    assert found["ever"] == ["1,0,0,1,0", "2,0,0,-1,0", "2,0,0,1,4", "3,0,0,-1,4", "3,0,0,1,5"]
    assert found["panes"] == [
        "1,0,0,1,,",
        "2,0,0,-1,,",
        "2,0,0,1,5,0",
        "4,0,0,-1,5,0",
        "4,0,0,1,9,5",
    ]
    assert found["wide"] == ["2,0,0,1,x", "5,0,0,1,y"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_users_aggregate_may_stand_in_a_loop(engine: str, tmp_path: Path) -> None:
    loop = (
        "ISTREAM(SELECT a FROM s [NOW] UNION ALL SELECT spread(a) - 1 AS a FROM c [RANGE 2] "
        "HAVING spread(a) > 1)<1>"
    )
    found = answers({"c": loop}, "1,x,9,,\n1,x,2,,\n6,x,4,,\n9,,,,\n", engine, tmp_path)
    assert found["c"] == ["2,0,0,1,2", "2,0,0,1,9", "3,0,0,1,6", "7,0,0,1,4"]


WINDOWS = ["", "[RANGE 3]", "[ROWS 4]", "[NOW]", "[PARTITION BY k ROWS 2]", "[RANGE 6 SLIDE 2]"]
WINDOWS += ["[RANGE 5 SLIDE 3]", "[RANGE 2 SLIDE 3]", "[ROWS 3 SLIDE 2]"]
CALLS = ("SPREAD(a)", "WEIGHTED(d, a)", "TEXTS(k)", "ROUNDED(x)", "SUM(a)", "COUNT(DISTINCT k)", "MIN(d)")


def random_rows(random: Random) -> str:
    lines = []
    for ts in sorted(random.randrange(16) for _ in range(random.randrange(2, 16))):
        cells = [random.choice(["x", "y", "Z", ""]), str(random.randrange(-2, 4))]
        cells += [random.choice(["0.1", "1e17", "-3.5", "nan", ""]), random.choice(["1.25", "-3.05", "99"])]
        lines.append(",".join([str(ts), *(cell if random.random() < 0.9 else "" for cell in cells)]))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seed", range(25))
def test_random_queries_with_users_aggregates_agree_with_the_oracle(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    queries = {}
    for number in range(3):
        calls = random.sample(CALLS[:4], random.randrange(1, 3)) + random.sample(CALLS[4:], 1)
        random.shuffle(calls)
        columns = [f"{call} AS c{i}" for i, call in enumerate(calls)]
        group = random.choice(["", "", " GROUP BY k", " GROUP BY k, a"])
        keys = [] if not group else group.removeprefix(" GROUP BY ").split(", ")
        where = random.choice(["", "", " WHERE a > 0"])
        source = f"s {random.choice(WINDOWS)}"
        if random.random() < 0.2:
            source = "s [ROWS 2] AS s, (SELECT a AS b FROM s [RANGE 1]) AS t"
        query = f"SELECT {', '.join(keys + columns)} FROM {source}{where}{group}"
        queries[f"q{number}"] = random.choice(["{}", "ISTREAM({})", "RSTREAM({})"]).format(query)
    rows = random_rows(random)
    expected = answers(queries, rows, "oracle", tmp_path)
    for engine in ("local-1", "local-all", "local-7-restarted", "local-1-restarted"):
        assert answers(queries, rows, engine, tmp_path) == expected, (seed, engine, queries, rows)


def push(p: kasen.Pipeline, rows: Iterable[tuple[int, object]]) -> list[tuple[object, ...]]:
    p.push("s", [{"ts": ts, "v": value} for ts, value in rows])
    return [tuple(row.values()) for row in p.query("q").to_arrow().select(["ts", "diff", "x"]).to_pylist()]


def pipeline(aggregate: object, call: str, type_: str = "BIGINT", window: str = "") -> kasen.Pipeline:
    p = kasen.Pipeline()
    if isinstance(aggregate, UserAggregate):
        p.aggregate(aggregate)
    else:
        p.aggregate("mine", aggregate, arguments=[type_], returns=type_)  # type: ignore[arg-type]
    p.execute(
        f"REGISTER STREAM s (ts BIGINT, v {type_}) TIMESTAMP BY ts FROM 'memory';"
        f"REGISTER QUERY q AS SELECT {call} AS x FROM s {window};"
    )
    return p


class Total:
    def init(self) -> int:
        return 0

    def add(self, state: int, x: int) -> int:
        if x == 13:
            raise ValueError("unlucky")
        return state + x

    def merge(self, one: int, other: int) -> int:
        return one + other

    def result(self, state: int) -> int:
        return state


UNLUCKY = {
    "[RANGE 1]": [(1, 1, 1), (2, -1, 1), (2, 1, None), (4, -1, None), (4, 1, 5)],
    "[RANGE 2 SLIDE 1]": [(1, 1, 0), (2, -1, 0), (2, 1, 1), (3, -1, 1), (3, 1, None)],
}


@pytest.mark.parametrize("window", UNLUCKY)
def test_what_fails_gives_null_while_its_row_is_there_and_is_counted_and_told(window: str) -> None:
    p = pipeline(Total, "MINE(v)", window=window)
    found = push(p, [(1, 1), (2, 13), (3, 2), (4, 3), (5, 4)])
    assert sorted(found, key=lambda row: row[:2]) == UNLUCKY[window]
    count, notes = p.failures
    assert count == 2
    assert notes == ("mine(13) failed: ValueError: unlucky",)


def test_a_result_of_another_type_is_a_failure() -> None:
    class Wrong(Total):
        def result(self, state: int) -> int:
            return str(state)  # type: ignore[return-value]

    p = pipeline(Wrong, "MINE(v)")
    assert push(p, [(1, 1), (2, 1)]) == [(1, 1, None)]
    assert p.failures[1] == ("mine: result(1) failed: TypeError: '1' (str) is no BIGINT",)


def test_a_state_that_cannot_be_saved_is_refused_at_the_first_row() -> None:
    class Kept(Total):
        def add(self, state: int, x: int) -> int:
            return {x}  # type: ignore[return-value]

    with pytest.raises(QueryError, match="aggregate mine keeps a set in its state, which cannot be saved"):
        push(pipeline(Kept, "MINE(v)"), [(1, 1), (2, 1)])


def test_a_windows_cost_in_merges_does_not_grow_with_its_panes() -> None:
    merges = 0

    class Counted(Total):
        def merge(self, one: int, other: int) -> int:
            nonlocal merges
            merges += 1
            return one + other

    for panes in (4, 64):
        merges = 0
        p = pipeline(Counted, "MINE(v)", window=f"[RANGE {panes} SLIDE 1]")
        assert push(p, [(ts, 1) for ts in range(400)])[-1][2] == panes
        assert merges < 4 * 400, panes


STATES: list[object] = [
    None,
    True,
    3,
    -0.0,
    1e300,
    "é",
    [1, (2.5, "x")],
    {"a": {1: (None,)}},
    {(1, 2): []},
    10**40,
]


@pytest.mark.parametrize("state", STATES)
def test_a_state_survives_being_saved(state: object) -> None:
    again = from_json(json.loads(json.dumps(to_json(state))))
    assert repr(again) == repr(state)
    assert apart(state) == state


def test_what_cannot_be_an_aggregate_is_refused() -> None:
    with pytest.raises(QueryError, match=r"aggregate mine has no method merge\(one, other\)"):
        kasen.Pipeline().aggregate("mine", type("Half", (), {"init": int, "add": int}), ["BIGINT"], "BIGINT")
    with pytest.raises(QueryError, match="SUM is CQL's own"):
        kasen.Pipeline().aggregate("sum", Total, ["BIGINT"], "BIGINT")
    with pytest.raises(QueryError, match="aggregate mine: 'BIGNUM' is no type"):
        kasen.Pipeline().aggregate("mine", Total, ["BIGNUM"], "BIGINT")
    with pytest.raises(QueryError, match="needs a list of its arguments' types"):
        kasen.Pipeline().aggregate("mine", Total, "BIGINT", "BIGINT")
    with pytest.raises(DataError, match="needs the class"):
        kasen.Pipeline().aggregate("mine")


CALLED_WRONG = {
    "SPREAD(a, a)": "SPREAD has the wrong number of arguments, 2",
    "SPREAD(k)": "SPREAD does not take VARCHAR here",
    "SPREAD(DISTINCT a)": "SPREAD does not take DISTINCT",
    "MAX(SPREAD(a))": "an aggregate cannot stand inside another aggregate",
    "SPRED(a)": "unknown function SPRED",
}


@pytest.mark.parametrize("call", CALLED_WRONG)
def test_a_wrong_call_is_told(call: str) -> None:
    with pytest.raises(QueryError) as caught:
        bind_text(f"{STREAM} REGISTER QUERY q AS SELECT {call} AS x FROM s;", aggregates=[SPREAD, WEIGHTED])
    assert caught.value.fault == CALLED_WRONG[call]
    if call == "SPRED(a)":
        assert "SPREAD" in caught.value.remedy


def test_a_python_file_gives_its_aggregates(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(Path("tests/engine/aggregate/user/user_aggregates.py").read_text())
    assert [one.name for one in load_python(file)] == ["spread", "weighted", "texts", "rounded"]
    file.write_text("import kasen\nx = 1 / 0\n")
    with pytest.raises(QueryError, match=r"mine\.py:2: ZeroDivisionError"):
        load_python(file)
    with pytest.raises(DataError, match="no file"):
        load_python(tmp_path / "other.py")


def test_the_example_of_the_manual_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manual = (DOCS / "language.md").read_text(encoding="utf-8")
    (tmp_path / "stats.py").write_text(manual.split("```python\n")[1].split("```")[0])
    (tmp_path / "s.csv").write_text("ts,k,a,d,x\n1,x,,2,\n2,x,,8,\n3,x,,0,\n")
    app = tmp_path / "app.cql"
    app.write_text(f"{STREAM} REGISTER QUERY q AS SELECT k, GEOMEAN(d) AS g FROM s [ROWS 2] GROUP BY k;")
    python = [tmp_path / "stats.py"]
    check.check(app, python)
    explain.explain(app, python)
    assert "GEOMEAN(d); group by: k; in Python: GEOMEAN;" in capsys.readouterr().out
    run.run_app(app, run.Job(run.Engine.local, tmp_path / "out", python=python))
    found = (tmp_path / "out" / "q.csv").read_text().splitlines()
    assert found[1:] == ["1,0,0,1,x,2.0", "2,0,0,-1,x,2.0", "2,0,0,1,x,4.0", "3,0,0,1,x,", "3,0,0,-1,x,4.0"]
    assert "warning: geomean(0.0) failed: ValueError" in capsys.readouterr().err


def test_a_python_file_travels_to_other_processes_whole(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    mine = Path("tests/engine/aggregate/user/user_aggregates.py").read_text().split("@kasen.aggregate")
    file.write_text(
        f"{mine[0]}\ndef least(values):\n    return min(values)\n\n\n"
        f"@kasen.aggregate{mine[1].replace('min(state)', 'least(state)')}"
    )
    (one,) = load_python(file)
    sent = cloudpickle.dumps(one)  # type: ignore[no-untyped-call]
    code = "import pickle, sys; one = pickle.load(sys.stdin.buffer).implementation(); print(one.add([5], 3))"
    found = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True)
    assert found.stdout == b"[3, 5]\n"


def test_snapshots_hold_no_code() -> None:

    p = pipeline(SPREAD, "SPREAD(v)", window="[RANGE 3]")
    push(p, [(1, 1), (2, 5), (3, 2)])
    assert p._running is not None
    for state in p._running.snapshot().values():
        assert all(array.dtype != object for array in state.values())


def test_the_oracle_adds_all_rows(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("ts,k,a,d,x\n1,x,2,0.5,\n1,x,1,2,\n")
    text = f"{STREAM} REGISTER QUERY q AS SELECT WEIGHTED(d, a) AS w FROM s;"
    app = bind_text(text, tmp_path, "", sniffer(tmp_path), ALL)
    assert [row[-1] for row in run_app(app, tmp_path).queries["q"]] == [1.0]
