"""A reader of a group: the members enter, the merge gets its members, records to append leave (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from schemas.members import (
    Acknowledgement,
    MemberRecord,
    Members,
    MemberSource,
    ReaderEntry,
    ReaderPhase,
    Revocation,
    SourcePhase,
    ack_key,
    reader_key,
    revoke_key,
)
from spark_jobs.replicate.order.frontier import StreamMerge

PATIENCE_S: Final = 60.0
"""So long a reader waits for a source that it has acknowledged and that has not come online."""


class Membership:
    """One run of a reader of `sources`, which began with the record at offset `epoch`, noted in `members`.

    Call `follow` when the members are read up to that record, and from then on after later ones. Between two calls the reader may
    release if the run is current. A reader that was put offline has to be started again.
    """

    def __init__(self, reader: str, epoch: int, sources: frozenset[str], members: Members, merge: StreamMerge[Any]) -> None:
        self._reader = reader
        self._epoch = epoch
        self._sources = sources
        self._members = members
        self._merge = merge
        self._acknowledged: dict[str, tuple[int, float]] = {}

    @property
    def is_current(self) -> bool:
        """Whether nobody has put the reader offline, and no other process has started it."""
        return self._members.is_current(self._reader, self._epoch)

    def follow(self, now_s: float, read: Mapping[str, int]) -> list[tuple[str, MemberRecord]]:
        """Admit and end sources as the topic says; return keys and records to append.

        `read` has for each source that is read the offset that its commit records are read to, ends of transactions included.
        """
        sources = [one for one in self._members.sources.values() if one.name in self._sources]
        # Ends come last: they move the frontier, and a source that joined without this run may publish from the one before on.
        sources.sort(key=lambda one: self._merge.is_member(one.name))
        return [record for source in sources for record in self._follow(source, now_s, read.get(source.name))]

    def stopped(self) -> tuple[str, ReaderEntry]:
        """Return the record of the end of this run, behind which it releases nothing."""
        record = ReaderEntry(state=ReaderPhase.STOPPED, sources=self._sources, frontier=self._merge.frontier)
        return reader_key(self._reader), record

    def _follow(self, source: MemberSource, now_s: float, read: int | None) -> Sequence[tuple[str, MemberRecord]]:
        merge, name = self._merge, source.name
        join, since_s = self._acknowledged.get(name, (None, now_s))
        is_waiting = source.state is SourcePhase.JOINING and not source.is_void
        if is_waiting and join != source.join:
            merge.admit(name, source.number, source.record.first)
            self._acknowledged[name] = source.join, now_s
            return [self._acknowledgement(source)]
        is_member = source.is_member(read) or is_waiting
        if is_member and not merge.is_member(name):
            merge.admit(name, source.number, source.record.first)
        elif not is_member and merge.is_member(name):
            merge.end(name)
        if is_waiting and now_s - since_s > PATIENCE_S:
            return [(revoke_key(self._reader, name), Revocation(source.join))]
        is_drained = source.is_closed and not is_member and merge.is_released(name)
        if is_drained and not self._members.has_drained(self._reader, source):
            return [self._acknowledgement(source, is_drained=True)]
        return []

    def _acknowledgement(self, source: MemberSource, *, is_drained: bool = False) -> tuple[str, Acknowledgement]:
        record = Acknowledgement(join=source.join, epoch=self._epoch, frontier=self._merge.frontier, is_drained=is_drained)
        return ack_key(self._reader, source.name), record
