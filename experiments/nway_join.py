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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import matplotlib
import numpy as np
from numba import njit

from kasen.cql.bind import bind_text
from kasen.kernels import mjoin as mjoin_kernel
from kasen.kernels import parallel_mjoin as parallel_kernel
from kasen.kernels.flags import reaches
from kasen.operators import mjoin, rings
from kasen.operators.batch import Batch, Bound
from kasen.operators.mjoin import MJoin, Seen
from kasen.operators.parallel_mjoin import ParallelMJoin
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
    """µs from one thread's word in shared memory to the other's seeing it, both awake, without a lock."""
    mine, theirs = np.zeros(1, np.int64), np.zeros(1, np.int64)
    rounds = 20_000
    answering = Thread(target=answer, args=(theirs, mine, rounds))
    answering.start()
    taken = []
    for begun in range(0, rounds, 1000):
        begin = time.perf_counter()
        ask(mine, theirs, begun, begun + 1000)
        taken.append(time.perf_counter() - begin)
    answering.join()
    return float(np.percentile(taken, 25)) / 1000 / 2 * 1e6


@njit("void(int64[::1], int64[::1], int64, int64)", nogil=True)
def ask(mine: Any, theirs: Any, begin: Any, end: Any) -> None:
    """Sets its own word and waits for the other's, again and again."""
    for number in range(begin + 1, end + 1):
        mine[0] = number
        while not reaches(theirs, number, 1000):
            pass


@njit("void(int64[::1], int64[::1], int64)", nogil=True)
def answer(mine: Any, theirs: Any, rounds: Any) -> None:
    """Waits for the other's word, then sets its own."""
    for number in range(1, rounds + 1):
        while not reaches(theirs, number, 1000):
            pass
        mine[0] = number


class Timed:
    """A kernel that counts the time that it takes."""

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self.kernel = kernel
        self.seconds = 0.0

    def __call__(self, *args: Any) -> Any:
        begin = time.perf_counter()
        found = self.kernel(*args)
        self.seconds += time.perf_counter() - begin
        return found


def kernel_costs(streams: int, kind: type[MJoin], module: Any, names: Sequence[str]) -> list[float]:
    """µs of each of an operator's kernels for a tuple of document D's load, many tuples in a call."""
    seen = [Seen(2, rings.RANGE, 1_000_000)] * streams
    columns = [(0, 0), *((i, 1) for i in range(streams))]
    costs = []
    for _ in range(5):
        join = kind(seen, [dict.fromkeys(range(streams), 0)], columns, mode=mjoin.NETTED)
        with ExitStack() as stack:
            timed = [Timed(getattr(module, name)) for name in names]
            for name, kernel in zip(names, timed, strict=True):
                stack.enter_context(patch.object(module, name, kernel))
            tuples = 0
            for call in range(8):
                n = np.arange(200 * call, 200 * (call + 1))
                parts = []
                for i in range(streams):
                    ts = n * PERIOD + i * PERIOD // streams
                    data = np.vstack([n, n * i, np.zeros(len(n), np.int64)])
                    parts.append(Batch(ts, np.zeros(len(n), np.int64), np.ones(len(n), np.int64), data))
                if call == 1:
                    for kernel in timed:
                        kernel.seconds = 0.0
                tuples += streams * len(n) * (call > 0)
                join.process(parts, Bound(int(200 * (call + 1) * PERIOD)))
            costs.append([kernel.seconds / tuples * 1e6 for kernel in timed])
    return [float(each) for each in np.min(costs, axis=0)]


def delay(stages: Sequence[float], hand_over: float, every: float) -> float:
    """The mean delay of tuples that arrive at random, one in `every` µs, and pass from stage to stage."""
    ready = np.cumsum(np.random.default_rng(1).exponential(every, 200_000))
    done = ready
    for number, work in enumerate(stages):
        at = done + (hand_over if number else 0.0)
        # A stage takes tuples one after the other: each when it is there and the one before is done.
        steps = work * np.arange(1, len(at) + 1)
        done = np.maximum.accumulate(at - steps + work) + steps
    return float(np.mean(done - ready))


def simulated(streams: list[int]) -> list[list[float]]:
    """MJoin on one core; parallel MJoin on N + 2: one lays down events, N windows look up, one merges.

    A tuple is handed over twice, through words in shared memory that the waiting core looks at. Tuples arrive
    alone, or as often as keeps MJoin's core busy for nine tenths of the time.
    """
    cost = hand_over()
    print(f"simulation of N + 2 cores: a hand-over takes {cost:.2f} µs")
    lines: list[list[float]] = []
    for n in streams:
        (alone,) = kernel_costs(n, MJoin, mjoin_kernel, ["join"])
        dispatch, probes, merge = kernel_costs(
            n, ParallelMJoin, parallel_kernel, ["dispatch", "semi_join", "merge"]
        )
        stages = [dispatch, probes / n, merge]
        idle, busy = sum(stages) + 2 * cost, [delay(each, cost, alone / 0.9) for each in ([alone], stages)]
        lines.append([n, alone, idle, *busy, cost, *stages])
        parts = f"{dispatch:.2f} to lay down, {probes / n:.2f} in each window, {merge:.2f} to merge"
        print(f"  N = {n}: a tuple alone: MJoin {alone:.2f} µs, parallel MJoin {idle:.2f} µs ({parts});")
        print(
            f"    at nine tenths of what MJoin can take: MJoin {busy[0]:.2f}, parallel MJoin {busy[1]:.2f} µs"
        )
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
    header = [
        "streams",
        "mjoin",
        "parallel_mjoin_on_n_plus_2_cores",
        "hand_over",
        "dispatch",
        "window",
        "merge",
    ]
    write("simulated", header, lines)


if __name__ == "__main__":
    main()
