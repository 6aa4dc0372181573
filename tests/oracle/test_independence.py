"""The oracle shares the parser and the binder with the engine, and nothing else (law 2 of the design)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.paths import TESTS

ORACLE = sorted((TESTS / "oracle").glob("[!t]*.py"))
SHARED = ("kasen.cql", "kasen.types", "kasen.errors")


def imports(source: str) -> list[str]:
    """The modules that a source file imports, wherever in the file."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [f"{node.module}.{name.name}" for name in node.names]
    return found


def of_the_engine(source: str) -> list[str]:
    own = [name for name in imports(source) if name.split(".")[0] == "kasen"]
    return [name for name in own if not any(f"{name}.".startswith(f"{part}.") for part in SHARED)]


@pytest.mark.parametrize("path", ORACLE, ids=[path.name for path in ORACLE])
def test_the_oracle_imports_nothing_of_the_engine_but_the_front_end(path: Path) -> None:
    assert of_the_engine(path.read_text()) == []


def test_the_oracle_takes_nothing_of_the_engine_from_other_tests() -> None:
    tests = [name for path in ORACLE for name in imports(path.read_text()) if name.startswith("tests.")]
    assert tests
    assert all(name.startswith("tests.oracle.") for name in tests)


def test_an_import_of_the_planner_is_found() -> None:
    source = "def f():\n    from kasen.plan.keep import kept_steps\nfrom kasen import cql, plan\n"
    assert of_the_engine(source) == ["kasen.plan", "kasen.plan.keep.kept_steps"]
