"""Inputs that are no files of Kasen's: any streaming format that Spark knows, and DataFrames of a program.

Columns are found by name and cast to the declared types; a cell that is there and does not fit makes its row
a bad one. Such sources tell no positions, so the rows of an epoch are put in order of time and then of value.
"""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kasen.connect.files import located
from kasen.errors import DataError
from kasen.plan.native.lower import is_foreign
from kasen.plan.native.sql_cast import parse_cell
from kasen.plan.native.sql_text import quoted, spark_name
from kasen.plan.physical import Input
from kasen.spark.scan.file_names import code_of
from kasen.spark.scan.names import BAD, DIFF, FILE, NO_TIME, RAW
from kasen.types import Field, Kind

Frame = DataFrame
#: Options that are Kasen's; all others are handed to the format.
_OWN = ("path", "diff", "follow")
#: Formats that do not keep what they have said, as Spark calls them.
_ONCE = frozenset(["socket", "textSocket"])


def follows(input_: Input) -> bool:
    """Whether an input goes on for ever. Files do if they are told to, other formats unless told not to."""
    told = input_.connector.option("follow", "true" if is_foreign(input_) else "false").lower()
    if told not in ("true", "false"):
        raise DataError(f"{input_.name}: option 'follow' is 'true' or 'false', not {told!r}")
    return told == "true" and not input_.is_static


def open_foreign(spark: SparkSession, input_: Input, base: Path) -> DataFrame:
    """A stream (or static table) in any format that Spark reads, by its name and options."""
    options = {name: value for name, value in input_.connector.options if name not in _OWN}
    reading = (spark.read if input_.is_static else spark.readStream).format(input_.connector.format)
    path = input_.connector.option("path")
    try:
        frame = reading.options(**options).load(located(base, path) if path else None)
    except (PySparkException, Py4JJavaError) as fault:
        raise DataError(
            f"{input_.name}: Spark cannot read format {input_.connector.format!r}: {_said(fault)}"
        ) from None
    return adopt(input_, frame)


def need_rereadable(input_: Input, frame: DataFrame) -> None:
    """Refuses what Spark cannot read again: with a checkpoint, an epoch that was cut off is done again.

    Nor would rows that are kept aside help: a socket counts its lines from 0 whenever it is opened, and a
    streaming query that has had some of them fails after its restart, as offsets seem to go back.
    """
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    for leaf in (leaves.apply(index) for index in range(leaves.size())):
        if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName() in _ONCE:
            fault = f"{input_.name}: Spark cannot read {leaf.sourceName()!r} again after a crash"
            remedy = "leave the checkpoint out, or put a broker or files in between"
            raise DataError(f"{fault}, so a checkpoint would lose rows; {remedy}")


def adopt(input_: Input, frame: DataFrame) -> DataFrame:
    """Any frame with the declared columns, in the columns that every input has."""
    there = {name.lower(): name for name in frame.columns}
    for field in input_.schema:
        if field.name.lower() not in there:
            columns = ", ".join(frame.columns)
            raise DataError(f"{input_.name}: there is no column {field.name!r}; the columns are: {columns}")
    names = {field.name: there[field.name.lower()] for field in input_.schema}
    kinds = dict(frame.dtypes)
    cells = {
        field.name: cell_of(quoted(names[field.name]), kinds[names[field.name]], field)
        for field in input_.schema
    }
    reason = F.lit(None).cast("string")
    if input_.timestamp is not None:
        moment = F.expr(cells[input_.schema[input_.timestamp].name])
        reason = F.when(moment.isNull(), NO_TIME)
    for field in input_.schema:
        is_bad = F.col(quoted(names[field.name])).isNotNull() & F.expr(cells[field.name]).isNull()
        reason = F.coalesce(
            reason, F.when(is_bad, f"bad value: column {field.name} does not hold a {field.type}")
        )
        if field.type.kind is Kind.VARCHAR:
            is_long = F.octet_length(F.expr(cells[field.name])) > input_.max_text_bytes
            reason = F.coalesce(reason, F.when(is_long, long_cell(input_, field)))
    diff = there.get(input_.connector.option("diff", "diff").lower()) if input_.is_relation else None
    sign = F.coalesce(F.col(quoted(diff)).cast("bigint"), F.lit(1)) if diff is not None else F.lit(1)
    try:
        return frame.select(
            *[F.expr(cells[field.name]).alias(field.name) for field in input_.schema],
            sign.cast("bigint").alias(DIFF),
            reason.alias(BAD),
            F.to_json(F.struct(*[F.col(quoted(name)) for name in names.values()])).alias(RAW),
            code_of(F.lit("")).alias(FILE),
        )
    except AnalysisException as fault:
        raise DataError(f"{input_.name}: {_said(fault)}") from None


def long_cell(input_: Input, field: Field) -> str:
    return f"bad value: column {field.name} is longer than {input_.max_text_bytes} bytes"


def cell_of(name: str, kind: str, field: Field) -> str:
    if kind == "string":
        return parse_cell(name, field.type)
    return f"try_cast({name} AS {spark_name(field.type)})"


def _said(fault: PySparkException | Py4JJavaError) -> str:
    """Spark's words, without the plan or the stack that it prints beneath."""
    words = fault.java_exception.getMessage() if isinstance(fault, Py4JJavaError) else str(fault)
    return str(words).split("\n")[0].strip()
