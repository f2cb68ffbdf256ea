"""Members of a group of sources: the records of topic `<group>.members`, and the rules of who joins and leaves (pure).

The topic has one partition, and its order decides every race. It is compacted; `min.compaction.lag.ms` is longer than a process
that reads it lags behind.

    source/S     joining, online, pausing, paused, closing or offline. A `join` is named by the offset of its `joining` record
    reader/R     running, stopped or offline. A run of a reader is named by the offset of its `running` record, its `epoch`
    ack/R/S      reader R has source S as a member: it releases nothing at `frontier` or behind it until S has published
    revoke/R/S   reader R does not wait for that join any more

A source that joins:

    1. append `joining`
    2. wait until each running reader that lists the source has acknowledged this join in its present run
    3. append `online` with a floor: behind the frontier of each of those readers, and of each reader that is stopped
    4. read the topic up to that record. The join is valid if 2 and 3 still hold there, and no reader has revoked it before.
       Then publish, nothing earlier than the floor. Else back to 1

A reader that starts appends `running`, reads the topic up to that record, has every source as a member that is online there, and
only then releases. So of a source and a reader that start at the same time one sees the other's record. What a reader has
acknowledged need not be durable: its next run is another one, for which joining sources wait again, and those that are online are
its members.

A process that reads the topic after a compaction may take an invalid `online` for a valid one: it has a member that does not
publish before it joins again. The source itself knows by its own offset, which it wrote with its commit records, whether the join
was valid.

Each writes its records in transactions of its own transactional id, and so does who forces it offline. So a process that was
replaced, or forced offline, writes nothing behind that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, Final

from schemas.errors import DecodeError
from schemas.json_codec import Form, decode, encode, json_field
from schemas.stream_order import StreamPosition

_FORM: Final = Form(refuses_unknown=True, omits_defaults=True)


class SourcePhase(Enum):
    """The state of a source, by its own record or by the one of who forced it offline."""

    JOINING = "joining"
    ONLINE = "online"
    PAUSING = "pausing"
    PAUSED = "paused"
    CLOSING = "closing"
    OFFLINE = "offline"


class ReaderPhase(Enum):
    """The state of a reader, by its own record or by the one of who put it offline."""

    RUNNING = "running"
    STOPPED = "stopped"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """A record of `source/S`. `ValueError` if parts of it contradict each other.

    `first` is the offset of its first commit record as a member. `end` is the offset behind the last
    one, if no other can follow before the next join: readers read up to it. `join` and `member`, the number, are None in the
    records that they are the offsets of. `by` and `reason`: who has forced the source offline, and why.
    """

    JSON: ClassVar = _FORM

    state: SourcePhase
    first: int
    member: int | None = None
    join: int | None = None
    floor_us: int = 0
    end: int | None = None
    by: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        is_joining = self.state is SourcePhase.JOINING
        if is_joining != (self.join is None) or (self.member is None and not is_joining):
            message = "a join names no other join, and every other record of a source has its join and its number"
            raise ValueError(message)
        if self.end is None and self.state in (SourcePhase.JOINING, SourcePhase.OFFLINE):
            message = f"a source that is {self.state.value} has an end of its commit records"
            raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderEntry:
    """A record of `reader/R`: it reads `sources`. A stopped reader has released nothing at `frontier` or behind it."""

    JSON: ClassVar = _FORM

    state: ReaderPhase
    sources: frozenset[str]
    frontier: StreamPosition = StreamPosition.START
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A record of `ack/R/S`: of a join, by the run of the reader that began at offset `epoch`.

    `is_drained`: the reader has released everything up to the end of the source, which is closing.
    """

    JSON: ClassVar = _FORM

    join: int
    epoch: int
    frontier: StreamPosition
    is_drained: bool = json_field(default=False, name="drained")


@dataclass(frozen=True, slots=True)
class Revocation:
    """A record of `revoke/R/S`: the reader does not wait for that join any more."""

    JSON: ClassVar = _FORM

    join: int


MemberRecord = SourceEntry | ReaderEntry | Acknowledgement | Revocation
_KINDS: Final[Mapping[str, type[MemberRecord]]] = {
    "source": SourceEntry,
    "reader": ReaderEntry,
    "ack": Acknowledgement,
    "revoke": Revocation,
}


@dataclass(frozen=True, slots=True)
class MemberSource:
    """A source as the topic has it. `number` is its place among sources of equal times; `is_void`: its join cannot become valid."""

    name: str
    number: int
    join: int
    record: SourceEntry
    is_void: bool = False

    @property
    def state(self) -> SourcePhase:
        """The state in the newest record."""
        return self.record.state

    @property
    def is_closed(self) -> bool:
        """Whether the source is closing and has published everything that it will."""
        return self.state is SourcePhase.CLOSING and self.record.end is not None

    def is_member(self, read: int | None) -> bool:
        """Return whether a reader has to wait for commit records of the source: it was read up to offset `read`, or never (None).

        A source that joins is one, too, for readers that have acknowledged it.
        """
        is_live = self.state not in (SourcePhase.JOINING, SourcePhase.OFFLINE)
        return (is_live and self.record.end is None) or (self.record.first if read is None else read) < (self.record.end or 0)

    def record_of(self, state: SourcePhase, *, end: int | None = None, by: str = "", reason: str = "") -> SourceEntry:
        """Return the record by which the source, a member, changes to another state."""
        return replace(self.record, state=state, member=self.number, join=self.join, end=end, by=by, reason=reason)


@dataclass(frozen=True, slots=True)
class MemberReader:
    """A reader as the topic has it. `epoch` is the offset of its newest `running` record, or of the newest record at all."""

    name: str
    epoch: int
    record: ReaderEntry

    def is_running_for(self, source: str) -> bool:
        """Return whether a join of that source waits for the reader."""
        return self.record.state is ReaderPhase.RUNNING and source in self.record.sources


@dataclass(frozen=True, slots=True)
class WaitFor:
    """A source waits for these readers."""

    readers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Admitted:
    """A source may publish, nothing earlier than `floor_us`. Its offset gets the `join`."""

    join: int
    floor_us: int


class Members:
    """The fold of the topic up to `end`, an offset. Give it every record, in their order.

    `live_from` is the end of the topic when reading it began: compaction may have removed records before it, so whether an `online`
    there is valid cannot be said.
    """

    def __init__(self, live_from: int = 0) -> None:
        self._live_from = live_from
        self.end = 0
        self.sources: dict[str, MemberSource] = {}
        self.readers: dict[str, MemberReader] = {}
        self._acknowledged: dict[tuple[str, str], Acknowledgement] = {}

    def note(self, offset: int, key: str, record: MemberRecord) -> None:
        """Note the record at an offset."""
        self.end = offset + 1
        _, name, *of = key.split("/")
        if isinstance(record, SourceEntry):
            self._note_source(offset, name, record)
        elif isinstance(record, ReaderEntry):
            before = self.readers.get(name)
            is_run = record.state is ReaderPhase.RUNNING or before is None
            self.readers[name] = MemberReader(name, offset if is_run or before is None else before.epoch, record)
        elif isinstance(record, Acknowledgement):
            self._acknowledged[name, of[0]] = record
        else:
            self._note_revocation(of[0], record)

    def _note_source(self, offset: int, name: str, record: SourceEntry) -> None:
        before = self.sources.get(name)
        if record.join is None:
            number = record.member if record.member is not None else offset
            self.sources[name] = MemberSource(name, number, offset, record)
        elif offset >= self._live_from and before is not None and before.join == record.join and not self._is_valid(before, record):
            self.sources[name] = replace(before, is_void=True)
        elif before is None or before.join <= record.join:  # one that is later than the last `joining`: compaction has removed some
            assert record.member is not None
            self.sources[name] = MemberSource(name, record.member, record.join, record)

    def _is_valid(self, source: MemberSource, record: SourceEntry) -> bool:
        if source.state is not SourcePhase.JOINING or record.state is not SourcePhase.ONLINE:
            return not source.is_void
        return not source.is_void and not self.missing(source) and record.floor_us >= self.floor_us(source)

    def _note_revocation(self, name: str, record: Revocation) -> None:
        source = self.sources.get(name)
        if source is not None and source.state is SourcePhase.JOINING and source.join == record.join:
            self.sources[name] = replace(source, is_void=True)

    # ---- a source

    def missing(self, source: MemberSource) -> tuple[str, ...]:
        """Return the readers that have not acknowledged the join."""
        return tuple(
            reader.name
            for reader in self.readers.values()
            if reader.is_running_for(source.name) and not self.has_acknowledged(reader, source)
        )

    def has_acknowledged(self, reader: MemberReader, source: MemberSource) -> bool:
        """Return whether the present run of the reader has acknowledged the join."""
        one = self._acknowledged.get((reader.name, source.name))
        return one is not None and (one.join, one.epoch) == (source.join, reader.epoch)

    def floor_us(self, source: MemberSource) -> int:
        """Return the earliest time that no reader has released: a source that returns has a lower number than others."""
        readers = [one for one in self.readers.values() if source.name in one.record.sources]
        frontiers = [one.record.frontier for one in readers if one.record.state is ReaderPhase.STOPPED]
        frontiers += [
            self._acknowledged[one.name, source.name].frontier
            for one in readers
            if one.is_running_for(source.name) and self.has_acknowledged(one, source)
        ]
        return 1 + max((one.us for one in frontiers), default=0)

    def undrained(self, source: MemberSource) -> tuple[str, ...]:
        """Return the running readers that have not released everything of a source that is closing."""
        readers = [one for one in self.readers.values() if one.is_running_for(source.name)]
        return tuple(one.name for one in readers if not self.has_drained(one.name, source))

    def has_drained(self, reader: str, source: MemberSource) -> bool:
        """Return whether the reader has said that it released everything up to the end of the source."""
        one = self._acknowledged.get((reader, source.name))
        return one is not None and one.join == source.join and one.is_drained

    # ---- a reader

    def is_current(self, reader: str, epoch: int) -> bool:
        """Return whether the run of the reader is its newest one, and nobody has put it offline."""
        one = self.readers.get(reader)
        return one is not None and one.epoch == epoch and one.record.state is ReaderPhase.RUNNING


def next_step(members: Members, name: str, joins: frozenset[int], commits_end: int) -> SourceEntry | WaitFor | Admitted:
    """Return the next step of a source that starts: append a record and read up to it, wait for readers, or publish.

    `joins` are those that it made itself in this start, and the one of the offset that it resumes at. `commits_end` is the end of
    its topic of commit records, to which no other process writes any more.
    """
    source = members.sources.get(name)
    if source is None:
        return SourceEntry(state=SourcePhase.JOINING, first=commits_end, end=commits_end)
    if source.join not in joins or source.is_void or source.state is SourcePhase.OFFLINE or source.is_closed:
        return SourceEntry(state=SourcePhase.JOINING, first=source.record.first, member=source.number, end=commits_end)
    if source.state in (SourcePhase.PAUSING, SourcePhase.PAUSED):
        return source.record_of(SourcePhase.ONLINE)
    if source.state is not SourcePhase.JOINING:
        return Admitted(source.join, source.record.floor_us)
    missing = members.missing(source)
    if missing:
        return WaitFor(missing)
    return replace(source.record_of(SourcePhase.ONLINE), floor_us=members.floor_us(source))


def closing_step(members: Members, name: str, commits_end: int | None) -> SourceEntry | WaitFor | None:
    """Return the next step of a source that closes: append a record, wait for readers, or None: it is offline, or publishes still.

    `commits_end` is the end of its commit records when it has published everything that it will; None before that.
    """
    source = members.sources[name]
    if source.state is SourcePhase.OFFLINE:
        return None
    if source.state is not SourcePhase.CLOSING:
        return source.record_of(SourcePhase.CLOSING)
    if source.record.end is None:
        return None if commits_end is None else source.record_of(SourcePhase.CLOSING, end=commits_end)
    missing = members.undrained(source)
    return WaitFor(missing) if missing else source.record_of(SourcePhase.OFFLINE, end=source.record.end)


def log_writer(name: str) -> str:
    """Return the transactional id of the log reader's publisher, which has another one derived from it."""
    return f"{name}-log"


def source_writer(name: str) -> str:
    """Return the transactional id of a source's records."""
    return f"{name}-member"


def reader_writer(name: str) -> str:
    """Return the transactional id of a reader's records."""
    return f"tidemark-task-{name}"


def source_key(name: str) -> str:
    """Return the key of a source's records."""
    return f"source/{name}"


def reader_key(name: str) -> str:
    """Return the key of a reader's records."""
    return f"reader/{name}"


def ack_key(reader: str, source: str) -> str:
    """Return the key of a reader's acknowledgements of a source."""
    return f"ack/{reader}/{source}"


def revoke_key(reader: str, source: str) -> str:
    """Return the key of a reader's revocations of a source."""
    return f"revoke/{reader}/{source}"


def to_bytes(record: MemberRecord) -> bytes:
    """Return the value of a record: UTF-8 JSON."""
    return json.dumps(encode(record), separators=(",", ":")).encode()


def parse(key: str, value: bytes) -> MemberRecord:
    """Return the record of a key and a value; `DecodeError` for others, and for an unknown field."""
    kind, *names = key.split("/")
    try:
        document: Any = json.loads(value)
        record: MemberRecord = decode(_KINDS[kind], document)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = f"not a record of the members of a group, or one of a newer version: {key!r}: {type(error).__name__} {error}"
        raise DecodeError(message) from error
    if len(names) != (1 if kind in ("source", "reader") else 2) or not all(names):
        message = f"the key {key!r} of the members of a group does not name {'a reader and a source' if len(names) else kind}"
        raise DecodeError(message)
    return record
