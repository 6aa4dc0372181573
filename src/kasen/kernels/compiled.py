"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])

# Arrays in signatures: a vector and a matrix of int64, C-contiguous.
V, M = "int64[::1]", "int64[:, ::1]"


def compiled(signature: str) -> Callable[[Function], Function]:
    """Compiles a function that makes no arrays, at import, or loads it from numba's cache.

    Small functions should cost nothing. Left alone, numba counts the references to every array at every
    call between compiled functions, with atomic additions, and passes each array as seven or more
    numbers: together that costs more than a hash probe. A function that makes no arrays needs no
    counting, and one that is put into its callers needs no passing.
    """
    options: dict[str, Any] = {"cache": True, "nogil": True, "forceinline": True, "_nrt": False}
    decorator: Any = njit(signature, **options)
    return decorator  # type: ignore[no-any-return]
