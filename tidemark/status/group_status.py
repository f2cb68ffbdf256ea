"""The members of a group at one moment, as one tree: its text, its JSON and its metrics are made of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from schemas.commit_records import CommitRecord
from schemas.json_codec import json_field
from schemas.liveness import Sign
from schemas.members import (
    MemberReader,
    Members,
    MemberSource,
    ReaderPhase,
    SourcePhase,
    reader_key,
    source_key,
)
from tidemark.status.job_standing import JobState, producer_state

ALARMING_SKEW_US: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The facts about a group, read at `read_ms`.

    `written_ms` has the time of the newest record of each member (None: unknown). `commits` are the last commit records of the
    sources, `signs` the last liveness records of their producers; None: it is missing.
    """

    read_ms: int
    group: str
    members: Members
    written_ms: Mapping[str, int | None]
    commits: Mapping[str, CommitRecord | None]
    signs: Mapping[str, Sign | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """A source of a group, in the state of its newest record since `since_ms`.

    `promise_us`: it has published everything before that time of its server; None: unknown. `producer` is the state of its
    producer. `skew_us`: how far the clock of its server is ahead of the clock of its producer; None: unknown.
    `waits_for` are readers: those that have to acknowledge its join, or to release its last transactions.
    """

    name: str = json_field(name="source")
    state: SourcePhase
    number: int
    join: int
    first: int
    end: int | None
    promise_us: int | None
    producer: JobState = JobState.UNKNOWN
    skew_us: int | None = None
    since_ms: int | None = None
    waits_for: tuple[str, ...]
    by: str | None
    reason: str | None

    @classmethod
    def of(cls, facts: GroupFacts, one: MemberSource) -> SourceStatus:
        """Return the status of a source."""
        members, last, sign = facts.members, facts.commits.get(one.name), facts.signs.get(one.name)
        is_joining = one.state is SourcePhase.JOINING
        standing = producer_state(facts.read_ms, sign, started=True)
        return cls(
            name=one.name,
            state=one.state,
            number=one.number,
            join=one.join,
            first=one.record.first,
            end=one.record.end,
            promise_us=None if last is None else last.promise_us,
            producer=standing.state,
            skew_us=sign.clock_skew_us if sign is not None and standing.alive else None,
            since_ms=facts.written_ms.get(source_key(one.name)),
            waits_for=members.missing(one) if is_joining else members.undrained(one) if one.is_closed else (),
            by=one.record.by or None,
            reason=one.record.reason or None,
        )

    @property
    def is_waited_for(self) -> bool:
        """Whether readers wait for it: it is a member, and has not published its last transaction."""
        return self.state not in (SourcePhase.JOINING, SourcePhase.OFFLINE) and self.end is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderStatus:
    """A reader of a group, in the state of its newest record since `since_ms`: one that was killed stays `running`.

    `frontier_us`: a stopped one has released everything before it. `blocks`: joins that wait for it.
    """

    name: str = json_field(name="reader")
    state: ReaderPhase
    since_ms: int | None = None
    epoch: int
    sources: tuple[str, ...]
    frontier_us: int | None
    blocks: tuple[str, ...]
    by: str | None
    reason: str | None

    @classmethod
    def of(cls, facts: GroupFacts, one: MemberReader) -> ReaderStatus:
        """Return the status of a reader."""
        members = facts.members
        joining = [source for source in members.sources.values() if source.state is SourcePhase.JOINING and not source.is_void]
        is_stopped = one.record.state is ReaderPhase.STOPPED
        return cls(
            name=one.name,
            state=one.record.state,
            since_ms=facts.written_ms.get(reader_key(one.name)),
            epoch=one.epoch,
            sources=tuple(sorted(one.record.sources)),
            frontier_us=one.record.frontier.us if is_stopped else None,
            blocks=tuple(sorted(source.name for source in joining if one.name in members.missing(source))),
            by=one.record.by or None,
            reason=one.record.reason or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """The members of a group, read at `read_ms`. `problem`: why they are unknown; None if they are known."""

    read_ms: int
    group: str
    sources: tuple[SourceStatus, ...] = json_field((), required=True)
    readers: tuple[ReaderStatus, ...] = json_field((), required=True)
    problem: str | None = None

    @classmethod
    def of(cls, facts: GroupFacts) -> GroupStatus:
        """Return the status of a group."""
        sources = tuple(SourceStatus.of(facts, one) for _, one in sorted(facts.members.sources.items()))
        readers = tuple(ReaderStatus.of(facts, one) for _, one in sorted(facts.members.readers.items()))
        return cls(read_ms=facts.read_ms, group=facts.group, sources=sources, readers=readers)

    def last_to_promise(self, names: Collection[str]) -> str | None:
        """Return the one of these sources that has promised least, which readers of a global order wait for; None if unknown."""
        waited = [one for one in self.sources if one.name in names and one.is_waited_for]
        promises = [(one.promise_us, one.number, one.name) for one in waited if one.promise_us is not None]
        return min(promises)[2] if promises and len(promises) == len(waited) else None
