"""The sink of topics, mirrors or changelogs: transactions in Kafka; rows, state, quarantine and lock in a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from schemas.errors import ConfigError, RetriableSinkError
from schemas.identity import SourceTable, TableName, Target
from schemas.overriding import override
from schemas.settings import Settings
from schemas.topics import MAX_TOPIC_LENGTH, RECORD_BYTES, sanitise, target_topic
from spark_jobs.kafka.read import topic_pattern
from spark_jobs.sinks.contract import SinkTarget
from spark_jobs.sinks.delta.delta_sink import DeltaSink
from spark_jobs.sinks.delta.quarantine_table import DeltaQuarantine
from spark_jobs.sinks.folder_sink import FolderSink
from spark_jobs.sinks.kafka.committed_topic import CommittedTopic
from spark_jobs.sinks.kafka.kafka_client import KafkaClient
from spark_jobs.sinks.kafka.kafka_target import KafkaTarget
from spark_jobs.sinks.kafka.kept_changes import KeptChanges
from spark_jobs.sinks.kafka.mirror_target import MirroredTopic
from spark_jobs.sinks.kafka.sink_commits import SinkCommits
from spark_jobs.sinks.target_shape import CHANGELOG_OF, PLAIN_SHAPE, TargetShape
from spark_jobs.store.sink_layout import SinkLayout

_CHANGELOG_CONFIG: Final = {"cleanup.policy": "delete", "max.message.bytes": str(RECORD_BYTES)}
_MIRROR_CONFIG: Final = {**_CHANGELOG_CONFIG, "retention.ms": "-1", "retention.bytes": "-1"}
"""A mirror is what all its messages say: none may expire."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """How the topics of a sink are named and written: the format, the template of names, partitions, and what `source` reads.

    With `has_both` a target with the name of a changelog has the topic of its mirror, with the same end.
    """

    form: str
    template: str
    partitions: int
    read: re.Pattern[str]
    has_both: bool = False

    @staticmethod
    def of(settings: Settings) -> TopicRules:
        """Return the rules of the only sink of the settings."""
        sink = settings.sink
        form = sink.format or "changelog-json"
        read = re.compile(topic_pattern(settings))
        return TopicRules(form, sink.topic, settings.kafka.partitions, read, has_both=sink.mode == "both")

    def topic(self, target: Target) -> str:
        """Return the topic of a target; `ConfigError` for one that Kafka cannot have, or that the merge job reads."""
        name = TableName.parse(target.name)
        end = CHANGELOG_OF if self.has_both and _is_changelog(target) else ""
        found = target_topic(self.template, name.database, name.table.removesuffix(end)) + end
        self.require_not_read(found, f"the topic of {name.plain} (sinks.topic: {self.template})")
        if len(found) > MAX_TOPIC_LENGTH:
            message = f"sinks: {target.sink}: topic: {found!r} is longer than the {MAX_TOPIC_LENGTH} characters that Kafka allows"
            raise ConfigError(message)
        return found

    def require_not_read(self, topic: str, what: str) -> None:
        """Raise `ConfigError` for a topic that the merge job reads: rows would come round."""
        if self.read.fullmatch(topic) is not None:
            raise ConfigError(f"{what} is {topic!r}, which the merge job would read as a table of its source: give another name")


def _is_changelog(target: Target) -> bool:
    return TableName.parse(target.name).table.endswith(CHANGELOG_OF)


class KafkaSink(FolderSink):
    """Topics: mirrors, changelogs, or mirrors with a changelog each. The rows of a mirror are in a table below the sink's path."""

    def __init__(self, layout: SinkLayout, query_id: Callable[[], str], settings: Settings) -> None:
        name = settings.sink.name
        super().__init__(layout, query_id, DeltaQuarantine(layout.quarantine))
        self._mode = settings.sink.mode
        self._rows = DeltaSink(layout, query_id)
        self._rules = TopicRules.of(settings)
        self._topics: dict[str, Target] = {}
        commits = sanitise(f"{name}.tidemark")
        self._rules.require_not_read(commits, f"the topic of the commits of sink {name}")
        self._commits = SinkCommits(KafkaClient(settings.kafka, f"tidemark-sink-{name}"), commits)

    @override
    @contextmanager
    def exclusive(self, spark: SparkSession, wait_s: int) -> Iterator[None]:
        with super().exclusive(spark, wait_s):
            self._commits.open()
            try:
                yield
            finally:
                self._commits.client.close()

    @override
    def target(
        self, spark: SparkSession, name: Target, tables: Sequence[SourceTable], shape: TargetShape = PLAIN_SHAPE
    ) -> SinkTarget:
        topic = self._topic(name)
        rules = self._rules
        is_mirror = self._mode == "mirror" or (self._mode == "both" and not _is_changelog(name))
        config = _MIRROR_CONFIG if is_mirror else _CHANGELOG_CONFIG
        committed = CommittedTopic(self._commits, name, topic, self._query_id(), rules.partitions, config)
        if not is_mirror:
            return KafkaTarget(spark, committed, tables, rules.form)
        return MirroredTopic(spark, self._rows.target(spark, name, tables), committed, self._kept(name), tables, rules.form)

    @override
    def remove(self, name: Target) -> None:
        self._rows.remove(name)  # first: a batch refuses a mirror without its rows
        self._kept(name).remove()
        commit = self._commits.of(name)
        if commit is None:
            return
        self._commits.client.delete_topic(commit.topic)
        with self._commits.lock, self._commits.client.transaction() as transaction:
            self._commits.add(transaction, name, None)
        self._commits.note(name, None)

    @override
    def forget(self, name: Target) -> None:
        self._rows.forget(name)
        self._commits.forget()

    @override
    def passing(self, error: Exception) -> str | None:
        if isinstance(error, RetriableSinkError):
            return "Kafka did not take a transaction"
        return self._rows.passing(error)

    def _kept(self, name: Target) -> KeptChanges:
        named = TableName.parse(name.name)
        return KeptChanges(self._layout, self._layout.folder(named.database, named.table))

    def _topic(self, name: Target) -> str:
        """Return the topic of a target; `ConfigError` for one that another target has."""
        topic = self._rules.topic(name)
        other = self._topics.setdefault(topic, name)
        if other != name or topic == self._commits.topic:
            mine, theirs = (TableName.parse(one.name).plain for one in (name, other))
            raise ConfigError(f"sinks: {name.sink}: topic: {mine} and {theirs} would share the topic {topic!r}: route them apart")
        return topic
