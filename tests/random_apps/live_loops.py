"""Random apps whose loops come, change and go: texts are replaced so that loops close, open and change.

Each query of a loop has several texts: one that reads inputs alone (with it the loops through the query are
open), and some that read other queries of the loop, or itself.
"""

from __future__ import annotations

from random import Random

from kasen.cql.bind.app import bind_text
from kasen.errors import QueryError
from kasen.types import BIGINT
from tests.random_apps.apps import INT, TEXT, TIMES, RandomApp
from tests.random_apps.loops import LoopMaker


class LiveLoopMaker(LoopMaker):
    """A loop maker that draws further texts for the queries it made."""

    def changing(self) -> RandomApp:
        self._relation("p", (("a", INT), ("name", TEXT)))
        app = self.app()
        inputs = [one for one in self.statements if not one.startswith("REGISTER QUERY")]
        queries = [one for one in self.statements if one.startswith("REGISTER QUERY")]
        lines, changes = inputs.copy(), list[list[str]]()
        match self.random.randrange(3):
            case 0:
                lines += queries
            case 1:
                lines += [self._opened(one) for one in queries]
            case 2:
                changes.append(_at(self.random.randrange(-1, TIMES), queries))
        time = 0
        while self.chance(0.7):
            time = self.random.randrange(time, TIMES + 1)
            changes.append(_at(time, self._change(queries)))
        for change in changes:
            if _is_accepted([*lines, *change]):
                lines += change
        return RandomApp("\n".join(lines), app.files)

    def _change(self, queries: list[str]) -> list[str]:
        """What happens at one time: queries get other texts, or go and come back."""
        match self.random.randrange(6):
            case 0:
                return [f"DROP QUERY {self.random.choice(self.members)} CASCADE;"]
            case 1:
                return queries
            case 2:
                return [_replacing(self._opened(one)) for one in queries if self.chance(0.5)]
        changed = [_replacing(self._another(name)) for name in self.members if self.chance(0.6)]
        return changed + [_replacing(self._view(*view)) for view in self.views_of if self.chance(0.5)]

    def _turn(self, name: str) -> str:
        """Joins of three, which run as one step outside loops, and outside relations occur, too."""
        if self.chance(0.7):
            return super()._turn(name)
        other, on = self.pick("r [ROWS 1] AS w", "s [RANGE 1] AS w", "p AS w", "p AS w"), "t.a = u.a"
        from_ = f"{self._read(name)} JOIN s [ROWS 2] AS u ON {on} JOIN {other} ON w.a = u.a"
        return f"SELECT CAST(t.n + 1 AS INTEGER) AS n, t.a, u.c, t.d FROM {from_} WHERE t.n < 2"

    def _view(self, view: str, read: str) -> str:
        """A relation over a query of a loop."""
        window = self.pick("[ROWS 2]", "[PARTITION BY a ROWS 1]", "[RANGE 1]", "[NOW]")
        where = self.pick("", " WHERE t.a > 0", " WHERE EXISTS (SELECT 1 FROM p WHERE p.a = t.a)")
        return f"REGISTER QUERY {view} AS SELECT t.n, t.a, t.c, t.d FROM {read} {window} AS t{where};"

    def _opened(self, query: str) -> str:
        """The query without what it reads of loops: up to its first UNION ALL."""
        base, union, rest = query.partition(" UNION ALL ")
        is_member = query.split()[2] in self.members
        return f"{base}{rest[rest.rindex(')') :]}" if union and is_member and self.chance(0.7) else query

    def _another(self, name: str) -> str:
        views, statements = self.views_of, self.statements
        self.views_of, self.statements = [], []
        while not self.statements or self.views_of:  # no relation in between that is not there
            self.views_of, self.statements = [], []
            self._member(name, self.random.choices(self.members, k=self.random.randrange(1, 3)))
        (found,) = self.statements
        self.views_of, self.statements = views, statements
        return found


def _replacing(query: str) -> str:
    return query.replace("REGISTER", "REPLACE", 1)


def _at(time: int, statements: list[str]) -> list[str]:
    return [f"AT {time} {one}" for one in statements]


def _is_accepted(lines: list[str]) -> bool:
    try:
        bind_text("\n".join(lines), sniff=lambda *_: BIGINT)
    except QueryError:
        return False
    return True


def changing_loops(random: Random) -> RandomApp:
    return LiveLoopMaker(random).changing()
