"""States of user-defined aggregates as text, exactly: what a snapshot holds of them. No code is in it.

JSON has no tuples, no keys but texts, and no exact decimals: these are written as {tag: content}.
"""

from __future__ import annotations

import copy
import json
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

#: What a state may be made of, for messages.
ALLOWED = "None, bool, int, float, str, Decimal, Fraction, datetime, and lists, tuples and dicts of these"

_PLAIN = (type(None), bool, int, float, str, Decimal, Fraction, datetime)


class UnsavableState(TypeError):
    """A state holds something that cannot be saved."""


def to_json(state: object) -> object:
    """The state as what json.dumps takes."""
    kind = type(state)
    if kind in (type(None), bool, int, float, str):
        return state
    if isinstance(state, list) and kind is list:
        return [to_json(each) for each in state]
    if isinstance(state, tuple) and kind is tuple:
        return {"tuple": [to_json(each) for each in state]}
    if isinstance(state, dict) and kind is dict:
        return {"dict": [[to_json(key), to_json(value)] for key, value in state.items()]}
    if isinstance(state, Decimal):
        return {"decimal": str(state)}
    if isinstance(state, Fraction):
        return {"fraction": str(state)}
    if isinstance(state, datetime):
        return {"datetime": state.isoformat()}
    raise UnsavableState(kind.__name__)


def from_json(given: object) -> object:
    if isinstance(given, list):
        return [from_json(each) for each in given]
    if not isinstance(given, dict):
        return given
    ((tag, content),) = given.items()
    match tag:
        case "tuple":
            return tuple(from_json(each) for each in content)
        case "dict":
            return {from_json(key): from_json(value) for key, value in content}
        case "decimal":
            return Decimal(content)
        case "fraction":
            return Fraction(content)
    return datetime.fromisoformat(content)


def dumps(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def loads(content: bytes) -> Any:
    return json.loads(content)


def apart(state: object) -> object:
    """The state, or a copy where code that is given it could change it."""
    if isinstance(state, _PLAIN) or (
        isinstance(state, tuple) and all(isinstance(each, _PLAIN) for each in state)
    ):
        return state
    return copy.deepcopy(state)
