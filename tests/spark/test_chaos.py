"""Drivers and workers are killed in the middle of epochs; the answers stay those of an undisturbed run."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from kasen.cli import load
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from tests.spark import chaos

pytestmark = pytest.mark.spark


def killed_and_resumed(folder: Path, place: str, shards: str, kills: int, seed: int, files: int = 12) -> None:
    app = chaos.write_app(folder, files)
    right = chaos.expected(app, folder / "right")
    kill_and_resume(app, place, shards, kills, seed)
    assert chaos.outputs(folder / "out") == right, f"seed {seed}"


def kill_and_resume(app: Path, place: str, shards: str, kills: int, seed: int) -> None:
    """Kills the driver at random moments between two commits, so often; then lets it end."""
    random = Random(seed)
    for _ in range(kills):
        process = chaos.start(app, place, shards)
        if not chaos.wait_for_epochs(app, process, chaos.committed(app) + random.randrange(1, 3)):
            break
        time.sleep(random.random() * 0.7)
        chaos.kill(process)
    final = chaos.start(app, place, shards)
    assert final.wait(600) == 0, (app.parent / "log").read_text()[-3000:]


def test_a_driver_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """On executors; in the driver, test_ctl_on_spark.py and the soak test below do so."""
    killed_and_resumed(tmp_path, "executors", "3", kills=1, seed=7, files=5)


@pytest.mark.soak
@pytest.mark.parametrize(("place", "shards"), [("driver", "1"), ("executors", "2"), ("executors", "3")])
@pytest.mark.parametrize("seed", range(4))
def test_a_driver_that_is_killed_again_and_again_loses_nothing(
    place: str, shards: str, seed: int, tmp_path: Path
) -> None:
    killed_and_resumed(tmp_path, place, shards, kills=5, seed=seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_a_driver_that_is_killed_amid_large_epochs_loses_nothing(seed: int, tmp_path: Path) -> None:
    undisturbed = chaos.write_large_app(tmp_path / "right")
    LocalRun(plan_app(load(undisturbed)), Options(undisturbed.parent)).run()
    app = chaos.write_large_app(tmp_path / "killed")
    kill_and_resume(app, "driver", "1", kills=4, seed=seed)
    right, found = chaos.parquet_outputs(tmp_path / "right"), chaos.parquet_outputs(tmp_path / "killed")
    assert found.keys() == right.keys()
    assert all(len(table) for table in right.values())
    for name, table in right.items():
        assert found[name].equals(table), f"{name}, seed {seed}"
