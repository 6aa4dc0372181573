"""Answers in any format that Spark writes: INTO 'orc' OPTIONS (path 'out'), 'jdbc', 'console', ...

Such a format promises nothing about repeated writes, so neither does Kasen: every answer is written at least
once. The column `epoch` numbers a query's writes from 0; after a crash the same number comes with the same
rows, so that a reader can tell what came twice.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kasen.connect.files import located
from kasen.errors import DataError
from kasen.spark.faults import said
from kasen.types import Connector

EPOCH = "epoch"


class SparkSink:
    """Appends each epoch's changes by a batch write of Spark's."""

    def __init__(
        self, spark: SparkSession, connector: Connector, base: Path, name: str, resume: int | None
    ) -> None:
        self._spark = spark
        self._connector = connector
        self._base = base
        self._name = name
        self._written = resume or 0

    def write(self, table: pa.Table) -> None:
        options = {name: value for name, value in self._connector.options if name != "path"}
        path = self._connector.option("path")
        if EPOCH in (column.lower() for column in table.column_names):
            fault = f"{self._name}: format {self._connector.format!r} has a column {EPOCH!r} of its own"
            raise DataError(f"{fault}; give the query's another name")
        frame = self._spark.createDataFrame(table).withColumn(EPOCH, F.lit(self._written).cast("bigint"))
        writing = frame.write.format(self._connector.format).mode("append").options(**options)
        try:
            writing.save(located(self._base, path) if path else None)
        except (PySparkException, Py4JJavaError) as fault:
            words = said(fault)
            raise DataError(f"{self._name}: Spark cannot write {self._connector.format!r}: {words}") from None
        self._written += 1

    def flush(self, sync: bool = False) -> None:
        del sync  # a write is over when it returns

    def position(self) -> int:
        return self._written

    def checksum(self) -> str:
        return ""

    def truncate(self, position: int) -> None:
        """What was written stays; the same numbers come again."""
        self._written = position

    def close(self) -> None:
        return
