"""Kasen on Spark beside native Structured Streaming: the same files, one session on local[2], one run.

Both read Parquet files to the end (availableNow) and write their results as Parquet; starting and ending the
streaming query is in both times. Where native is too slow for the rows that Kasen gets, it gets fewer, and
rates are compared. Usage: python -m benchmarks.spark [--quick] [part ...]
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks._measure import Line, Table, speed
from kasen.cql.bind.app import bind_text
from kasen.plan.physical import plan_app
from kasen.runtime.memory import own_process
from kasen.runtime.output.outputs import OnAnswer
from kasen.runtime.pipeline import Answer
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.place import OperatorPlace
from kasen.spark.session import session

SECOND = 1_000_000
EXECUTORS: dict[str, Any] = {"place": OperatorPlace.executors, "shards": 2}
KEYS = 1000
SCHEMA = "ts timestamp, k int, v bigint"
STREAM = (
    "REGISTER STREAM {0} (ts TIMESTAMP, k INTEGER, v BIGINT) TIMESTAMP BY ts"
    " FROM 'parquet' OPTIONS (path '{0}');"
)


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a part finds its session, its folder, and whether to hurry."""

    spark: SparkSession
    home: Path
    quick: bool
    out: Table

    def folder(self, name: str) -> Path:
        made = self.home / name
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        return made


def events(folder: Path, rows: int, span: int, files: int, keys: int = KEYS, seed: int = 1) -> None:
    """Rows in order of time over `span` µs, in several files."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    ts = np.sort(random.integers(0, span, rows))
    now = time.time()
    for number, part in enumerate(np.array_split(ts, files)):
        columns = {
            "ts": pa.array(part, pa.timestamp("us", "UTC")),
            "k": pa.array(random.integers(0, keys, len(part)), pa.int32()),
            "v": pa.array(random.integers(0, 1_000_000, len(part)), pa.int64()),
        }
        file = folder / f"{number:04}.parquet"
        pq.write_table(pa.table(columns), file)
        # Spark takes files in the order of their times.
        os.utime(file, (now - files + number,) * 2)


def ours(
    home: Path, text: str, on_answer: OnAnswer = lambda _: None, **options: Any
) -> tuple[float, SparkRun]:
    """Seconds that a run of an app takes, to the end of its files."""
    plan = plan_app(bind_text(text, home))
    begin = time.perf_counter()
    run = SparkRun(plan, SparkOptions(home, **options), on_answer=on_answer)
    run.run()
    return time.perf_counter() - begin, run


def native(bench: Bench, frame: DataFrame, name: str) -> float:
    """Seconds that native takes to write a streaming frame to Parquet."""
    folder = bench.folder(f"native-{name}")
    begin = time.perf_counter()
    writing = frame.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    writing.option("checkpointLocation", str(folder / "ck")).start(str(folder / "out")).awaitTermination()
    return time.perf_counter() - begin


def in_turns(times: int, *runs: Callable[[], float]) -> list[float]:
    """The best time of each, taken in turns: the machine's speed swings, and the JVM compiles late."""
    best = [float("inf")] * len(runs)
    for _ in range(times):
        best = [min(least, run()) for least, run in zip(best, runs, strict=True)]
    return best


def read(bench: Bench, folder: Path, files: int | None = None) -> DataFrame:
    reading = bench.spark.readStream.schema(SCHEMA)
    if files is not None:
        reading = reading.option("maxFilesPerTrigger", files)
    return reading.parquet(str(folder)).withWatermark("ts", "0 seconds")


# ---------------------------------------------------------------- parts


def panes(bench: Bench) -> None:
    """MAX and COUNT by key over sliding windows of 4, 60 and 3600 slides."""
    rows = 1_000_000 if bench.quick else 8_000_000
    few = 100_000 if bench.quick else 400_000
    home = bench.folder("panes")
    span = 3 * 3600 * SECOND
    events(home / "s", rows, span, 8)
    events(home / "few" / "s", few, span, 2)

    def kasen(length: int) -> float:
        query = (
            "REGISTER QUERY q AS SELECT k, MAX(v) AS m, COUNT(*) AS n FROM s"
            f" [RANGE {length} MINUTE SLIDE 1 MINUTE] GROUP BY k INTO 'parquet' OPTIONS (path 'q-{length}');"
        )
        return ours(home, STREAM.format("s") + query)[0]

    def spark(length: int, source: Path) -> float:
        windowed = read(bench, source).groupBy(F.window("ts", f"{length} minutes", "1 minute"), "k")
        return native(bench, windowed.agg(F.max("v"), F.count("*")), f"panes-{length}")

    def beside_native(length: int, seconds: float, most: int, theirs: float, target: float) -> None:
        what = f"MAX, COUNT by key, RANGE {length} SLIDE 1 min"
        ratio = rows / seconds / (most / theirs)
        figures = (speed(rows, seconds), speed(most, theirs), f"{ratio:.1f}x", f"at least {target:g}x")
        bench.out.add(Line(what, *figures, ratio >= target))

    four, theirs = in_turns(4, lambda: kasen(4), lambda: spark(4, home / "s"))
    beside_native(4, four, rows, theirs, 1.3)
    sixty, longest = in_turns(4, lambda: kasen(60), lambda: kasen(3600))
    beside_native(60, sixty, few, spark(60, home / "few" / "s"), 15)
    ratio = sixty / longest
    figures = (speed(rows, longest), "native cannot", f"{ratio:.2f}x", "at least 0.8x")
    bench.out.add(Line("RANGE 3600 SLIDE 1, of RANGE 60's speed", *figures, ratio >= 0.8))


JOIN = (
    "REGISTER QUERY q AS ISTREAM(SELECT s.k, s.v AS a, r.v AS b FROM s [{0}], r [{0}] WHERE s.k = r.k)"
    " INTO 'parquet' OPTIONS (path 'q');"
)


def rows_join(bench: Bench) -> None:
    """The equi-join of two streams' last 65,536 rows, which native does not have."""
    rows = 500_000 if bench.quick else 2_000_000
    home = bench.folder("rows-join")
    for seed, name in enumerate("sr"):
        events(home / name, rows, rows * 1000, 4 if bench.quick else 8, 65_536, seed)
    text = STREAM.format("s") + STREAM.format("r") + JOIN.format("ROWS 65536")
    for where, options, target in (("in the driver", {}, 500_000), ("on executors", EXECUTORS, 300_000)):
        # The second and third run: the first compiles what both sides of Spark compile late.
        # Epochs are of a million tuples.
        seconds = min(ours(home, text, files_per_epoch=2, **options)[0] for _ in range(3))
        rate = 2 * rows / seconds
        what = f"join of ROWS 65536, to Parquet, {where}"
        wanted = f"at least {target / 1e6:g} M"
        bench.out.add(Line(what, speed(2 * rows, seconds), "native cannot", "", wanted, rate >= target))


def time_join(bench: Bench) -> None:
    """An equi-join within 65 s at 500 tuples/s of event time a side, 65,536 keys; native uses RocksDB."""
    rows, few = (300_000, 60_000) if bench.quick else (1_000_000, 150_000)
    home = bench.folder("time-join")
    for seed, name in enumerate("sr"):
        events(home / name, rows, rows * 2000, 4, 65_536, seed)
        events(home / "few" / name, few, few * 2000, 2, 65_536, seed)
    text = STREAM.format("s") + STREAM.format("r") + JOIN.format("RANGE 65 SECOND")
    seconds = min(ours(home, text, files_per_epoch=1)[0] for _ in range(2))
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    bench.spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    sides = [
        read(bench, home / "few" / name, 1).toDF(f"{name}_ts", f"{name}_k", f"{name}_v") for name in "sr"
    ]
    near = "s_k = r_k AND s_ts BETWEEN r_ts - INTERVAL 65 SECONDS AND r_ts + INTERVAL 65 SECONDS"
    theirs = native(bench, sides[0].join(sides[1], F.expr(near)), "time-join")
    bench.spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    ratio = (rows / seconds) / (few / theirs)
    what = "join within 65 s, native with RocksDB"
    figures = (speed(2 * rows, seconds), speed(2 * few, theirs))
    bench.out.add(Line(what, *figures, f"{ratio:.1f}x", "at least 15x", ratio >= 15))


def many(bench: Bench) -> None:
    """Fifty alerts on one stream, beside one; native runs fifty streaming queries."""
    rows, few = (500_000, 50_000) if bench.quick else (2_000_000, 200_000)
    home = bench.folder("many")
    events(home / "s", rows, 3600 * SECOND, 4)
    # Each of the fifty keeps a state of its own, and all of them at once take minutes.
    events(home / "few" / "s", few, 3600 * SECOND, 1)

    def text(count: int) -> str:
        queries = (
            f"REGISTER QUERY q{number} AS SELECT k, MAX(v) AS m, COUNT(*) AS n FROM s"
            f" [RANGE 10 MINUTE SLIDE 1 MINUTE]"
            f" WHERE v >= {number * 20_000} AND v < {number * 20_000 + 20_000}"
            f" GROUP BY k INTO 'parquet' OPTIONS (path 'out/q{number}');"
            for number in range(count)
        )
        return STREAM.format("s") + "".join(queries)

    one, fifty = in_turns(3, lambda: ours(home, text(1))[0], lambda: ours(home, text(50))[0])
    begin = time.perf_counter()
    running = []
    for number in range(50):
        low = number * 20_000
        chosen = read(bench, home / "few" / "s").where((F.col("v") >= low) & (F.col("v") < low + 20_000))
        windowed = chosen.groupBy(F.window("ts", "10 minutes", "1 minute"), "k")
        folder = bench.folder(f"native-many-{number}")
        writing = windowed.agg(F.max("v"), F.count("*")).writeStream.format("parquet").outputMode("append")
        writing = writing.trigger(availableNow=True).option("checkpointLocation", str(folder / "ck"))
        running.append(writing.start(str(folder / "out")))
    for query in running:
        query.awaitTermination()
    theirs = time.perf_counter() - begin
    ratio = fifty / one
    what = "50 queries on one stream, of one query's time"
    figures = (
        f"{fifty:.1f} s, one {one:.1f} s, of {rows / 1e6:g} M",
        f"{theirs:.1f} s of {few / 1e6:g} M",
        f"{ratio:.1f}x",
    )
    bench.out.add(Line(what, *figures, "at most 3x", ratio <= 3))


def epochs(bench: Bench) -> None:
    """What an epoch of 1,000 rows with one stateful stage costs, once the first ones are over."""
    count = 20 if bench.quick else 40
    home = bench.folder("epochs")
    events(home / "s", 1000 * count, count * 60 * SECOND, count)
    text = STREAM.format("s") + (
        "REGISTER QUERY q AS SELECT k, MAX(v) AS m, COUNT(*) AS n FROM s [RANGE 10 MINUTE] GROUP BY k"
        " INTO 'csv' OPTIONS (path 'q.csv');"
    )
    for where, options, target in (("in the driver", {}, 0.6), ("on executors", EXECUTORS, 1.0)):
        marks: list[float] = []
        checkpoint = bench.folder(f"epochs-{where[-6:]}")

        def note(_: Answer, marks: list[float] = marks) -> None:
            marks.append(time.perf_counter())

        ours(
            home,
            text,
            files_per_epoch=1,
            checkpoint=checkpoint,
            on_answer=note,
            **options,
        )
        # What is late to be compiled is compiled in the first ones.
        median = float(np.median(np.diff(marks[5:])))
        what = f"an epoch of 1,000 rows {where} (median)"
        wanted = f"at most {target:g} s"
        bench.out.add(Line(what, f"{median:.2f} s", "", "", wanted, median <= target))


def state(bench: Bench) -> None:
    """Bytes of state that an epoch of 1,000 rows a stream writes, by the window of the join."""
    epochs, rows = (20, 1000) if bench.quick else (60, 1000)
    written: dict[int, float] = {}
    for window in (1 << 10, 1 << 20):
        home = bench.folder(f"state-{window}")
        for seed, name in enumerate("sr"):
            events(home / name, rows * epochs, rows * epochs * 1000, epochs, 65_536, seed)
        text = STREAM.format("s") + STREAM.format("r") + JOIN.format(f"ROWS {window}")
        run = SparkRun(
            plan_app(bind_text(text, home)), SparkOptions(home, files_per_epoch=1, checkpoint=home / "ck")
        )
        sizes = count_bytes(run)
        run.run()
        written[window] = sum(sizes) / epochs
    small, large = written.values()
    what = "bytes of state an epoch, ROWS 2^20 beside 2^10"
    figures = (f"{large / 1e3:.0f} kB", f"{small / 1e3:.0f} kB", f"{large / small:.2f}x")
    bench.out.add(Line(what, *figures, "at most 1.2x", large <= 1.2 * small))


def count_bytes(run: SparkRun) -> list[int]:
    """The sizes of the files of state that a run writes, as it does."""
    assert run._store is not None
    files, sizes = run._store.files, list[int]()
    write = files.write

    def counted(name: str, content: bytes, *, lasting: bool = True) -> tuple[str, int]:
        sizes.append(len(content))
        return write(name, content, lasting=lasting)

    files.write = counted  # type: ignore[method-assign]
    return sizes


PARTS: dict[str, Callable[[Bench], None]] = {
    "panes": panes,
    "rows_join": rows_join,
    "time_join": time_join,
    "many": many,
    "epochs": epochs,
    "state": state,
}


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="fewer rows: a minute or two a part")
    asked.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all if none is named")
    args = asked.parse_args()
    own_process()  # as `kasen run` does
    spark = session("local[2]")
    with tempfile.TemporaryDirectory(prefix="kasen-bench-") as home:
        out = Table("Kasen on Spark beside native Structured Streaming")
        bench = Bench(spark, Path(home), args.quick, out)
        for name in args.parts or PARTS:
            PARTS[name](bench)
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
