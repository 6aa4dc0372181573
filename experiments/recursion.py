"""[DTS], figures 8 and 10: the time of recursive and of cut-open queries, scheduled in two ways.

Figure 8: the cut-open query under time-splitting (DTS, a level line) and under heartbeats, by how many times
in a row an operator may run. Figure 10: the recursive query beside the cut-open one, both under DTS. Times
are relative to DTS on the cut-open query with one sub-query, as in the document. (a) tuples have different
timestamps, (b) four share one. Figure 9, the misses of the cache, needs counters of the processor that
not every machine gives; it is left out.

Writes experiments/out/recursion.csv, recursion_figure_8.png and recursion_figure_10.png.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from experiments._averages import Schedule, fed_back, plan_of, tuples
from experiments._heartbeat import Heartbeats
from kasen.engine.batch import Batch
from kasen.engine.failures import Failures
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.lower.instantiate import Context
from kasen.runtime.graph.loop import _Input

OUT = Path(__file__).parent / "out"
SUBQUERIES = (1, 2, 4)
IN_A_ROW = (1, 20, 100, 1000)
PATTERNS = {"a": 1, "b": 4}


def seconds(run: Callable[[], object]) -> float:
    """Of the processor: one thread does all, and other work on the machine must not count."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def heartbeats(schedule: Schedule, inputs: dict[str, Batch], most: int) -> Heartbeats:
    """The cut-open query, ready to run under heartbeats; the main input is the first."""
    loop = schedule.loop(Context(Dictionary(), Failures()))
    scans = {step: name for name, step in schedule.plan.scans.items()}
    batches = [inputs[scans[step]] for step in loop._outside]
    for row, batch in zip(loop._table, batches, strict=False):
        _Input.lend_batch(row, batch)
    return Heartbeats(loop, batches, most)


Row = dict[str, object]


def measure(count: int, times: int) -> list[Row]:
    rows: list[Row] = []
    for pattern, a_timestamp in PATTERNS.items():
        inputs = {"input": tuples(count, a_timestamp)}
        for subqueries in SUBQUERIES:
            for query, schedule, most, taken in one_query(subqueries, inputs, times):
                where = {"pattern": pattern, "subqueries": subqueries, "query": query, "schedule": schedule}
                rows.append({**where, "in_a_row": most, "seconds": round(taken, 4)})
                print(rows[-1], flush=True)
    # As in the document: DTS on the cut-open query with one sub-query is 1, by different timestamps.
    unit = float(str(next(row["seconds"] for row in rows if row["query"] == "cut open")))
    for row in rows:
        row["relative"] = round(float(str(row["seconds"])) / unit, 3)
    return rows


def one_query(subqueries: int, inputs: dict[str, Batch], times: int) -> Iterator[tuple[str, str, int, float]]:
    """(query, schedule, runs in a row, seconds) of all ways to run it, which must agree.

    All ways are taken in turns, so many times, and the least seconds count: a noisy moment hits none alone.
    """
    recursive = Schedule(plan_of(subqueries, cut=False), split=True)
    answers = recursive.run(inputs)
    said = {name: len(batch) for name, batch in answers.items()}
    opened = inputs | fed_back(answers)
    del answers
    cut = Schedule(plan_of(subqueries, cut=True), split=True)
    best: dict[tuple[str, str, int], float] = {}
    for _ in range(times):
        taken = {
            ("recursive", "DTS", 0): seconds(lambda: recursive.drain(inputs)),
            ("cut open", "DTS", 0): seconds(lambda: cut.drain(opened)),
        }
        for most in IN_A_ROW:
            running = heartbeats(cut, opened, most)
            taken["cut open", "heartbeat", most] = seconds(running.run)
            counts = dict(zip(running._loop._at, running.counts.tolist(), strict=True))
            assert {name: counts[step] for name, step in cut.plan.outputs} == said
        best = {way: min(each, best.get(way, each)) for way, each in taken.items()}
    for (query, schedule, most), least in best.items():
        yield query, schedule, most, least


def draw(rows: list[Row]) -> None:
    def value(**wanted: object) -> float:
        (row,) = [r for r in rows if all(r[key] == each for key, each in wanted.items())]
        return float(str(row["relative"]))

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axis, (pattern, a_timestamp) in zip(axes, PATTERNS.items(), strict=True):
        for subqueries in SUBQUERIES:
            where = {"pattern": pattern, "subqueries": subqueries, "query": "cut open"}
            line = [value(**where, schedule="heartbeat", in_a_row=most) for most in IN_A_ROW]
            (drawn,) = axis.plot(IN_A_ROW, line, marker="o", label=f"heartbeats, {subqueries} sub-queries")
            level = value(**where, schedule="DTS")
            axis.axhline(level, color=drawn.get_color(), linestyle="--", label=f"DTS, {subqueries}")
        axis.set_xscale("log")
        axis.set_title(f"({pattern}) {a_timestamp} tuples a timestamp")
        axis.set_xlabel("runs in a row, at most")
    axes[0].set_ylabel("time, relative")
    axes[1].legend(fontsize=7)
    figure.suptitle("Figure 8: the query cut open")
    figure.savefig(OUT / "recursion_figure_8.png", dpi=120)
    plt.close(figure)

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axis, (pattern, a_timestamp) in zip(axes, PATTERNS.items(), strict=True):
        for shift, query in ((-0.2, "recursive"), (0.2, "cut open")):
            heights = [value(pattern=pattern, subqueries=n, query=query, schedule="DTS") for n in SUBQUERIES]
            axis.bar([i + shift for i in range(len(SUBQUERIES))], heights, 0.4, label=query)
        axis.set_xticks(range(len(SUBQUERIES)), [str(n) for n in SUBQUERIES])
        axis.set_xlabel("sub-queries")
        axis.set_title(f"({pattern}) {a_timestamp} tuples a timestamp")
    axes[0].set_ylabel("time, relative")
    axes[1].legend()
    figure.suptitle("Figure 10: recursive and cut open, both under DTS")
    figure.savefig(OUT / "recursion_figure_10.png", dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuples", type=int, default=2_000_000)
    parser.add_argument("--times", type=int, default=2)
    args = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    rows = measure(args.tuples, args.times)
    with (OUT / "recursion.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    draw(rows)


if __name__ == "__main__":
    main()
