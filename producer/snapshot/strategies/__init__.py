"""Windowing strategies: how the low watermark of a chunk is taken, and where its window closes.

A strategy gives a low watermark: a position such that every transaction at or before it is visible to a read view that
is opened from then on. `SignalRows` commits a row behind all others; `ReadOnly` writes nothing and waits. Every chunk is
read by the same protocol (`producer.snapshot.reader`), whichever strategy takes its low watermark.

The consistent view (`producer.snapshot.view`, `producer.snapshot.blocking`) is no third strategy, for these reasons:

* A window needs a durable bound before its low watermark is taken. At a first start the view itself decides where the log
  is read from: there is no checkpoint before it that could contain a bound.
* A strategy serves chunks of several connections, in parallel, each retried by itself. A view is one transaction of one
  connection; a lost connection voids every row of the request, not one chunk.
* The log continues while a window is open, so `merge: producer` remembers each key that changes in it, in bounded memory.
  Debezium's BLOCKING promises the opposite: no record of a later change precedes a row of the view. Windows over the same
  view would have to remember the keys of the whole reading, or let later changes pass.
* Rows of a window are committed by the transactional id of a reader's slot, which the horizon guards until it is fenced.
  Rows of a view are in the log reader's own Kafka transactions, with the offset. The horizon cannot pass them because
  the offset does not move; there is no second writer to fence, and nothing to register.

For `merge: spark` alone the position of a view would be a correct low watermark of every chunk. It would still hold the
horizon for the whole reading, and would give a BLOCKING request another order of records than Debezium's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from producer.snapshot.strategies.watermark import LowWatermark, WindowRow

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from schemas.position import Position


class Windowing(Protocol):
    """A strategy that opens and closes windows over a chunk reader's connection; it has no state of a window."""

    @property
    def writes_rows(self) -> bool:
        """Whether windows open and close by rows in the log, which the log reader reads."""

    def prepare(self, connection: Connection) -> None:
        """Make sure that windows can be opened; `SourceError` explains why not."""

    def open(self, connection: Connection, row: WindowRow, bound: Position) -> LowWatermark:
        """Take the low watermark, never below `bound`. The connection is in autocommit mode."""

    def close(self, connection: Connection, row: WindowRow) -> None:
        """Commit the close row, where rows are written."""
