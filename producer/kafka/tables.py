"""The topics of captured tables: made once, their partition counts remembered in the state topic."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from producer.kafka.client import TopicAdmin
from schemas import topics
from schemas.errors import StateError

DOCUMENT_PREFIX: Final = topics.TABLE_DOCUMENTS
# A row may be as large as the server's max_allowed_packet lets it be; the broker's default is 1 MB.
_TOPIC_CONFIG: Final = {"max.message.bytes": str(64 << 20)}


class TableTopics:
    """Knows every table that has topics, creates the missing ones, and refuses a changed partition count.

    Thread-safe: the log reader and the chunk readers meet new tables. `changed` documents are to be written
    with the next Kafka transaction.
    """

    def __init__(
        self, prefix: str, admin: TopicAdmin, partitions: int, delimiter: str = topics.DELIMITER
    ) -> None:
        self._prefix = prefix
        self._delimiter = delimiter
        self._admin = admin
        self._partitions = partitions
        self._tables: dict[tuple[str, str], int] = {}
        self._unsaved: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def restore(self, documents: Mapping[str, Any]) -> None:
        """Take over the tables an earlier process knew; `StateError` where partitions differ."""
        for key, document in documents.items():
            if key.startswith(DOCUMENT_PREFIX):
                self._ensure(document["database"], document["table"], int(document["partitions"]))

    def ensure(self, database: str, table: str) -> None:
        """Make the table's topics where they do not exist; `ConfigError` where another table has them."""
        with self._lock:
            if (database, table) in self._tables:
                return
            topics.require_distinct_topics(self._prefix, [*self._tables, (database, table)], self._delimiter)
            count = self._ensure(database, table, self._partitions)
            self._unsaved[f"{DOCUMENT_PREFIX}{database}.{table}"] = {
                "v": 1,
                "database": database,
                "table": table,
                "partitions": count,
            }

    def ensure_signal(self, database: str, table: str) -> None:
        """Make the signal table's change topic: one partition keeps signals in order."""
        self._admin.ensure({topics.change_topic(self._prefix, database, table, self._delimiter): 1})

    def known(self) -> list[tuple[str, str]]:
        """Every table that has topics, dropped ones included, without the signal table."""
        with self._lock:
            return list(self._tables)

    def take_unsaved(self) -> dict[str, dict[str, Any]]:
        """State documents that changed since the last call."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
            return unsaved

    def _ensure(self, database: str, table: str, partitions: int) -> int:
        change = topics.change_topic(self._prefix, database, table, self._delimiter)
        snapshot = topics.snapshot_topic(self._prefix, database, table, self._delimiter)
        known = (database, table) in self._tables
        self._admin.ensure({change: partitions, snapshot: partitions}, _TOPIC_CONFIG)
        for topic in (change, snapshot):
            actual = self._admin.partitions(topic)
            if actual != partitions and not known:
                message = (
                    f"topic {topic} has {actual} partitions, {partitions} were expected: keys would move "
                    f"between partitions. Set kafka.partitions to {actual} for a topic made by hand, or "
                    f"go back to {partitions}; a changed count needs new topics (another name) and a snapshot"
                )
                raise StateError(message)
        self._tables[database, table] = partitions
        return partitions
