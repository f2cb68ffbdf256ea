"""The members of a group for somebody who operates it: they are listed, and put offline if they cannot be asked."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from kafkaio.shared_log import SharedLog
from kafkaio.topic_admin import TopicAdmin
from producer.group.last_commit import last_commit
from producer.kafka.alternating_publisher import AlternatingPublisher
from schemas.errors import ConfigError, TidemarkError
from schemas.member_log import FollowedMembers
from schemas.members import (
    Members,
    MemberSource,
    ReaderPhase,
    SourcePhase,
    log_writer,
    reader_key,
    reader_writer,
    source_key,
    source_writer,
)
from schemas.topics import commits_topic, members_topic
from tidemark.api.last_sign import last_sign
from tidemark.status.group_status import GroupFacts, GroupStatus

if TYPE_CHECKING:
    from schemas.commit_records import CommitRecord
    from schemas.settings import KafkaSettings, Settings

_NOBODY: Final = "tidemark-ctl"


@dataclass(frozen=True, slots=True)
class Operator:
    """Who puts a member offline, and why."""

    by: str
    reason: str


class GroupMembers:
    """A group. Errors are `ConfigError` for unknown names, and for a group without members; Kafka has errors of its own."""

    def __init__(self, kafka: KafkaSettings, group: str) -> None:
        self._kafka = kafka
        self.group = group
        self._topic = members_topic(group)
        if not TopicAdmin(kafka).partitions_now([self._topic]):
            raise ConfigError(f"order.group: {group} has no members yet ({self._topic}); start a source by `tidemark run`")

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the group of a source."""
        return cls(settings.kafka, cls.group_of(settings))

    @staticmethod
    def group_of(settings: Settings) -> str:
        """Return the name of the group of a source."""
        if settings.order.group is None:
            raise ConfigError("order.group: is not set, so the source is in no group; set it, or give --config of another source")
        return settings.order.group

    @classmethod
    def read_status(cls, kafka: KafkaSettings, group: str) -> GroupStatus:
        """Return the status of a group; if it cannot be read, with the reason as its problem."""
        try:
            return cls(kafka, group).status()
        except TidemarkError as error:
            return GroupStatus(read_ms=time.time_ns() // 1_000_000, group=group, problem=str(error))

    def status(self) -> GroupStatus:
        """Return the status of the members as they are now."""
        read_ms = time.time_ns() // 1_000_000
        with closing(SharedLog(self._kafka, self._topic, _NOBODY)) as log:
            followed = FollowedMembers(log)
            members = followed.follow()
        facts = GroupFacts(
            read_ms=read_ms,
            group=self.group,
            members=members,
            written_ms=followed.written_ms,
            commits={name: self.last_record(name) for name in members.sources},
            signs={name: last_sign(self._kafka, name) for name in members.sources},
        )
        return GroupStatus.of(facts)

    def read(self) -> Members:
        """Return the members as they are now."""
        with closing(SharedLog(self._kafka, self._topic, _NOBODY)) as log:
            return FollowedMembers(log).follow()

    def source(self, name: str) -> MemberSource:
        """Return a source."""
        source: MemberSource = _named("source", name, self.read().sources, self.group)
        return source

    def last_record(self, name: str) -> CommitRecord | None:
        """Return the last commit record of a source; None if its topic, by the delimiter of these settings, lacks one."""
        topic = commits_topic(name, self._kafka.topic_delimiter)
        exists = TopicAdmin(self._kafka).partitions_now([topic])
        return last_commit(self._kafka, topic)[1] if exists else None

    def put_source_offline(self, name: str, operator: Operator) -> int:
        """Take the transactional ids of a source over, and append that it is offline; return the end of its commit records.

        The id of its member records comes first. A producer that starts takes it over last: so if one publishes after all, the
        record cannot be appended (`FencedError`).
        """
        kafka = self._kafka
        commits = commits_topic(name, kafka.topic_delimiter)
        if self.source(name).state is SourcePhase.OFFLINE:
            raise ConfigError(f"source {name}: is offline already; its producer joins again when it is started")
        if not TopicAdmin(kafka).partitions_now([commits]):
            raise ConfigError(f"source {name}: topic {commits} is missing; give --config with the settings of that source")
        with closing(SharedLog(kafka, self._topic, source_writer(name))) as log:
            log.fence()
            publisher = AlternatingPublisher(kafka, log_writer(name))
            publisher.fence()
            publisher.close()
            followed = FollowedMembers(log)
            source = followed.follow().sources[name]
            end, _ = last_commit(kafka, commits)
            record = source.record_of(SourcePhase.OFFLINE, end=end, by=operator.by, reason=operator.reason)
            followed.append(source_key(name), record)
        return end

    def put_reader_offline(self, name: str, operator: Operator) -> None:
        """Take the transactional id of a reader over, and append that it is offline: joins do not wait for it."""
        reader = _named("reader", name, self.read().readers, self.group)
        if reader.record.state is ReaderPhase.OFFLINE:
            raise ConfigError(f"reader {name}: is offline already; no source waits for it")
        with closing(SharedLog(self._kafka, self._topic, reader_writer(name))) as log:
            log.fence()
            followed = FollowedMembers(log)
            record = followed.follow().readers[name].record
            record = replace(record, state=ReaderPhase.OFFLINE, by=operator.by, reason=operator.reason)
            followed.append(reader_key(name), record)


def _named(kind: str, name: str, members: Any, group: str) -> Any:
    if name not in members:
        there = ", ".join(sorted(members)) or "none"
        raise ConfigError(f"{kind} {name}: is not in group {group}; there are {there}")
    return members[name]
