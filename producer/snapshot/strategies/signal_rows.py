"""Windows that open and close by rows of the signal table: DBLog's watermarks, as Debezium writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.snapshot.strategies import Windowing
from producer.snapshot.strategies.watermark import (
    LowWatermark,
    SignalTable,
    Watermarking,
    WindowRow,
    choose_low_watermark,
    commit_close,
    delete_row,
)
from schemas.loads import LoadAnswer
from schemas.overriding import override

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from schemas.position import Position


class SignalRows(Windowing):
    """Open and close rows in the signal table. The open row is the barrier of the low watermark."""

    writes_rows = True

    def __init__(self, table: SignalTable, watermarking: Watermarking) -> None:
        self.table = table
        self._watermarking = watermarking

    @override
    def prepare(self, connection: Connection) -> None:
        """Create the signal table where it is missing."""
        self.table.ensure(connection)

    @override
    def open(self, connection: Connection, row: WindowRow, bound: Position) -> LowWatermark:
        """Commit the open row behind everything up to the low watermark (`choose_low_watermark`)."""
        return choose_low_watermark(connection, self.table, row, bound)

    @override
    def close(self, connection: Connection, row: WindowRow) -> None:
        """Commit the close row, or delete the open row (`commit_close`)."""
        commit_close(connection, self.table, row, self._watermarking)

    def forget_answer(self, connection: Connection, window: str) -> None:
        """Delete the merge job's answer to a window, where the signal table is to stay empty."""
        if self._watermarking == "insert_delete":
            delete_row(connection, self.table, LoadAnswer(window).row[0])
