"""Kernels over librdkafka's messages: their fields are read where they are, and their bytes copied into one piece.

A message is an `rd_kafka_message_t` of rdkafka.h where pointers have 64 bits. Nothing checks an address: librdkafka gives them, and
each is given back once.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.arrow.worker_kernels import GROUP, BytesOut, Ints, IntsIn, Table, TableIn, entry

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


def _python_word(address: int) -> int:
    return ctypes.c_int64.from_address(int(address)).value


def _python_half(address: int) -> int:
    return ctypes.c_int32.from_address(int(address)).value


def _python_copy(out: Any, at: int, address: int, size: int) -> None:
    out[at : at + size] = memoryview((ctypes.c_uint8 * int(size)).from_address(int(address)))


def _python_give(function: int, address: int) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(int(function))(int(address))


if TYPE_CHECKING or not GROUP.is_compiling:
    word, half, copy, give = _python_word, _python_half, _python_copy, _python_give
else:
    from spark_jobs.arrow.message_intrinsics import copy, give, half, word


@entry
def fields_of(messages: IntsIn, count: int, fields: Table) -> None:
    """Note the fields of the messages."""
    for i in range(count):
        message = messages[i]
        fields[i, ERROR] = half(message)
        fields[i, TOPIC] = word(message + 8)
        fields[i, PARTITION] = half(message + 16)
        fields[i, VALUE] = word(message + 24)
        fields[i, VALUE_SIZE] = word(message + 32)
        fields[i, KEY] = word(message + 40)
        fields[i, KEY_SIZE] = word(message + 48)
        fields[i, OFFSET] = word(message + 56)


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
            copy(out, at, fields[row, address], fields[row, size])
            at += fields[row, size]
        offsets[i + 1] = at


@entry
def give_back(function: int, messages: IntsIn, count: int) -> None:
    """Give messages back to librdkafka."""
    for i in range(count):
        give(function, messages[i])
