"""[SAS], figures 8 to 18: bandwidth overhead, recovery time, throughput and CPU against the batch size.

The document's set-up: source -> node-1 -> node-2 -> node-3, node-4 is the secondary of node-2, 1,000 tuples
of 56 bytes a second, windows of 100 tuples that slide by 10, acknowledgements and pings every 250 ms; node-2
is killed. Everything runs as real processes over TCP on this machine. Active Standby is batch 1, Upstream
Backup an infinite batch.

Without arguments: few points, one run each. With --full: all batch sizes, ten runs a point, a kill after 20
s, which takes half a day; --runs, --seconds and --step take less of each, --resume goes on after an
interruption.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from signal import SIGKILL, SIGTERM, signal
from statistics import mean

import matplotlib.pyplot as plt
import psutil

from examples.sensors.generate import generate, write
from kasen.ha.cluster import members_of
from kasen.ha.link.wire import Json
from tests.ha.nodes import Nodes, through
from tests.ha.relay import Relay

OUT = Path(__file__).parent / "out" / "semi_active_standby"
POINTS = OUT / "points.csv"
COLUMNS = (
    "id BIGINT, timestamp TIMESTAMP, temperature DOUBLE, illuminance DOUBLE, x DOUBLE, y DOUBLE, z DOUBLE"
)
STREAM = f"REGISTER STREAM s ({COLUMNS}) TIMESTAMP BY ts FROM 'link';\nREGISTER QUERY q AS "
SOURCE = f"""REGISTER STREAM s ({COLUMNS}) TIMESTAMP BY timestamp FROM 'csv' OPTIONS (path 's.csv');
REGISTER QUERY q AS ISTREAM(SELECT * FROM s [NOW]);
"""
SELECTION = STREAM + "ISTREAM(SELECT * FROM s [ROWS 100 SLIDE 10] WHERE temperature > -100.0);\n"
AGGREGATION = (
    STREAM
    + """
RSTREAM(SELECT MAX(id) AS id, MAX(timestamp) AS timestamp, SUM(temperature) AS temperature,
               SUM(illuminance) AS illuminance, SUM(x) AS x, SUM(y) AS y, SUM(z) AS z
        FROM s [ROWS 100 SLIDE 10]);
"""
)
#: What all links share when there is background load; the document's hub, scaled to what the chain needs.
HUB_BYTES = 2_000_000
RATE = 1000


@dataclass(frozen=True)
class Point:
    """What is varied."""

    batch: int | str = 1
    compression: str = "none"
    operator: str = "selection"
    load: float | None = None
    rate: int | None = RATE
    ack: str = "safe"


@dataclass
class Measured:
    """What is measured; seconds, tuples a second, and shares."""

    overhead_payload: float = 0.0
    overhead_wire: float = 0.0
    detection: float = 0.0
    recovery: float = 0.0
    throughput: float = 0.0
    cpu: float = 0.0


def measure(point: Point, seconds: float) -> Measured:
    """One run: start, load, kill node-2, wait until node-4 has recovered."""
    folder = Path(tempfile.mkdtemp(prefix="kasen-sas-"))
    relay = Relay(HUB_BYTES * (1 - point.load)) if point.load is not None else None
    try:
        with make(folder, point, seconds, relay) as nodes:
            return watch(nodes, point, seconds)
    finally:
        if relay is not None:
            relay.close()
        shutil.rmtree(folder, ignore_errors=True)


def make(folder: Path, point: Point, seconds: float, relay: Relay | None) -> Nodes:
    rows = int((seconds + 30) * RATE) if point.rate is not None else 600_000
    write(generate(rows, 1, 4, RATE)["readings"].sort_by("timestamp"), folder / "s.csv")
    (folder / "source.cql").write_text(SOURCE)
    (folder / "selection.cql").write_text(SELECTION)
    (folder / "n.cql").write_text(AGGREGATION if point.operator == "aggregation" else SELECTION)
    source: Json = {"name": "node-0", "app": "source.cql"}
    if point.rate is not None:
        source["rate"] = point.rate
    given = {
        "defaults": {"batch": point.batch, "compression": point.compression, "ack": point.ack},
        "node": [
            source,
            {"name": "node-1", "app": "selection.cql", "inputs": {"s": "node-0.q"}},
            {"name": "node-2", "app": "n.cql", "copies": 2, "inputs": {"s": "node-1.q"}},
            {"name": "node-3", "app": "selection.cql", "inputs": {"s": "node-2.q"}},
            {"name": "out", "sink": "out", "inputs": {"q": "node-3.q"}},
        ],
    }
    members = members_of(given, folder)
    if relay is not None:
        members = [through(relay, member) for member in members]
    return Nodes(folder, {}, members)


def watch(nodes: Nodes, point: Point, seconds: float) -> Measured:
    if point.rate is None:
        return Measured(throughput=throughput(nodes))
    nodes.wait_for("out", "inputs_begun", 60)
    time.sleep(1.0)  # connections, first acknowledgements
    member = nodes.member("node-1")
    pid = nodes.pid(member)
    assert pid is not None
    busy, first, begin = cpu_seconds(pid), sent(nodes), time.monotonic()
    time.sleep(seconds)
    last, elapsed = sent(nodes), time.monotonic() - begin
    main = [b - a for a, b in zip(first["main"], last["main"], strict=True)]
    backup = [b - a for a, b in zip(first["backup"], last["backup"], strict=True)]
    found = Measured(
        overhead_payload=backup[1] / max(1, main[1]),
        overhead_wire=backup[2] / max(1, main[2]),
        throughput=main[0] / elapsed,
        cpu=(cpu_seconds(pid) - busy) / elapsed,
    )
    nodes.signal(nodes.member("node-2/1"), SIGKILL)
    measured = nodes.wait_for("node-2", "recovery", 60)["measured"]
    found.detection, found.recovery = measured["detection"], measured["recovery"]
    return found


def throughput(nodes: Nodes) -> float:
    """Tuples a second from node-1 to node-2, from the first to the last."""
    nodes.wait_for("node-2", "inputs_begun", 60)
    samples: list[tuple[float, int]] = []
    while (status := nodes.status(nodes.member("node-1"))) is not None or len(samples) < 2:
        if status is not None:
            rows = next(iter(status["outputs"].values()))["main"][0]
            if not samples or rows > samples[-1][1]:
                samples.append((time.monotonic(), rows))
            elif time.monotonic() - samples[-1][0] > 2.0:
                break
        time.sleep(0.02)
    (begin, first), (end, last) = samples[0], samples[-1]
    return (last - first) / (end - begin)


def sent(nodes: Nodes) -> Json:
    due = time.monotonic() + 20
    while (status := nodes.status(nodes.member("node-1"))) is None and time.monotonic() < due:
        time.sleep(0.1)
    assert status is not None, nodes.logs()
    return next(iter(status["outputs"].values()))


def cpu_seconds(pid: int) -> float:
    process = psutil.Process(pid)
    return sum(sum(each.cpu_times()[:2]) for each in [process, *process.children(recursive=True)])


# ---------------------------------------------------------------- figures


@dataclass(frozen=True)
class Figure:
    """A figure of the document: which points, which measure, in which unit."""

    number: int
    title: str
    value: str
    unit: str
    factor: float
    lines: tuple[tuple[str, tuple[Point, ...]], ...]


def figures(batches: list[int]) -> list[Figure]:
    def over(point: Point) -> tuple[Point, ...]:
        return tuple(replace(point, batch=batch) for batch in batches)

    sas = over(Point())
    sasc = over(Point(compression="zstd"))
    fast = over(Point(rate=None))
    standby = (("SAS", sas), ("AS", (Point(batch=1),)), ("UB", (Point(batch="infinite"),)))
    speed = (("SAS", fast), ("AS", (Point(1, rate=None),)), ("UB", (Point("infinite", rate=None),)))
    squeezed = (("SAS", sas), ("SAS, zstd", sasc))
    operators = (("selection", sas), ("aggregation", over(Point(operator="aggregation"))))
    loads = (("none", sas), *((f"{load:.0%}", over(Point(load=load))) for load in (0.4, 0.6)))
    overhead, recovery = ("overhead_payload", "%", 100.0), ("recovery", "ms", 1e3)
    return [
        Figure(8, "bandwidth overhead", *overhead, standby),
        Figure(9, "recovery time", *recovery, standby),
        Figure(10, "throughput", "throughput", "tuples/s", 1.0, speed),
        Figure(11, "CPU of node-1", "cpu", "%", 100.0, standby),
        Figure(12, "bandwidth overhead and compression", *overhead, squeezed),
        Figure(13, "recovery time and compression", *recovery, squeezed),
        Figure(14, "CPU of node-1 and compression", "cpu", "%", 100.0, squeezed),
        Figure(15, "bandwidth overhead by operator", *overhead, operators),
        Figure(16, "recovery time by operator", *recovery, operators),
        Figure(17, "bandwidth overhead under network load", *overhead, loads),
        Figure(18, "recovery time under network load", *recovery, loads),
    ]


def run(
    points: Iterable[Point], runs: int, seconds: float, known: dict[Point, Measured]
) -> dict[Point, Measured]:
    """Every point once, however many figures show it; what is known is not measured again."""
    names = [field.name for field in fields(Measured)]
    table = dict(known)
    OUT.mkdir(parents=True, exist_ok=True)
    with POINTS.open("a" if known else "w", newline="") as file:
        writer = csv.writer(file)
        if not known:
            writer.writerow([*(field.name for field in fields(Point)), "runs", *names])
        for point in dict.fromkeys(points):
            if point in table:
                continue
            found = [measure(point, seconds) for _ in range(runs)]
            table[point] = Measured(**{name: mean(getattr(each, name) for each in found) for name in names})
            writer.writerow(
                [*vars_of(point), runs, *(f"{getattr(table[point], name):.6g}" for name in names)]
            )
            file.flush()
            print(point, {name: round(getattr(table[point], name), 4) for name in names}, flush=True)
    return table


def vars_of(point: Point) -> list[object]:
    return [getattr(point, field.name) for field in fields(Point)]


def measured_before() -> dict[Point, Measured]:
    """The points of an earlier run that was ended."""
    if not POINTS.exists():
        return {}
    found = {}
    with POINTS.open(newline="") as file:
        for row in csv.DictReader(file):
            point = Point(
                batch=int(row["batch"]) if row["batch"].isdigit() else row["batch"],
                compression=row["compression"],
                operator=row["operator"],
                load=float(row["load"]) if row["load"] else None,
                rate=int(row["rate"]) if row["rate"] else None,
                ack=row["ack"],
            )
            found[point] = Measured(**{field.name: float(row[field.name]) for field in fields(Measured)})
    return found


def draw(figure: Figure, table: dict[Point, Measured]) -> None:
    plot, axes = plt.subplots(figsize=(6, 4))
    with (OUT / f"figure_{figure.number:02}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["line", "batch", f"{figure.title} ({figure.unit})"])
        for label, points in figure.lines:
            values = [getattr(table[point], figure.value) * figure.factor for point in points]
            writer.writerows(
                [label, point.batch, f"{value:.6g}"] for point, value in zip(points, values, strict=True)
            )
            if len(points) == 1:
                axes.axhline(
                    values[0], linestyle="--", label=label, color="gray" if label == "AS" else "black"
                )
            else:
                axes.plot([int(point.batch) for point in points], values, marker="o", label=label)
    axes.set(xlabel="batch size (tuples)", ylabel=f"{figure.title} ({figure.unit})", ylim=(0, None))
    axes.legend()
    plot.tight_layout()
    plot.savefig(OUT / f"figure_{figure.number:02}.png", dpi=120)
    plt.close(plot)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="all batch sizes, ten runs a point (hours)")
    parser.add_argument("--figure", type=int, action="append", help="only this one; may be given again")
    parser.add_argument("--runs", type=int, help="runs a point")
    parser.add_argument("--seconds", type=float, help="load before the kill")
    parser.add_argument("--step", type=int, help="from one batch size to the next, up to 500")
    parser.add_argument("--resume", action="store_true", help="keep the points that were measured before")
    args = parser.parse_args()
    signal(SIGTERM, lambda *_: sys.exit("ended; --resume goes on from here"))  # no node is left behind
    step = args.step or (20 if args.full else None)
    batches = [1, *range(step, 501, step)] if step else [1, 100, 300, 500]
    runs = args.runs or (10 if args.full else 1)
    seconds = args.seconds or (20.0 if args.full else 2.0)
    wanted = [each for each in figures(batches) if not args.figure or each.number in args.figure]
    points = [point for figure in wanted for _, line in figure.lines for point in line]
    table = run(points, runs, seconds, measured_before() if args.resume else {})
    for figure in wanted:
        draw(figure, table)
    print(f"figures {', '.join(str(figure.number) for figure in wanted)} are in {OUT}")


if __name__ == "__main__":
    main()
