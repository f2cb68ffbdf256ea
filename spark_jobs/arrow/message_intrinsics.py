"""The intrinsics of `message_kernels`, for Numba: imported only where kernels are compiled."""

from __future__ import annotations

from typing import Any, Final

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

_int64: Final = numba.types.int64


@intrinsic
def word(_typing: Any, _address: Any) -> Any:
    """Load an int64."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return _int64(_int64), generate


@intrinsic
def half(_typing: Any, _address: Any) -> Any:
    """Load an int32."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        loaded = builder.load(builder.inttoptr(args[0], ir.IntType(32).as_pointer()))
        return builder.sext(loaded, ir.IntType(64))

    return _int64(_int64), generate


@intrinsic
def copy(_typing: Any, out: Any, _at: Any, _address: Any, _size: Any) -> Any:
    """Copy so many bytes to out[at:]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        to = builder.gep(data, [args[1]])
        cgutils.raw_memcpy(builder, to, builder.inttoptr(args[2], ir.IntType(8).as_pointer()), args[3], itemsize=1)
        return context.get_dummy_value()

    return numba.types.void(out, _int64, _int64, _int64), generate


@intrinsic
def give(_typing: Any, _function: Any, _address: Any) -> Any:
    """Call a function of C with an address."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])
        return context.get_dummy_value()

    return numba.types.void(_int64, _int64), generate
