"""The few things kernels do that NumPy indexing does slowly: move blocks, read words that are not aligned.

Each is an intrinsic (a load, a store or `memcpy`), with a twin in plain Python for NUMBA_DISABLE_JIT=1. None
checks bounds: callers do (the twins prove it). Measured against indexed loops: a copy of 5 to 80 bytes takes a third of the time,
and kernels compile faster, because no loop is vectorised at each place of use.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from producer.codec.jit import Bytes, Int

BLOCK: Final = 16  # what copy_block moves, whatever the size asked for


def _require(array: Bytes, at: Int, size: Int) -> None:
    """Raise if the bounds that kernels must have checked are exceeded; compiled code would crash here."""
    if not 0 <= at <= at + size <= array.size:
        message = f"bytes {at} to {at + size} of {array.size}"
        raise IndexError(message)


def _python_copy(out: Bytes, o: Int, source: Bytes, at: Int, size: Int) -> Int:
    _require(out, o, size)
    _require(source, at, size)
    out[int(o) : int(o) + int(size)] = source[int(at) : int(at) + int(size)].copy()
    return np.int64(o + size)


def _python_copy_block(out: Bytes, o: Int, source: Bytes, at: Int, size: Int) -> Int:
    _require(out, o, BLOCK)
    _require(source, at, BLOCK)
    if size > BLOCK:
        message = f"{size} bytes are more than a block"
        raise IndexError(message)
    return _python_copy(out, o, source, at, size)


def _python_load(buf: Bytes, at: Int) -> Int:
    _require(buf, at, 8)
    return np.int64(int.from_bytes(buf[int(at) : int(at) + 8].tobytes(), "little", signed=True))


def _python_load_big(buf: Bytes, at: Int) -> Int:
    _require(buf, at, 8)
    return np.int64(int.from_bytes(buf[int(at) : int(at) + 8].tobytes(), "big", signed=True))


def _python_store_big(buf: Bytes, at: Int, value: Int) -> None:
    _require(buf, at, 8)
    buf[int(at) : int(at) + 8] = np.frombuffer(int(value).to_bytes(8, "big", signed=True), np.uint8)


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


if numba.config.DISABLE_JIT:
    move = _python_copy
    copy_block = _python_copy_block
    load_word = _python_load
    load_word_big = _python_load_big
    store_word_big = _python_store_big
else:

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
