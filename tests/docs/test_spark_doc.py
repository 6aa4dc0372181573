"""The steps of docs/spark.md for programs and clusters, taken from the page and run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.paths import ROOT
from tests.spark.executors.standalone import Standalone

pytestmark = pytest.mark.spark


def blocks(section: str) -> list[str]:
    page = (ROOT / "docs" / "spark.md").read_text()
    own = page.split(f"## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", own, re.DOTALL)


def run(folder: Path, text: str, *arguments: str) -> str:
    """Runs a program as a user would: in a process of its own, below a folder that has the examples."""
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "program.py").write_text(text)
    command = [sys.executable, "program.py", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_steps_for_a_notebook(tmp_path: Path) -> None:
    found = blocks("In a notebook or a program")
    assert len(found) == 3
    (tmp_path / "in").mkdir()
    rows = pa.table({"at": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
    pq.write_table(rows, tmp_path / "in" / "0.parquet")
    told = run(tmp_path, "\n".join([*found, "print(p.query('last').to_arrow()['name'].to_pylist())"]))
    assert told.rstrip().endswith("['a', 'b']")


@pytest.mark.soak
def test_the_steps_for_a_standalone_cluster(tmp_path: Path) -> None:
    (program,) = blocks("On a standalone cluster")
    with Standalone(tmp_path) as spark:
        told = run(tmp_path, program, spark.url, str(tmp_path / "ck"))
    count = int(told.split()[-2])
    assert count > 0
    # The same as in the driver of an embedded Spark.
    (tmp_path / "alone").mkdir()
    assert int(run(tmp_path / "alone", program, "local[2]", str(tmp_path / "ck-alone")).split()[-2]) == count
