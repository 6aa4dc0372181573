"""The example apps: they bind, answer as the oracle does, and their generators are deterministic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kasen.cli import load
from kasen.cql.bind.app import bind_text
from kasen.errors import QueryError
from tests.cases_format import shown
from tests.engines import local
from tests.oracle import run_app
from tests.paths import EXAMPLES

NAMES = ("dos", "auction", "trading", "sensors")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_answers_as_the_oracle_does(name: str) -> None:
    app = load(EXAMPLES / name / f"{name}.cql")
    expected = run_app(app, EXAMPLES / name)
    found = local(50)(app, EXAMPLES / name)
    for query in app.queries:
        right = shown(expected.queries[query.name], query.schema, app.time)
        assert len(right) > 0, query.name
        assert shown(found.queries[query.name], query.schema, app.time) == right, query.name


@pytest.mark.parametrize("name", NAMES)
def test_a_generator_gives_the_same_files_for_the_same_seed(name: str, tmp_path: Path) -> None:
    written = []
    for out in (tmp_path / "one", tmp_path / "other"):
        script = str(EXAMPLES / name / "generate.py")
        command = [sys.executable, script, "--rows", "500", "--seed", "3", "--out", str(out)]
        subprocess.run(command, check=True, capture_output=True)
        written.append({file.name: file.read_bytes() for file in out.iterdir()})
    assert written[0] == written[1]
    assert all(len(content) > 100 for content in written[0].values())


def test_trading_without_its_delay_names_both_loops() -> None:
    text = (EXAMPLES / "trading" / "trading.cql").read_text()
    assert text.count("<Now>") >= 1
    with pytest.raises(QueryError) as caught:
        bind_text(text.replace(")<Now>", ")"))
    message = str(caught.value)
    assert "resource → buy_event → resource_stream → resource" in message
    assert "resource → resource_stream → resource" in message
