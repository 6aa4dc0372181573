"""Joins beside those of others, measured in one run on the same Arrow memory.

Times are seconds of CPU of this process, all its threads together, so that other work on the machine does not
count; peers run on one thread. The join is that of [WindowJoin]: two streams TICK BY TUPLE (every arrival an
instant), a count window on each, ISTREAM of the pairs. Kasen answers arrival by arrival; DuckDB and Polars
join the whole data at once by key and ordinals. Usage: joins.py [--quick] [part ...]
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

import kasen
from benchmarks._measure import Line, Table, best, resident
from experiments import nway_join
from kasen.cql.bind.app import bind_text
from kasen.engine import parallel
from kasen.engine.batch import Batch, Frontier
from kasen.engine.join.multiway import rings
from kasen.engine.join.multiway.mjoin import JoinInput
from kasen.engine.join.pair.pair_join import PairJoin
from kasen.plan.physical import plan_app
from kasen.runtime.input.feed import InputRows
from kasen.runtime.memory import own_process
from kasen.runtime.pipeline import RunningPipeline

ROWS = 65_536
CHUNK = 1 << 15
#: Rows of a stream that are pushed at once.
PUSHED = 1 << 18
I64 = npt.NDArray[np.int64]


def cpu(work: Callable[[], object], times: int = 3) -> float:
    """The least CPU time of several runs."""
    return best(work, times, time.process_time)


def streams(count: int, keys: int, seed: int = 1, hot: float = 0.0) -> tuple[I64, I64]:
    """Which side each of `count` arrivals is on, and its key; a share `hot` of them has key 0."""
    random = np.random.default_rng(seed)
    side = random.integers(0, 2, count)
    key = random.integers(0, keys, count)
    return side, np.where(random.random(count) < hot, 0, key)


def tables(side: I64, key: I64) -> list[pa.Table]:
    """The two streams, each with the arrival's number as its time and value."""
    found = []
    for mine in (0, 1):
        at = np.flatnonzero(side == mine)
        found.append(pa.table({"ts": pa.array(at, pa.int64()), "k": key[at], "v": at}))
    return found


def declare(rows: int, hint: str = "") -> str:
    both = "".join(
        f"REGISTER STREAM {name} (ts BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY ts TICK BY TUPLE FROM 'memory';"
        for name in "ab"
    )
    return f"""{both} REGISTER QUERY q AS ISTREAM(SELECT {hint} a.k, a.v AS x, b.v AS y
        FROM a [ROWS {rows}], b [ROWS {rows}] WHERE a.k = b.k);"""


def push_through(left: pa.Table, right: pa.Table, rows: int, hint: str = "") -> int:
    """Both tables through a pipeline; how many pairs came out."""
    pipeline = kasen.Pipeline().execute(declare(rows, hint))
    count = 0

    def take(_: int, changes: pa.Table) -> None:
        nonlocal count
        count += len(changes)

    pipeline.query("q").foreach_batch(take)
    for begin in range(0, max(len(left), len(right)), PUSHED):
        pipeline.push("a", left.slice(begin, PUSHED))
        pipeline.push("b", right.slice(begin, PUSHED))
    pipeline.drain()
    return count


def python_join(side: I64, key: I64, rows: int) -> int:
    """Dictionaries of queues, as one would write it with care."""
    windows: tuple[deque[int], deque[int]] = (deque(), deque())
    by_key: tuple[defaultdict[int, deque[int]], ...] = (defaultdict(deque), defaultdict(deque))
    pairs: list[tuple[int, int, int]] = []
    for at, (mine, k) in enumerate(zip(side.tolist(), key.tolist(), strict=True)):
        met = by_key[1 - mine].get(k)
        if met:
            pairs += [(k, at, other) for other in met] if mine == 0 else [(k, other, at) for other in met]
        window, index = windows[mine], by_key[mine]
        window.append(k)
        index[k].append(at)
        if len(window) > rows:
            old = window.popleft()
            queue = index[old]
            queue.popleft()
            if not queue:
                del index[old]
    return len(pairs)


def ordinals(side: I64, key: I64) -> pa.Table:
    """For the peers: each arrival's ordinal in its stream, and how many the other has had."""
    lefts = np.cumsum(side == 0)
    rights = np.cumsum(side == 1)
    mine, theirs = np.where(side == 0, lefts, rights), np.where(side == 0, rights, lefts)
    return pa.table({"side": side, "k": key, "at": np.arange(len(side)), "mine": mine, "theirs": theirs})


_MET = "((a.at > b.at AND b.mine > a.theirs - {n}) OR (b.at > a.at AND a.mine > b.theirs - {n}))"


def duck_join(connection: duckdb.DuckDBPyConnection, rows: int) -> int:
    met = _MET.format(n=rows)
    sides = "(FROM t WHERE side = 0) a JOIN (FROM t WHERE side = 1) b"
    text = f"SELECT a.k, a.at AS x, b.at AS y FROM {sides} ON a.k = b.k AND {met}"
    return len(connection.sql(text).to_arrow_table())


def polars_join(frame: pl.DataFrame, rows: int) -> int:
    left, right = frame.filter(pl.col("side") == 0).lazy(), frame.filter(pl.col("side") == 1).lazy()
    one = (pl.col("at") > pl.col("at_right")) & (pl.col("mine_right") > pl.col("theirs") - rows)
    other = (pl.col("at_right") > pl.col("at")) & (pl.col("mine") > pl.col("theirs_right") - rows)
    pairs = left.join(right, on="k").filter(one | other).select("k", "at", "at_right")
    return len(pairs.collect().to_arrow())


# ---------------------------------------------------------------- parts


def rate(count: int, seconds: float) -> str:
    return f"{count / seconds / 1e6:.2f} M tuples/s"


def batches(side: I64, key: I64, chunk: int = CHUNK) -> list[tuple[list[Batch], Frontier]]:
    """The arrivals as the operators get them."""
    found = []
    for begin in range(0, len(side), chunk):
        parts = []
        for mine in (0, 1):
            at = np.flatnonzero(side[begin : begin + chunk] == mine) + begin
            data = np.ascontiguousarray(np.vstack([key[at], at, np.zeros(len(at), np.int64)]))
            parts.append(Batch(at, np.zeros(len(at), np.int64), np.ones(len(at), np.int64), data))
        found.append((parts, Frontier(begin + chunk)))
    return found


def operator(rows: int) -> PairJoin:
    seen = [JoinInput(2, rings.ROWS, rows)] * 2
    return PairJoin(seen, [{0: 0, 1: 0}], [(0, 0), (0, 1), (1, 1)])


def run_operator(parts: list[tuple[list[Batch], Frontier]], rows: int) -> int:
    join = operator(rows)
    return sum(len(join.process(batch, upto)) for batch, upto in parts)


def pairs(out: Table, quick: bool) -> None:
    """Arrow in, Arrow out, beside three others; then the operator alone."""
    count = 1_000_000 if quick else 4_000_000
    side, key = streams(count, ROWS)
    left, right = tables(side, key)
    few = count // 8
    python = cpu(lambda: python_join(side[:few], key[:few], ROWS), 2) / few
    table = ordinals(side, key)
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("t", table)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    both_cores = best(partial(push_through, left, right, ROWS), 5)
    parallel.use_one_core()
    one_core = best(partial(push_through, left, right, ROWS), 5)
    mine = cpu(partial(push_through, left, right, ROWS), 5) / count
    duck = cpu(partial(duck_join, connection, ROWS), 2) / count
    polars = cpu(partial(polars_join, frame, ROWS), 2) / count
    found = push_through(left, right, ROWS)
    assert found == duck_join(connection, ROWS) == polars_join(frame, ROWS)
    what = f"[ROWS {ROWS}] x [ROWS {ROWS}], {ROWS} keys, Arrow to Arrow"
    speed = 1e-6 / mine
    out.add(Line(what, rate(1, mine), "", f"{speed:.2f}", "at least 10 M tuples/s", speed >= 10))
    for name, theirs, target in (("Python", python, 25), ("DuckDB", duck, 4), ("Polars", polars, 4)):
        ratio = theirs / mine
        line = Line(
            "", "", f"{name} {rate(1, theirs)}", f"{ratio:.1f}", f"at least {target}x", ratio >= target
        )
        out.add(line)
    ratio = one_core / both_cores
    out.add(
        Line(
            "  on two cores, wall time",
            rate(count, both_cores),
            f"one {rate(count, one_core)}",
            f"{ratio:.2f}",
            "at least 1.2x",
            ratio >= 1.2,
        )
    )
    alone = batches(side, key)
    kernel = cpu(partial(run_operator, alone, ROWS)) / count
    out.add(Line("  the operator alone", rate(1, kernel), "", f"{1e-6 / kernel:.2f}"))


def sizes(out: Table, quick: bool) -> None:
    """The cost of a tuple over the size of the windows, keys as many as rows; the operator alone."""
    costs = {}
    for power in (10, 14, 16, 18, 20):
        rows = 1 << power
        count = max(1_000_000, 4 * rows if not quick else rows)
        side, key = streams(count + 2 * rows, rows)
        parts = batches(side, key)
        join = operator(rows)
        warm = len(parts) - count // CHUNK
        for batch, upto in parts[:warm]:
            join.process(batch, upto)
        costs[power] = cpu(lambda: [join.process(*each) for each in parts[warm:]], 1) / count  # noqa: B023
        out.add(Line(f"a tuple at ROWS 2^{power}", f"{costs[power] * 1e9:.0f} ns"))
    ratio = costs[20] / costs[10]
    out.add(Line("  cost at 2^20 / at 2^10", f"{ratio:.1f}", "", f"{ratio:.1f}", "at most 6", ratio <= 6))


def memory(out: Table, quick: bool) -> None:
    rows = 1 << 18 if quick else 1 << 20
    with get_context("spawn").Pool(1) as pool:
        taken = pool.apply(_held, (rows,))
    ratio = taken / 24
    what = f"memory of a window tuple, 2 x {rows} live"
    out.add(Line(what, f"{taken:.1f} bytes", "Arrow 24", f"{ratio:.2f}", "at most 3x", ratio <= 3))


def _held(rows: int) -> float:
    """Bytes by which the process grows for a tuple while both windows fill."""
    own_process()  # as `kasen run` does
    join = operator(rows)
    random = np.random.default_rng(3)
    before = 0
    for n in range(5 * rows // CHUNK):
        side, at = np.arange(CHUNK) % 2, np.arange(n * CHUNK, (n + 1) * CHUNK)
        parts = []
        for mine in (0, 1):
            own = at[side == mine]
            data = np.vstack([random.integers(0, rows, len(own)), own, np.zeros(len(own), np.int64)])
            parts.append(Batch(own, np.zeros(len(own), np.int64), np.ones(len(own), np.int64), data))
        join.process(parts, Frontier((n + 1) * CHUNK))
        if n == 0:
            gc.collect()
            before = resident()
    gc.collect()
    return (resident() - before) / (2 * rows)


def latency(out: Table, quick: bool) -> None:
    count = 20_000 if quick else 100_000
    side, key = streams(count + 4096, 1024)
    join = operator(1024)
    for batch, upto in batches(side[:4096], key[:4096]):
        join.process(batch, upto)
    singles = batches(side[4096:], key[4096:], 1)
    taken = []
    for at, (batch, _) in enumerate(singles):
        shifted = [Batch(each.ts + 4096, each.seq_tick, each.diff, each.data) for each in batch]
        begin = time.perf_counter()
        join.process(shifted, Frontier(4096 + at + 1))
        taken.append(time.perf_counter() - begin)
    _delays(out, "one tuple, the operator alone", taken)
    app = bind_text(declare(1024), Path())
    pipeline = RunningPipeline(plan_app(app))
    taken = []
    for at, (mine, k) in enumerate(zip(side.tolist(), key.tolist(), strict=True)):
        data = np.array([[at], [k], [at], [0]], np.int64)
        row = InputRows(data[0], np.ones(1, np.int64), data, np.zeros(1, np.int64))
        begin = time.perf_counter()
        pipeline.add("ab"[mine], row)
        pipeline.advance("a", at + 1)
        pipeline.advance("b", at + 1)
        pipeline.run()
        taken.append(time.perf_counter() - begin)
    _delays(out, "one tuple, columns to columns (runtime.Pipeline)", taken[4096:])


def _delays(out: Table, what: str, taken: list[float]) -> None:
    median, late = (float(np.percentile(taken, share)) * 1e6 for share in (50, 99))
    met = median < 20 and late < 200
    out.add(Line(what, f"median {median:.1f}, p99 {late:.0f} µs", "", "", "median < 20, p99 < 200 µs", met))


def skew(out: Table, quick: bool) -> None:
    """Half of all arrivals have one key, on one side only: nothing to hide behind but its own chain."""
    count = 400_000 if quick else 1_000_000
    for hot in (0.0, 0.5):
        side, key = streams(count, ROWS, hot=hot)
        key = np.where((side == 1) & (key == 0), 1, key)
        parts = batches(side, key)
        found = run_operator(parts, ROWS)
        seconds = cpu(partial(run_operator, parts, ROWS), 2)
        name = "one key with half of the tuples of a side" if hot else "no skew"
        out.add(
            Line(
                f"skew: {name}",
                f"{seconds / count * 1e9:.0f} ns a tuple",
                f"{found / count:.2f} pairs a tuple",
            )
        )


def many(out: Table, quick: bool) -> None:
    """The joins of N streams of [LowDelayJoin]: what the planner chooses, and N + 2 cores, simulated."""
    lines = nway_join.measured([(n, 1) for n in ((5, 10) if quick else (5, 10, 15, 20))], 3)
    choice = {int(line[0]): line[6] for line in lines}
    worst = max(line[6] / min(line[2:6]) for line in lines)
    what = "N = 10, load of [LowDelayJoin], the planner's choice"
    out.add(Line(what, f"median {choice[10]:.0f} µs", "", "", "median < 100 µs", choice[10] < 100))
    what = "  the choice beside the best of four methods, at worst"
    out.add(Line(what, f"{worst:.2f}", "", f"{worst:.2f}", "at most 1.1", worst <= 1.1))
    found = nway_join.simulated([5, 10, 15, 20])
    for line in found:
        n, (mjoin, parallel, _) = int(line[0]), line[10:13]  # with hand-overs as they usually are
        what = f"N = {n} on {n + 2} cores, simulated, at 90 % of what MJoin can take"
        ratio = mjoin / parallel
        mine, theirs = f"parallel MJoin {parallel:.2f} µs", f"MJoin {mjoin:.2f} µs"
        out.add(Line(what, mine, theirs, f"{ratio:.2f}", "above 1", ratio > 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="pairs, sizes, memory, latency, skew, many; all if none")
    parser.add_argument("--quick", action="store_true", help="smaller inputs")
    given = parser.parse_args()
    own_process()  # as `kasen run` does
    out = Table("Joins: ratios against others in the same run")
    parts: dict[str, Callable[[Table, bool], None]] = {
        "pairs": pairs, "sizes": sizes, "memory": memory, "latency": latency, "skew": skew,
        "many": many,
    }  # fmt: skip
    for name in given.parts or parts:
        parts[name](out, given.quick)
        gc.collect()
    print(f"\n{out.missed} targets not met" if out.missed else "\nall targets met")
    return 0


if __name__ == "__main__":
    sys.exit(main())
