"""The trading desk: cash and holdings are never negative, and its loop is what keeps them so."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.csv
import pytest

from kasen.cli import load
from kasen.plan.lower.loops import why_called
from kasen.plan.physical import plan_app
from kasen.runtime.local import LocalRun, Options
from tests.cases_format import shown
from tests.engines import local
from tests.oracle import run_app
from tests.paths import EXAMPLES

TRADING = EXAMPLES / "trading"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TRADING / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module


def make_desk(folder: Path, rows: int, stocks: int, cash: int, seed: int = 7) -> None:
    """The desk beside fresh quotes."""
    (folder / "desk").mkdir()
    shutil.copy(TRADING / "desk.cql", folder)
    options = pa.csv.WriteOptions(quoting_style="none", quoting_header="none")
    for name, table in script("generate_desk").generate(rows, seed, stocks, cash).items():
        pa.csv.write_csv(table, folder / "desk" / f"{name}.csv", options)


def desk(folder: Path, rows: int, stocks: int, cash: int) -> dict[str, pa.Table]:
    """Runs the desk on fresh quotes; its answers by query."""
    make_desk(folder, rows, stocks, cash)
    LocalRun(plan_app(load(folder / "desk.cql")), Options(folder, folder / "out")).run()
    names = ("trade", "cash_stream", "position_stream")
    return {name: pa.csv.read_csv(folder / "out" / f"{name}.csv") for name in names}


def check_books(answers: dict[str, pa.Table], cash: int) -> int:
    """Every trade is booked, and nothing is ever owed; returns how many trades there were."""
    trades, amounts, positions = answers["trade"], answers["cash_stream"], answers["position_stream"]
    assert min(amounts["amount"].to_pylist()) >= 0
    assert min(positions["held"].to_pylist()) >= 0
    spent = [
        num * price for num, price in zip(*(trades[c].to_pylist() for c in ("num", "price")), strict=True)
    ]
    left = [cash]
    for each in spent:
        left.append(left[-1] - each)
    assert amounts["amount"].to_pylist() == left
    assert min(spent) < 0 < max(spent), "it bought and sold"
    return len(spent)


def test_the_desk_never_owes_anything(tmp_path: Path) -> None:
    assert check_books(desk(tmp_path, 50_000, 200, 1_000_000), 1_000_000) > 100


@pytest.mark.soak
def test_the_desk_never_owes_anything_over_a_million_quotes(tmp_path: Path) -> None:
    assert check_books(desk(tmp_path, 1_000_000, 300, 3_000_000), 3_000_000) > 1_000


def test_the_desk_trades_as_the_same_rules_by_hand(tmp_path: Path) -> None:
    answers = desk(tmp_path, 20_000, 50, 400_000)
    assert script("by_hand").run(tmp_path / "desk", tmp_path / "hand") == len(answers["trade"])
    by_hand = (tmp_path / "hand" / "trade.csv").read_text().split()
    columns = [answers["trade"][name].to_pylist() for name in ("stock", "num", "price")]
    found = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    assert found == [line.split(",", 1)[1] for line in by_hand if "," in line]


def test_the_desk_answers_as_the_oracle_does(tmp_path: Path) -> None:
    make_desk(tmp_path, 120, 3, 300_000, seed=30)
    app = load(tmp_path / "desk.cql")
    expected = run_app(app, tmp_path)
    for engine in (local(1 << 16), local(7, restart=True)):
        found = engine(app, tmp_path)
        for query in app.queries:
            right = shown(expected.queries[query.name], query.schema, app.time)
            assert len(right) > 0, query.name
            assert shown(found.queries[query.name], query.schema, app.time) == right, query.name


def test_the_whole_desk_runs_inside_the_loop_machine() -> None:
    plan = plan_app(load(TRADING / "desk.cql"))
    (loop,) = [stage for stage in plan.stages() if len(stage) > 1]
    assert [why for step in loop if (why := why_called(plan.steps[step].node)) is not None] == []


def test_a_loop_closed_outside_spends_cash_that_is_not_there() -> None:
    external = script("external")
    late = external.run(rows=6_000, latency=40)
    assert late.least < 0
    assert late.unpaid > 0
