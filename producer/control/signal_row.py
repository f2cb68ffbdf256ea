"""Signal rows out of the raw row images of the signal table's binlog events (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from producer.binlog.rowcount import cell_sizes
from schemas.errors import DecodeError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

log = structlog.get_logger(__name__)

SIGNAL_COLUMNS: Final = 3


class Layout(Protocol):
    """Real type codes and metadata of a table's columns, from its TABLE_MAP."""

    @property
    def types(self) -> tuple[int, ...]:
        """Type codes."""

    @property
    def metas(self) -> tuple[int, ...]:
        """Type metadata."""


@dataclass(frozen=True, slots=True)
class SignalRow:
    """One row of the signal table: Debezium's `(id, type, data)`, by position."""

    id: str
    type: str
    data: str | None


def decode_signal_row(
    buf: npt.NDArray[np.uint8], start: int, end: int, layout: Layout, op: str
) -> Iterator[SignalRow]:
    """The rows of one rows event, from the first byte of its first row image; of an update the new row.

    Every image is full. Rows without an id or a type, and a table whose first three columns are not text,
    hold no signal: they are logged and left out. Raises `DecodeError` for bytes that can't be rows.
    """
    sizes = [int(size) for size in cell_sizes(layout.types, layout.metas)]
    if len(sizes) < SIGNAL_COLUMNS or any(size >= 0 for size in sizes[:SIGNAL_COLUMNS]):
        log.warning("signal.table_has_other_columns", types=layout.types)
        return
    images = _Images(buf[start:end].tobytes(), sizes)
    number = 0
    while not images.exhausted:
        cells = images.take()
        number += 1
        if op == "u" and number % 2:
            continue
        row = _signal(cells)
        if row is not None:
            yield row


class _Images:
    """Row images one after another; every read is checked against the end."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._data = data
        self._sizes = sizes
        self._at = 0

    @property
    def exhausted(self) -> bool:
        return self._at >= len(self._data)

    def take(self) -> list[bytes | None]:
        nulls = self._bytes((len(self._sizes) + 7) // 8)
        return [
            None if nulls[index // 8] & (1 << index % 8) else self._cell(size)
            for index, size in enumerate(self._sizes)
        ]

    def _cell(self, size: int) -> bytes:
        if size >= 0:
            return self._bytes(size)
        if size < -4:
            reason = "the signal table has a column of a type that is not known"
            raise DecodeError(reason)
        return self._bytes(int.from_bytes(self._bytes(-size), "little"))

    def _bytes(self, count: int) -> bytes:
        cell = self._data[self._at : self._at + count]
        if len(cell) < count:
            reason = f"a row of the signal table ends {count - len(cell)} bytes too early"
            raise DecodeError(reason)
        self._at += count
        return cell


def _signal(cells: list[bytes | None]) -> SignalRow | None:
    signal_id, signal_type, data = cells[:SIGNAL_COLUMNS]
    if signal_id is None or signal_type is None:
        log.warning("signal.without_id_or_type")
        return None
    return SignalRow(_text(signal_id), _text(signal_type), None if data is None else _text(data))


def _text(data: bytes) -> str:
    """UTF-8 as our own DDL makes the table; what is not UTF-8 comes from a latin1 table."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")
