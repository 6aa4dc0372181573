"""Random apps whose loops hand a key on: they run on many shards, and tuples of different keys never meet."""

from __future__ import annotations

from random import Random

from tests.random_apps.apps import RandomApp
from tests.random_apps.loops import COLUMNS, LoopMaker


class KeyedLoopMaker(LoopMaker):
    """Every turn keeps the key: joins and EXISTS compare it, PARTITION BY and GROUP BY have it."""

    def app(self) -> RandomApp:
        self.key = self.pick("a", "a", "c", "d")
        return super().app()

    def _loop_window(self) -> str:
        partitioned = [f"[PARTITION BY {self.key} ROWS {n}]" for n in (1, 2)]
        choices = ["[NOW]", "[RANGE 0]", *partitioned, f"[PARTITION BY n, {self.key} ROWS 1]"]
        if not self.now:
            choices += ["[RANGE 2]", "[RANGE 3 SLIDE 2]", "[RANGE 1 SLIDE 2]"]
        return self.random.choice(choices)

    def _member(self, name: str, reads: list[str]) -> None:
        super()._member(name, reads)
        # RSTREAM speaks whenever any key moves.
        self.statements[-1] = self.statements[-1].replace("RSTREAM", "ISTREAM")

    def _turn(self, name: str) -> str:
        from_, guard = self._read(name), f"t.n < {self.random.randrange(1, 4)}"
        scope = [("t", column, kind) for column, kind in COLUMNS]
        match self.random.randrange(4 if self.now else 7):
            case 0 | 1:
                guard += f" AND {self._condition(scope, 1)}" if self.chance(0.4) else ""
            case 2 | 3:
                joined = self.pick("JOIN", "JOIN", "LEFT JOIN")
                window = self.pick("[ROWS 1]", "[NOW]", "[RANGE 1]", "[ROWS 2]")
                more = self.pick("", "", " AND t.n <> u.b")
                on = f"t.{self.key} = u.{self.key}{more}"
                from_ = f"{from_} {joined} {self.pick('s', 'r')} {window} AS u ON {on}"
                scope += [("u", "b", "INTEGER"), ("u", "c", "VARCHAR"), ("u", "d", "DOUBLE")]
            case 4:
                items = [f"MAX(t.{column}) AS {column}" for column, _ in COLUMNS[1:]]
                items = [item for item in items if not item.endswith(f" {self.key}")]
                items.insert([column for column, _ in COLUMNS[1:]].index(self.key), f"t.{self.key}")
                listed = ", ".join(items)
                return f"SELECT CAST(COUNT(*) AS INTEGER) AS n, {listed} FROM {from_} GROUP BY t.{self.key}"
            case 5:
                exists = self.pick("EXISTS", "NOT EXISTS")
                other = f"{self.pick('s', *self.members)} {self.pick('[RANGE 2]', '[NOW]', '[RANGE 1]')} AS u"
                test = f"u.{self.key} = t.{self.key}"
                guard += f" AND {exists} (SELECT 1 FROM {other} WHERE {test})"
            case 6:
                return (
                    f"SELECT DISTINCT CAST(t.n + 1 AS INTEGER) AS n, t.a, t.c, t.d FROM {from_} WHERE {guard}"
                )
        items = [
            f"t.{column}" if column == self.key else self._expr(scope, kind, 1)
            for column, kind in COLUMNS[1:]
        ]
        return f"SELECT CAST(t.n + 1 AS INTEGER) AS n, {', '.join(items)} FROM {from_} WHERE {guard}"


def keyed_loops(random: Random) -> RandomApp:
    return KeyedLoopMaker(random).app()
