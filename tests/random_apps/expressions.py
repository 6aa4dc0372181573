"""Random typed expressions over columns of every type, as the binder could make them."""

from __future__ import annotations

import random
from decimal import Decimal

from kasen.cql.bind.expr.coerce import cast, castable
from kasen.cql.expr import Call, Case, Expr, Literal, Value
from kasen.cql.functions import EXTRACT_FIELDS, SCALARS, TRUNC_UNITS
from kasen.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    INTERVAL,
    TIMESTAMP,
    VARCHAR,
    Kind,
    Type,
    common_type,
    decimal,
)
from tests.engine.expr.scalar.support import Row, column, edges

TYPES = (BOOLEAN, INTEGER, BIGINT, DOUBLE, decimal(5, 2), decimal(18, 9), VARCHAR, TIMESTAMP)
COLUMNS = (*TYPES, BIGINT, DOUBLE, VARCHAR, BOOLEAN)


class Grower:
    """Grows expressions from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def rows(self, count: int) -> list[Row]:
        """Rows of edges and small values, with NULLs."""
        return [tuple(self._cell(type_) for type_ in COLUMNS) for _ in range(count)]

    def expression(self, depth: int) -> Expr:
        """Any expression of at most this depth."""
        grown = None
        while grown is None:
            grown = self._grow(depth)
        return grown

    def condition(self, depth: int) -> Expr:
        """A BOOLEAN expression."""
        while True:
            grown = self.expression(depth)
            if grown.type == BOOLEAN:
                return grown

    def _cell(self, type_: Type) -> Value:
        pick = self._random
        if pick.random() < 0.6:
            return pick.choice(edges(type_))
        match type_.kind:
            case Kind.INTEGER | Kind.BIGINT:
                return pick.randint(-9, 9)
            case Kind.DOUBLE:
                return pick.randint(-40, 40) / 4
            case Kind.DECIMAL:
                return Decimal(pick.randint(-999, 999)).scaleb(-type_.scale)
            case Kind.VARCHAR:
                return pick.choice(["1", "-2.5", "true", "2026-01-01", "ab", "b", "1e3"])
        return pick.choice(edges(type_))

    def _grow(self, depth: int) -> Expr | None:
        pick = self._random
        if depth == 0 or pick.random() < 0.1:
            return self._leaf()
        shape = pick.random()
        if shape < 0.12:
            return self._cast(depth)
        if shape < 0.24:
            return self._case(depth)
        return self._call(pick.choice(list(SCALARS)), depth)

    def _leaf(self) -> Expr:
        pick = self._random
        if pick.random() < 0.7:
            index = pick.randrange(len(COLUMNS))
            return column(index, COLUMNS[index])
        type_ = pick.choice(TYPES)
        return Literal(type_, self._cell(type_))

    def _cast(self, depth: int) -> Expr | None:
        arg, want = self.expression(depth - 1), self._random.choice(TYPES)
        return cast(arg, want) if castable(arg.type, want) else None

    def _case(self, depth: int) -> Expr | None:
        first, second = self.expression(depth - 1), self.expression(depth - 1)
        type_ = common_type(first.type, second.type)
        if type_ is None:
            return None
        tests = [self.condition(depth - 1) for _ in range(self._random.randint(1, 2))]
        branches = tuple((test, cast(first, type_)) for test in tests)
        return Case(type_, branches, cast(second, type_))

    def _call(self, op: str, depth: int) -> Expr | None:
        pick, signature = self._random, SCALARS[op]
        count = pick.randint(signature.least, signature.most or 4)
        args = [self._of_type(type_, depth - 1) for type_ in self._wanted(op, count)]
        if op == "extract":
            args[0] = Literal(VARCHAR, pick.choice(EXTRACT_FIELDS))
        elif op == "date_trunc":
            args[0] = Literal(VARCHAR, pick.choice(TRUNC_UNITS))
        elif op == "round" and count == 2:
            args[1] = Literal(BIGINT, pick.randint(-3, 4))
        elif op == "ts_add":
            args[1] = Literal(INTERVAL, pick.choice([1, -86_400_000_000, 2**62]))
        typing = signature.rule([arg.type for arg in args])
        if typing is None:
            return None
        types, result = typing
        return Call(result, op, tuple(cast(arg, type_) for arg, type_ in zip(args, types, strict=True)))

    def _wanted(self, op: str, count: int) -> list[Type | None]:
        """Types that the operation takes; None for any."""
        if op in _WANTED:
            return list(_WANTED[op][:count])
        for text_or_truth in (VARCHAR, BOOLEAN):
            if SCALARS[op].rule([BIGINT] * count) is None and SCALARS[op].rule([text_or_truth] * count):
                return [text_or_truth] * count
        return [self._random.choice([None, *TYPES])] * count

    def _of_type(self, type_: Type | None, depth: int) -> Expr:
        grown = self.expression(depth)
        if type_ is None or castable(grown.type, type_):
            return grown if type_ is None else cast(grown, type_)
        if type_ == INTERVAL:
            return Literal(INTERVAL, 1)
        return column(COLUMNS.index(type_), type_)


_WANTED: dict[str, tuple[Type, ...]] = {
    "substring": (VARCHAR, BIGINT, BIGINT),
    "extract": (VARCHAR, TIMESTAMP),
    "date_trunc": (VARCHAR, TIMESTAMP),
    "ts_add": (TIMESTAMP, INTERVAL),
    "ts_diff": (TIMESTAMP, TIMESTAMP),
}
