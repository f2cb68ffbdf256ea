"""Row images cut into cells, one by one in Python: for the few rows whose values the producer itself needs (pure)."""

from __future__ import annotations

from schemas.errors import DecodeError


class RowImages:
    """Full row images one after another; every read is checked against the end (`DecodeError`)."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._data = data
        self._sizes = sizes
        self._at = 0

    @property
    def exhausted(self) -> bool:
        """Whether all were taken."""
        return self._at >= len(self._data)

    def take(self) -> list[bytes | None]:
        """Return the cells of the next image, as they stand in the log without their length prefixes; None for NULL."""
        nulls = self._bytes((len(self._sizes) + 7) // 8)
        return [
            None if nulls[index // 8] & (1 << index % 8) else self._cell(size)
            for index, size in enumerate(self._sizes)
        ]

    def _cell(self, size: int) -> bytes:
        if size >= 0:
            return self._bytes(size)
        if size < -4:
            reason = "a row has a column of a type that is not known"
            raise DecodeError(reason)
        return self._bytes(int.from_bytes(self._bytes(-size), "little"))

    def _bytes(self, count: int) -> bytes:
        cell = self._data[self._at : self._at + count]
        if len(cell) < count:
            reason = f"a row ends {count - len(cell)} bytes too early"
            raise DecodeError(reason)
        self._at += count
        return cell
