"""The local engine's speed beside that of others, measured in one run on the same Arrow memory.

Kasen gets Arrow record batches through Pipeline.push and hands out Arrow tables: reading, ordering, all
instants' answers and making Arrow of them are in its time. Peers compute the same in batch, on two threads,
from the same Arrow memory to an Arrow table. Usage: local.py [--quick] [--spark] [--soak] [part ...]
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import kasen
from benchmarks._measure import Line, Table, best, best_of_each, resident, speed
from kasen.cql.bind.app import bind_text
from kasen.plan.physical import plan_app
from kasen.runtime.input.feed import InputRows
from kasen.runtime.memory import own_process
from kasen.runtime.pipeline import RunningPipeline

MINUTE = 60_000_000
CHUNK = 1 << 19
KEYS = 1000
STREAM = "REGISTER STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts FROM 'memory';"


def events(rows: int, span: int, seed: int = 1) -> pa.Table:
    """Rows of 1000 keys at random times in [0, span) µs, in order of time."""
    random = np.random.default_rng(seed)
    ts = np.sort(random.integers(0, span, rows))
    values = {"k": random.integers(0, KEYS, rows), "v": random.integers(0, 1_000_000, rows)}
    return pa.table({"ts": pa.array(ts, pa.timestamp("us")), **values})


def run(query: str, table: pa.Table) -> tuple[int, pa.Table]:
    """Pushes a table through one query, chunk by chunk; how many changes came out, and the last of them."""
    pipeline = kasen.Pipeline().execute(f"{STREAM} REGISTER QUERY q AS {query};")
    count = 0
    last = pipeline.query("q").schema.empty_table()

    def take(_: int, changes: pa.Table) -> None:
        nonlocal count, last
        count += len(changes)
        last = changes

    pipeline.query("q").foreach_batch(take)
    for batch in table.to_batches(max_chunksize=CHUNK):
        pipeline.push("s", batch)
    pipeline.drain()
    return count, last


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    return connection


# ---------------------------------------------------------------- parts


def scan(out: Table, quick: bool) -> None:
    """Filter, project, count: the count at every instant against one count of everything."""
    rows = 5_000_000 if quick else 50_000_000
    table = events(rows, rows // 10)
    # 10,000 rows an instant, so that there is something to answer 5,000 times.
    coarse = pa.array((np.arange(rows) // 10_000) * 1_000_000, pa.timestamp("us"))
    table = table.set_column(0, "ts", coarse)
    query = "SELECT COUNT(c) AS n FROM (SELECT k * 3 + v AS c FROM s [UNBOUNDED] WHERE k < 500)"
    answers: list[int] = []

    def ours() -> None:
        _, last = run(query, table)
        answers.append(last.column("n")[len(last) - 1].as_py())

    connection = connect()
    connection.register("s", table)
    counted: list[int] = []

    def duck() -> None:
        text = "SELECT COUNT(c) FROM (SELECT k * 3 + v AS c FROM s WHERE k < 500)"
        counted.append(connection.sql(text).to_arrow_table().column(0)[0].as_py())

    theirs, mine = best_of_each((duck, ours), 3 if quick else 8)
    assert answers[-1] == counted[-1], (answers[-1], counted[-1])
    ratio = mine / theirs
    what = f"filter, project, count: {rows / 1e6:.0f} M rows"
    out.add(
        Line(what, f"{mine:.2f} s", f"DuckDB {theirs:.2f} s", f"{ratio:.2f}", "time at most 2x", ratio <= 2)
    )


def sliding(out: Table, quick: bool, spark: bool) -> None:
    """MAX and COUNT per key: dense data beside others, then the longest range beside the shortest.

    Spans are three times the longest range, so that windows expire; for each range all get the same data.
    """
    rows = 2_000_000 if quick else 20_000_000
    longest = 600 if quick else 3600
    dense = events(rows, 3 * 60 * MINUTE)
    rates = {minutes: _against_batch(out, dense, minutes, judged=minutes == 60) for minutes in (4, 60)}
    if spark:
        theirs = _spark_rate(dense.slice(0, 500_000))
        ratio = rates[60] / theirs
        peer = f"Spark window() {theirs / 1e6:.3f} M rows/s"
        ours = f"{rates[60] / 1e6:.2f} M rows/s"
        out.add(Line("  the same at RANGE 60", ours, peer, f"{ratio:.0f}", "at least 100x", ratio >= 100))
    sparse = events(rows, 3 * longest * MINUTE)
    rates = {minutes: _against_batch(out, sparse, minutes, judged=False) for minutes in (4, longest)}
    ratio = rates[longest] / rates[4]
    what = f"  rows/s at RANGE {longest} / at RANGE 4"
    out.add(Line(what, f"{ratio:.2f}", "", f"{ratio:.2f}", "at least 0.8", ratio >= 0.8))


def _against_batch(out: Table, table: pa.Table, minutes: int, *, judged: bool) -> float:
    """Measures one range beside the better of the others; our rows a second."""
    connection = connect()
    connection.register("s", table)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    query = (
        "ISTREAM(SELECT k, MAX(v) AS top, COUNT(*) AS n "
        f"FROM s [RANGE {minutes} MINUTES SLIDE 1 MINUTE] GROUP BY k)"
    )
    seconds = best(partial(run, query, table), 2)
    duck = best(partial(_duck_panes, connection, minutes), 2)
    polars = best(partial(_polars_panes, frame, minutes), 2)
    name, theirs = min(("DuckDB", duck), ("Polars", polars), key=lambda each: each[1])
    ratio = theirs / seconds
    span = (table.column("ts")[-1].value - table.column("ts")[0].value) // MINUTE + 1
    what = f"MAX, COUNT by key: RANGE {minutes} SLIDE 1, {len(table) / 1e6:.0f} M rows in {span} minutes"
    target, met = ("at least 1x the better", ratio >= 1) if judged else ("", None)
    peer = f"{name} {speed(len(table), theirs)}"
    out.add(Line(what, speed(len(table), seconds), peer, f"{ratio:.2f}", target, met))
    return len(table) / seconds


def _duck_panes(connection: duckdb.DuckDBPyConnection, minutes: int) -> pa.Table:
    return connection.sql(
        f"""
        SELECT k, pane + 1 AS window_end, MAX(top) OVER w AS top, SUM(n) OVER w AS n
        FROM (SELECT k, epoch_us(ts) // {MINUTE} AS pane, MAX(v) AS top, COUNT(*) AS n FROM s GROUP BY ALL)
        WINDOW w AS (PARTITION BY k ORDER BY pane RANGE BETWEEN {minutes - 1} PRECEDING AND CURRENT ROW)
        """
    ).to_arrow_table()


def _polars_panes(frame: pl.DataFrame, minutes: int) -> pa.Table:
    panes = (
        frame.lazy()
        .with_columns(pane=pl.col("ts").cast(pl.Int64) // MINUTE)
        .group_by("k", "pane")
        .agg(top=pl.col("v").max(), n=pl.len().cast(pl.Int64))
        .sort("k", "pane")
        .with_columns(
            top=pl.col("top").rolling_max_by("pane", f"{minutes}i").over("k"),
            n=pl.col("n").rolling_sum_by("pane", f"{minutes}i").over("k"),
        )
    )
    return panes.collect().to_arrow()


def _spark_rate(table: pa.Table) -> float:
    """Rows a second of Spark's own window() in batch on two threads, from Parquet that it has just read."""
    from pyspark.sql import functions as F

    from kasen.spark.session import session

    spark = session("local[2]")
    with TemporaryDirectory() as folder:
        pq.write_table(table, f"{folder}/s.parquet", row_group_size=len(table) // 2)
        frame = spark.read.parquet(folder).repartition(2).cache()
        frame.count()
        windows = frame.groupBy("k", F.window("ts", "60 minutes", "1 minute")).agg(F.max("v"), F.count("*"))
        seconds = best(lambda: windows.write.format("noop").mode("overwrite").save(), 2)
    spark.stop()
    return len(table) / seconds


def per_tuple(out: Table, quick: bool) -> None:
    """Every tuple is answered: the group's row before it leaves, the one after it enters."""
    rows = 500_000 if quick else 5_000_000
    table = events(rows, rows * 1000)
    windows = {"RANGE 1 MINUTE": "RANGE 1 MINUTE", "ROWS 65536": "ROWS 65536"}
    for name, window in windows.items():
        for call in ("SUM(v)", "MAX(v)"):
            query = f"SELECT k, {call} AS x, COUNT(*) AS n FROM s [{window}] GROUP BY k"
            seconds = best(partial(run, query, table), 2)
            rate = rows / seconds / 1e6
            what = f"{call}, COUNT by key a tuple: {name}"
            out.add(Line(what, speed(rows, seconds), "", f"{rate:.2f}", "at least 1 M tuples/s", rate >= 1))


LATENCY = (
    "ISTREAM(SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 1 MINUTE] WHERE v < 900000 GROUP BY k)"
)


def latency(out: Table, quick: bool) -> None:
    """One tuple and one advance at a time; the first fifth is warm-up."""
    rows = 10_000 if quick else 100_000
    # The engine is judged; what Python's own values cost on the way in and out is shown beside it.
    for what, times, judged in (
        ("one tuple, columns to columns", _columns_latency(rows), True),
        ("  the same from a dict to Python's values", _push_latency(rows), False),
    ):
        warm = np.array(times[len(times) // 5 :]) * 1e6
        median, late = float(np.median(warm)), float(np.percentile(warm, 99))
        ours = f"median {median:.0f}, p99 {late:.0f} µs"
        target, met = ("median < 50, p99 < 500 µs", median < 50 and late < 500) if judged else ("", None)
        out.add(Line(what, ours, "", "", target, met))


def _tuples(rows: int) -> Iterator[tuple[int, int, int]]:
    random = np.random.default_rng(2)
    keys, values = random.integers(0, 100, rows).tolist(), random.integers(0, 1_000_000, rows).tolist()
    for i in range(rows):
        yield i * 10_000, keys[i], values[i]


def _columns_latency(rows: int) -> list[float]:
    pipeline = running(LATENCY)
    times = []
    for ts, key, value in _tuples(rows):
        data = np.array([[ts], [key], [value], [0]], np.int64)
        row = InputRows(data[0], np.ones(1, np.int64), data, np.zeros(1, np.int64))
        begin = time.perf_counter()
        pipeline.add("s", row)
        pipeline.advance("s", ts + 1)
        pipeline.run()
        times.append(time.perf_counter() - begin)
    return times


def _push_latency(rows: int) -> list[float]:
    pipeline = kasen.Pipeline().execute(f"{STREAM} REGISTER QUERY q AS {LATENCY};")
    answers = pipeline.query("q")
    times = []
    for ts, key, value in _tuples(rows):
        begin = time.perf_counter()
        pipeline.push("s", [{"ts": ts, "k": key, "v": value}])
        pipeline.advance("s", ts + 1)
        changes = answers.changes()
        times.append(time.perf_counter() - begin)
        assert changes or value >= 900_000
    return times


def running(query: str) -> RunningPipeline:
    return RunningPipeline(plan_app(bind_text(f"{STREAM} REGISTER QUERY q AS {query};", Path())))


def memory(out: Table, quick: bool) -> None:
    """State of a full window in bytes a live tuple, as this process's resident memory grows."""
    rows = 1_000_000 if quick else 10_000_000
    span = rows * 1000
    for what, query in (
        ("window", f"SELECT ts, k, v FROM s [RANGE {2 * span // 1_000_000} SECONDS]"),
        ("COUNT, SUM by key", f"SELECT k, COUNT(*) AS n, SUM(v) AS x FROM s [ROWS {rows}] GROUP BY k"),
        ("MAX by key", f"SELECT k, MAX(v) AS n FROM s [ROWS {rows}] GROUP BY k"),
    ):
        # In a process of its own: memory that another part has freed would hide what this one takes.
        with get_context("spawn").Pool(1) as pool:
            bytes_a_tuple, arrow = pool.apply(_state, (query, rows, span))
        ratio = bytes_a_tuple / arrow
        ours, theirs = f"{bytes_a_tuple:.1f} bytes a tuple", f"Arrow {arrow:.1f}"
        name = f"{rows / 1e6:.0f} M tuples live: {what}"
        out.add(Line(name, ours, theirs, f"{ratio:.2f}", "at most 3x", ratio <= 3))


def _state(query: str, rows: int, span: int) -> tuple[float, float]:
    """Bytes by which the process grows for a tuple, and bytes of a tuple in Arrow."""
    table = events(rows, span)
    pipeline = kasen.Pipeline().execute(f"{STREAM} REGISTER QUERY q AS {query};")
    pipeline.query("q").foreach_batch(lambda _, __: None)
    batches = table.to_batches(max_chunksize=CHUNK)
    pipeline.push("s", batches[0])
    gc.collect()
    before = resident()
    for batch in batches[1:]:
        pipeline.push("s", batch)
    gc.collect()
    return (resident() - before) / (rows - CHUNK), table.nbytes / rows


def soak(out: Table, minutes: float) -> None:
    """Full speed for a while; how much memory grows after the first quarter."""
    pipeline = kasen.Pipeline().execute(
        f"{STREAM} REGISTER QUERY q AS {LATENCY};"
        "REGISTER QUERY w AS SELECT k, MAX(v) AS top FROM s [RANGE 60 MINUTES SLIDE 1 MINUTE] GROUP BY k;"
    )
    for name in ("q", "w"):
        pipeline.query(name).foreach_batch(lambda _, __: None)
    table = events(1 << 16, 10 * MINUTE)
    times = np.frombuffer(table.column("ts").chunk(0).buffers()[1], np.int64)
    begin = time.monotonic()
    samples: list[tuple[float, int]] = []
    rounds = 0
    while (passed := time.monotonic() - begin) < 60 * minutes:
        ts = pa.array(times + rounds * 10 * MINUTE, pa.timestamp("us"))
        pipeline.push("s", table.set_column(0, "ts", ts).to_batches()[0])
        rounds += 1
        if passed > 15 * minutes:
            samples.append((passed / 60, resident()))
    x, y = (np.array(each, np.float64) for each in zip(*samples, strict=True))
    slope = float(np.polyfit(x, y, 1)[0]) / 1e6
    what = f"soak {minutes:g} minutes, {rounds * len(table) / 1e6:.0f} M rows"
    out.add(Line(what, f"{slope:+.2f} MB a minute", "", "", "less than 1 MB a minute", slope < 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", help="scan, sliding, per_tuple, latency, memory, soak; all if none"
    )
    parser.add_argument("--quick", action="store_true", help="smaller inputs")
    parser.add_argument("--spark", action="store_true", help="also Spark's native window(), which is slow")
    parser.add_argument("--soak", action="store_true", help="10 minutes of soak instead of one")
    given = parser.parse_args()
    own_process()  # as `kasen run` does
    out = Table("Kasen's local engine: ratios against others in the same run")
    minutes = 10.0 if given.soak else 0.25 if given.quick else 1.0
    parts: dict[str, Callable[[], None]] = {
        "scan": lambda: scan(out, given.quick),
        "sliding": lambda: sliding(out, given.quick, given.spark),
        "per_tuple": lambda: per_tuple(out, given.quick),
        "latency": lambda: latency(out, given.quick),
        "memory": lambda: memory(out, given.quick),
        "soak": lambda: soak(out, minutes),
    }
    for name in given.parts or parts:
        parts[name]()
        gc.collect()
    print(f"\n{out.missed} targets not met" if out.missed else "\nall targets met")
    return 0


if __name__ == "__main__":
    sys.exit(main())
