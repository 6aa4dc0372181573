"""What bound expressions mean, row by row, as plainly as Python can say it.

`evaluate` gives an expression's value for one row of Python values (TIMESTAMPs and INTERVALs as µs, DECIMALs
as Decimal, NULL as None) and counts the failures on the way, each where SQL needs the operation's result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

from kasen.cql.expr import Call, Case, Cast, Column, Expr, Literal, Value
from kasen.types import Kind, Type
from tests.oracle import values
from tests.oracle.values import EXACT

_DAY = 86_400_000_000
_ERA = 146_097 * _DAY  # 400 years, after which the calendar repeats


class Fails(Exception):
    """The operation has no result for these arguments."""


@dataclass(slots=True)
class Count:
    """Failures met so far."""

    failures: int = 0


def evaluate(expr: Expr, row: Sequence[Value], count: Count) -> Value:
    match expr:
        case Column(index=index):
            return row[index]
        case Literal(value=value):
            return value
        case Case(branches=branches, otherwise=otherwise):
            for test, chosen in branches:
                if evaluate(test, row, count) is True:
                    return evaluate(chosen, row, count)
            return evaluate(otherwise, row, count)
        case Cast(type=want, arg=arg):
            return _attempt(lambda: cast(evaluate(arg, row, count), arg.type, want), count)
        case Call(op="and" | "or" as op, args=args):
            return _connective(op == "or", args, row, count)
        case Call(op="coalesce", args=args):
            lazy = (evaluate(arg, row, count) for arg in args)
            return next((value for value in lazy if value is not None), None)
        case Call(args=args):
            found = [evaluate(arg, row, count) for arg in args]
            return _attempt(lambda: call(expr, found), count)
    raise NotImplementedError(type(expr).__name__)


def is_true(condition: Sequence[Expr], row: Sequence[Value], count: Count) -> bool:
    """A conjunction as a chain of filters."""
    return all(evaluate(part, row, count) is True for part in condition)


def _attempt(operation: Callable[[], Value], count: Count) -> Value:
    try:
        return operation()
    except Fails:
        count.failures += 1
        return None


def _connective(decisive: bool, args: Sequence[Expr], row: Sequence[Value], count: Count) -> Value:
    answer: Value = not decisive
    for arg in args:
        value = evaluate(arg, row, count)
        if value is decisive:
            return decisive
        if value is None:
            answer = None
    return answer


# ---------------------------------------------------------------- operations


def call(expr: Call, args: Sequence[Any]) -> Value:
    match expr.op:
        case "is_null":
            return args[0] is None
        case "is_distinct":
            left, right = args
            return (left is None) != (right is None) if None in (left, right) else key(left) != key(right)
        case "in":
            return _in(args[0], args[1:])
        case "greatest" | "least":
            there = [arg for arg in args if arg is not None]
            return (max if expr.op == "greatest" else min)(there, key=key, default=None)
    if any(arg is None for arg in args):
        return None
    if expr.op in _COMPARE:
        return _COMPARE[expr.op](key(args[0]), key(args[1]))
    if expr.op in _TEXT:
        return _TEXT[expr.op](*args)
    return _number_or_time(expr, args)


def _in(value: Value, choices: Sequence[Value]) -> Value:
    if value is None:
        return None
    if any(choice is not None and key(choice) == key(value) for choice in choices):
        return True
    return None if None in choices else False


def key(value: Any) -> Any:
    """Compares as CQL does."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda x, y: x == y,
    "<>": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}


def _number_or_time(expr: Call, args: Sequence[Any]) -> Value:
    kind, (x, *rest) = expr.type.kind, args
    match expr.op:
        case "+" | "ts_add":
            return fit(_exactly("+", x, rest[0]), expr.type)
        case "-" | "ts_diff":
            return fit(_exactly("-", x, rest[0]), expr.type)
        case "*":
            return fit(_exactly("*", x, rest[0]), expr.type)
        case "/" | "%":
            return _divide(expr.op, x, rest[0], expr.type)
        case "neg":
            return fit(-x if kind is not Kind.DECIMAL else x.copy_negate(), expr.type)
        case "abs":
            return fit(abs(x) if kind is not Kind.DECIMAL else x.copy_abs(), expr.type)
        case "not":
            return not x
        case "sign":
            return x if math.isnan(x) else float((x > 0) - (x < 0))
        case "sqrt":
            if x < 0:
                raise Fails
            return math.sqrt(x)
        case "floor" | "ceil":
            return _whole(x, expr)
        case "round":
            return _round(x, expr.type, rest[0] if rest else None)
        case "extract":
            return extract(x, rest[0])
        case "date_trunc":
            return date_trunc(x, rest[0])
    raise NotImplementedError(expr.op)


def fit(value: Any, type_: Type) -> Value:
    """Integers and DECIMALs that need more than their type has, fail."""
    try:
        if type_.kind is Kind.DECIMAL:
            if value != value.quantize(Decimal(1).scaleb(-type_.scale), context=EXACT):
                raise AssertionError("rounding was not asked for")
            return values.decimal(value, type_)
        if type_.kind in (Kind.INTEGER, Kind.BIGINT):
            return values.integer(value, type_)
    except ValueError:
        raise Fails from None
    if type_.kind is Kind.TIMESTAMP and not -(2**63) <= value < 2**63:
        raise Fails
    result: Value = value
    return result


def _exactly(op: str, x: Any, y: Any) -> Any:
    if isinstance(x, Decimal):
        return {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}[op](x, y)
    return x + y if op == "+" else x - y if op == "-" else x * y


def _divide(op: str, x: Any, y: Any, type_: Type) -> Value:
    if y == 0:
        raise Fails
    if type_.kind is Kind.DOUBLE:
        if op == "/":
            return float(x / y)
        return math.nan if math.isinf(x) or math.isnan(y) else math.fmod(x, y)
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return fit(quotient if op == "/" else x - quotient * y, type_)


def _whole(x: Any, expr: Call) -> Value:
    if expr.args[0].type.kind is Kind.DECIMAL:
        rounding = ROUND_FLOOR if expr.op == "floor" else ROUND_CEILING
        return fit(x.quantize(Decimal(1), rounding, EXACT), expr.type)
    if isinstance(x, float) and math.isfinite(x):
        return float(math.floor(x) if expr.op == "floor" else math.ceil(x))
    result: Value = x
    return result


def _round(x: Any, type_: Type, digits: int | None) -> Value:
    if type_.kind is Kind.DOUBLE:
        if not math.isfinite(x):
            return float(x)
        if digits is None:
            return float(values.half_away(x))
        power = 10.0**digits
        up = abs(x) * power + 0.5
        whole = float(math.floor(up)) if math.isfinite(up) else up
        return ((x > 0) - (x < 0)) * whole / power
    unit = Fraction(10) ** -(digits or 0)
    steps = abs(Fraction(x)) / unit + Fraction(1, 2)
    exact = (steps.numerator // steps.denominator) * unit * (-1 if x < 0 else 1)
    if type_.kind is Kind.DECIMAL:
        return x if (digits or 0) >= type_.scale else fit(_decimal(exact), type_)
    return x if (digits or 0) >= 0 else fit(int(exact), type_)


def _decimal(exact: Fraction) -> Decimal:
    return EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator))


# ---------------------------------------------------------------- texts


def _character(case: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(map(case, text))


def _upper(char: str) -> str:
    cases = [case for case in (char.upper(), char.title()) if len(case) == 1]
    return "ẞ" if char == "ß" else cases[0] if cases else char


def _substring(text: str, start: int, length: int | None = None) -> str:
    """Characters have the positions 1, 2, ...; those of start ... start + length - 1 are asked for."""
    return "".join(
        char for at, char in enumerate(text, 1) if at >= start and (length is None or at < start + length)
    )


def _like(text: str, pattern: str) -> bool:
    special = {"%": ".*", "_": "."}
    regex = "".join(special.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch(regex, text, re.DOTALL) is not None


_TEXT: dict[str, Callable[..., Value]] = {
    "length": len,
    "upper": _character(_upper),
    "lower": _character(lambda char: char.lower()[0]),
    "trim": lambda text: text.strip(" "),
    "ltrim": lambda text: text.lstrip(" "),
    "rtrim": lambda text: text.rstrip(" "),
    "substring": _substring,
    "concat": lambda *texts: "".join(texts),
    "replace": lambda text, old, new: new.join(text.split(old)) if old else text,
    "starts_with": lambda text, part: text[: len(part)] == part,
    "contains": lambda text, part: part in text,
    "strpos": lambda text, part: text.find(part) + 1,
    "like": _like,
}


# ---------------------------------------------------------------- times


def _moment(micros: int) -> tuple[datetime, int]:
    """The moment moved by whole eras to the years 2000 to 2399, and by how many."""
    eras = (micros - 946_684_800_000_000) // _ERA
    return values.EPOCH + timedelta(microseconds=micros - eras * _ERA), eras


def extract(field: str, micros: int) -> int:
    moment, eras = _moment(micros)
    match field.lower():
        case "year":
            return moment.year + 400 * eras
        case "dow":
            return moment.isoweekday() % 7
        case "epoch":
            return micros // 1_000_000
        case name:
            return int(getattr(moment, name))


def date_trunc(unit: str, micros: int) -> int:
    moment, eras = _moment(micros)
    units = ["year", "month", "day", "hour", "minute", "second"]
    kept = units[: units.index(unit.lower()) + 1]
    parts = {name: getattr(moment, name) if name in kept else 1 for name in units[:3]}
    parts |= {name: getattr(moment, name) if name in kept else 0 for name in units[3:]}
    begin = datetime(**parts, tzinfo=UTC)
    result = (begin - values.EPOCH) // timedelta(microseconds=1) + eras * _ERA
    if result < -(2**63):
        raise Fails
    return result


# ---------------------------------------------------------------- casts


def cast(value: Any, have: Type, want: Type) -> Value:
    if value is None or have == want:
        same: Value = value
        return same
    try:
        if have.kind is Kind.VARCHAR:
            return values.parse(value, want)
        match want.kind:
            case Kind.VARCHAR:
                return values.text(value, have)
            case Kind.BOOLEAN:
                return bool(value != 0)
            case Kind.DOUBLE:
                return float(Fraction(value))
            case Kind.DECIMAL:
                if isinstance(value, float):
                    value = Decimal(values.half_away(value * 10.0**want.scale)).scaleb(-want.scale, EXACT)
                return values.decimal(Decimal(value), want)
        whole = (
            int(value) if not isinstance(value, Decimal) else int(value.to_integral_value(ROUND_DOWN, EXACT))
        )
        return values.integer(whole, want)
    except (ValueError, OverflowError, ArithmeticError):  # no such text, NaN, infinity, too wide
        raise Fails from None
