"""Binding of aggregate calls: COUNT(*), SUM(DISTINCT a), PERCENTILE_CONT(a, 0.9), ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from kasen.cql.expr import Aggregate, Expr, Literal
from kasen.cql.functions import AGGREGATES
from kasen.types import BIGINT

if TYPE_CHECKING:
    from kasen.cql.bind_expr import ExprBinder

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

AGGREGATE_NAMES = frozenset({*AGGREGATES, *_ALIASES, "median"})


def bind_aggregate(name: str, args: list[exp.Expr], node: exp.Expr, binder: ExprBinder) -> Aggregate:
    """The aggregate that a call by one of AGGREGATE_NAMES stands for; `binder` binds its arguments."""
    function = "percentile_cont" if name == "median" else _ALIASES.get(name, name)
    args, distinct = _unwrap_distinct(args)
    if function == "count" and (not args or isinstance(args[0], exp.Star)):
        return _count_star(args, distinct, node, binder)
    parameter = None
    if function in _PERCENTILES:
        args, parameter = _parameter(name, args, node, binder)
    if len(args) != 1:
        raise binder.error(f"{name.upper()} takes one argument, not {len(args)}", node)
    from kasen.cql.bind_expr import cast  # the two files are one subject: expressions hold aggregates

    arg = binder.bind(args[0])
    typing = AGGREGATES[function]([arg.type])
    if typing is None:
        raise binder.error(f"{name.upper()} does not take {arg.type}", node, "CAST the argument to a number")
    types, result = typing
    bound = cast(arg, types[0]) if types else arg
    # MIN and MAX do not see duplicates, so their DISTINCT says nothing and equal aggregates stay equal.
    return Aggregate(function, (bound,), distinct and function not in ("min", "max"), result, parameter)


def _unwrap_distinct(args: list[exp.Expr]) -> tuple[list[exp.Expr], bool]:
    if len(args) == 1 and isinstance(args[0], exp.Distinct):
        return list(args[0].expressions), True
    return args, False


def _count_star(args: list[exp.Expr], distinct: bool, node: exp.Expr, binder: ExprBinder) -> Aggregate:
    if distinct or len(args) > 1:
        raise binder.error("COUNT takes * or one argument", node)
    return Aggregate("count", (), False, BIGINT)


def _parameter(
    name: str, args: list[exp.Expr], node: exp.Expr, binder: ExprBinder
) -> tuple[list[exp.Expr], float]:
    if name == "median":
        return args, 0.5
    value: Expr | None = binder.bind(args[1]) if len(args) == 2 else None
    share = value.value if isinstance(value, Literal) and value.type.is_numeric else None
    if share is None or isinstance(share, str) or not 0 <= share <= 1:
        remedy = f"write {name.upper()}(a, 0.9) or {name.upper()}(0.9) WITHIN GROUP (ORDER BY a)"
        raise binder.error(f"{name.upper()} needs a constant share from 0 to 1", node, remedy)
    return args[:1], float(share)
