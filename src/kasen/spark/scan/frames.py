"""Inputs as Spark DataFrames: scanned by Spark, typed as declared, with each row's place in its file.

A csv file's columns are read as text and cast by Spark; a cell that is there and does not cast makes the
row a bad one. Spark tells no line numbers, so a row's line is counted from its place in the file: right
for files without blank lines and line breaks in quotes.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from kasen.connect.arrow_columns import cells_of
from kasen.connect.layout import find_columns
from kasen.connect.registry import MULTILINE, layout_of_input
from kasen.connect.text.row_text import row_text
from kasen.connect.values import BAD_DIFF
from kasen.errors import DataError
from kasen.plan.native.lower import is_foreign
from kasen.plan.native.sql_cast import parse_cell
from kasen.plan.native.sql_text import quoted, timestamp
from kasen.plan.physical import Input
from kasen.spark.faults import said
from kasen.spark.scan.file_names import code, code_of
from kasen.spark.scan.input_files import InputFiles, input_files, need_header
from kasen.spark.scan.names import BAD, BLOCK, DIFF, FILE, FILES_PER_EPOCH, NO_TIME, PLACE, RAW
from kasen.spark.scan.sources import cell_of, follows, long_cell, open_foreign
from kasen.types import Field, Kind, Type

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
class ReadMode:
    """How an input is read: as it grows, so many files at a time, or `only` one file, now."""

    files_per_epoch: int | None = None
    only: str | None = None


def open_frame(
    spark: SparkSession,
    input_: Input,
    base: Path,
    files_per_epoch: int | None = None,
    only: str | None = None,
) -> DataFrame:
    """An input's rows as a streaming DataFrame; a static table's, and of `only` one file, as a batch."""
    if is_foreign(input_):
        return open_foreign(spark, input_, base)
    options = (*_OPTIONS, MULTILINE) if input_.connector.format == "csv" else _OPTIONS
    for option, _ in input_.connector.options:
        if option not in options:
            there = f"its options are: {', '.join(options)} (in any case)"
            raise DataError(
                f"{input_.name}: format {input_.connector.format!r} has no option {option!r}; {there}"
            )
    follows(input_)  # says what is wrong with that option
    reader = _READERS[input_.connector.format]
    return reader(spark, input_, files_of(input_, base), ReadMode(files_per_epoch, only))


def files_of(input_: Input, base: Path) -> InputFiles:
    return input_files(base, input_.connector.option("path"), input_.connector.format)


def open_files(spark: SparkSession, input_: Input, paths: tuple[str, ...]) -> DataFrame:
    """The declared columns of a stream's Parquet files, as a batch: a row is bad only if it has no time."""
    fields = [T.StructField(field.name, spark_type(field.type)) for field in input_.schema]
    return spark.read.schema(T.StructType(fields)).parquet(*paths)


def has_many(input_: Input, base: Path) -> bool:
    """Whether an input is read from several files."""
    return not is_foreign(input_) and len(files_of(input_, base).names()) > 1


def texts(
    spark: SparkSession, input_: Input, base: Path, file: str, times: tuple[int, int] | None, time: Type
) -> list[str]:
    """The texts of a file's rows in order: of the refused ones, or of those in a stretch of time."""
    frame = numbered(open_frame(spark, input_, base, only=file))
    if times is None:
        wanted = F.col(BAD).isNotNull()
    else:
        assert input_.timestamp is not None
        low, high = (timestamp(f"{ts}L") if time.kind is Kind.TIMESTAMP else f"{ts}L" for ts in times)
        moment = quoted(input_.schema[input_.timestamp].name)
        wanted = F.col(BAD).isNull() & F.expr(f"{moment} BETWEEN {low} AND {high}")
    is_parquet = input_.connector.format == "parquet"
    if is_parquet and (times is not None or has_declared_types(spark, input_, base)):
        return _parquet_texts(spark, input_, base, file, times is None, wanted)
    block = F.col(FILE).bitwiseXOR(F.lit(code(file))).alias(BLOCK)
    found = frame.where(wanted).select(RAW, block, PLACE).toArrow()
    result: list[str] = _in_order(found).column(RAW).to_pylist()
    return result


def _in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(BLOCK, "ascending"), (PLACE, "ascending")])


def _parquet_texts(
    spark: SparkSession, input_: Input, base: Path, file: str, bad: bool, wanted: Column
) -> list[str]:
    """A Parquet row has no text but its cells, those too that nobody declared."""
    assert input_.timestamp is not None
    frame = spark.read.parquet(files_of(input_, base).address(file))
    moment = F.col(quoted(input_.schema[input_.timestamp].name))
    frame = frame.withColumns({BAD: F.when(moment.isNull(), "bad"), BLOCK: _block()})
    found = _in_order(numbered(frame).where(moment.isNull() if bad else wanted).toArrow())
    rows = found.drop_columns([BAD, BLOCK, PLACE]).combine_chunks()
    batches = rows.to_batches()
    return [
        row_text(cells_of(batch, rows.column_names, row)) for batch in batches for row in range(len(batch))
    ]


def _load(
    spark: SparkSession, input_: Input, files: InputFiles, schema: T.StructType, how: ReadMode, **options: str
) -> DataFrame:
    now = input_.is_static or how.only is not None
    reading = spark.read if now else spark.readStream
    reading = reading.format(input_.connector.format).schema(schema).options(**options)
    if not now:
        # An epoch must fit into memory, however much has piled up.
        most = input_.connector.option(FILES_PER_EPOCH) or how.files_per_epoch or None
        if most is not None:
            reading = reading.option("maxFilesPerTrigger", str(most))
        else:
            reading = reading.option("maxBytesPerTrigger", str(_EPOCH_BYTES[input_.connector.format]))
    return reading.option("pathGlobFilter", how.only or files.pattern).load(files.folder)


def _csv(spark: SparkSession, input_: Input, files: InputFiles, how: ReadMode) -> DataFrame:
    first, *others = files.need(input_.name)
    header = files.header(first, input_.name)
    if input_.is_static:
        for other in others:
            need_header(input_.name, files, other, header)
    found = find_columns(layout_of_input(input_), header, files.address(first))
    # Columns have names of our own: those of a header may be anything, and there twice.
    names = [f"c{index}" for index in range(len(header))]
    schema = T.StructType([T.StructField(name, T.StringType()) for name in (*names, _CORRUPT)])
    frame = _load(
        spark,
        input_,
        files,
        schema,
        how,
        header="true",
        escape='"',
        nullValue=_NULL,
        columnNameOfCorruptRecord=_CORRUPT,
        multiLine=_multiline(input_),
    )
    texts = [names[index] for index in found.columns]
    cells = [F.expr(parse_cell(text, field.type)) for text, field in zip(texts, input_.schema, strict=True)]
    reason = F.when(F.col(_CORRUPT).isNotNull(), "bad row: not as many fields as columns")
    if input_.timestamp is not None:
        reason = reason.when(cells[input_.timestamp].isNull(), NO_TIME)
    for field, text, cell in zip(input_.schema, texts, cells, strict=True):
        is_bad = F.col(text).isNotNull() & cell.isNull()
        reason = reason.when(is_bad, f"bad value: column {field.name} does not hold a {field.type}")
        reason = _when_long(reason, input_, field, cell)
    diff = None
    if found.diff is not None:
        diff = F.trim(F.col(names[found.diff])).try_cast("bigint")
        reason = reason.when(_is_no_diff(diff), _bad_diff(input_))
    row = F.concat_ws(",", *[F.coalesce(F.col(name), F.lit("")) for name in names])
    return frame.select(
        *[cell.alias(field.name) for cell, field in zip(cells, input_.schema, strict=True)],
        (F.lit(1) if diff is None else F.coalesce(diff, F.lit(1))).cast("bigint").alias(DIFF),
        reason.alias(BAD),
        F.coalesce(F.col(_CORRUPT), row).alias(RAW),
        _place(),
    )


def _multiline(input_: Input) -> str:
    told = input_.connector.option(MULTILINE, "false").lower()
    if told not in ("true", "false"):
        raise DataError(f"{input_.name}: option {MULTILINE!r} is 'true' or 'false', not {told!r}")
    return told


def _when_long(reason: Column, input_: Input, field: Field, cell: Column) -> Column:
    """A text that is too long makes a bad row; `reason` goes on with that."""
    if field.type.kind is not Kind.VARCHAR:
        return reason
    return reason.when(F.octet_length(cell) > input_.max_text_bytes, long_cell(input_, field))


def _is_no_diff(diff: Column) -> Column:
    return diff.isNull() | ~diff.isin(1, -1)


def _bad_diff(input_: Input) -> str:
    return f"{BAD_DIFF}: column {layout_of_input(input_).diff} is neither 1 nor -1"


def _json(spark: SparkSession, input_: Input, files: InputFiles, how: ReadMode) -> DataFrame:
    """JSON lines. Spark knows names by their exact case: that of the first row is taken for all."""
    first = files.need(input_.name)[0]
    told = first_names(files.head(first))
    fields = [
        T.StructField(told.get(field.name.lower(), field.name), spark_type(field.type))
        for field in input_.schema
    ]
    diff = layout_of_input(input_).diff
    named = None if diff is None else told.get(diff.lower(), diff)
    own = [field.name for field in fields]
    if named is not None and named not in own:
        fields.append(T.StructField(named, T.StringType()))
    fields.append(T.StructField(_CORRUPT, T.StringType()))
    options = {"encoding": "UTF-8", "lineSep": "\n", "allowSingleQuotes": "false"}
    frame = _load(
        spark, input_, files, T.StructType(fields), how, columnNameOfCorruptRecord=_CORRUPT, **options
    )
    cells = [F.col(quoted(name)) for name in own]
    corrupt = F.col(_CORRUPT)
    # A cell that is no value of its type is NULL. Naming all of them makes Spark read all of them.
    is_bad = corrupt.isNotNull() & reduce(Column.__or__, [cell.isNull() for cell in cells])
    reason = F.when(is_bad & F.get_json_object(corrupt, "$").isNull(), "bad row: not a JSON object")
    if input_.timestamp is not None:
        reason = reason.when(cells[input_.timestamp].isNull(), NO_TIME)
    reason = reason.when(is_bad, "bad value: a cell is no value of its column's type")
    for field, cell in zip(input_.schema, cells, strict=True):
        reason = _when_long(reason, input_, field, cell)
    count: Column = F.lit(1)
    if named is not None:
        # A name that is not there is an insertion, and so is what says so.
        cell = F.col(quoted(named)).cast("string")
        parsed = F.when(cell.isNull(), 1).otherwise(cell.try_cast("bigint"))
        reason = reason.when(_is_no_diff(parsed), _bad_diff(input_))
        count = F.coalesce(parsed, F.lit(1))
    return frame.select(
        *[cell.alias(field.name) for cell, field in zip(cells, input_.schema, strict=True)],
        count.cast("bigint").alias(DIFF),
        reason.cast("string").alias(BAD),
        F.coalesce(F.make_valid_utf8(corrupt), F.to_json(F.struct(*cells))).alias(RAW),
        _place(),
    )


def first_names(head: bytes) -> dict[str, str]:
    """The names in the first row of a JSON file as they are written, by their lower case."""
    for line in head.splitlines():
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict):
                return {name.lower(): name for name in row}
    return {}


def _parquet(spark: SparkSession, input_: Input, files: InputFiles, how: ReadMode) -> DataFrame:
    """Columns are read with the types of the first file, and cast if these are not the declared ones."""
    first = files.address(files.need(input_.name)[0])
    there = file_schema(spark, input_, first)
    names = list(there.names)
    found = find_columns(layout_of_input(input_), names, first)
    own = [there[names[index]] for index in found.columns]
    fields, cells = [], []
    reason = F.lit(None).cast("string")
    for read, field in zip(own, input_.schema, strict=True):
        if is_read_as(read.dataType, field.type):
            fields.append(T.StructField(read.name, spark_type(field.type)))
            cells.append(F.col(quoted(read.name)))
        else:
            fields.append(T.StructField(read.name, read.dataType))
            cells.append(F.expr(cell_of(quoted(read.name), read.dataType.simpleString(), field)))
    if input_.timestamp is not None:
        reason = F.when(cells[input_.timestamp].isNull(), NO_TIME)
    for read, field, cell in zip(own, input_.schema, cells, strict=True):
        if not is_read_as(read.dataType, field.type):
            is_bad = F.col(quoted(read.name)).isNotNull() & cell.isNull()
            text = F.lit(f"bad value: column {field.name} does not hold a {field.type}")
            reason = F.coalesce(reason, F.when(is_bad, text))
        if field.type.kind is Kind.VARCHAR:
            is_long = F.octet_length(cell) > input_.max_text_bytes
            reason = F.coalesce(reason, F.when(is_long, long_cell(input_, field)))
    count: Column = F.lit(1)
    if found.diff is not None:
        sign = there[names[found.diff]]
        if sign.name not in [field.name for field in fields]:
            fields.append(sign)
        diff = F.col(quoted(sign.name)).try_cast("bigint")
        reason = F.coalesce(reason, F.when(_is_no_diff(diff), _bad_diff(input_)))
        count = F.coalesce(diff, F.lit(1))
    frame = _load(spark, input_, files, T.StructType(fields), how)
    return frame.select(
        *[cell.alias(field.name) for cell, field in zip(cells, input_.schema, strict=True)],
        count.cast("bigint").alias(DIFF),
        reason.cast("string").alias(BAD),
        F.to_json(F.struct(*[F.col(quoted(read.name)) for read in own])).alias(RAW),
        _place(),
    )


def file_schema(spark: SparkSession, input_: Input, address: str) -> T.StructType:
    """The columns of a Parquet file, as Spark reads them."""
    try:
        return spark.read.parquet(address).schema
    except PySparkException as fault:
        raise DataError(f"{input_.name}: Spark cannot read {address}: {said(fault)}") from None


def is_read_as(read: T.DataType, declared: Type) -> bool:
    """Whether Spark's reader gives a column the declared type by itself."""
    wanted = spark_type(declared)
    return read == wanted or (declared.kind is Kind.TIMESTAMP and isinstance(read, T.TimestampType))


def has_declared_types(spark: SparkSession, input_: Input, base: Path) -> bool:
    """Whether a stream's Parquet files can be read without a cast, and no cell can be a bad one.

    A text may be too long, so rows with texts tell what is wrong with them.
    """
    if any(field.type.kind is Kind.VARCHAR for field in input_.schema):
        return False
    files = files_of(input_, base)
    found = file_schema(spark, input_, files.address(files.need(input_.name)[0]))
    there = {field.name: field.dataType for field in found}
    return all(field.name in there and is_read_as(there[field.name], field.type) for field in input_.schema)


def _block() -> Column:
    return F.col("_metadata.file_block_start").alias(BLOCK)


def _place() -> Column:
    """Which file and block a row comes from."""
    return code_of(F.col("_metadata.file_name"), F.col("_metadata.file_block_start")).alias(FILE)


def numbered(frame: DataFrame) -> DataFrame:
    """The rows of a micro-batch with a number that grows along each block of a file."""
    return frame.withColumn(PLACE, F.monotonically_increasing_id())


_OPTIONS = ("path", "diff", "follow", FILES_PER_EPOCH)
_READERS = {"csv": _csv, "json": _json, "parquet": _parquet}
