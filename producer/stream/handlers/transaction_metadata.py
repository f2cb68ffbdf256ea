"""Transaction metadata: blocks for envelopes, and the records of where transactions begin and end.

What enters: the open transaction and how many records its rows became. What leaves: records of `<prefix>.transaction`,
in the Kafka transaction of the rows. As in Debezium, a transaction without captured rows has these records too, and a
DDL statement has none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from schemas.transactions import begin_value, end_value, transaction_key

if TYPE_CHECKING:
    from producer.kafka.connect_records import RecordEncoder
    from producer.stream.ports import Op, RecordPublisher, Route, RowsEvent
    from producer.stream.transaction import OpenTransaction
    from rowcodec import EventContext


class TransactionMetadata:
    """A writer of the beginning and the end of transactions, which numbers their records."""

    def __init__(self, encoder: RecordEncoder, publisher: RecordPublisher) -> None:
        self._encoder = encoder
        self._publisher = publisher

    def begin(self, transaction: OpenTransaction, file: str, offset: int, ts_ms: int) -> None:
        """Write that the transaction begins to have rows. Its id is the GTID, else the coordinates of its BEGIN."""
        if transaction.counts is not None:
            return
        transaction.ident = transaction.gtid or f"file={file},pos={offset}"
        transaction.counts = {}
        if not transaction.in_kafka:
            self._write(transaction.ident, begin_value(transaction.ident, ts_ms))

    def numbered(self, context: EventContext, transaction: OpenTransaction, table: str) -> EventContext:
        """Return the context of a rows event with the numbers of its first record."""
        counts = transaction.counts or {}
        return replace(
            context,
            transaction=transaction.ident,
            total_order=sum(counts.values()) + 1,
            table_order=counts.get(table, 0) + 1,
        )

    def wants(self, table: Route, op: Op) -> bool:
        """Return whether rows of that operation become records."""
        return op in table.encoded_ops

    def rows(self, event: RowsEvent) -> None:
        """Count the records of a rows event; tombstones have no envelope and do not count."""
        _, records = event.encoded
        number = int(np.count_nonzero(records.ops))
        counts = event.transaction.counts
        if counts is not None and number:
            counts[event.route.name] = counts.get(event.route.name, 0) + number

    def end(self, transaction: OpenTransaction, ts_ms: int) -> None:
        """Write that the transaction is committed."""
        if transaction.counts is not None:
            self._write(transaction.ident, end_value(transaction.ident, ts_ms, transaction.counts))

    def _write(self, ident: str, value: dict[str, object]) -> None:
        key, body = self._encoder.encode(transaction_key(ident), value)
        self._publisher.produce(self._encoder.topic, body, key)
