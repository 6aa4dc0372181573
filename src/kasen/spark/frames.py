"""Inputs as Spark DataFrames: scanned by Spark, typed as declared, with each row's place in its file.

A csv file's columns are read as text and cast by Spark; a cell that is there and does not cast makes the
row a bad one. Spark tells no line numbers, so a row's line is counted from its place in the file: right
for files without blank lines and line breaks in quotes.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from kasen.connect.csv_source import read_header
from kasen.connect.files import need_files
from kasen.errors import DataError
from kasen.plan.physical import Input
from kasen.types import Kind, Type

#: Columns beside an input's own: the row's file, block and place, +1 or -1, why it is bad, and its text.
FILE, BLOCK, PLACE, DIFF, BAD, RAW = "_file", "_block", "_place", "_diff", "_bad", "_raw"

# No cell holds this, so only a field that is not there is NULL, and "" is the empty string.
_NULL = "\u0001"
_CORRUPT = "_corrupt"

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


def open_frame(spark: SparkSession, one: Input, base: Path, files_per_epoch: int | None) -> DataFrame:
    """An input's rows as a streaming DataFrame (a static table's as a batch one)."""
    if one.timestamp is None and not one.is_relation:
        raise DataError(f"{one.name} has no TIMESTAMP BY: on Spark, rows must carry their time")
    reader = _READERS.get(one.connector.format)
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise DataError(f"{one.name}: no format {one.connector.format!r} on Spark yet; there are {known}")
    return reader(spark, one, base / one.connector.option("path"), files_per_epoch)


def _load(
    spark: SparkSession, one: Input, path: Path, schema: T.StructType, files: int | None, **options: str
) -> DataFrame:
    reading = spark.read if one.is_static else spark.readStream
    reading = reading.format(one.connector.format).schema(schema).options(**options)
    if files is not None and not one.is_static:
        reading = reading.option("maxFilesPerTrigger", files)
    # A file stream reads folders: one file is a folder seen through its name.
    folder, names = (path, f"*.{one.connector.format}") if path.is_dir() else (path.parent, path.name)
    return reading.option("pathGlobFilter", names).load(str(folder.resolve()))


def _csv(spark: SparkSession, one: Input, path: Path, files: int | None) -> DataFrame:
    first = need_files(path, "csv", one.name)[0]
    header, _, _ = read_header(first, one.name)
    schema = T.StructType([T.StructField(name, T.StringType()) for name in (*header, _CORRUPT)])
    frame = _load(
        spark,
        one,
        path,
        schema,
        files,
        header="true",
        escape='"',
        nullValue=_NULL,
        columnNameOfCorruptRecord=_CORRUPT,
    )
    text = {name.strip().lower(): F.col(f"`{name}`") for name in header}
    missing = [field.name for field in one.schema if field.name.lower() not in text]
    if missing:
        there = ", ".join(header)
        raise DataError(f"{one.name}: {first} has no column {missing[0]!r}; its columns are: {there}")
    cells = [_cast(text[field.name.lower()], field.type).alias(field.name) for field in one.schema]
    reason = F.when(F.col(_CORRUPT).isNotNull(), "bad row: not as many fields as columns")
    if one.timestamp is not None:
        reason = reason.when(cells[one.timestamp].isNull(), "bad timestamp: missing or not a time")
    for field, cell in zip(one.schema, cells, strict=True):
        is_bad = text[field.name.lower()].isNotNull() & cell.isNull()
        reason = reason.when(is_bad, f"bad value: column {field.name} does not hold a {field.type}")
    row = F.concat_ws(",", *[F.coalesce(F.col(f"`{name}`"), F.lit("")) for name in header])
    diff = text.get(one.connector.option("diff", "diff").lower()) if one.is_relation else None
    return frame.select(
        *cells,
        (_cast_integer(diff) if diff is not None else F.lit(1)).cast("bigint").alias(DIFF),
        reason.alias(BAD),
        F.coalesce(F.col(_CORRUPT), row).alias(RAW),
        *_place(),
    )


def _cast(cell: Column, type_: Type) -> Column:
    """Text as a value, by the rules that Kasen's own reader has; NULL if it is none."""
    if type_.kind is Kind.VARCHAR:
        return cell
    trimmed = F.trim(cell)
    if type_.is_integer:
        fits = trimmed.rlike(r"^[+-]?[0-9]+$")
        return F.when(fits, trimmed.try_cast(spark_type(type_)))
    if type_.kind is Kind.TIMESTAMP:
        fits = trimmed.rlike(r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?)?$")
        return F.when(fits, trimmed.try_cast(spark_type(type_)))
    return trimmed.try_cast(spark_type(type_))


def _cast_integer(cell: Column) -> Column:
    return F.coalesce(F.trim(cell).try_cast("bigint"), F.lit(1))


def _typed(spark: SparkSession, one: Input, path: Path, files: int | None) -> DataFrame:
    """Formats that carry types of their own."""
    need_files(path, one.connector.format, one.name)
    fields = [T.StructField(field.name, spark_type(field.type)) for field in one.schema]
    diff = one.connector.option("diff", "diff")
    if one.is_relation and one.timestamp is not None:
        fields.append(T.StructField(diff, T.LongType()))
    frame = _load(spark, one, path, T.StructType(fields), files)
    count = F.coalesce(F.col(diff), F.lit(1)) if one.is_relation and one.timestamp is not None else F.lit(1)
    time = F.col(one.schema[one.timestamp].name) if one.timestamp is not None else None
    reason = F.lit(None) if time is None else F.when(time.isNull(), "bad timestamp: missing or not a time")
    return frame.select(
        *[F.col(field.name) for field in one.schema],
        count.cast("bigint").alias(DIFF),
        reason.cast("string").alias(BAD),
        F.to_json(F.struct(*[F.col(field.name) for field in one.schema])).alias(RAW),
        *_place(),
    )


def _place() -> list[Column]:
    return [F.col("_metadata.file_path").alias(FILE), F.col("_metadata.file_block_start").alias(BLOCK)]


def numbered(frame: DataFrame) -> DataFrame:
    """The rows of a micro-batch with a number that grows along each block of a file."""
    return frame.withColumn(PLACE, F.monotonically_increasing_id())


_READERS = {"csv": _csv, "json": _typed, "parquet": _typed}


def union(frames: dict[str, DataFrame]) -> DataFrame:
    """All streams as one frame: the stream's name, then every stream's columns, NULL but for its own."""
    parts: list[DataFrame] = []
    for name, frame in frames.items():
        columns = [F.lit(name).alias("stream")]
        for index, (other, its) in enumerate(frames.items()):
            for field in its.schema:
                own = F.col(f"`{field.name}`") if other == name else F.lit(None).cast(field.dataType)
                columns.append(own.alias(f"{index}.{field.name}"))
        parts.append(frame.select(*columns))
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.unionAll(part)
    return joined
