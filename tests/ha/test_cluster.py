"""`kasen cluster` from end to end: up, status, kill, heal, down."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kasen.errors import DataError
from kasen.ha.cluster import members_of, read_cluster
from tests.paths import EXAMPLES

SENSORS = EXAMPLES / "sensors"


def kasen(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kasen", *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
def test_the_example_survives_the_loss_of_its_middle(tmp_path: Path) -> None:
    shutil.copytree(SENSORS, tmp_path / "sensors", ignore=shutil.ignore_patterns("out"))
    file = str(tmp_path / "sensors" / "cluster.toml")
    try:
        assert "4 processes started" in kasen("cluster", "up", file)
        due = time.monotonic() + 60
        while "primary" not in kasen("cluster", "status", file) and time.monotonic() < due:
            time.sleep(0.2)
        time.sleep(3)
        assert "killed mean/1" in kasen("cluster", "kill", file, "mean")
        assert "started mean/1" in kasen("cluster", "heal", file, "mean")
        kasen("cluster", "up", file, "--wait")
        means = (tmp_path / "sensors" / "out" / "means" / "means.csv").read_text()
        assert means.count("\n") == 1 + 4 * 40
    finally:
        kasen("cluster", "down", file)


def test_every_copy_knows_its_peer_and_its_neighbours(tmp_path: Path) -> None:
    shutil.copy(SENSORS / "cluster.toml", tmp_path)
    members = {member.name: member.config for member in read_cluster(tmp_path / "cluster.toml")}
    assert list(members) == ["source/1", "mean/1", "mean/2", "out/1"]
    assert (members["mean/1"].role, members["mean/2"].role) == ("primary", "secondary")
    assert members["mean/1"].peer == members["mean/2"].listen
    assert members["source/1"].outputs[0].copies == (members["mean/1"].listen, members["mean/2"].listen)
    assert members["out/1"].inputs[0].node == "mean"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"nodes": []}, "no setting 'nodes'"),
        ({"node": []}, "needs"),
        ({"node": [{"name": "a", "sink": "x"}, {"name": "a", "sink": "y"}]}, "name of its own"),
        ({"node": [{"name": "a", "sink": "x", "copies": 3}]}, "1 or 2"),
        ({"node": [{"name": "a", "sink": "x", "inputs": {"s": "b.q"}}]}, "not node.query"),
    ],
)
def test_a_wrong_cluster_is_told(given: dict[str, object], why: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=why):
        members_of(given, tmp_path)
