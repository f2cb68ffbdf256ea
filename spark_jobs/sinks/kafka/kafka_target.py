"""A changelog in a topic: the messages of a batch and its commit record are one Kafka transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from schemas.errors import SinkError
from schemas.identity import SourceTable, TableName, Target
from schemas.overriding import override
from spark_jobs.formats.event_texts import KEY, VALUE, EventSource, notice, texts
from spark_jobs.sinks.changelog_events import Appended, Events
from spark_jobs.sinks.changelog_only import MADE, ChangelogTarget, ChangelogWriter, notices_of
from spark_jobs.sinks.contract import REMEDY, TargetRecord, Writer
from spark_jobs.sinks.kafka.commit_records import CommitRecord, CommitRecords
from spark_jobs.sinks.kafka.kafka_client import RECORD_BYTES, Transaction
from spark_jobs.sinks.stamp import Stamp

_EVENTS_AT_ONCE: Final = 50_000
_TOPIC_CONFIG: Final = {"cleanup.policy": "delete", "max.message.bytes": str(RECORD_BYTES)}


class KafkaTarget(ChangelogTarget):
    """The topic of one target. `partitions` are those of a topic that is created."""

    def __init__(
        self,
        spark: SparkSession,
        commits: CommitRecords,
        names: tuple[Target, str],
        tables: Sequence[SourceTable],
        query_id: str,
        form: str,
        partitions: int,
    ) -> None:
        self.spark = spark
        self.form = form
        self._name, self.topic = names
        self._tables = tuple(tables)
        self._commits = commits
        self._query_id = query_id
        self._partitions = partitions

    @property
    @override
    def name(self) -> Target:
        return self._name

    @override
    def location(self) -> str:
        return f"topic {self.topic}"

    @override
    def exists(self) -> bool:
        return self._commits.of(self._name) is not None

    @override
    def require_not_gone(self, record: TargetRecord) -> None:
        if record.last_commit >= 0 and not self.exists():
            message = (
                f"topic {self.topic} was written up to batch {record.last_commit}, and {self._commits.topic} has no commit of it: "
                f"{REMEDY}"
            )
            raise SinkError(message)

    @override
    def trust(self, record: TargetRecord, batch_id: int) -> None:
        commit = self._commit()
        self.require_own(self._query_id, (commit.query_id, commit.batch_id), record, batch_id)
        if commit.topic != self.topic:
            raise SinkError(f"{self._name.name} was written to topic {commit.topic}, not to {self.topic}: {self._rebuild}")
        found = self._commits.client.topic_id(self.topic)
        if found != commit.topic_id:
            how = "is gone" if found is None else "was deleted and created again"
            raise SinkError(f"topic {self.topic} {how} since batch {commit.batch_id}: {self._rebuild}")

    @override
    def has_commit(self, batch_id: int) -> bool:
        commit = self._commits.of(self._name)
        return commit is not None and (commit.query_id, commit.batch_id) == (self._query_id, batch_id)

    @override
    def appended(self, table: SourceTable) -> Appended:
        commit = self._commits.of(self._name)
        return Appended() if commit is None else commit.appended.get(table.text, Appended())

    @override
    @contextmanager
    def commit(self, stamp: Stamp) -> Iterator[Writer]:
        commits = self._commits
        with commits.lock:
            before = commits.of(self._name) or self._made(stamp)
            with commits.client.transaction() as transaction:
                writer = KafkaWriter(self, transaction, before.appended, stamp)
                yield writer
                after = CommitRecord(
                    stamp.query_id, stamp.batch_id, self.topic, before.topic_id, writer.appended, json.loads(writer.stamp.metadata)
                )
                commits.add(transaction, self._name, after)
            commits.note(self._name, after)

    def event_source(self, events: Events) -> EventSource:
        """Return what texts of events say of their source and their target."""
        is_shared = len(self._tables) > 1
        return EventSource(events.table, TableName.parse(self._name.name), events.keys, is_shared=is_shared)

    @property
    def _rebuild(self) -> str:
        return f"tidemark rebuild --sink {self._name.sink} {TableName.parse(self._name.name).plain}"

    def _commit(self) -> CommitRecord:
        commit = self._commits.of(self._name)
        if commit is None:
            raise SinkError(f"{self._commits.topic} has no commit of topic {self.topic}: {REMEDY}")
        return commit

    def _made(self, stamp: Stamp) -> CommitRecord:
        """Create the topic, and commit that it is ours. `SinkError` for one with records of somebody else."""
        client = self._commits.client
        topic_id = client.create_topic(self.topic, self._partitions, _TOPIC_CONFIG)
        if not client.is_empty(self.topic):
            message = (
                f"topic {self.topic} has records that this merge job has not written: give another one (sinks.topic), or delete it"
            )
            raise SinkError(message)
        record = CommitRecord(stamp.query_id, MADE, self.topic, topic_id)
        with client.transaction() as transaction:
            self._commits.add(transaction, self._name, record)
        self._commits.note(self._name, record)
        return record


class KafkaWriter(ChangelogWriter):
    """The messages of one batch. Rows come to the driver a partition at a time, and leave as they come."""

    def __init__(self, target: KafkaTarget, transaction: Transaction, appended: Mapping[str, Appended], stamp: Stamp) -> None:
        self._target = target
        self._transaction = transaction
        self.appended = dict(appended)
        self.stamp = stamp

    @override
    def restamp(self, stamp: Stamp) -> None:
        self.stamp = stamp

    @override
    def append(self, events: Events) -> None:
        target, produce = self._target, self._transaction.produce
        if events.count:
            rows = texts(events.rows, target.form, target.event_source(events)).select(KEY, VALUE)
            for row in rows.coalesce(-(-events.count // _EVENTS_AT_ONCE)).toLocalIterator():
                produce(target.topic, row[0], row[1])
        for op, position, text in notices_of(events):
            produce(target.topic, notice(op, position, events.table.text, text), None)
        self.appended[events.table.text] = events.until
