"""Which source table a topic is of: topic names and what the producer's state says enter, `SourceTable`s leave."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Container, Iterable
from typing import Final

import structlog
from pyspark.sql import SparkSession

from schemas.errors import SinkError
from schemas.identity import SourceTable
from schemas.settings import Settings
from schemas.topics import DELIMITER, SNAPSHOT_SUFFIX, change_topic, sanitise, snapshot_topic, state_topic
from spark_jobs.kafka.admin import topic_exists
from spark_jobs.kafka.few_records import FewRecords
from spark_jobs.kafka.state_reader import tables_with_topics

log = structlog.get_logger()

_ASKED: Final = 6
_PAUSE_S: Final = 2.0
_PLAIN: Final = re.compile(r"[A-Za-z0-9-]+")
_SERVICES: Final = frozenset({"state", "notifications", "transaction"})


class TopicTables:
    """The tables of topics, as (database, table).

    A topic name of letters, digits and `-` between dots is enough. Any other name can be of several tables: a `_` may replace any
    character that Kafka does not allow, a dot may belong to a table, another delimiter may be anywhere. Then the tables that have
    topics decide. `read_tables` returns them, and is asked again for a topic of none that is known. It is asked for some seconds,
    because the partitions of one Kafka transaction need not become readable at once. `exists` returns whether there is a topic: a
    producer of a longer name has a state topic.
    """

    def __init__(
        self,
        prefix: str,
        delimiter: str,
        read_tables: Callable[[], set[tuple[str, str]]],
        exists: Callable[[str], bool],
    ) -> None:
        self._prefix = prefix
        self._delimiter = delimiter
        self._read_tables = read_tables
        self._exists = exists
        self._known: dict[str, tuple[str, str] | None] = {}
        self._listed: frozenset[tuple[str, str]] = frozenset()
        self._seen: dict[str, float] = {}

    def topics(self, table: tuple[str, str]) -> tuple[str, str]:
        """Return the change topic and the snapshot topic of a table."""
        return (
            change_topic(self._prefix, *table, self._delimiter),
            snapshot_topic(self._prefix, *table, self._delimiter),
        )

    def topics_of(self, table: SourceTable) -> tuple[str, str]:
        """Return the change topic and the snapshot topic of a source table."""
        return self.topics((table.name.database, table.name.table))

    def named(self, name: str, existing: Container[str]) -> tuple[str, str]:
        """Return database and table of a `database.table`; if both may have dots, the topics and the producer's state decide.

        `SinkError` for a name of which neither has a table.
        """
        parts = name.split(".")
        tables = [(".".join(parts[:number]), ".".join(parts[number:])) for number in range(1, len(parts))]
        if len(tables) == 1:
            return tables[0]
        if self._listed.isdisjoint(tables):
            self._listed = frozenset(self._read_tables())
        found = [table for table in tables if table in self._listed]
        found += [table for table in tables if not found and any(topic in existing for topic in self.topics(table))]
        if len(found) == 1:
            return found[0]
        message = (
            f"the merge job's state names a table {name}, and the producer's state (topic "
            f"{state_topic(self._prefix, self._delimiter)}) does not say which part of it is the database. "
            "Start the merge job on an empty sink path (another sinks.path) and snapshot again"
        )
        raise SinkError(message)

    def expect(self, topics: Iterable[str]) -> None:
        """Note topics that will be asked about: the wait for the table of one is the wait for those of all."""
        for topic in topics:
            self._seen.setdefault(topic, time.monotonic())

    def of(self, topic: str) -> tuple[str, str] | None:
        """Return database and table of a topic; None for a topic of another producer, whose name begins with ours.

        `SinkError` for one of which no producer has a table.
        """
        by_name = self._by_name(topic) if self._delimiter == DELIMITER else None
        if by_name is None and topic not in self._known:
            self._look_up(topic)
        return by_name or self._known[topic]

    def _by_name(self, topic: str) -> tuple[str, str] | None:
        """Return the table if the name of the topic alone is enough."""
        table = table_of(topic, self._prefix)
        if table is None or table[1] in _SERVICES or not all(_PLAIN.fullmatch(name) for name in table):
            return None
        return table

    def _look_up(self, topic: str) -> None:
        self.expect([topic])
        for attempt in range(_ASKED):
            time.sleep(attempt and _PAUSE_S)
            is_late = attempt == _ASKED - 1 or time.monotonic() - self._seen[topic] >= (_ASKED - 1) * _PAUSE_S
            tables = {name: table for table in self._read_tables() for name in self.topics(table)}
            self._known |= tables
            if topic in tables:
                return
            if is_late and self._is_anothers(topic):
                log.info("merge.topic_of_another", topic=topic)
                self._known[topic] = None
                return
        message = (
            f"topic {topic} is called like a table's of {self._prefix!r}, whose producer knows no table of it (topic "
            f"{state_topic(self._prefix, self._delimiter)}). If it is another producer's, call them so that the name of "
            f"neither begins with the other's and {self._delimiter!r} (kafka.topic_delimiter)"
        )
        raise SinkError(message)

    def _is_anothers(self, topic: str) -> bool:
        """Return whether there is a producer whose name begins with ours and whose topic this could be."""
        name = sanitise(self._prefix)
        rest = topic.removeprefix(name).removeprefix(SNAPSHOT_SUFFIX)
        parts = rest.split(self._delimiter)[1:]
        for number in range(1, len(parts)):
            if len(parts) - number < 2 and parts[-1] not in _SERVICES:
                break
            longer = self._delimiter.join((name, *parts[:number]))
            if any(
                self._exists(state_topic(one, self._delimiter))
                for one in {longer, longer.removesuffix(SNAPSHOT_SUFFIX)}
            ):
                return True
        return False


def topic_tables(spark: SparkSession, settings: Settings, few: FewRecords) -> TopicTables:
    """Return the tables of the topics of the configured producer."""
    return TopicTables(
        settings.name,
        settings.kafka.topic_delimiter,
        lambda: tables_with_topics(spark, settings, few),
        lambda topic: topic_exists(spark, settings.kafka, topic),
    )


def table_of(topic: str, prefix: str) -> tuple[str, str] | None:
    """Return database and table of a change or snapshot topic named with `.`; None for a topic of no table."""
    name = sanitise(prefix)
    for head in (f"{name}{SNAPSHOT_SUFFIX}.", f"{name}."):
        if topic.startswith(head):
            database, _, table = topic.removeprefix(head).partition(".")
            return (database, table) if database and table else None
    return None
