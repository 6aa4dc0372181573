"""The circuit of [WindowJoin], cycle by cycle: figures 9 to 11, its formulas, and Kasen's own join.

Three layers: input registers that hold one tuple a side, two match units (READY, MATCH, WAIT) that each read
the other side's queue at one tuple a cycle, and an output that takes `capacity` results a cycle and says stop
when more are waiting. Writes experiments/out/window_join_*.csv and .png. Usage: window_join.py [--quick]
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
from numba import njit

from kasen.engine.batch import Batch, Frontier
from kasen.engine.join.multiway import rings
from kasen.engine.join.multiway.mjoin import JoinInput
from kasen.engine.join.pair.pair_join import PairJoin
from kasen.runtime.memory import own_process

matplotlib.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).parent / "out"
OMEGA = 205.17e6
I64 = npt.NDArray[np.int64]

READY, MATCH, WAIT = range(3)
REFUSE, OVERWRITE = range(2)


@njit(cache=True)
def simulate(
    rows: int, selectivity: float, capacity: float, interval: int, arrivals: int, policy: int
) -> tuple[int, int, int, int]:
    """Both sides get a tuple every `interval` cycles (0: as soon as there is room). Queues are full.

    Returns the cycles that passed, the tuples offered and processed, and the results put out.
    """
    state = np.zeros(2, np.int64)  # of each match unit
    address = np.zeros(2, np.int64)  # how far each unit has read; the pipeline is two cycles deep
    matched = np.zeros(2, np.float64)  # fractions of matches, so that any selectivity is met exactly
    waiting = np.zeros(2, np.int64)  # whether an input register holds a tuple that was not taken yet
    pending = 0.0  # results in the output layer
    credit = 0.0  # of an output slower than one result a cycle
    cycle = offered = processed = results = 0
    while processed < arrivals and cycle < 1_000_000_000:
        # Input layer: a tuple that finds its register taken is refused, or replaces the one there.
        for side in range(2):
            if interval == 0:
                offered += 1 - waiting[side]
                waiting[side] = 1
            elif cycle % interval == 0:
                offered += 1
                if waiting[side] == 0 or policy == OVERWRITE:
                    waiting[side] = 1
        # A window changes only while the unit that reads it is idle: both tuples are written at once.
        if state[0] == READY and state[1] == READY and waiting[0] and waiting[1]:
            for side in range(2):
                state[side], address[side], waiting[side] = MATCH, 0, 0
        # Output layer: takes what it can; says stop while more is left than it can take in a cycle.
        credit += capacity
        taken = min(pending, np.floor(credit))
        credit = min(credit - taken, max(capacity, 1.0))
        pending -= taken
        results += int(taken)
        stop = pending >= max(capacity, 1.0)
        for side in range(2):
            if state[side] == MATCH and stop:
                state[side] = WAIT
            elif state[side] == WAIT and not stop:
                state[side] = MATCH
            if state[side] == MATCH:
                # Address, read and compare overlap: the last comparison is done two cycles after its address.
                if address[side] < rows:
                    matched[side] += selectivity
                    if matched[side] >= 1.0 - 1e-9:
                        matched[side] -= 1.0
                        pending += 1.0
                address[side] += 1
                if address[side] == rows + 2:
                    state[side] = READY
                    processed += 1
        cycle += 1
    return cycle, offered, processed, results


def engine(rows: int, keys: int, count: int) -> tuple[float, float]:
    """Kasen's join of two ROWS windows on one core: tuples and results a second of CPU time."""
    random = np.random.default_rng(rows)
    join = PairJoin([JoinInput(2, rings.ROWS, rows)] * 2, [{0: 0, 1: 0}], [(0, 0), (0, 1), (1, 1)])
    chunk = min(1 << 14, count)
    taken, tuples, results = 0.0, 0, 0
    for begin in range(0, count + 2 * rows, chunk):
        side = random.integers(0, 2, chunk)
        parts = []
        for mine in (0, 1):
            at = np.flatnonzero(side == mine) + begin
            data = np.vstack([random.integers(0, keys, len(at)), at, np.zeros(len(at), np.int64)])
            parts.append(Batch(at, np.zeros(len(at), np.int64), np.ones(len(at), np.int64), data))
        start = time.process_time()
        answer = join.process(parts, Frontier(begin + chunk))
        if begin >= 2 * rows:
            taken += time.process_time() - start
            tuples += chunk
            results += len(answer)
    return tuples / taken, results / taken


def write(name: str, header: list[str], lines: list[list[float]]) -> None:
    with (OUT / f"window_join_{name}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])


Curves = dict[str, tuple[list[float], list[float]]]


def draw(name: str, title: str, x: str, y: str, curves: Curves, *, log: bool = False) -> None:
    figure, axes = plt.subplots(figsize=(6, 4))
    for style, (label, (xs, ys)) in zip(("o", "-", "s--", "^:", "v:"), curves.items(), strict=False):
        axes.plot(xs, ys, style, label=label)
    if log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.legend()
    figure.tight_layout()
    figure.savefig(OUT / f"window_join_{name}.png", dpi=120)
    plt.close(figure)


def figure_9(quick: bool) -> None:
    """Input rate of one stream over ROWS: formula (1) is omega / (ROWS + 2)."""
    lines = []
    for power in range(4, 15 if quick else 17):
        rows = 1 << power
        cycles, _, processed, _ = simulate(rows, 0.0, 2.0, 0, 40, REFUSE)
        simulated, formula = OMEGA / (2 * cycles / processed), OMEGA / (rows + 2)
        tuples, _ = engine(rows, rows, 200_000)
        lines.append([rows, simulated, formula, tuples / 2])
    columns = [list(each) for each in zip(*lines, strict=True)]
    write("figure_9", ["rows", "simulated", "formula_1", "kasen"], lines)
    curves = {"simulated": (columns[0], columns[1]), "formula (1)": (columns[0], columns[2])}
    curves["Kasen, one core"] = (columns[0], columns[3])
    draw("figure_9", "Figure 9: input rate of a stream", "ROWS", "tuples/s", curves, log=True)
    worst = max(abs(line[1] / line[2] - 1) for line in lines)
    rates = f"circuit {lines[-1][2]:,.0f}/s, Kasen {lines[-1][3]:,.0f}/s a stream"
    print(f"figure 9: simulation within {worst:.1%} of formula (1); at ROWS 2^{power}: {rates}")


def figure_10(quick: bool) -> None:
    """Output rate over selectivity, with room for two results a cycle: formula (3) is 2 theta omega."""
    rows = 1 << 10
    lines = []
    for percent in range(0, 101, 20 if quick else 10):
        cycles, _, _, results = simulate(rows, percent / 100, 2.0, 0, 40, REFUSE)
        line = [percent, OMEGA * results / cycles, 2 * percent / 100 * OMEGA]
        keys = round(100 / percent) if percent else 1 << 40
        line += (
            [engine(rows, keys, 30_000)[1]]
            if percent in (0, 10, 20, 50, 100) or not percent
            else [float("nan")]
        )
        lines.append(line)
    columns = [list(each) for each in zip(*lines, strict=True)]
    write("figure_10", ["selectivity_percent", "simulated", "formula_3", "kasen"], lines)
    measured = [(line[0], line[3]) for line in lines if not np.isnan(line[3])]
    curves = {
        "simulated": (columns[0], columns[1]),
        "formula (3)": (columns[0], columns[2]),
        "Kasen, one core": ([x for x, _ in measured], [y for _, y in measured]),
    }
    draw("figure_10", "Figure 10: output rate, ROWS 1024", "selectivity in %", "results/s", curves)
    worst = max(abs(line[1] / line[2] - 1) for line in lines if line[2])
    most = f"Kasen at 100 %: {lines[-1][3] / 1e6:.0f} M results/s"
    print(f"figure 10: simulation within {worst:.1%} of formula (3); {most}")


def figure_11(quick: bool) -> None:
    """Processed share over selectivity, one result a cycle, a tuple every ROWS + 2 cycles: formulas (4), (5).

    The document's (5) leaves out that both units share the output, and takes the lesser of its two cases; its
    own figure shows max(2 N M / C, N + 2) cycles, which is drawn here.
    """
    rows = 1 << (12 if quick else 15)
    lines = []
    for percent in range(0, 101, 20 if quick else 10):
        share = percent / 100
        line = [float(percent)]
        for policy in (REFUSE, OVERWRITE):
            _, offered, processed, _ = simulate(rows, share, 1.0, rows + 2, 24, policy)
            line.append(processed / offered)
        printed = min(rows * share, rows + 2)
        line.append(min(1.0, (rows + 2) / max(2 * rows * share, rows + 2)))
        line.append(min(1.0, (rows + 2) / printed) if printed else 1.0)
        lines.append(line)
    columns = [list(each) for each in zip(*lines, strict=True)]
    header = ["selectivity_percent", "refused", "overwritten", "formula_corrected", "formula_printed"]
    write("figure_11", header, lines)
    curves = {
        "simulated, new tuples refused": (columns[0], columns[1]),
        "max(2NM/C, N+2)": (columns[0], columns[3]),
        "simulated, waiting tuples overwritten": (columns[0], columns[2]),
        "(4), (5) as printed": (columns[0], columns[4]),
    }
    draw("figure_11", f"Figure 11: processed share, ROWS {rows}", "selectivity in %", "share", curves)
    worst = max(abs(line[1] - line[3]) for line in lines)
    print(f"figure 11: least share {min(columns[1]):.2f}; simulation within {worst:.3f} of max(2NM/C, N+2)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer points, smaller windows")
    quick = parser.parse_args().quick
    OUT.mkdir(exist_ok=True)
    own_process()  # as `kasen run` does
    figure_9(quick)
    figure_10(quick)
    figure_11(quick)


if __name__ == "__main__":
    main()
