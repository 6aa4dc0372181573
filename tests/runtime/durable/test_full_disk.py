"""A disk that takes no more: the run names the file, and resumes once there is room."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

APP = """
REGISTER STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');
REGISTER QUERY few AS SELECT k, COUNT(*) AS n FROM s [ROWS 3000 SLIDE 1000] GROUP BY k;
"""
MANY = "REGISTER QUERY many AS ISTREAM(SELECT k, ts AS t FROM s [NOW]);"
ROWS = 12_000


def run(folder: Path, out: str, *, most: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    """A run that can write no file of more than `most` bytes."""
    words = ["run", str(folder / "app.cql"), "--engine", "local", "--batch", "1000"]
    words += ["--out", str(folder / out), "--checkpoint", str(folder / f"{out}-checkpoint")]
    return subprocess.run(
        [sys.executable, "-m", "kasen", *words],
        capture_output=True,
        text=True,
        timeout=600,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )


@pytest.mark.parametrize(
    ("more", "most", "file"), [(MANY, 100_000, "out/many.csv"), ("", 40_000, "out-checkpoint/draft.tmp")]
)
def test_a_full_disk_is_named_and_loses_nothing(more: str, most: int, file: str, tmp_path: Path) -> None:
    (tmp_path / "app.cql").write_text(APP + more)
    rows = "".join(f"{i},{i % 30}\n" for i in range(ROWS))
    (tmp_path / "s.csv").write_text("ts,k\n" + rows)
    full = run(tmp_path, "out", most=most)
    assert (full.returncode, "Traceback" in full.stderr) == (1, False), full.stderr
    assert f"cannot write {tmp_path / file}" in full.stderr
    assert run(tmp_path, "out").returncode == 0
    assert run(tmp_path, "undisturbed").returncode == 0
    for answers in (tmp_path / "undisturbed").iterdir():
        assert (tmp_path / "out" / answers.name).read_bytes() == answers.read_bytes()
