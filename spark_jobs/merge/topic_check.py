"""What a batch may read: offsets and topic ids enter; the slices to read, and tables whose topics are gone or replaced, leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkaio.slices import Offsets, Slice, lost_partitions, slices_between
from schemas.errors import EndingError, SinkError
from schemas.identity import SourceTable
from schemas.settings import Settings
from schemas.topics import state_topic
from spark_jobs.kafka.admin import id_of_anchor, is_same_producer, require_same_topics, topic_ids
from spark_jobs.kafka.topic_tables import TopicTables
from spark_jobs.merge.job_state import MergeState, Naming, SourceRecord
from spark_jobs.merge.table_set_aside import as_set_aside
from spark_jobs.merge.table_topics import ended_early, new_topics_read, reading_again, unread

log = structlog.get_logger()

ADVICE: Final = "it continues with on_table_error: set_aside, which merges the tables again when their topics are back"


@dataclass(frozen=True, slots=True)
class Examined:
    """What a batch reads, the ids of all topics that were read, and records of tables that are not merged in it."""

    slices: list[Slice]
    topics: dict[str, str]
    records: dict[SourceTable, SourceRecord]


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """The offsets between which a batch reads, and the state before it."""

    batch_id: int
    start: Offsets
    ends: Offsets
    before: MergeState


class TopicCheck:
    """The check of the topics of each batch.

    `withdraw` is called for a batch that finds topics of ours cut short, with all tables that it may have written to, where tables
    are not to be set aside. `has_commit` says whether an attempt at a batch has written to the target of a table.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        tables: TopicTables,
        naming: Naming,
        withdraw: Callable[[BatchBounds, AbstractSet[str], AbstractSet[SourceTable]], None],
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._tables = tables
        self._naming = naming
        self._withdraw = withdraw
        self._anchor = state_topic(settings.name, settings.kafka.topic_delimiter)

    def examine(self, bounds: BatchBounds, due: AbstractSet[SourceTable]) -> Examined:
        """Return what the batch reads; `due` are tables that are set aside and retried now.

        A topic that is missing, shorter than what was read of it, or another of the same name, sets its table aside. It ends the
        batch if the producer is another one as well, and if tables are not to be set aside.
        """
        before = bounds.before
        topics = {table: self._tables.topics_of(table) for table in before.sources}
        owners = {topic: table for table, pair in topics.items() for topic in pair}
        lost = {topic for topic, _, _ in lost_partitions(bounds.start, bounds.ends)}
        ours = lost & (before.topics.keys() | owners.keys())
        slices = slices_between(bounds.start, bounds.ends, lost)
        missing = {owners[topic] for topic in ours if topic in owners}
        if ours and not self._concerns_tables_only(before, ours, missing, topics):  # the state topic may be missing as well
            self._end(bounds, ours, slices)
            slices_between(bounds.start, bounds.ends, lost - ours)
        self._tables.expect(part.topic for part in slices)
        slices = [part for part in slices if self._tables.of(part.topic) is not None]  # else another producer's
        read = {part.topic for part in slices}
        looked_at = due | {owners[topic] for topic in read | ours if topic in owners}
        ids = topic_ids(self._spark, self._settings.kafka, read.union(*(topics[table] for table in looked_at)))
        replaced = {topic for topic, ident in ids.items() if before.topics.get(topic, ident) != ident}
        affected = {owners[topic] for topic in ours | replaced if topic in owners}
        if replaced and not self._concerns_tables_only(before, ours | replaced, affected, topics):
            self._end(bounds, ours, slices)
            slices_between(bounds.start, bounds.ends, lost - ours)
            require_same_topics(self._spark, self._settings.kafka, replaced, before.topics)
        records = self._records(bounds, affected | due, replaced, topics)
        resting = {table for table, record in before.sources.items() if record.set_aside is not None} | affected
        left_out = {topic for table in resting for topic in topics[table]}
        slices = [part for part in slices if part.topic not in left_out]
        for table in sorted(due - records.keys()):
            slices.extend(unread(before.sources[table], topics[table], bounds.ends))
        return Examined(slices, {**before.topics, **ids, **self._anchor_of(before)}, records)

    def _records(
        self,
        bounds: BatchBounds,
        tables: AbstractSet[SourceTable],
        replaced: AbstractSet[str],
        topics: Mapping[SourceTable, tuple[str, str]],
    ) -> dict[SourceTable, SourceRecord]:
        """Return the records of those of the tables that are not merged in this batch."""
        now_ms = time.time_ns() // 1_000_000
        records: dict[SourceTable, SourceRecord] = {}
        for table in sorted(tables):
            record, gone = bounds.before.sources[table], replaced & set(topics[table])
            if gone:
                records[table] = reading_again(record, topics[table], gone, now_ms)
            elif (reason := ended_early(record, topics[table], bounds.ends)) is not None:
                records[table] = as_set_aside(record, reason, now_ms)
            elif not any(unread(record, topics[table], bounds.ends)):
                records[table] = new_topics_read(replace(record, set_aside=None))
        return records

    def _concerns_tables_only(
        self,
        before: MergeState,
        changed: AbstractSet[str],
        affected: AbstractSet[SourceTable],
        topics: Mapping[SourceTable, tuple[str, str]],
    ) -> bool:
        """Return whether topics that are missing or replaced concern only their tables, which may be set aside."""
        if self._settings.on_table_error == "stop" or not changed <= {topic for name in affected for topic in topics[name]}:
            return False
        others = before.topics.keys() - {topic for name in affected for topic in topics[name]}
        return is_same_producer(self._spark, self._settings.kafka, self._anchor, before.topics, others)

    def _end(self, bounds: BatchBounds, topics: AbstractSet[str], slices: Sequence[Slice]) -> None:
        """Have a batch that finds topics of ours cut short start over at the next start, with other offsets.

        So that the next start looks again: a broker may have been behind, a right missing. A topic that was created again is known
        by its id. Topics of another producer, which are passed over, may go.
        """
        if topics and topics <= bounds.before.topics.keys():
            found = {self._table_if_known(part.topic) for part in slices}
            self._withdraw(bounds, topics, bounds.before.sources.keys() | {table for table in found if table is not None})

    def _table_if_known(self, topic: str) -> SourceTable | None:
        """Return the table of a topic; None if it is another producer's, or if the state topic cannot be read."""
        try:
            name = self._tables.of(topic)
        except EndingError:
            raise
        except (SinkError, PySparkException, Py4JError):
            return None
        return None if name is None else self._naming.table(*name)

    def _anchor_of(self, before: MergeState) -> dict[str, str]:
        """Return the id of the producer's state topic, while it is not known."""
        if self._anchor in before.topics:
            return {}
        ident = id_of_anchor(self._spark, self._settings.kafka, self._anchor)
        return {self._anchor: ident} if ident else {}
