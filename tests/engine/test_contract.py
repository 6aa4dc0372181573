"""Contracts are kept by asking: the runtime knows operators by their contract alone, and nobody reaches into
another module's private fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import kasen
from kasen.engine.operator import Operator

ROOT = Path(kasen.__file__).parent
RUNTIME = sorted((ROOT / "runtime").rglob("*.py"))
ALL = sorted(ROOT.rglob("*.py"))

#: Operators that the runtime may name, by module, and why.
NAMED = {
    ("shipment", "Project"): "computes the keys by which rows are sent; it is no step of a graph",
}
#: Names with an underscore that are not private, or are the only way to what is behind them.
PUBLIC = {
    "_replace": "a method of named tuples, for everybody",
    "_exit": "os._exit ends a process without waiting for the threads of others",
    "_getvalue": "how numba's intrinsics read a record that they make",
    "_jdf": "Spark's own object behind a DataFrame",
    "_jsc": "Spark's own object behind a context",
    "_jsparkSession": "Spark's own object behind a session",
    "_jvm": "what Spark's Java side is called through",
    "_active_spark_context": "the context that is there, without making one",
}


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


def imported(tree: ast.Module) -> Iterator[tuple[str, object]]:
    """What a module imports by name, as it is known where it comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kasen"):
            module = import_module(node.module or "")
            yield from ((alias.name, vars(module).get(alias.name)) for alias in node.names)


@pytest.mark.parametrize("file", RUNTIME, ids=name_of)
def test_the_runtime_asks_operators_and_does_not_look_at_what_they_are(file: Path) -> None:
    tree = tree_of(file)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"hasattr", "getattr", "setattr"}
    for name, thing in imported(tree):
        if isinstance(thing, type) and issubclass(thing, Operator) and thing is not Operator:
            assert (file.stem, name) in NAMED


@pytest.mark.parametrize("file", ALL, ids=name_of)
def test_private_fields_are_used_in_their_own_module_only(file: Path) -> None:
    tree = tree_of(file)
    own: set[str] = set()
    reached: dict[str, int] = {}
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                own.add(name)
            case ast.Attribute(value=value, attr=name):
                is_super = isinstance(value, ast.Call) and ast.unparse(value.func) == "super"
                if name.startswith("_") and not name.startswith("__") and not is_super:
                    reached.setdefault(name, node.lineno)
    assert {name: line for name, line in reached.items() if name not in own | PUBLIC.keys()} == {}
