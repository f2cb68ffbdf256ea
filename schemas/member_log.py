"""The topic of a group's members, as one process follows and writes it: records of a log enter, the members leave (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from schemas.members import MemberRecord, Members, parse, to_bytes

MEMBERS_CONFIG: Final = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(7 * 24 * 3_600_000),
    "segment.ms": str(24 * 3_600_000),
}
"""The settings of a topic that does not exist yet."""


class LoggedMember(Protocol):
    """A record of the log: `kafkaio.committed_reader.CommittedRecord`, or its memory twin."""

    @property
    def offset(self) -> int:
        """Its offset."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""

    @property
    def timestamp_ms(self) -> int | None:
        """Its time (Unix), or None."""


class MemberLog(Protocol):
    """A log that several processes write: `kafkaio.shared_log.SharedLog`, or its memory twin."""

    def begin(self) -> int:
        """Begin to read at the first record; return the present end."""

    def read(self, until: int = 0) -> Iterable[LoggedMember]:
        """Yield the records behind the last one, up to the offset `until`, or to the present end if they are behind it."""

    def append(self, key: bytes, value: bytes) -> int:
        """Append a record; return its offset when it is committed."""


class FollowedMembers:
    """The members of a group as one process knows them. To append records, it must have taken its transactional id over."""

    def __init__(self, log: MemberLog) -> None:
        self._log = log
        self.members: Final = Members(log.begin())
        self.written_ms: dict[str, int | None] = {}
        """The time (Unix) of the newest record of each key."""

    def follow(self, until: int = 0) -> Members:
        """Read up to the offset `until`, or to the present end if that is not behind the last one; return the members."""
        members = self.members
        for record in self._log.read(until):
            key = (record.key or b"").decode()
            self.written_ms[key] = record.timestamp_ms
            members.note(record.offset, key, parse(key, record.value or b""))
        return members

    def append(self, key: str, record: MemberRecord) -> int:
        """Append a record and read up to it; return its offset."""
        offset = self._log.append(key.encode(), to_bytes(record))
        self.follow(offset + 1)
        return offset
