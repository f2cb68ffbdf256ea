"""Outbox topics: rows inserted into an outbox table leave as events in topics of their own.

Their change topic stays as it is. Events are in the Kafka transaction of their rows, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from producer.stream.ports import Op, RecordPublisher, Route, RowsEvent


class OutboxTopics:
    """A writer of outbox events, which makes their topics."""

    def __init__(
        self, publisher: RecordPublisher, ensure: Callable[[dict[str, int]], None], partitions: int
    ) -> None:
        self._publisher = publisher
        self._ensure = ensure
        self._partitions = partitions
        self._known: set[str] = set()

    def wants(self, table: Route, op: Op) -> bool:
        """Return whether they are inserts into an outbox table."""
        return table.outbox is not None and op == "c" and op in table.encoded_ops

    def rows(self, event: RowsEvent) -> None:
        """Write the events of inserted rows, unless they are in Kafka already."""
        outbox = event.route.outbox
        if outbox is None or event.is_in_kafka:
            return
        context, _ = event.encoded
        for one in outbox.events(outbox.codec.encode_rows(event.buf, event.start, event.end, context)):
            if one.topic not in self._known:
                self._ensure({one.topic: self._partitions})
                self._known.add(one.topic)
            self._publisher.produce(one.topic, one.value, one.key, headers=[("id", one.id)])
