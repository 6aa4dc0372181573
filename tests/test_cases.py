"""Every case file, on every engine: the answers must be exactly those that the case gives."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from kasen.cql.bind.app import bind_text
from kasen.cql.bound import App
from kasen.errors import QueryError
from tests.cases_format import Case, all_cases, expected_rows, parse_case, query_schema, shown, table
from tests.engines import ENGINES, Engine
from tests.oracle import Result, run_app, sniffer

ALL = all_cases()
#: The front end refuses these: no engine sees them, so one look at each is enough.
REFUSED = [case for case in ALL if case.section("error") is not None]
RUN = [case for case in ALL if case not in REFUSED]


def bind(case: Case, folder: Path) -> App:
    case.write_inputs(folder)
    return bind_text(case.text, folder, case.path.name, sniffer(folder))


def check(case: Case, engine: Engine, folder: Path) -> None:
    """The case on an engine; AssertionError with a readable difference if an answer differs."""
    error = case.section("error")
    if error is not None:
        check_error(case, error, folder)
        return
    app = bind(case, folder)
    check_warnings(case, app)
    result = engine(app, folder)
    assert case.queries or case.section("dead_letter") is not None, "the case expects nothing"
    for name in case.queries:
        schema = query_schema(app, name)
        expected = expected_rows(case.section(name) or "", schema, app.time)
        compare(name, shown(expected, schema, app.time), shown(result.queries[name], schema, app.time))
    check_dead_letters(case, result)


def check_error(case: Case, expected: str, folder: Path) -> None:
    """The app is refused with exactly this text (blanks at the ends of lines do not count)."""
    with pytest.raises(QueryError) as caught:
        bind(case, folder)
    compare("error", lines_of(expected), lines_of(str(caught.value)))


def lines_of(content: str) -> list[str]:
    return [line.rstrip() for line in content.strip("\n").split("\n")]


def check_warnings(case: Case, app: App) -> None:
    for line in (case.section("warning") or "").split("\n"):
        if line.strip():
            assert line.strip() in app.warnings, f"no warning {line.strip()!r} among {app.warnings}"


def check_dead_letters(case: Case, result: Result) -> None:
    """All dead letters, in the order of streams and lines; the reason up to its first colon."""
    found = [(one.stream, str(one.line), one.reason.split(":")[0]) for one in result.dead_letters]
    _, expected = table(case.section("dead_letter") or "stream, line, reason\n")
    compare(
        "dead_letter",
        sorted(", ".join(cell or "" for cell in row) for row in expected),
        sorted(", ".join(row) for row in found),
    )


def compare(what: str, expected: list[str], found: list[str]) -> None:
    if expected != found:
        difference = difflib.unified_diff(expected, found, "expected", "found", lineterm="", n=50)
        raise AssertionError(f"{what} differs:\n" + "\n".join(difference))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", RUN, ids=[case.name for case in RUN])
def test_an_engine_gives_exactly_the_answers_of_the_case(case: Case, engine: str, tmp_path: Path) -> None:
    check(case, ENGINES[engine], tmp_path)


@pytest.mark.parametrize("case", REFUSED, ids=[case.name for case in REFUSED])
def test_the_front_end_refuses_a_wrong_app_in_the_words_of_the_case(case: Case, tmp_path: Path) -> None:
    check(case, run_app, tmp_path)


def test_there_are_at_least_80_cases() -> None:
    assert len(ALL) >= 80


SMALL = """
REGISTER STREAM s (a INTEGER) TIMESTAMP BY ts FROM 'csv' OPTIONS (path 's.csv');
REGISTER QUERY q AS SELECT a FROM s [ROWS 1];

/*# s.csv
ts, a
1,  10
2,
late, 5
*/
/*# q
ts, seq, tick, diff, a
1,  0,   0,    1,    10
2,  0,   0,    1,
2,  0,   0,    -1,   10
*/
/*# dead_letter
stream, line, reason
s,      4,    bad timestamp
*/
"""


def test_a_right_case_passes(tmp_path: Path) -> None:
    check(parse_case(Path("small.cql"), SMALL), run_app, tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("1,  0,   0,    1,    10", "1,  0,   0,    1,    11"),  # another value
        ("2,  0,   0,    1,\n", "2,  0,   0,    1,    0\n"),  # NULL is not 0
        ("2,  0,   0,    -1,   10\n", ""),  # a row too few
        ("1,  0,   0,    1,    10\n", "1,  0,   0,    1,    10\n" * 2),  # a row too many
        ("1,  0,   0,    1,    10", "1,  0,   1,    1,    10"),  # another instant
        ("diff, a\n", "diff, b\n"),  # another column
        ("4,    bad timestamp", "3,    bad timestamp"),  # another line
        ("4,    bad timestamp", "4,    late"),  # another reason
    ],
)
def test_a_corrupted_expectation_fails(right: str, wrong: str, tmp_path: Path) -> None:
    assert SMALL.count(right) == 1
    corrupted = parse_case(Path("small.cql"), SMALL.replace(right, wrong))
    with pytest.raises(AssertionError):
        check(corrupted, run_app, tmp_path)


def test_rows_in_another_order_fail(tmp_path: Path) -> None:
    lines = SMALL.split("\n")
    first, second = lines.index("2,  0,   0,    1,"), lines.index("2,  0,   0,    -1,   10")
    lines[first], lines[second] = lines[second], lines[first]
    with pytest.raises(AssertionError, match="q differs"):
        check(parse_case(Path("small.cql"), "\n".join(lines)), run_app, tmp_path)


def test_an_error_that_does_not_come_or_reads_otherwise_fails(tmp_path: Path) -> None:
    app = SMALL.split("/*#")[0]
    with pytest.raises(pytest.fail.Exception):
        check(parse_case(Path("small.cql"), app + "/*# error\nerror: no\n*/"), run_app, tmp_path)
    wrong = app.replace("FROM s ", "FROM t ")
    with pytest.raises(AssertionError, match="error differs"):
        check(parse_case(Path("small.cql"), wrong + "/*# error\nerror: no\n*/"), run_app, tmp_path)


def test_cells_lose_the_blanks_around_them_but_not_those_in_quotes() -> None:
    case = parse_case(Path("x.cql"), '/*# q\na , b, c\n  1,  " x, ""y"" ",\n"",, 3\n*/')
    assert table(case.section("q") or "") == (
        ["a", "b", "c"],
        [["1", ' x, "y" ', None], ["", None, "3"]],
    )
