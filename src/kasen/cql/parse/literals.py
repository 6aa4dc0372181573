"""Constants in CQL text: numbers, timestamps, durations, types."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from sqlglot import exp

from kasen.cql import nodes
from kasen.cql.expr import Expr, Literal
from kasen.cql.text import Text
from kasen.text_values import DECIMAL, parse_text
from kasen.text_values import INTEGER as WHOLE
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

# Durations reach no further than this: twice it still fits in a BIGINT.
_LONGEST = 2**62

_TYPES: dict[exp.DType, Type] = {
    exp.DType.BOOLEAN: BOOLEAN,
    exp.DType.INT: INTEGER,
    exp.DType.BIGINT: BIGINT,
    exp.DType.DOUBLE: DOUBLE,
    exp.DType.VARCHAR: VARCHAR,
    exp.DType.TIMESTAMP: TIMESTAMP,
}


def number(node: exp.Literal, text: Text, negative: bool = False) -> Literal:
    """An integer is INTEGER or BIGINT, `1.50` a DECIMAL, `1e3` a DOUBLE."""
    digits = f"-{node.this}" if negative else str(node.this)
    if WHOLE.fullmatch(digits):
        found = _integer(digits)
        if found is None:
            limit = "-9223372036854775808" if negative else "9223372036854775807"
            fault = f"the number {shortened(digits)} is too large"
            raise text.error(fault, node, f"BIGINT ends at {limit}; as a DOUBLE, write it with e0 behind")
        return found
    if "e" in digits.lower():
        if math.isinf(float(digits)):
            fault = f"the number {shortened(digits)} is too large"
            raise text.error(fault, node, "DOUBLE ends at 1.7976931348623157e308")
        return Literal(DOUBLE, float(digits))
    value = _decimal(digits)
    if value is None:
        fault = f"the number {shortened(digits)} has more than {MAX_DECIMAL_DIGITS} digits"
        raise text.error(fault, node, "as a DOUBLE, write it with e0 behind")
    return value


def shortened(digits: str) -> str:
    """The digits for an error's text."""
    return digits if len(digits) <= 40 else f"{digits[:20]}...{digits[-10:]}"


def _integer(digits: str) -> Literal | None:
    value = parse_text(digits, BIGINT)
    if value is None:
        return None
    return Literal(INTEGER if -(2**31) <= value < 2**31 else BIGINT, value)


def _decimal(digits: str) -> Literal | None:
    value = Decimal(digits)
    _, figures, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(1, len(figures), scale)
    return Literal(decimal(precision, scale), value) if precision <= MAX_DECIMAL_DIGITS else None


def parse_timestamp(value: str) -> int | None:
    """ISO text to µs since 1970, or None."""
    found = parse_text(value.strip(), TIMESTAMP)
    return None if found is None else int(found)


def convert_text(arg: Expr, wanted: Type, node: exp.Expr, text: Text) -> Literal:
    """What a quoted constant means beside a value of type `wanted`."""
    assert isinstance(arg, Literal)
    value = str(arg.value)
    found = _converted(value.strip(), wanted)
    if found is None:
        remedy = {
            Kind.TIMESTAMP: "write it as '2026-01-31 23:59:59', with up to six digits after the seconds",
            Kind.BOOLEAN: "write TRUE or FALSE",
        }.get(wanted.kind, "write the number without quotes")
        raise text.error(f"{shortened(value)!r} is not a {_family(wanted)}", node, remedy)
    return found


def _converted(value: str, wanted: Type) -> Literal | None:
    if wanted.kind is Kind.TIMESTAMP:
        parsed = parse_timestamp(value)
        return None if parsed is None else Literal(TIMESTAMP, parsed)
    if wanted.kind is Kind.BOOLEAN:
        return Literal(BOOLEAN, value.lower() == "true") if value.lower() in ("true", "false") else None
    if wanted.is_integer:
        return _integer(value)
    if wanted.kind is Kind.DECIMAL and DECIMAL.fullmatch(value):
        return _decimal(value)
    number = parse_text(value, DOUBLE)
    return None if number is None else Literal(DOUBLE, number)


def _family(type_: Type) -> str:
    return "BIGINT" if type_.is_integer else str(type_.kind.value)


def cql_type(node: exp.DataType, text: Text) -> Type:
    """The CQL type that a type's name stands for."""
    if node.this is not exp.DType.DECIMAL:
        return _TYPES[node.this]
    sizes = [str(size.this.this) for size in node.expressions]
    if not all(re.fullmatch("[0-9]{1,9}", size) for size in sizes) or len(sizes) > 2:
        raise text.error("DECIMAL takes its digits and its scale as numbers", node, "such as DECIMAL(10, 2)")
    precision = int(sizes[0]) if sizes else MAX_DECIMAL_DIGITS
    scale = int(sizes[1]) if len(sizes) > 1 else (0 if sizes else 3)
    if not 1 <= precision <= MAX_DECIMAL_DIGITS or scale > precision:
        fault = f"DECIMAL({precision}, {scale}) is out of bounds"
        raise text.error(fault, node, f"DECIMAL(p, s) needs 1 <= p <= {MAX_DECIMAL_DIGITS} and s <= p")
    return decimal(precision, scale)


def interval(node: exp.Interval, text: Text) -> Literal:
    """INTERVAL '5' MINUTE as µs."""
    micros = _scaled(str(node.this.this), nodes.UNITS[node.args["unit"].name])
    if micros is None:
        remedy = "such as INTERVAL '5' MINUTE or INTERVAL '1.5' SECOND"
        raise text.error("an INTERVAL is a whole number of microseconds, below 146,000 years", node, remedy)
    return Literal(INTERVAL, micros)


def duration(node: nodes.Duration, time: Type, text: Text, *, least: int = 0, remedy: str = "") -> int:
    """A duration in the app's unit of time (µs, or BIGINT's own)."""
    amount = str(node.this.this)
    unit = node.args.get("unit")
    if time == TIMESTAMP and unit is None:
        fault = f"the length of time {shortened(amount)} has no unit"
        raise text.error(fault, node, f"time is TIMESTAMP here: write {shortened(amount)} SECONDS")
    if time == BIGINT and unit is not None:
        fault = f"the length of time {shortened(amount)} {unit} has a unit"
        raise text.error(fault, node, f"time is BIGINT here: write the bare number {shortened(amount)}")
    value = _scaled(amount, nodes.UNITS[unit] if unit else 1)
    if value is None:
        whole = "a whole number of microseconds, below 146,000 years" if unit else "a whole number below 2^62"
        raise text.error(f"a length of time is {whole}", node, "such as 5 MINUTES" if unit else "such as 10")
    if value < least:
        raise text.error(f"this length of time must be at least {least}", node, remedy)
    return value


def _scaled(amount: str, factor: int) -> int | None:
    try:
        value = Decimal(amount)
    except InvalidOperation:
        return None
    if not value.is_finite() or value.adjusted() > 30 or int(value.as_tuple().exponent) < -30:
        return None
    scaled = Fraction(value) * factor
    return int(scaled) if scaled.denominator == 1 and abs(scaled) < _LONGEST else None
