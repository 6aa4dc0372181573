"""Pieces of Spark SQL text that expressions and casts are made of."""

from __future__ import annotations

import math

from kasen.types import Kind, Type


class NotNative(Exception):
    """Spark SQL has no form of this that is exactly equal; says why."""


_NAMES: dict[Kind, str] = {
    Kind.NULL: "VOID",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INTEGER: "INT",
    Kind.BIGINT: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.VARCHAR: "STRING",
    Kind.TIMESTAMP: "TIMESTAMP_NTZ",
    Kind.INTERVAL: "BIGINT",
}

#: From here on every DOUBLE is whole.
_WHOLE = "4503599627370496D"


def spark_name(type_: Type) -> str:
    """The type as Spark SQL writes it."""
    if type_.kind is Kind.DECIMAL:
        return f"DECIMAL({type_.precision}, {type_.scale})"
    return _NAMES[type_.kind]


def quoted(name: str) -> str:
    """A column's name."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A string literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


def null(type_: Type) -> str:
    return f"CAST(NULL AS {spark_name(type_)})"


def double(value: float) -> str:
    if math.isnan(value):
        return "double('NaN')"
    if math.isinf(value):
        return "double('Infinity')" if value > 0 else "double('-Infinity')"
    return f"{value!r}D"


def micros(moment: str) -> str:
    """A TIMESTAMP_NTZ as µs since 1970; exact because the session's zone is UTC."""
    return f"unix_micros(CAST({moment} AS TIMESTAMP))"


def timestamp(held: str) -> str:
    """The inverse of `micros`."""
    return f"CAST(timestamp_micros({held}) AS TIMESTAMP_NTZ)"


def minus(arg: str, type_: Type) -> str:
    if type_.kind is Kind.DOUBLE:
        return f"(-{arg})"
    if type_.kind is Kind.DECIMAL:
        return f"CAST(-{arg} AS {spark_name(type_)})"
    return f"try_subtract(0L, {arg})"


def whole_double(function: str, arg: str) -> str:
    """floor or ceil of a DOUBLE as a DOUBLE; Spark's own give BIGINT, and cut what is beyond it."""
    return f"IF(abs({arg}) < {_WHOLE}, CAST({function}({arg}) AS DOUBLE), {arg})"


def round_half_away(arg: str) -> str:
    """A DOUBLE to the nearest whole one. Adding a half and cutting would be wrong just below a half."""
    down = f"CAST(floor(abs({arg})) AS DOUBLE)"
    return (
        f"IF(abs({arg}) < {_WHOLE},"
        f" signum({arg}) * ({down} + IF(abs({arg}) - {down} >= 0.5D, 1D, 0D)), {arg})"
    )
