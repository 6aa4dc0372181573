"""Kasen: continuous queries over streams, on Spark or in one process."""

from typing import TYPE_CHECKING, Any

from kasen.aggregates import aggregate
from kasen.errors import DataError, InternalError, KasenError, QueryError, ResourceError

if TYPE_CHECKING:
    from kasen.api import Pipeline, Query
    from kasen.runtime.memory import own_process

__version__ = "0.1.0"

__all__ = [
    "DataError",
    "InternalError",
    "KasenError",
    "Pipeline",
    "Query",
    "QueryError",
    "ResourceError",
    "__version__",
    "aggregate",
    "own_process",
]


def __getattr__(name: str) -> Any:
    # The engine is loaded when it is first used: `kasen check` needs no compiled kernels.
    if name in ("Pipeline", "Query"):
        from kasen import api

        return getattr(api, name)
    if name == "own_process":
        from kasen.runtime.memory import own_process

        return own_process
    raise AttributeError(f"module 'kasen' has no attribute {name!r}")
