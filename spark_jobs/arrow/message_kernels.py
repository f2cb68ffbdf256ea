"""Kernels over librdkafka's messages: their fields are read where they are, and their bytes copied into one piece.

A message is an `rd_kafka_message_t` of rdkafka.h where pointers have 64 bits. Nothing checks an address: librdkafka gives them, and
each is given back once.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from spark_jobs.arrow.kernel_cache import BytesOut, Ints, IntsIn, Table, TableIn, entry

# Columns of the fields of messages.
ERROR: Final = 0
TOPIC: Final = 1
PARTITION: Final = 2
OFFSET: Final = 3
VALUE: Final = 4
VALUE_SIZE: Final = 5
KEY: Final = 6
KEY_SIZE: Final = 7
FIELDS: Final = 8

if numba.config.DISABLE_JIT:

    def _word(address: int) -> int:
        return ctypes.c_int64.from_address(int(address)).value

    def _half(address: int) -> int:
        return ctypes.c_int32.from_address(int(address)).value

    def _copy(out: Any, at: int, address: int, size: int) -> None:
        out[at : at + size] = memoryview((ctypes.c_uint8 * int(size)).from_address(int(address)))

    def _give(function: int, address: int) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(int(function))(int(address))

else:
    _int64 = numba.types.int64

    @intrinsic
    def _word(_typing: Any, address: Any) -> Any:
        """Load an int64."""

        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

        return _int64(_int64), generate

    @intrinsic
    def _half(_typing: Any, address: Any) -> Any:
        """Load an int32."""

        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            loaded = builder.load(builder.inttoptr(args[0], ir.IntType(32).as_pointer()))
            return builder.sext(loaded, ir.IntType(64))

        return _int64(_int64), generate

    @intrinsic
    def _copy(_typing: Any, out: Any, at: Any, address: Any, size: Any) -> Any:
        """Copy so many bytes to out[at:]."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            to = builder.gep(data, [args[1]])
            cgutils.raw_memcpy(builder, to, builder.inttoptr(args[2], ir.IntType(8).as_pointer()), args[3], itemsize=1)
            return context.get_dummy_value()

        return numba.types.void(out, _int64, _int64, _int64), generate

    @intrinsic
    def _give(_typing: Any, function: Any, address: Any) -> Any:
        """Call a function of C with an address."""

        def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
            builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])
            return context.get_dummy_value()

        return numba.types.void(_int64, _int64), generate


@entry
def fields_of(messages: IntsIn, count: int, fields: Table) -> None:
    """Note the fields of the messages."""
    for i in range(count):
        message = messages[i]
        fields[i, ERROR] = _half(message)
        fields[i, TOPIC] = _word(message + 8)
        fields[i, PARTITION] = _half(message + 16)
        fields[i, VALUE] = _word(message + 24)
        fields[i, VALUE_SIZE] = _word(message + 32)
        fields[i, KEY] = _word(message + 40)
        fields[i, KEY_SIZE] = _word(message + 48)
        fields[i, OFFSET] = _word(message + 56)


@entry
def runs_of(fields: TableIn, count: int, starts: Ints) -> int:
    """Note where messages of another partition, or an error, begin; return how many such runs there are."""
    found = 0
    for i in range(count):
        if (
            i == 0
            or fields[i, ERROR] != 0
            or fields[i - 1, ERROR] != 0
            or fields[i, TOPIC] != fields[i - 1, TOPIC]
            or fields[i, PARTITION] != fields[i - 1, PARTITION]
        ):
            starts[found] = i
            found += 1
    return found


@entry
def is_ascending(fields: TableIn, first: int, last: int) -> bool:
    """Return whether the offsets of some messages become larger from each to the next."""
    for i in range(first + 1, last):
        if fields[i, OFFSET] <= fields[i - 1, OFFSET]:
            return False
    return True


@entry
def copy_bytes(fields: TableIn, rows: IntsIn, address: int, size: int, out: BytesOut, offsets: Ints) -> None:
    """Copy what is at the columns `address` and `size` of these rows, and note where each ends; what is null has no bytes."""
    at = 0
    offsets[0] = 0
    for i in range(rows.size):
        row = rows[i]
        if fields[row, address] != 0 and fields[row, size] != 0:
            _copy(out, at, fields[row, address], fields[row, size])
            at += fields[row, size]
        offsets[i + 1] = at


@entry
def give_back(function: int, messages: IntsIn, count: int) -> None:
    """Give messages back to librdkafka."""
    for i in range(count):
        _give(function, messages[i])
