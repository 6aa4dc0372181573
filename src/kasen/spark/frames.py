"""Inputs as Spark DataFrames: scanned by Spark, typed as declared, with each row's place in its file.

A csv file's columns are read as text and cast by Spark; a cell that is there and does not cast makes the
row a bad one. Spark tells no line numbers, so a row's line is counted from its place in the file: right
for files without blank lines and line breaks in quotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from kasen.connect.arrow_columns import cells_of
from kasen.connect.row_text import row_text
from kasen.errors import DataError
from kasen.plan.native.lower import is_foreign
from kasen.plan.native.sql_cast import parse_cell
from kasen.plan.native.sql_text import quoted, timestamp
from kasen.plan.physical import Input
from kasen.spark.file_names import code, code_of
from kasen.spark.input_files import InputFiles, input_files
from kasen.spark.names import BAD, BLOCK, DIFF, FILE, FILES_PER_EPOCH, NO_TIME, PLACE, RAW
from kasen.spark.sources import follows, open_foreign
from kasen.types import Kind, Type

__all__ = [
    "BAD",
    "BLOCK",
    "DIFF",
    "FILE",
    "PLACE",
    "RAW",
    "numbered",
    "open_files",
    "open_frame",
    "spark_type",
    "texts",
]

# No cell holds this, so only a field that is not there is NULL, and "" is the empty string.
_NULL = "\u0001"
_CORRUPT = "_corrupt"
#: An epoch takes so many bytes of files, some million rows: those of Parquet are far smaller in their files
#: than in memory.
_EPOCH_BYTES = {"parquet": 64 << 20, "csv": 128 << 20, "json": 256 << 20}

_SPARK: dict[Kind, T.DataType] = {
    Kind.BOOLEAN: T.BooleanType(),
    Kind.INTEGER: T.IntegerType(),
    Kind.BIGINT: T.LongType(),
    Kind.DOUBLE: T.DoubleType(),
    Kind.VARCHAR: T.StringType(),
    Kind.TIMESTAMP: T.TimestampNTZType(),
}


def spark_type(type_: Type) -> T.DataType:
    if type_.kind is Kind.DECIMAL:
        return T.DecimalType(type_.precision, type_.scale)
    return _SPARK[type_.kind]


@dataclass(frozen=True, slots=True)
class Reading:
    """How an input is read: as it grows, so many files at a time, or `only` one file, now."""

    files_per_epoch: int | None = None
    only: str | None = None


def open_frame(
    spark: SparkSession, one: Input, base: Path, files_per_epoch: int | None = None, only: str | None = None
) -> DataFrame:
    """An input's rows as a streaming DataFrame; a static table's, and of `only` one file, as a batch."""
    if is_foreign(one):
        return open_foreign(spark, one, base)
    for option, _ in one.connector.options:
        if option not in _OPTIONS:
            there = f"its options are: {', '.join(_OPTIONS)} (in any case)"
            raise DataError(f"{one.name}: format {one.connector.format!r} has no option {option!r}; {there}")
    follows(one)  # says what is wrong with that option
    reader = _READERS[one.connector.format]
    return reader(spark, one, files_of(one, base), Reading(files_per_epoch, only))


def files_of(one: Input, base: Path) -> InputFiles:
    return input_files(base, one.connector.option("path"), one.connector.format)


def open_files(spark: SparkSession, one: Input, paths: tuple[str, ...]) -> DataFrame:
    """The declared columns of a stream's Parquet files, as a batch: a row is bad only if it has no time."""
    fields = [T.StructField(field.name, spark_type(field.type)) for field in one.schema]
    return spark.read.schema(T.StructType(fields)).parquet(*paths)


def has_many(one: Input, base: Path) -> bool:
    """Whether an input is read from several files."""
    return not is_foreign(one) and len(files_of(one, base).names()) > 1


def texts(
    spark: SparkSession, one: Input, base: Path, file: str, times: tuple[int, int] | None, time: Type
) -> list[str]:
    """The texts of a file's rows in order: of the refused ones, or of those in a stretch of time."""
    frame = numbered(open_frame(spark, one, base, only=file))
    if times is None:
        wanted = F.col(BAD).isNotNull()
    else:
        assert one.timestamp is not None
        low, high = (timestamp(f"{ts}L") if time.kind is Kind.TIMESTAMP else f"{ts}L" for ts in times)
        moment = quoted(one.schema[one.timestamp].name)
        wanted = F.col(BAD).isNull() & F.expr(f"{moment} BETWEEN {low} AND {high}")
    if one.connector.format == "parquet":
        return _parquet_texts(spark, one, base, file, times is None, wanted)
    block = F.col(FILE).bitwiseXOR(F.lit(code(file))).alias(BLOCK)
    found = frame.where(wanted).select(RAW, block, PLACE).toArrow()
    result: list[str] = _in_order(found).column(RAW).to_pylist()
    return result


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(BLOCK, "ascending"), (PLACE, "ascending")])


def _parquet_texts(
    spark: SparkSession, one: Input, base: Path, file: str, bad: bool, wanted: Column
) -> list[str]:
    """A Parquet row has no text but its cells, those too that nobody declared."""
    assert one.timestamp is not None
    frame = spark.read.parquet(files_of(one, base).address(file))
    moment = F.col(quoted(one.schema[one.timestamp].name))
    frame = frame.withColumns({BAD: F.when(moment.isNull(), "bad"), BLOCK: _block()})
    found = _in_order(numbered(frame).where(moment.isNull() if bad else wanted).toArrow())
    rows = found.drop_columns([BAD, BLOCK, PLACE]).combine_chunks()
    batches = rows.to_batches()
    return [
        row_text(cells_of(batch, rows.column_names, row)) for batch in batches for row in range(len(batch))
    ]


def _load(
    spark: SparkSession, one: Input, files: InputFiles, schema: T.StructType, how: Reading, **options: str
) -> DataFrame:
    now = one.is_static or how.only is not None
    reading = spark.read if now else spark.readStream
    reading = reading.format(one.connector.format).schema(schema).options(**options)
    if not now:
        # An epoch must fit into memory, however much has piled up.
        most = one.connector.option(FILES_PER_EPOCH) or how.files_per_epoch or None
        if most is not None:
            reading = reading.option("maxFilesPerTrigger", str(most))
        else:
            reading = reading.option("maxBytesPerTrigger", str(_EPOCH_BYTES[one.connector.format]))
    return reading.option("pathGlobFilter", how.only or files.pattern).load(files.folder)


def _csv(spark: SparkSession, one: Input, files: InputFiles, how: Reading) -> DataFrame:
    first = files.need(one.name)[0]
    header = files.header(first, one.name)
    schema = T.StructType([T.StructField(name, T.StringType()) for name in (*header, _CORRUPT)])
    frame = _load(
        spark,
        one,
        files,
        schema,
        how,
        header="true",
        escape='"',
        nullValue=_NULL,
        columnNameOfCorruptRecord=_CORRUPT,
    )
    text = {name.strip().lower(): quoted(name) for name in header}
    missing = [field.name for field in one.schema if field.name.lower() not in text]
    if missing:
        fault = f"{one.name}: {files.address(first)} has no column {missing[0]!r}"
        raise DataError(f"{fault}; its columns are: {', '.join(header)}")
    cells = [F.expr(parse_cell(text[field.name.lower()], field.type)) for field in one.schema]
    reason = F.when(F.col(_CORRUPT).isNotNull(), "bad row: not as many fields as columns")
    if one.timestamp is not None:
        reason = reason.when(cells[one.timestamp].isNull(), NO_TIME)
    for field, cell in zip(one.schema, cells, strict=True):
        is_bad = F.col(text[field.name.lower()]).isNotNull() & cell.isNull()
        reason = reason.when(is_bad, f"bad value: column {field.name} does not hold a {field.type}")
    row = F.concat_ws(",", *[F.coalesce(F.col(f"`{name}`"), F.lit("")) for name in header])
    diff = text.get(one.connector.option("diff", "diff").lower()) if one.is_relation else None
    return frame.select(
        *[cell.alias(field.name) for cell, field in zip(cells, one.schema, strict=True)],
        (_cast_integer(F.col(diff)) if diff is not None else F.lit(1)).cast("bigint").alias(DIFF),
        reason.alias(BAD),
        F.coalesce(F.col(_CORRUPT), row).alias(RAW),
        _place(),
    )


def _cast_integer(cell: Column) -> Column:
    return F.coalesce(F.trim(cell).try_cast("bigint"), F.lit(1))


def _typed(spark: SparkSession, one: Input, files: InputFiles, how: Reading) -> DataFrame:
    """Formats that carry types of their own."""
    files.need(one.name)
    fields = [T.StructField(field.name, spark_type(field.type)) for field in one.schema]
    diff = one.connector.option("diff", "diff")
    if one.is_relation and one.timestamp is not None:
        fields.append(T.StructField(diff, T.LongType()))
    cells = [F.col(quoted(field.name)) for field in one.schema]
    raw = F.to_json(F.struct(*cells))
    reason = F.lit(None)
    if one.connector.format == "json":
        fields.append(T.StructField(_CORRUPT, T.StringType()))
        # A cell that is no value of its type is NULL. Naming all of them makes Spark read all of them.
        is_bad = F.col(_CORRUPT).isNotNull() & reduce(Column.__or__, [cell.isNull() for cell in cells])
        is_broken = is_bad & F.get_json_object(F.col(_CORRUPT), "$").isNull()
        reason = F.when(is_broken, "bad row: not a JSON object")
        raw = F.coalesce(F.col(_CORRUPT), raw)
    if one.timestamp is not None:
        reason = F.coalesce(reason, F.when(cells[one.timestamp].isNull(), NO_TIME))
    if one.connector.format == "json":
        reason = F.coalesce(reason, F.when(is_bad, "bad value: a cell is no value of its column's type"))
    frame = _load(spark, one, files, T.StructType(fields), how, columnNameOfCorruptRecord=_CORRUPT)
    count = F.coalesce(F.col(diff), F.lit(1)) if one.is_relation and one.timestamp is not None else F.lit(1)
    return frame.select(
        *cells, count.cast("bigint").alias(DIFF), reason.cast("string").alias(BAD), raw.alias(RAW), _place()
    )


def _block() -> Column:
    return F.col("_metadata.file_block_start").alias(BLOCK)


def _place() -> Column:
    """Which file and block a row comes from."""
    return code_of(F.col("_metadata.file_name"), F.col("_metadata.file_block_start")).alias(FILE)


def numbered(frame: DataFrame) -> DataFrame:
    """The rows of a micro-batch with a number that grows along each block of a file."""
    return frame.withColumn(PLACE, F.monotonically_increasing_id())


_OPTIONS = ("path", "diff", "follow", FILES_PER_EPOCH)
_READERS = {"csv": _csv, "json": _typed, "parquet": _typed}
