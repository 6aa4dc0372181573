"""What an error looks like: fault, place, source line with a mark, remedy. All are in tests/cases/errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from kasen.cql.bind.app import bind_file, bind_text
from kasen.cql.parse.words import FOREIGN_STATEMENTS, REFUSED
from kasen.errors import Place, QueryError, mark
from tests.cql.bind.binding import refused, refused_text

INPUT = "REGISTER STREAM s (a INTEGER) FROM 'csv';\n"


def test_an_error_shows_fault_place_line_mark_and_remedy() -> None:
    error = refused_text(INPUT + "REGISTER QUERY q AS\n  SELECT a,\n         prize\n  FROM s")
    assert str(error).split("\n") == [
        "error: unknown column 'prize'",
        "  --> line 4:10",
        "   |",
        " 4 |          prize",
        "   |          ^^^^^",
        "help: columns are a",
    ]
    assert error.exit_code == 2
    assert error.place == Place(4, 10, 5)


def test_the_file_is_named_if_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "app.cql"
    file.write_text(INPUT + "REGISTER QUERY q AS SELECT b FROM s", encoding="utf-8")
    with pytest.raises(QueryError) as caught:
        bind_file(file)
    assert f"  --> {file}:2:28\n" in str(caught.value)
    with pytest.raises(QueryError) as caught:
        bind_text("SELECT 1", file="some.cql")
    assert "  --> some.cql:1:1\n" in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "app.cql"
    file.write_bytes("REGISTER QUERY é AS SELECT".encode("latin-1"))
    with pytest.raises(QueryError, match="is not a text in UTF-8") as caught:
        bind_file(file)
    assert f"  --> {file}:1:16\n" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["SELECT '{}' AS x FROM s", 'SELECT a AS "{}" FROM s', "SELECT a FROM s -- {}"]
)
@pytest.mark.parametrize("character", ["\ud800", "\0"])
def test_what_no_text_can_hold_is_refused_with_its_place(text: str, character: str) -> None:
    query = f"{INPUT}REGISTER QUERY q AS {text.format(character)}"
    with pytest.raises(QueryError, match=f"U\\+{ord(character):04X} is not a character") as caught:
        bind_text(query)
    place = caught.value.place
    assert place is not None
    assert (place.line, place.column) == (2, 21 + text.index("{"))
    str(caught.value).encode()


def test_a_time_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(QueryError, match=r"9{20}\.\.\.9{10} is not a time of this app"):
        bind_text(f"{INPUT}AT {'9' * 5000} DROP QUERY q")


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "app.cql"
    file.write_bytes(b"\xef\xbb\xbf" + INPUT.encode())
    assert len(bind_file(file).inputs) == 1


def test_line_numbers_stand_in_a_gutter_as_wide_as_they_are() -> None:
    error = refused_text("\n" * 99 + "SELECT")
    assert str(error).split("\n")[1:5] == ["  --> line 100:1", "     |", " 100 | SELECT", "     | ^^^^^^"]


def test_tabs_do_not_shift_the_mark() -> None:
    lines = str(refused_text(INPUT + "REGISTER QUERY q AS SELECT\t\tb\tFROM s")).split("\n")
    assert lines[3] == " 2 | REGISTER QUERY q AS SELECT  b FROM s"
    assert lines[4].index("^") == lines[3].index("b FROM")


def test_windows_line_ends_do_not_show() -> None:
    text = (INPUT + "REGISTER QUERY q AS SELECT b\nFROM s;\n").replace("\n", "\r\n")
    error = refused_text(text)
    assert error.place == Place(2, 28, 1)
    assert str(error).split("\n")[3] == " 2 | REGISTER QUERY q AS SELECT b"


def test_wide_characters_take_two_columns_of_the_mark() -> None:
    lines = str(refused_text("REGISTER STREAM 株価 (値段 INTEGER, 値段 INTEGER) FROM 'csv'")).split("\n")
    assert lines[3] == " 1 | REGISTER STREAM 株価 (値段 INTEGER, 値段 INTEGER) FROM 'csv'"
    assert lines[4] == "   | " + " " * 36 + "^" * 12


def test_control_characters_are_not_sent_to_the_terminal() -> None:
    error = refused_text("REGISTER QUERY q AS SELECT 'a\x1b[31mb\x07' AS x FROM nothing")
    assert all(char.isprintable() or char == "\n" for char in str(error))


def test_a_long_line_is_shown_where_the_mark_is() -> None:
    columns = ", ".join(f"a AS column_{number}" for number in range(30))
    lines = str(refused_text(f"{INPUT}REGISTER QUERY q AS SELECT {columns}, b, {columns} FROM s")).split("\n")
    assert len(lines[3]) < 110
    assert lines[3][lines[4].index("^")] == "b"
    assert lines[3].startswith(" 2 | ...")
    assert lines[3].endswith("...")


def test_a_mark_over_several_lines_ends_with_the_first() -> None:
    text = INPUT + "REGISTER QUERY q AS SELECT a FROM s WHERE a > (SELECT a\n FROM s)"
    lines = str(refused_text(text)).split("\n")
    assert lines[4].rstrip().endswith("^" * len("SELECT a"))
    assert len(lines[4]) == len(lines[3])


@pytest.mark.parametrize("line", [0, 2, 99])
def test_a_place_outside_the_text_is_named_without_a_line(line: int) -> None:
    assert mark("one line", Place(line, 1)) == [f"  --> line {line}:1"]


def test_an_error_at_the_end_points_at_the_last_word() -> None:
    error = refused_text(INPUT + "REGISTER QUERY q AS SELECT a FROM s WHERE\n\n-- nothing more\n")
    assert error.fault == "expected a condition after WHERE, but the statement ends here"
    assert error.place == Place(2, 37, 5)
    assert refused_text(INPUT + "REGISTER QUERY q AS SELECT a FROM s WHERE; SET x = 1").place == error.place


def test_the_first_error_of_a_text_is_the_one_that_is_told() -> None:
    error = refused_text(INPUT + "REGISTER QUERY p AS SELECT b FROM s;\nREGISTER QUERY q AS SELECT c FROM s;")
    assert error.fault == "unknown column 'b'"


@pytest.mark.parametrize(
    "word", [word for word in REFUSED if word not in ("VALUES", "UNNEST", "OVER", "FILTER")]
)
def test_a_word_of_other_dialects_says_what_to_write_instead(word: str) -> None:
    fault, remedy = REFUSED[word]
    error = refused(f"SELECT a FROM s {word} x")
    assert (error.fault, error.remedy) == (fault, remedy)
    assert fault.endswith("is not CQL")
    assert remedy


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("VALUES (1)", "VALUES"),
        ("SELECT SUM(a) OVER () FROM s", "OVER"),
        ("SELECT SUM(a) FILTER (WHERE a > 1) FROM s", "FILTER"),
        ("SELECT a FROM s WHERE ORDER BY a", "ORDER"),
        ("SELECT a FROM s x LIMIT 5", "LIMIT"),
        ("SELECT a FROM (SELECT a FROM s ORDER BY a)", "ORDER"),
        ("SELECT a ILIKE 'x' FROM s", "ILIKE"),
        ("SELECT s.a FROM s JOIN t USING (a)", "USING"),
        ("SELECT a FROM s NATURAL JOIN t", "NATURAL"),
    ],
)
def test_words_of_other_dialects_are_known_where_they_stand(query: str, word: str) -> None:
    assert refused(query).fault == REFUSED[word][0]


@pytest.mark.parametrize("word", FOREIGN_STATEMENTS)
def test_statements_of_other_languages_say_what_to_write_instead(word: str) -> None:
    error = refused_text(f"{word} x")
    assert error.fault == f"expected a statement, but found {word}"
    assert error.remedy == FOREIGN_STATEMENTS[word]


@pytest.mark.parametrize(
    ("character", "remedy"),
    [
        ("`", 'write names that need it in double quotes: "name"'),
        ("?", "there are no parameters: write the value"),
        ("&", "write AND"),
        ("!", "write NOT, or <> for unequal"),
        ("\u2019", "write plain quotes: 'text'"),
        ("€", "outside quotes, CQL uses letters, digits and the usual signs"),
    ],
)
def test_a_character_that_means_nothing_says_what_it_may_have_meant(character: str, remedy: str) -> None:
    error = refused(f"SELECT a FROM s WHERE a {character} 1")
    assert error.fault == f"the character '{character}' cannot stand here"
    assert error.remedy == remedy


def test_a_caller_deep_in_the_stack_gets_a_query_error_too() -> None:
    text = INPUT + "REGISTER QUERY q AS SELECT " + "(" * 40 + "a" + ")" * 40 + " FROM s"

    def dive(depth: int) -> QueryError:
        if depth:
            return dive(depth - 1)
        return refused_text(text)

    bind_text(text)
    assert dive(700).fault == "the statement is nested too deeply"


def test_what_is_allowed_fits_well_into_the_stack() -> None:
    """The deepest statements that are allowed bind from a caller who is 300 calls deep."""
    texts = [
        "SELECT " + "(" * 50 + "a" + ")" * 50 + " FROM s",
        "SELECT " + "ABS(" * 50 + "a" + ")" * 50 + " FROM s",
        "SELECT " + "CASE WHEN a = 1 THEN 1 ELSE " * 40 + "a" + " END" * 40 + " FROM s",
        "SELECT * FROM (" * 38 + "SELECT a FROM s" + ")" * 38,
        "SELECT " + "a + " * 110 + "a FROM s",
        " UNION ALL ".join(["SELECT a FROM s"] * 110),
    ]

    def dive(depth: int) -> None:
        if depth:
            dive(depth - 1)
        else:
            for text in texts:
                bind_text(f"{INPUT}REGISTER QUERY q AS {text}")

    dive(300)
