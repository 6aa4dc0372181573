"""Sources and sinks beyond files: any format that Spark knows, DataFrames of a program, its own API."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

import kasen
from kasen.spark.session import session

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session("local[2]")


def wait_for(query: kasen.Query, rows: int, seconds: float = 120) -> pa.Table:
    """The query's changes, once there are so many."""
    found = query.schema.empty_table()
    until = time.monotonic() + seconds
    while len(found) < rows and time.monotonic() < until:
        found = pa.concat_tables([found, query.to_arrow()])
        time.sleep(0.1)
    return found


def test_a_streaming_format_is_read_by_name_and_followed(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = kasen.Pipeline(engine="spark", base=tmp_path).execute("""
        REGISTER STREAM s (value BIGINT) TIMESTAMP BY timestamp
            FROM 'rate-micro-batch' OPTIONS (rowsPerBatch '10', startTimestamp '1000');
        REGISTER QUERY q AS ISTREAM(SELECT value FROM s WHERE value % 2 = 1)
            INTO 'orc' OPTIONS (path 'odd');
    """)
    pipeline.start()
    try:
        found = wait_for(pipeline.query("q"), 20)
    finally:
        pipeline.stop()
    values = found.column("value").to_pylist()
    assert values == list(range(1, 2 * len(values), 2))
    written = spark.read.orc(str(tmp_path / "odd")).orderBy("value").toArrow()
    assert written.column("value").to_pylist()[: len(values)] == values
    assert len(set(written.column("epoch").to_pylist())) > 1


def test_a_frame_of_the_program_is_a_stream_and_answers_come_as_arrow(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.sql(
        "SELECT * FROM VALUES (3L, 'b', 2.5D), (1L, 'a', CAST(NULL AS DOUBLE)), (1L, 'B', 1D), (4L, 'z', 1D)"
        " AS t(at, Name, x)"
    ).write.parquet(str(tmp_path / "in"))
    frame = spark.readStream.schema("at bigint, Name string, x double").parquet(str(tmp_path / "in"))
    seen: list[tuple[int, int]] = []
    pipeline = kasen.Pipeline(engine="spark", base=tmp_path).execute("""
        REGISTER STREAM s (at BIGINT, name VARCHAR, x DECIMAL(5, 1)) TIMESTAMP BY at FROM 'memory';
        REGISTER QUERY last AS ISTREAM(SELECT name, x FROM s [ROWS 1]);
        REGISTER QUERY count AS SELECT COUNT(*) AS n FROM s [UNBOUNDED];
    """)
    frames: list[int] = []
    pipeline.query("count").foreach_batch(lambda epoch, table: seen.append((epoch, len(table))))
    pipeline.query("count").foreach_batch(lambda _, changes: frames.append(changes.count()), frames=True)
    pipeline.stream("s", frame).drain()
    # Rows of one instant are in the order of their values, so 'a' is the last at 1.
    assert pipeline.query("last").to_arrow().select(["ts", "name"]).to_pylist() == [
        {"ts": 1, "name": "a"},
        {"ts": 3, "name": "b"},
        {"ts": 4, "name": "z"},
    ]
    assert sum(count for _, count in seen) == sum(frames) == 5


class Numbers(DataSource):
    """A Python data source: one number a batch, as text."""

    @classmethod
    def name(cls) -> str:
        return "kasen_numbers"

    def schema(self) -> str:
        return "ts string, v string"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        del schema
        return NumbersReader()


class NumbersReader(SimpleDataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[str, str]], dict[str, int]]:
        at = start["at"]
        if at >= 4:
            return iter(()), start
        return iter([(str(at), "bad" if at == 2 else str(at * 10))]), {"at": at + 1}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[str, str]]:
        for at in range(start["at"], end["at"]):
            yield str(at), "bad" if at == 2 else str(at * 10)

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        raise NotImplementedError


def test_a_python_data_source_is_a_format_too(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(Numbers)
    pipeline = kasen.Pipeline(engine="spark", base=tmp_path).execute("""
        REGISTER STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts FROM 'kasen_numbers';
        REGISTER QUERY q AS ISTREAM(SELECT v + 0 AS v FROM s);
    """)
    pipeline.start()
    try:
        found = wait_for(pipeline.query("q"), 2)
    finally:
        pipeline.stop()
    assert found.column("v").to_pylist()[:2] == [0, 10]


def test_what_cannot_be_is_said(spark: SparkSession, tmp_path: Path) -> None:
    del spark
    text = (
        "REGISTER STREAM s (ts BIGINT) TIMESTAMP BY ts FROM {}; REGISTER QUERY q AS SELECT ts FROM s [NOW];"
    )
    unknown = kasen.Pipeline(engine="spark", base=tmp_path).execute(text.format("'no_such_format'"))
    with pytest.raises(kasen.DataError, match="cannot read format 'no_such_format'"):
        unknown.drain()
    missing = kasen.Pipeline(engine="spark", base=tmp_path).execute(text.format("'memory'"))
    with pytest.raises(kasen.DataError, match=r"p.stream\('s', df\)"):
        missing.drain()
    with pytest.raises(kasen.DataError, match="pushed to engine='local'"):
        missing.push("s", [{"ts": 1}])
    with pytest.raises(kasen.DataError, match="no engine 'flink'"):
        kasen.Pipeline(engine="flink")  # type: ignore[arg-type]


def test_a_source_that_cannot_be_read_again_is_read_without_a_checkpoint_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        query = "REGISTER QUERY q AS ISTREAM(SELECT value FROM s);"
        own = f"REGISTER STREAM s (value VARCHAR) FROM 'socket' OPTIONS (host '127.0.0.1', port '{port}');"
        given = "REGISTER STREAM s (value VARCHAR) FROM 'memory';"
        lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
        fault = "^s: Spark cannot read 'socket' again after a crash, so a checkpoint would lose rows"
        with pytest.raises(kasen.DataError, match=fault):
            kasen.Pipeline(engine="spark", checkpoint=tmp_path / "a").execute(own + query).drain()
        framed = kasen.Pipeline(engine="spark", checkpoint=tmp_path / "b").execute(given + query)
        with pytest.raises(kasen.DataError, match=fault):
            framed.stream("s", lines.where("value <> ''")).drain()
        read = kasen.Pipeline(engine="spark").execute(own + query)
        read.start()
        try:
            with server.accept()[0] as line:
                line.sendall(b"one\ntwo\n")
                found = wait_for(read.query("q"), 2)
        finally:
            read.stop()
    assert found.column("value").to_pylist() == ["one", "two"]
