"""Arrays by address: how one kernel works on the arrays of many operators.

A kernel's arguments are fixed when it is compiled, but the number of operators in a loop is not, nor is
the number of their arrays. So a kernel gets one table of addresses and sizes and looks at the memory
through these views. Whoever fills the table keeps the arrays alive and fills it anew when one is replaced.
"""

from __future__ import annotations

from typing import Any

from llvmlite.ir import Constant, IntType
from numba import types
from numba.extending import intrinsic as make_intrinsic
from numba.np import arrayobj

_I64, _U64, _F64 = types.int64, types.uint64, types.float64


def intrinsic(function: Any) -> Any:
    """numba's, without its type: what it makes is called with one argument less than is written here."""
    return make_intrinsic(function)


def _view(result: Any, context: Any, builder: Any, address: Any, shape: list[Any]) -> Any:
    """An array over memory that it does not own."""
    item = context.get_data_type(result.dtype)
    size = context.get_constant(types.intp, context.get_abi_sizeof(item))
    strides: list[Any] = []
    step = size
    for extent in reversed(shape):
        strides.insert(0, step)
        step = builder.mul(step, extent)
    array = context.make_array(result)(context, builder)
    data = builder.inttoptr(address, item.as_pointer())
    arrayobj.populate_array(  # type: ignore[no-untyped-call]
        array, data, shape, strides, size, None
    )
    return array._getvalue()


@intrinsic
def vector(typingctx: Any, address: Any, size: Any) -> Any:
    """int64[size] at the address."""
    del typingctx, address, size
    result = types.Array(_I64, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del signature
        return _view(result, context, builder, args[0], [args[1]])

    return result(_I64, _I64), codegen


@intrinsic
def matrix(typingctx: Any, address: Any, rows: Any, columns: Any) -> Any:
    """int64[rows, columns] at the address."""
    del typingctx, address, rows, columns
    result = types.Array(_I64, 2, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del signature
        return _view(result, context, builder, args[0], [args[1], args[2]])

    return result(_I64, _I64, _I64), codegen


@intrinsic
def unsigned(typingctx: Any, address: Any, size: Any) -> Any:
    """uint64[size] at the address."""
    del typingctx, address, size
    result = types.Array(_U64, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del signature
        return _view(result, context, builder, args[0], [args[1]])

    return result(_I64, _I64), codegen


@intrinsic
def as_double(typingctx: Any, bits: Any) -> Any:
    """The double that has these bits."""
    del typingctx, bits

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del signature
        return builder.bitcast(args[0], context.get_value_type(_F64))

    return _F64(_I64), codegen


@intrinsic
def as_bits(typingctx: Any, value: Any) -> Any:
    """The double's bits."""
    del typingctx, value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del signature
        return builder.bitcast(args[0], context.get_value_type(_I64))

    return _I64(_F64), codegen


@intrinsic
def lowest_bit(typingctx: Any, bits: Any) -> Any:
    """The number of the lowest bit that is set; there is one."""
    del typingctx, bits

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return builder.cttz(args[0], Constant(IntType(1), 1))

    return _I64(_I64), codegen
