"""Queries that come and go, and a thousand of them over one stream.

    python -m benchmarks.live [--quick] [part ...]

Parts: count, deliver, sliding, change, churn, spark. Each prints ratios against something else in one run.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from random import Random

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import kasen
from benchmarks._measure import Line, Table, best, speed
from benchmarks.live_spark import change_on_spark
from kasen.engine.batch import Batch, ones, zeros
from kasen.engine.select.kernels.network import BETWEEN
from kasen.engine.select.network import GREATEST, Condition, ConditionTree, Predicate, SelectionNetwork
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.changes import CatalogChange
from kasen.runtime.memory import own_process
from kasen.runtime.pipeline import PreparedChange

KEYS, VALUES = 1000, 1_000_000
_BATCH = 1 << 16


def conditions(count: int, random: Random) -> list[tuple[int | None, int | None]]:
    """(k, v): k = c, v > c, or both, in turn."""
    found: list[tuple[int | None, int | None]] = []
    for number in range(count):
        k = random.randrange(KEYS) if number % 3 != 1 else None
        v = random.randrange(VALUES) if number % 3 != 0 else None
        found.append((k, v))
    return found


def as_condition(k: int | None, v: int | None) -> Condition:
    parts: list[Condition] = []
    if k is not None:
        parts.append(Predicate(BETWEEN, 0, k, k))
    if v is not None:
        parts.append(Predicate(BETWEEN, 1, v + 1, GREATEST))
    return parts[0] if len(parts) == 1 else ConditionTree(True, tuple(parts))


def as_sql(k: int | None, v: int | None) -> str:
    tests = [f"k = {k}"] if k is not None else []
    tests += [f"v > {v}"] if v is not None else []
    return " AND ".join(tests)


def in_python(k: list[int], v: list[int], queries: list[tuple[int | None, int | None]]) -> list[int]:
    """The obvious index: a dict of lists and a sorted list, one tuple after the other."""
    counts = [0] * len(queries)
    by_key: dict[int, list[tuple[int, int | None]]] = {}
    for number, (key, value) in enumerate(queries):
        if key is not None:
            by_key.setdefault(key, []).append((number, value))
    bounds = sorted((value, number) for number, (key, value) in enumerate(queries) if key is None and value)
    values = [value for value, _ in bounds]
    steps = [0] * (len(bounds) + 1)
    for key, value in zip(k, v, strict=True):
        steps[bisect_left(values, value)] += 1
        for number, bound in by_key.get(key, ()):
            if bound is None or value > bound:
                counts[number] += 1
    total = 0
    for at in range(len(bounds), 0, -1):
        total += steps[at]
        counts[bounds[at - 1][1]] += total
    return counts


def count(table: Table, rows: int) -> None:
    """1,000 filter queries over one stream: how many tuples pass each."""
    random = Random(1)
    rng = np.random.default_rng(1)
    k, v = rng.integers(0, KEYS, rows), rng.integers(0, VALUES, rows)
    queries = conditions(1000, random)

    def network(these: list[tuple[int | None, int | None]], rows: int = rows) -> Callable[[], list[int]]:
        selection = SelectionNetwork([False, False], Dictionary())
        for one in these:
            selection.add(as_condition(*one))
        data = np.stack([k[:rows], v[:rows], np.zeros(rows, np.int64)])
        pieces = [np.ascontiguousarray(data[:, at : at + _BATCH]) for at in range(0, rows, _BATCH)]
        batches = [Batch(p[0], zeros(p.shape[1]), ones(p.shape[1]), p) for p in pieces]

        def run() -> list[int]:
            counts = np.zeros(selection.flags, np.int64)
            for batch in batches:
                selection.count(batch, counts)
            found: list[int] = counts.tolist()
            return found

        return run

    small = rows // 20
    frame = pl.DataFrame({"k": k, "v": v})
    connection = duckdb.connect()
    connection.register("tuples", frame[: 4 * small].to_arrow())
    sums = ", ".join(f"SUM(CAST({as_sql(*one)} AS INTEGER))" for one in queries)
    expressions = [pl.sql_expr(as_sql(*one)).sum().alias(str(i)) for i, one in enumerate(queries)]
    all_, few = network(queries), network(queries[:10])
    some = k[:small].tolist(), v[:small].tolist()
    assert list(frame.select(expressions).row(0)) == all_()
    counts: list[tuple[int, ...] | None] = []
    asked = f"SELECT {sums} FROM tuples"
    duck = 4 * small / best(lambda: counts.append(connection.execute(asked).fetchone()), 1)
    assert list(counts[0] or ()) == network(queries, 4 * small)()
    assert in_python(*some, queries) == network(queries, small)()
    many = best(all_, 3)
    rate = rows / many
    python = small / best(lambda: in_python(*some, queries), 2)
    polars = rows / best(lambda: frame.select(expressions).row(0), 2)
    ours = speed(rows, many)
    table.add(Line("count, 1,000 filter queries", ours, "", "", ">= 4 M tuples/s", rate >= 4e6))
    ratio = many / best(few, 3)
    table.add(Line("  time against 10 queries", "", "", f"{ratio:.1f}", "<= 10", ratio <= 10))
    for name, theirs, least in (("pure Python", python, 2.0), ("DuckDB", duck, 5.0), ("Polars", polars, 0.5)):
        ratio = rate / theirs
        shown = f"{name} {theirs / 1e6:.2f} M rows/s"
        table.add(Line("", ours, shown, f"{ratio:.1f}", f">= {least:g}", ratio >= least))


STREAM = "REGISTER STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'memory';\n"


def deliver(table: Table, rows: int) -> None:
    """1,000 selective queries (0.1 % each): their rows, through a pipeline, as Arrow tables."""
    texts = [f"REGISTER QUERY q{i} AS ISTREAM(SELECT k, v FROM s WHERE k = {i});" for i in range(KEYS)]
    rng = np.random.default_rng(2)
    columns = {"k": rng.integers(0, KEYS, rows), "v": rng.integers(0, VALUES, rows), "ts": np.arange(rows)}
    rows_in = pa.table(columns)
    delivered = 0

    def take(_: int, changes: pa.Table) -> None:
        nonlocal delivered
        delivered += len(changes)

    p = kasen.Pipeline()
    p.execute(STREAM + "\n".join(texts))
    for i in range(KEYS):
        p.query(f"q{i}").foreach_batch(take)
    p.push("s", rows_in.slice(0, 1000))
    step = min(rows, 1 << 20)
    started = time.perf_counter()
    for at in range(1000, rows, step):
        p.push("s", rows_in.slice(at, step))
    seconds = time.perf_counter() - started
    assert delivered == rows - 1  # the last tuple's instant is not complete
    rate = (rows - 1000) / seconds
    what = "deliver, 1,000 queries of 0.1 % each"
    table.add(Line(what, speed(rows - 1000, seconds), "", "", ">= 2 M tuples/s", rate >= 2e6))


def sliding(table: Table, rows: int) -> None:
    """100 sliding aggregates by the same key, of 1 to 100 minutes, against one of them.

    Registering them is not in the time; `change` measures that.
    """
    rng = np.random.default_rng(5)
    minute = 60_000_000
    ts = np.sort(rng.integers(0, 300 * minute, rows))
    columns = {"k": rng.integers(0, 100, rows), "v": rng.integers(0, VALUES, rows), "ts": ts}
    rows_in = pa.table(columns)

    def run(lengths: Sequence[int]) -> float:
        texts = [
            f"REGISTER QUERY q{m} AS SELECT k, COUNT(*) AS n, MAX(v) AS top "
            f"FROM s [RANGE {m * minute} SLIDE {minute}] GROUP BY k;"
            for m in lengths
        ]
        p = kasen.Pipeline()
        p.execute(STREAM + "\n".join(texts))
        for m in lengths:
            p.query(f"q{m}").discard()
        p.push("s", rows_in.slice(0, 1000))
        gc.collect()
        started = time.perf_counter()
        p.push("s", rows_in.slice(1000))
        return time.perf_counter() - started

    one, hundred = zip(*[(run([50]), run(range(1, 101))) for _ in range(3)], strict=True)
    ratio = min(hundred) / min(one)
    what = "100 sliding aggregates of 100 groups"
    ours, theirs = speed(rows, min(hundred)), f"one of them {speed(rows, min(one))}"
    table.add(Line(what, ours, theirs, f"{ratio:.1f}", "time at most 5x", ratio <= 5))


def change(table: Table, queries: int) -> None:
    """Registering, replacing and dropping one of many live queries."""
    p = _running(queries)
    pipeline = p._running
    assert pipeline is not None
    whole: dict[str, list[float]] = {"REGISTER": [], "REPLACE": [], "DROP": []}
    held: list[float] = []
    apply = pipeline.apply

    def timed(ready: PreparedChange) -> tuple[CatalogChange, ...]:
        started = time.perf_counter()
        changes = apply(ready)
        held.append(time.perf_counter() - started)
        return changes

    pipeline.apply = timed  # type: ignore[method-assign]
    for number in range(300):
        text = f"SELECT k, v FROM s WHERE k = {number} AND v > {number * 7}"
        statements = {
            "REGISTER": f"REGISTER QUERY fresh AS ISTREAM({text})",
            "REPLACE": f"REPLACE QUERY fresh AS ISTREAM({text} AND v < 100000)",
            "DROP": "DROP QUERY fresh",
        }
        for verb, statement in statements.items():
            started = time.perf_counter()
            p.execute(statement)
            whole[verb].append(time.perf_counter() - started)
    for verb, times in whole.items():
        times.sort()
        median, tail = times[150] * 1e3, times[297] * 1e3
        shown = f"median {median:.2f}, 99 % {tail:.2f} ms"
        what = f"{verb} one of {queries:,}, text to effective"
        table.add(Line(what, shown, "", "", "median < 5, 99 % < 20 ms", median < 5 and tail < 20))
    hold = statistics.median(held) * 1e3
    table.add(Line("  holding the stream up", f"median {hold:.3f} ms", "", "", "< 0.2 ms", hold < 0.2))


def _running(queries: int) -> kasen.Pipeline:
    texts = [
        f"REGISTER QUERY q{i} AS ISTREAM(SELECT k, v FROM s WHERE {as_sql(*one)});"
        for i, one in enumerate(conditions(queries, Random(3)))
    ]
    p = kasen.Pipeline()
    p.execute(STREAM + "\n".join(texts))
    for i in range(queries):
        p.query(f"q{i}").discard()
    p.push("s", pa.table({"k": [1], "v": [1], "ts": [0]}))
    p.advance("s", 1)
    return p


def churn(table: Table, seconds: float) -> None:
    """The stream's throughput while 100 queries a second come or go, against the same stream in peace.

    There are 250 queries at any time; each second 50 of them go, and 50 others come.
    """
    p = kasen.Pipeline()
    names = [f"q{i}" for i in range(250)]
    where = "ISTREAM(SELECT k, v FROM s WHERE k = {})"
    texts = [f"REGISTER QUERY {name} AS {where.format(i)};" for i, name in enumerate(names)]
    p.execute(STREAM + "\n".join(texts))
    for name in names:
        p.query(name).discard()
    rng = np.random.default_rng(4)
    step = 1 << 18
    rows_in = pa.table({"k": rng.integers(0, KEYS, step), "v": rng.integers(0, VALUES, step)})
    clock = 0

    changes = 0

    def go(rate: int, spent: list[float]) -> None:
        """A fifth of a second; adds rows and seconds to what was spent."""
        nonlocal clock, changes
        started, done = time.perf_counter(), 0
        while (passed := time.perf_counter() - started) < 0.2:
            while done < passed * rate:
                name = names[changes % len(names)]
                p.execute(f"DROP QUERY {name}")
                p.execute(f"REGISTER QUERY {name} AS {where.format(changes % KEYS)}")
                p.query(name).discard()
                done += 1
                changes += 1
            ts = np.arange(clock, clock + step)
            p.push("s", rows_in.append_column("ts", pa.array(ts)))
            clock += step
            spent[0] += step
        spent[1] += time.perf_counter() - started

    go(0, [0.0, 0.0])
    # In turn, many times: what else the machine does is in the way of both.
    peace, busy = [0.0, 0.0], [0.0, 0.0]
    for _ in range(int(5 * seconds)):
        go(0, peace)
        go(50, busy)
    in_peace, in_churn = peace[0] / peace[1], busy[0] / busy[1]
    dip = 1 - in_churn / in_peace
    peaceful = f"in peace {in_peace / 1e6:.2f} M rows/s"
    what = "churn, 100 queries a second come or go"
    ours = f"{in_churn / 1e6:.2f} M rows/s"
    table.add(Line(what, ours, peaceful, f"{1 - dip:.2f}", "> 0.9", dip < 0.1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("parts", nargs="*", default=[])
    options = parser.parse_args()
    quick = options.quick
    own_process()  # as `kasen run` does
    table = Table("Queries that come and go")
    parts: dict[str, Callable[[], None]] = {
        "count": lambda: count(table, 1_000_000 if quick else 4_000_000),
        "deliver": lambda: deliver(table, 2_000_000 if quick else 8_000_000),
        "sliding": lambda: sliding(table, 8_000_000 if quick else 20_000_000),
        "change": lambda: change(table, 1000),
        "churn": lambda: churn(table, 6 if quick else 20),
        "spark": lambda: change_on_spark(table),
    }
    for name in options.parts or parts:
        parts[name]()


if __name__ == "__main__":
    main()
