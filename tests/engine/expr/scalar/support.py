"""For tests of expressions: the edges of every type, rows to batches and back, and DuckDB."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from itertools import product

import duckdb
import numpy as np

from kasen.cql.bound import Query
from kasen.cql.expr import Column, Expr, Value, WindowBound
from kasen.engine.batch import Batch
from kasen.engine.expr.vector import Vector, constant, dtype_of, store
from kasen.engine.failures import Failures
from kasen.engine.text.dictionary import Dictionary
from kasen.plan.lower.expr.vectors import compile_expr
from kasen.types import Kind, Type
from tests.engine.expr.scalar.model import Count, evaluate
from tests.oracle import bridges
from tests.oracle.expressions import duck_type, expression
from tests.oracle.values import canonical

Row = tuple[Value, ...]

NAN, INF = math.nan, math.inf
INT_MAX, INT_MIN = 2**63 - 1, -(2**63)

# fmt: off
EDGES: dict[Kind, list[Value]] = {
    Kind.BOOLEAN: [None, False, True],
    Kind.INTEGER: [None, 0, 1, -1, 7, 2**31 - 1, -(2**31)],
    Kind.BIGINT: [
        None, 0, 1, -1, 2, -3, 15, 3037000500, -(2**31), 2**53 + 1, INT_MAX, INT_MIN, INT_MAX - 4,
    ],
    Kind.DOUBLE: [
        None, 0.0, -0.0, 1.0, -1.5, 0.5, -2.5, 0.49999999999999994, 1e-320, 5e-324, 1e308, -1e308,
        2.0**63, -(2.0**63), 2.0**31, 99.995, 2.0**53 + 1, INF, -INF, NAN,
    ],
    Kind.VARCHAR: [
        None, "", " ", "a", "A", "abc", "ABC", " abc ", "aé", "É", "日本語", "𝄞b", "ß", "Σς", "a%b", "a_b",
        "a\nb", "aab", "z", "\u00a0x",
    ],
    Kind.TIMESTAMP: [
        None, 0, -1, 1, 1_500_000, -86_400_000_001, 951_782_399_999_999, 951_782_400_000_000,
        1_767_225_600_123_456, -62_135_596_800_000_000, 253_402_300_799_999_999, -2_208_988_800_000_001,
    ],
    Kind.INTERVAL: [None, 0, 1, -86_400_000_000, INT_MAX],
}
# fmt: on


def edges(type_: Type) -> list[Value]:
    """NULL, the limits of the type, and what lies beside them."""
    if type_.kind is not Kind.DECIMAL:
        return EDGES[type_.kind]
    most = 10**type_.precision - 1
    scaled = [0, 1, -1, 5, -5, 49, 50, -50, 125, -125, most, -most, most // 2, 2**53 + 1]
    return [None, *(_scaled(number, type_) for number in scaled if abs(number) <= most)]


def _scaled(number: int, type_: Type) -> Decimal:
    return Decimal(number).scaleb(-type_.scale)


def column(index: int, type_: Type) -> Column:
    return Column(type_, 0, index, f"c{index}")


def every_row(types: Sequence[Type]) -> list[Row]:
    """All combinations of the types' edges."""
    return list(product(*(edges(type_) for type_ in types)))


# ---------------------------------------------------------------- the engine


@dataclass(slots=True)
class Engine:
    """Evaluates expressions as operators do."""

    dictionary: Dictionary = field(default_factory=Dictionary)
    failures: Failures = field(default_factory=Failures)

    def batch(self, rows: Sequence[Row], types: Sequence[Type]) -> Batch:
        n = len(rows)
        data = np.zeros((len(types) + 1, n), np.int64)
        for index, type_ in enumerate(types):
            cells = [row[index] for row in rows]
            held = {shown(cell): constant(cell, type_, self.dictionary)[0][0] for cell in cells}
            values = np.array([held[shown(cell)] for cell in cells], dtype_of(type_))
            nulls = np.array([cell is None for cell in cells], np.bool_)
            store(data, index, (values, nulls))
        return Batch(np.arange(n), np.zeros(n, np.int64), np.ones(n, np.int64), data)

    def run(self, expr: Expr, batch: Batch, cut: int | None = None) -> list[Value]:
        """The expression's values, from batches of at most `cut` rows."""
        evaluator = compile_expr(expr, self.dictionary, self.failures)
        found: list[Value] = []
        for start in range(0, len(batch), cut or max(1, len(batch))):
            rows = np.arange(start, min(len(batch), start + (cut or len(batch))))
            part = batch.take(rows)
            vector = evaluator(part)
            assert len(vector[0]) == len(part)
            assert vector[1] is None or len(vector[1]) == len(part)
            found += self.values(vector, expr.type)
        return found

    def values(self, vector: Vector, type_: Type) -> list[Value]:
        """A vector as Python values, in the way a batch would hold it."""
        data = np.zeros((2, len(vector[0])), np.int64)
        store(data, 0, vector)
        found: list[Value] = []
        for cell, null in data.T.tolist():
            assert not null or cell == 0
            found.append(None if null else self._value(cell, type_))
        return found

    def _value(self, cell: int, type_: Type) -> Value:
        match type_.kind:
            case Kind.BOOLEAN:
                return {0: False, 1: True}[cell]
            case Kind.DOUBLE:
                return float(np.int64(cell).view(np.float64))
            case Kind.DECIMAL:
                return Decimal(cell).scaleb(-type_.scale)
            case Kind.VARCHAR:
                return self.dictionary.text(cell)
        return cell


# ---------------------------------------------------------------- DuckDB


class _Columns:
    """Names columns for the oracle's translation."""

    def column(self, column: Column) -> str:
        return f"c{column.index}"

    def group_key(self, index: int) -> str:
        raise NotImplementedError

    def aggregate(self, index: int) -> str:
        raise NotImplementedError

    def window_bound(self, bound: WindowBound) -> str:
        raise NotImplementedError

    def subquery(self, query: Query) -> tuple[str, bool]:
        raise NotImplementedError


@cache
def _duck() -> duckdb.DuckDBPyConnection:
    return bridges.connect()


def duck(expr: Expr, rows: Sequence[Row], types: Sequence[Type]) -> list[Value]:
    """The expression's values by DuckDB, with the oracle's bridges."""
    lists = [f"unnest($c{index}::{duck_type(type_)}[]) AS c{index}" for index, type_ in enumerate(types)]
    sql = f"SELECT {expression(expr, _Columns())} FROM (SELECT {', '.join(lists)})"
    parameters = {f"c{index}": [row[index] for row in rows] for index in range(len(types))}
    return [found for (found,) in _duck().execute(sql, parameters).fetchall()]


# ---------------------------------------------------------------- comparing


def shown(value: Value) -> str:
    """Equal exactly if the values are the same; one NaN, one zero; a DECIMAL with all its digits."""
    return repr(canonical(value))


def check(expr: Expr, types: Sequence[Type], rows: Sequence[Row], *, by_duck: bool = True) -> None:
    """The engine, the model and DuckDB agree on every row, at any cut; so do the counts of failures."""
    expected, failures = [], []
    for row in rows:
        count = Count()
        expected.append(shown(evaluate(expr, row, count)))
        failures.append(count.failures)
    # Small batches cost; a sample of the rows shows whether cuts matter.
    for cut, share in ((None, 1), (7, 1 + len(rows) // 500), (1, 1 + len(rows) // 100)):
        engine = Engine()
        found = [shown(value) for value in engine.run(expr, engine.batch(rows[::share], types), cut)]
        assert found == expected[::share], _differences(expr, rows[::share], found, expected[::share])
        assert engine.failures.count == sum(failures[::share]), f"{expr} in cuts of {cut}"
    if by_duck:
        judged = [shown(value) for value in duck(expr, rows, types)]
        assert judged == expected, "by DuckDB: " + _differences(expr, rows, judged, expected)


def _differences(expr: Expr, rows: Sequence[Row], found: Sequence[str], expected: Sequence[str]) -> str:
    lines = [
        f"  {row}: {got}, not {wanted}"
        for row, got, wanted in zip(rows, found, expected, strict=True)
        if got != wanted
    ]
    return "\n".join([f"{expr}", *lines[:20]])
