"""Binding of aggregate calls: COUNT(*), SUM(DISTINCT a), PERCENTILE_CONT(a, 0.9), ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from kasen.cql.bind.expr.coerce import cast
from kasen.cql.bind.expr.scope import Scope
from kasen.cql.expr import Aggregate, Literal
from kasen.cql.functions import AGGREGATES
from kasen.types import BIGINT

if TYPE_CHECKING:
    from kasen.cql.bind.expr.expression import ExprBinder

_ALIASES = {
    "stddev": "stddev_samp",
    "std": "stddev_samp",
    "variance": "var_samp",
    "var": "var_samp",
    "mean": "avg",
    "quantile_cont": "percentile_cont",
    "quantile_disc": "percentile_disc",
    "quantile": "percentile_disc",
}
_PERCENTILES = ("percentile_cont", "percentile_disc")
_DISTINCT = ("count", "sum", "avg", "min", "max")

AGGREGATE_NAMES = frozenset({*AGGREGATES, *_ALIASES, "median"})


def bind_aggregate(name: str, args: list[exp.Expr], node: exp.Expr, scope: Scope) -> Aggregate:
    """The aggregate that a call by one of AGGREGATE_NAMES stands for."""
    from kasen.cql.bind.expr.expression import (
        ExprBinder,  # expressions hold aggregates, aggregates hold expressions
    )

    binder = ExprBinder(scope, place="inside another aggregate")
    function = "percentile_cont" if name == "median" else _ALIASES.get(name, name)
    args, distinct = unwrap_distinct(args)
    if function == "count" and len(args) == 1 and isinstance(args[0], exp.Star):
        if distinct:
            raise scope.text.error(
                "COUNT(DISTINCT *) is not CQL", node, "count one column: COUNT(DISTINCT a)"
            )
        return Aggregate("count", (), False, BIGINT)
    if distinct and function not in _DISTINCT:
        remedy = "aggregate a sub-query with SELECT DISTINCT"
        raise scope.text.error(f"{name.upper()} does not take DISTINCT", node, remedy)
    parameter = None
    if function in _PERCENTILES:
        args, parameter = _parameter(name, args, node, binder)
    if len(args) != 1:
        remedy = "write COUNT(*) for the number of rows" if name == "count" else f"write {name.upper()}(a)"
        raise scope.text.error(f"{name.upper()} takes one argument, not {len(args)}", node, remedy)
    arg = binder.bind(args[0])
    typing = AGGREGATES[function]([arg.type])
    if typing is None:
        fault = f"{name.upper()} does not take {arg.type}"
        remedy = "aggregate numbers: CAST the argument to one"
        raise scope.text.error(fault, node, remedy)
    types, result = typing
    # MIN and MAX do not see duplicates, so their DISTINCT says nothing and equal aggregates stay equal.
    distinct = distinct and function not in ("min", "max")
    return Aggregate(function, (cast(arg, types[0]),), distinct, result, parameter)


def unwrap_distinct(args: list[exp.Expr]) -> tuple[list[exp.Expr], bool]:
    """The arguments, and whether DISTINCT stands before them."""
    if len(args) == 1 and isinstance(args[0], exp.Distinct):
        return list(args[0].expressions), True
    return args, False


def _parameter(
    name: str, args: list[exp.Expr], node: exp.Expr, binder: ExprBinder
) -> tuple[list[exp.Expr], float]:
    if name == "median":
        return args, 0.5
    value = binder.bind(args[1]) if len(args) == 2 else None
    share = value.value if isinstance(value, Literal) and value.type.is_numeric else None
    if share is None or isinstance(share, str) or not 0 <= share <= 1:
        remedy = f"write {name.upper()}(a, 0.9) or {name.upper()}(0.9) WITHIN GROUP (ORDER BY a)"
        raise binder.error(f"{name.upper()} needs a constant share from 0 to 1", node, remedy)
    return args[:1], float(share)
