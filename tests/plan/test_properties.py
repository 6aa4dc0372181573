"""What holds for the plan of every app: the golden ones, the cases, and random ones.

Each rule keeps the schema, leaves every node fitting its inputs, and does not change what the plan means
at an instant. Random apps print their seed; `make soak` runs many more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from kasen.cql.bind.app import bind_file, bind_text
from kasen.cql.bound import App
from kasen.plan.build import build
from kasen.plan.explain.explain import explain
from kasen.plan.logical import Node, Streamify, WindowActivity, walk
from kasen.plan.rules.fuse_windows import fuse_windows
from kasen.plan.rules.push_filters import push_filters
from kasen.plan.rules.rewrite import ABOUT, RULES, merge_projections, rewrite
from tests.cases_format import Case, all_cases
from tests.oracle import run_app, sniffer
from tests.oracle.bridges import connect
from tests.oracle.values import Key, order_key
from tests.paths import TESTS
from tests.plan.meaning import Tables, arrivals, bag, load
from tests.plan.random_apps import Apps, random_tables
from tests.plan.wellformed import check

PLANS = TESTS / "plans"
GOLDEN = sorted(PLANS.glob("*.cql"))
#: These leave nothing to do for a second go. join_keys may find more where it put a filter on a join below;
#: prune_columns takes a source that it has narrowed for a derived stream.
AT_ONCE = (push_filters, merge_projections, fuse_windows)
CASES = [case for case in all_cases() if case.section("error") is None]


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect() as connection:
        yield connection


def check_rules(duck: duckdb.DuckDBPyConnection, app: App, tables: Tables) -> dict[str, Counter[Key]]:
    """Applies rule after rule; returns what each query means, before the first one and after the last."""
    now = last_time(app, tables)
    before = build(app)
    for plan in before.values():
        check(plan)
        load(duck, plan, tables)
    meant = {name: bag(duck, plan, before, now) for name, plan in before.items()}
    fired = [arrivals(duck, leaf.child, before, now) for leaf in leaves(before)]
    current = before
    for rule in RULES:
        for plan in current.values():
            if rule in ABOUT and ABOUT[rule].isdisjoint(map(type, walk(plan))):
                assert rule(plan) == plan, f"{rule.__name__} is about more than it says"
        current = {name: rule(plan) for name, plan in current.items()}
        for name, plan in current.items():
            assert plan.schema == before[name].schema, rule.__name__
            check(plan)
            assert bag(duck, plan, current, now) == meant[name], f"{rule.__name__} changes {name}"
            if rule in AT_ONCE:
                assert rule(plan) == plan, f"{rule.__name__} goes on changing {name}"
        found = [arrivals(duck, leaf.child, current, now) for leaf in leaves(current)]
        assert found == fired, f"{rule.__name__} changes when RSTREAM fires"
    return meant


def leaves(plans: dict[str, Node]) -> list[WindowActivity]:
    """The windows at which RSTREAMs fire."""
    nodes = (node for plan in plans.values() for node in walk(plan) if isinstance(node, Streamify))
    found = [leaf for node in nodes for leaf in node.leaves if isinstance(leaf, WindowActivity)]
    return [leaf for leaf in found if leaf.window is not None]


def last_time(app: App, tables: Tables) -> int:
    return max(ts for one in app.inputs if not one.is_relation for ts, _ in tables[one.name])


def final_bags(app: App, tables: Tables) -> dict[str, Counter[Key]]:
    """What the oracle says that each relation holds at the last time's first instant."""
    given = {
        one.name: [dict(zip(one.schema.names, row, strict=True)) for _, row in tables[one.name]]
        for one in app.inputs
    }
    result = run_app(app, given=given)
    end = (last_time(app, tables), 0, 0)
    bags: dict[str, Counter[Key]] = {}
    for query in app.queries:
        counts: Counter[Key] = Counter()
        for ts, seq, tick, diff, *row in result.queries[query.name]:
            assert isinstance(diff, int)
            if (ts, seq, tick) <= end:
                counts[order_key(row)] += diff
        bags[query.name] = +counts
    return bags


def check_random(seed: int, duck: duckdb.DuckDBPyConnection) -> None:
    rng = random.Random(seed)
    apps = Apps(rng)
    text = apps.app()
    print(f"seed {seed}\n{text}")
    app = bind_text(text)
    tables = random_tables(rng, app)
    meant = check_rules(duck, app, tables)
    if apps.derived:
        return  # the plan's meaning takes derived streams as if they came all at once
    bags = final_bags(app, tables)
    for query in app.queries:
        if not query.is_stream:
            assert meant[query.name] == bags[query.name], f"the plan of {query.name} is not the query"


@pytest.mark.parametrize("seed", range(30))
def test_rules_keep_the_meaning_of_random_apps(seed: int, duck: duckdb.DuckDBPyConnection) -> None:
    check_random(seed, duck)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(20))
def test_rules_keep_the_meaning_of_very_many_apps(hundred: int, duck: duckdb.DuckDBPyConnection) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        check_random(seed, duck)


@pytest.mark.parametrize("path", GOLDEN, ids=[path.stem for path in GOLDEN])
def test_rules_keep_the_meaning_of_the_golden_apps(path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    app = bind_file(path)
    if app.loops:
        pytest.skip("a loop has no meaning at one instant")
    for seed in range(2):
        check_rules(duck, app, random_tables(random.Random(seed), app))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_case_has_plans_that_fit_together_and_are_explained(case: Case, tmp_path: Path) -> None:
    case.write_inputs(tmp_path)
    app = bind_text(case.text, tmp_path, case.path.name, sniffer(tmp_path))
    for name, plan in build(app).items():
        check(plan)
        rewritten = rewrite(plan)
        check(rewritten)
        assert rewritten.schema == plan.schema, name
    text = explain(app)
    assert all(f"query {query.name}: " in text for query in app.queries)
