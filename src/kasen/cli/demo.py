"""`kasen demo`: two example apps on fresh data, with their answers as live tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from kasen import stops
from kasen.cli.run import Engine, Job, run_app
from kasen.errors import DataError

#: The example, how many rows of data to make, and which of its input files are streams.
_APPS = (("dos", 20_000, ("tsukuba", "uec")), ("auction", 20_000, ("bids",)))
_PARTS = 8

_NEXT = """
[bold]What to try next[/bold]
  kasen explain examples/dos/dos.cql                          the plan: what is shared, what it remembers
  kasen run examples/sensors/sensors.cql                      another app, on Spark
  kasen run examples/trading/trading.cql --engine local       feedback: a query that spends its own money
  kasen run examples/dos/dos.cql --engine local --out out     answers as files: out/<query>.csv
Change a query in examples/dos/dos.cql and run it again; `kasen check` tells what is wrong with it."""


def demo(engine: Annotated[Engine, typer.Option(help="Where to run.")] = Engine.spark) -> None:
    """Run two example apps on fresh data, and show their answers as they come."""
    from rich.console import Console

    console = Console()
    temporary = tempfile.TemporaryDirectory(prefix="kasen-demo-")
    stops.at_end(temporary.cleanup)
    with temporary as folder:
        for name, rows, streams in _APPS:
            console.rule(f"[bold]{name}[/bold]: examples/{name}/{name}.cql on {rows:,} fresh rows")
            run_app(_prepare(name, rows, streams, Path(folder)), Job(engine, files_per_epoch=1))
    console.print(_NEXT)


def _examples() -> Path:
    """The folder of example apps."""
    found = Path(__file__).resolve().parents[3] / "examples"
    if not found.is_dir():
        raise DataError("the demonstration needs the folder examples/ of Kasen's source tree")
    return found


def _prepare(name: str, rows: int, streams: tuple[str, ...], folder: Path) -> Path:
    """A copy of the app with data of its own, each stream cut into files as if they came one by one."""
    source = _examples() / name
    home = folder / name
    (home / "data").mkdir(parents=True)
    shutil.copy(source / f"{name}.cql", home)
    command = [sys.executable, str(source / "generate.py"), "--rows", str(rows), "--out", str(home / "data")]
    subprocess.run(command, check=True, capture_output=True)
    for stream in streams:
        cut(home / "data" / f"{stream}.csv")
    return home / f"{name}.cql"


def cut(file: Path) -> None:
    """Replaces a csv file by a folder of that name, with the file's rows in several parts."""
    header, *rows = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.unlink()
    file.mkdir()
    size = -(-len(rows) // _PARTS)
    now = time.time()
    for number in range(_PARTS):
        part = file / f"part-{number:02}.csv"
        rows_of_part = rows[number * size : (number + 1) * size]
        part.write_text(header + "".join(rows_of_part), encoding="utf-8")
        # Spark takes files one by one in the order of their times.
        os.utime(part, (now - _PARTS + number,) * 2)
