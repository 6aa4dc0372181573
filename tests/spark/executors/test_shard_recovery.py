"""Shards whose workers forget, whose hosts lose copies, and whose attempts are abandoned: nothing shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from kasen.cli import load
from kasen.cql.bind.app import bind_text
from kasen.cql.bound import App
from kasen.errors import QueryError
from kasen.plan.physical import Plan
from kasen.spark.state import epochs
from tests.cases_format import shown
from tests.engines import local
from tests.oracle import sniffer
from tests.random_apps.apps import RandomApp, random_app
from tests.random_apps.keyed_loops import keyed_loops
from tests.runtime.live.test_live_random import changing_app
from tests.runtime.live.test_live_sharded import accepted
from tests.spark import chaos
from tests.spark.state.durable import DurablePipeline


def changing(random: Random) -> RandomApp:
    """Queries that come and go while shards are restored."""
    return accepted(changing_app(random))


def check(app: App, folder: Path, seed: int, batch: int) -> set[str]:
    """The same answers as the local engine's; returns how shards got their state."""
    right = local(batch)(app, folder)
    made: list[DurablePipeline] = []

    def durable(plan: Plan) -> DurablePipeline:
        made.append(DurablePipeline(plan, 2, folder / "state", seed))
        return made[-1]

    with (
        patch("kasen.runtime.local.RunningPipeline", durable),
        patch.object(epochs, "LEAST", 3000),
    ):
        found = local(batch)(app, folder)
    made[0].close()
    for query in app.all_queries:
        types = {each.schema.types for each in app.all_queries if each.name == query.name}
        if len(types) > 1:  # replaced by one with other columns
            assert repr(found.queries[query.name]) == repr(right.queries[query.name]), f"seed {seed}"
            continue
        one, other = (shown(each.queries[query.name], query.schema, app.time) for each in (found, right))
        assert one == other, f"seed {seed}, {query.name}"
    return made[0].hows


def test_shards_find_their_state_in_every_way_and_answer_the_same(tmp_path: Path) -> None:
    app = load(chaos.write_app(tmp_path, files=6))
    hows = check(app, tmp_path, seed=5, batch=60)
    assert hows == {"fresh", "warm", "taken over", "restored"}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("draw", [random_app, keyed_loops, changing])
def test_random_apps_on_shards_that_are_restored(
    draw: Callable[[Random], RandomApp], seed: int, tmp_path: Path
) -> None:
    app = draw(Random(seed))
    app.write(tmp_path)
    try:
        bound = bind_text(app.text, tmp_path, "", sniffer(tmp_path))
    except QueryError:
        return
    check(bound, tmp_path, seed, batch=3)
