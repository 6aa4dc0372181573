"""Loops that come, close, open, change and go while data flows: the engine must agree with the oracle."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kasen.cql.bind.app import bind_text
from kasen.errors import QueryError
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from tests.oracle import sniffer
from tests.random_apps.live_loops import changing_loops
from tests.runtime.live.test_live import crash_and_go_on, files
from tests.runtime.live.test_live_random import check


@pytest.mark.parametrize("block", range(6))
def test_random_changes_of_loops_agree_with_the_oracle(block: int) -> None:
    made = sum(check(changing_loops(Random(seed))) for seed in range(block * 10, block * 10 + 10))
    assert made >= 4  # the engine refuses some, whose windows it would have to keep and cannot


@pytest.mark.soak
@pytest.mark.parametrize("block", range(1, 10))
def test_a_thousand_random_changes_of_loops_agree_with_the_oracle(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        check(changing_loops(Random(seed)))


@pytest.mark.parametrize("seed", range(20))
def test_after_a_crash_changed_loops_go_on(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    app = changing_loops(random)
    app.write(tmp_path)
    bound = bind_text(app.text, tmp_path, "", sniffer(tmp_path))
    try:
        plan = plan_app(bound)
        LocalRun(plan, Options(tmp_path, tmp_path / "right", batch=1)).run()
    except QueryError:
        pytest.skip("a change that the engine says it cannot make")
    right = files(tmp_path / "right")
    options = Options(tmp_path, tmp_path / "out", 1, tmp_path / "checkpoint", checkpoint_seconds=0)
    crash_and_go_on(plan, options, random.randrange(12))
    assert files(tmp_path / "out") == right, app.text
