"""Whatever happens to nodes and links, what leaves the chain is what leaves an undisturbed one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.ha.chains import expected, written
from tests.ha.takeover.chaos import Chaos, Round

SHORT, LONG = 12, 200


def play(seed: int, folder: Path, rows: int, rate: int) -> None:
    round_ = Round.drawn(seed)
    print(round_)
    chaos = Chaos(folder, round_, rows, rate)
    try:
        with chaos.nodes as nodes:
            nodes.wait_for("out", "inputs_begun")
            time.sleep(round_.after)
            chaos.strike()
            nodes.finish("out")
            assert written(folder) == expected(folder), f"{round_}\n{nodes.logs()}"
    finally:
        chaos.relay.close()


@pytest.mark.parametrize("seed", range(SHORT))
def test_a_dozen_rounds_of_chaos(seed: int, tmp_path: Path) -> None:
    play(seed, tmp_path, rows=2500, rate=1000)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SHORT, LONG))
def test_two_hundred_rounds_of_chaos(seed: int, tmp_path: Path) -> None:
    play(seed, tmp_path, rows=4000, rate=1000)
