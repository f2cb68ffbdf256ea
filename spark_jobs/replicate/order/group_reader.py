"""A task as a reader of its group: it follows the topic of the members, and appends its records to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog

from kafkaio.shared_log import SharedLog
from kafkaio.topic_admin import TopicAdmin
from schemas import topics
from schemas.errors import FencedError
from schemas.member_log import MEMBERS_CONFIG, FollowedMembers
from schemas.members import Acknowledgement, ReaderEntry, ReaderPhase, reader_key, reader_writer
from spark_jobs.replicate.order.membership import Membership

if TYPE_CHECKING:
    from schemas.members import MemberSource
    from schemas.settings import KafkaSettings
    from spark_jobs.replicate.order.frontier import StreamMerge

log = structlog.get_logger()

_FOLLOWED_EVERY_S: Final = 0.2


class GroupReader:
    """One run of a reader of `sources`. Use it in one thread. Errors as `SharedLog`."""

    def __init__(self, kafka: KafkaSettings, group: str, name: str, sources: frozenset[str], merge: StreamMerge[Any]) -> None:
        topic = topics.members_topic(group)
        TopicAdmin(kafka).ensure_single(topic, MEMBERS_CONFIG)
        self._name = name
        self._group = group
        self._next_s = 0.0
        self._log = SharedLog(kafka, topic, reader_writer(name))
        try:
            self._log.fence()
            self._followed = FollowedMembers(self._log)
            record = ReaderEntry(state=ReaderPhase.RUNNING, sources=sources, frontier=merge.frontier)
            epoch = self._followed.append(reader_key(name), record)
        except BaseException:
            self._log.close()
            raise
        self._membership = Membership(name, epoch, sources, self._followed.members, merge)

    def close(self) -> None:
        """Give the connections up. The members take the reader for one that runs."""
        self._log.close()

    @property
    def sources(self) -> Mapping[str, MemberSource]:
        """The sources of the group as the topic has them."""
        return self._followed.members.sources

    def follow(self, read: Mapping[str, int]) -> None:
        """Admit and end sources, some times a second. `read`: see `Membership.follow`.

        `FencedError`: the reader was put offline, or another process of the task has started.
        """
        if time.monotonic() < self._next_s:
            return
        self._followed.follow()
        if not self._membership.is_current:
            message = f"reader {self._name} of group {self._group} was put offline, or started by another process: this one ends"
            raise FencedError(message)
        for key, record in self._membership.follow(time.monotonic(), read):
            self._followed.append(key, record)
            is_drained = isinstance(record, Acknowledgement) and record.is_drained
            log.info("task.member", group=self._group, key=key, is_drained=is_drained)
        self._next_s = time.monotonic() + _FOLLOWED_EVERY_S

    def stop(self) -> None:
        """Say that this run releases nothing more: sources that join do not wait for it."""
        self._followed.append(*self._membership.stopped())
