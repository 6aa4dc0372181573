"""On Spark: another query while data flows, in Kasen; against a native streaming query that is restarted."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks._measure import Line, Table
from kasen.cql.bind.app import bind_text
from kasen.plan.physical import plan_app
from kasen.runtime.control.socket import ask
from kasen.runtime.pipeline import Answer
from kasen.spark.options import SparkOptions
from kasen.spark.pipeline import SparkRun
from kasen.spark.place import OperatorPlace
from kasen.spark.session import session

_ROWS = 1000
_FIRST, _AFTER = 15, 10
_PATIENCE = 60.0

APP = """
REGISTER STREAM s (k BIGINT, v BIGINT, ts BIGINT) TIMESTAMP BY ts FROM 'memory';
REGISTER QUERY ones AS SELECT k, COUNT(*) AS n FROM s WHERE k = 1 GROUP BY k;
"""
MORE = "REGISTER QUERY twos AS SELECT k, COUNT(*) AS n FROM s WHERE k = 2 GROUP BY k;"


class Log:
    """When each epoch was answered, and which queries said something in it."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.said: list[set[str]] = []

    def note(self, names: set[str]) -> None:
        self.times.append(time.monotonic())
        self.said.append(names)

    def wait(self, enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not enough():
            assert time.monotonic() < deadline, "no answers came"
            time.sleep(0.005)

    def wait_for(self, epochs: int) -> None:
        self.wait(lambda: len(self.times) >= epochs)

    def silence(self, since: float) -> float:
        """The longest time without an answer that ended after a moment."""
        gaps = zip(self.times, self.times[1:], strict=False)
        return max(later - earlier for earlier, later in gaps if later > since)

    def epoch(self, until: float) -> float:
        """The usual time between two answers before a moment."""
        gaps = zip(self.times, self.times[1:], strict=False)
        return median(later - earlier for earlier, later in gaps if later < until)


def source(spark: SparkSession) -> DataFrame:
    """A thousand rows an epoch, one epoch after the other."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).load()
    value = F.col("value")
    return rows.select((value % 10).alias("k"), value.alias("v"), value.alias("ts"))


def in_kasen(spark: SparkSession, home: Path, place: OperatorPlace) -> tuple[float, float, int, float, float]:
    """Seconds until the change was answered and until the new query spoke; epochs between; the silence.

    And how long an epoch took before.
    """
    log = Log()

    def told(answer: Answer) -> None:
        if answer.change is None:  # else another one follows, of the same epoch
            log.note({name for name, changes in answer.changes.items() if len(changes)})

    home = home / place.value
    home.mkdir()
    socket = home / "private" / "control"
    run = SparkRun(
        plan_app(bind_text(APP)),
        SparkOptions(home, checkpoint=home / "kasen", place=place, follow=True, control=socket),
        given={"s": source(spark)},
        on_answer=told,
    )
    running = threading.Thread(target=run.run)
    running.start()
    try:
        log.wait_for(_FIRST)
        asked = time.monotonic()
        (answer,) = ask(socket, {"verb": "execute", "text": MORE})
        assert "ok" in answer, answer
        changed, before = time.monotonic(), len(log.times)
        log.wait(lambda: any("twos" in names for names in log.said[before:]))
        first = next(at for at in range(before, len(log.said)) if "twos" in log.said[at])
        log.wait_for(first + _AFTER)
    finally:
        run.stop()
        running.join(_PATIENCE)
    spoke, epochs = log.times[first] - asked, first - before + 1
    return changed - asked, spoke, epochs, log.silence(asked), log.epoch(asked)


def natively(spark: SparkSession, home: Path) -> float:
    """Seconds without answers while a streaming query is stopped, changed and started again."""
    log = Log()
    rows = source(spark)

    def take(batch: DataFrame, _: int) -> None:
        if batch.toArrow().num_rows:
            log.note(set())

    def start(condition: str) -> object:
        counts = rows.filter(condition).groupBy("k").count()
        writer = counts.writeStream.outputMode("update").foreachBatch(take)
        return writer.option("checkpointLocation", str(home / "native")).start()

    query = start("k = 1")
    log.wait_for(_FIRST)
    asked = time.monotonic()
    query.stop()  # type: ignore[attr-defined]
    before = len(log.times)
    query = start("k IN (1, 2)")
    log.wait_for(before + _AFTER)
    query.stop()  # type: ignore[attr-defined]
    return log.silence(asked)


def change_on_spark(table: Table) -> None:
    spark = session("local[2]")
    spark.sparkContext.setLogLevel("OFF")  # stopping a streaming query is an error to Spark
    with tempfile.TemporaryDirectory() as folder:
        native = natively(spark, Path(folder))
        found = {place: in_kasen(spark, Path(folder), place) for place in OperatorPlace}
    spark.stop()
    for place, (answered, spoke, epochs, silent, epoch) in found.items():
        where = "in the driver" if place is OperatorPlace.driver else "on executors"
        told = f"effective in {answered:.2f} s, rows in {spoke:.2f} s"
        what = f"Spark, {where}: a query registered while data flows"
        table.add(Line(what, told, "", f"{epochs}", "in the next epoch", epochs == 1))
        ours, ratio = f"longest silence {silent:.2f} s", silent / epoch
        what = "  other answers meanwhile"
        table.add(Line(what, ours, f"an epoch before {epoch:.2f} s", f"{ratio:.1f}", "< 2", ratio < 2))
        if place is OperatorPlace.driver:
            theirs, ratio = f"native, restarted {native:.2f} s", native / silent
            table.add(Line(what, ours, theirs, f"{ratio:.1f}", "> 1", ratio > 1))
