"""Loops: how fast they are beside the same query without them, and beside a program written by hand.

Three things are measured: the test query of [DTS] (experiments/_averages.py) with its loops and cut open,
both instant by instant; the same cut-open query in batches, as Kasen runs what has no loop; and the trading
desk (examples/trading/desk.cql) beside the same rules as a Python loop, both from csv files to csv files.
Tuples come in epochs, as the local engine cuts them. Seconds are those of the processor, as one thread does
all the work: others on the machine do not count.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.csv

from benchmarks._measure import Line, Table
from experiments._averages import Schedule, fed_back, plan_of, tuples
from kasen.cli import load
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options

TRADING = Path(__file__).resolve().parents[1] / "examples" / "trading"


def alternately(runs: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    """The least seconds of each, taken in turns, so that a noisy moment does not hit one of them alone."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(times):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            seconds[name].append(time.process_time() - begin)
    return {name: min(each) for name, each in seconds.items()}


def averages(table: Table, count: int, times: int) -> None:
    for a_timestamp in (1, 4):
        for subqueries in (1, 2, 4):
            inputs = {"input": tuples(count, a_timestamp)}
            recursive = Schedule(plan_of(subqueries, cut=False), split=True)
            plan = plan_of(subqueries, cut=True)
            opened = inputs | fed_back(recursive.run(inputs))
            best = alternately(
                {
                    "recursive": partial(recursive.drain, inputs),
                    "cut open": partial(Schedule(plan, split=True).drain, opened),
                    "hybrid": partial(Schedule(recursive.plan, split=False).drain, inputs),
                    "batches": partial(Schedule(plan, split=False).drain, opened),
                },
                times,
            )
            rates = {name: count / seconds for name, seconds in best.items()}
            what = f"{subqueries} sub-queries, {a_timestamp} tuples a timestamp"
            ratio = best["recursive"] / best["cut open"]
            table.add(
                Line(
                    f"{what}: recursive | cut open",
                    f"{rates['recursive']:,.0f} tuples/s",
                    f"{rates['cut open']:,.0f} tuples/s",
                    f"{ratio:.2f}",
                    "time at most 1.1x",
                    ratio <= 1.1,
                )
            )
            # As Kasen runs it: time-splitting inside the loop only.
            rate, first = rates["hybrid"], subqueries == 1 and a_timestamp == 1
            line = Line("  recursive, only the loop in DTS", f"{rate:,.0f} tuples/s")
            table.add(replace(line, target="at least 500,000/s", met=rate >= 5e5) if first else line)
            table.add(Line("  cut open, in batches outside DTS", f"{rates['batches']:,.0f} tuples/s"))


def trading(table: Table, rows: int, times: int) -> None:
    by_hand, generator = script("by_hand"), script("generate_desk")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "desk").mkdir()
        shutil.copy(TRADING / "desk.cql", folder)
        options = pa.csv.WriteOptions(quoting_style="none", quoting_header="none")
        for file, content in generator.generate(rows, 1, 300, 3_000_000).items():
            pa.csv.write_csv(content, folder / "desk" / f"{file}.csv", options)
        plan = plan_app(load(folder / "desk.cql"))
        best = alternately(
            {
                "desk": lambda: LocalRun(plan, Options(folder, folder / "out")).run(),
                "by hand": lambda: by_hand.run(folder / "desk", folder / "hand"),
            },
            times,
        )
    rate, other = rows / best["desk"], rows / best["by hand"]
    ratio = rate / other
    table.add(Line("trading desk", f"{rate:,.0f} ticks/s", "", "", "at least 200,000/s", rate >= 2e5))
    line = Line("  beside a Python loop", f"{rate:,.0f} ticks/s", f"{other:,.0f} ticks/s", f"{ratio:.2f}")
    table.add(Line(line.what, line.ours, line.theirs, line.ratio, "at least as fast", ratio >= 1.0))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TRADING / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuples", type=int, default=400_000)
    parser.add_argument("--ticks", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    table = Table("Loops beside the same work without them")
    averages(table, args.tuples, args.times)
    trading(table, args.ticks, args.times)
    sys.exit(1 if table.missed else 0)


if __name__ == "__main__":
    main()
