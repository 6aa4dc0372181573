"""Inputs from their definitions: files to tuples with instants, and what goes to the dead letter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kasen.cql.bound import App, Input, Tick
from kasen.cql.expr import Value
from kasen.errors import DataError
from kasen.types import BIGINT, TIMESTAMP, Connector, Kind, Type
from tests.oracle import values
from tests.oracle.csv_text import CsvRow, records
from tests.oracle.instants import Instant
from tests.oracle.values import DEFAULT_MAX_TEXT_BYTES, Row

BAD_ROW = "bad row"
BAD_VALUE = "bad value"
BAD_TIMESTAMP = "bad timestamp"
BAD_DIFF = "bad diff"
LATE = "late"
UNMATCHED = "unmatched delete"


_UNSTAMPED = Instant(0)


class DeadLetter(NamedTuple):
    """A row that was refused: its stream, its 1-based line in the source, why, and its text."""

    stream: str
    line: int
    reason: str
    raw: str


@dataclass(frozen=True, slots=True)
class Record:
    """A row as the source has it: a value or a text for each column it has."""

    line: int
    raw: str
    cells: Mapping[str, object]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Tuple:
    """A row that was accepted. `diff` is -1 only for rows that leave an outside relation."""

    line: int
    raw: str
    row: Row
    ts: int = 0
    diff: int = 1
    instant: Instant = _UNSTAMPED


@dataclass(slots=True)
class Inputs:
    """Everything that the app reads, by the input's name in lower case, in stream order."""

    tuples: dict[str, list[Tuple]] = field(default_factory=dict)
    dead: list[DeadLetter] = field(default_factory=list)


class Refused(Exception):
    """A row that goes to the dead letter; the text is the reason."""


def read_inputs(app: App, base: Path, given: Mapping[str, Iterable[Mapping[str, object]]]) -> Inputs:
    """All inputs of the app. `given` holds the rows of inputs that no file has."""
    inputs = Inputs()
    for one in app.inputs:
        rows = given.get(one.name.lower())
        found = _given_records(rows) if rows is not None else _file_records(one, base)
        most_bytes = int(app.setting("max_text_bytes", str(DEFAULT_MAX_TEXT_BYTES)))
        inputs.tuples[one.name.lower()] = _accept(one, found, inputs.dead, most_bytes)
    number_instants(app, inputs)
    return inputs


# ---------------------------------------------------------------- accepting rows


def _accept(input_: Input, found: Iterable[Record], dead: list[DeadLetter], most_bytes: int) -> list[Tuple]:
    if input_.timestamp is None and not input_.is_relation:
        raise DataError(f"{input_.name} uses arrival time, which only a log of arrivals can tell")
    accepted: list[Tuple] = []
    greatest: int | None = None
    for record in found:
        try:
            row = _row(input_, record)
            if any(isinstance(cell, str) and len(cell.encode()) > most_bytes for cell in row):
                raise Refused(f"{BAD_VALUE}: longer than {most_bytes} bytes")
            diff = _diff(input_, record)
            ts = _time(input_, row)
            # Late: when read, ts < (greatest ts read so far in that stream - SLACK).
            if abs(ts) >= 2**62:
                raise Refused(f"{BAD_TIMESTAMP}: {ts} is out of range")
            if greatest is not None and ts < greatest - input_.slack:
                raise Refused(f"{LATE}: {ts} is below {greatest - input_.slack}")
        except Refused as refused:
            dead.append(DeadLetter(input_.name, record.line, str(refused), record.raw))
            continue
        greatest = ts if greatest is None else max(greatest, ts)
        accepted.append(Tuple(record.line, record.raw, row, ts, diff))
    # Input order: by ts, then position in the source (the sort is stable).
    return sorted(accepted, key=lambda each: each.ts)


def _row(input_: Input, record: Record) -> Row:
    if record.fault:
        raise Refused(record.fault)
    row: list[Value] = []
    for index, column in enumerate(input_.schema):
        reason = BAD_TIMESTAMP if index == input_.timestamp else BAD_VALUE
        try:
            row.append(convert(record.cells.get(column.name.lower()), column.type))
        except ValueError:
            raise Refused(f"{reason}: {column.name} is not {column.type}") from None
    return values.canonical_row(row)


def _time(input_: Input, row: Row) -> int:
    if input_.timestamp is None:
        return 0
    ts = row[input_.timestamp]
    if not isinstance(ts, int):
        raise Refused(f"{BAD_TIMESTAMP}: it is NULL")
    return ts


def diff_column(input_: Input) -> str:
    """An outside relation's rows carry `diff`, or the column that OPTIONS (diff 'col') names."""
    return input_.connector.option("diff", "diff").lower()


def _diff(input_: Input, record: Record) -> int:
    if not input_.is_relation or input_.is_static or diff_column(input_) not in record.cells:
        return 1
    try:
        diff = convert(record.cells[diff_column(input_)], BIGINT)
    except ValueError:
        diff = None
    if diff not in (1, -1) or not isinstance(diff, int):
        raise Refused(f"{BAD_DIFF}: it is neither 1 nor -1")
    return diff


# ---------------------------------------------------------------- instants


def number_instants(app: App, inputs: Inputs) -> None:
    """seq is 0 for TICK BY TIME; TICK BY TUPLE numbers the tuples that share ts, over all such streams.

    In input order: by ts, then stream declaration, then position in the source.
    """
    next_seq: dict[int, int] = {}
    for one in app.inputs:
        stamped = []
        for each in inputs.tuples[one.name.lower()]:
            seq = 0
            if one.tick is Tick.TUPLE:
                seq = next_seq.get(each.ts, 0)
                next_seq[each.ts] = seq + 1
            stamped.append(Tuple(each.line, each.raw, each.row, each.ts, each.diff, Instant(each.ts, seq)))
        inputs.tuples[one.name.lower()] = stamped


# ---------------------------------------------------------------- values


def convert(cell: object, type_: Type) -> Value:
    """A source's cell as a value of the declared type; ValueError if it is none."""
    if cell is None:
        return None
    if isinstance(cell, str):
        return values.parse(cell, type_)
    if isinstance(cell, bool):
        return _only(type_, Kind.BOOLEAN, cell)
    if isinstance(cell, int) and type_.kind is Kind.TIMESTAMP:
        return cell
    if isinstance(cell, (int, float, Decimal)):
        return _number(cell, type_)
    raise ValueError("a nested value")


def _only(type_: Type, kind: Kind, value: Value) -> Value:
    if type_.kind is not kind:
        raise ValueError("another type")
    return value


def _number(cell: int | float | Decimal, type_: Type) -> Value:
    if type_.kind is Kind.DOUBLE:
        return values.canonical(float(str(cell)))
    exact = Decimal(cell)
    if type_.kind is Kind.DECIMAL:
        return values.decimal(exact, type_)
    if not type_.is_integer or not exact.is_finite() or exact != exact.to_integral_value():
        raise ValueError("not a whole number")
    return values.integer(int(exact), type_)


# ---------------------------------------------------------------- sources


def _given_records(rows: Iterable[Mapping[str, object]]) -> Iterator[Record]:
    for position, row in enumerate(rows, 1):
        yield Record(position, repr(row), {name.lower(): cell for name, cell in row.items()})


def _file_records(input_: Input, base: Path) -> Iterator[Record]:
    path = base / input_.connector.option("path")
    if input_.connector.format not in _READERS:
        raise DataError(f"the oracle cannot read {input_.connector.format!r}")
    if not path.is_file():
        raise DataError(f"{input_.name}: no file {path}")
    have = _COLUMNS[input_.connector.format](path)
    missing = [
        column.name for column in input_.schema if have is not None and column.name.lower() not in have
    ]
    if missing:
        raise DataError(f"{input_.name}: the source has no column {', '.join(missing)}")
    return _READERS[input_.connector.format](path)


def _csv(path: Path) -> Iterator[Record]:
    """csv with a header; an empty unquoted field is NULL, a quoted one the empty string."""
    header, rows = _csv_rows(path)
    for row in rows:
        fits = len(row.fields) == len(header)
        fault = "" if fits else f"{BAD_ROW}: {len(row.fields)} fields, not {len(header)}"
        yield Record(row.line, row.raw, dict(zip(header, row.fields, strict=False)), fault)


def _csv_rows(path: Path) -> tuple[list[str], list[CsvRow]]:
    header, *rows = records(path.read_bytes().decode("utf-8-sig")) or [CsvRow(1, "", [])]
    return [(name or "").strip().lower() for name in header.fields], rows


def _json(path: Path) -> Iterator[Record]:
    """One object a line; a missing key is NULL."""
    for line, raw in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not raw.strip():
            continue
        try:
            found = json.loads(raw, parse_float=Decimal)
        except ValueError:
            found = None
        if isinstance(found, dict):
            yield Record(line, raw, {name.lower(): cell for name, cell in found.items()})
        else:
            yield Record(line, raw, {}, f"{BAD_ROW}: not a JSON object")


def _parquet(path: Path) -> Iterator[Record]:
    table = pq.read_table(path)
    columns = {name.lower(): _plain(table.column(name)) for name in table.column_names}
    for index in range(table.num_rows):
        cells = {name: column[index] for name, column in columns.items()}
        yield Record(index + 1, repr(cells), cells)


def _plain(column: pa.ChunkedArray) -> list[object]:
    """An Arrow column as Python values, TIMESTAMPs as µs."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    return list(column.to_pylist())


_READERS: dict[str, Callable[[Path], Iterator[Record]]] = {"csv": _csv, "json": _json, "parquet": _parquet}
# The columns that a source has; None where each row may have others.
_COLUMNS: dict[str, Callable[[Path], list[str] | None]] = {
    "csv": lambda path: _csv_rows(path)[0],
    "json": lambda _: None,
    "parquet": lambda path: [name.lower() for name in pq.read_schema(path).names],
}


# ---------------------------------------------------------------- telling the time's type


def sniffer(base: Path) -> Callable[[Connector, str], Type | None]:
    """Undeclared time columns: the first value in the source tells the type (integer -> BIGINT)."""

    def sniff(connector: Connector, column: str) -> Type | None:
        path = base / connector.option("path")
        if connector.format not in _READERS or not path.is_file():
            return None
        for record in _READERS[connector.format](path):
            cell = record.cells.get(column.lower())
            if cell is not None:
                return BIGINT if _is_whole(cell) else TIMESTAMP
        return None

    return sniff


def _is_whole(cell: object) -> bool:
    try:
        return convert(cell, BIGINT) is not None
    except ValueError:
        return False
