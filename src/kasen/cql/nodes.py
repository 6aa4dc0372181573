"""The syntax nodes that CQL adds to SQL's: statements, windows, streamify operators, delays."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp


class Duration(exp.Expression):
    """A length of time: `this` is a number, `unit` a canonical unit name or missing (BIGINT time)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "unit": False}


class WindowSpec(exp.Expression):
    """`[...]` behind a FROM item. kind: UNBOUNDED, NOW, RANGE or ROWS; `this` is the length or count."""

    arg_types: ClassVar[dict[str, bool]] = {
        "kind": True,
        "this": False,
        "slide": False,
        "partition": False,
        "wattr": False,
    }


class FromItem(exp.Expression):
    """A FROM item: a table or a query, its window, its alias."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "window": False, "alias": False}


class Streamify(exp.Expression):
    """ISTREAM(query), DSTREAM(query), RSTREAM[every](query), each with an optional <delay>."""

    arg_types: ClassVar[dict[str, bool]] = {
        "kind": True,
        "this": True,
        "every": False,
        "delay": False,
        "with_": False,
    }


class StreamItems(exp.Expression):
    """The SELECT list of `SELECT ISTREAM(a, b) FROM ...`: the same as ISTREAM(SELECT a, b FROM ...)."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "expressions": True, "every": False}


class DelaySpec(exp.Expression):
    """`<Now>` (no `this`) or `<duration>`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": False}


class PressureSpec(exp.Expression):
    """ON PRESSURE: kind is BLOCK, NEWEST, OLDEST or SAMPLE; `this` the share that SAMPLE keeps."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": False}


class ColumnSpec(exp.Expression):
    """A declared column: name and type."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "kind": True}


class Option(exp.Expression):
    """`key 'value'` in OPTIONS (...)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "value": True}


class ConnectorSpec(exp.Expression):
    """'format' OPTIONS (...)."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}


class RegisterInput(exp.Expression):
    """REGISTER STREAM or REGISTER RELATION."""

    arg_types: ClassVar[dict[str, bool]] = {
        "kind": True,
        "this": True,
        "columns": True,
        "timestamp": False,
        "slack": False,
        "idle": False,
        "retain": False,
        "tick": False,
        "pressure": False,
        "connector": True,
    }


class RegisterQuery(exp.Expression):
    """REGISTER QUERY; with `replace`, REPLACE QUERY; with `prepare`, PREPARE QUERY.

    `at` is the time of `AT time REGISTER ...`: when a statement takes effect.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "query": True,
        "connector": False,
        "replace": False,
        "prepare": False,
        "backfill": False,
        "at": False,
    }


class DropQuery(exp.Expression):
    """DROP QUERY name [CASCADE]."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "cascade": False, "at": False}


class Activate(exp.Expression):
    """ACTIVATE name, name: prepared queries take effect together. `this` is the first of the names."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False, "at": False}

    @property
    def names(self) -> list[Any]:
        return [self.this, *self.expressions]


class Setting(exp.Expression):
    """SET key = value."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "value": True}


Statement = RegisterInput | RegisterQuery | DropQuery | Activate | Setting

UNITS: dict[str, int] = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}

_SPELLINGS: dict[str, tuple[str, ...]] = {
    "MICROSECOND": ("US", "USEC", "USECS"),
    "MILLISECOND": ("MS", "MSEC", "MSECS"),
    "SECOND": ("S", "SEC", "SECS"),
    "MINUTE": ("M", "MIN", "MINS"),
    "HOUR": ("H", "HR", "HRS"),
    "DAY": ("D",),
}


def canonical_unit(word: str) -> str | None:
    """The canonical name of a time unit in any of its spellings, or None."""
    # Lower case first: 'µ'.upper() is a Greek capital M, which no spelling has.
    word = word.lower().replace("µ", "u").replace("μ", "u").upper()
    for unit, spellings in _SPELLINGS.items():
        if word in (unit, unit + "S", *spellings):
            return unit
    return None


def start_of(node: Any) -> int | None:
    """The offset in the text at which a node starts, or None if it stands nowhere."""
    if "start" in node.meta:
        return int(node.meta["start"])
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return min(starts, default=None)


def end_of(node: Any) -> int | None:
    """The offset of a node's last character, or None if it stands nowhere."""
    if "end" in node.meta:
        return int(node.meta["end"])
    ends = [part.meta["end"] for part in node.walk() if "end" in part.meta]
    return max(ends, default=None)
