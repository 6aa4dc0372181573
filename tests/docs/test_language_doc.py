"""docs/language.md lists what the source knows, and its examples bind."""

from __future__ import annotations

import re

import pytest

from kasen.cql import settings
from kasen.cql.bind.app import bind_text
from kasen.cql.bind.expr import aggregates
from kasen.cql.bind.expr import call as bind_call
from kasen.cql.check.extent import MAX_EXPRESSION, MAX_LEVELS, MAX_PARTS
from kasen.cql.functions import EXTRACT_FIELDS, OPERATORS, SCALARS, TRUNC_UNITS
from kasen.cql.parse.cursor import MAX_NESTING
from kasen.cql.parse.words import RESERVED
from kasen.cql.statements import MAX_DEPTH
from tests.paths import DOCS

TEXT = (DOCS / "language.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def words(text: str) -> set[str]:
    return set(re.findall(r"[A-Z_]+", text))


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_example_binds(number: int) -> None:
    inputs = BLOCKS[0] if number else ""
    app = bind_text(inputs + BLOCKS[number])
    assert number == 0 or app.queries or len(app.inputs) > 3


def test_every_function_and_its_other_spellings_are_listed() -> None:
    listed = words(section("Functions"))
    known = {name.upper() for name in SCALARS if name not in OPERATORS} | {"EXTRACT", "POSITION"}
    known |= {name.upper() for name in (*bind_call._ALIASES, *bind_call._CASES, *bind_call._BOUNDS)}
    assert known <= listed
    assert {field.upper() for field in EXTRACT_FIELDS} <= listed
    assert all(f"'{unit}'" in section("Functions") for unit in TRUNC_UNITS)


def test_every_listed_function_is_known() -> None:
    for line in section("Functions").splitlines():
        for name in re.findall(r"`([A-Z_]+)\(", line.split("|")[1] if line.startswith("| `") else ""):
            known = name.lower()
            assert known in SCALARS or known in (*bind_call._CASES, *bind_call._BOUNDS), name


def test_every_aggregate_is_listed() -> None:
    assert {name.upper() for name in aggregates.AGGREGATE_NAMES} <= words(section("Aggregates"))


def test_every_setting_and_value_is_listed() -> None:
    text = section("Settings")
    for name, values in settings._CHOICES.items():
        assert f"| `{name}` | " + ", ".join(f"`{value}`" for value in values) + " |" in text
    assert all(f"`{name}`" in text for name in settings._NUMBERS)


def test_every_reserved_word_is_listed() -> None:
    quoted = " ".join(line for line in section("Words, names, comments").splitlines() if line.startswith(">"))
    assert words(quoted) == RESERVED


def test_the_limits_are_those_of_the_source() -> None:
    text = section("Limits, and why")
    assert f"| {MAX_NESTING} levels of nesting |" in text
    assert f"| {MAX_DEPTH} operators" in text
    assert f"| {MAX_EXPRESSION} levels of an expression, {MAX_LEVELS} of a plan |" in text
    assert f"| {MAX_PARTS:,} parts of a query |" in text


def test_every_link_inside_the_page_leads_somewhere() -> None:
    anchors = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) <= anchors
