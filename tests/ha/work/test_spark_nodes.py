"""A node may be a Spark application; a standby application takes over from it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.ha.chains import chain, expected, make_chain, written
from tests.ha.nodes import Nodes


@pytest.mark.soak
@pytest.mark.spark
def test_a_standby_spark_application_takes_over(tmp_path: Path) -> None:
    make_chain(tmp_path, "aggregation", 45_000)
    given = chain(copies=1, rate=500, batch=50)
    given["node"][1] |= {"copies": 2, "engine": "spark"}
    with Nodes(tmp_path, given) as nodes:
        nodes.wait_for("out", "inputs_begun", 300)
        time.sleep(2)
        # While Spark starts, a busy machine may have made the other copy lead.
        leader = nodes.leader("n")
        assert leader is not None, nodes.logs()
        other = next(each for each in nodes.find("n") if each != leader)
        nodes.signal(leader, signal.SIGKILL)
        status = nodes.wait_for(other.name, "recovery", 120)
        print(status["measured"])
        nodes.finish("out", 240)
    assert written(tmp_path) == expected(tmp_path), nodes.logs()
