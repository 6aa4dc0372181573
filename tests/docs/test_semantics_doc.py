"""docs/semantics.md must not lie: its examples are cases, and the oracle answers them as the page says.

A block that opens with ```sql case holds what a file of tests/cases holds: an app, its inputs, its answers.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases_format import Case, parse_case
from tests.oracle import run_app
from tests.paths import DOCS
from tests.test_cases import check

DOC = DOCS / "semantics.md"

_BLOCK = re.compile(r"^```sql case\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)]+)\)")


def sections() -> dict[str, str]:
    """The text below each heading of the second level, which are the rules."""
    _, *parts = re.split(r"^## ", DOC.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in parts}


RULES = {title: body for title, body in sections().items() if title != "Traps"}
CASES = [
    pytest.param(parse_case(Path(DOC.name), block), id=f"{title} {number}")
    for title, body in RULES.items()
    for number, block in enumerate(_BLOCK.findall(body), 1)
]


@pytest.mark.parametrize("case", CASES)
def test_an_example_gives_exactly_the_answers_that_the_page_shows(case: Case, tmp_path: Path) -> None:
    check(case, run_app, tmp_path)


@pytest.mark.parametrize("title", RULES)
def test_a_rule_has_a_drawing_an_example_a_wrong_reading_and_its_cases(title: str) -> None:
    body = RULES[title]
    assert "```text\n" in body
    assert _BLOCK.search(body)
    assert re.search(r"^\*Wrong readings?:\*", body, re.MULTILINE)
    assert re.search(r"^Pinned by \[\w+\]\(\.\./tests/cases/", body, re.MULTILINE)


def test_every_query_of_an_example_shows_its_answer_or_feeds_another() -> None:
    for param in CASES:
        (case,) = param.values
        assert isinstance(case, Case)
        app = case.text.split("/*#")[0]
        for name in re.findall(r"REGISTER QUERY (\w+)", app):
            read = re.search(rf"(FROM|,|JOIN|DROP QUERY) {name}\b", app) is not None
            assert read or name in case.queries or case.section("error") is not None, name


def test_every_link_leads_somewhere() -> None:
    text = _CODE.sub("", DOC.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    for target in _LINK.findall(text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (DOC.parent / target).is_file(), target
