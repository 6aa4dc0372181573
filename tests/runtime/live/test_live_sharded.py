"""Random queries that come, change and go on shards, which must agree with the oracle."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kasen.cql.bind.app import bind_text
from kasen.cql.bound import Register
from kasen.errors import QueryError
from kasen.plan.physical import plan_app
from kasen.plan.shard.fragments import cut
from kasen.runtime.live.remote_queries import RemoteQueries
from kasen.runtime.shard.clock import Clock
from kasen.types import BIGINT
from tests.engines import forgetful, on_shards
from tests.oracle import run_app, sniffer
from tests.random_apps.apps import RandomApp
from tests.runtime.live.test_live_random import changing_app, compare_all

ENGINES = {
    "1 shard": on_shards(1 << 16, 1),
    "3 shards, batch 1": on_shards(1, 3),
    "3 shards, batch 1, forgetful": forgetful(on_shards(1, 3)),
    "3 shards, batch 3, restarted": on_shards(3, 3, restart=True),
}


def accepted(app: RandomApp) -> RandomApp:
    """The app without the changes that shards refuse."""
    kept: list[str] = []
    lines = app.text.split("\n")
    for line in sorted(lines, key=lambda line: line.startswith("AT ")):
        if line.startswith("AT "):
            try:
                plan = plan_app(bind_text("\n".join([*kept, line]), sniff=lambda *_: BIGINT))
                RemoteQueries(cut(plan.app), Clock(plan))
            except QueryError:
                continue
        kept.append(line)
    return RandomApp("\n".join(kept), app.files)


def check(app: RandomApp) -> list[str]:
    """The app on the oracle and on shards; what its changes were."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app.write(folder)
        try:
            bound = bind_text(app.text, folder, "", sniffer(folder))
        except QueryError:
            return []  # CQL takes not even the queries of the beginning
        expected = run_app(bound, folder)
        for label, engine in ENGINES.items():
            compare_all(app, bound, expected, label, engine(bound, folder))
    actions = [one for change in bound.changes for one in change.actions]
    return [
        "drop" if not isinstance(one, Register) else "replace" if one.replaces else "register"
        for one in actions
    ]


@pytest.mark.parametrize("seed", range(25))
def test_random_changes_on_shards_agree_with_the_oracle(seed: int) -> None:
    check(accepted(changing_app(Random(seed))))


def test_many_random_changes_are_made_on_shards() -> None:
    made = [each for seed in range(1000, 1012) for each in check(accepted(changing_app(Random(seed))))]
    assert made.count("register") >= 8, made
    assert made.count("replace") >= 3, made


@pytest.mark.soak
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**60))
def test_any_random_changes_on_shards_agree_with_the_oracle(seed: int) -> None:
    check(accepted(changing_app(Random(seed))))
