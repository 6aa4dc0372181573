"""Apps on a real, embedded Spark: the same answers as the cases and the local engine give."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import kasen
from kasen.cli import load
from kasen.cli.demo import cut
from kasen.connect.parquet.sink import ParquetSink
from kasen.cql.bind.app import bind_text
from kasen.cql.bound import App
from kasen.errors import DataError
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.session import session
from tests.cases_format import Case, all_cases
from tests.engine.aggregate.user.user_aggregates import ALL
from tests.engines import Collected
from tests.oracle import DeadLetter, Result, run_app, sniffer
from tests.test_cases import check

pytestmark = pytest.mark.spark

# A few of every folder: what could differ on Spark is the order of rows, instants, and the typing of cells.
NAMES = (
    "papers/a_order_hazard",
    "papers/a_denial_of_service",
    "papers/c_q4",
    "papers/d_four_way_join",
    "papers/e_trading",
    "windows/rows_ties",
    "streamify/rstream",
    "relational/full_join",
    "time/late_is_per_stream",
    "time/slack_and_tick_by_tuple",
    "time/tick_by_tuple_over_two_streams",
    "inputs/relation_with_diff",
    "inputs/bad_rows",
    "inputs/columns_by_name",
    "inputs/null_and_empty_string",
    "inputs/quoted_csv",
    "inputs/static_relation",
    "inputs/types",
    "inputs/two_streams_from_one_file",
    "composition/chain_of_three",
    "delay/counter_loop",
    "delay/figure_6_graph",
    "delay/loop_through_partition_by",
)


def chosen() -> list[Case]:
    """The cases whose names begin with one of NAMES, one for each."""
    found = []
    for name in NAMES:
        matching = [case for case in all_cases() if case.name.startswith(name)]
        found += matching[:1]
    return found


def run_on_spark(app: App, folder: Path) -> Result:
    plan = plan_app(app)
    collected = Collected(plan)
    job = SparkRun(plan, SparkOptions(folder), on_answer=collected.add)
    collected.run = job
    job.run()
    return Result(collected.rows, [DeadLetter(*letter) for letter in job.outputs.dead_letters], [])


def test_a_users_aggregate_has_the_same_answers_on_spark(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("ts,k,a\n1,x,5\n2,x,9\n3,y,4\n4,x,\n5,y,8\n")
    text = (
        "REGISTER STREAM s (k VARCHAR, a INTEGER) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');"
        "REGISTER QUERY q AS SELECT k, SPREAD(a) AS s FROM s [RANGE 2] GROUP BY k;"
        "REGISTER QUERY p AS SELECT SPREAD(a) AS s, TEXTS(k) AS t FROM s [RANGE 4 SLIDE 2];"
    )
    app = bind_text(text, tmp_path, "", sniffer(tmp_path), ALL)
    assert run_on_spark(app, tmp_path).queries == run_app(app, tmp_path).queries


@pytest.mark.parametrize("case", chosen(), ids=lambda case: case.name)
def test_a_case_has_the_same_answers_on_spark(case: Case, tmp_path: Path) -> None:
    check(case, run_on_spark, tmp_path)


def test_enough_cases_were_chosen() -> None:
    assert len(chosen()) >= 12


def parted(folder: Path) -> Path:
    """An app over two streams, each in several files."""
    for name in ("s", "r"):
        rows = "".join(f"{i // 2},{i % 5},{name}{i % 7}\n" for i in range(400))
        (folder / f"{name}.csv").write_text(f"ts,k,v\n{rows}")
        cut(folder / f"{name}.csv")
    (folder / "app.cql").write_text("""
        REGISTER STREAM s (k INTEGER, v VARCHAR) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');
        REGISTER STREAM r (k INTEGER, v VARCHAR) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 'r.csv');
        REGISTER QUERY pairs AS SELECT s.v, COUNT(*) AS n
            FROM s [ROWS 20], r [RANGE 5] WHERE s.k = r.k GROUP BY s.v;
        REGISTER QUERY latest AS ISTREAM(SELECT * FROM r [PARTITION BY k ROWS 1]);
    """)
    return folder / "app.cql"


def outputs(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(folder.iterdir())}


def test_epochs_of_one_file_each_give_the_local_engines_files(tmp_path: Path) -> None:
    app = parted(tmp_path)
    LocalRun(plan_app(load(app)), Options(tmp_path, tmp_path / "local")).run()
    run = SparkRun(plan_app(load(app)), SparkOptions(tmp_path, tmp_path / "spark", files_per_epoch=1))
    run.run()
    assert run.outputs.progress.epochs > 4
    assert outputs(tmp_path / "spark") == outputs(tmp_path / "local")


def test_a_stopped_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    app = parted(tmp_path)
    LocalRun(plan_app(load(app)), Options(tmp_path, tmp_path / "local")).run()
    out, checkpoint = tmp_path / "spark", tmp_path / "checkpoint"
    for _ in range(20):
        run = SparkRun(
            plan_app(load(app)), SparkOptions(tmp_path, out, checkpoint=checkpoint, files_per_epoch=1)
        )

        def stop(_: object, run: SparkRun = run) -> None:
            run.stop()

        run.outputs._on_answer = stop if run._last_epoch < 3 else run.outputs._on_answer
        if run.run().done:
            break
    assert outputs(out) == outputs(tmp_path / "local")


def test_spark_reads_the_parquet_that_sinks_write(tmp_path: Path) -> None:
    rows = 100_000
    near = [None if at % 5 == 0 else at * 7919 % 10_000 - 5_000 for at in range(rows)]
    columns = {"near": pa.array(near, pa.int64()), "small": pa.array(range(rows), pa.int32())}
    sink = ParquetSink(tmp_path / "q", pa.table(columns).schema)
    sink.write(pa.table(columns))
    sink.close()
    read = session("local[2]").read.parquet(str(tmp_path / "q")).orderBy("small").toArrow()
    assert read.to_pydict() == pa.table(columns).to_pydict()


def test_parquet_and_json_are_read_as_csv_is(tmp_path: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    (tmp_path / "s.csv").write_text("ts,k,v\n1,1,a\n2,,b\n3,3,\n")
    table = pyarrow.csv.read_csv(
        tmp_path / "s.csv",
        convert_options=pyarrow.csv.ConvertOptions(
            strings_can_be_null=True, column_types={"k": pyarrow.int32()}
        ),
    )
    pyarrow.parquet.write_table(table, tmp_path / "s.parquet")
    lines = ['{"ts": 1, "k": 1, "v": "a"}', '{"ts": 2, "v": "b"}', '{"ts": 3, "k": 3, "v": null}']
    (tmp_path / "s.json").write_text("\n".join(lines) + "\n")
    found = []
    for form in ("csv", "json", "parquet"):
        (tmp_path / "app.cql").write_text(
            f"REGISTER STREAM s (ts BIGINT, k INTEGER, v VARCHAR) TIMESTAMP BY ts "
            f"FROM '{form}' OPTIONS (path 's.{form}'); REGISTER QUERY q AS SELECT k, v FROM s [NOW];"
        )
        SparkRun(plan_app(load(tmp_path / "app.cql")), SparkOptions(tmp_path, tmp_path / form)).run()
        found.append((tmp_path / form / "q.csv").read_text())
    assert found[0].count("\n") == 7
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.fixture(scope="module", autouse=True)
def _loopback() -> None:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def test_one_run_at_a_time_works_on_a_checkpoint(tmp_path: Path) -> None:
    app = parted(tmp_path)
    checkpoint = tmp_path / "checkpoint"
    first = SparkRun(plan_app(load(app)), SparkOptions(tmp_path, checkpoint=checkpoint))
    with pytest.raises(DataError, match=rf"a run \(process {os.getpid()}\) is at work on"):
        SparkRun(plan_app(load(app)), SparkOptions(tmp_path, checkpoint=checkpoint))
    first.run()
    assert SparkRun(plan_app(load(app)), SparkOptions(tmp_path, checkpoint=checkpoint)).run().done


def test_a_commit_that_was_removed_is_missed(tmp_path: Path) -> None:
    """If it is the last one, its epoch is run again."""
    app = parted(tmp_path)
    LocalRun(plan_app(load(app)), Options(tmp_path, tmp_path / "right")).run()
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"

    def resume() -> None:
        SparkRun(
            plan_app(load(app)), SparkOptions(tmp_path, out, checkpoint=checkpoint, files_per_epoch=1)
        ).run()

    resume()
    commits = sorted((checkpoint / "state" / "commits").iterdir())
    commits[-1].unlink()
    resume()
    assert outputs(out) == outputs(tmp_path / "right")
    for file in commits[-2:]:
        file.unlink()
    with pytest.raises(DataError, match=f"{commits[-2]} is damaged \\(it is missing"):
        resume()
    assert outputs(out) == outputs(tmp_path / "right")


def test_numbers_of_answers_go_on_and_errors_are_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    text = (
        "REGISTER STREAM s (a INTEGER) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's');"
        "REGISTER QUERY q AS ISTREAM(SELECT a FROM s);"
    )
    seen: list[tuple[int, list[int]]] = []

    def keep(epoch: int, table: pa.Table) -> None:
        seen.append((epoch, table.column("a").to_pylist()))
        if 99 in seen[-1][1]:
            raise ZeroDivisionError("a fault of the user's")

    def run() -> None:
        made = kasen.Pipeline(engine="spark", base=tmp_path, checkpoint=tmp_path / "ck").execute(text)
        made.query("q").foreach_batch(keep)
        made.drain()

    for number, value in enumerate([1, 2, 99]):
        (tmp_path / "s" / f"{number}.csv").write_text(f"ts,a\n{number},{value}\n")
        if value == 99:
            with pytest.raises(ZeroDivisionError, match=r"^a fault of the user's$"):
                run()
        else:
            run()
    # What a run told at the end of its input is told again when more has come, under the same number.
    numbers = [number for number, _ in seen]
    assert numbers == sorted(numbers)
    assert list(dict(seen).values()) == [[1], [2], [99]]
