"""Words that one thread sets and another waits for, without Python's lock."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.base import BaseContext
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from kasen.engine.kernels.compiled import V


@intrinsic
def _first(typing_context: Any, words: Any) -> Any:
    """words[0] as it is in memory now: a loop that looks again and again must not keep it in a register."""
    del typing_context

    def load(context: BaseContext, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Instruction:
        array = make_array(signature.args[0])(context, builder, args[0])  # type: ignore[no-untyped-call]
        return builder.load_atomic(array.data, "acquire", 8)

    return types.int64(words), load


@njit(f"boolean({V}, int64, int64)", cache=True, nogil=True)
def reaches(words: Any, number: Any, looks: Any) -> Any:
    """Waits for words[0] to be at least `number`; False if so many looks were not enough."""
    for _ in range(looks):  # noqa: SIM110, any() of a generator does not compile
        if _first(words) >= number:  # type: ignore[call-arg]
            return True
    return False
