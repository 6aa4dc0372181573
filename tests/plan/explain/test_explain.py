"""EXPLAIN against golden files: tests/plans/<name>.cql and the plan it must give.

`pytest tests/plan --regenerate` writes the plans anew; the difference is then to be read, not trusted.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kasen.cql.bind.app import bind_file
from kasen.cql.bound import App
from kasen.plan.explain.explain import explain, explain_in_driver, explain_on_executors
from tests.paths import TESTS

PLANS = TESTS / "plans"
APPS = sorted(PLANS.glob("*.cql"))


def in_driver_of_a_cluster(app: App) -> str:
    return explain_in_driver(app, panes=True)


#: The engines and placements, by how the names of their golden files end.
WAYS: dict[str, Callable[[App], str]] = {
    ".plan": explain,
    ".driver.plan": in_driver_of_a_cluster,
    ".executors.plan": explain_on_executors,
}
#: Beside the local engine's, of every app: what Spark does itself, and what shards do.
IN_DRIVER = ("inputs", "join_on_computed_key", "native", "native_panes", "panes")
ON_EXECUTORS = (
    "istream_of_joins",
    "join_of_three_is_transitive",
    "join_of_three_without_common_key",
    "loop_cut_at_a_delay",
    "loop_sharded_by_its_key",
    "native",
    "queries_read_queries",
    "rstream",
    "scalar_sub_query",
    "shards",
    "shards_of_partitions",
)
GOLDEN = [
    *(f"{app.stem}.plan" for app in APPS),
    *(f"{name}.driver.plan" for name in IN_DRIVER),
    *(f"{name}.executors.plan" for name in ON_EXECUTORS),
]


@pytest.mark.parametrize("name", GOLDEN)
def test_an_app_is_explained_as_its_golden_file_says(name: str, request: pytest.FixtureRequest) -> None:
    stem, dot, ending = name.partition(".")
    found = WAYS[dot + ending](bind_file(PLANS / f"{stem}.cql"))
    golden = PLANS / name
    if request.config.getoption("--regenerate"):
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")


def test_every_golden_file_is_looked_at() -> None:
    assert sorted(plan.name for plan in PLANS.glob("*.plan")) == sorted(GOLDEN)
