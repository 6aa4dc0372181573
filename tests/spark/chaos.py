"""An app that is run to its end in a process of its own, again and again, however often it is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kasen.cli import load
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from kasen.spark.scan import whole_files
from tests.processes import children, kill_all

APP = """
REGISTER STREAM s (k INTEGER, v VARCHAR, x DOUBLE) TIMESTAMP BY ts SLACK 3 FROM 'csv' OPTIONS (path 's');
REGISTER STREAM r (k INTEGER, v VARCHAR) TIMESTAMP BY ts TICK BY TUPLE FROM 'csv' OPTIONS (path 'r');
REGISTER RELATION names (k INTEGER, name VARCHAR) FROM 'csv' OPTIONS (path 'names.csv');
REGISTER QUERY pairs AS SELECT s.v, COUNT(*) AS n FROM s [ROWS 40], r [RANGE 5] WHERE s.k = r.k GROUP BY s.v;
REGISTER QUERY latest AS ISTREAM(SELECT r.v, names.name FROM r [PARTITION BY k ROWS 1], names
    WHERE r.k = names.k);
REGISTER QUERY total AS SELECT SUM(x) AS x, COUNT(*) AS n FROM s [RANGE 10 SLIDE 5];
REGISTER QUERY again AS RSTREAM(SELECT k, MAX(x) AS top FROM s [ROWS 30 SLIDE 10] GROUP BY k);
"""


def write_app(folder: Path, files: int = 12, rows: int = 60, seed: int = 1) -> Path:
    """Two streams of several files each, a static table, disorder within the slack and late rows."""
    random = Random(seed)
    for name, columns in (("s", "ts,k,v,x"), ("r", "ts,k,v")):
        (folder / name).mkdir()
        for number in range(files):
            lines = [columns]
            for row in range(rows):
                ts = (number * rows + row) // 4 - random.choice([0, 0, 1, 3, 9] if name == "s" else [0])
                cells = [str(ts), str(random.randrange(6)), f"{name}{random.randrange(9)}"]
                lines.append(",".join([*cells, str(random.random())] if name == "s" else cells))
            file = folder / name / f"{number:03}.csv"
            file.write_text("\n".join(lines) + "\n")
            # Spark takes files in the order of their times.
            os.utime(file, (1_000_000 + number, 1_000_000 + number))
    (folder / "names.csv").write_text("k,name\n" + "".join(f"{k},name{k}\n" for k in range(5)))
    app = folder / "app.cql"
    app.write_text(APP)
    return app


def write_large_app(folder: Path, files: int = 6, rows: int = 500_000) -> Path:
    """A stream of Parquet files, each of which is a large epoch; many conditions; Parquet as the answer."""
    (folder / "s").mkdir(parents=True)
    random = np.random.default_rng(1)
    for number in range(files):
        columns = {
            "ts": np.sort(random.integers(0, 60_000, rows)) + number * 60_000,
            "k": random.integers(0, 50, rows).astype(np.int32),
            "v": random.integers(0, 1 << 40, rows),
        }
        file = folder / "s" / f"{number:03}.parquet"
        pq.write_table(pa.table(columns), file)
        assert file.stat().st_size > whole_files._LEAST_BYTES
        os.utime(file, (1_000_000 + number, 1_000_000 + number))
    queries = (
        f"REGISTER QUERY q{n} AS SELECT k, MAX(v) AS m, COUNT(*) AS n FROM s [RANGE 10000 SLIDE 2000]"
        f" WHERE v >= {n << 36} AND v < {n + 1 << 36} GROUP BY k INTO 'parquet' OPTIONS (path 'q{n}');"
        for n in range(12)
    )
    stream = "REGISTER STREAM s (k INTEGER, v BIGINT) TIMESTAMP BY ts FROM 'parquet' OPTIONS (path 's');"
    app = folder / "app.cql"
    app.write_text("\n".join([stream, *queries]))
    return app


def parquet_outputs(folder: Path) -> dict[str, pa.Table]:
    """All rows of each query, in the order of its files."""
    return {each.name: pq.read_table(sorted(each.iterdir())) for each in sorted(folder.glob("q*"))}


def expected(app: Path, out: Path) -> dict[str, str]:
    """What the local engine says, uninterrupted."""
    LocalRun(plan_app(load(app)), Options(app.parent, out)).run()
    return outputs(out)


def outputs(folder: Path) -> dict[str, str]:
    """All files as text. Engines differ in whether a dead letter tells its file."""
    texts = {file.name: file.read_text() for file in sorted(folder.iterdir())}
    return {name: re.sub(r" \(\d+\.csv\)", "", text) for name, text in texts.items()}


def start(app: Path, *options: str) -> subprocess.Popen[bytes]:
    """`kasen run` in a process group of its own, one file of each stream an epoch."""
    code = "import sys; from tests.spark.chaos import run; run(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(app), *options]
    with (app.parent / "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def run(app: str, place: str, shards: str, master: str = "local[2,4]") -> None:
    """What the process does."""
    from kasen.spark.options import SparkOptions
    from kasen.spark.pipeline import SparkRun
    from kasen.spark.place import OperatorPlace

    file = Path(app)
    SparkRun(
        plan_app(load(file)),
        SparkOptions(
            file.parent,
            file.parent / "out",
            master=master,
            checkpoint=file.parent / "checkpoint",
            files_per_epoch=1,
            place=OperatorPlace(place),
            shards=int(shards),
        ),
    ).run()


def committed(app: Path) -> int:
    """How many epochs have been committed."""
    names = sorted((app.parent / "checkpoint" / "state" / "commits").glob("*[0-9].json"))
    return int(names[-1].stem) + 1 if names else 0


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the driver and everything it has started."""
    below = children(process.pid)  # Java has a process group of its own
    os.killpg(process.pid, signal.SIGKILL)
    kill_all(below)
    process.wait()


def wait_for_epochs(app: Path, process: subprocess.Popen[bytes], count: int, most: float = 300.0) -> bool:
    """Waits until so many epochs are committed; False if the process ended before."""
    deadline = time.monotonic() + most
    while committed(app) < count:
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, f"no epoch {count} after {most} s"
        time.sleep(0.02)
    return True
