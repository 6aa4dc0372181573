"""EXPLAIN against golden files: tests/plans/<name>.cql and the plan it must give.

`pytest tests/plan --regenerate` writes the plans anew; the difference is then to be read, not trusted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kasen.cql.bind.app import bind_file
from kasen.plan.explain.explain import explain
from tests.paths import TESTS

PLANS = TESTS / "plans"
APPS = sorted(PLANS.glob("*.cql"))


@pytest.mark.parametrize("app", APPS, ids=[app.stem for app in APPS])
def test_an_app_is_explained_as_its_golden_file_says(app: Path, request: pytest.FixtureRequest) -> None:
    found = explain(bind_file(app))
    golden = app.with_suffix(".plan")
    if request.config.getoption("--regenerate"):
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")


def test_every_golden_file_has_its_app() -> None:
    assert [plan.stem for plan in sorted(PLANS.glob("*.plan"))] == [app.stem for app in APPS]


def test_no_line_of_a_plan_ends_in_blanks() -> None:
    for app in APPS:
        for line in explain(bind_file(app)).splitlines():
            assert line == line.rstrip(), app.stem
