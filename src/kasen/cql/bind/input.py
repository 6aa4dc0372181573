"""Binding of inputs: columns, clauses, connectors, and the kind of time that an app runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from kasen.cql import nodes
from kasen.cql.bound import Input, Tick
from kasen.cql.parse import literals
from kasen.cql.text import Text
from kasen.types import BIGINT, MAX_COLUMNS, TIMESTAMP, Connector, Field, OnPressure, Pressure, Schema, Type

# Tells the type of an undeclared timestamp column by looking at the source; None if it cannot.
Sniff = Callable[[Connector, str], Type | None]

_NOT_IN_NAMES = frozenset('/\\:*?"<>|')


def check_name(node: exp.Expr, text: Text) -> None:
    """Names of streams and queries become names of files."""
    name = node.name
    if any(char in _NOT_IN_NAMES or not char.isprintable() for char in name) or name != name.strip(" ."):
        fault = f"{name!r} cannot be the name of a stream or query"
        raise text.error(
            fault, node, 'it becomes a file name: leave out / \\ : * ? " < > | and dots at its ends'
        )
    if name.lower() == "dead_letter":
        raise text.error(f"{name!r} is the name of the dead letter", node, "choose another name")


# ---------------------------------------------------------------- time


@dataclass(frozen=True, slots=True)
class _TimeEvidence:
    """Something that tells the kind of time: what it is, where it stands, what it says."""

    type: Type
    node: exp.Expr
    what: str


def time_domain(
    streams: list[nodes.RegisterInput], statements: list[nodes.Statement], text: Text, sniff: Sniff | None
) -> Type:
    """TIMESTAMP or BIGINT, for the whole app: declared, or told by durations, or by the data."""
    told = [found for node in streams if (found := _declared_time(node, text)) is not None]
    if not told:
        told = [found for node in statements if (found := _told_by_duration(node)) is not None]
    if not told and sniff is not None:
        told = [found for node in streams if (found := _sniffed(node, text, sniff)) is not None]
    for each in told:
        if each.type != told[0].type:
            remedy = "all streams of an app share one kind of time: make them all TIMESTAMP or all BIGINT"
            raise text.error(f"{each.what}, but {told[0].what}", each.node, remedy)
    return told[0].type if told else TIMESTAMP


def _declared_time(node: nodes.RegisterInput, text: Text) -> _TimeEvidence | None:
    name = node.this.name
    by = node.args.get("timestamp")
    if by is None:
        if node.args["kind"] == "RELATION":
            return None
        return _TimeEvidence(TIMESTAMP, node.this, f"{name} is on arrival time, a TIMESTAMP")
    for column in node.args["columns"]:
        if column.this.name.lower() == by.name.lower():
            type_ = literals.cql_type(column.args["kind"], text)
            if type_ != TIMESTAMP and not type_.is_integer:
                fault = f"TIMESTAMP BY needs a TIMESTAMP or BIGINT column, {by.name!r} is {type_}"
                raise text.error(fault, by, f"declare {by.name} as TIMESTAMP or BIGINT")
            type_ = BIGINT if type_.is_integer else TIMESTAMP
            return _TimeEvidence(type_, by, f"the time of {name} is {type_}")
    return None


def _told_by_duration(node: nodes.Statement) -> _TimeEvidence | None:
    for length in node.find_all(nodes.Duration):
        if length.arg_key == "idle":
            continue  # waits by the clock, whatever the stream's own time is
        unit = length.args.get("unit")
        amount = str(length.this.this)
        what = (
            f"the length of time {amount} {unit} has a unit"
            if unit
            else f"the length of time {amount} has none"
        )
        return _TimeEvidence(TIMESTAMP if unit else BIGINT, length, what)
    return None


def _sniffed(node: nodes.RegisterInput, text: Text, sniff: Sniff) -> _TimeEvidence | None:
    by = node.args.get("timestamp")
    if by is None:
        return None
    type_ = sniff(bind_connector(node.args["connector"], text), by.name)
    if type_ is None:
        return None
    return _TimeEvidence(type_, by, f"the data of {node.this.name} has {type_} time")


# ---------------------------------------------------------------- inputs


def bind_input(node: nodes.RegisterInput, time: Type, text: Text) -> Input:
    """A registered stream or relation."""
    fields: list[Field] = []
    for column in node.args["columns"]:
        name = column.this.name
        if any(each.name.lower() == name.lower() for each in fields):
            raise text.error(f"column {name!r} is declared twice", column, "take one of them out")
        if len(fields) == MAX_COLUMNS:
            fault = f"{node.this.name} has more than {MAX_COLUMNS} columns"
            raise text.error(fault, column, "declare those that queries read: a file may have more")
        fields.append(Field(name, literals.cql_type(column.args["kind"], text)))
    timestamp, hidden = _timestamp(node, fields, time)
    is_relation = node.args["kind"] == "RELATION"
    _check_clauses(node, is_relation, text)
    return Input(
        name=node.this.name,
        schema=Schema(tuple(fields)),
        is_relation=is_relation,
        timestamp=timestamp,
        hidden=hidden,
        slack=_length(node, "slack", time, text) or 0,
        idle=_length(node, "idle", TIMESTAMP, text),
        retain=_length(node, "retain", time, text),
        tick=Tick(node.args["tick"].name if node.args.get("tick") else "TIME"),
        connector=bind_connector(node.args["connector"], text),
        pressure=_pressure(node, text),
        place=text.place_of(node.this),
    )


def _timestamp(node: nodes.RegisterInput, fields: list[Field], time: Type) -> tuple[int | None, int]:
    """The index of the TIMESTAMP BY column, and how many columns are hidden: an undeclared one is."""
    by = node.args.get("timestamp")
    if by is None:
        return None, 0
    for index, each in enumerate(fields):
        if each.name.lower() == by.name.lower():
            return index, 0
    fields.append(Field(by.name, time))
    return len(fields) - 1, 1


def _check_clauses(node: nodes.RegisterInput, is_relation: bool, text: Text) -> None:
    untimed = node.args.get("timestamp") is None
    if is_relation and node.args.get("tick") is not None:
        fault = "TICK BY goes with streams: a relation's changes of one time are one instant"
        raise text.error(fault, node.args["tick"], "leave TICK BY out")
    for key in ("slack", "idle", "retain"):
        value = node.args.get(key)
        if value is not None and is_relation and untimed:
            fault = f"{key.upper()} needs TIMESTAMP BY: without it this relation is a static table"
            raise text.error(fault, value, f"leave {key.upper()} out, or name the column with TIMESTAMP BY")
    slack = node.args.get("slack")
    if slack is not None and untimed and not is_relation:
        fault = "SLACK needs TIMESTAMP BY: arrival time is never out of order"
        raise text.error(fault, slack, "leave SLACK out, or name the column with TIMESTAMP BY")


def _length(node: nodes.RegisterInput, key: str, time: Type, text: Text) -> int | None:
    value = node.args.get(key)
    return None if value is None else literals.duration(value, time, text)


def _pressure(node: nodes.RegisterInput, text: Text) -> OnPressure:
    spec = node.args.get("pressure")
    if spec is None:
        return OnPressure()
    kind = spec.args["kind"]
    policy = Pressure.BLOCK if kind == "BLOCK" else Pressure(f"SHED {kind}")
    if policy is not Pressure.BLOCK and node.args["kind"] == "RELATION":
        fault = "a relation must not lose rows: its deletions would no longer find them"
        raise text.error(fault, spec, "leave ON PRESSURE out")
    share = float(spec.this.this) if spec.this is not None else 1.0
    if not 0 < share <= 1:
        raise text.error("SAMPLE keeps a share above 0 and at most 1", spec.this, "such as SAMPLE 0.1")
    return OnPressure(policy, share)


def bind_connector(node: nodes.ConnectorSpec, text: Text) -> Connector:
    """'format' OPTIONS (...)."""
    options: list[tuple[str, str]] = []
    for option in node.expressions:
        name = option.this.name.lower()
        if any(name == key for key, _ in options):
            raise text.error(f"option {name!r} is given twice", option, "take one of them out")
        options.append((name, str(option.args["value"].this)))
    return Connector(str(node.this.this).lower(), tuple(options))
