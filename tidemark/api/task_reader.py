"""A task as its target and Kafka report it. Its process is not asked, and nothing is changed."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from kafkaio.topic_admin import TopicAdmin
from producer.group.last_commit import commit_at, last_commit
from schemas.errors import TidemarkError
from schemas.topics import commits_topic
from spark_jobs.replicate.destination import target_of
from tidemark.api.head_room import KafkaHeadRoom, read_head_room
from tidemark.status.task_status import OpenPlanStatus, SourceOfTaskStatus, TaskStatus

if TYPE_CHECKING:
    from schemas.settings.task_section import TaskSettings
    from spark_jobs.replicate.apply.apply_target import TaskFacts
    from tidemark.status.group_status import GroupStatus

_MICRO = 1_000_000


def read_task(settings: TaskSettings, group: GroupStatus | None = None) -> TaskStatus:
    """Return the status of a task, whose `group` was read before, if it has one.

    A target or a Kafka that does not answer is a problem of the status, not an error.
    """
    read_ms = time.time_ns() // 1_000_000
    try:
        with closing(target_of(settings)) as one:
            facts = one.facts()
    except (TidemarkError, OSError) as error:
        return TaskStatus.unknown(settings, read_ms, str(error))
    problem, sources = None, []
    for source in settings.sources:
        status, reason = _source(settings, source.name, facts)
        sources.append(status)
        problem = problem or reason
    plan = facts.plan
    return TaskStatus(
        read_ms=read_ms,
        task=settings.task,
        target=settings.target.address,
        epoch=facts.epoch or None,
        process=facts.process,
        seen_s=facts.seen_s,
        pause=facts.pause,
        statement=facts.statement,
        released_us=facts.progress.released.us if facts.progress is not None else None,
        blocked_by=None if group is None else group.last_to_promise([source.name for source in settings.sources]),
        plan=None if plan is None else OpenPlanStatus(rows=plan.rows, done=plan.done, workers=plan.workers),
        sources=tuple(sources),
        kafka_problem=problem,
    )


def _source(settings: TaskSettings, name: str, facts: TaskFacts) -> tuple[SourceOfTaskStatus, str | None]:
    """Return the status of a source, and why Kafka does not say how far it is behind."""
    state, progress = facts.states.get(name), facts.progress
    cursor = None if progress is None else progress.cursors.get(name)
    reached = cursor or (state if progress is None else None)
    behind: tuple[float | None, int | None] = None, None
    problem, room = None, KafkaHeadRoom(None, None)
    if reached is not None:
        try:
            released_us = None if progress is None else progress.released.us
            behind = _behind(settings, name, reached.offset, reached.n, released_us)
            room = read_head_room(settings.kafka, name, reached.offset)
        except TidemarkError as error:
            problem = str(error)
    status = SourceOfTaskStatus(
        name=name,
        position=None if state is None else state.position,
        behind_s=behind[0],
        behind_commits=behind[1],
        head_room_s=room.seconds,
        is_kept=room.is_kept,
        loading=() if state is None else state.loading,
    )
    return status, problem


def _behind(settings: TaskSettings, name: str, offset: int, n: int, released_us: int | None) -> tuple[float | None, int | None]:
    """Return how far the last commit record is ahead of the next one to be applied: in time, and in records."""
    topic = commits_topic(name, settings.kafka.topic_delimiter)
    if not TopicAdmin(settings.kafka).partitions_now([topic]):
        return None, None
    _, last = last_commit(settings.kafka, topic)
    if last is None:
        return None, None
    if released_us is None:
        applied = commit_at(settings.kafka, topic, offset - 1)
        applied_us = None if applied is None else applied.promise_us
    else:
        applied_us = released_us
    seconds = None if applied_us is None else max(0, last.promise_us - applied_us) / _MICRO
    return seconds, max(0, last.n + 1 - n) if n else None
