"""Kasen: continuous queries over streams, on Spark or in one process."""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kasen.aggregates import UserAggregate, aggregate
    from kasen.api import Admission, App, Change, DeadLetter, Pipeline, Query
    from kasen.errors import DataError, InternalError, KasenError, QueryError, ResourceError
    from kasen.runtime.memory import own_process

__version__ = "0.1.0"

__all__ = [
    "Admission",
    "App",
    "Change",
    "DataError",
    "DeadLetter",
    "InternalError",
    "KasenError",
    "Pipeline",
    "Query",
    "QueryError",
    "ResourceError",
    "UserAggregate",
    "__version__",
    "aggregate",
    "own_process",
]

#: Where names are. A module is loaded when it is first used: `kasen check` needs no compiled kernels, and
#: commands handle signals before they load anything.
_MODULES = {
    **dict.fromkeys(("UserAggregate", "aggregate"), "kasen.aggregates"),
    "own_process": "kasen.runtime.memory",
    **dict.fromkeys(("Admission", "App", "Change", "DeadLetter", "Pipeline", "Query"), "kasen.api"),
    **dict.fromkeys(
        ("DataError", "InternalError", "KasenError", "QueryError", "ResourceError"), "kasen.errors"
    ),
}


def __getattr__(name: str) -> "Any":
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    if name in ("aggregates", "errors"):
        return import_module(f"kasen.{name}")
    raise AttributeError(f"module 'kasen' has no attribute {name!r}")
