"""Checkpoints on a real HDFS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kasen.cli import load
from kasen.errors import DataError
from kasen.plan.physical import plan_app
from kasen.spark.pipeline import SparkRun
from kasen.spark.place import Place
from kasen.spark.session import session
from kasen.spark.state_files import SAME_PLACE, DriverFiles
from tests.spark import chaos
from tests.spark.hdfs import JARS, Hdfs, hdfs

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


@pytest.mark.parametrize(("where", "shards"), [(Place.driver, None), (Place.executors, 2)])
def test_a_stopped_run_goes_on_from_a_checkpoint_on_hdfs(
    where: Place, shards: int | None, place: str, tmp_path: Path
) -> None:
    app = chaos.write_app(tmp_path, files=3)
    right = chaos.expected(app, tmp_path / "right")
    epochs: list[int] = []
    while len(epochs) < 5:
        run = SparkRun(
            plan_app(load(app)),
            tmp_path,
            tmp_path / "out",
            checkpoint=place,
            files_per_epoch=1,
            place=where,
            shards=shards,
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
    assert other.read("commits/0.json") == b"first"
    assert [name for name in one.list("commits") if name.endswith(".json")] == ["commits/0.json"]
    one.write("files/a", b"content")
    other.remove("files/a")
    other.remove("files/a")
    assert one.list("files") == []


def test_two_addresses_of_different_places_are_noticed(place: str, running: Hdfs) -> None:
    session().conf.set(SAME_PLACE, f"{running.python}/elsewhere")
    files = DriverFiles(session(), place)
    files.make("commits")
    with pytest.raises(DataError, match="must be another address of the same folder"):
        files.create("commits/0.json", b"content")
