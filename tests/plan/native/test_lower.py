"""What Spark does itself of a plan: which parts it takes over, and that answers stay what they were."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kasen.cli import load
from kasen.cli.demo import cut
from kasen.cql.bind.app import bind_text
from kasen.plan.explain.explain import explain_in_driver, explain_on_executors
from kasen.plan.logical import Filter, WindowNode
from kasen.plan.native.lower import NativePlan, lower
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from kasen.runtime.pipeline import RunningPipeline
from kasen.spark.executors.placement import RemotePipeline
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.place import OperatorPlace, reduces_panes
from tests.plan.explained import check_levels, check_steps

STREAM = """
    REGISTER STREAM s (k INTEGER, v BIGINT, d DECIMAL(9, 2), x DOUBLE, name VARCHAR) TIMESTAMP BY ts {slack}
    FROM '{form}' OPTIONS (path 's.{form}');
"""
OTHER = "REGISTER STREAM r (k INTEGER, w BIGINT) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 'r.csv');"


def native(*queries: str, before: str = "") -> NativePlan:
    text = STREAM.format(slack="", form="csv") + before
    text += "".join(f"REGISTER QUERY q{number} AS {query};" for number, query in enumerate(queries))
    return lower(plan_app(bind_text(text, Path())))


def crossing(found: NativePlan, name: str = "s") -> list[str]:
    """The columns of a stream that cross, as SQL."""
    return [column for column in found.scans[name].columns if column is not None]


# ---------------------------------------------------------------- what is taken over


def test_only_columns_that_are_read_cross() -> None:
    assert crossing(native("SELECT k, v FROM s [RANGE 5]")) == ["`k`", "`v`", "`ts`"]


def test_a_condition_crosses_as_one_column_and_what_it_reads_does_not() -> None:
    found = native("SELECT k FROM s [RANGE 5] WHERE name LIKE 'a%' AND v > 3")
    assert crossing(found)[:2] == ["`k`", "`ts`"]
    assert "LIKE" in crossing(found)[2]


def test_a_condition_too_long_for_spark_stays_in_the_kernels() -> None:
    found = native("SELECT k FROM s [RANGE 5] WHERE " + " AND ".join(f"v <> {i}" for i in range(5000)))
    assert crossing(found) == ["`k`", "`v`", "`ts`"]
    assert any(isinstance(step.node, Filter) for step in found.plan.steps)


def test_a_condition_over_a_row_window_stays_above_it() -> None:
    found = native("SELECT k FROM s [ROWS 5] WHERE v > 3")
    assert crossing(found) == ["`k`", "`v`", "`ts`"]
    (kept,) = [step.node for step in found.plan.steps if isinstance(step.node, Filter)]
    assert isinstance(kept.child, WindowNode)


def test_what_cannot_be_exact_stays_in_the_kernels() -> None:
    found = native("SELECT upper(name) AS u FROM s [RANGE 5]")
    assert crossing(found) == ["`name`", "`ts`"]


def test_many_conditions_stay_in_the_kernels() -> None:
    found = native(*(f"SELECT k FROM s [RANGE 5] WHERE v > {number}" for number in range(20)))
    assert crossing(found) == ["`k`", "`v`", "`ts`"]
    assert any(note.startswith("Spark does not compute expressions: 20 ") for note in found.scans["s"].notes)


SLIDING = "SELECT k, {} FROM s [RANGE 60 SLIDE 5] GROUP BY k"


@pytest.mark.parametrize(
    ("calls", "setting", "reason"),
    [
        ("MAX(v) AS a, COUNT(*) AS n, SUM(d) AS t, MIN(name) AS m", "", None),
        ("SUM(x) AS a", "", "exact in the kernels only"),
        ("SUM(x) AS a", "SET float_sums = fast;", None),
        ("AVG(v) AS a", "", "needs the values themselves"),
        ("COUNT(DISTINCT v) AS a", "", ""),
        ("SUM(v + 1) AS a", "", "may fail"),
    ],
)
def test_panes_are_reduced_natively_where_that_is_exact(calls: str, setting: str, reason: str | None) -> None:
    scan = native(SLIDING.format(calls), before=setting).scans["s"]
    assert (scan.partials is not None) == (reason is None)
    if reason:
        assert any(reason in note for note in scan.notes), scan.notes


def test_panes_are_not_reduced_if_rows_are_needed_anyway() -> None:
    sliding = SLIDING.format("MAX(v) AS a")
    for others, before in ((["SELECT k FROM s [ROWS 5]"], ""), ([], OTHER)):
        assert native(sliding, *others, before=before).scans["s"].partials is None


def test_queries_with_the_same_keys_share_one_reduction() -> None:
    found = native(
        SLIDING.format("MAX(v) AS a"),
        "SELECT k, MAX(v) AS b FROM s [RANGE 15 SLIDE 3] WHERE v > 7 GROUP BY k",
    )
    partials = found.scans["s"].partials
    assert partials is not None
    assert partials.pane == 1
    assert sum(text.startswith("max(") for text in partials.groups) == 2


def test_explain_says_what_is_native_and_what_is_not() -> None:
    text = STREAM.format(slack="", form="csv") + "REGISTER QUERY q AS " + SLIDING.format("SUM(x) AS a") + ";"
    lines = explain_in_driver(bind_text(text, Path()), panes=True).splitlines()
    assert lines[0] == "engine: Spark, operators in the driver"
    exact = "a sum of DOUBLEs is exact in the kernels only (SET float_sums = fast)"
    assert lines[3:5] == [
        f"  Spark does not reduce to panes: {exact}",
        "  Spark does not hand over: v, d, name",
    ]


# ---------------------------------------------------------------- answers on a real Spark

NATIVE = "SET native_panes = on;"
QUERIES = """
    REGISTER QUERY by_key AS SELECT k, MAX(v) AS m, COUNT(*) AS n, COUNT(v) AS c, SUM(v) AS t, SUM(d) AS d
        FROM s [RANGE 20 SLIDE 5] GROUP BY k;
    REGISTER QUERY some AS SELECT k, MIN(name) AS low, COUNT(*) AS n
        FROM s [RANGE 12 SLIDE 4] WHERE v > 2 AND name LIKE '%1%' GROUP BY k;
"""
ROWS = """
    REGISTER QUERY whole AS SELECT COUNT(*) AS n, SUM(v) AS t, MAX(x) AS m FROM s [RANGE 10 SLIDE 5]
        WHERE v > 1;
    REGISTER QUERY failing AS SELECT k, v / (k - 1) AS q FROM s [RANGE 3] WHERE 10 / v > 1 AND d > 1.5;
    REGISTER QUERY last AS RSTREAM(SELECT name, v FROM s [ROWS 3] WHERE v > 2);
"""


def make(folder: Path, queries: str, form: str = "csv", slack: str = "") -> Path:
    """An app over a stream of several files, with NULLs, and a few late rows in the third file."""
    lines = []
    for number in range(240):
        ts = number // 3 + (0 if number % 70 else 15)
        v = "" if number % 11 == 0 else number % 7
        lines.append(f"{ts},{number % 3},{v},{number % 9}.25,{number / 8},n{number % 13}\n")
    (folder / "s.csv").write_text("ts,k,v,d,x,name\n" + "".join(lines))
    if form == "parquet":
        as_parquet(folder)
    else:
        cut(folder / "s.csv")
    (folder / "app.cql").write_text(STREAM.format(slack=slack, form=form) + queries)
    return folder / "app.cql"


def as_parquet(folder: Path) -> None:
    import pyarrow.csv

    types = {"k": pa.int32(), "d": pa.decimal128(9, 2), "x": pa.float64()}
    options = pyarrow.csv.ConvertOptions(column_types=types)
    table = pyarrow.csv.read_csv(folder / "s.csv", convert_options=options)
    (folder / "s.parquet").mkdir()
    for part in range(4):
        file = folder / "s.parquet" / f"{part}.parquet"
        pq.write_table(table.slice(part * 60, 60), file)
        os.utime(file, (1_700_000_000 + part,) * 2)  # Spark takes files in the order of their times


def outputs(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(folder.iterdir())}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("queries", "form", "slack"),
    [
        (NATIVE + QUERIES, "csv", ""),
        (NATIVE + QUERIES, "parquet", "SLACK 40"),
        (QUERIES, "parquet", ""),
        (ROWS, "parquet", ""),
        (ROWS, "csv", "SLACK 2"),
    ],
)
def test_answers_and_failures_are_the_local_engines(
    tmp_path: Path, queries: str, form: str, slack: str
) -> None:
    app = make(tmp_path, queries, form, slack)
    local = LocalRun(plan_app(load(app)), Options(tmp_path, tmp_path / "local"))
    local.run()
    plan = plan_app(load(app))
    assert (lower(plan).scans["s"].partials is not None) == (QUERIES in queries)
    assert reduces_panes(plan.app, is_local=True) == (NATIVE in queries)
    run = SparkRun(plan, SparkOptions(tmp_path, tmp_path / "spark", files_per_epoch=1))
    run.run()
    assert isinstance(run.pipeline, RunningPipeline)
    check_steps(explain_in_driver(plan.app, panes=NATIVE in queries).splitlines(), run.pipeline.graph)
    assert outputs(tmp_path / "spark") == outputs(tmp_path / "local")
    assert run.pipeline.failures.count == local.pipeline.failures.count
    assert (local.pipeline.failures.count > 0) == (queries == ROWS)


@pytest.mark.spark
def test_executors_run_the_steps_that_explain_prints(tmp_path: Path) -> None:
    app = load(make(tmp_path, QUERIES + ROWS, "csv", ""))
    options = SparkOptions(tmp_path, tmp_path / "spark", place=OperatorPlace.executors, shards=2)
    run = SparkRun(plan_app(app), options)
    run.run()
    assert isinstance(run.pipeline, RemotePipeline)
    check_levels(explain_on_executors(app), run.pipeline.cut)


@pytest.mark.spark
def test_sums_of_a_pane_that_do_not_fit_are_made_of_rows(tmp_path: Path) -> None:
    most = 2**63 - 1
    rows = "".join(f"{ts},1,{v},0,0,a\n" for ts, v in ((1, most), (2, most), (3, -most), (9, 1)))
    (tmp_path / "s.csv").write_text("ts,k,v,d,x,name\n" + rows)
    query = "REGISTER QUERY q AS SELECT k, SUM(v) AS t FROM s [RANGE 5 SLIDE 5] GROUP BY k;"
    (tmp_path / "app.cql").write_text(STREAM.format(slack="", form="csv") + query)
    SparkRun(plan_app(load(tmp_path / "app.cql")), SparkOptions(tmp_path, tmp_path / "spark")).run()
    assert f"5,0,0,1,1,{most}\n" in (tmp_path / "spark" / "q.csv").read_text()
