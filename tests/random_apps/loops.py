"""Random apps with loops: several queries that read one another through delays, over every kind of operator.

A loop through <Now> must come to rest within its time, so there each turn counts up a column `n` that
WHERE bounds. Loops through <d> go on until the input ends; in them anything may stand.
"""

from __future__ import annotations

from random import Random

from tests.random_apps.apps import DOUBLE, INT, TEXT, Maker, RandomApp, Table

COLUMNS = (("n", INT), ("a", INT), ("c", TEXT), ("d", DOUBLE))


class LoopMaker(Maker):
    """Draws one app whose queries c0, c1, ... form loops; v0, v1, ... are relations in between."""

    def app(self) -> RandomApp:
        self.now = self.chance(0.5)
        self._stream("s", (("a", INT), ("b", INT), ("c", TEXT), ("d", DOUBLE)))
        self._stream("r", (("a", INT), ("b", INT), ("c", TEXT), ("d", DOUBLE)))
        self.members = [f"c{i}" for i in range(self.random.randrange(1, 4))]
        self.views_of: list[tuple[str, str]] = []
        for i, name in enumerate(self.members):
            # c0 reads the last one, so all are in one loop; what else they read makes further loops.
            ahead = self.members[i - 1]
            self._member(name, [ahead, *self.random.choices(self.members, k=self.random.randrange(2))])
        for view, read in self.views_of:
            window = self.pick("[ROWS 2]", "[PARTITION BY a ROWS 1]", "[RANGE 1]", "[NOW]")
            where = f" WHERE {self._condition([('t', *column) for column in COLUMNS], 0)}"
            text = f"SELECT t.n, t.a, t.c, t.d FROM {read} {window} AS t{where if self.chance(0.4) else ''}"
            self.statements.append(f"REGISTER QUERY {view} AS {text};")
        self.tables = [table for table in self.tables if table.name in "sr"]
        self.tables += [Table(name, COLUMNS, True) for name in self.members]
        if self.chance(0.4):
            self._query()  # one that reads the loop, or not
        return RandomApp("\n".join(self.statements), self.files)

    def _member(self, name: str, reads: list[str]) -> None:
        source = self.pick("s", "r")
        window = self.pick("[NOW]", "[ROWS 1]", "[RANGE 1]", "[ROWS 2]")
        base = f"SELECT 0 AS n, t.a, t.c, t.d FROM {source} {window} AS t"
        if self.chance(0.3):
            base += f" WHERE {self._condition([('t', *column) for column in COLUMNS[1:]], 1)}"
        branches = [base, *(self._turn(read) for read in reads)]
        # RSTREAM says everything again at every tick, so a loop of it through <Now> never rests.
        kind = self.pick("ISTREAM", "ISTREAM", "ISTREAM", "DSTREAM", "DSTREAM" if self.now else "RSTREAM")
        delay = self.pick("<Now>", "<Now>", "<1>") if self.now else self.pick("<1>", "<2>", "<3>")
        union = " UNION ALL " if self.now or self.chance(0.7) else f" {self.pick('UNION', 'EXCEPT')} "
        text = branches[0] + " UNION ALL " + union.join(branches[1:])
        self.statements.append(f"REGISTER QUERY {name} AS {kind}({text}){delay};")

    def _loop_window(self) -> str:
        choices = ["[NOW]", "[NOW]", "[ROWS 1]", "[ROWS 2]", "[RANGE 0]", "[PARTITION BY a ROWS 1]"]
        if not self.now:
            choices += ["[RANGE 2]", "[ROWS 3 SLIDE 2]", "[RANGE 3 SLIDE 2]", "[RANGE 1 SLIDE 2]"]
            choices += ["[PARTITION BY a, c ROWS 2]"]
        return self.random.choice(choices)

    def _read(self, name: str) -> str:
        """FROM a member, or a relation over it."""
        if self.chance(0.2):
            view = f"v{len(self.views_of)}"
            self.views_of.append((view, name))
            return f"{view} AS t"
        return f"{name} {self._loop_window()} AS t"

    def _turn(self, name: str) -> str:
        """A branch that feeds a member's tuples back, each with n one higher."""
        scope = [("t", column, kind) for column, kind in COLUMNS]
        from_, guard = self._read(name), f"t.n < {self.random.randrange(1, 4)}"
        match self.random.randrange(4 if self.now else 7):
            case 0 | 1:
                if self.chance(0.4):
                    guard += f" AND {self._condition(scope, 1)}"
            case 2 | 3:
                joined = self.pick("JOIN", "JOIN", "LEFT JOIN", "FULL JOIN" if not self.now else "LEFT JOIN")
                outside = (
                    f"{self.pick('s', 'r')} {self.pick('[ROWS 1]', '[NOW]', '[RANGE 1]', '[ROWS 2]')} AS u"
                )
                on = self.pick("t.a = u.a", "t.c = u.c", "t.a = u.a AND t.d <> u.d", "t.a < u.b")
                from_ = f"{from_} {joined} {outside} ON {on}"
                scope += [("u", "b", INT), ("u", "c", TEXT), ("u", "d", DOUBLE)]
            case 4:
                return self._aggregated_turn(from_)
            case 5:
                exists = self.pick("EXISTS", "NOT EXISTS")
                window = self.pick("[ROWS 2]", "[NOW]", "[RANGE 1]")
                test = self.pick("u.a = t.a", "u.a = t.a AND u.c = t.c", "u.a < t.a")
                other = self.pick("s", *self.members)
                guard += f" AND {exists} (SELECT 1 FROM {other} {window} AS u WHERE {test})"
            case 6:
                return (
                    f"SELECT DISTINCT CAST(t.n + 1 AS INTEGER) AS n, t.a, t.c, t.d FROM {from_} WHERE {guard}"
                )
        items = ", ".join(self._expr(scope, kind, 1) for _, kind in COLUMNS[1:])
        return f"SELECT CAST(t.n + 1 AS INTEGER) AS n, {items} FROM {from_} WHERE {guard}"

    def _aggregated_turn(self, from_: str) -> str:
        aggregate = self.pick("COUNT(*)", "SUM(t.a)", "MAX(t.a)", "COUNT(DISTINCT t.c)")
        text = self.pick("MIN(t.c)", "MAX(t.c)", "CAST(NULL AS VARCHAR)")
        number = self.pick("SUM(t.d)", "AVG(t.a)", "AVG(t.d)", "MIN(t.d)")
        group = self.pick("", " GROUP BY t.a", " GROUP BY t.c")
        having = self.pick("", " HAVING COUNT(*) > 1")
        return (
            f"SELECT CAST(MAX(t.n) AS INTEGER) AS n, CAST({aggregate} AS INTEGER) AS a, {text} AS c, "
            f"{number} AS d FROM {from_}{group}{having}"
        )


def random_loops(random: Random) -> RandomApp:
    return LoopMaker(random).app()
