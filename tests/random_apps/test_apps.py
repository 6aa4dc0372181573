"""Random queries over random data: the engine must agree with the oracle, however it cuts and restarts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kasen.cql.bind.app import bind_text
from kasen.errors import QueryError
from tests.cases_format import shown
from tests.engines import Engine, forgetful, local, networked, on_two_cores, sharded
from tests.oracle import run_app, sniffer
from tests.random_apps.apps import RandomApp, random_app

ENGINES: dict[str, Engine] = {
    "batch all": networked(local(1 << 16)),
    "batch all, two cores": on_two_cores(networked(local(1 << 16))),
    "batch 1": local(1),
    "batch 3, restarted": local(3, restart=True),
    "batch 1, forgetful": forgetful(local(1)),
    "3 shards": sharded(3, 3),
    "3 shards, forgetful": forgetful(sharded(1, 3)),
    "2 shards, restarted": sharded(1, 2, restart=True),
}


def check(app: RandomApp) -> None:
    """The app on the oracle and on every engine; AssertionError with the app's text if they differ."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app.write(folder)
        try:
            bound = bind_text(app.text, folder, "", sniffer(folder))
        except QueryError:
            return  # the generator sometimes writes what CQL refuses; the front end's tests look at that
        expected = run_app(bound, folder)
        for label, engine in ENGINES.items():
            found = engine(bound, folder)
            for query in bound.queries:
                right = shown(expected.queries[query.name], query.schema, bound.time)
                got = shown(found.queries[query.name], query.schema, bound.time)
                assert got == right, f"{label}, {query.name} of\n{app.text}\n{app.files}"
            letters = sorted((one.stream, one.line) for one in found.dead_letters)
            assert letters == sorted((one.stream, one.line) for one in expected.dead_letters), app.text


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(st.integers(0, 2**32))
def test_200_random_apps_agree_with_the_oracle(seed: int) -> None:
    check(random_app(Random(seed)))


@pytest.mark.soak
@pytest.mark.parametrize("block", range(20))
def test_2000_random_apps_agree_with_the_oracle(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        check(random_app(Random(seed)))
