"""Binding of windows: `[...]` behind a FROM item."""

from __future__ import annotations

from sqlglot import exp

from kasen.cql import nodes
from kasen.cql.bind.expr.scope import suggest
from kasen.cql.bound import Now, PartitionRows, Range, Rows, Slide, Unbounded, Window
from kasen.cql.parse import literals
from kasen.cql.text import Text
from kasen.types import Schema, Type

_MAX_ROWS = 2**31 - 1


def bind_window(
    spec: nodes.WindowSpec,
    names: tuple[str, ...],
    schema: Schema,
    timestamp: int | None,
    time: Type,
    text: Text,
) -> Window:
    """The window that `spec` asks for over a stream known by `names` (its own and its alias)."""
    kind = spec.args["kind"]
    if kind == "UNBOUNDED":
        return Unbounded()
    if kind == "NOW":
        return Now()
    if kind == "ROWS":
        return _rows(spec, names, schema, text)
    if spec.args.get("partition"):
        remedy = "write [PARTITION BY a ROWS n], or [RANGE t] with GROUP BY a"
        raise text.error("PARTITION BY goes with ROWS, not with RANGE", spec, remedy)
    _check_wattr(spec, schema, timestamp, text)
    length = literals.duration(spec.this, time, text)
    slide = spec.args.get("slide")
    if slide is None:
        return Range(length)
    if length == 0:
        raise text.error("a sliding window of length 0 is always empty", spec.this, "give RANGE a length")
    return Slide(
        length, literals.duration(slide, time, text, least=1, remedy="for every instant, leave SLIDE out")
    )


def _rows(spec: nodes.WindowSpec, names: tuple[str, ...], schema: Schema, text: Text) -> Window:
    count = _count(spec.this, text)
    slide = spec.args.get("slide")
    keys = spec.args.get("partition")
    if not keys:
        return Rows(count, 1 if slide is None else _count(slide, text))
    if slide is not None:
        raise text.error(
            "SLIDE does not go with PARTITION BY", slide, "leave SLIDE out, or use [ROWS n SLIDE m]"
        )
    return PartitionRows(tuple(_key(key, names, schema, text) for key in keys), count)


def _count(node: exp.Expr, text: Text) -> int:
    digits = str(node.this)
    if not digits.isdigit() or len(digits) > 10 or not 1 <= int(digits) <= _MAX_ROWS:
        fault = f"a number of tuples is a whole number from 1 to {_MAX_ROWS}"
        raise text.error(fault, node, "such as ROWS 10; for the tuples of this instant, write NOW")
    return int(digits)


def _key(node: exp.Expr, names: tuple[str, ...], schema: Schema, text: Text) -> int:
    if not isinstance(node, exp.Column):
        remedy = "compute it in a stream first: (ISTREAM(SELECT ...)) [PARTITION BY ...]"
        raise text.error("PARTITION BY takes columns of the stream", node, remedy)
    if node.table and node.table.lower() not in (name.lower() for name in names):
        raise text.error(f"{node.sql()!r} is not a column of this stream", node, f"write {node.name}")
    index = schema.find(node.name)
    if index is None:
        raise text.error(
            f"unknown column {node.sql()!r}", node, suggest(node.name, schema.names, "columns are")
        )
    return index


def _check_wattr(spec: nodes.WindowSpec, schema: Schema, timestamp: int | None, text: Text) -> None:
    wattr = spec.args.get("wattr")
    if wattr is None:
        return
    if timestamp is None:
        fault = "WATTR needs a stream with a TIMESTAMP BY column"
        raise text.error(fault, wattr, "leave WATTR out: windows over other streams follow their instants")
    column = schema[timestamp].name
    if wattr.name.lower() != column.lower():
        fault = f"WATTR must name the TIMESTAMP BY column, not {wattr.name!r}"
        raise text.error(fault, wattr, f"write WATTR {column}")
