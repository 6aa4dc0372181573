"""Random apps: joins, sub-queries, aggregates, sets and every window, over three streams and a relation."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from kasen.cql.bound import App
from kasen.cql.expr import Value
from kasen.types import Kind
from tests.oracle.values import Row
from tests.plan.meaning import Tables

COLUMNS = {"s": ("a", "b", "c"), "t": ("a", "b", "d"), "u": ("a", "e"), "r": ("a", "e")}

INPUTS = """
REGISTER STREAM s (a INTEGER, b INTEGER, c INTEGER, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER STREAM t (a INTEGER, b INTEGER, d INTEGER, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER STREAM u (a INTEGER, e INTEGER, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER RELATION r (a INTEGER, e INTEGER) FROM 'memory';
"""

#: Columns as (alias, name).
Columns = list[tuple[str, str]]


_VALUES: dict[Kind, tuple[Value, ...]] = {
    Kind.INTEGER: (None, 0, 0, 1, 1, 1, 2, 2),
    Kind.BIGINT: (None, 0, 0, 1, 1, 1, 2, 2),
    Kind.DOUBLE: (None, 0.0, 0.5, 1.0, 1.0),
    Kind.VARCHAR: (None, "x", "x", "y", "z"),
}


def random_tables(rng: random.Random, app: App) -> Tables:
    """Small values, so that much is equal; some NULLs; times with ties, most of them late."""
    tables: dict[str, list[tuple[int, Row]]] = {}
    for input_ in app.inputs:
        times = sorted(20 - min(rng.randrange(20), rng.randrange(20)) for _ in range(rng.randrange(5, 13)))
        tables[input_.name] = []
        for ts in times:
            row = tuple(
                ts if index == input_.timestamp else rng.choice(_VALUES[column.type.kind])
                for index, column in enumerate(input_.schema)
            )
            tables[input_.name].append((ts, row))
    return tables


@dataclass(slots=True)
class Apps:
    """Writes apps. `derived` says whether the last one had a stream made by a query."""

    rng: random.Random
    derived: bool = False
    named: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    _aliases: int = 0

    def app(self) -> str:
        lines = [INPUTS.strip()]
        for number in range(self.rng.randrange(1, 3)):
            text, columns = self.query(self.rng.randrange(3))
            wrapper = self.rng.choice(("", "", "", "ISTREAM", "RSTREAM"))
            lines.append(f"REGISTER QUERY q{number} AS {f'{wrapper}({text})' if wrapper else text};")
            if not wrapper:
                self.named.append((f"q{number}", columns))
        return "\n".join(lines)

    def query(self, depth: int) -> tuple[str, tuple[str, ...]]:
        """A relation and the names of its columns."""
        if depth and self.rng.random() < 0.15:
            word = self.rng.choice(("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT"))
            width = self.rng.randrange(1, 3)
            left, columns = self.block(depth - 1, width)
            return f"{left} {word} {self.block(depth - 1, width)[0]}", columns
        return self.block(depth)

    def block(self, depth: int, width: int | None = None) -> tuple[str, tuple[str, ...]]:
        from_, columns = self._from(depth)
        where = self._where(columns, depth)
        if self.rng.random() < 0.3:
            return self._grouped(from_, where, columns, width)
        count = width or self.rng.randrange(1, 4)
        names = tuple(f"x{index}" for index in range(count))
        items = [f"{self._value(columns)} AS {name}" for name in names]
        distinct = "DISTINCT " if self.rng.random() < 0.15 else ""
        return f"SELECT {distinct}{', '.join(items)} FROM {from_}{where}", names

    def _grouped(
        self, from_: str, where: str, columns: Columns, width: int | None
    ) -> tuple[str, tuple[str, ...]]:
        keys = [self._column(columns) for _ in range(self.rng.randrange(0, 3))]
        calls = ["COUNT(*)", *(f"{f}({self._value(columns)})" for f in ("SUM", "MAX", "COUNT"))]
        calls += [f"COUNT(DISTINCT {self._column(columns)})"]
        count = width or self.rng.randrange(1, 4)
        names = tuple(f"x{index}" for index in range(count))
        items = [f"{self.rng.choice([*keys, *calls])} AS {name}" for name in names]
        if not any("(" in item for item in items) and not keys:
            items[0] = f"COUNT(*) AS {names[0]}"
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = ""
        if (keys or any("(" in item for item in items)) and self.rng.random() < 0.4:
            left = self.rng.choice([*keys, *calls])
            having = f" HAVING {left} {self._comparison()} {self.rng.randrange(3)}"
        return f"SELECT {', '.join(items)} FROM {from_}{where}{by}{having}", names

    # ------------------------------------------------------------ FROM

    def _from(self, depth: int) -> tuple[str, Columns]:
        text, columns = self._source(depth)
        for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2))):
            more, others = self._source(depth)
            kind = self.rng.choice((",", ",", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
            if kind == ",":
                text, columns = f"{text}, {more}", [*columns, *others]
                continue
            # ON sees what was joined since the last comma: the last item is always in sight.
            last = [each for each in columns if each[0] == columns[-1][0]]
            on = f"{self._column(last)} = {self._column(others)}"
            if self.rng.random() < 0.4:
                on += f" AND {self._predicate([*last, *others])}"
            text, columns = f"{text} {kind} {more} ON {on}", [*columns, *others]
        return text, columns

    def _source(self, depth: int) -> tuple[str, Columns]:
        self._aliases += 1
        alias = f"i{self._aliases}"
        choice = self.rng.random()
        if depth and choice < 0.15:
            text, names = self.query(depth - 1)
            return f"({text}) AS {alias}", [(alias, name) for name in names]
        if depth and choice < 0.3:
            self.derived = True
            text, names = self.block(depth - 1)
            # What came in one instant is told apart only by a small row window.
            window = self.rng.choice((self._window(names), f"[ROWS {self.rng.randrange(1, 4)}]"))
            return f"(ISTREAM({text})) {window} AS {alias}", [(alias, name) for name in names]
        if self.named and choice < 0.4:
            name, names = self.rng.choice(self.named)
            return f"{name} AS {alias}", [(alias, each) for each in names]
        name = self.rng.choice(tuple(COLUMNS))
        window = "" if name == "r" else self._window(COLUMNS[name])
        return f"{name} {window} AS {alias}", [(alias, each) for each in COLUMNS[name]]

    def _window(self, columns: tuple[str, ...]) -> str:
        n, m = self.rng.randrange(2, 9), self.rng.randrange(1, 5)
        return self.rng.choice(
            (
                "[UNBOUNDED]",
                "[NOW]",
                f"[RANGE {n}]",
                f"[RANGE {n} SLIDE {m}]",
                f"[ROWS {n}]",
                f"[ROWS {n}]",
                f"[ROWS {n} SLIDE {m}]",
                f"[PARTITION BY {self.rng.choice(columns)} ROWS {m}]",
            )
        )

    # ------------------------------------------------------------ expressions

    def _column(self, columns: Columns) -> str:
        return ".".join(self.rng.choice(columns))

    def _value(self, columns: Columns) -> str:
        if self.rng.random() < 0.3:
            return f"{self._column(columns)} {self.rng.choice('+-*')} {self._column(columns)}"
        return self._column(columns)

    def _comparison(self) -> str:
        return self.rng.choice(("=", "<>", "<=", "<=", ">=", ">="))

    def _predicate(self, columns: Columns) -> str:
        match self.rng.randrange(8):
            case 0 | 1:
                return f"{self._column(columns)} {self._comparison()} {self.rng.randrange(3)}"
            case 2 | 3:
                return f"{self._column(columns)} {self._comparison()} {self._column(columns)}"
            case 4:
                return f"({self._predicate(columns)} OR {self._predicate(columns)})"
            case 5:
                return f"{self._column(columns)} IS NULL"
            case 6:
                return f"{self._value(columns)} = {self._value(columns)}"
        return f"NOT ({self._predicate(columns)})"

    def _where(self, columns: Columns, depth: int) -> str:
        parts = [self._predicate(columns) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        aliases = {alias for alias, _ in columns}
        if len(aliases) > 1 and self.rng.random() < 0.6:
            parts.append(f"{self._column(columns)} = {self._column(columns)}")
        if depth and self.rng.random() < 0.3:
            parts.append(self._with_query(columns, depth - 1))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _with_query(self, columns: Columns, depth: int) -> str:
        not_ = self.rng.choice(("", "NOT "))
        match self.rng.randrange(3):
            case 0:
                return f"{self._column(columns)} {not_}IN ({self.block(depth, 1)[0]})"
            case 1:
                inner, own = self._source(0)
                tests = [f"{self._column(own)} {self._comparison()} {self._column(columns)}"]
                tests += [self._predicate(own) for _ in range(self.rng.randrange(2))]
                return f"{not_}EXISTS (SELECT * FROM {inner} WHERE {' AND '.join(tests)})"
        inner, own = self._source(0)
        call = f"{self.rng.choice(('MAX', 'COUNT'))}({self._column(own)})"
        return f"{self._column(columns)} {self._comparison()} (SELECT {call} FROM {inner})"
