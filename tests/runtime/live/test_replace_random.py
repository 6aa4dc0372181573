"""Random texts that replace one another: the engine keeps the windows that the oracle keeps, or refuses."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kasen.cql.bind.app import bind_text
from kasen.cql.bound import App
from kasen.errors import QueryError
from tests.cases_format import shown
from tests.engines import Engine, local, on_shards
from tests.oracle import Result, run_app, sniffer
from tests.random_apps.apps import RandomApp
from tests.random_apps.replacements import replaced_app

ENGINES: dict[str, Engine] = {
    "batch all": local(1 << 16),
    "batch 1": local(1),
    "batch 3, restarted": local(3, restart=True),
}
SHARDS: dict[str, Engine] = {
    "2 shards": on_shards(3, 2),
    "3 shards, restarted": on_shards(1, 3, restart=True),
}

#: What became of an app: CQL refuses it, the engine does, or all agree.
WRONG, REFUSED, AGREED = "wrong", "refused", "agreed"


def outcome(engine: Engine, bound: App, folder: Path) -> Result | str:
    """The answers, or why a change is refused."""
    try:
        return engine(bound, folder)
    except QueryError as error:
        return str(error)


def compare(app: RandomApp, bound: App, expected: Result, label: str, result: Result) -> None:
    """All rows, each shown by the columns that its query had then."""
    for name, right in expected.queries.items():
        texts = [(-(2**62), one) for one in bound.queries if one.name == name]
        for change in bound.changes:
            texts += [(change.at or 0, one.query) for one in change.actions if one.query.name == name]  # type: ignore[union-attr]
        for (since, query), (until, _) in zip(texts, [*texts[1:], (2**62, None)], strict=True):
            spans = [
                [row for row in rows if since <= int(str(row[0])) < until]
                for rows in (result.queries[name], right)
            ]
            got, wanted = (shown(rows, query.schema, bound.time) for rows in spans)
            assert got == wanted, f"{label}, {name} from {since} on of\n{app.text}\n{app.files}"


def check(app: RandomApp, engines: dict[str, Engine], shards: dict[str, Engine]) -> str:
    """The app on the oracle and on the engines. If one refuses it, all do, for the same reason."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app.write(folder)
        try:
            bound = bind_text(app.text, folder, "", sniffer(folder))
        except QueryError:
            return WRONG
        found = {label: outcome(engine, bound, folder) for label, engine in engines.items()}
        reasons = {one for one in found.values() if isinstance(one, str)}
        if reasons:
            assert set(found.values()) == reasons, f"{found} of\n{app.text}\n{app.files}"
            assert len(reasons) == 1, app.text
        for label, engine in shards.items():
            on_shards = outcome(engine, bound, folder)
            if not isinstance(on_shards, str):
                found[label] = on_shards
                assert not reasons, f"{label} does not refuse {reasons} of\n{app.text}"
            elif on_shards not in reasons:
                assert "on executors" in on_shards or "kept nowhere" in on_shards, (
                    f"{on_shards} of\n{app.text}"
                )
        if reasons:
            return REFUSED
        expected = run_app(bound, folder)
        for label, result in found.items():
            assert isinstance(result, Result)
            compare(app, bound, expected, label, result)
    return AGREED


@pytest.mark.parametrize("seed", range(60))
def test_random_replacements_agree_with_the_oracle(seed: int) -> None:
    check(replaced_app(Random(seed)), ENGINES, SHARDS if seed % 3 == 0 else {})


def test_most_random_replacements_are_made() -> None:
    found = [check(replaced_app(Random(seed)), {"batch all": ENGINES["batch all"]}, {}) for seed in range(40)]
    assert found.count(AGREED) >= 15
    assert found.count(REFUSED) >= 3


@pytest.mark.soak
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**60))
def test_any_random_replacements_agree_with_the_oracle(seed: int) -> None:
    check(replaced_app(Random(seed)), ENGINES, SHARDS)
