"""The settings that SET knows, and their values."""

from __future__ import annotations

import re

from sqlglot import exp

from kasen.cql.bind.expr.scope import suggest
from kasen.cql.text import Text

_CHOICES: dict[str, tuple[str, ...]] = {
    "recursion": ("error", "insert"),
    "flush": ("false", "true"),
    "float_sums": ("exact", "fast"),
    "native_panes": ("auto", "on", "off"),
}
_LIMITS = ("max_ticks", "max_queries", "max_groups", "max_state_bytes")
#: No text of a number or a time is longer, so casts need no limit.
_LEAST_TEXT_BYTES = 64
_NUMBERS = (*_LIMITS, "max_text_bytes", "input_rows", "output_rows", "pressure_seed")


def check_setting(name: str, value: str, node: exp.Expr, text: Text) -> str:
    """The value, if the setting exists and may have it."""
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            choices = " or ".join(_CHOICES[name])
            raise text.error(f"{name} cannot be {value!r}", node.args["value"], f"write {choices}")
    elif name in _NUMBERS:
        if not re.fullmatch("[1-9][0-9]{0,14}", value):
            fault = f"{name} must be a whole number from 1 to 999999999999999"
            raise text.error(fault, node.args["value"], f"such as SET {name} = 1000")
        if name == "max_text_bytes" and int(value) < _LEAST_TEXT_BYTES:
            fault = f"max_text_bytes must be at least {_LEAST_TEXT_BYTES}"
            raise text.error(fault, node.args["value"], "such as SET max_text_bytes = 65536")
    else:
        raise text.error(
            f"unknown setting {name!r}", node.this, suggest(name, (*_CHOICES, *_NUMBERS), "settings are")
        )
    return value
