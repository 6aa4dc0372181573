"""Whatever the nemesis does: the output is right, each node has one primary, and all processes end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.ha.chains import OPERATORS, WITH_HISTORY, chain, expected, make_chain, written
from tests.ha.takeover.nemesis import Nemesis

_RATE = 500
#: Between two rounds the cluster works undisturbed for so long.
_PEACE_SECONDS = 0.5


def play(
    folder: Path, operator: str, seed: int, rounds: int, batch: int | str = 20, engine: str = "local"
) -> None:
    """A Spark application takes seconds where a local node takes a fraction of one."""
    patience = 1.0 if engine == "local" else 12.0
    make_chain(folder, operator, rows=int(rounds * 6 * patience * _RATE), rate=_RATE)
    right = expected(folder)
    given = chain(rate=_RATE, batch=batch, snapshot_interval="200ms")
    given["node"][1]["engine"] = engine
    nemesis = Nemesis(folder, given, seed, patience=patience)
    try:
        with nemesis.nodes as nodes:
            nodes.wait_for("out", "inputs_begun", 60 * patience)
            for _ in range(rounds):
                nemesis.wait_until_redundant()
                if nemesis.is_over:
                    break
                nemesis.round()
                nemesis.settle()
                assert right.startswith(written(folder)), f"{nemesis.tally}\n{nodes.logs()}"
                time.sleep(_PEACE_SECONDS)
            for node in nodes.names():
                nodes.finish(node, 300 * patience)
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


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("operator", ["aggregation", "total"])
def test_a_nemesis_changes_no_answer_of_spark_nodes(operator: str, tmp_path: Path) -> None:
    play(tmp_path, operator, seed=7, rounds=4, batch=50, engine="spark")
