"""The intrinsics of `memory`, for Numba: imported only where kernels are compiled."""

from __future__ import annotations

from typing import Any, Final

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

BLOCK: Final = 16  # what copy_block moves, whatever the size asked for


def _address(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [at])


def _int64s(context: Any, builder: Any, signature: Any, args: Any, first: int) -> Any:
    """Return the arguments from `first` on, as 64-bit integers where they are numbers."""
    return [
        context.cast(builder, value, kind, numba.types.int64)
        if isinstance(kind, numba.types.Integer)
        else value
        for kind, value in zip(signature.args[first:], args[first:], strict=True)
    ]


@intrinsic
def move(_typing: Any, out: Any, o: Any, source: Any, at: Any, size: Any) -> Any:
    """out[o:o + size] = source[at:at + size], regions may overlap; returns o + size."""
    signature = numba.types.int64(out, o, source, at, size)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        o, source, at, size = _int64s(context, builder, signature, args, 1)
        to = _address(context, builder, signature.args[0], args[0], o)
        start = _address(context, builder, signature.args[2], source, at)
        cgutils.raw_memmove(builder, to, start, size, itemsize=1)
        return builder.add(o, size)

    return signature, generate


@intrinsic
def copy_block(_typing: Any, out: Any, o: Any, source: Any, at: Any, size: Any) -> Any:
    """Return the same for `size` <= BLOCK: always moves BLOCK bytes, so both arrays have that much beyond."""
    signature = numba.types.int64(out, o, source, at, size)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        o, source, at, size = _int64s(context, builder, signature, args, 1)
        kind = ir.IntType(8 * BLOCK)
        to = _address(context, builder, signature.args[0], args[0], o)
        start = _address(context, builder, signature.args[2], source, at)
        block = builder.load(builder.bitcast(start, kind.as_pointer()), align=1)
        builder.store(block, builder.bitcast(to, kind.as_pointer()), align=1)
        return builder.add(o, size)

    return signature, generate


@intrinsic
def load_word(_typing: Any, buf: Any, at: Any) -> Any:
    """Load the eight little-endian bytes at `at` as an int64."""
    signature = numba.types.int64(buf, at)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (at,) = _int64s(context, builder, signature, args, 1)
        address = _address(context, builder, signature.args[0], args[0], at)
        return builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)

    return signature, generate


@intrinsic
def load_word_big(_typing: Any, buf: Any, at: Any) -> Any:
    """Load the eight big-endian bytes at `at` as an int64."""
    signature = numba.types.int64(buf, at)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (at,) = _int64s(context, builder, signature, args, 1)
        address = _address(context, builder, signature.args[0], args[0], at)
        return builder.bswap(builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1))

    return signature, generate


@intrinsic
def store_word_big(_typing: Any, buf: Any, at: Any, value: Any) -> Any:
    """Write an int64 as eight big-endian bytes."""
    signature = numba.types.void(buf, at, value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at, value = _int64s(context, builder, signature, args, 1)
        address = _address(context, builder, signature.args[0], args[0], at)
        builder.store(builder.bswap(value), builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return signature, generate
