"""Constants in CQL text: numbers, timestamps, durations, types."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from kasen.cql import nodes
from kasen.cql.expr import Literal, Value
from kasen.cql.text import Text
from kasen.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    INTERVAL,
    MAX_DECIMAL_DIGITS,
    TIMESTAMP,
    VARCHAR,
    Kind,
    Type,
    decimal,
)

_EPOCH = datetime(1970, 1, 1)
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?")

DType = exp.DType
_TYPES: dict[exp.DType, Type] = {
    DType.BOOLEAN: BOOLEAN,
    DType.TINYINT: INTEGER,
    DType.SMALLINT: INTEGER,
    DType.INT: INTEGER,
    DType.BIGINT: BIGINT,
    DType.FLOAT: DOUBLE,
    DType.DOUBLE: DOUBLE,
    DType.VARCHAR: VARCHAR,
    DType.CHAR: VARCHAR,
    DType.TEXT: VARCHAR,
    DType.TIMESTAMP: TIMESTAMP,
    DType.DATETIME: TIMESTAMP,
}
_TYPE_HELP = "types are BOOLEAN, INTEGER, BIGINT, DOUBLE, DECIMAL(p, s), VARCHAR, TIMESTAMP"


def number(node: exp.Literal, text: Text) -> Literal:
    """An integer is INTEGER or BIGINT, `1.50` a DECIMAL, `1e3` a DOUBLE."""
    digits = str(node.this)
    try:
        if re.fullmatch(r"\d+", digits):
            value = int(digits)
            if value < 2**31:
                return Literal(INTEGER, value)
            if value < 2**63:
                return Literal(BIGINT, value)
            raise text.error(f"the number {digits} is too large", node, "BIGINT ends at 9223372036854775807")
        if "e" in digits.lower():
            return Literal(DOUBLE, float(digits))
        return _decimal_literal(Decimal(digits), node, text)
    except (ValueError, InvalidOperation):
        raise text.error(f"cannot read the number {digits!r}", node) from None


def _decimal_literal(value: Decimal, node: exp.Expr, text: Text) -> Literal:
    exponent = value.as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    precision = max(len(value.as_tuple().digits), scale)
    if precision > MAX_DECIMAL_DIGITS:
        fault = f"the number {value} has more than {MAX_DECIMAL_DIGITS} digits"
        raise text.error(fault, node, f"write it as DOUBLE: {value}e0")
    return Literal(decimal(max(1, precision), scale), value)


def parse_timestamp(value: str) -> int | None:
    """ISO text to µs since 1970, or None."""
    value = value.strip()
    if not _TIMESTAMP.fullmatch(value):
        return None
    try:
        return (datetime.fromisoformat(value) - _EPOCH) // timedelta(microseconds=1)
    except ValueError:
        return None


def convert_text(value: str, wanted: Type) -> Value:
    """What a quoted constant means beside a value of type `wanted`; ValueError if nothing."""
    if wanted.kind is Kind.TIMESTAMP:
        parsed = parse_timestamp(value)
        if parsed is None:
            raise ValueError(value)
        return parsed
    if wanted.is_integer:
        number_ = int(value)
        limit = 2**31 if wanted.kind is Kind.INTEGER else 2**63
        if not -limit <= number_ < limit:
            raise ValueError(value)
        return number_
    if wanted.kind is Kind.DOUBLE:
        return float(value)
    if wanted.kind is Kind.BOOLEAN and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError(value)


def cql_type(node: exp.DataType, text: Text) -> Type:
    """The CQL type that a type's name stands for."""
    if node.this in (DType.DECIMAL, DType.BIGDECIMAL):
        return _decimal_type(node, text)
    found = _TYPES.get(node.this)
    if found is None or (node.expressions and found is not VARCHAR):
        raise text.error(f"unknown type {node.sql()!r}", node, _TYPE_HELP)
    return found


def _decimal_type(node: exp.DataType, text: Text) -> Type:
    sizes = [
        str(size.this.this if isinstance(size, exp.DataTypeParam) else size) for size in node.expressions
    ]
    if not all(size.isdigit() for size in sizes) or len(sizes) > 2:
        raise text.error("DECIMAL takes its digits and its scale as numbers", node, "such as DECIMAL(10, 2)")
    precision = int(sizes[0]) if sizes else MAX_DECIMAL_DIGITS
    scale = int(sizes[1]) if len(sizes) > 1 else (0 if sizes else 3)
    if not 1 <= precision <= MAX_DECIMAL_DIGITS or scale > precision:
        fault = f"DECIMAL({precision}, {scale}) is out of bounds"
        raise text.error(fault, node, f"DECIMAL(p, s) needs 1 <= p <= {MAX_DECIMAL_DIGITS} and s <= p")
    return decimal(precision, scale)


def interval(node: exp.Interval, text: Text) -> Literal:
    """INTERVAL '5' MINUTE, INTERVAL 5 MINUTES, INTERVAL '5 minutes' as µs."""
    amount = node.this
    unit = node.args.get("unit")
    value = str(amount.this) if isinstance(amount, exp.Literal) else ""
    if isinstance(amount, exp.Neg) and isinstance(amount.this, exp.Literal):
        value = f"-{amount.this.this}"
    word = str(unit.this if isinstance(unit, exp.Var) else unit or "")
    if not word and " " in value.strip():
        value, word = value.strip().split(" ", 1)
    canonical = nodes.canonical_unit(word.strip())
    micros = _scaled(value, nodes.UNITS[canonical]) if canonical else None
    if micros is None:
        remedy = "such as INTERVAL '5' MINUTE; units run from MICROSECOND to DAY"
        raise text.error("cannot read this interval", node, remedy)
    return Literal(INTERVAL, micros)


def duration(node: nodes.Duration, time: Type, text: Text, *, least: int = 0) -> int:
    """A duration in the app's unit of time (µs, or BIGINT's own)."""
    amount = str(node.this.this)
    unit = node.args.get("unit")
    if time == TIMESTAMP and unit is None:
        raise text.error(
            f"the duration {amount} has no unit", node, f"time is TIMESTAMP here: {amount} SECONDS"
        )
    if time == BIGINT and unit is not None:
        remedy = f"time is BIGINT here, so write the bare number: {amount}"
        raise text.error(f"the duration {amount} {unit} has a unit", node, remedy)
    value = _scaled(amount, nodes.UNITS[unit] if unit else 1)
    if value is None:
        raise text.error("a duration is a whole number of microseconds", node)
    if value < least:
        raise text.error(f"this duration must be at least {least}", node)
    return value


def _scaled(amount: str, factor: int) -> int | None:
    try:
        value = Decimal(amount) * factor
    except InvalidOperation:
        return None
    if not value.is_finite() or value != value.to_integral_value() or abs(value) >= 2**62:
        return None
    return int(value)
