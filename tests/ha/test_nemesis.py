"""Whatever the nemesis does: the output is right, each node has one primary, and all processes end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.ha.chains import OPERATORS, WITH_HISTORY, chain, expected, make_chain, written
from tests.ha.nemesis import Nemesis

_RATE = 500
#: Between two rounds the cluster works undisturbed for so long.
_PEACE_SECONDS = 0.5


def play(folder: Path, operator: str, seed: int, rounds: int, batch: int | str = 20) -> None:
    make_chain(folder, operator, rows=rounds * 6 * _RATE, rate=_RATE)
    right = expected(folder)
    nemesis = Nemesis(folder, chain(rate=_RATE, batch=batch, snapshot_interval="200ms"), seed)
    try:
        with nemesis.nodes as nodes:
            nodes.wait_for("out", "inputs_begun")
            for _ in range(rounds):
                nemesis.wait_until_redundant()
                if nemesis.is_over:
                    break
                nemesis.round()
                nemesis.settle()
                assert right.startswith(written(folder)), f"{nemesis.tally}\n{nodes.logs()}"
                time.sleep(_PEACE_SECONDS)
            for node in nodes.names():
                nodes.finish(node, 120)
            assert written(folder) == right, f"{nemesis.tally}\n{nodes.logs()}"
            assert nemesis.tally.rounds > rounds // 2
    finally:
        nemesis.relay.close()
    print(f"{operator}, seed {seed}: {nemesis.tally}")


def test_a_nemesis_changes_no_answer(tmp_path: Path) -> None:
    """Of the nodes, n cannot be rebuilt from its input, and d can."""
    play(tmp_path, "total", seed=1, rounds=5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_a_nemesis_changes_no_answer_in_five_hundred_rounds(seed: int, tmp_path: Path) -> None:
    operators = [*WITH_HISTORY, *OPERATORS]
    batch: int | str = (1, 20, 500, "infinite")[seed % 4]
    play(tmp_path, operators[seed % len(operators)], seed=100 + seed, rounds=25, batch=batch)
