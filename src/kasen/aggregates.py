"""Aggregates that a user writes in Python.

import kasen

@kasen.aggregate(arguments=["DOUBLE"], returns="DOUBLE")
class geomean:
    def init(self): return (0.0, 0)
    def add(self, state, x): return (state[0] + math.log(x), state[1] + 1)
    def merge(self, one, other): return (one[0] + other[0], one[1] + other[1])
    def result(self, state): return math.exp(state[0] / state[1]) if state[1] else None
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kasen.errors import DataError, KasenError, QueryError

_METHODS = {"init": "init()", "add": "add(state, *values)", "merge": "merge(one, other)"}
_METHODS |= {"result": "result(state)"}


@dataclass(frozen=True, slots=True)
class UserAggregate:
    """An aggregate's name, the CQL types of its arguments and of its result, and the class that computes it.

    The class has `init() -> state`, `add(state, *values) -> state`, `merge(one, other) -> state` and
    `result(state) -> value`; `remove(state, *values) -> state`, the inverse of `add`, is optional. One object
    serves all groups, so what a group has seen must be in its state. A state is made of None, bool, int,
    float, str, Decimal, Fraction, datetime, and lists, tuples and dicts of these: so it can be saved.
    """

    name: str
    arguments: tuple[str, ...]
    returns: str
    implementation: Callable[[], Any]

    @classmethod
    def of(
        cls, name: str, implementation: Callable[[], Any], arguments: Sequence[str], returns: str
    ) -> UserAggregate:
        """Refuses what could not run: a class without one of the methods, no arguments, a name like `a b`."""
        if not name.isidentifier():
            raise QueryError(f"{name!r} is no name for an aggregate", remedy="choose one such as geomean")
        if isinstance(arguments, str) or not arguments:
            fault = f"aggregate {name} needs a list of its arguments' types"
            raise QueryError(fault, remedy="such as arguments=['DOUBLE']")
        for method, usage in _METHODS.items():
            if not callable(getattr(implementation, method, None)):
                raise QueryError(f"aggregate {name} has no method {usage}", remedy="define it in the class")
        return cls(name.lower(), tuple(arguments), returns, implementation)


def aggregate(
    *, arguments: Sequence[str], returns: str, name: str | None = None
) -> Callable[[type], UserAggregate]:
    """Makes a class an aggregate, called as the class is unless a `name` is given."""

    def define(implementation: type) -> UserAggregate:
        return UserAggregate.of(name or implementation.__name__, implementation, arguments, returns)

    return define


def load_python(path: Path) -> tuple[UserAggregate, ...]:
    """The aggregates that a Python file defines. The file is run."""
    if not path.is_file():
        raise DataError(f"no file {str(path)!r}")
    spec = importlib.util.spec_from_file_location(f"kasen_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise QueryError(f"{path} is no Python file", remedy="its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as an import does: a dataclass looks itself up
    try:
        spec.loader.exec_module(module)
    except KasenError:
        raise
    except Exception as error:
        line = error.__traceback__.tb_next if error.__traceback__ is not None else None
        while line is not None and line.tb_next is not None:
            line = line.tb_next
        where = f"{path}:{line.tb_lineno}" if line is not None else str(path)
        raise QueryError(f"{where}: {type(error).__name__}: {error}") from error
    finally:
        # Nobody can import it by this name, on another machine least of all: so Spark sends it whole.
        sys.modules.pop(spec.name, None)
    found = (each for each in vars(module).values() if isinstance(each, UserAggregate))
    return tuple(dict.fromkeys(found))
