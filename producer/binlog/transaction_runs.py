"""Runs of small transactions: events that stand in one batch from a GTID to an XID.

What enters: an `EventBatch`. What leaves: a `TransactionRun`, arrays with one row per rows event. A transaction is in a run only
where nothing of it asks for more than its rows: GTID, BEGIN (MySQL), then table maps and rows events with all columns,
then XID. Every other one ends the run, damaged ones included: the transaction assembler reads them, or refuses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from producer.binlog.run_kernels import (
    CURRENT,
    INTERVAL,
    MOST_BYTES,
    MOST_INTERVALS,
    MOST_ITEMS,
    MOST_SLOW,
    MOST_TABLES,
    MOST_TRANSACTIONS,
    REPORT,
    TABLE,
    X_EVENT,
    find_run,
)
from rowcodec.run_items import DOMAIN_GTID, ITEM
from schemas.gtid_sets import GtidRun

if TYPE_CHECKING:
    import numpy.typing as npt

    from producer.binlog.framing import EventBatch

    Ints = npt.NDArray[np.int64]
    Table = npt.NDArray[np.int64]


@dataclass(slots=True)
class TransactionRun:
    """Transactions in `batch` from event `first` up to event `end`. Valid until the next one is looked for.

    `items` is int64[rows events, ITEM], `tables` int64[table versions, TABLE], `intervals` int64[n, INTERVAL], and
    `transactions` int64[count + 1, 2]; the last row has the ends. `longest` is the most rows events of one transaction.
    """

    batch: EventBatch
    first: int
    end: int
    count: int
    items: Table
    tables: Table
    intervals: Table
    transactions: Table
    longest: int

    def event_of(self, transaction: int) -> int:
        """Return the first event of a transaction; of `count` the end."""
        return int(self.transactions[transaction, X_EVENT])

    def gtids(self) -> list[GtidRun]:
        """Return the GTIDs of the transactions, in the order of the log."""
        return [self._gtids(*row) for row in self.intervals.tolist()]

    def _gtids(self, uuid: int, domain: int, server_id: int, first: int, last: int) -> GtidRun:
        if uuid == DOMAIN_GTID:
            return GtidRun("", domain, server_id, first, last)
        return GtidRun(str(UUID(bytes=bytes(self.batch.memory[uuid : uuid + 16]))), 0, 0, first, last)


class RunFinder:
    """The search for runs in batches, and its memory. With `skips_sql` the SQL text of rows is of no interest.

    No run has a rows event with one of the flags `left_out`.
    """

    def __init__(self, *, skips_sql: bool, left_out: int = 0) -> None:
        self._skips_sql = int(skips_sql)
        self._left_out = left_out
        self._slow_ids: set[int] = set()
        self._slow: Ints = np.empty(0, np.int64)
        self._current: Ints = np.zeros(CURRENT, np.int64)
        self._items: Table = np.zeros((MOST_ITEMS, ITEM), np.int64)
        self._tables: Table = np.zeros((MOST_TABLES, TABLE), np.int64)
        self._intervals: Table = np.zeros((MOST_INTERVALS, INTERVAL), np.int64)
        self._transactions: Table = np.zeros((MOST_TRANSACTIONS + 1, 2), np.int64)
        self._report: Ints = np.zeros(REPORT, np.int64)

    def find(self, batch: EventBatch, begin: int, most: int = MOST_TRANSACTIONS) -> TransactionRun | None:
        """Return the first run at or behind event `begin`, of at most so many transactions; None without one."""
        find_run(
            batch.buf,
            batch.types,
            batch.starts,
            batch.ends,
            batch.timestamps,
            batch.server_ids,
            batch.offsets,
            begin,
            self._skips_sql,
            self._left_out,
            most,
            MOST_BYTES,
            self._slow,
            self._current,
            self._items,
            self._tables,
            self._intervals,
            self._transactions,
            self._report,
        )
        first, end, count, items, tables, intervals, longest = self._report.tolist()
        if not count:
            return None
        return TransactionRun(
            batch,
            first,
            end,
            count,
            self._items[:items],
            self._tables[:tables],
            self._intervals[:intervals],
            self._transactions[: count + 1],
            longest,
        )

    def leave_out(self, table_id: int) -> None:
        """Have no run with rows of this table, until `leave_out_none`."""
        if len(self._slow_ids) == MOST_SLOW:
            self._slow_ids.clear()
        self._slow_ids.add(table_id)
        self._slow = np.array(sorted(self._slow_ids), np.int64)

    def leave_out_none(self) -> None:
        """Have runs of all tables again."""
        if self._slow_ids:
            self._slow_ids.clear()
            self._slow = np.empty(0, np.int64)
