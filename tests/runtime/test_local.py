"""Local runs from end to end: files in, files out, killed and resumed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kasen.cli import load
from kasen.errors import DataError
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from kasen.runtime.output.progress import Progress

APP = """
REGISTER STREAM s (k INTEGER, v DOUBLE, name VARCHAR) TIMESTAMP BY ts SLACK 3
  FROM 'csv' OPTIONS (path 's.csv');
REGISTER RELATION p (k INTEGER, label VARCHAR) FROM 'csv' OPTIONS (path 'p.csv');
REGISTER QUERY sums AS
  SELECT k, SUM(v) AS total, COUNT(*) AS n, MAX(name) AS last FROM s [RANGE 20] GROUP BY k;
REGISTER QUERY pairs AS
  ISTREAM(SELECT a.k, a.v, b.name FROM s [ROWS 5] AS a, s [RANGE 3] AS b WHERE a.k = b.k);
REGISTER QUERY labels AS
  SELECT p.label, COUNT(*) AS n FROM s [ROWS 50 SLIDE 10] AS t, p WHERE t.k = p.k GROUP BY p.label;
REGISTER QUERY slides AS
  RSTREAM(SELECT name, AVG(v) AS mean, window_end() AS until FROM s [RANGE 10 SLIDE 5] GROUP BY name);
"""


def make_app(folder: Path, rows: int, seed: int = 5) -> Path:
    """An app with windows of every kind, over rows with some disorder, some late and some bad."""
    random_ = random.Random(seed)
    lines = ["ts,k,v,name"]
    for i in range(rows):
        ts = i // 3 - random_.choice([0, 0, 0, 1, 2, 9])
        value = "oops" if random_.random() < 0.01 else f"{random_.choice([0.1, 1e16, -1e16, 3.7])}"
        lines.append(f"{ts},{random_.randrange(7)},{value},n{random_.randrange(50)}")
    (folder / "s.csv").write_text("\n".join(lines) + "\n")
    (folder / "p.csv").write_text("k,label\n0,even\n1,odd\n2,even\n3,odd\nx,bad\n")
    (folder / "app.cql").write_text(APP)
    return folder / "app.cql"


def run(app: Path, out: Path, batch: int, checkpoint: Path | None = None) -> LocalRun:
    options = Options(app.parent, out, batch, checkpoint, checkpoint_seconds=0.0)
    job = LocalRun(plan_app(load(app)), options)
    job.run()
    return job


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_the_output_files_do_not_depend_on_the_batch_size(tmp_path: Path) -> None:
    app = make_app(tmp_path, 600)
    run(app, tmp_path / "all", 1 << 16)
    expected = files(tmp_path / "all")
    assert set(expected) == {"sums.csv", "pairs.csv", "labels.csv", "slides.csv", "dead_letter.csv"}
    assert all(len(content.splitlines()) > 5 for content in expected.values())
    for batch in (1, 7, 100):
        run(app, tmp_path / str(batch), batch)
        assert files(tmp_path / str(batch)) == expected


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    app = make_app(tmp_path, 600)
    run(app, tmp_path / "whole", 20)
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    for _ in range(200):
        options = Options(app.parent, out, 20, checkpoint, checkpoint_seconds=0.0)
        job = LocalRun(plan_app(load(app)), options)
        epochs = 0

        def stop_soon(_: object, job: LocalRun = job) -> None:
            nonlocal epochs
            epochs += 1
            if epochs == 3:
                job.stop()

        job.outputs._on_progress = stop_soon
        if job.run().done:
            break
    else:
        pytest.fail("the run never ended")
    assert files(out) == files(tmp_path / "whole")


def test_a_finished_run_started_again_changes_nothing(tmp_path: Path) -> None:
    app = make_app(tmp_path, 200)
    run(app, tmp_path / "out", 20, tmp_path / "checkpoint")
    before = files(tmp_path / "out")
    again = run(app, tmp_path / "out", 20, tmp_path / "checkpoint")
    assert again.outputs.progress.had_ended
    assert files(tmp_path / "out") == before


def test_a_checkpoint_of_another_app_is_refused(tmp_path: Path) -> None:
    app = make_app(tmp_path, 60)
    run(app, tmp_path / "out", 20, tmp_path / "checkpoint")
    app.write_text(APP.replace("ROWS 5]", "ROWS 6]"))
    with pytest.raises(DataError, match="another app"):
        run(app, tmp_path / "out", 20, tmp_path / "checkpoint")


def test_one_run_at_a_time_and_answers_stay_where_they_are(tmp_path: Path) -> None:
    app = make_app(tmp_path, 300)
    options = Options(tmp_path, tmp_path / "out", 50, tmp_path / "ck")
    first = LocalRun(plan_app(load(app)), options)
    with pytest.raises(DataError, match=rf"a run \(process {os.getpid()}\) is at work on"):
        run(app, tmp_path / "out", 50, tmp_path / "ck")
    first.run()
    with pytest.raises(DataError, match=r"were written to .*out, and now --out is .*other; run it as before"):
        run(app, tmp_path / "other", 50, tmp_path / "ck")
    assert LocalRun(plan_app(load(app)), options).run().had_ended


def test_rows_without_a_time_column_are_stamped_as_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("a\n1\n2\n3\n")
    app = tmp_path / "app.cql"
    app.write_text(
        "REGISTER STREAM s (a INTEGER) FROM 'csv' OPTIONS (path 's.csv');"
        "REGISTER QUERY q AS ISTREAM(SELECT a FROM s [RANGE 1 MINUTE]);"
    )
    run(app, tmp_path / "out", 100)
    lines = (tmp_path / "out" / "q.csv").read_text().splitlines()
    assert [line.split(",")[-1] for line in lines[1:]] == ["1", "2", "3"]
    with pytest.raises(DataError, match="arrival time"):
        run(app, tmp_path / "out", 100, tmp_path / "checkpoint")


def killed_runs(tmp_path: Path, rows: int, kills: int, seed: int) -> None:
    """Kills a run with SIGKILL at random moments, resumes it each time, and compares what it leaves."""
    print(f"seed {seed}")
    random_ = random.Random(seed)
    app = make_app(tmp_path, rows)
    started = time.monotonic()
    run(app, tmp_path / "whole", 200)
    whole = time.monotonic() - started
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    code = (
        "import sys; from pathlib import Path; from tests.runtime.test_local import run;"
        "run(Path(sys.argv[1]), Path(sys.argv[2]), 200, Path(sys.argv[3]))"
    )
    command = [sys.executable, "-c", code, str(app), str(out), str(checkpoint)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = 0
    while killed < kills:
        process = subprocess.Popen(command, env=environment)
        _wait_for(checkpoint, process)
        time.sleep(random_.uniform(0, whole / 2))
        process.send_signal(signal.SIGKILL)
        if process.wait() != 0:
            killed += 1
        elif killed:
            break
        else:  # busy a moment ago, the machine is quick now: begin anew, and kill sooner
            shutil.rmtree(out)
            shutil.rmtree(checkpoint)
            whole /= 4
    subprocess.run(command, env=environment, check=True)
    assert killed > 0
    assert files(out) == files(tmp_path / "whole")


def _wait_for(checkpoint: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the process has got as far as a checkpoint of its own."""
    before = set(checkpoint.glob("state-*.npz"))
    deadline = time.monotonic() + 300
    while process.poll() is None and set(checkpoint.glob("state-*.npz")) <= before:
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.01)


def test_a_run_that_is_killed_and_resumed_leaves_the_same_files(tmp_path: Path) -> None:
    killed_runs(tmp_path, 30_000, 3, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_a_run_that_is_killed_many_times_leaves_the_same_files(tmp_path: Path, seed: int) -> None:
    killed_runs(tmp_path, 60_000, 5, seed)


def test_progress_tells_how_many_rows_wait_and_how_far_answers_are_behind(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("ts,k\n" + "".join(f"{ts},1\n" for ts in range(100)))
    (tmp_path / "app.cql").write_text(
        "REGISTER STREAM s (k BIGINT) TIMESTAMP BY ts SLACK 10 FROM 'csv' OPTIONS (path 's.csv');"
        "REGISTER QUERY q AS SELECT COUNT(*) AS n FROM s [RANGE 5];"
    )
    seen: list[tuple[int, int, int | None]] = []
    options = Options(tmp_path, tmp_path / "out", batch=20)

    def note(progress: Progress) -> None:
        seen.append((progress.waiting, progress.lag, progress.frontier))

    LocalRun(plan_app(load(tmp_path / "app.cql")), options, note).run()
    # 40 rows are read before 20 of them are complete: those with times below 39 - 10.
    assert seen[0] == (11, 10, 29)
    assert seen[-1][:2] == (0, 0)
