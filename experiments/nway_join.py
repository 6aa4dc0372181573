"""[LowDelayJoin], figures 9 and 10: the delay of N-way joins by number of streams and by window.

The load is the paper's: N streams of 20 tuples a second, ten numeric attributes, the key of each stream
its own counter, RANGE windows. Tuples go into the runtime one at a time, as fast as it takes them; a tuple's
delay is from there to its results, taken over the tuples that have any. All four operators, as the planner
makes them of a hint. The machine has two cores, so that N + 2 workers are *simulated*, from the costs that
are measured here: of one hand-over between threads, of laying tuples down, of one probe, of the merge.
Writes experiments/out/nway_join_*.csv and .png. Usage: nway_join.py [--quick]
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import matplotlib
import numpy as np
import numpy.typing as npt
from numba import njit

from kasen.cql.bind.app import bind_text
from kasen.engine.batch import Batch, Frontier
from kasen.engine.join.multiway import mjoin, rings
from kasen.engine.join.multiway.kernels import mjoin as mjoin_kernel
from kasen.engine.join.multiway.kernels import parallel_mjoin as parallel_kernel
from kasen.engine.join.multiway.mjoin import JoinInput, MJoin
from kasen.engine.join.multiway.parallel_mjoin import ParallelMJoin
from kasen.engine.kernels.flags import reaches
from kasen.plan.physical import plan_app
from kasen.runtime.input.feed import InputRows
from kasen.runtime.pipeline import RunningPipeline

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
    pipeline = RunningPipeline(plan_app(bind_text(declare(streams, window * 1_000_000, hint), Path())))
    names = [f"s{i}" for i in range(streams)]
    taken = []
    for n in range(20 * seconds):
        for i, name in enumerate(names):
            ts = n * PERIOD + i * PERIOD // streams
            data = np.array([[ts], [n], *[[n * i]] * 9, [0]], np.int64)
            row = InputRows(data[0], np.ones(1, np.int64), data, np.zeros(1, np.int64))
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
        # The machine is at times slower than at others: methods take turns, and the best of each counts.
        turns = [
            {method: delays(streams, seconds, window, method) for method in (*METHODS, "")} for _ in "123"
        ]
        medians = {method: min(statistics.median(each[method]) for each in turns) for method in turns[0]}
        means = {method: min(statistics.fmean(each[method]) for each in turns) for method in turns[0]}
        best = min(medians[method] for method in METHODS)
        lines.append(
            [streams, window, *(medians[m] for m in METHODS), medians[""], *(means[m] for m in METHODS)]
        )
        shown = ", ".join(f"{m.lower().replace('_', ' ')} {medians[m]:.0f}" for m in METHODS)
        chosen = f"choice {medians['']:.0f} ({medians[''] / best:.2f} x the best)"
        print(f"N = {streams}, {window} s: median delay in µs: {shown}; {chosen}", flush=True)
    return lines


# ---------------------------------------------------------------- N + 2 cores, simulated


def hand_overs() -> tuple[float, float, float]:
    """µs from one core's word in shared memory to the other's seeing it, both awake, without a lock.

    A quarter of many measurements took less than the first number, half less than the second, a quarter
    longer than the third: it depends on where the machine's own host has put the two cores.
    """
    taken = [each for _ in range(_PAIRS) for each in _hand_over()]
    quick, usual, slow = (float(each) for each in np.percentile(taken, (25, 50, 75)))
    return quick, usual, slow


# So many pairs of threads are asked, so many times each, so many rounds at a time.
_PAIRS, _TIMES, _ROUNDS = 10, 20, 1000


def _hand_over() -> list[float]:
    """µs of a hand-over, by a new pair of threads, each on a core of its own."""
    mine, theirs = np.zeros(1, np.int64), np.zeros(1, np.int64)
    cores = sorted(os.sched_getaffinity(0))

    def answering() -> None:
        os.sched_setaffinity(0, cores[-1:])
        answer(theirs, mine, _TIMES * _ROUNDS)

    thread = Thread(target=answering)
    thread.start()
    os.sched_setaffinity(0, cores[:1])
    taken = []
    for begun in range(0, _TIMES * _ROUNDS, _ROUNDS):
        begin = time.perf_counter()
        ask(mine, theirs, begun, begun + _ROUNDS)
        taken.append((time.perf_counter() - begin) / _ROUNDS / 2 * 1e6)
    thread.join()
    os.sched_setaffinity(0, cores)
    return taken


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


@dataclass(frozen=True)
class Cost:
    """µs of work for a tuple that has no results, and for one that has."""

    without: float
    having: float

    def mean(self, streams: int) -> float:
        return (self.without * (streams - 1) + self.having) / streams

    def of(self, tuples: int, streams: int) -> npt.NDArray[np.float64]:
        """For tuples in their order: as keys are counters, the last stream's have results."""
        work = np.full(tuples, self.without)
        work[streams - 1 :: streams] = self.having
        return work


def kernel_costs(streams: int, kind: type[MJoin], module: Any, names: Sequence[str]) -> list[Cost]:
    """What each of an operator's kernels costs, many tuples in a call.

    The first tuples of some keys, of all streams but the last, are one call: they have no results. The last
    stream's are another: each is joined with one tuple of each other stream.
    """
    seen = [JoinInput(2, rings.RANGE, 1_000_000)] * streams
    columns = [(0, 0), *((i, 1) for i in range(streams))]
    keys, calls = 200, 40
    taken: list[list[list[float]]] = []
    join = kind(seen, [dict.fromkeys(range(streams), 0)], columns, mode=mjoin.NETTED)
    with ExitStack() as stack:
        timed = [Timed(getattr(module, name)) for name in names]
        for name, kernel in zip(names, timed, strict=True):
            stack.enter_context(patch.object(module, name, kernel))
        for call in range(calls):
            n, first = np.arange(keys * call, keys * (call + 1)), 3_000_000 * call
            parts = []
            for i in range(streams):
                ts = first + (n - n[0]) * streams + i + (1_000_000 // 2 if i == streams - 1 else 0)
                data = np.vstack([n, n * i, np.zeros(keys, np.int64)])
                parts.append(Batch(ts, np.zeros(keys, np.int64), np.ones(keys, np.int64), data))
            nothing = parts[0].take(np.empty(0, np.int64))
            both = []
            for chosen, tuples in ((range(streams - 1), streams - 1), (range(streams - 1, streams), 1)):
                for kernel in timed:
                    kernel.seconds = 0.0
                given = [parts[i] if i in chosen else nothing for i in range(streams)]
                join.process(given, Frontier(int(max(parts[i].ts[-1] for i in chosen)) + 1))
                both.append([kernel.seconds / (tuples * keys) * 1e6 for kernel in timed])
            taken.append(both)
    least = np.min(taken, axis=0)
    return [Cost(float(least[0, at]), float(least[1, at])) for at in range(len(names))]


def delay(stages: Sequence[Cost], streams: int, hand_over: float, every: float) -> float:
    """The mean delay of tuples that have results, if tuples arrive at random, one in `every` µs."""
    ready = np.cumsum(np.random.default_rng(1).exponential(every, 200_000))
    done = ready
    for number, cost in enumerate(stages):
        at = done + (hand_over if number else 0.0)
        work = cost.of(len(at), streams)
        # A stage takes tuples one after the other: each when it is there and the one before is done.
        steps = np.cumsum(work)
        done = np.maximum.accumulate(at - steps + work) + steps
    return float(np.mean((done - ready)[streams - 1 :: streams]))


#: How busy MJoin's core is.
LOADS = (0.5, 0.7, 0.9)


def simulated(streams: list[int]) -> list[list[float]]:
    """MJoin on one core; parallel MJoin on N + 2: one lays down events, N windows look up, one merges.

    A tuple is handed over twice, through words in shared memory that the waiting core looks at. Tuples come
    alone, or so often that MJoin's core is busy for some share of the time. Delays are those of tuples that
    have results, as in the document. For each N: MJoin's and parallel MJoin's delays, with the usual
    hand-over and with a slow one.
    """
    quick, usual, slow = hand_overs()
    print(f"simulation of N + 2 cores: a hand-over takes {usual:.2f} µs ({quick:.2f} to {slow:.2f})")
    lines: list[list[float]] = []
    for n in streams:
        turns = [
            kernel_costs(n, MJoin, mjoin_kernel, ["join"])
            + kernel_costs(n, ParallelMJoin, parallel_kernel, ["dispatch", "semi_join", "merge"])
            for _ in range(8)
        ]
        alone, dispatch, probes, merge = (
            Cost(min(each.without for each in costs), min(each.having for each in costs))
            for costs in zip(*turns, strict=True)
        )
        window = Cost(probes.without / n, probes.having / n)
        stages = [dispatch, window, merge]
        line = [n, alone.having, *(sum(each.having for each in stages) + 2 * h for h in (usual, slow))]
        for load in LOADS:
            every = alone.mean(n) / load
            line += [delay([alone], n, 0.0, every), *(delay(stages, n, h, every) for h in (usual, slow))]
        # A tuple on its way between two cores keeps neither of them busy.
        most = 1 / alone.mean(n), 1 / max(each.mean(n) for each in stages)
        lines.append([*line, *most, usual, slow, dispatch.having, window.having, merge.having])
        shown = [f"{a:.2f} / {b:.2f} / {c:.2f}" for a, b, c in zip(*[iter(line[1:])] * 3, strict=True)]
        print(f"  N = {n}: MJoin / parallel MJoin / with slow hand-overs, µs: alone {shown[0]};")
        print(f"    MJoin busy {'; '.join(f'{x:.0%} {y}' for x, y in zip(LOADS, shown[1:], strict=True))};")
        parts = " + ".join(f"{each.having:.2f}" for each in stages)
        print(
            f"    at most {most[0]:.1f} / {most[1]:.1f} M tuples/s; to lay down, look up, merge: {parts} µs"
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
    under = [f"{load:.0%}" for load in LOADS]
    header = ["streams"]
    header += [
        f"{who}_{when}" for when in ("alone", *under) for who in ("mjoin", "parallel", "parallel_slow")
    ]
    header += [
        "mjoin_tuples_per_us",
        "parallel_tuples_per_us",
        "hand_over",
        "slow_hand_over",
        "dispatch",
        "window",
        "merge",
    ]
    write("simulated", header, lines)


if __name__ == "__main__":
    main()
