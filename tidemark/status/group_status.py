"""The members of a group at one moment, as one tree: its text, its JSON and its metrics are made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.commit_records import CommitRecord
from schemas.json_codec import json_field
from schemas.members import MemberReader, Members, MemberSource, ReaderPhase, SourcePhase


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """A source of a group. `promise_us`: it has published everything before that time of its server; None: unknown.

    `waits_for` are readers: those that have to acknowledge its join, or to release its last transactions.
    """

    name: str = json_field(name="source")
    state: SourcePhase
    number: int
    join: int
    first: int
    end: int | None
    promise_us: int | None
    waits_for: tuple[str, ...]
    by: str | None
    reason: str | None

    @classmethod
    def of(cls, members: Members, one: MemberSource, last: CommitRecord | None) -> SourceStatus:
        """Return the status of a source with its last commit record."""
        is_joining = one.state is SourcePhase.JOINING
        return cls(
            name=one.name,
            state=one.state,
            number=one.number,
            join=one.join,
            first=one.record.first,
            end=one.record.end,
            promise_us=None if last is None else last.promise_us,
            waits_for=members.missing(one) if is_joining else members.undrained(one) if one.is_closed else (),
            by=one.record.by or None,
            reason=one.record.reason or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderStatus:
    """A reader of a group. `frontier_us`: a stopped one has released everything before it. `blocks`: joins that wait for it."""

    name: str = json_field(name="reader")
    state: ReaderPhase
    epoch: int
    sources: tuple[str, ...]
    frontier_us: int | None
    blocks: tuple[str, ...]
    by: str | None
    reason: str | None

    @classmethod
    def of(cls, members: Members, one: MemberReader) -> ReaderStatus:
        """Return the status of a reader."""
        joining = [source for source in members.sources.values() if source.state is SourcePhase.JOINING and not source.is_void]
        is_stopped = one.record.state is ReaderPhase.STOPPED
        return cls(
            name=one.name,
            state=one.record.state,
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
    def of(cls, read_ms: int, group: str, members: Members, last: Mapping[str, CommitRecord | None]) -> GroupStatus:
        """Return the status of a group with the last commit record of each source."""
        sources = tuple(SourceStatus.of(members, one, last.get(name)) for name, one in sorted(members.sources.items()))
        readers = tuple(ReaderStatus.of(members, one) for _, one in sorted(members.readers.items()))
        return cls(read_ms=read_ms, group=group, sources=sources, readers=readers)
