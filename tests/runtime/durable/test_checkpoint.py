"""Checkpoints of local runs: damage is noticed, old ones are read, those of Spark are refused."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from kasen.checksum import DamagedFile, checksum, seal, unseal
from kasen.cli import load
from kasen.errors import DataError
from kasen.plan.physical import plan_app
from kasen.runtime.durable.checkpoint import Checkpoints, local_checkpoints
from kasen.runtime.local import LocalRun, Options
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from tests.runtime.test_local import files, make_app, run


def saved(folder: Path, count: int) -> list[Path]:
    """So many checkpoints of an app, each with its number as the state; those that are kept."""
    checkpoints = Checkpoints(folder, "app")
    checkpoints.load()
    for number in range(count):
        checkpoints.save({"step": {"state": np.arange(number + 100)}}, {"number": number})
    return sorted(local_checkpoints(folder))


def number(folder: Path) -> int:
    """Which checkpoint a new run resumes from."""
    found = Checkpoints(folder, "app").load()
    assert found is not None
    states, notes = found
    assert len(states["step"]["state"]) == notes["number"] + 100
    return int(notes["number"])


def test_a_sealed_record_is_read_only_if_it_is_as_written() -> None:
    sealed = seal(b"content")
    assert unseal(sealed, "x") == b"content"
    for place in range(8 * len(sealed)):
        damaged = bytearray(sealed)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(DamagedFile, match="x is damaged"):
            unseal(bytes(damaged), "x")
    for length in range(len(sealed)):
        with pytest.raises(DamagedFile, match="x is damaged"):
            unseal(sealed[:length], "x")


def test_a_checkpoint_is_named_by_its_checksum(tmp_path: Path) -> None:
    for file in saved(tmp_path, 3):
        assert file.name.split(".")[1] == checksum(file.read_bytes())


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    older, newest = saved(tmp_path, 5)
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 4
    newest.write_bytes(content)
    assert number(tmp_path) == 3
    assert f"{newest} is damaged" in caplog.text
    older.write_bytes(older.read_bytes()[:-1])
    with pytest.raises(DamagedFile, match=f"{older.name} is damaged"):
        number(tmp_path)


def test_a_damaged_checkpoint_is_removed_only_when_a_new_one_is_written(tmp_path: Path) -> None:
    older, newest = saved(tmp_path, 2)
    newest.write_bytes(b"")
    checkpoints = Checkpoints(tmp_path, "app")
    checkpoints.load()
    assert newest.exists()
    checkpoints.save({"step": {"state": np.arange(107)}}, {"number": 7})
    assert older.exists()
    assert not newest.exists()
    assert number(tmp_path) == 7


@pytest.mark.parametrize("cut", [0, 10, 100])
def test_whatever_a_parser_says_of_an_old_checkpoint_is_damage(cut: int, tmp_path: Path) -> None:
    """From before checksums: zipfile and numpy raise nearly everything there is."""
    for file in saved(tmp_path, 1):
        content = bytearray(file.read_bytes())
        file.unlink()
    old = tmp_path / "state-000000001.npz"
    random = np.random.default_rng(cut)
    for _ in range(300):
        damaged = content.copy()
        damaged[random.integers(len(content))] ^= 1 << random.integers(8)
        old.write_bytes(damaged[: len(damaged) - cut])
        with suppress(DamagedFile):
            assert number(tmp_path) == 0


def test_an_old_checkpoint_resumes_with_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (file,) = saved(tmp_path, 1)
    file.rename(tmp_path / "state-000000001.npz")
    with caplog.at_level(logging.WARNING):
        assert number(tmp_path) == 0
    (record,) = caplog.records
    assert f"{tmp_path}/state-000000001.npz was written before Kasen had checksums" in record.message


def test_a_local_run_leaves_a_checkpoint_of_spark_alone(tmp_path: Path) -> None:
    app = make_app(tmp_path, 30)
    folder = tmp_path / "ck"
    (folder / "state" / "commits").mkdir(parents=True)
    with pytest.raises(DataError, match="holds a checkpoint of a run on Spark"):
        run(app, tmp_path / "out", 20, folder)
    assert sorted(folder.rglob("*")) == [folder / "state", folder / "state" / "commits"]


def test_a_run_on_spark_leaves_checkpoints_of_a_local_run_alone(tmp_path: Path) -> None:
    app = make_app(tmp_path, 30)
    run(app, tmp_path / "out", 20, tmp_path / "ck")
    before = files(tmp_path / "ck")
    with pytest.raises(DataError, match="holds checkpoints of a local run"):
        SparkRun(plan_app(load(app)), SparkOptions(tmp_path, tmp_path / "out", checkpoint=tmp_path / "ck"))
    assert files(tmp_path / "ck") == before


def test_a_change_by_hand_survives_the_loss_of_either_checkpoint(tmp_path: Path) -> None:
    """It is in no input, so an older state would not come to it again."""
    app = make_app(tmp_path, 30)
    for lost in range(2):
        folder = tmp_path / f"ck{lost}"
        options = Options(tmp_path, tmp_path / f"out{lost}", 1000, folder)
        job = LocalRun(plan_app(load(app)), options)
        text = "REGISTER QUERY n AS ISTREAM(SELECT k FROM s [ROWS 3]);"
        job._manager.handle({"verb": "execute", "text": text})
        job.outputs.close()
        job._unlock()
        kept = sorted(local_checkpoints(folder))
        assert len(kept) == 2
        kept[lost].write_bytes(b"damaged")
        again = LocalRun(plan_app(load(app)), options)
        again.run()
        assert (tmp_path / f"out{lost}" / "n.csv").read_text().count("\n") > 10
    assert files(tmp_path / "out0") == files(tmp_path / "out1")
