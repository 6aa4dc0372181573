"""Grows random queries from the grammar: they always parse, and so reach every corner of the binder."""

from __future__ import annotations

import random

_COLUMNS = "a b c d e f u ts s.a s.b t.a t.x t.y k v x.a nothing".split()  # noqa: SIM905
_CONSTANTS = ["1", "0", "-1", "2147483648", "1.5", "1e0", "'x'", "'5'", "''", "NULL", "TRUE", "FALSE"]
_CONSTANTS += ["TIMESTAMP '2026-01-01'", "INTERVAL '5' MINUTE", "'2026-01-01 00:00:00'"]
_FUNCTIONS = [
    "ABS",
    "SIGN",
    "FLOOR",
    "CEIL",
    "ROUND",
    "SQRT",
    "LENGTH",
    "UPPER",
    "TRIM",
    "COALESCE",
    "GREATEST",
    "NULLIF",
    "IF",
    "CONCAT",
    "REPLACE",
]
_FUNCTIONS += "SUBSTRING STRPOS CONTAINS DATE_TRUNC WINDOW_END WINDOW_START FOO".split()  # noqa: SIM905
_AGGREGATES = "COUNT SUM AVG MIN MAX STDDEV VAR_POP MEDIAN PERCENTILE_CONT PERCENTILE_DISC".split()  # noqa: SIM905
_TYPES = "INTEGER BIGINT DOUBLE DECIMAL(5,2) VARCHAR TIMESTAMP BOOLEAN".split()  # noqa: SIM905
_WINDOWS = ["", "", "[NOW]", "[ROWS 5]", "[ROWS 5 SLIDE 2]", "[RANGE 5 MINUTES]", "[PARTITION BY a ROWS 1]"]
_WINDOWS += ["[RANGE 5 MINUTES SLIDE 1 MINUTE]", "[UNBOUNDED]", "[PARTITION BY x.a, ts ROWS 1]"]


class Grower:
    """Grows one text; `fuel` bounds its size."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.fuel = rng.choice((5, 15, 30, 60))

    def _one(self, *texts: str) -> str:
        return self.rng.choice(texts)

    def query(self) -> str:
        self.fuel -= 1
        choice = self.rng.random()
        if choice < 0.7 or self.fuel < 0:
            return self.select()
        if choice < 0.8:
            word = self._one("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT")
            return f"{self.query()} {word} {self.query()}"
        if choice < 0.9:
            kind = self._one("ISTREAM", "DSTREAM", "RSTREAM", "RSTREAM[1 MINUTE]")
            return f"{kind}({self.query()}){self._one('', '', '<Now>', '<5 SECONDS>')}"
        if choice < 0.95:
            return f"WITH x AS ({self.query()}) {self.query()}"
        return f"({self.query()})"

    def select(self) -> str:
        items = ", ".join(self.item() for _ in range(self.rng.choice((1, 1, 2, 3))))
        if self.rng.random() < 0.05:
            items = f"ISTREAM({items})"
        text = f"SELECT {self._one('', '', '', 'DISTINCT ')}{items} FROM {self.from_()}"
        if self.rng.random() < 0.5:
            text += f" WHERE {self.condition()}"
        if self.rng.random() < 0.3:
            keys = ", ".join(
                self._one(self.expression(), "1", "a", "n") for _ in range(self.rng.choice((1, 2)))
            )
            text += f" GROUP BY {keys}"
        if self.rng.random() < 0.15:
            text += f" HAVING {self.condition()}"
        return text

    def item(self) -> str:
        choice = self.rng.random()
        if choice < 0.15:
            return self._one("*", "s.*", "x.*")
        value = self.aggregate() if choice < 0.35 else self.expression()
        return value + self._one("", "", "", " AS n", " AS a", " m")

    def from_(self) -> str:
        text = self.from_item()
        while self.rng.random() < 0.3 and self.fuel > 0:
            kind = self._one(",", ",", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN")
            text += f" {kind} {self.from_item()}"
            if kind not in (",", "CROSS JOIN"):
                text += f" ON {self.condition()}"
        return text

    def from_item(self) -> str:
        choice = self.rng.random()
        if choice < 0.2 and self.fuel > 0:
            text = f"({self.query()})"
        else:
            text = self._one("s", "s", "s", "t", "t", "r", "x", "q")
        return f"{text} {self.rng.choice(_WINDOWS)} {self._one('', '', '', 'AS x', 'y')}"

    def expression(self) -> str:
        self.fuel -= 1
        choice = self.rng.random()
        if choice < 0.4 or self.fuel < 0:
            return self.rng.choice(_COLUMNS)
        if choice < 0.6:
            return self.rng.choice(_CONSTANTS)
        if choice < 0.75:
            return f"{self.expression()} {self._one('+', '-', '*', '/', '%', '||')} {self.expression()}"
        if choice < 0.85:
            args = ", ".join(self.expression() for _ in range(self.rng.choice((0, 1, 1, 2, 3))))
            return f"{self.rng.choice(_FUNCTIONS)}({args})"
        if choice < 0.88:
            return f"CAST({self.expression()} AS {self.rng.choice(_TYPES)})"
        if choice < 0.91:
            return f"CASE WHEN {self.condition()} THEN {self.expression()} ELSE {self.expression()} END"
        if choice < 0.94:
            return f"(SELECT {self.aggregate()} FROM {self.from_()})"
        if choice < 0.96:
            return self.aggregate()
        return f"({self._one(self.expression(), self.condition())})"

    def aggregate(self) -> str:
        name = self.rng.choice(_AGGREGATES)
        if name == "COUNT" and self.rng.random() < 0.5:
            return "COUNT(*)"
        more = ", 0.5" if name.startswith("PERCENTILE") else ""
        return f"{name}({self._one('', '', 'DISTINCT ')}{self.expression()}{more})"

    def condition(self) -> str:
        self.fuel -= 1
        choice = self.rng.random()
        if choice < 0.5 or self.fuel < 0:
            return f"{self.expression()} {self._one('=', '<>', '<', '<=', '>', '>=')} {self.expression()}"
        if choice < 0.65:
            return f"{self.condition()} {self._one('AND', 'AND', 'OR')} {self.condition()}"
        if choice < 0.7:
            return f"NOT {self.condition()}"
        if choice < 0.75:
            what = self._one("NULL", "TRUE", "DISTINCT FROM a")
            return f"{self.expression()} IS {self._one('', 'NOT ')}{what}"
        if choice < 0.8:
            return f"{self.expression()} {self._one('', 'NOT ')}IN (1, {self.expression()})"
        if choice < 0.85:
            return f"{self._one('a', '(a, b)', self.expression())} {self._one('', 'NOT ')}IN ({self.query()})"
        if choice < 0.9:
            return f"{self._one('', 'NOT ')}EXISTS ({self.query()})"
        if choice < 0.93:
            return f"{self.expression()} {self._one('=', '<')} {self._one('ALL', 'ANY')} ({self.query()})"
        if choice < 0.96:
            return f"{self.expression()} BETWEEN {self.expression()} AND {self.expression()}"
        return f"{self.expression()} LIKE {self._one('c', chr(39) + 'x%' + chr(39))}"
