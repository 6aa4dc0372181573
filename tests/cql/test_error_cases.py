"""Every way in which the front end can refuse a text has a case in tests/cases/errors.

tests/test_cases.py compares the texts of the errors. This file proves that no error is left out: it
collects the places in the source that make an error or ask for something that may be missing, and sees
which of them the cases reach.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kasen.cql
from kasen.cql.bind.app import bind_text
from kasen.errors import QueryError
from tests.cases_format import CASES, Case, load

SOURCE = Path(kasen.cql.__file__).parent
# No text alone can call a user's aggregate: tests/engine/aggregate/user has these errors.
ELSEWHERE = ("user_aggregates.py",)

# Calls that make an error: their line is only reached for one.
MAKERS = ("error", "error_at", "fail")
# Calls that ask for a piece of syntax and say how to call it if it is missing.
ASKERS = (
    "expect",
    "expect_type",
    "name",
    "expression",
    "data_type",
    "_close",
    "_new_name",
    "_query_in_parentheses",
)


@dataclass(frozen=True, slots=True)
class Site:
    """A call in the source, by its lines."""

    file: str
    first: int
    last: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.first} {self.text}"


def sites(names: tuple[str, ...]) -> Iterator[Site]:
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name in ELSEWHERE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _called(node) in names and _says_something(node):
                yield Site(str(path), node.lineno, node.end_lineno or node.lineno, ast.unparse(node)[:100])


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _says_something(node: ast.Call) -> bool:
    """Whether words stand in the call: others only pass words on."""
    args = [*node.args, *(keyword.value for keyword in node.keywords)]
    return any(isinstance(part, ast.JoinedStr) or _is_words(part) for part in args)


def _is_words(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 1


class Recorder:
    """Which lines of the front end run, and through which of them errors pass."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()
        self.raised: set[tuple[str, int]] = set()

    def run(self, case: Case) -> None:
        sys.settrace(self._trace)
        try:
            bind_text(case.text)
        except QueryError as error:
            traceback = error.__traceback__
            while traceback is not None:
                self.raised.add((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
                traceback = traceback.tb_next
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(str(SOURCE)):
            return None
        if event == "line":
            self.lines.add((path, frame.f_lineno))
        return self._trace


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    recorder = Recorder()
    for path in sorted((CASES / "errors").glob("*.cql")):
        recorder.run(load(path))
    return recorder


def missing(found: set[tuple[str, int]], names: tuple[str, ...]) -> list[str]:
    return [
        str(site)
        for site in sites(names)
        if not any((site.file, line) in found for line in range(site.first, site.last + 1))
    ]


def test_every_error_that_the_source_can_make_has_a_case(recorded: Recorder) -> None:
    assert len(list(sites(MAKERS))) > 100
    assert missing(recorded.lines, MAKERS) == []


def test_every_piece_of_syntax_that_may_be_missing_has_a_case(recorded: Recorder) -> None:
    assert len(list(sites(ASKERS))) > 50
    assert missing(recorded.raised, ASKERS) == []


def test_every_case_names_its_place() -> None:
    for path in sorted((CASES / "errors").glob("*.cql")):
        assert f"--> {path.name}:" in (load(path).section("error") or ""), path.name
