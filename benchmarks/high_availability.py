"""Nodes and links: throughput, delay, overhead and recovery, against the same chain without second copies."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np

from benchmarks._measure import Line, Table
from examples.sensors.generate import generate, write
from experiments.semi_active_standby import SELECTION, SOURCE, Measured, Point, measure
from kasen.ha.link.codec import squeeze
from kasen.ha.link.wire import Json
from tests.ha.nodes import Nodes

_RUNS = 3
_SECONDS = 3.0


def chain(folder: Path, copies: int, rate: int | None, rows: int) -> Nodes:
    """source -> n -> d -> out; n and d in one copy or two, with batches of 100."""
    write(generate(rows, 1, 4, rate or 1000)["readings"].sort_by("timestamp"), folder / "s.csv")
    (folder / "source.cql").write_text(SOURCE)
    (folder / "n.cql").write_text(SELECTION)
    source: Json = {"name": "source", "app": "source.cql"} | ({} if rate is None else {"rate": rate})
    nodes = [
        source,
        {"name": "n", "app": "n.cql", "copies": copies, "inputs": {"s": "source.q"}},
        {"name": "d", "app": "n.cql", "copies": copies, "inputs": {"s": "n.q"}},
        {"name": "out", "sink": "out", "inputs": {"q": "d.q"}},
    ]
    return Nodes(folder, {"defaults": {"batch": 100}, "node": nodes})


def delay(copies: int, rate: int) -> tuple[float, float]:
    """The median delay in ms from reading a tuple to having written it, and the rate that was delivered."""
    folder = Path(tempfile.mkdtemp(prefix="kasen-delay-"))
    try:
        with chain(folder, copies, rate, int(rate * (_SECONDS + 25))) as nodes:
            nodes.wait_for("out", "inputs_begun", 60)
            time.sleep(1.5)
            first, begin = delivered(nodes), time.monotonic()
            time.sleep(_SECONDS)
            last, elapsed = delivered(nodes), time.monotonic() - begin
            source = patiently(nodes, "source")
            middle = last["measured"]["lateness"][0] - source["measured"]["offset"]
            return middle / 1e3, (last["rows"] - first["rows"]) / elapsed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stopped() -> float:
    """Seconds from the last sign of life to the verdict, for a process that hangs instead of dying."""
    folder = Path(tempfile.mkdtemp(prefix="kasen-stop-"))
    try:
        with chain(folder, 2, 1000, 20_000) as nodes:
            nodes.wait_for("out", "inputs_begun", 60)
            time.sleep(1.0)
            nodes.signal(nodes.member("n/1"), signal.SIGSTOP)
            return float(nodes.wait_for("n/2", "detection")["measured"]["detection"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def patiently(nodes: Nodes, node: str) -> Json:
    """The status of the copy that leads, on a machine that may be busy."""
    due = time.monotonic() + 20
    while time.monotonic() < due:
        leader = nodes.leader(node)
        status = nodes.status(leader) if leader is not None else None
        if status is not None:
            return status
    raise AssertionError(f"{node} is silent\n{nodes.logs()}")


def delivered(nodes: Nodes) -> Json:
    status, said = patiently(nodes, "out"), patiently(nodes, "d")
    return {**status, "rows": next(iter(said["outputs"].values()))["main"][0]}


def best_of(point: Point) -> Measured:
    return min((measure(point, 2.0) for _ in range(_RUNS)), key=lambda found: found.recovery)


def compression() -> tuple[int, int]:
    """Bytes of 500 readings: ours, and zlib's on the same bytes."""
    batch = generate(500, 1, 4, 1000)["readings"].sort_by("timestamp").combine_chunks().to_batches()[0]
    columns = [np.frombuffer(column.buffers()[1], np.int64)[:500] for column in batch.columns]
    return len(squeeze(batch, "zstd")), len(zlib.compress(np.stack(columns, 1).tobytes()))


def main() -> None:
    table = Table("nodes and links on loopback, 56-byte tuples")
    ours, theirs = compression()
    less = "no larger than zlib"
    table.add(
        Line(
            "500 readings, zstd / zlib",
            f"{ours} B",
            f"{theirs} B",
            f"{ours / theirs:.2f}",
            less,
            ours <= theirs,
        )
    )
    fast = max((measure(Point(100, rate=None), 3.0) for _ in range(2)), key=lambda found: found.throughput)
    speed = f"{fast.throughput:,.0f} tuples/s"
    table.add(Line("a link, batched", speed, "", "", ">= 100,000 tuples/s", fast.throughput >= 1e5))
    for batch, most in ((1, 0.05), (500, 0.25)):
        found = best_of(Point(batch))
        told = f"{found.recovery * 1e3:.0f} ms after detection"
        table.add(
            Line(f"recovery, batch {batch}", told, "", "", f"< {most * 1e3:.0f} ms", found.recovery < most)
        )
        seen = f"{found.detection * 1e3:.0f} ms"
        table.add(Line("detection of SIGKILL", seen, "", "", "<= 600 ms", found.detection <= 0.6))
        share = f"{found.overhead_payload:.3f} payload, {found.overhead_wire:.3f} wire"
        bound = "payload 1.0 +- 5 %" if batch == 1 else "less than batch 1"
        kept = abs(found.overhead_payload - 1) <= 0.05 if batch == 1 else found.overhead_payload < 0.95
        table.add(Line(f"overhead, batch {batch}", share, "", "", bound, kept))
    hung = min(stopped() for _ in range(_RUNS))
    table.add(Line("detection of SIGSTOP", f"{hung * 1e3:.0f} ms", "", "", "<= 600 ms", hung <= 0.6))
    for rate in (1000, 20_000):
        # Taken in turns, so that a busy moment of the machine does not meet one of them only.
        both = [(delay(1, rate), delay(2, rate)) for _ in range(_RUNS)]
        without, with_ = (min(found) for found in zip(*both, strict=True))
        told = f"{with_[0]:.1f} ms at {with_[1]:,.0f}/s"
        other = f"{without[0]:.1f} ms at {without[1]:,.0f}/s"
        ratio = with_[0] / without[0]
        kept = ratio <= 2 and with_[1] >= 0.95 * without[1]
        table.add(Line(f"delay at {rate:,} tuples/s", told, other, f"{ratio:.2f}", "<= 2 x, same rate", kept))


if __name__ == "__main__":
    main()
