"""Random apps with data: queries over every operator, small enough for the oracle, wild enough to surprise.

Everything is drawn from one random source, so a seed (or hypothesis) reproduces an app.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

INT, DOUBLE, TEXT, BOOL, DECIMAL = "INTEGER", "DOUBLE", "VARCHAR", "BOOLEAN", "DECIMAL(6, 2)"
TIMES = 14


@dataclass(frozen=True)
class Table:
    """Something that can stand in FROM: its name, columns, and whether it is a stream."""

    name: str
    columns: tuple[tuple[str, str], ...]
    is_stream: bool


@dataclass
class RandomApp:
    """The CQL text and the rows of each input (csv text, header first)."""

    text: str = ""
    files: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Its inputs, where the app reads them."""
        for name, content in self.files.items():
            (folder / name).write_text(content)


@dataclass
class Maker:
    """Draws one app. `scope` lists (alias, column, type) of the block being written."""

    random: Random
    tables: list[Table] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    counter: int = 0

    def app(self) -> RandomApp:
        self._stream("s", (("a", INT), ("b", INT), ("c", TEXT), ("d", DOUBLE)))
        self._stream("r", (("a", INT), ("x", DECIMAL), ("c", TEXT), ("e", BOOL)))
        if self.chance(0.3):
            self._relation("p", (("a", INT), ("name", TEXT)))
        for _ in range(self.random.randrange(1, 4)):
            self._query()
        return RandomApp("\n".join(self.statements), self.files)

    # ------------------------------------------------------------ draws

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def _value(self, kind: str) -> str:
        if self.chance(0.12):
            return ""
        match kind:
            case "INTEGER":
                return str(self.random.randrange(-1, 4))
            case "DOUBLE":
                return self.pick("0.1", "0.2", "0.3", "1e17", "-1e17", "3.5", "-0.0", "nan", "1e-300")
            case "VARCHAR":
                return self.pick("x", "y", "Z", '""', "é", "xy")
            case "BOOLEAN":
                return self.pick("true", "false")
        return self.pick("1.25", "-3.5", "0", "2.00", "99.99")

    def _stream(self, name: str, columns: tuple[tuple[str, str], ...]) -> None:
        ticks = self.pick("", "", " TICK BY TUPLE")
        slack = self.pick("", "", " SLACK 3")
        declared = ", ".join(f"{column} {kind}" for column, kind in columns)
        source = f"FROM 'csv' OPTIONS (path '{name}.csv')"
        self.statements.append(f"REGISTER STREAM {name} ({declared}) TIMESTAMP BY ts{slack}{ticks} {source};")
        times = sorted(self.random.randrange(TIMES) for _ in range(self.random.randrange(0, 13)))
        if slack and self.chance(0.7):
            times = sorted(times, key=lambda ts: ts + self.random.randrange(4))
        rows = [",".join([str(ts), *(self._value(kind) for _, kind in columns)]) for ts in times]
        self.files[f"{name}.csv"] = (
            "\n".join([",".join(["ts", *(column for column, _ in columns)]), *rows]) + "\n"
        )
        self.tables.append(Table(name, columns, True))

    def _relation(self, name: str, columns: tuple[tuple[str, str], ...]) -> None:
        declared = ", ".join(f"{column} {kind}" for column, kind in columns)
        header = [column for column, _ in columns]
        timed = self.chance(0.5)
        by = " TIMESTAMP BY ts" if timed else ""
        source = f"FROM 'csv' OPTIONS (path '{name}.csv')"
        self.statements.append(f"REGISTER RELATION {name} ({declared}){by} {source};")
        rows = []
        for ts in sorted(self.random.randrange(TIMES) for _ in range(self.random.randrange(1, 6))):
            cells = [self._value(kind) for _, kind in columns]
            rows.append(",".join([str(ts), self.pick("1", "1", "-1"), *cells] if timed else cells))
        names = ["ts", "diff", *header] if timed else header
        self.files[f"{name}.csv"] = "\n".join([",".join(names), *rows]) + "\n"
        self.tables.append(Table(name, columns, False))

    # ------------------------------------------------------------ queries

    def _query(self) -> None:
        name = f"q{self.counter}"
        self.counter += 1
        text, columns = self._select(depth=0)
        if self.chance(0.15):
            other, _ = self._select(depth=1, shape=tuple(kind for _, kind in columns))
            operation = self.pick("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")
            text = f"{text} {operation} {other}"
        is_stream = self.chance(0.5)
        if is_stream:
            kind = self.pick("ISTREAM", "DSTREAM", "RSTREAM", f"RSTREAM[{self.random.randrange(1, 4)}]")
            delay = self.pick("", "", "", "<Now>", "<1>", "<3>")
            text = f"{kind}({text}){delay}"
        self.statements.append(f"REGISTER QUERY {name} AS {text};")
        self.tables.append(Table(name, columns, is_stream))

    def _window(self, table: Table) -> str:
        n, m = self.random.randrange(1, 5), self.random.randrange(1, 4)
        keys = ", ".join({column for column, _ in self.random.choices(table.columns, k=2)})
        choices = ["", "[UNBOUNDED]", "[NOW]", f"[RANGE {n - 1}]", f"[RANGE {n} SLIDE {m}]", f"[ROWS {n}]"]
        choices += [f"[ROWS {n} SLIDE {m}]", f"[PARTITION BY {keys} ROWS {n}]", f"[RANGE {n}]", f"[ROWS {n}]"]
        return self.random.choice(choices)

    def _source(self, alias: str, depth: int) -> tuple[str, list[tuple[str, str, str]]]:
        if depth < 1 and self.chance(0.12):
            text, columns = self._select(depth + 1)
            if self.chance(0.4):
                text = f"ISTREAM({text})"
                window = f" [ROWS {self.random.randrange(1, 4)}]"
                return f"({text}){window} AS {alias}", [(alias, column, kind) for column, kind in columns]
            return f"({text}) AS {alias}", [(alias, column, kind) for column, kind in columns]
        table = self.random.choice(self.tables)
        window = self._window(table) if table.is_stream else ""
        scope = [(alias, column, kind) for column, kind in table.columns]
        return f"{table.name} {window} AS {alias}", scope

    def _from(self, depth: int) -> tuple[str, list[tuple[str, str, str]]]:
        text, scope = self._source("t0", depth)
        for i in range(1, self.random.choice([1, 1, 1, 2, 2, 3])):
            more, columns = self._source(f"t{i}", depth)
            joined = scope + columns
            kind = self.pick(",", "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
            if kind == "," and ("JOIN" in text or self.chance(0.5)):
                kind = "JOIN"
            on = "" if kind == "," else f" ON {self._join_condition(scope, columns, joined)}"
            text, scope = f"{text}{'' if kind == ',' else ' '}{kind} {more}{on}", joined
        return text, scope

    def _join_condition(
        self,
        left: list[tuple[str, str, str]],
        right: list[tuple[str, str, str]],
        both: list[tuple[str, str, str]],
    ) -> str:
        pairs = [(a, b) for a in left for b in right if a[2] == b[2] and a[2] in (INT, TEXT)]
        if not pairs or self.chance(0.15):
            return self._condition(both, 1)
        one, other = self.random.choice(pairs)
        text = f"{one[0]}.{one[1]} = {other[0]}.{other[1]}"
        return f"{text} AND {self._condition(both, 0)}" if self.chance(0.3) else text

    def _select(self, depth: int, shape: tuple[str, ...] = ()) -> tuple[str, tuple[tuple[str, str], ...]]:
        from_, scope = self._from(depth)
        where = f" WHERE {self._where(scope, depth)}" if self.chance(0.4) else ""
        if not shape and self.chance(0.4):
            return self._aggregated(from_, where, scope)
        kinds = shape or tuple(
            self.pick(INT, INT, TEXT, DOUBLE, BOOL) for _ in range(self.random.randrange(1, 4))
        )
        items = [self._expr(scope, kind, 1) for kind in kinds]
        if not shape and self.chance(0.2):
            items, kinds = [f"{alias}.{column}" for alias, column, _ in scope], tuple(k for *_, k in scope)
        distinct = "DISTINCT " if self.chance(0.12) else ""
        named = ", ".join(f"{item} AS o{i}" for i, item in enumerate(items))
        columns = tuple((f"o{i}", kind) for i, kind in enumerate(kinds))
        return f"SELECT {distinct}{named} FROM {from_}{where}", columns

    def _aggregated(
        self, from_: str, where: str, scope: list[tuple[str, str, str]]
    ) -> tuple[str, tuple[tuple[str, str], ...]]:
        keys = [
            f"{alias}.{column}" for alias, column, _ in self.random.choices(scope, k=self.random.randrange(3))
        ]
        kinds = {f"{alias}.{column}": kind for alias, column, kind in scope}
        keys = list(dict.fromkeys(keys))
        items = [(key, kinds[key]) for key in keys]
        items += [self._aggregate(scope) for _ in range(self.random.randrange(1, 4))]
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = (
            f" HAVING COUNT(*) {self.pick('>', '>=', '<>')} {self.random.randrange(3)}"
            if self.chance(0.2)
            else ""
        )
        named = ", ".join(f"{item} AS o{i}" for i, (item, _) in enumerate(items))
        columns = tuple((f"o{i}", kind) for i, (_, kind) in enumerate(items))
        return f"SELECT {named} FROM {from_}{where}{group}{having}", columns

    def _aggregate(self, scope: list[tuple[str, str, str]]) -> tuple[str, str]:
        distinct = self.pick("", "", "DISTINCT ")
        match self.random.randrange(9):
            case 0 | 1:
                return "COUNT(*)", "BIGINT"
            case 2:
                return f"COUNT({distinct}{self._any_column(scope)})", "BIGINT"
            case 3:
                return f"SUM({distinct}{self._expr(scope, INT, 0)})", "BIGINT"
            case 4:
                return f"SUM({self._expr(scope, DOUBLE, 0)})", DOUBLE
            case 5:
                return f"AVG({distinct}{self._expr(scope, self.pick(INT, DOUBLE), 0)})", DOUBLE
            case 6:
                function = self.pick("STDDEV", "VAR_POP", "MEDIAN")
                return f"{function}({self._expr(scope, self.pick(INT, DOUBLE), 0)})", DOUBLE
            case _:
                kind = self.pick(INT, TEXT, DOUBLE)
                return f"{self.pick('MIN', 'MAX')}({self._expr(scope, kind, 0)})", kind

    # ------------------------------------------------------------ expressions

    def _any_column(self, scope: list[tuple[str, str, str]]) -> str:
        alias, column, _ = self.random.choice(scope)
        return f"{alias}.{column}"

    def _literal(self, kind: str) -> str:
        if kind == TEXT:
            return self.pick("'x'", "'y'", "''", "NULL")
        if kind == BOOL:
            return self.pick("TRUE", "FALSE", "NULL")
        if kind == DOUBLE:
            return self.pick("0.5e0", "1e17", "CAST(NULL AS DOUBLE)", "3e0")
        return str(self.random.randrange(-1, 4)) if kind == INT else "1.50"

    def _expr(self, scope: list[tuple[str, str, str]], kind: str, depth: int) -> str:
        columns = [f"{alias}.{column}" for alias, column, have in scope if have == kind]
        if columns and (depth <= 0 or self.chance(0.6)):
            return self.random.choice(columns)
        if depth <= 0:
            literal = self._literal(kind)
            return f"CAST({literal} AS {kind})" if literal == "NULL" else literal
        inner = depth - 1
        if kind == BOOL:
            return f"({self._condition(scope, inner)})"
        if self.chance(0.2):
            test = self._condition(scope, 0)
            then, otherwise = self._expr(scope, kind, inner), self._expr(scope, kind, inner)
            return f"CASE WHEN {test} THEN {then} ELSE {otherwise} END"
        if self.chance(0.15):
            return f"COALESCE({self._expr(scope, kind, inner)}, {self._expr(scope, kind, inner)})"
        if kind == TEXT:
            function = self.pick(
                "UPPER({})", "{} || 'k'", "SUBSTRING({}, 1, 1)", "TRIM({})", "REPLACE({}, 'x', 'w')"
            )
            return function.format(self._expr(scope, TEXT, inner))
        left, right = self._expr(scope, kind, inner), self._expr(scope, kind, inner)
        if kind == INT:
            return f"CAST({left} {self.pick('+', '-', '*', '/', '%')} {right} AS INTEGER)"
        return f"({left} {self.pick('+', '-', '*', '/')} {right})"

    def _condition(self, scope: list[tuple[str, str, str]], depth: int) -> str:
        if depth > 0 and self.chance(0.3):
            joined = f" {self.pick('AND', 'OR')} "
            return "(" + joined.join(self._condition(scope, depth - 1) for _ in range(2)) + ")"
        if self.chance(0.12):
            return f"NOT {self._condition(scope, 0)}"
        if self.chance(0.15):
            return f"{self._any_column(scope)} IS {self.pick('', 'NOT ')}NULL"
        kind = self.pick(INT, INT, TEXT, DOUBLE)
        left = self._expr(scope, kind, 0)
        if kind == TEXT and self.chance(0.3):
            return f"{left} LIKE {self.pick(repr('x%'), repr('%y'), repr('_'))}"
        if kind == INT and self.chance(0.2):
            return f"{left} {self.pick('', 'NOT ')}IN (1, {self._expr(scope, INT, 0)})"
        comparison = self.pick("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM")
        return f"{left} {comparison} {self._expr(scope, kind, 0)}"

    def _where(self, scope: list[tuple[str, str, str]], depth: int) -> str:
        if depth or self.chance(0.6):
            return self._condition(scope, 1)
        other = [table for table in self.tables if any(kind == INT for _, kind in table.columns)]
        table = self.random.choice(other)
        column = self.random.choice([name for name, kind in table.columns if kind == INT])
        window = self._window(table) if table.is_stream else ""
        mine = self._expr(scope, INT, 0)
        negated = self.pick("", "NOT ")
        match self.random.randrange(4):
            case 0:
                return f"{mine} {negated}IN (SELECT u.{column} FROM {table.name} {window} AS u)"
            case 1:
                test = f"u.{column} {self.pick('=', '<', '<>')} {self._outer_int(scope)}"
                return f"{negated}EXISTS (SELECT 1 FROM {table.name} {window} AS u WHERE {test})"
            case 2:
                comparison = self.pick("=", "<", ">=")
                return f"{mine} {comparison} (SELECT MAX(u.{column}) FROM {table.name} {window} AS u)"
        quantifier = self.pick(">= ALL", "< ANY")
        return f"{mine} {quantifier} (SELECT u.{column} FROM {table.name} {window} AS u)"

    def _outer_int(self, scope: list[tuple[str, str, str]]) -> str:
        columns = [f"{alias}.{column}" for alias, column, kind in scope if kind == INT]
        return self.random.choice(columns) if columns else "1"


def random_app(random: Random) -> RandomApp:
    return Maker(random).app()
