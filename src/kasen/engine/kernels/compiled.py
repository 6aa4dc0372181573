"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numba import njit

from kasen.engine.kernels.stale import drop_stale

Function = TypeVar("Function", bound=Callable[..., object])

# Before the first kernel that calls another is looked up in the cache.
drop_stale(Path(__file__).parents[1], "kasen.engine")

# Arrays in signatures: a vector and a matrix of int64, C-contiguous.
V, M = "int64[::1]", "int64[:, ::1]"


def compiled(signature: str, *, inline: bool = True) -> Callable[[Function], Function]:
    """Compiles a function that makes no arrays, at import, or loads it from numba's cache.

    Small functions should cost nothing. Left alone, numba counts the references to every array at every
    call between compiled functions, with atomic additions, and passes each array as seven or more
    numbers: together that costs more than a hash probe. A function that makes no arrays needs no
    counting, and one that is put into its callers needs no passing. `inline=False` is for long functions
    that do much at a call: there the passing is nothing, and each copy takes long to compile.
    """
    options: dict[str, Any] = {"cache": True, "nogil": True, "forceinline": inline, "_nrt": False}
    decorator: Any = njit(signature, **options)
    return decorator  # type: ignore[no-any-return]
