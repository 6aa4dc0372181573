"""What becomes of a replaced query as JSON, for commit records: where the steps are that go on."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from kasen.cql.expr import Call, Case, Cast, Column, Expr, Literal
from kasen.plan.shard.exchange import Destination, Exchange
from kasen.plan.shard.fragments import Pin
from kasen.plan.shard.generations import Replacement
from kasen.plan.shard.split import Split
from kasen.types import Kind, Type


def replacement_to_json(one: Replacement) -> dict[str, Any]:
    return {
        "number": one.number,
        "name": one.name,
        "kept": sorted(one.kept),
        "carried": sorted(one.carried),
        "primes": sorted(one.primes),
        "split": _split(one.split),
        "pins": [[step, _pin(pin)] for step, pin in one.pins.items()],
    }


def replacement_of(saved: dict[str, Any]) -> Replacement:
    return Replacement(
        saved["number"],
        saved["name"],
        frozenset(saved["kept"]),
        frozenset(saved["carried"]),
        {step: _pin_of(pin) for step, pin in saved["pins"]},
        _split_of(saved["split"]),
        frozenset(saved["primes"]),
    )


def _pin(pin: Pin) -> dict[str, Any]:
    edges = [None if edge is None else _edge(edge) for edge in pin.edges]
    return {"level": pin.level, "split": _split(pin.split), "edges": edges}


def _pin_of(saved: dict[str, Any]) -> Pin:
    edges = tuple(None if edge is None else _edge_of(edge) for edge in saved["edges"])
    return Pin(saved["level"], _split_of(saved["split"]), edges)


def _split(split: Split) -> dict[str, Any]:
    ways = [[expression_to_json(key) for key in way] for way in split.ways]
    return {"ways": ways, "everywhere": split.everywhere, "why": split.why}


def _split_of(saved: dict[str, Any]) -> Split:
    ways = [tuple(expression_of(key) for key in way) for way in saved["ways"]]
    keys, also = (ways[0], tuple(ways[1:])) if ways else (None, ())
    return Split(keys, also, saved["everywhere"], saved["why"])


def _edge(edge: Exchange) -> dict[str, Any]:
    return {
        "source": edge.source,
        "to": edge.to.name,
        "keys": [expression_to_json(key) for key in edge.keys],
        "level": edge.level,
        "ordinals": edge.ordinals,
        "instants": edge.instants,
        "alias": edge.alias,
    }


def _edge_of(saved: dict[str, Any]) -> Exchange:
    keys = tuple(expression_of(key) for key in saved["keys"])
    return Exchange(**{**saved, "to": Destination[saved["to"]], "keys": keys})


def expression_to_json(one: Expr) -> dict[str, Any]:
    """An expression by which rows are split: over one row's columns, without sub-queries."""
    found: dict[str, Any] = {"type": [one.type.kind.name, one.type.precision, one.type.scale]}
    match one:
        case Column():
            return found | {"column": [one.source, one.index, one.name, one.outer]}
        case Literal(value=Decimal() as value):
            return found | {"decimal": str(value)}
        case Literal(value=value):
            return found | {"literal": value}
        case Call(op=op, args=args):
            return found | {"call": op, "args": [expression_to_json(arg) for arg in args]}
        case Cast(arg=arg):
            return found | {"cast": expression_to_json(arg)}
        case Case(branches=branches, otherwise=otherwise):
            pairs = [[expression_to_json(when), expression_to_json(then)] for when, then in branches]
            return found | {"case": pairs, "otherwise": expression_to_json(otherwise)}
    raise AssertionError(f"rows are not split by {type(one).__name__}")


def expression_of(saved: dict[str, Any]) -> Expr:
    kind, precision, scale = saved["type"]
    type_ = Type(Kind[kind], precision, scale)
    match saved:
        case {"column": [source, index, name, outer]}:
            return Column(type_, source, index, name, outer)
        case {"decimal": value}:
            return Literal(type_, Decimal(value))
        case {"literal": value}:
            return Literal(type_, value)
        case {"call": op, "args": args}:
            return Call(type_, op, tuple(expression_of(arg) for arg in args))
        case {"cast": arg}:
            return Cast(type_, expression_of(arg))
        case {"case": pairs, "otherwise": otherwise}:
            branches = tuple((expression_of(when), expression_of(then)) for when, then in pairs)
            return Case(type_, branches, expression_of(otherwise))
    raise AssertionError(f"no expression: {saved}")
