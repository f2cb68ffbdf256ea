"""Signal rows out of the raw row images of the signal table's binlog events (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from producer.binlog.images import RowImages
from producer.binlog.rowcount import cell_sizes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rowcodec import BinlogLayout

log = structlog.get_logger(__name__)

SIGNAL_COLUMNS: Final = 3


@dataclass(frozen=True, slots=True)
class SignalRow:
    """One row of the signal table: Debezium's `(id, type, data)`, by position."""

    id: str
    type: str
    data: str | None


def decode_signal_row(
    buf: npt.NDArray[np.uint8], start: int, end: int, layout: BinlogLayout, op: str
) -> Iterator[SignalRow]:
    """Yield the rows of one rows event, from the first byte of its first row image; of an update the new row.

    Every image is full. A NULL id or type is read as an empty one, which is answered. A table whose first three columns
    are not text has no signals: that is logged. Raises `DecodeError` for bytes that can't be rows.
    """
    sizes = [int(size) for size in cell_sizes(layout.types, layout.metas)]
    if len(sizes) < SIGNAL_COLUMNS or any(size >= 0 for size in sizes[:SIGNAL_COLUMNS]):
        log.warning("signal.table_has_other_columns", types=layout.types)
        return
    images = RowImages(buf[start:end].tobytes(), sizes)
    number = 0
    while not images.exhausted:
        cells = images.next_row()
        number += 1
        if op == "u" and number % 2:
            continue
        yield _signal(cells)


def _signal(cells: list[bytes | None]) -> SignalRow:
    signal_id, signal_type, data = cells[:SIGNAL_COLUMNS]
    return SignalRow(_text(signal_id or b""), _text(signal_type or b""), None if data is None else _text(data))


def _text(data: bytes) -> str:
    """Return UTF-8, as our own DDL makes the table; all other bytes come from a latin1 table."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")
