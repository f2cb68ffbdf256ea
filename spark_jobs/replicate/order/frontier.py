"""The one order of many sources: commit records and their transactions enter, transactions in stream order leave (pure).

Each source that is a member has a bound: nothing that it publishes later is before it. It is the promise of its last commit record,
its number, and the end of that record. The frontier is the least bound. Everything before it is released, by time, number and
position:

    source  number  promise  read up to
    A       3       100      a9          its transactions at 100 are released: they are before (100, 3, a9)
    B       7       100      b5          its transactions at 100 wait until A promises 101

A source without a bound was read up to its end. Parts of a long transaction wait for the commit record of its end, which has the
time of all its rows.

A reader keeps `released` and `cursors()` durably, in one transaction with the released events. After a restart the records from a
cursor's `offset` to its `read` come again, and events before `released` are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import takewhile
from typing import ClassVar, Generic, NamedTuple, TypeVar

from schemas.commit_records import ChunkRows, CommitRecord, RowTimes
from schemas.errors import StateError
from schemas.json_codec import Form
from schemas.position import Position
from schemas.stream_order import StreamPosition

T = TypeVar("T")


class LoggedEvents(NamedTuple, Generic[T]):
    """Events of the transaction at `position` (ordinal 0), and `source.ts_us` of one of them; or rows of a chunk.

    `size` is about their bytes in memory.
    """

    position: Position
    ts_us: int
    events: Collection[T]
    chunk: ChunkRows | None = None
    size: int = 0


class OrderedEvents(NamedTuple, Generic[T]):
    """Events of a source at their position in the stream of all sources."""

    at: StreamPosition
    source: str
    events: Collection[T]
    size: int = 0


@dataclass(frozen=True, slots=True)
class SourceCursor:
    """How far a source is read: the commit record at `offset`, of number `n`, is next (0: of any number).

    Of records before `read` only the events at the reader's `released` and behind it are not released. `bound` is the one
    at `offset`.
    """

    JSON: ClassVar = Form(refuses_unknown=True)

    number: int
    offset: int
    n: int
    read: int
    bound: StreamPosition


_RecordId = tuple[int, int]
"""The offset and the number of a commit record."""


@dataclass(slots=True)
class _Stream(Generic[T]):
    """A source in the merge. `bound` is None if it is not a member. `size` counts the events that wait."""

    number: int
    next: _RecordId
    read: int
    bound: StreamPosition | None
    ready: deque[tuple[OrderedEvents[T], _RecordId]] = field(default_factory=deque)
    parts: list[tuple[LoggedEvents[T], _RecordId]] = field(default_factory=list)
    size: int = 0

    def cursor(self, released: StreamPosition) -> SourceCursor:
        unfinished = [record for _, record in self.parts[:1]] + ([self.ready[0][1]] if self.ready else [])
        (offset, n), read = min([*unfinished, self.next]), max(self.read, self.next[0])
        bound = released if self.bound is None or offset < read else self.bound
        return SourceCursor(self.number, offset, n, read, bound)


class StreamMerge(Generic[T]):
    """The merge of the sources of a group. Those of `cursors` are members; everything before `released` is released."""

    def __init__(self, released: StreamPosition = StreamPosition.START, cursors: Mapping[str, SourceCursor] | None = None) -> None:
        self.released = released
        """Everything before this position was released, and nothing else."""
        self._streams = {
            name: _Stream[T](one.number, (one.offset, one.n), one.read, one.bound) for name, one in (cursors or {}).items()
        }

    def cursors(self) -> dict[str, SourceCursor]:
        """Return how far the sources are read."""
        return {name: stream.cursor(self.released) for name, stream in self._streams.items()}

    # ---- members

    def admit(self, source: str, number: int, first: int) -> None:
        """Release nothing at the present frontier or behind it until the source has published.

        `first` is the offset of the commit record to begin with, if none of the source was read.
        """
        bound = self.frontier
        if source in self._streams:
            self._streams[source].bound = bound
        else:
            self._streams[source] = _Stream(number, (first, 0), first, bound)

    def begin(self, source: str, number: int, offset: int, n: int) -> None:
        """Release nothing until the source, which was never read, has published from the commit record at `offset` on."""
        self._streams[source] = _Stream(number, (offset, n), offset, self.released)

    def end(self, source: str) -> None:
        """Wait for a source no more. Its transactions that were read are still released in their order."""
        self._streams[source].bound = None

    def is_member(self, source: str) -> bool:
        """Return whether the frontier is not behind the source."""
        return source in self._streams and self._streams[source].bound is not None

    def read(self, source: str) -> int | None:
        """Return the offset of the commit record to be read next; None for a source that was never a member."""
        return self._streams[source].next[0] if source in self._streams else None

    def waiting(self, source: str) -> int:
        """Return the size of the events of a source that are read and not released."""
        return self._streams[source].size

    def is_released(self, source: str) -> bool:
        """Return whether every transaction that was read to its end is released."""
        return source not in self._streams or not self._streams[source].ready

    # ---- order

    @property
    def frontier(self) -> StreamPosition:
        """The position that everything before can be released of, also behind a later start."""
        bounds = [stream.bound for stream in self._streams.values() if stream.bound is not None]
        if bounds:
            return max(self.released, min(bounds))
        last_us = max((stream.ready[-1][0].at.us for stream in self._streams.values() if stream.ready), default=-1)
        return max(self.released, StreamPosition(last_us + 1, 0, Position.MINIMUM))

    @property
    def blocked_by(self) -> str | None:
        """The source that the frontier is the bound of; None without a member."""
        bounds = [(stream.bound, name) for name, stream in self._streams.items() if stream.bound is not None]
        return min(bounds)[1] if bounds else None

    def note(self, source: str, offset: int, commit: CommitRecord, logged: Iterable[LoggedEvents[T]]) -> None:
        """Note the next commit record of a source, and the events of its spans in the order of the log.

        `StateError`: a transaction is before the promise of its source, or before a released one, or behind the record's promise.
        """
        stream, record = self._streams[source], (offset, commit.n)
        least = max(self.released, stream.bound or StreamPosition.START)
        for events, since in sorted(_timed(source, stream, record, commit, logged), key=lambda one: one[0].at):
            if events.at.us > commit.promise_us:
                message = (
                    f"source {source}, commit record {commit.n} at offset {offset}: the transaction at {events.at.position.text} "
                    f"has the time {events.at.us}, and the record promises {commit.promise_us}: later ones may be before it"
                )
                raise StateError(message)
            if offset < stream.read and events.at < self.released:
                stream.size -= events.size
                continue
            if offset >= stream.read and events.at < least:
                message = (
                    f"source {source}, commit record {commit.n} at offset {offset}: the transaction at "
                    f"{events.at.position.text} has the time {events.at.us}, and everything before {least.text} may be released "
                    "already. The source has joined while this reader was offline, or its offsets were lost: load the target again"
                )
                raise StateError(message)
            stream.ready.append((events, since))
        stream.next = offset + 1, commit.n + 1
        if stream.bound is not None:
            stream.bound = max(stream.bound, StreamPosition(commit.promise_us, stream.number, commit.to))

    def release(self, most: int | None = None) -> list[OrderedEvents[T]]:
        """Return the events before the frontier, in the order of the stream.

        With `most` a prefix of about so many events: those at one position are not divided.
        """
        frontier, count = self.frontier, 0
        self.released = frontier
        before = [
            takewhile(lambda one: one.at < frontier, (events for events, _ in stream.ready)) for stream in self._streams.values()
        ]
        released: list[OrderedEvents[T]] = []
        for events in merge(*before, key=lambda one: one.at):
            if most is not None and count >= most and events.at != released[-1].at:
                self.released = events.at
                break
            released.append(events)
            count += len(events.events)
        for events in released:
            stream = self._streams[events.source]
            stream.size -= events.size
            stream.ready.popleft()
        return released


def _timed(
    source: str, stream: _Stream[T], record: _RecordId, commit: CommitRecord, logged: Iterable[LoggedEvents[T]]
) -> list[tuple[OrderedEvents[T], _RecordId]]:
    """Return the events of transactions that have ended, rows of chunks first; keep the parts of the one that has not."""
    time_of, chunks, timed = RowTimes(commit), [], []
    waiting = [] if commit.reset else [(_continued(one, commit), since) for one, since in stream.parts]
    stream.size -= sum(one.size for one, _ in stream.parts) if commit.reset else 0
    stream.parts = []
    for one, since in (*waiting, *((one, record) for one in logged)):
        if since is record:
            stream.size += one.size
        if one.chunk is not None:
            at = StreamPosition(one.chunk.us, stream.number, one.chunk.at)
            chunks.append((OrderedEvents(at, source, one.events, one.size), record))
        elif _is_open(one.position, commit, is_part=since is not record):
            stream.parts.append((one, since))
        else:
            at = StreamPosition(time_of(one.position, one.ts_us), stream.number, one.position)
            timed.append((OrderedEvents(at, source, one.events, one.size), since))
    return chunks + timed


def _continued(part: LoggedEvents[T], commit: CommitRecord) -> LoggedEvents[T]:
    """Return the part at its transaction's position in the log of the server that continues it."""
    continues = commit.continues
    return part if continues is None or part.position != continues.open else part._replace(position=continues.position)


def _is_open(position: Position, commit: CommitRecord, *, is_part: bool) -> bool:
    """Return whether a transaction ends in a later record. On another server others may end before it."""
    if commit.open is not None and position == commit.open.position:
        return True
    return is_part and not (position.epoch == commit.to.epoch and position < commit.to)
