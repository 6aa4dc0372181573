"""Random queries that come, change and go at random instants: the engine must agree with the oracle."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kasen.cql.bind.app import bind_text
from kasen.cql.bound import App
from kasen.errors import QueryError
from kasen.types import BIGINT
from tests.cases_format import shown
from tests.engines import Engine, forgetful, local
from tests.oracle import Result, run_app, sniffer
from tests.random_apps.apps import TIMES, Maker, RandomApp

ENGINES: dict[str, Engine] = {
    "batch all": local(1 << 16),
    "batch 1": local(1),
    "batch 1, forgetful": forgetful(local(1)),
    "batch 3, restarted": local(3, restart=True),
}


def changing_app(random: Random) -> RandomApp:
    """An app whose first queries are there from the beginning, and others come, change and go."""
    maker = Maker(random)
    app = maker.app()
    for _ in range(random.randrange(4)):
        maker._query()
    statements = [re.sub(" TIMESTAMP BY ts", " TIMESTAMP BY ts RETAIN 4", one) for one in maker.statements]
    statements = [one.replace(" RETAIN 4", "") if "RELATION" in one else one for one in statements]
    inputs = [one for one in statements if not one.startswith("REGISTER QUERY")]
    queries = [one for one in statements if one.startswith("REGISTER QUERY")]
    first = random.randrange(len(queries) + 1)
    lines = [*inputs, *queries[:first]]
    times = sorted(random.randrange(-1, TIMES + 1) for _ in queries[first:])
    there = [_name(one) for one in queries[:first]]
    for at, query in zip(times, queries[first:], strict=True):
        if random.random() < 0.2:
            query = re.sub(r"(REGISTER QUERY \w+)", r"\1 BACKFILL", query)
        lines.append(f"AT {at} {query}")
        there.append(_name(query))
        if random.random() < 0.3:
            lines.append(f"AT {random.randrange(at, TIMES + 1)} DROP QUERY {random.choice(there)} CASCADE;")
        if random.random() < 0.6:
            lines.append(f"AT {random.randrange(at, TIMES + 1)} {_replacement(random, there, queries)}")
    return RandomApp("\n".join(_accepted(lines)), app.files)


def _accepted(lines: list[str]) -> list[str]:
    """The lines without the changes that CQL refuses at their place."""
    kept = [line for line in lines if not line.startswith("AT ")]
    for line in lines:
        if line.startswith("AT "):
            try:
                bind_text("\n".join([*kept, line]), sniff=lambda *_: BIGINT)
            except QueryError:
                continue
            kept.append(line)
    return kept


def _name(query: str) -> str:
    found = re.match(r"REGISTER QUERY (\w+)", query)
    assert found is not None
    return found.group(1)


def _replacement(random: Random, there: list[str], queries: list[str]) -> str:
    """Another text for a query: another's, its own with another constant or head, or its own."""
    name = random.choice(there)
    query = random.choice(queries)
    if random.random() < 0.7:
        (query,) = [one for one in queries if _name(one) == name][:1] or [query]
    query = re.sub(r"REGISTER QUERY \w+( BACKFILL)? AS", f"REPLACE QUERY {name} AS", query)
    match random.randrange(4):
        case 0:
            query = re.sub(r"\b[0-3]\b", lambda _: str(random.randrange(4)), query, count=1)
        case 1:
            query = query.replace("ISTREAM", "DSTREAM", 1)
        case 2:
            query = re.sub(r" WHERE .*?(?= GROUP BY|\)|;| UNION| EXCEPT| INTERSECT)", "", query, count=1)
    return query


def compare_all(app: RandomApp, bound: App, expected: Result, label: str, result: Result) -> None:
    """All queries but those that changed the types of their columns; AssertionError if one differs."""
    for query in bound.all_queries:
        texts = [one for one in bound.all_queries if one.name == query.name]
        if any(one.schema.types != query.schema.types for one in texts):
            continue
        right = shown(expected.queries[query.name], query.schema, bound.time)
        got = shown(result.queries[query.name], query.schema, bound.time)
        assert got == right, f"{label}, {query.name} of\n{app.text}\n{app.files}"


def check(app: RandomApp) -> bool:
    """The app on the oracle and on every engine; whether it was one that CQL takes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app.write(folder)
        try:
            bound = bind_text(app.text, folder, "", sniffer(folder))
            if not bound.changes:
                return False
            found = {label: engine(bound, folder) for label, engine in ENGINES.items()}
        except QueryError:
            return False  # a change that CQL refuses, or that the engine says it cannot make
        expected = run_app(bound, folder)
        for label, result in found.items():
            compare_all(app, bound, expected, label, result)
    return True


@pytest.mark.parametrize("seed", range(40))
def test_random_changes_of_queries_agree_with_the_oracle(seed: int) -> None:
    check(changing_app(Random(seed)))


def test_most_random_changes_are_made() -> None:
    made = sum(check(changing_app(Random(seed))) for seed in range(1000, 1020))
    assert made >= 12


@pytest.mark.soak
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**60))
def test_any_random_changes_of_queries_agree_with_the_oracle(seed: int) -> None:
    check(changing_app(Random(seed)))
