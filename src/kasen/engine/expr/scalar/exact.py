"""Which instruction computes an exact operation, and with which settings: for vectors and programs alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kasen.engine.expr.kernels import instructions as vm
from kasen.types import Kind, Type

#: How many bits the integers have.
BITS = {Kind.INTEGER: 32, Kind.BIGINT: 64}

_INT_MOST = 2**63 - 1
_INTEGER = {
    "+": vm.ADD,
    "-": vm.SUBTRACT,
    "*": vm.MULTIPLY,
    "/": vm.DIVIDE,
    "%": vm.MODULO,
    "ts_add": vm.ADD,
    "ts_diff": vm.SUBTRACT,
}


class Exact(NamedTuple):
    """An instruction of kernels/exact and its settings."""

    op: int
    p: int = 0
    q: int = 0
    r: int = 0


def digits_limit(type_: Type) -> int:
    """The greatest magnitude of a DECIMAL's scaled number."""
    most: int = 10**type_.precision - 1
    return most


def arithmetic(op: str, result: Type, args: Sequence[Type]) -> Exact:
    """+ - * / % ts_add ts_diff, but of DOUBLEs. DECIMALs are added at the greater scale."""
    if result.kind is not Kind.DECIMAL:
        return Exact(_INTEGER[op])
    if op == "*":
        return Exact(vm.MULTIPLY_DECIMAL, digits_limit(result))
    left, right = (10 ** (result.scale - arg.scale) for arg in args)
    return Exact(vm.ADD_DECIMAL, left, right if op == "+" else -right, digits_limit(result))


def whole(op: str, arg: Type) -> Exact | None:
    """floor and ceil of a DECIMAL, which loses its scale; None for integers, which stay as they are."""
    if arg.kind is not Kind.DECIMAL:
        return None
    return Exact(vm.CEILING_UNITS if op == "ceil" else vm.FLOOR_UNITS, 10**arg.scale)


def rounded(type_: Type, places: int) -> Exact:
    """Without its last digits, of which so many go, at most 18."""
    limit = digits_limit(type_) if type_.kind is Kind.DECIMAL else _INT_MOST
    return Exact(vm.ROUND_UNIT, 10**places, limit)


def cast(have: Type, want: Type) -> Exact | None:
    """Between numbers that are not DOUBLEs, integers being decimals of scale 0; None if nothing changes."""
    if holds(have, want):
        return None
    if want.kind is not Kind.DECIMAL:
        return Exact(vm.TRUNCATE_UNITS, 10**have.scale, BITS[want.kind])
    if want.scale >= have.scale:
        return Exact(vm.SCALE_UP, 10 ** (want.scale - have.scale), digits_limit(want))
    return Exact(vm.SCALE_DOWN, 10 ** (have.scale - want.scale), digits_limit(want))


def holds(have: Type, want: Type) -> bool:
    """Whether every value of `have` is, as it is held, the same value of `want`."""
    if have.kind is Kind.DECIMAL:
        return want.kind is Kind.DECIMAL and want.scale == have.scale and want.precision >= have.precision
    return have.kind is Kind.INTEGER and want.kind is Kind.BIGINT
