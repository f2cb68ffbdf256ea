"""The few things kernels do that NumPy indexing does slowly: move blocks, read words that are not aligned.

Each is an intrinsic (a load, a store or `memcpy`), with a twin in plain Python for NUMBA_DISABLE_JIT=1. None
checks bounds: callers do (the twins prove it). Measured against indexed loops: a copy of 5 to 80 bytes takes a third of the time,
and kernels compile faster, because no loop is vectorised at each place of use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rowcodec.codec_kernels import GROUP, Bytes, Int

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


if TYPE_CHECKING or not GROUP.is_compiling:
    move = _python_copy
    copy_block = _python_copy_block
    load_word = _python_load
    load_word_big = _python_load_big
    store_word_big = _python_store_big
else:
    from rowcodec.memory_intrinsics import copy_block, load_word, load_word_big, move, store_word_big  # noqa: F401
