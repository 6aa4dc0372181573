"""EXPLAIN tells what runs: its steps are the operators that each engine and placement makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kasen.cql.bind.app import bind_file, bind_text
from kasen.cql.bound import App
from kasen.plan.explain.explain import explain, explain_in_driver, explain_on_executors
from kasen.plan.native.lower import lower
from kasen.plan.physical import plan_app
from kasen.plan.shard.fragments import cut_plan, plan_shards
from kasen.runtime.pipeline import RunningPipeline
from tests.cases_format import Case, all_cases
from tests.oracle import sniffer
from tests.paths import ROOT, TESTS
from tests.plan.explained import check_levels, check_steps

APPS = [*sorted((TESTS / "plans").glob("*.cql")), *sorted((ROOT / "examples").glob("*/*.cql"))]
CASES = [case for case in all_cases() if case.section("error") is None]


def check_text(text: str, source: str) -> None:
    """No numbers for columns, no names that lowering made up, no lengths of time in microseconds."""
    assert "#" not in text or "#" in source.replace("/*#", "")
    for made_up in (r"\bcolumn \d+\b", r"\bby \d+ columns\b", r"\b[ak_]\d+\b"):
        assert set(re.findall(made_up, text)) <= set(re.findall(made_up, source)), made_up
    own = set(re.findall(r"\d{6,}", source))
    assert set(re.findall(r"\d{6,}", text)) <= own, "a length of time in microseconds"
    assert all(line == line.rstrip() for line in text.splitlines())


def check_app(app: App, source: str) -> None:
    local = explain(app)
    check_text(local, source)
    check_steps(local.splitlines(), RunningPipeline(plan_app(app)).graph)
    for panes in (False, True):
        text = explain_in_driver(app, panes=panes)
        check_text(text, source)
        check_steps(text.splitlines(), RunningPipeline(lower(plan_app(app), partials=panes).plan).graph)
    text = explain_on_executors(app)
    check_text(text, source)
    check_levels(text, cut_plan(lower(plan_shards(app), partials=False).plan))


@pytest.mark.parametrize("path", APPS, ids=[path.stem for path in APPS])
def test_golden_apps_and_examples_run_the_steps_that_explain_prints(path: Path) -> None:
    check_app(bind_file(path, sniffer(path.parent)), path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_case_runs_the_steps_that_explain_prints(case: Case, tmp_path: Path) -> None:
    case.write_inputs(tmp_path)
    check_app(bind_text(case.text, tmp_path, case.path.name, sniffer(tmp_path)), case.text)
