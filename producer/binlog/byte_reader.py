"""Bounds-checked reading of small structures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemas.errors import DecodeError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Buffer = memoryview | bytes | bytearray | npt.NDArray[np.uint8]


def view_of(buf: Any) -> memoryview:
    """Return the buffer as memoryview, so that an element is an `int`."""
    return buf if type(buf) is memoryview else memoryview(buf)


def truncated(what: str) -> DecodeError:
    """Return the error for bytes that end too early."""
    return DecodeError(f"a {what} ends too early")


class Reader:
    """A reader that continues from an index and never reads past the end: `DecodeError` instead."""

    __slots__ = ("_at", "_end", "_view")

    def __init__(self, buf: Buffer, start: int = 0, end: int | None = None) -> None:
        self._view = view_of(buf)
        size = len(self._view)
        self._at = start
        self._end = size if end is None else end
        if not 0 <= start <= self._end <= size:
            raise truncated("binlog event")

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return self._end - self._at

    @property
    def at(self) -> int:
        """Index of the next byte."""
        return self._at

    def read_bytes(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        at = self._at
        if size < 0 or size > self._end - at:
            raise truncated("binlog event")
        self._at = at + size
        return bytes(self._view[at : at + size])

    def skip(self, size: int) -> None:
        """Pass over `size` bytes."""
        if size < 0 or size > self._end - self._at:
            raise truncated("binlog event")
        self._at += size

    def rest(self) -> bytes:
        """Return all bytes up to the end."""
        return self.read_bytes(self.left)

    def text_rest(self, what: str) -> str:
        """Return all bytes up to the end as UTF-8."""
        try:
            return self.rest().decode("utf-8")
        except UnicodeDecodeError:
            reason = f"a {what} holds a name that is not UTF-8"
            raise DecodeError(reason) from None

    def uint(self, size: int) -> int:
        """Return an unsigned little-endian number of `size` bytes."""
        return int.from_bytes(self.read_bytes(size), "little")

    def packed(self) -> int:
        """Return a length-encoded integer: below 251 itself; 252, 253, 254 announce 2, 3, 8 bytes."""
        first = self.uint(1)
        if first < 251:
            return first
        if first == 252:
            return self.uint(2)
        if first == 253:
            return self.uint(3)
        if first == 254:
            return self.uint(8)
        reason = f"a binlog event holds {first} where a packed length belongs"
        raise DecodeError(reason)

    def serialized(self) -> int:
        """Return an unsigned number of MySQL's serialization format."""
        first = self.uint(1)
        extra = 0
        while extra < 8 and first >> extra & 1:
            extra += 1
        if extra == 8:
            return self.uint(8)
        return (first | self.uint(extra) << 8) >> (extra + 1)

    def serialized_signed(self) -> int:
        """Return a signed number of MySQL's serialization format: the lowest bit is the sign, -1 is stored as 0."""
        value = self.serialized()
        return -(value >> 1) - 1 if value & 1 else value >> 1
