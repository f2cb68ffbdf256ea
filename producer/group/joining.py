"""How a source joins its group: it appends records, waits for readers, and publishes nothing before it is admitted.

The rules are `schemas.members.next_step`. The publisher has fenced its predecessors before, so the topic of commit records has its
end until this start writes to it. A start that resumes by an offset with its join appends nothing.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

import structlog

from kafkaio.shared_log import SharedLog
from producer.group.joined_source import JoinedSource
from producer.group.last_commit import last_commit
from schemas import topics
from schemas.errors import PublishError
from schemas.member_log import MEMBERS_CONFIG, FollowedMembers
from schemas.members import Admitted, SourcePhase, WaitFor, next_step, source_writer

if TYPE_CHECKING:
    from threading import Event

    from kafkaio.topic_admin import TopicAdmin
    from schemas.settings import Settings

log = structlog.get_logger(__name__)

COMMITS_CONFIG: Final = {"cleanup.policy": "delete", "max.message.bytes": str(topics.RECORD_BYTES)}


def joined(
    settings: Settings, admin: TopicAdmin, join: int | None, stop: Event, resources: ExitStack
) -> JoinedSource | None:
    """Join the group; None without `order.group`. `join` is the one of the offset at which the source resumes.

    `PublishError` if `stop` is set while it waits for readers. If an earlier process has closed the source, `stop` is set here.
    """
    if settings.order.group is None:
        return None
    commits = topics.commits_topic(settings.name, settings.kafka.topic_delimiter)
    members = topics.members_topic(settings.order.group)
    admin.ensure_single(commits, COMMITS_CONFIG)
    admin.ensure_single(members, MEMBERS_CONFIG)
    shared = resources.enter_context(closing(SharedLog(settings.kafka, members, source_writer(settings.name))))
    shared.fence()
    source = JoinedSource(settings.name, settings.order.group, FollowedMembers(shared), stop)
    end, last = last_commit(settings.kafka, commits)
    own = source.members.sources.get(settings.name)
    if own is not None and own.state is SourcePhase.CLOSING:
        source.is_closing = True
        if own.is_closed or (last is not None and last.is_last):
            source.leave(end)
            stop.set()
            raise PublishError(f"source {settings.name} is closed: the next start joins group {settings.order.group}")
    if own is not None and own.record.end is not None:
        end = own.record.end  # retention may have removed the records before it
    source.join = _joined(source, frozenset() if join is None else frozenset({join}), end)
    return source


def _joined(source: JoinedSource, joins: frozenset[int], commits_end: int) -> Admitted:
    """Append records and wait until the source is admitted."""
    while True:
        step = next_step(source.members, source.name, joins, commits_end)
        if isinstance(step, Admitted):
            log.info("source.admitted", group=source.group, join=step.join, floor_us=step.floor_us)
            return step
        if isinstance(step, WaitFor):
            source.wait_for(step.readers, "acknowledge that it joins", lambda: source.members.missing(source.own))
            continue
        offset = source.append(step)
        if step.state is SourcePhase.JOINING:
            joins |= {offset}
