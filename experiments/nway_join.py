"""Document D's figures 9 and 10: the delay of N-way joins over the number of streams, and over their windows.

The load is the document's: N streams of 20 tuples a second, ten numeric attributes, the key of each stream
its own counter, RANGE windows. Tuples go into the runtime one at a time, as fast as it takes them; a tuple's
delay is from there to its results, taken over the tuples that have any. All four operators, as the planner
makes them of a hint. The machine has two cores, so that N + 2 workers are *simulated*, from the costs that
are measured here: of one hand-over between threads, of one probe, of the merge.
Writes experiments/out/nway_join_*.csv and .png. Usage: nway_join.py [--quick]
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np

from kasen.cql.bind import bind_text
from kasen.operators import mjoin, rings
from kasen.operators.batch import Batch, Bound, empty
from kasen.operators.mjoin import MJoin, Seen
from kasen.operators.parallel_mjoin import ParallelMJoin, Workers
from kasen.plan.physical import plan_app
from kasen.runtime.feed import Rows
from kasen.runtime.pipeline import Pipeline

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).parent / "out"
METHODS = ("JOIN_TREE", "PARALLEL_TREES", "MJOIN", "PARALLEL_MJOIN")
PERIOD = 50_000  # µs between the tuples of a stream


def declare(streams: int, window: int, hint: str) -> str:
    columns = ", ".join(["ts BIGINT", "k BIGINT", *(f"a{n} BIGINT" for n in range(9))])
    inputs = "".join(
        f"REGISTER STREAM s{i} ({columns}) TIMESTAMP BY ts FROM 'memory';" for i in range(streams)
    )
    items = ", ".join(["s0.k", *(f"s{i}.a0 AS x{i}" for i in range(streams))])
    sources = ", ".join(f"s{i} [RANGE {window}]" for i in range(streams))
    where = " AND ".join(f"s0.k = s{i}.k" for i in range(1, streams))
    return f"{inputs} REGISTER QUERY q AS ISTREAM(SELECT {hint} {items} FROM {sources} WHERE {where});"


def delays(streams: int, seconds: int, window: int, method: str) -> list[float]:
    """The delays, in µs, of the tuples that had results."""
    hint = f"/*+ {method} */" if method else ""
    pipeline = Pipeline(plan_app(bind_text(declare(streams, window * 1_000_000, hint), Path())))
    names = [f"s{i}" for i in range(streams)]
    taken = []
    for n in range(20 * seconds):
        for i, name in enumerate(names):
            ts = n * PERIOD + i * PERIOD // streams
            data = np.array([[ts], [n], *[[n * i]] * 9, [0]], np.int64)
            row = Rows(data[0], np.ones(1, np.int64), data, np.zeros(1, np.int64))
            begin = time.perf_counter()
            pipeline.add(name, row)
            for each in names:
                pipeline.advance(each, ts + 1)
            answer = pipeline.run()
            end = time.perf_counter()
            results = answer.changes.get("q")
            if n > 20 and results is not None and len(results):
                taken.append((end - begin) * 1e6)
    return taken


def measured(configurations: list[tuple[int, int]], seconds: int) -> list[list[float]]:
    """Median and mean delay of every method, and of the planner's choice, for each (streams, window)."""
    lines: list[list[float]] = []
    for streams, window in configurations:
        found = {method: delays(streams, seconds, window, method) for method in (*METHODS, "")}
        medians = {method: statistics.median(each) for method, each in found.items()}
        means = {method: statistics.fmean(each) for method, each in found.items()}
        best = min(medians[method] for method in METHODS)
        lines.append(
            [streams, window, *(medians[m] for m in METHODS), medians[""], *(means[m] for m in METHODS)]
        )
        shown = ", ".join(f"{m.lower().replace('_', ' ')} {medians[m]:.0f}" for m in METHODS)
        chosen = f"choice {medians['']:.0f} ({medians[''] / best:.2f} x the best)"
        print(f"N = {streams}, {window} s: median delay in µs: {shown}; {chosen}", flush=True)
    return lines


# ---------------------------------------------------------------- N + 2 cores, simulated


def hand_over() -> float:
    """µs from handing a task to a waiting thread to knowing that it is done."""
    workers = Workers(1)
    nothing = partial(lambda: None)
    taken = []
    for _ in range(500):
        begin = time.perf_counter()
        workers.run([nothing, nothing])
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1e6


def operator_cost(streams: int, kind: type[MJoin]) -> float:
    """µs that the operator alone takes for a tuple with one match in each other window, and so one result."""
    seen = [Seen(2, rings.ROWS, 64)] * streams
    columns = [(0, 0), *((i, 1) for i in range(streams))]
    join = kind(seen, [dict.fromkeys(range(streams), 0)], columns, mode=mjoin.NETTED)
    none = [empty(2)] * streams
    taken = []
    at = 0
    for n in range(150):
        for i in range(streams):
            parts = none.copy()
            data = np.array([[n], [at], [0]], np.int64)
            parts[i] = Batch(np.array([at]), np.zeros(1, np.int64), np.ones(1, np.int64), data)
            begin = time.perf_counter()
            answer = join.process(parts, Bound(at + 1))
            if len(answer) and n > 50:
                taken.append(time.perf_counter() - begin)
            at += 1
    # Other work on the machine only adds, and differences between these costs are what counts.
    return float(np.percentile(taken, 10)) * 1e6


def simulated(streams: list[int]) -> list[list[float]]:
    """MJoin on one core, and parallel MJoin on N + 2: a copy, N probes at once, a merge; two hand-overs."""
    cost = hand_over()
    sequential = {n: operator_cost(n, MJoin) for n in streams}
    parallel = {n: operator_cost(n, ParallelMJoin) for n in streams}
    # One more stream is one more probe.
    probe = max(np.polyfit(streams, list(sequential.values()), 1)[0], 0.0)
    one = max(np.polyfit(streams, list(parallel.values()), 1)[0], 0.0)
    lines: list[list[float]] = []
    for n in streams:
        # What does not grow with N is done by the copier and the merger; the probes take as long as one does.
        rest = parallel[n] - one * n
        several = rest + one + 2 * cost
        lines.append([n, sequential[n], several, cost, probe])
    worth = f"parallel MJoin pays off where the probes that it saves take {2 * cost:.0f} µs"
    print(f"simulation of N + 2 cores: hand-over {cost:.1f} µs, probe {probe:.2f} µs: {worth}")
    for count, alone, several, *_ in lines:
        print(f"  N = {count:.0f}: MJoin {alone:.1f} µs, parallel MJoin {several:.1f} µs (simulated)")
    return lines


# ---------------------------------------------------------------- output


def write(name: str, header: list[str], lines: list[list[float]]) -> None:
    with (OUT / f"nway_join_{name}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])


def draw(name: str, title: str, x: str, lines: list[list[float]], column: int) -> None:
    figure, axes = plt.subplots(figsize=(6, 4))
    for place, method in enumerate(METHODS):
        label = method.lower().replace("_", " ")
        axes.plot([line[column] for line in lines], [line[2 + place] for line in lines], "o-", label=label)
    axes.set(title=title, xlabel=x, ylabel="median delay in µs")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.tight_layout()
    figure.savefig(OUT / f"nway_join_{name}.png", dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tuples and configurations")
    quick = parser.parse_args().quick
    OUT.mkdir(exist_ok=True)
    seconds = 3 if quick else 5
    short = [m.lower() for m in METHODS]
    medians, means = [f"median_{m}" for m in short], [f"mean_{m}" for m in short]
    header = ["streams", "window_s", *medians, "median_choice", *means]
    counts = [5, 10] if quick else [5, 10, 15, 20]
    nine = measured([(n, 1) for n in counts], seconds)
    write("figure_9", header, nine)
    draw("figure_9", "Figure 9: delay over streams, RANGE 1 s", "streams", nine, 0)
    ten = measured([(10, w) for w in ((1, 3) if quick else (1, 2, 3, 4, 5))], seconds)
    write("figure_10", header, ten)
    draw("figure_10", "Figure 10: delay over windows, N = 10", "window in s", ten, 1)
    lines = simulated([5, 10, 15, 20])
    write("simulated", ["streams", "mjoin", "parallel_mjoin_on_n_plus_2_cores", "hand_over", "probe"], lines)


if __name__ == "__main__":
    main()
