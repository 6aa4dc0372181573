"""A node's links as a stream of Spark: a Python data source whose offsets are the node's sequence numbers.

Spark asks how far the node has got, reads what is new in a task, and runs it as a micro-batch. When it
commits one, the node forgets those pieces. What they bring is computed where the app's operators are: in the
driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from kasen.errors import InternalError
from kasen.ha.link.journal import JournalClient
from kasen.spark.session import session

_SCHEMA = "number BIGINT, stream STRING, start BIGINT, upto BIGINT, ended BOOLEAN, content BINARY"


@dataclass
class LinkPartition(InputPartition):
    """The pieces [first, last)."""

    first: int
    last: int


class LinkReader(DataSourceStreamReader):
    """Runs in processes of Spark's own; all it knows of the node is its file."""

    def __init__(self, file: str) -> None:
        self._file = file

    def _client(self) -> JournalClient:
        return JournalClient(self._file)

    def initialOffset(self) -> dict[str, int]:
        return {"number": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        del start, limit
        client = self._client()
        try:
            return {"number": client.end()}
        finally:
            client.close()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        # One task: the order of pieces is the order of time.
        return [LinkPartition(start["number"], end["number"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LinkPartition)
        client = self._client()
        try:
            yield from client.read(partition.first, partition.last).to_batches()
        finally:
            client.close()

    def commit(self, end: dict[str, int]) -> None:
        client = self._client()
        try:
            client.forget(end["number"])
        finally:
            client.close()


class LinkSource(DataSource):
    """`readStream.format("kasen_link").option("node", "node.toml")`."""

    @classmethod
    def name(cls) -> str:
        return "kasen_link"

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: Any) -> LinkReader:
        del schema
        return LinkReader(self.options["node"])


class LinkQuery:
    """The streaming query of a node: calls `epoch` with the pieces of each micro-batch."""

    def __init__(self, file: str, epoch: Callable[[pa.Table], None], master: str | None = None) -> None:
        self._file = file
        self._epoch = epoch
        self._spark = session(master)
        # The other copy is what survives a crash; Spark's own log is needed only while this process lives.
        self._folder = TemporaryDirectory(prefix="kasen-link-")
        self._error: BaseException | None = None

    def start(self) -> None:
        self._spark.dataSource.register(LinkSource)
        stream = self._spark.readStream.format("kasen_link").option("node", self._file).load()
        writer = stream.writeStream.queryName("kasen_link").foreachBatch(self._run)
        self._query = writer.option("checkpointLocation", self._folder.name).start()

    def _run(self, frame: DataFrame, epoch: int) -> None:
        del epoch
        self._epoch(frame.toArrow())

    def stop(self) -> None:
        """Between epochs: stopping in the middle of one fills the log with Spark's own complaints."""
        with suppress(Exception):
            self._query.stop()
            self._folder.cleanup()

    def check(self) -> None:
        """InternalError if the query has ended."""
        if not self._query.isActive:
            raise InternalError(f"Spark's streaming query ended: {self._query.exception()}")
