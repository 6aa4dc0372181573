"""CQL's types, schemas and instants: the words that every part of Kasen shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar, dataclass_transform

import pyarrow as pa

MAX_DECIMAL_DIGITS = 18
#: One word of a row says which of its columns are NULL.
MAX_COLUMNS = 63
#: How many bytes of UTF-8 a text may have, unless SET max_text_bytes says otherwise.
MAX_TEXT_BYTES = 1 << 20

Class = TypeVar("Class")


class CachedHash:
    """The base of values that are made of values: where such a value keeps its hash."""

    __slots__ = ("_hash",)


@dataclass_transform(frozen_default=True)
def hashed_once(cls: type[Class]) -> type[Class]:
    """A frozen dataclass, derived from Hashed, whose hash is computed when it is first asked for.

    Plans are looked up by value, part by part. Without this every part would hash all below it again.
    """
    made = dataclass(frozen=True, slots=True)(cls)
    compute = made.__hash__

    def hash_once(self: Class) -> int:
        try:
            return self._hash  # type: ignore[attr-defined, no-any-return]
        except AttributeError:
            value = compute(self)
            object.__setattr__(self, "_hash", value)
            return value

    made.__hash__ = hash_once  # type: ignore[method-assign, assignment]
    return made


class Kind(Enum):
    """The families of CQL types."""

    NULL = "NULL"
    BOOLEAN = "BOOLEAN"
    INTEGER = "INTEGER"
    BIGINT = "BIGINT"
    DECIMAL = "DECIMAL"
    DOUBLE = "DOUBLE"
    VARCHAR = "VARCHAR"
    TIMESTAMP = "TIMESTAMP"
    INTERVAL = "INTERVAL"

    # There is one of each, and types are hashed wherever plans are looked up.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Type:
    """A CQL type. Only DECIMAL has digits; NULL and INTERVAL exist in expressions, never in columns."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        return str(self.kind.value)

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.INTEGER, Kind.BIGINT)

    @property
    def is_numeric(self) -> bool:
        return self.kind in (Kind.INTEGER, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)

    @property
    def is_null(self) -> bool:
        return self.kind is Kind.NULL


NULL = Type(Kind.NULL)
BOOLEAN = Type(Kind.BOOLEAN)
INTEGER = Type(Kind.INTEGER)
BIGINT = Type(Kind.BIGINT)
DOUBLE = Type(Kind.DOUBLE)
VARCHAR = Type(Kind.VARCHAR)
TIMESTAMP = Type(Kind.TIMESTAMP)
INTERVAL = Type(Kind.INTERVAL)


def decimal(precision: int, scale: int) -> Type:
    return Type(Kind.DECIMAL, precision, scale)


class Field(NamedTuple):
    """A named column of a schema."""

    name: str
    type: Type


@hashed_once
class Schema(CachedHash):
    """The columns of a stream or relation, in order. Names are compared without regard to case."""

    fields: tuple[Field, ...]

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> Field:
        return self.fields[index]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def types(self) -> tuple[Type, ...]:
        return tuple(field.type for field in self.fields)

    def find(self, name: str) -> int | None:
        """The index of the column called `name`, or None."""
        wanted = name.lower()
        for index, field in enumerate(self.fields):
            if field.name.lower() == wanted:
                return index
        return None

    def __str__(self) -> str:
        return "(" + ", ".join(f"{field.name} {field.type}" for field in self.fields) + ")"


class Pressure(Enum):
    """What happens to a pushed row that finds no room."""

    BLOCK = "BLOCK"  # the push waits
    NEWEST = "SHED NEWEST"  # the row itself is refused
    OLDEST = "SHED OLDEST"  # the rows that have waited longest make room
    SAMPLE = "SHED SAMPLE"  # a share of the rows is kept as soon as room gets scarce


@dataclass(frozen=True, slots=True)
class OnPressure:
    """A stream's policy; `keep` is the share of rows that SAMPLE keeps."""

    policy: Pressure = Pressure.BLOCK
    keep: float = 1.0

    def __str__(self) -> str:
        share = f" {self.keep:g}" if self.policy is Pressure.SAMPLE else ""
        return f"{self.policy.value}{share}"


@dataclass(frozen=True, slots=True)
class Connector:
    """FROM 'format' OPTIONS (...) of an input, or INTO 'format' OPTIONS (...) of a query."""

    format: str
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)


_ARROW: dict[Kind, pa.DataType] = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.VARCHAR: pa.string(),
    Kind.TIMESTAMP: pa.timestamp("us"),
}


def to_arrow(type_: Type) -> pa.DataType:
    """The Arrow type that carries a CQL type."""
    if type_.kind is Kind.DECIMAL:
        return pa.decimal128(type_.precision, type_.scale)
    return _ARROW[type_.kind]


def common_type(left: Type, right: Type) -> Type | None:
    """The least type that both sides fit in, as UNION, CASE, COALESCE and comparisons need; None if none."""
    if left == right or right.is_null:
        return left
    if left.is_null:
        return right
    if not (left.is_numeric and right.is_numeric):
        return None
    if Kind.DOUBLE in (left.kind, right.kind):
        return DOUBLE
    if Kind.DECIMAL in (left.kind, right.kind):
        return _common_decimal(as_decimal(left), as_decimal(right))
    return BIGINT


def as_decimal(type_: Type) -> Type:
    """The DECIMAL that holds an integer type's usual values; a DECIMAL stays as it is."""
    if type_.kind is Kind.DECIMAL:
        return type_
    return decimal(10, 0) if type_.kind is Kind.INTEGER else decimal(MAX_DECIMAL_DIGITS, 0)


def _common_decimal(left: Type, right: Type) -> Type:
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return decimal(min(MAX_DECIMAL_DIGITS, whole + scale), scale)


def byte_length(text: str) -> int:
    """How many bytes a text has in UTF-8; of halves of surrogate pairs, which are none, as many as any."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
