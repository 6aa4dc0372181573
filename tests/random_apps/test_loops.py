"""Random recursive queries over random data: the loop machine must agree with the oracle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from kasen.cql.bind.app import bind_text
from kasen.errors import QueryError
from kasen.plan.lower.loops import why_called
from kasen.plan.physical import plan_app
from tests.random_apps.loops import random_loops
from tests.random_apps.test_apps import check


@pytest.mark.parametrize("block", range(10))
def test_100_random_recursive_apps_agree_with_the_oracle(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        check(random_loops(Random(seed)))


@pytest.mark.soak
@pytest.mark.parametrize("block", range(1, 10))
def test_1000_random_recursive_apps_agree_with_the_oracle(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        check(random_loops(Random(seed)))


def test_random_recursive_apps_meet_every_kind_of_step() -> None:
    """What the machine runs itself and what it calls both occur, and hardly any app is refused."""
    native, called, refused = Counter[str](), Counter[str](), 0
    for seed in range(100):
        try:
            app = bind_text(random_loops(Random(seed)).text, Path())
        except QueryError:
            refused += 1
            continue
        plan = plan_app(app)
        loops = [stage for stage in plan.stages() if len(stage) > 1]
        assert loops, seed
        for step in loops[0]:
            node = plan.steps[step].node
            why = why_called(node)
            (native if why is None else called)[type(node).__name__ if why is None else why] += 1
    assert refused < 5
    kinds = {"Filter", "Project", "WindowNode", "InnerJoin", "SemiJoin", "Pad", "SetOp", "Aggregate"}
    assert kinds | {"Distinct", "Streamify", "Delay"} <= set(native)
    assert {"RSTREAM", "WindowActivity", "CONCAT", "UPPER", "a semi join with a condition"} <= set(called)
    assert called.total() < native.total() / 4
