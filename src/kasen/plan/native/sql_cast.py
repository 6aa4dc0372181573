"""CAST as Spark SQL text; a value that does not fit becomes NULL."""

from __future__ import annotations

from kasen.plan.native.sql_text import NotNative, double, null, round_half_away, spark_name, text
from kasen.types import Kind, Type

_INTEGER = r"[+-]?[0-9]+"
_TRUE, _FALSE = "('true', 't', '1')", "('false', 'f', '0')"
_DECIMAL = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
# Possessive (++, *+): trying every way to cut a row of digits in two takes the square of its length.
_DOUBLE = r"[+-]?([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]++)?"
_TIMESTAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?"


def cast(arg: str, have: Type, want: Type) -> str:
    """`arg`, of the type `have`, as `want`."""
    if have == want:
        return arg
    if have.is_null:
        return null(want)
    if have.kind is Kind.VARCHAR:
        return parse(arg, want)
    if want.kind is Kind.VARCHAR:
        return _show(arg, have)
    if want.kind is Kind.BOOLEAN:
        return f"({arg} <> 0)"
    if have.kind is Kind.DOUBLE and want.is_integer:
        return _from_double(arg, want)
    if have.kind is Kind.DOUBLE and want.kind is Kind.DECIMAL:
        return _decimal_from_double(arg, want)
    return f"try_cast({arg} AS {spark_name(want)})"


def always_fits(have: Type, want: Type) -> bool:
    """Whether every value of one type is one of the other."""
    if have == want or have.is_null:
        return True
    if want.kind in (Kind.BOOLEAN, Kind.DOUBLE, Kind.VARCHAR):
        return have.kind in (Kind.BOOLEAN, Kind.INTEGER, Kind.BIGINT, Kind.DECIMAL)
    if want.is_integer:
        return have.kind is Kind.BOOLEAN or (have.kind is Kind.INTEGER and want.kind is Kind.BIGINT)
    return have.kind is Kind.INTEGER and want.kind is Kind.DECIMAL and want.precision - want.scale >= 10


def parse(arg: str, want: Type) -> str:
    """Text as a value, by the rules that Kasen's own readers have; blanks around it do not count."""
    trimmed = f"trim({arg})"
    if want.is_integer:
        return _matching(trimmed, _INTEGER, want)
    match want.kind:
        case Kind.VARCHAR:
            return arg
        case Kind.DOUBLE:
            return _parse_double(trimmed)
        case Kind.BOOLEAN:
            true, false = (f"lower({trimmed}) IN {words}" for words in (_TRUE, _FALSE))
            return f"(CASE WHEN {true} THEN TRUE WHEN {false} THEN FALSE END)"
        case Kind.TIMESTAMP:
            # Year 0 is no year of CQL's.
            return f"IF(startswith({trimmed}, '0000'), NULL, {_matching(trimmed, _TIMESTAMP, want)})"
    raise NotNative(f"CAST from VARCHAR to {want}: Spark stops at 38 digits")


def parse_cell(arg: str, want: Type) -> str:
    """As `parse`, for what a source holds: there, a DECIMAL of more than 38 digits is a bad value."""
    if want.kind is Kind.DECIMAL:
        return _matching(f"trim({arg})", _DECIMAL, want)
    return parse(arg, want)


def _matching(trimmed: str, pattern: str, want: Type) -> str:
    # \A and \z: a $ would let a line break at the end pass.
    regex = text(rf"\A(?:{pattern})\z")
    return f"IF(rlike({trimmed}, {regex}), try_cast({trimmed} AS {spark_name(want)}), NULL)"


def _parse_double(trimmed: str) -> str:
    low = f"lower({trimmed})"
    named = (
        f"WHEN {low} IN ('nan', '+nan', '-nan') THEN {double(float('nan'))}"
        f" WHEN {low} IN ('inf', '+inf', 'infinity', '+infinity') THEN {double(float('inf'))}"
        f" WHEN {low} IN ('-inf', '-infinity') THEN {double(-float('inf'))}"
    )
    return f"(CASE {named} ELSE {_matching(trimmed, _DOUBLE, Type(Kind.DOUBLE))} END)"


def _show(arg: str, have: Type) -> str:
    if have.kind is Kind.TIMESTAMP:
        raise NotNative("CAST from TIMESTAMP to VARCHAR: Spark writes years beyond 9999 in another way")
    return f"CAST({arg} AS STRING)"


def _from_double(arg: str, want: Type) -> str:
    # As a DOUBLE the greatest BIGINT is 2^63, which Spark would cut instead of refusing.
    limit = 2.0**63 if want.kind is Kind.BIGINT else 2.0**31
    least = f"{arg} >= {double(-limit)}" if want.kind is Kind.BIGINT else f"{arg} > {double(-limit - 1)}"
    return f"IF({least} AND {arg} < {double(limit)}, try_cast({arg} AS {spark_name(want)}), NULL)"


def _decimal_from_double(arg: str, want: Type) -> str:
    """x * 10^s in DOUBLE arithmetic, half away from zero, as CQL says; Spark goes by the shortest digits."""
    scaled = f"({arg} * {double(10.0**want.scale)})"
    whole = _from_double(round_half_away(scaled), Type(Kind.BIGINT))
    if want.scale == 0:
        return f"try_cast({whole} AS {spark_name(want)})"
    unit = text(format(10**-want.scale, f".{want.scale}f"))
    exact = f"CAST({whole} AS DECIMAL(19, 0)) * CAST({unit} AS DECIMAL({want.scale}, {want.scale}))"
    return f"try_cast({exact} AS {spark_name(want)})"
