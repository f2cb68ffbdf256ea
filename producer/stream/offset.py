"""The log offset: where reading goes on after a restart (document `offset` of the state topic)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from schemas.errors import StateError
from schemas.position import Position, file_number


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A place in the log where reading can begin: a transaction border, and the GTIDs before it."""

    file: str
    pos: int
    gtid_set: str


@dataclass(frozen=True, slots=True)
class LogOffset:
    """A transaction border: everything before it is in Kafka.

    `pos` is the 64-bit offset of the next transaction's first event in `file`; `gtid_set` holds every
    transaction before it ("" without GTIDs); `server` is the server's UUID, or `server_id=<n>` on MariaDB.
    `resume` is the oldest XA PREPARE group before the border whose transaction is not finished: its rows are
    in no topic, so reading begins there again. None without one.
    `made` is when `file` was made, in seconds since 1970, 0 where that is not known: it tells one log from another.
    """

    epoch: int
    file: str
    pos: int
    gtid_set: str
    server: str
    resume: ResumePoint | None = None
    made: int = 0

    @property
    def start(self) -> ResumePoint:
        """Where reading begins after a restart; never behind the border."""
        return self.resume or ResumePoint(self.file, self.pos, self.gtid_set)

    @property
    def position(self) -> Position:
        """The border as a position (ordinal 0)."""
        return Position(self.epoch, file_number(self.file), self.pos, 0)

    def document(self, committed_ms: int) -> dict[str, Any]:
        """The state document, of version 2 where it has a `resume`."""
        resume = {} if self.resume is None else {"resume": asdict(self.resume)}
        return {
            "v": 2 if resume else 1,
            "epoch": self.epoch,
            "file": self.file,
            "pos": self.pos,
            "gtid_set": self.gtid_set,
            "server": self.server,
            "position": self.position.text,
            "committed_ms": committed_ms,
            **({"made": self.made} if self.made else {}),
            **resume,
        }

    @staticmethod
    def parse(document: Mapping[str, Any]) -> LogOffset:
        """The offset of a state document; `StateError` when it is not one of ours."""
        resume = document.get("resume")
        try:
            return LogOffset(
                epoch=int(document["epoch"]),
                file=str(document["file"]),
                pos=int(document["pos"]),
                gtid_set=str(document["gtid_set"]),
                server=str(document["server"]),
                resume=None
                if resume is None
                else ResumePoint(str(resume["file"]), int(resume["pos"]), str(resume["gtid_set"])),
                made=int(document.get("made", 0)),
            )
        except (KeyError, TypeError, ValueError) as error:
            message = f"the log offset in the state topic cannot be understood ({error!r}): {document!r}"
            raise StateError(message) from error
