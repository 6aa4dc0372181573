"""Mutated and random texts: whatever comes in, nothing but QueryError comes out, and soon."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable

from kasen.cql.bind.app import AppBinder, bind_text
from kasen.cql.statements import Text, parse, render
from kasen.errors import QueryError
from tests.cql.corpus import INPUTS, OTHERS, PAPERS, PRELUDE, QUERIES
from tests.cql.grow import Grower
from tests.paths import ROOT

SEED = 20_261_115
TEXTS = 100_000
SLOWEST = 5.0  # seconds; usual texts take a millisecond, but the machine may be busy

_PIECE = re.compile(r"\s+|\w+|'[^']*'|<=|>=|<>|::|\|\||.", re.DOTALL)

Tokens = list[str]


def pieces(text: str) -> Tokens:
    return _PIECE.findall(text)


STATEMENTS = [pieces(text) for text in [*INPUTS, *OTHERS, *(f"REGISTER QUERY q AS {q}" for q in QUERIES)]]
APPS = [pieces(text) for text in PAPERS.values()]
VOCABULARY = sorted({piece for tokens in (*STATEMENTS, *APPS) for piece in tokens})
NUMBERS = [piece for piece in VOCABULARY if piece.isdigit()] + ["0", "2147483648", "1.5", "1e0"]
WORDS = [piece for piece in VOCABULARY if piece.isidentifier()]
SIGNS = ["+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "||"]
ODD = [
    *[
        "\0",
        "\ufeff",
        "\u200b",
        "é",
        "e\u0301",
        "価格",
        "İ",
        "ß",
        "²",
        "\u0661",
        "😀",
        "\u2028",
        "\x85",
        "\ud800",
    ],
    *[
        "'",
        "''",
        '"',
        '""',
        "--",
        "/*",
        "*/",
        "/*+",
        "\\",
        "`",
        "$",
        "#",
        "@",
        "?",
        ":",
        "{",
        "}",
        "~",
        "^",
        "&",
        "|",
        ".",
        "..",
    ],
    *["9" * 30, "9" * 5000, "1e400", "1e-400", "0" * 40, "1." + "1" * 40, "1e", "0x1F", "1_000", "1.2.3"],
    *[
        "'99999999999'",
        "'2026-13-01'",
        "'-0'",
        "'1e5'",
        "'nan'",
        "INTERVAL",
        "TIMESTAMP",
        "DATE '2026-01-01'",
    ],
    *["OVER ()", "ORDER BY a", "LIMIT 5", "NATURAL", "USING (a)", "WITH RECURSIVE", "VALUES (1)", "LATERAL"],
    *["DECIMAL(99, 99)", "DECIMAL(0)", "VARCHAR(", "[ROWS 0]", "[RANGE 0]", "<0>", "<Now>", "RSTREAM[0]("],
    *["window_end()", "COUNT(DISTINCT", "SUM(SUM(a))", "s.s.s", "*.*", "(SELECT", "EXISTS (", "> ALL ("],
]


def _delete(rng: random.Random, tokens: Tokens) -> Tokens:
    for _ in range(rng.randint(1, 3)):
        if tokens:
            start = rng.randrange(len(tokens))
            del tokens[start : start + rng.choice((1, 1, 2, 5))]
    return tokens


def _duplicate(rng: random.Random, tokens: Tokens) -> Tokens:
    start = rng.randrange(len(tokens))
    end = start + rng.randint(1, 8)
    return tokens[:end] + tokens[start:end] * rng.choice((1, 1, 3)) + tokens[end:]


def _swap(rng: random.Random, tokens: Tokens) -> Tokens:
    for _ in range(rng.randint(1, 3)):
        one, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        tokens[one], tokens[other] = tokens[other], tokens[one]
    return tokens


def _replace(rng: random.Random, tokens: Tokens) -> Tokens:
    for _ in range(rng.randint(1, 4)):
        tokens[rng.randrange(len(tokens))] = rng.choice(VOCABULARY if rng.random() < 0.8 else ODD)
    return tokens


def _exchange(rng: random.Random, tokens: Tokens) -> Tokens:
    """A word for a word, a number for a number: what comes out often parses, and gets as far as binding."""
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(tokens))
        kind = next((words for words in (NUMBERS, WORDS, SIGNS) if tokens[position] in words), None)
        if kind is not None:
            tokens[position] = rng.choice(kind)
    return tokens


def _insert(rng: random.Random, tokens: Tokens) -> Tokens:
    for _ in range(rng.randint(1, 3)):
        tokens.insert(rng.randint(0, len(tokens)), rng.choice(VOCABULARY if rng.random() < 0.7 else ODD))
    return tokens


def _splice(rng: random.Random, tokens: Tokens) -> Tokens:
    other = rng.choice(STATEMENTS)
    return tokens[: rng.randint(0, len(tokens))] + other[rng.randint(0, len(other)) :]


def _graft(rng: random.Random, tokens: Tokens) -> Tokens:
    """A piece of another statement in place of one of this."""
    other = rng.choice(STATEMENTS)
    start, source = rng.randrange(len(tokens)), rng.randrange(len(other))
    length = rng.randint(1, 12)
    return tokens[:start] + other[source : source + length] + tokens[start + rng.randint(0, 4) :]


def _truncate(rng: random.Random, tokens: Tokens) -> Tokens:
    return tokens[: rng.randint(0, len(tokens))]


def _noise(rng: random.Random, tokens: Tokens) -> Tokens:
    text = list("".join(tokens))
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(text) + 1)
        match rng.randrange(3):
            case 0:
                text.insert(position, chr(rng.choice((rng.randrange(128), rng.randrange(0x3000)))))
            case 1 if position < len(text):
                del text[position]
            case _ if position < len(text):
                text[position] = chr(rng.randrange(32, 127))
    return ["".join(text)]


def _nest(rng: random.Random, tokens: Tokens) -> Tokens:
    before, after, core = rng.choice(
        (
            ("(", ")", "a"),
            ("ABS(", ")", "a"),
            ("NOT ", "", "f"),
            ("- ", "", "a"),
            ("CASE WHEN f THEN 1 ELSE ", " END", "a"),
            ("CAST(", " AS BIGINT)", "a"),
            ("COALESCE(a, ", ")", "b"),
            ("(SELECT MAX(a) FROM t WHERE a > ", ")", "1"),
            ("a IN (", ")", "1"),
            ("((", "", "a"),
        )
    )
    depth = rng.choice((1, 2, 5, 20, 49, 50, 51, 200, 1000))
    query = f"SELECT {before * depth}{core}{after * depth} FROM s"
    if rng.random() < 0.3:
        query = "SELECT * FROM (" * depth + "SELECT a FROM s" + ")" * depth
    return ["REGISTER QUERY q AS ", query, *(tokens if rng.random() < 0.2 else ())]


def _chain(rng: random.Random, tokens: Tokens) -> Tokens:
    length = rng.choice((2, 10, 119, 120, 121, 300))
    head, link, tail = rng.choice(
        (
            ("SELECT ", "a + ", "a FROM s"),
            ("SELECT ", "c || ", "c FROM s"),
            ("SELECT a FROM s WHERE ", "a = 1 AND ", "f"),
            ("SELECT a FROM s WHERE ", "f OR ", "f"),
            ("", "SELECT a FROM s UNION ALL ", "SELECT a FROM t"),
            ("SELECT ", "a, ", "b FROM s"),
            ("SELECT a FROM s WHERE a IN (", "1, ", "2)"),
            ("SELECT CASE ", "WHEN a = 1 THEN 2 ", "END FROM s"),
            ("SELECT r.k FROM r", ", r", " WHERE k = 1"),
            ("SELECT a FROM s WHERE a ", "IS NULL ", ""),
        )
    )
    return ["REGISTER QUERY q AS ", head, *[link] * length, tail]


def _grow(rng: random.Random, tokens: Tokens) -> Tokens:
    return ["REGISTER QUERY q AS ", Grower(rng).query()]


def _soup(rng: random.Random, tokens: Tokens) -> Tokens:
    words = rng.choices(VOCABULARY, k=rng.randint(1, 25)) + rng.choices(ODD, k=rng.randint(0, 3))
    rng.shuffle(words)
    return [rng.choice(("REGISTER QUERY q AS SELECT ", "")), " ".join(words)]


def _characters(rng: random.Random, tokens: Tokens) -> Tokens:
    return [
        "".join(
            chr(rng.choice((rng.randrange(128), rng.randrange(0x110000)))) for _ in range(rng.randint(0, 40))
        )
    ]


MUTATIONS: tuple[tuple[Callable[[random.Random, Tokens], Tokens], int], ...] = (
    (_delete, 12),
    (_duplicate, 8),
    (_swap, 8),
    (_replace, 10),
    (_exchange, 30),
    (_insert, 8),
    (_splice, 8),
    (_graft, 16),
    (_truncate, 3),
    (_noise, 8),
    (_nest, 2),
    (_chain, 1),
    (_grow, 25),
    (_soup, 4),
    (_characters, 2),
)
_KINDS = [kind for kind, _ in MUTATIONS]
_WEIGHTS = [weight for _, weight in MUTATIONS]


def mutated(rng: random.Random) -> str:
    """A text that was a statement, or a whole app, before something happened to it."""
    whole_app = rng.random() < 0.05
    tokens = list(rng.choice(APPS if whole_app else STATEMENTS))
    for kind in rng.choices(_KINDS, _WEIGHTS, k=rng.choice((1, 1, 1, 2, 3))):
        tokens = kind(rng, tokens) or [" "]
    text = "".join(tokens)
    return text if whole_app or rng.random() < 0.02 else PRELUDE + text


PARSED_PRELUDE = parse(Text(PRELUDE))


def check(text: str) -> bool:
    """Binds the text. Whether it was a right one; anything but a QueryError is passed on."""
    try:
        if text.startswith(PRELUDE) and len(text) % 10:
            # Nine times of ten the inputs need not be parsed again, which takes longer than the rest.
            source = Text(text[len(PRELUDE) :])
            app = AppBinder(source).bind([*PARSED_PRELUDE, *parse(source)])
        else:
            app = bind_text(text)
    except QueryError as error:
        shown = str(error)
    else:
        for query in app.queries:
            (again,) = parse(Text(f"REGISTER QUERY q AS {query.text}"))
            assert render(again.args["query"]) == query.text
        return True
    assert shown.startswith("error: ")
    return False


def test_nothing_but_query_errors_comes_out() -> None:
    rng = random.Random(SEED)
    right, slowest = 0, 0.0
    for number in range(TEXTS):
        text = mutated(rng)
        start = time.process_time()
        try:
            right += check(text)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, text {number}: {text!r}") from error
        slowest = max(slowest, time.process_time() - start)
        assert slowest < SLOWEST, f"seed {SEED}, text {number} took {slowest:.1f} s: {text[:2000]!r}"
    # The mutations should neither break everything nor nothing, or they test little.
    assert TEXTS * 0.05 < right < TEXTS * 0.5, f"{right} of {TEXTS} texts were right"


def test_every_file_of_the_project_cut_short_is_refused_or_right() -> None:
    root = ROOT
    rng = random.Random(SEED)
    files = sorted([*root.glob("examples/*/*.cql"), *root.glob("tests/cases/**/*.cql")])
    assert len(files) > 50
    for file in files:
        text = file.read_text(encoding="utf-8")
        for _ in range(3):
            check(text[: rng.randrange(len(text))])
