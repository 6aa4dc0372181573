"""Parsing of types, lengths of time and intervals."""

from __future__ import annotations

import difflib

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from kasen.cql import nodes
from kasen.cql.parse.cursor import Cursor, spanned

_D = exp.DType
_TYPES: dict[str, exp.DType] = {
    "BOOLEAN": _D.BOOLEAN,
    "BOOL": _D.BOOLEAN,
    "INTEGER": _D.INT,
    "INT": _D.INT,
    "SMALLINT": _D.INT,
    "TINYINT": _D.INT,
    "BIGINT": _D.BIGINT,
    "LONG": _D.BIGINT,
    "DOUBLE": _D.DOUBLE,
    "FLOAT": _D.DOUBLE,
    "REAL": _D.DOUBLE,
    "DECIMAL": _D.DECIMAL,
    "NUMERIC": _D.DECIMAL,
    "VARCHAR": _D.VARCHAR,
    "CHAR": _D.VARCHAR,
    "TEXT": _D.VARCHAR,
    "STRING": _D.VARCHAR,
    "TIMESTAMP": _D.TIMESTAMP,
    "DATETIME": _D.TIMESTAMP,
}
_FOREIGN = {
    "DATE": "TIMESTAMP",
    "TIME": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP",
    "INT2": "INTEGER",
    "INT4": "INTEGER",
    "INT8": "BIGINT",
    "FLOAT8": "DOUBLE",
    "NUMBER": "DECIMAL",
}
_MAIN = ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL(p, s)", "VARCHAR", "TIMESTAMP")
_UNITS = "units are MICROSECOND, MILLISECOND, SECOND, MINUTE, HOUR, DAY"


def data_type(c: Cursor, expected: str) -> exp.DataType:
    """A type's name, with its sizes."""
    if not c.at(TokenType.VAR):
        raise c.fail(expected, f"types are {', '.join(_MAIN)}")
    first = c.take()
    name = first.text.upper()
    kind = _TYPES.get(name)
    if kind is None:
        near = [_FOREIGN[name]] if name in _FOREIGN else difflib.get_close_matches(name, _TYPES, 1, 0.7)
        remedy = f"did you mean {near[0]}?" if near else f"types are {', '.join(_MAIN)}"
        raise c.error(f"unknown type {first.text!r}", remedy, first=first)
    if name == "DOUBLE":
        c.accept("PRECISION")
    sizes = _sizes(c)
    if kind is _D.TIMESTAMP and c.word in ("WITH", "WITHOUT"):
        raise c.error("a TIMESTAMP has no zone", "write TIMESTAMP alone, and store times in one zone")
    if sizes and kind is _D.VARCHAR:
        sizes = []  # the length of a text is not limited
    elif sizes and kind is not _D.DECIMAL:
        raise c.error(f"{name} takes no size", f"write {name} alone", first=first)
    return spanned(exp.DataType(this=kind, expressions=sizes, nested=False), first, c.previous)


def _sizes(c: Cursor) -> list[exp.Expr]:
    if not c.accept_type(TokenType.L_PAREN):
        return []
    sizes: list[exp.Expr] = []
    while True:
        token = c.expect_type(TokenType.NUMBER, "a size", "such as DECIMAL(10, 2)")
        size = spanned(exp.Literal.number(token.text), token)
        sizes.append(exp.DataTypeParam(this=size))
        if not c.accept_type(TokenType.COMMA):
            break
    c.expect_type(TokenType.R_PAREN, ") after the type's sizes")
    return sizes


_AFTER_DURATIONS = ("SLIDE", "WATTR", "SLACK", "IDLE", "RETAIN", "TICK", "TIMESTAMP", "ON", "FROM")


def duration(c: Cursor, remedy: str = "") -> nodes.Duration:
    """A length of time: a number and a unit, or a bare number where time is BIGINT."""
    first = c.expect_type(TokenType.NUMBER, "a length of time, such as 5 MINUTES or 10", remedy)
    number = spanned(exp.Literal.number(first.text), first)
    unit = nodes.canonical_unit(c.word) if c.word else None
    if unit is not None:
        c.take()
    elif c.word and c.word not in _AFTER_DURATIONS:
        raise c.error(f"unknown unit of time {c.current.text!r}", _unit_remedy(c.word, first.text))
    if c.at(TokenType.NUMBER):
        raise c.error("a length of time is one number and one unit", "such as 90 MINUTES")
    return spanned(nodes.Duration(this=number, unit=unit), first, c.previous)


def _unit_remedy(word: str, amount: str) -> str:
    if word in ("ROW", "ROWS", "TUPLE", "TUPLES"):
        return f"for a number of tuples, write ROWS {amount}"
    if word in ("WEEK", "WEEKS"):
        return "write it in DAYS"
    if word.startswith(("MONTH", "YEAR")):
        return "months and years differ in length: write DAYS"
    return _UNITS


def interval(c: Cursor) -> exp.Expr:
    """INTERVAL '5' MINUTE, INTERVAL 5 MINUTES, INTERVAL '5 minutes'."""
    first = c.take()
    negative = c.accept_type(TokenType.DASH)
    amount = c.take() if c.type in (TokenType.STRING, TokenType.NUMBER) else None
    value, _, word = amount.text.strip().partition(" ") if amount is not None else ("", "", "")
    unit = nodes.canonical_unit(word.strip() or c.word)
    if unit is None:
        if c.word and not word:
            c.take()
        raise c.error("cannot read this interval", f"write INTERVAL '5' MINUTE; {_UNITS}", first=first)
    if not word:
        c.take()
    literal = exp.Literal.string(f"-{value}" if negative else value)
    return spanned(exp.Interval(this=literal, unit=exp.Var(this=unit)), first, c.previous)
