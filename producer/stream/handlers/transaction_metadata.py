"""Transaction metadata: blocks for envelopes, and the records that tell where transactions begin and end.

What enters: the open transaction and how many records its rows became. What leaves: records of
`<prefix>.transaction`, in the Kafka transaction of the rows. As in Debezium a transaction without captured
rows has them too, a DDL statement has not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from schemas.transactions import begin_value, end_value, transaction_key

if TYPE_CHECKING:
    from producer.codec import EventContext, Records
    from producer.kafka.connect_records import RecordEncoder
    from producer.stream.transaction import OpenTransaction

Produce = Callable[[str, bytes, bytes], None]  # topic, value, key


class TransactionMetadata:
    """Numbers the records of the open transaction and writes its borders. Owned by the log reader's thread."""

    def __init__(self, encoder: RecordEncoder, produce: Produce) -> None:
        self._encoder = encoder
        self._produce = produce

    def begin(self, transaction: OpenTransaction, file: str, offset: int, ts_ms: int) -> None:
        """The transaction begins to have rows; its id is the GTID, else where its BEGIN stands."""
        if transaction.counts is not None:
            return
        transaction.ident = transaction.gtid or f"file={file},pos={offset}"
        transaction.counts = {}
        if not transaction.in_kafka:
            self._write(transaction.ident, begin_value(transaction.ident, ts_ms))

    def placed(self, context: EventContext, transaction: OpenTransaction, table: str) -> EventContext:
        """The context of a rows event with the numbers of its first record."""
        counts = transaction.counts or {}
        return replace(
            context,
            transaction=transaction.ident,
            total_order=sum(counts.values()) + 1,
            table_order=counts.get(table, 0) + 1,
        )

    def count(self, transaction: OpenTransaction, table: str, records: Records) -> None:
        """Take note of what a rows event became; tombstones have no envelope and do not count."""
        number = int(np.count_nonzero(records.ops))
        if transaction.counts is not None and number:
            transaction.counts[table] = transaction.counts.get(table, 0) + number

    def end(self, transaction: OpenTransaction, ts_ms: int) -> None:
        """The transaction is committed."""
        if transaction.counts is not None:
            self._write(transaction.ident, end_value(transaction.ident, ts_ms, transaction.counts))

    def _write(self, ident: str, value: dict[str, object]) -> None:
        key, body = self._encoder.encode(transaction_key(ident), value)
        self._produce(self._encoder.topic, body, key)
