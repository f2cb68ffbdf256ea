"""The topics of captured tables: made once, their partition counts remembered in the state topic.

Topics of a table that is not captured any more stay, and stay its own: it is *released*, until it is captured again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkaio.topic_admin import TopicAdmin
from schemas import topics
from schemas.documents import TopicsDocument
from schemas.errors import StateError
from schemas.json_codec import encode
from schemas.state import parse

_LOOK_EVERY_S: Final = 10.0
_LOOK_SHARE: Final = 20
# A row may be as large as the server's max_allowed_packet lets it be; the broker's default is 1 MB.
_TOPIC_CONFIG: Final = {"max.message.bytes": str(topics.RECORD_BYTES)}


class TableTopics:
    """Knows every captured table that has topics, creates the missing ones, and refuses a changed partition count.

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
        self._released: dict[tuple[str, str], int] = {}
        self._unsaved: dict[str, dict[str, Any]] = {}
        self._change_topics: set[str] = set()
        self._lock = threading.Lock()
        self._look_again_s = float("-inf")

    def restore(self, documents: Mapping[str, Any]) -> None:
        """Take over the tables an earlier process knew; `StateError` where partitions differ. A second time does nothing."""
        prefix = TopicsDocument.PREFIX
        known = [parse(TopicsDocument, key, document) for key, document in documents.items() if key.startswith(prefix)]
        released = {(one.database, one.table): one.partitions for one in known if one.released}
        self._released |= {table: count for table, count in released.items() if table not in self._tables}
        counts = {(one.database, one.table): one.partitions for one in known if not one.released}
        others = self._tables.keys() | self._released.keys()
        self._make({table: count for table, count in counts.items() if table not in others})

    def ensure(self, database: str, table: str) -> None:
        """Make the table's topics where they do not exist; `ConfigError` where another table has them."""
        self.ensure_all([(database, table)])

    def ensure_all(self, tables: Iterable[tuple[str, str]]) -> None:
        """Create the topics of many tables at once: thousands need no longer than Kafka takes to create them."""
        with self._lock:
            counts = self._counts(tables)
            if not counts:
                return
            topics.require_distinct_topics(self._prefix, list({**self._tables, **self._released, **counts}), self._delimiter)
            self._make(counts)
            for table, count in counts.items():
                self._released.pop(table, None)
                self._note(TopicsDocument(*table, count))

    def create(self, tables: Iterable[tuple[str, str]]) -> None:
        """Create topics in Kafka and note nothing: `ensure_all` takes no time then. `StateError` where partitions differ."""
        with self._lock:
            counts = self._counts(tables)
        self._create(counts)

    def release(self, tables: Iterable[tuple[str, str]]) -> None:
        """Note that the tables are not captured any more: they get no markers, and their topics may be deleted."""
        with self._lock:
            for table in tables:
                count = self._tables.pop(table, None)
                if count is not None:
                    self._released[table] = count
                    self._note(TopicsDocument(*table, count, released=True))

    def is_released(self, database: str, table: str) -> bool:
        """Return whether the table was captured once, and is not any more."""
        with self._lock:
            return (database, table) in self._released

    def without_topics(self, tables: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """Return those of the tables that can have no topics beside the others, and why."""
        with self._lock:
            wanted = {**self._tables, **self._released, **self._counts(tables)}
            return topics.without_topics(self._prefix, list(wanted), self._delimiter)

    def require_unchanged(self, now_s: float) -> None:
        """`StateError` where somebody has added partitions to a table's topic meanwhile.

        Asked every ten seconds, or in a twentieth of the time where there are so many topics that it takes longer. Between that
        and its being noticed keys may have moved; who merges by position is right all the same.
        """
        if now_s < self._look_again_s:
            return
        began = time.monotonic()
        with self._lock:
            expected = {topic: count for table, count in self._tables.items() for topic in self._topics(*table)}
        for topic, actual in self._admin.partitions_now(expected).items():
            if actual != expected[topic]:
                raise StateError(_changed(topic, actual, expected[topic]))
        self._look_again_s = now_s + max(_LOOK_EVERY_S, _LOOK_SHARE * (time.monotonic() - began))

    def ensure_signal(self, database: str, table: str) -> None:
        """Make the signal table's change topic: one partition keeps signals in order."""
        topic = topics.change_topic(self._prefix, database, table, self._delimiter)
        self._admin.ensure({topic: 1})
        self._change_topics.add(topic)

    def released(self) -> list[tuple[str, str]]:
        """Return the tables that were captured once and are not any more."""
        with self._lock:
            return list(self._released)

    def known(self) -> list[tuple[str, str]]:
        """Return every captured table that has topics, dropped ones included, without the signal table."""
        with self._lock:
            return list(self._tables)

    def known_and_released(self) -> list[tuple[str, str]]:
        """Return those tables, and the released ones."""
        with self._lock:
            return [*self._tables, *self._released]

    @property
    def change_topics(self) -> frozenset[str]:
        """The change topics to which rows were or can be written, the signal table's included."""
        return frozenset(self._change_topics)

    def is_change_topic(self, topic: str) -> bool:
        """Return whether it is one of them."""
        return topic in self._change_topics

    def pop_unsaved(self) -> dict[str, dict[str, Any]]:
        """State documents that changed since the last call."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
            return unsaved

    def _counts(self, tables: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Return the number of partitions of those of the tables that are not known."""
        return {table: self._released.get(table, self._partitions) for table in tables if table not in self._tables}

    def _note(self, document: TopicsDocument) -> None:
        self._unsaved[document.key] = encode(document)

    def _make(self, partitions: Mapping[tuple[str, str], int]) -> None:
        self._create(partitions)
        self._tables.update(partitions)
        self._change_topics.update(self._topics(*table)[0] for table in partitions)

    def _create(self, partitions: Mapping[tuple[str, str], int]) -> None:
        wanted = {topic: count for table, count in partitions.items() for topic in self._topics(*table)}
        self._admin.ensure(wanted, _TOPIC_CONFIG)
        for topic, count in wanted.items():
            actual = self._admin.partitions(topic)
            if actual != count:
                self._admin.forget(topic)  # somebody may mend it
                raise StateError(_changed(topic, actual, count))

    def _topics(self, database: str, table: str) -> tuple[str, str]:
        """Return the change topic and the snapshot topic."""
        return (
            topics.change_topic(self._prefix, database, table, self._delimiter),
            topics.snapshot_topic(self._prefix, database, table, self._delimiter),
        )


def _changed(topic: str, actual: int, expected: int) -> str:
    return (
        f"topic {topic} has {actual} partitions, {expected} were expected: keys would move between partitions. "
        f"Set kafka.partitions to {actual} for a topic made by hand, or go back to {expected}; a changed count "
        f"needs new topics (another name) and a snapshot"
    )
