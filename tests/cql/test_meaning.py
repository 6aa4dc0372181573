"""The binder's meaning against another reader of the same text.

Random queries over static tables are both CQL and plain SQL. The oracle computes what the *bound* query says;
DuckDB reads the *text* itself. Scoping, precedence, joins, grouping, sub-queries and NULLs must agree.
"""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pytest

from kasen.cql.bind.app import bind_text
from kasen.errors import QueryError
from tests.oracle import run_app

SEED = 7
QUERIES = 400

INPUTS = """
REGISTER RELATION p (a INTEGER, b INTEGER, c VARCHAR) FROM 'memory';
REGISTER RELATION q (a INTEGER, x INTEGER) FROM 'memory';
REGISTER RELATION r (k INTEGER, c VARCHAR) FROM 'memory';
"""
ROWS: dict[str, tuple[tuple[str, ...], list[tuple[object, ...]]]] = {
    "p": (
        ("a", "b", "c"),
        [(1, 2, "u"), (1, 2, "u"), (2, None, "v"), (3, 1, None), (None, 4, "w"), (4, 4, "v")],
    ),
    "q": (("a", "x"), [(1, 1), (2, 5), (2, 5), (5, None), (None, 3)]),
    "r": (("k", "c"), [(1, "u"), (4, "v"), (None, "z"), (2, None)]),
}
COLUMNS = {"p": ("a", "b"), "q": ("a", "x"), "r": ("k",)}


class Writer:
    """Writes a query that is CQL and SQL. Columns are often unqualified, and names shadow one another."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.fuel = 14

    def one(self, *texts: str) -> str:
        return self.rng.choice(texts)

    def query(self, outer: list[str], columns: int) -> str:
        self.fuel -= 1
        choice = self.rng.random()
        if choice < 0.12 and self.fuel > 0 and not outer:
            words = ("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")
            left, right = self.query([], columns), self.query([], columns)
            return (
                f"({left}) {self.one(*words)} ({right})"
                if choice < 0.06
                else f"{left} {self.one(*words)} {right}"
            )
        if choice < 0.2 and self.fuel > 0 and not outer:
            name = self.one("p", "q", "z")
            return (
                f"WITH {name} AS (SELECT a, b AS x, b FROM p WHERE a > 1) {self.select([], columns, [name])}"
            )
        return self.select(outer, columns, [])

    def select(self, outer: list[str], columns: int, extra: list[str]) -> str:
        from_, inner = self.from_(extra)
        scope = [*inner, *outer]
        where = f" WHERE {self.condition(scope, deep=True)}" if self.rng.random() < 0.6 else ""
        if self.rng.random() < 0.3 and not outer:
            key = self.number(inner)
            items = [key, *(self.aggregate(inner) for _ in range(columns - 1))]
            having = (
                f" HAVING {self.aggregate(inner)} {self.one('>', '<=')} 1" if self.rng.random() < 0.4 else ""
            )
            return f"SELECT {', '.join(items)} FROM {from_}{where} GROUP BY {key}{having}"
        items = [self.number(inner) for _ in range(columns)]
        return f"SELECT {self.one('', '', 'DISTINCT ')}{', '.join(items)} FROM {from_}{where}"

    def from_(self, extra: list[str]) -> tuple[str, list[str]]:
        """FROM, and the columns that can be named there."""
        chosen = self.rng.sample(("p", "q", "r"), self.rng.choice((1, 1, 2, 3)))
        chosen = [*extra, *(name for name in chosen if name not in extra)][:3]
        text, names, group = "", [], []
        for position, name in enumerate(chosen):
            alias = self.one(name, "t" + str(position))
            columns = [f"{alias}.{column}" for column in COLUMNS.get(name, ("a", "x"))]
            item = name if alias == name else f"{name} AS {alias}"
            if position == 0:
                text, group = item, columns
            elif self.rng.random() < 0.4:
                text, group = f"{text}, {item}", columns
            else:
                kind = self.one("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "INNER JOIN")
                group = [*group, *columns]
                # An equality keeps every engine's outer joins happy.
                on = f"{columns[0]} = {group[0]}" + self.one("", f" AND {self.simple(group)}")
                text = f"{text} {kind} {item} ON {on}"
            names += columns
        return text, names

    def number(self, scope: list[str]) -> str:
        choice = self.rng.random()
        column = self.rng.choice(scope)
        if choice < 0.5:
            return column
        if choice < 0.6 and sum(name.endswith("." + column.split(".")[1]) for name in scope) == 1:
            return column.split(".")[1]
        if choice < 0.7:
            return self.one("0", "1", "-2", "NULL")
        if choice < 0.85:
            return f"{column} {self.one('+', '-', '*')} {self.rng.choice(scope)} {self.one('-', '+')} 1"
        return f"CASE WHEN {self.simple(scope)} THEN {column} ELSE {self.one('0', 'NULL')} END"

    def aggregate(self, scope: list[str]) -> str:
        name = self.one("COUNT", "SUM", "MIN", "MAX", "COUNT(DISTINCT")
        return self.one("COUNT(*)", f"{name}{' ' if '(' in name else '('}{self.rng.choice(scope)})")

    def simple(self, scope: list[str]) -> str:
        sign = self.one("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
        return f"{self.rng.choice(scope)} {sign} {self.one(self.rng.choice(scope), '1', '2')}"

    def condition(self, scope: list[str], deep: bool = False) -> str:
        self.fuel -= 1
        choice = self.rng.random()
        column = self.rng.choice(scope)
        if choice < 0.3 or self.fuel < 0:
            return self.simple(scope)
        if choice < 0.45:
            return f"{self.condition(scope, deep)} AND {self.condition(scope, deep)}"
        if choice < 0.53:
            return f"{self.condition(scope)} OR {self.condition(scope)} AND {self.condition(scope)}"
        if choice < 0.58:
            return f"NOT ({self.condition(scope, deep)})"
        if choice < 0.63:
            return f"{column} IS {self.one('', 'NOT ')}NULL"
        if choice < 0.68:
            return f"{column} {self.one('', 'NOT ')}BETWEEN 1 AND {self.number(scope)}"
        if choice < 0.73:
            return f"{column} {self.one('', 'NOT ')}IN (1, 4, {self.one('NULL', '2', column)})"
        if not deep:
            return self.simple(scope)
        local = [name for name in scope if name.split(".")[0] in ("p", "q", "r", "t0", "t1", "t2", "z")]
        if choice < 0.83:
            return f"{column} {self.one('', 'NOT ')}IN ({self.query(local, 1)})"
        if choice < 0.93:
            return f"{self.one('', 'NOT ')}EXISTS ({self.query(local, 1)})"
        if choice < 0.97:
            return f"{column} {self.one('<', '>=', '=')} {self.one('ALL', 'ANY')} ({self.query([], 1)})"
        return f"{column} > (SELECT {self.one('MIN(a)', 'COUNT(*)')} FROM q)"


@pytest.fixture(scope="module")
def tables() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, (columns, rows) in ROWS.items():
        types = ", ".join(f"{column} {'VARCHAR' if column == 'c' else 'INTEGER'}" for column in columns)
        connection.execute(f"CREATE TABLE {name} ({types})")
        marks = ", ".join("?" for _ in columns)
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    return connection


def bound_answer(text: str) -> Counter[tuple[object, ...]]:
    app = bind_text(f"{INPUTS}REGISTER QUERY answer AS {text}")
    given = {
        name: [dict(zip(columns, row, strict=True)) for row in rows] for name, (columns, rows) in ROWS.items()
    }
    result = run_app(app, given=given)
    return Counter(row[4:] for row in result.queries["answer"])


def test_a_bound_query_says_what_its_text_says(tables: duckdb.DuckDBPyConnection) -> None:
    rng = random.Random(SEED)
    compared = refused = 0
    for _ in range(QUERIES):
        text = Writer(rng).query([], rng.choice((1, 2)))
        try:
            found = bound_answer(text)
        except QueryError:
            refused += 1
            continue
        expected = Counter(tables.execute(text).fetchall())
        assert found == expected, f"seed {SEED}: {text}"
        compared += 1
    assert compared > QUERIES * 0.8, f"{compared} compared, {refused} refused"
