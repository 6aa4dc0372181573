"""Random queries that are replaced by other texts over the same windows, or almost the same.

A query is drawn as its clauses; a replacement draws some of them anew. Everything is drawn from one random
source, so a seed reproduces an app.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.random_apps.apps import TIMES, Maker, RandomApp

_WINDOWS = (
    "[UNBOUNDED]",
    "[RANGE 4]",
    "[RANGE 20]",
    "[NOW]",
    "[ROWS 3]",
    "[ROWS 4 SLIDE 3]",
    "[RANGE 6 SLIDE 2]",
    "[RANGE 3 SLIDE 4]",
    "[PARTITION BY a ROWS 2]",
)
_ITEMS = (
    "x.a, x.b",
    "x.b AS a, x.a AS b",
    "x.a, x.c",
    "x.a + 1 AS a, x.b",
    "DISTINCT x.a, x.b",
    "x.a",
)
_GROUPED = (
    "MIN(x.b) AS v",
    "MIN(x.b) AS v, COUNT(*) AS n",
    "COUNT(*) AS n",
    "SUM(x.b) AS n",
    "SUM(x.b) AS n, MAX(x.b) AS v",
    "COUNT(DISTINCT x.b) AS n",
    "MAX(x.c) AS v",
    "AVG(x.d) AS v",
)
_CONDITIONS = ("x.a > 0", "x.b < 3", "x.a <> 2", "x.c = 'x'", "x.b IS NOT NULL")
_JOINED = ("x.a = y.a", "x.c = y.c", "x.a < y.a", "x.a = y.a AND x.c = y.c")
_HAVING = ("COUNT(*) > 0", "COUNT(*) > 1", "MIN(x.b) < 2", "x.a > 0", "MAX(x.b) >= 1")
_HEADS = ("", "", "ISTREAM", "DSTREAM", "RSTREAM", "RSTREAM[3]")


@dataclass(frozen=True)
class Clauses:
    """A query by its clauses; `y` is the window of the second FROM item, `group` whether it has GROUP BY."""

    head: str
    items: str
    x: str
    y: str
    conditions: frozenset[str]
    joined: str
    group: str
    having: str
    around: str

    def text(self) -> str:
        items = self.items if not self.group else ", ".join(filter(None, [self._key, self.items]))
        conditions = sorted(self.conditions)
        from_ = f"s {self.x} AS x"
        if self.y.startswith("r"):
            from_, conditions = f"{from_}, {self.y} AS y", [*conditions, self.joined]
        elif self.y:
            from_ = f"{from_} {self.y} AS y ON {self.joined}"
        text = f"SELECT {items} FROM {from_}"
        if conditions:
            text += f" WHERE {' AND '.join(conditions)}"
        if self.group and self._key:
            text += f" GROUP BY {self.group}"
        if self.group and self.having:
            text += f" HAVING {self.having}"
        if self.around:
            text = f"SELECT * FROM ({text}) AS z WHERE {self.around}"
        return f"{self.head}({text})" if self.head else text

    @property
    def _key(self) -> str:
        if self.group == "all":
            return ""
        return f"{self.group} AS a"


@dataclass(frozen=True)
class Replacements:
    """Draws clauses."""

    random: Random

    def _some(self, *choices: str) -> str:
        return self.random.choice(choices)

    def clauses(self) -> Clauses:
        group = self._some("", "", "x.a", "x.a", "x.a % 2", "all")
        return Clauses(
            self._some(*_HEADS),
            self._items(group),
            self._some(*_WINDOWS),
            self._second(),
            self._conditions(),
            self._some(*_JOINED),
            group,
            self._having(group),
            self._some("", "", "", "", "z.a > 0"),
        )

    def _items(self, group: str) -> str:
        return self._some(*_GROUPED) if group else self._some(*_ITEMS)

    def _having(self, group: str) -> str:
        found = self._some("", *_HAVING) if group else ""
        return "" if found == "x.a > 0" and group != "x.a" else found

    def _second(self) -> str:
        joined = self._some("r ", "LEFT JOIN r ", "JOIN r ")
        return self._some("", "", joined + self._some(*_WINDOWS[:-1]))

    def _conditions(self) -> frozenset[str]:
        return frozenset(self.random.sample(_CONDITIONS, self._few(0.6, 0.3, 0.1)))

    def _few(self, *weights: float) -> int:
        return self.random.choices(range(len(weights)), weights)[0]

    def other(self, old: Clauses) -> Clauses:
        """Another text: one or two clauses are drawn anew, mostly above the windows."""
        for _ in range(1 + self._few(0.6, 0.4)):
            match self.random.randrange(12):
                case 0 | 1 | 2:
                    old = replace(old, head=self._some(*_HEADS))
                case 3 | 4 | 5:
                    old = replace(old, having=self._having(old.group))
                case 6 | 7:
                    old = replace(old, items=self._items(old.group))
                case 8:
                    group = self._some("", "x.a", "x.a % 2", "all")
                    old = replace(old, group=group, items=self._items(group), having=self._having(group))
                case 9:
                    old = replace(old, conditions=self._conditions())
                case 10:
                    old = replace(old, joined=self._some(*_JOINED), around=self._some("", "z.a > 0"))
                case 11:
                    old = replace(old, x=self._some(*_WINDOWS), y=self._second())
        return old


def replaced_app(random: Random) -> RandomApp:
    """An app with one query that is replaced once to three times, and maybe a reader of it."""
    maker = Maker(random)
    app = maker.app()
    drawn = Replacements(random)
    lines = [one for one in maker.statements if not one.startswith("REGISTER QUERY")]
    clauses = drawn.clauses()
    lines.append(f"REGISTER QUERY q AS {clauses.text()};")
    if random.random() < 0.3:
        window = "" if not clauses.head else random.choice([" [RANGE 5]", " [ROWS 2]", ""])
        lines.append(f"REGISTER QUERY reader AS SELECT COUNT(*) AS n FROM q{window};")
    times = sorted(random.sample(range(2, TIMES), random.choice([1, 1, 2, 3])))
    for at in times:
        clauses = drawn.other(clauses)
        lines.append(f"AT {at} REPLACE QUERY q AS {clauses.text()};")
    for name in ("s.csv", "r.csv"):
        app.files[name] = _more_rows(maker, name, app.files[name])
    return RandomApp("\n".join(lines), app.files)


def _more_rows(maker: Maker, name: str, text: str) -> str:
    """At least ten rows, so that windows hold something when the text changes."""
    header, *rows = text.splitlines()
    table = next(one for one in maker.tables if f"{one.name}.csv" == name)
    while len(rows) < 10:
        cells = [maker._value(kind) for _, kind in table.columns]
        rows.append(",".join([str(maker.random.randrange(TIMES)), *cells]))
    rows.sort(key=lambda row: int(row.split(",")[0]))
    return "\n".join([header, *rows]) + "\n"
