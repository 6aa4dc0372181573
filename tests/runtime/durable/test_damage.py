"""Durable files of local runs are damaged: never a wrong answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from kasen.cli import load
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from tests.runtime.durable.damage import Prepared, trials
from tests.runtime.test_local import files, make_app, run


def prepare(folder: Path) -> Prepared:
    """A run that was stopped after some checkpoints."""
    app = make_app(folder, 300)
    run(app, folder / "right", 1000)
    out, checkpoint = folder / "out", folder / "checkpoint"
    first = LocalRun(plan_app(load(app)), Options(folder, out, 20, checkpoint, checkpoint_seconds=0.0))
    epochs = 0

    def stop_soon(_: object) -> None:
        nonlocal epochs
        epochs += 1
        if epochs == 4:
            first.stop()

    first.outputs._on_progress = stop_soon
    assert not first.run().done

    def resume() -> dict[str, bytes]:
        run(app, out, 1000, checkpoint)
        return files(out)

    prepared = Prepared((checkpoint, out), folder / "copy", resume, files(folder / "right"))
    prepared.keep()
    return prepared


def kind_of(path: str) -> str:
    """The kind of a file; "" if nobody reads it."""
    name = path.rpartition("/")[2]
    return "" if name == "lock" else "checkpoint" if name.startswith("state-") else "answers"


def check(folder: Path, seed: int, count: int) -> list[str]:
    prepared = prepare(folder)
    done = list(trials(prepared, kind_of, seed, count))
    print("\n".join(done))
    return done


def test_damaged_files_of_a_local_run_never_change_an_answer(tmp_path: Path) -> None:
    done = check(tmp_path, seed=1, count=8)
    assert any("the right answer" in each for each in done)
    assert not all("the right answer" in each for each in done)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_many_damaged_files_of_a_local_run_never_change_an_answer(seed: int, tmp_path: Path) -> None:
    assert len(check(tmp_path, seed, count=100)) == 100
