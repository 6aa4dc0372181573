"""The closed list of operations: for each call, the operation on vectors that computes it."""

from __future__ import annotations

from collections.abc import Sequence

from kasen.cql.expr import Call, Expr, Literal
from kasen.engine.expr.scalar import arithmetic, comparison, logic, text, time
from kasen.engine.expr.vector import Operation, Vector
from kasen.engine.failures import Failures
from kasen.engine.text.dictionary import Dictionary

#: Operations that may have no result. (So may casts.)
FALLIBLE = text.LENGTHENING | {
    *("+", "-", "*", "/", "%", "neg", "abs", "ts_add", "ts_diff", "sqrt", "round", "date_trunc")
}


def operation(
    call: Call, constants: Sequence[Vector | None], dictionary: Dictionary, failures: Failures
) -> tuple[Operation, tuple[int, ...]]:
    """The operation, and which of the call's arguments it takes; `constants` has those known already.

    AND, OR and COALESCE are not among them: they do not need all their arguments.
    """
    every = tuple(range(len(call.args)))
    match call.op:
        case "in" if all(choice is not None for choice in constants[1:]):
            choices = [choice for choice in constants[1:] if choice is not None]
            return comparison.among_constants(call.args[0].type, choices), (0,)
        case "extract":
            return time.extract(_word(call.args[0])), (1,)
        case "date_trunc":
            return time.date_trunc(_word(call.args[0]), failures), (1,)
        case "round":
            return _round(call, constants, failures), (0,)
        case op if op in text.FUNCTIONS:
            types = [arg.type for arg in call.args]
            return text.text_function(op, call.type, types, constants, dictionary, failures), every
    return _strict(call, dictionary, failures), every


def _strict(call: Call, dictionary: Dictionary, failures: Failures) -> Operation:
    """Operations that take all their arguments."""
    types = [arg.type for arg in call.args]
    match call.op:
        case "+" | "-" | "*" | "/" | "%" | "ts_add" | "ts_diff":
            return arithmetic.arithmetic(call.op, call.type, types, failures)
        case "neg":
            return arithmetic.negate(call.type, failures)
        case "abs":
            return arithmetic.absolute(call.type, failures)
        case "sign":
            return arithmetic.sign
        case "sqrt":
            return arithmetic.square_root(failures)
        case "floor" | "ceil":
            return arithmetic.whole(call.op, types[0], failures)
        case "=" | "<>" | "<" | "<=" | ">" | ">=":
            return comparison.comparison(call.op, types[0], dictionary)
        case "is_distinct":
            return comparison.is_distinct(types[0], dictionary)
        case "in":
            return comparison.among_values(types[0], dictionary)
        case "greatest" | "least":
            return comparison.extreme(call.op, types[0], dictionary)
        case "not":
            return logic.not_
        case "is_null":
            return logic.is_null
    raise AssertionError(f"no operation {call.op}")


def _word(expr: Expr) -> str:
    """A field or unit: always a constant."""
    assert isinstance(expr, Literal)
    assert isinstance(expr.value, str)
    return expr.value.lower()


def _round(call: Call, constants: Sequence[Vector | None], failures: Failures) -> Operation:
    """round(x, NULL) is NULL."""
    if len(call.args) == 1:
        return arithmetic.rounded(call.type, None, failures)
    digits = constants[1]
    assert digits is not None, "the digits of ROUND are a constant"
    if digits[1] is not None:
        return lambda arg: (arg[0], digits[1])
    return arithmetic.rounded(call.type, int(digits[0][0]), failures)
