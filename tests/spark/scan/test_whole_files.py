"""Large epochs of Parquet files are scanned anew: the same rows, in the same order."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kasen.cql.bind.app import bind_text
from kasen.errors import DataError
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from kasen.runtime.output import answers
from kasen.spark import driver
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.scan import whole_files
from kasen.spark.scan.whole_files import Block, _is_worth, row_counts
from kasen.spark.state.epochs import Store
from tests.engines import Collected

pytestmark = pytest.mark.spark

STREAM = (
    "REGISTER STREAM s (ts TIMESTAMP, k INTEGER, v BIGINT, place BIGINT) TIMESTAMP BY ts"
    " SLACK 2 SECOND FROM 'parquet' OPTIONS (path 's');"
)
QUERIES = (
    "REGISTER QUERY panes AS SELECT k, MAX(v) AS m, COUNT(*) AS n FROM s [RANGE 4 SECOND SLIDE 1 SECOND]"
    " GROUP BY k;"
    "REGISTER QUERY kept AS ISTREAM(SELECT k, v / k AS part, place FROM s WHERE v % 3 = 1);"
)
#: Of unlike sizes: Spark reads the largest first.
SIZES = (40, 300, 7, 120, 1, 90)


def write(folder: Path) -> None:
    """Files in order of time but for some rows, of which some are late; a few have no time at all."""
    folder.mkdir()
    random = np.random.default_rng(5)
    first = 0
    for number, size in enumerate(SIZES):
        times = (np.arange(first, first + size) * 100_000 + random.integers(0, 3_000_000, size)).astype(
            object
        )
        times[random.random(size) < 0.03] = None
        keys = random.integers(0, 4, size)
        columns = {
            "ts": pa.array(times.tolist(), pa.timestamp("us")),
            "k": pa.array(keys, pa.int32(), mask=keys == 3),
            "v": pa.array(random.integers(0, 1000, size)),
            "place": pa.array(keys * 10),
            "name": pa.array([f"n{key}" for key in keys]),
        }
        file = folder / f"{number:02}.parquet"
        pq.write_table(pa.table(columns), file)
        os.utime(file, (1_000_000 + number,) * 2)
        first += size


def on_spark(base: Path, most: int | None = None, app: str = STREAM + QUERIES) -> tuple[SparkRun, Collected]:
    plan = plan_app(bind_text(app, base))
    collected = Collected(plan)
    run = SparkRun(plan, SparkOptions(base, files_per_epoch=most), on_answer=collected.add)
    collected.run = run
    run.run()
    return run, collected


def spied(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each epoch, whether its files were scanned anew."""
    found: list[bool] = []
    read: Callable[..., object] = whole_files.read_whole_files

    def told(*given: object) -> object:
        result = read(*given)
        found.append(result is not None)
        return result

    monkeypatch.setattr(driver, "read_whole_files", told)
    return found


@pytest.mark.parametrize("most", [None, 4])
def test_rows_late_ones_and_dead_letters_are_those_of_the_local_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int | None
) -> None:
    write(tmp_path / "s")
    plan = plan_app(bind_text(STREAM + QUERIES, tmp_path))
    expected = Collected(plan)
    local = LocalRun(plan, Options(tmp_path), on_answer=expected.add)
    expected.run = local
    local.run()
    as_it_came, came = on_spark(tmp_path, most)
    anew = spied(monkeypatch)
    monkeypatch.setattr(whole_files, "_LEAST_BYTES", 0)
    monkeypatch.setattr(answers, "_PIECE", 50)
    run, found = on_spark(tmp_path, most)
    assert anew == [True] * (1 if most is None else 2)
    assert found.rows == came.rows == expected.rows
    assert found.rows["kept"]
    assert found.rows["panes"]
    letters = run.outputs.dead_letters
    assert letters == as_it_came.outputs.dead_letters
    assert {letter.reason.split(":")[0] for letter in letters} == {"late", "bad timestamp"}
    assert run.outputs.progress.epochs == as_it_came.outputs.progress.epochs
    assert run.pipeline.failures.count == as_it_came.pipeline.failures.count > 0


def test_a_small_epoch_is_taken_as_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "s")
    anew = spied(monkeypatch)
    on_spark(tmp_path)
    assert anew == [False]


def test_an_epoch_with_texts_is_taken_as_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text may be too long, and a row of a file that is scanned anew cannot say what is wrong with it."""
    write(tmp_path / "s")
    anew = spied(monkeypatch)
    monkeypatch.setattr(whole_files, "_LEAST_BYTES", 0)
    texts = (STREAM + QUERIES).replace("place BIGINT", "name VARCHAR").replace("place FROM", "name FROM")
    _, found = on_spark(tmp_path, app=texts)
    assert anew == []
    assert found.rows["kept"]


def test_only_whole_files_that_are_told_apart_are_scanned_anew() -> None:
    large = 8 << 20
    assert _is_worth([Block("/in/a.parquet", 0, large, large), Block("/in/b.parquet", 0, 1, 1)])
    assert not _is_worth([])
    assert not _is_worth([Block("/in/a.parquet", 0, 1000, 1000)])
    assert not _is_worth([Block("/in/a.parquet", 0, large, large), Block("/more/a.parquet", 0, 1, 1)])
    assert not _is_worth([Block("/in/a.parquet", 0, large, 2 * large)])
    assert not _is_worth([Block("/in/[a].parquet", 0, large, large)])
    assert not _is_worth([Block(f"/in/{number}", 0, large, large) for number in range(33)])


def test_an_epoch_that_was_cut_off_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "s")
    monkeypatch.setattr(whole_files, "_LEAST_BYTES", 0)
    anew = spied(monkeypatch)
    plan = plan_app(bind_text(STREAM + QUERIES, tmp_path))
    SparkRun(plan, SparkOptions(tmp_path, tmp_path / "whole", files_per_epoch=2)).run()

    def again() -> SparkRun:
        return SparkRun(
            plan, SparkOptions(tmp_path, tmp_path / "cut", checkpoint=tmp_path / "ck", files_per_epoch=2)
        )

    commit = Store.commit

    def fails(store: Store, record: dict[str, Any]) -> None:
        if record["epoch"] == 1:
            raise DataError("cut off")
        commit(store, record)

    monkeypatch.setattr(Store, "commit", fails)
    with pytest.raises(DataError, match="cut off"):
        again().run()
    monkeypatch.setattr(Store, "commit", commit)
    again().run()
    assert anew == [True] * 7
    names = sorted(file.name for file in (tmp_path / "whole").iterdir())
    assert {"panes.csv", "kept.csv"} < set(names)
    for name in names:
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_file_that_is_no_parquet_is_left_to_spark(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    pq.write_table(pa.table({"v": [1, 2, 3]}), good)
    bad.write_text("no parquet")
    assert row_counts([str(good)]) == [3]
    assert row_counts([str(good), str(bad)]) is None
    assert row_counts([str(tmp_path / "gone.parquet")]) is None
