"""batch = "auto" keeps its bound on real processes while the load doubles."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from kasen.ha.link.wire import Json
from tests.ha.chains import chain, make_chain
from tests.ha.nodes import Nodes

SLOW, FAST, HALF = 500, 1000, 5
#: When the readings begin, in µs.
BEGIN = int(np.datetime64("2026-01-05", "us").astype(np.int64))


def doubling_load(folder: Path, **settings: Any) -> Nodes:
    """A chain that reads 500 tuples a second for some seconds, and then 1,000."""
    rows = SLOW * HALF + FAST * 60
    make_chain(folder, "filter", rows)
    table = pyarrow.csv.read_csv(folder / "readings.csv")
    gaps = np.concatenate([np.full(SLOW * HALF, 10**6 // SLOW), np.full(FAST * 60, 10**6 // FAST)])
    times = pa.array(np.datetime64(BEGIN, "us") + np.cumsum(gaps).astype("timedelta64[us]"))
    table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", times)
    options = pyarrow.csv.WriteOptions(quoting_style="none", quoting_header="none")
    pyarrow.csv.write_csv(table, folder / "readings.csv", options)
    given = chain(rate=None, **settings)
    given["node"][0]["speed"] = 1.0
    return Nodes(folder, given)


def link_of(nodes: Nodes) -> Json:
    due = time.monotonic() + 120
    while (status := nodes.status(nodes.member("source"))) is None and time.monotonic() < due:
        time.sleep(0.1)
    assert status is not None, nodes.logs()
    found: Json = next(iter(status["outputs"].values()))
    return found


def link_at(nodes: Nodes, seconds: float) -> Json:
    """The link when so much of the readings' own time has been read, however busy the machine is."""
    due = time.monotonic() + 300
    while (found := link_of(nodes))["upto"] < BEGIN + seconds * 1e6:
        assert time.monotonic() < due, nodes.logs()
        time.sleep(0.05)
    return found


def test_the_overhead_stays_below_its_bound_when_the_load_doubles(tmp_path: Path) -> None:
    """Before, while the batch size that was right becomes too small, and after."""
    with doubling_load(tmp_path, batch="auto", max_overhead=0.3) as nodes:
        seen = [link_at(nodes, seconds) for seconds in (0.5, HALF, HALF + 2.0, HALF + 5.0)]
        main, backup = (np.array([each[key][0] for each in seen]) for key in ("main", "backup"))
        batches = np.array([each["batch"] for each in seen])
        rates = np.diff(main) / np.diff([each["upto"] for each in seen]) * 1e6
        print(batches, rates, backup / main, np.diff(backup) / np.diff(main))
        assert rates[-1] > 1.8 * rates[0]
        assert max(backup / main) <= 0.3, nodes.logs()
        # Within each stretch too, but for what was allowed and not spent before it: two batches at most.
        assert all(np.diff(backup) <= 0.3 * np.diff(main) + 2 * batches[:-1]), nodes.logs()
        assert batches[-1] > 1


@pytest.mark.soak
def test_recovery_stays_below_its_bound_when_the_load_doubles(tmp_path: Path) -> None:
    with doubling_load(tmp_path, batch="auto", max_recovery="200ms") as nodes:
        nodes.wait_for("out", "inputs_begun", 60)
        time.sleep(HALF + 3)
        assert link_of(nodes)["bound_kept"]
        nodes.signal(nodes.member("n/1"), signal.SIGKILL)
        recovery = nodes.wait_for("n", "recovery", 60)["measured"]["recovery"]
        print(recovery)
        assert recovery <= 0.2, nodes.logs()


def test_a_bound_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    make_chain(tmp_path, "filter", 2500)
    with Nodes(tmp_path, chain(batch="auto", max_recovery="1ms")) as nodes:
        nodes.finish("out")
        assert "cannot be kept" in nodes.logs()
