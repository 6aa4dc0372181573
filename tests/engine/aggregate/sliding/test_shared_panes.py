"""Sliding aggregates that share their panes answer as each does by itself, whoever comes and goes."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import kasen
from kasen.engine.aggregate.sliding import shared_panes as shared_windows
from kasen.engine.aggregate.sliding.sharable import SharableSlidingAggregate
from kasen.engine.aggregate.sliding.shared_panes import SharedPanes
from kasen.errors import QueryError

STREAM = """REGISTER STREAM s (ts BIGINT, k VARCHAR, j BIGINT, v BIGINT, w DECIMAL(10, 2))
    TIMESTAMP BY ts RETAIN 30 FROM 'memory';"""
CALLS = [
    "COUNT(*) AS n, MAX(v) AS top",
    "MIN(v) AS low, SUM(w) AS total, COUNT(v) AS n",
    "AVG(w) AS mean",
]
WINDOWS = [(5, 5), (20, 5), (35, 5), (60, 5), (10, 15), (15, 10)]


def query(random: Random) -> str:
    length, slide = random.choice(WINDOWS)
    keys = random.choice(["k", "j, k"])
    return f"SELECT {keys}, {random.choice(CALLS)} FROM s [RANGE {length} SLIDE {slide}] GROUP BY {keys}"


def rows(random: Random, clock: int, size: int) -> tuple[pa.Table, int]:
    """So many rows from a time on: mostly plain, at times with NULLs, great values, gaps and new groups."""
    kind = random.choice(["plain"] * 6 + ["null key", "null", "great", "gap", "new"])
    clock += 150 if kind == "gap" else 0
    ts = sorted(clock + random.randrange(2 + size // 4) for _ in range(size))
    groups = [f"g{random.randrange(10**6)}" for _ in range(30)] if kind == "new" else ["b", "a", "ü", ""]
    most = 2**61 if kind == "great" else 1000

    def some(value: Any, when: str) -> Any:
        return None if kind == when and random.random() < 0.1 else value

    table = {
        "ts": ts,
        "k": [some(random.choice(groups), "null key") for _ in ts],
        "j": [random.randrange(3) for _ in ts],
        "v": [some(random.randrange(-most, most), "null") for _ in ts],
        "w": [some(random.randrange(-1000, 1000), "null") for _ in ts],
    }
    arrays = {name: pa.array(values) for name, values in table.items()}
    arrays["w"] = arrays["w"].cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
    return pa.table(arrays), ts[-1] + 1


def story(seed: int, operations: int) -> tuple[dict[str, list[pa.Table]], int]:
    """What all queries said, and how often one was seen to share its panes."""
    random = Random(seed)
    p = kasen.Pipeline()
    names = [f"q{number}" for number in range(8)]
    p.execute(STREAM + ";".join(f"REGISTER QUERY {name} AS {query(random)}" for name in names))
    answers: dict[str, list[pa.Table]] = {}
    live, clock, shared = names.copy(), 0, 0

    def read() -> None:
        for name in live:
            answers.setdefault(name, []).append(p.query(name).to_arrow().combine_chunks())

    for number in range(operations):
        table, clock = rows(random, clock, random.choice([1, 5, 40, 1500]))
        p.push("s", table)
        running = p._running
        assert running is not None
        if random.random() < 0.5:
            p.advance("s", clock + random.choice([0, 0, 3, 70]))
            clock = max(clock, running.frontier)
        read()
        what = random.choice(["register", "backfill", "replace", "drop", "restart", "", "", ""])
        if what in ("register", "backfill"):
            live.append(f"q{number + 100}")
            p.execute(f"REGISTER QUERY {live[-1]} {what if what == 'backfill' else ''} AS {query(random)}")
        elif what == "replace":
            text = query(random)
            name = random.choice(live)
            with suppress(QueryError):  # the same window, of which the old text keeps less
                p.execute(
                    f"DROP QUERY {name}" if random.random() < 0.5 else f"REPLACE QUERY {name} AS {text}"
                )
            if name not in running.queries:
                live.remove(name)
        elif what == "drop" and len(live) > 4:
            p.execute(f"DROP QUERY {live.pop(random.randrange(len(live)))}")
        elif what == "restart":
            running.graph.renew()
        shared += sum(
            isinstance(each, SharableSlidingAggregate) and each.own is None
            for each in running.graph.operators
        )
    p.advance("s", clock + 500)
    read()
    return answers, shared


@pytest.mark.parametrize("seed", range(8))
def test_together_as_alone_while_queries_come_and_go(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_windows, "_PAUSE", 2)
    monkeypatch.setattr(shared_windows, "_LOOK", 3)
    together, shared = story(seed, 40)
    assert shared > 40
    monkeypatch.setattr(SharedPanes, "welcome", lambda *_: None)
    monkeypatch.setattr(SharedPanes, "offer", lambda *_: None)
    alone, shared = story(seed, 40)
    assert not shared
    assert together == alone
    assert sum(len(each) for tables in alone.values() for each in tables) > 1000


def test_queries_know_with_whom_they_share_panes() -> None:
    p = kasen.Pipeline()
    text = "SELECT k, MAX(v) AS top FROM s [RANGE {} SLIDE 5] GROUP BY k"
    p.execute(STREAM + ";".join(f"REGISTER QUERY q{n} AS {text.format(n)}" for n in (5, 10, 20)))
    p.push("s", rows(Random(1), 0, 40)[0])
    assert p._running is not None
    assert p._running.live.shared_with("q5") == {"q10", "q20"}
    p.execute("DROP QUERY q10")
    assert p._running.live.shared_with("q5") == {"q20"}
    assert p._running.live.reads("q5") == ["s"]
