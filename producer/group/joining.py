"""How a source joins its group: it appends records, waits for readers, and publishes nothing before it is admitted.

The rules are `schemas.members.next_step`. The publisher has fenced its predecessors before, so the topic of commit records has its
end until this start writes to it. A start that resumes by an offset with its join appends nothing.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Final

import structlog

from kafkaio.committed_reader import SOON, CommittedReader
from kafkaio.shared_log import SharedLog
from kafkaio.slices import Slice
from schemas import topics
from schemas.errors import PublishError
from schemas.member_log import MEMBERS_CONFIG, FollowedMembers
from schemas.members import Admitted, SourcePhase, WaitFor, next_step, source_key, source_writer
from schemas.waiting import ENDING, WAITS, waiting

if TYPE_CHECKING:
    from threading import Event

    from kafkaio.topic_admin import TopicAdmin
    from schemas.settings import KafkaSettings, Settings

log = structlog.get_logger(__name__)

_READERS: Final = "readers"
COMMITS_CONFIG: Final = {"cleanup.policy": "delete", "max.message.bytes": str(topics.RECORD_BYTES)}
_FOLLOWED_EVERY_S: Final = 0.1
_BEHIND: Final = 100
"""Offsets before the end of the commit records in which there is one: markers of transactions take offsets, too."""


def joined(
    settings: Settings, admin: TopicAdmin, join: int | None, stop: Event, resources: ExitStack
) -> Admitted | None:
    """Join the group; None without `order.group`. `join` is the one of the offset at which the source resumes.

    `PublishError` if `stop` is set while it waits for readers.
    """
    group = settings.order.group
    if group is None:
        return None
    commits = topics.commits_topic(settings.name, settings.kafka.topic_delimiter)
    members = topics.members_topic(group)
    admin.ensure_single(commits, COMMITS_CONFIG)
    admin.ensure_single(members, MEMBERS_CONFIG)
    shared = resources.enter_context(closing(SharedLog(settings.kafka, members, source_writer(settings.name))))
    shared.fence()
    followed = FollowedMembers(shared)
    own = followed.follow().sources.get(settings.name)
    end = None if own is None else own.record.end
    joining = Joining(settings.name, group, followed, end_of_commits(settings.kafka, commits) if end is None else end)
    return joining.run(join, stop)


class Joining:
    """One join of a source. `commits_end` is the offset behind its last commit record."""

    def __init__(self, name: str, group: str, followed: FollowedMembers, commits_end: int) -> None:
        self._name = name
        self._group = group
        self._followed = followed
        self._commits_end = commits_end
        self._joins: frozenset[int] = frozenset()

    def run(self, join: int | None, stop: Event) -> Admitted:
        """Append records and wait until the source is admitted."""
        self._joins = frozenset() if join is None else frozenset({join})
        while True:
            step = self._step()
            if isinstance(step, Admitted):
                log.info("source.admitted", group=self._group, join=step.join, floor_us=step.floor_us)
                return step
            if isinstance(step, WaitFor):
                self._wait(step, stop)
                continue
            offset = self._followed.append(source_key(self._name), step)
            log.info("source.joins", group=self._group, state=step.state.value, offset=offset)
            if step.state is SourcePhase.JOINING:
                self._joins |= {offset}

    def _step(self) -> Any:
        return next_step(self._followed.members, self._name, self._joins, self._commits_end)

    def _wait(self, step: WaitFor, stop: Event) -> None:
        """Wait until anything else is to be done; the log, the status and the endpoint name the readers meanwhile."""
        readers = ", ".join(step.readers)
        what = (
            f"{readers} to acknowledge that source {self._name} joins. A reader that does not run any more blocks this until "
            f"it is started again, or put offline: `tidemark ctl reader offline`"
        )
        log.info("source.waits_for_readers", group=self._group, readers=list(step.readers))
        with waiting(_READERS, f"group {self._group}", what):
            while not stop.wait(_FOLLOWED_EVERY_S):
                self._followed.follow()
                if self._step() != step:
                    return
        raise PublishError(f"source {self._name} has not joined group {self._group}: it waits for {readers}, and {ENDING}")


def waits_for_readers() -> str:
    """Return the readers that this process waits for, and their task; "" without a wait."""
    reason = WAITS.reason(_READERS)
    return reason and f"it waits for {reason}"


def end_of_commits(kafka: KafkaSettings, topic: str) -> int:
    """Return the offset behind the last commit record. Readers do not come to the markers behind it."""
    with CommittedReader(kafka, f"{topic}-reader", SOON) as reader:
        first, end = reader.bounds([(topic, 0)])[topic, 0]
        for begin in sorted({max(first, end - _BEHIND), first}, reverse=True) if end > first else ():
            offsets = [record.offset for record in reader.read_slices([Slice(topic, 0, begin, end)])]
            if offsets:
                return offsets[-1] + 1
    return first
