"""A changelog in a topic: the messages of a batch and its commit record are one Kafka transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Final

from pyspark.sql import SparkSession

from schemas.errors import SinkError
from schemas.identity import SourceTable, TableName
from schemas.overriding import override
from spark_jobs.decode.record_columns import POSITION
from spark_jobs.formats.event_texts import KEY, VALUE, EventSource, notice, texts
from spark_jobs.sinks.changelog_events import Appended, Events, in_order, notices_of
from spark_jobs.sinks.contract import REMEDY, ChangelogTarget, ChangelogWriter, TargetRecord
from spark_jobs.sinks.kafka.committed_topic import CommittedTopic
from spark_jobs.sinks.kafka.kafka_client import Transaction
from spark_jobs.sinks.kafka.sink_commits import SinkCommit
from spark_jobs.sinks.own_target import OwnTarget
from spark_jobs.sinks.stamp import Stamp

_EVENTS_AT_ONCE: Final = 50_000


class KafkaTarget(OwnTarget, ChangelogTarget):
    """The topic of one target."""

    def __init__(self, spark: SparkSession, topic: CommittedTopic, tables: Sequence[SourceTable], form: str) -> None:
        super().__init__(topic.target, tables, topic.query_id)
        self.spark = spark
        self.form = form
        self.topic = topic.name
        self._topic = topic

    @override
    def location(self) -> str:
        return f"topic {self.topic}"

    @override
    def exists(self) -> bool:
        return self._topic.commit() is not None

    @override
    def require_not_gone(self, record: TargetRecord) -> None:
        if record.last_commit >= 0 and not self.exists():
            message = (
                f"topic {self.topic} was written up to batch {record.last_commit}, and {self._topic.commits.topic} has no commit "
                f"of it: {REMEDY}"
            )
            raise SinkError(message)

    @override
    def trust_again(self, batch_id: int) -> None:
        commit = self._topic.commit()
        if commit is None:
            raise SinkError(f"{self._topic.commits.topic} has no commit of topic {self.topic}: {REMEDY}")
        self.require_own(commit.query_id, commit.batch_id, batch_id)
        self._topic.require_same(commit, is_mirror=False)

    @override
    def has_commit(self, batch_id: int) -> bool:
        commit = self._topic.commit()
        return commit is not None and (commit.query_id, commit.batch_id) == (self.query_id, batch_id)

    @override
    def appended(self, table: SourceTable) -> Appended:
        commit = self._topic.commit()
        return Appended() if commit is None else commit.appended.get(table.text, Appended())

    @override
    @contextmanager
    def commit(self, stamp: Stamp) -> Iterator[ChangelogWriter]:
        commits = self._topic.commits
        with commits.lock:
            before = self._topic.commit() or self._topic.made(stamp, is_mirror=False)
            with commits.client.transaction() as transaction:
                writer = KafkaWriter(self, transaction, before.appended)
                yield writer
                after = SinkCommit(
                    stamp.query_id, stamp.batch_id, self.topic, before.topic_id, writer.appended, json.loads(stamp.metadata)
                )
                commits.add(transaction, self.name, after)
            commits.note(self.name, after)

    def event_source(self, events: Events) -> EventSource:
        """Return what texts of events say of their source and their target."""
        is_shared = len(self.tables) > 1
        return EventSource(events.table, TableName.parse(self.name.name), events.keys, is_shared=is_shared)


class KafkaWriter(ChangelogWriter):
    """The messages of one batch. Rows come to the driver a partition at a time, and leave as they come."""

    def __init__(self, target: KafkaTarget, transaction: Transaction, appended: Mapping[str, Appended]) -> None:
        self._target = target
        self._transaction = transaction
        self.appended = dict(appended)

    @override
    def append(self, events: Events) -> None:
        target, produce = self._target, self._transaction.produce
        notices = [(notice(op, position, events.table.text, text), None, position) for op, position, text in notices_of(events)]
        if events.count:
            rows = texts(events.rows, target.form, target.event_source(events)).select(KEY, VALUE, POSITION)
            parts = -(-events.count // _EVENTS_AT_ONCE)
            if notices:
                made = target.spark.createDataFrame(notices, f"{KEY} string, {VALUE} string, {POSITION} string")
                rows = in_order(rows, made, parts)
            sent = 0
            for row in rows.select(KEY, VALUE).coalesce(parts).toLocalIterator():
                produce(target.topic, row[0], row[1])
                sent += 1
            if sent < events.count + len(notices):  # an update has one message or two; the error ends the transaction
                message = f"{target.location()}: {sent} messages for {events.count} changes of {events.table.text} came"
                raise SinkError(f"{message} to the driver")
        else:
            for text, _, _ in sorted(notices, key=itemgetter(2)):
                produce(target.topic, text, None)
        self.appended[events.table.text] = events.until
