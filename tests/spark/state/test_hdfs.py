"""Checkpoints and inputs on a real HDFS."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kasen.cli import load
from kasen.errors import DataError
from kasen.plan.physical import plan_app
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.place import OperatorPlace
from kasen.spark.session import session
from kasen.spark.state.state_files import SAME_PLACE, DriverFiles, Files
from tests.spark import chaos
from tests.spark.state.hdfs import JARS, Hdfs, hdfs

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not JARS, reason="no HDFS; scripts/hdfs.sh brings it"),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as one:
        yield one


@pytest.fixture
def place(running: Hdfs, tmp_path: Path) -> Iterator[str]:
    """A folder of a test's own, as Spark knows it; Python is told how to reach it."""
    spark = session()
    spark.conf.set(SAME_PLACE, f"{running.python}/{tmp_path.name}")
    try:
        yield f"{running.spark}/{tmp_path.name}"
    finally:
        spark.conf.unset(SAME_PLACE)


#: The same on executors takes as long once more.
ON_EXECUTORS = pytest.param(OperatorPlace.executors, marks=pytest.mark.soak)


@pytest.mark.parametrize("where", [OperatorPlace.driver, ON_EXECUTORS])
def test_a_stopped_run_goes_on_from_a_checkpoint_on_hdfs(
    where: OperatorPlace, place: str, tmp_path: Path
) -> None:
    app = chaos.write_app(tmp_path, files=3)
    right = chaos.expected(app, tmp_path / "right")
    epochs: list[int] = []
    while len(epochs) < 5:
        run = SparkRun(
            plan_app(load(app)),
            SparkOptions(
                tmp_path,
                tmp_path / "out",
                checkpoint=place,
                files_per_epoch=1,
                place=where,
                shards=2 if where is OperatorPlace.executors else None,
            ),
        )
        epochs.append(run._last_epoch)
        if len(epochs) == 1:
            run.outputs._on_progress = lambda _, run=run: run.stop()
        if run.run().done:
            break
    assert epochs[0] == -1 < epochs[1]
    assert chaos.outputs(tmp_path / "out") == right


def test_a_record_is_created_once(place: str) -> None:
    one, other = DriverFiles(session(), place), DriverFiles(session(), place)
    one.make("commits", "files")
    assert one.create("commits/0.json", b"first")
    assert not other.create("commits/0.json", b"second")
    assert other.record("commits/0.json") == b"first"
    assert [name for name in one.list("commits") if name.endswith(".json")] == ["commits/0.json"]
    written, _ = one.write("files/a", b"content")
    other.remove(written)
    other.remove(written)
    assert one.list("files") == []


def test_two_addresses_of_different_places_are_noticed(place: str, running: Hdfs) -> None:
    session().conf.set(SAME_PLACE, f"{running.python}/elsewhere")
    files = DriverFiles(session(), place)
    files.make("commits")
    with pytest.raises(DataError, match="must be another address of the same folder"):
        files.create("commits/0.json", b"content")


READS = """
REGISTER STREAM s (k INTEGER, v VARCHAR, x DOUBLE) TIMESTAMP BY ts SLACK 3 FROM 'csv' OPTIONS (path '{at}/s');
REGISTER STREAM j (k INTEGER, v VARCHAR) TIMESTAMP BY ts FROM 'json' OPTIONS (path '{at}/j.json');
REGISTER STREAM p (ts BIGINT, k INTEGER) TIMESTAMP BY ts FROM 'parquet' OPTIONS (path '{at}/p/');
REGISTER RELATION names (k INTEGER, name VARCHAR) FROM 'csv' OPTIONS (path '{at}/names.csv');
REGISTER QUERY sums AS SELECT v, COUNT(*) AS n, MAX(x) AS x FROM s [RANGE 5] GROUP BY v;
REGISTER QUERY named AS ISTREAM(SELECT s.v, j.v AS w, name FROM s [ROWS 3], j [RANGE 4], names
    WHERE s.k = j.k AND j.k = names.k);
REGISTER QUERY keys AS SELECT COUNT(*) AS n FROM p [RANGE 20 SLIDE 10];
"""


def write_inputs(folder: Path) -> None:
    chaos.write_app(folder, files=3)
    with (folder / "s" / "001.csv").open("a") as file:
        file.write("40,no number,s1,0.5\n40,1,s2\n")
    lines = [f'{{"ts": {at}, "k": {at % 6}, "v": "j{at % 4}"}}\n' for at in range(40)]
    (folder / "j.json").write_text("".join([*lines, "{broken\n", '{"ts": 3, "k": 1, "v": "late"}\n']))
    (folder / "p").mkdir()
    for number in range(2):
        times = [None if at == 7 else at + 30 * number for at in range(30)]
        table = pa.table({"ts": pa.array(times, pa.int64()), "k": pa.array(range(30), pa.int32())})
        pq.write_table(table, folder / "p" / f"{number}.parquet")


def copy_to(address: str, folder: Path) -> None:
    files = Files(address)
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        name = file.relative_to(folder).as_posix()
        if "/" in name:
            files.make(name.rsplit("/", 1)[0])
        files._write(name, file.read_bytes())


def refused(letters: str) -> list[tuple[str, ...]]:
    """The dead letters' streams, lines and kinds: engines tell the rest of some in other words."""
    rows = csv.reader(letters.splitlines())
    return sorted((stream, line, reason.split(":")[0]) for stream, line, reason, _ in rows)


@pytest.mark.parametrize("where", [OperatorPlace.driver, ON_EXECUTORS])
def test_inputs_on_hdfs_are_read_as_those_of_this_machine(
    where: OperatorPlace, place: str, running: Hdfs, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    write_inputs(tmp_path / "in")
    copy_to(f"{running.python}/{tmp_path.name}/in", tmp_path / "in")
    for name, at in (("local.cql", "in"), ("hdfs.cql", f"{place}/in")):
        (tmp_path / name).write_text(READS.format(at=at))
    right = chaos.expected(tmp_path / "local.cql", tmp_path / "right")
    SparkRun(
        plan_app(load(tmp_path / "hdfs.cql")),
        SparkOptions(tmp_path, tmp_path / "out", files_per_epoch=1, place=where),
    ).run()
    found = chaos.outputs(tmp_path / "out")
    assert refused(found.pop("dead_letter.csv")) == refused(right.pop("dead_letter.csv"))
    assert found == right
    assert right.keys() == {"sums.csv", "named.csv", "keys.csv"}


def test_what_is_wrong_with_an_address_is_told(place: str, running: Hdfs, tmp_path: Path) -> None:
    def run(at: str, query: str = "") -> None:
        text = f"REGISTER STREAM s (k INTEGER) TIMESTAMP BY ts FROM 'csv' OPTIONS (path '{at}');"
        app = tmp_path / "app.cql"
        app.write_text(text + (query or "REGISTER QUERY q AS SELECT k FROM s [NOW];"))
        SparkRun(plan_app(load(app)), SparkOptions(tmp_path)).run()

    files = Files(f"{running.python}/{tmp_path.name}")
    files.make("empty", "other")
    files._write("other/a.csv", b"ts,j\n1,2\n")
    with pytest.raises(DataError, match=r"no \*\.csv file in the folder hdfs://"):
        run(f"{place}/empty")
    with pytest.raises(DataError, match=r"other/a\.csv has no column 'k'; its columns are: ts, j"):
        run(f"{place}/other")
    with pytest.raises(DataError, match=r"Spark cannot read hdfs://.*FileNotFound"):
        run(f"{place}/nowhere")
    with pytest.raises(DataError, match="writes no address"):
        run(
            f"{place}/other",
            f"REGISTER QUERY q AS SELECT k FROM s [NOW] INTO 'csv' OPTIONS (path '{place}/out');",
        )
