"""Random joins of two to five inputs: every method of joining agrees with the oracle."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kasen.cql.bind.app import bind_text
from tests.cases_format import shown
from tests.engines import Engine, local, sharded
from tests.oracle import run_app, sniffer

METHODS = ("", "JOIN_TREE", "PARALLEL_TREES", "MJOIN", "PARALLEL_MJOIN")
ENGINES: dict[str, Engine] = {
    f"{method or 'by choice'}, batches of {batch}": local(batch, restart=restart, joins=method)
    for method in METHODS
    for batch, restart in ((1 << 16, False), (3, True))
} | {
    f"{method or 'by choice'} on {shards} shards": sharded(batch, shards, restart=restart, joins=method)
    for method, shards, batch, restart in zip(
        METHODS, (2, 3, 2, 3, 2), (3, 5, 3, 5, 3), (True, False, True, True, False), strict=True
    )
}


def window(random: Random) -> str:
    n, m = random.randrange(1, 5), random.randrange(1, 4)
    common = ["[UNBOUNDED]", "[NOW]", f"[RANGE {n - 1}]", f"[RANGE {n}]", f"[ROWS {n}]", f"[ROWS {n}]"]
    rare = [f"[ROWS {n} SLIDE {m}]", f"[RANGE {n} SLIDE {m}]", f"[PARTITION BY a ROWS {n}]"]
    return random.choice(common * 2 + rare)


def stream(random: Random, name: str, folder: Path) -> str:
    times = sorted(random.randrange(9) for _ in range(random.randrange(3, 9)))
    cells = [[str(random.randrange(3)) if random.random() < 0.9 else "" for _ in "abc"] for _ in times]
    rows = [f"{ts},{','.join(row)}" for ts, row in zip(times, cells, strict=True)]
    (folder / f"{name}.csv").write_text("\n".join(["ts,a,b,c", *rows]) + "\n")
    ticks = random.choice(["", " TICK BY TUPLE"])
    source = f"FROM 'csv' OPTIONS (path '{name}.csv')"
    return f"REGISTER STREAM {name} (a INTEGER, b INTEGER, c INTEGER) TIMESTAMP BY ts{ticks} {source};"


def condition(random: Random, inputs: int) -> str:
    """One key for all, a chain of keys, or some without any; sometimes more beside it."""
    columns = [random.choice("ab") for _ in range(inputs)]
    parts = []
    for i in range(1, inputs):
        left = random.randrange(i) if random.random() < 0.4 else 0
        if random.random() < 0.85:
            mine = columns[left] if random.random() < 0.7 else "b"
            parts.append(f"t{left}.{mine} = t{i}.{columns[i]}")
    if random.random() < 0.4:
        one, other = random.sample(range(inputs), 2)
        parts.append(random.choice([f"t{one}.c < t{other}.c", f"t{one}.c = t{other}.b + 1"]))
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def query(random: Random, inputs: int) -> str:
    sources = ", ".join(f"s{i} {window(random)} AS t{i}" for i in range(inputs))
    everything = ", ".join(f"t{i}.{c} AS {c}{i}" for i in range(inputs) for c in "abc")
    some = ", ".join(f"t{i}.{random.choice('abc')} AS x{i}" for i in range(inputs))
    items = random.choice([everything, some, "t0.a AS x", "t0.a + t1.b AS x, t1.c AS y"])
    where = condition(random, inputs)
    if random.random() < 0.2:
        return f"SELECT t0.a AS k, COUNT(*) AS n, SUM(t1.c) AS x FROM {sources}{where} GROUP BY t0.a"
    text = f"SELECT {items} FROM {sources}{where}"
    kind = random.choice(["", "ISTREAM", "ISTREAM", "ISTREAM", "DSTREAM", "RSTREAM"])
    return f"{kind}({text})" if kind else text


def check(seed: int, folder: Path) -> None:
    random = Random(seed)
    inputs = random.choice([2, 2, 3, 3, 4, 5])
    statements = [stream(random, f"s{i}", folder) for i in range(inputs)]
    statements += [f"REGISTER QUERY q{n} AS {query(random, inputs)};" for n in range(2)]
    text = "\n".join(statements)
    app = bind_text(text, folder, "", sniffer(folder))
    expected = run_app(app, folder)
    for label, engine in ENGINES.items():
        found = engine(app, folder)
        for one in app.queries:
            right = shown(expected.queries[one.name], one.schema, app.time)
            assert shown(found.queries[one.name], one.schema, app.time) == right, f"{seed=} {label}\n{text}"


@pytest.mark.parametrize("block", range(4))
def test_60_random_joins_agree_with_the_oracle(block: int, tmp_path: Path) -> None:
    for seed in range(block * 15, block * 15 + 15):
        check(seed, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(20))
def test_1000_random_joins_agree_with_the_oracle(block: int, tmp_path: Path) -> None:
    for seed in range(1000 + block * 50, 1000 + block * 50 + 50):
        check(seed, tmp_path)
