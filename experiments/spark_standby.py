"""A Spark application is killed: how long until its answers are where they would have been?

Three ways back. A standby application that got batches takes over; a node without one is started again, and
is rebuilt from what its upstream node holds; and an app without links is started again from its checkpoint.
Times are from SIGKILL: for nodes, until the last sink has everything that the source had read by then; for
the app, until its next epoch is committed. The restarts begin at once, which flatters them: somebody has to
notice first.
"""

from __future__ import annotations

import csv
import tempfile
import time
from pathlib import Path
from signal import SIGKILL

from kasen.ha.link.wire import Json
from tests.ha.chains import OPERATORS, chain, expected, make_chain, written
from tests.ha.nodes import Nodes
from tests.spark import chaos

OUT = Path(__file__).parent / "out" / "spark_standby"
RATE = 500
ROWS = 60_000


def node(folder: Path, copies: int) -> tuple[float, Json]:
    """Seconds until the sink has caught up, and what the copy that took over measured itself."""
    make_chain(folder, "aggregation", ROWS)
    given = chain(copies=1, rate=RATE, batch=50)
    given["node"][1] |= {"copies": copies, "engine": "spark"}
    with Nodes(folder, given) as nodes:
        nodes.wait_for("out", "inputs_begun", 300)
        time.sleep(8)
        leader = nodes.leader("n")
        assert leader is not None, nodes.logs()
        nodes.signal(leader, SIGKILL)
        begin = time.monotonic()
        if copies == 1:
            nodes.heal("n")
        had = source_position(nodes)
        # The sink's frontier is the answers', which may wait for a window to be full.
        caught_up = wait_for_sink(nodes, had) - begin
        other = next((each for each in nodes.find("n") if each != leader), None)
        measured = nodes.wait_for(other.name, "recovery", 60)["measured"] if other is not None else {}
        nodes.finish("out", 300)
    assert written(folder) == expected(folder), nodes.logs()
    return caught_up, measured


def source_position(nodes: Nodes) -> int:
    """How far the source has read; a busy machine may take a while to say so."""
    due = time.monotonic() + 60
    while (status := nodes.status(nodes.member("source"))) is None:
        assert time.monotonic() < due, nodes.logs()
    return int(next(iter(status["outputs"].values()))["upto"])


def wait_for_sink(nodes: Nodes, position: int) -> float:
    due = time.monotonic() + 300
    while time.monotonic() < due:
        status = nodes.status(nodes.member("out"))
        if status is not None and min(status["inputs"].values()) >= position:
            return time.monotonic()
        time.sleep(0.02)
    raise AssertionError(nodes.logs())


def app(folder: Path) -> float:
    """Seconds from SIGKILL until the restarted app has committed an epoch."""
    make_chain(folder, "aggregation", ROWS)
    lines = (folder / "readings.csv").read_text().splitlines(keepends=True)
    (folder / "readings").mkdir()
    for number, first in enumerate(range(1, len(lines), RATE)):
        (folder / "readings" / f"{number:03}.csv").write_text(lines[0] + "".join(lines[first : first + RATE]))
    source = (
        (folder / "source.cql").read_text().split("REGISTER QUERY", 1)[0].replace("readings.csv", "readings")
    )
    file = folder / "app.cql"
    file.write_text(f"{source}REGISTER QUERY answers AS {OPERATORS['aggregation']};\n")
    process = chaos.start(file, "driver", "1")
    try:
        chaos.wait_for_epochs(file, process, 5)
        chaos.kill(process)
        before, begin = chaos.committed(file), time.monotonic()
        process = chaos.start(file, "driver", "1")
        chaos.wait_for_epochs(file, process, before + 1)
        return time.monotonic() - begin
    finally:
        chaos.kill(process)


def main() -> None:
    rows: list[tuple[str, float, float | None, float | None]] = []
    with tempfile.TemporaryDirectory(prefix="kasen-spark-") as name:
        folders = [Path(name) / each for each in ("standby", "node", "app")]
        for folder in folders:
            folder.mkdir()
        seconds, measured = node(folders[0], 2)
        rows.append(("standby application", seconds, measured["detection"], measured["recovery"]))
        rows.append(("node started again", node(folders[1], 1)[0], None, None))
        rows.append(("app started again from its checkpoint", app(folders[2]), None, None))
    OUT.mkdir(parents=True, exist_ok=True)
    with (OUT / "recovery.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["way back", "seconds from SIGKILL", "detection", "recovery after detection"])
        writer.writerows(rows)
    for title, seconds, *rest in rows:
        print(f"{title:40} {seconds:6.1f} s", *(f"{each:.2f} s" for each in rest if each is not None))


if __name__ == "__main__":
    main()
