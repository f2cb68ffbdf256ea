"""The log offset: where reading goes on after a restart (document `offset` of the state topic)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from producer.source.begun import Begun
from schemas.errors import StateError
from schemas.position import Position, file_number

_VERSIONS: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A place in the log where reading can begin: a transaction border, and the GTIDs before it."""

    file: str
    pos: int
    gtid_set: str


@dataclass(frozen=True, slots=True)
class Part:
    """The transaction at a border of which the first `rows` rows are in Kafka: it took too long for one Kafka transaction.

    On another server it has the same GTID, and begins where that is met: `begun` then names no file.
    """

    begun: Begun
    rows: int

    def is_of(self, file: str, pos: int, gtid: str | None) -> bool:
        """Whether that is the transaction."""
        begun = self.begun
        return gtid == begun.gtid if begun.gtid is not None else (file, pos) == (begun.file, begun.pos)


@dataclass(frozen=True, slots=True)
class LogOffset:
    """A transaction border: everything before it is in Kafka, and a `part` of the transaction behind it, where there is one.

    `pos` is the 64-bit offset of the next transaction's first event in `file`; `gtid_set` holds every
    transaction before it ("" without GTIDs); `server` is the server's UUID, or `server_id=<n>` on MariaDB.
    `resume` is the oldest XA PREPARE group before the border whose transaction is not finished: its rows are
    in no topic, so reading begins there again. None without one. `last` is the last transaction before the border, None
    where none was read yet. `inherited` holds the transactions published in earlier epochs which may stand behind the border in the
    log of this one, "" where there are none: another server may have them in another order.
    """

    epoch: int
    file: str
    pos: int
    gtid_set: str
    server: str
    resume: ResumePoint | None = None
    last: Begun | None = None
    inherited: str = ""
    part: Part | None = None

    @property
    def start(self) -> ResumePoint:
        """Where reading begins after a restart; never behind the border."""
        return self.resume or ResumePoint(self.file, self.pos, self.gtid_set)

    @property
    def position(self) -> Position:
        """The border as a position (ordinal 0)."""
        return Position(self.epoch, file_number(self.file), self.pos, 0)

    def document(self, committed_ms: int) -> dict[str, Any]:
        """The state document, of version 2 where it has a `resume`, 3 where it has a `part`."""
        resume = {} if self.resume is None else {"resume": asdict(self.resume)}
        last = {} if self.last is None else {"last": self.last._asdict()}
        inherited = {"inherited": self.inherited} if self.inherited else {}
        part = {} if self.part is None else {"part": {**self.part.begun._asdict(), "rows": self.part.rows}}
        return {
            "v": 3 if part else 2 if resume else 1,
            "epoch": self.epoch,
            "file": self.file,
            "pos": self.pos,
            "gtid_set": self.gtid_set,
            "server": self.server,
            "position": self.position.text,
            "committed_ms": committed_ms,
            **resume,
            **last,
            **inherited,
            **part,
        }

    @staticmethod
    def parse(document: Mapping[str, Any]) -> LogOffset:
        """The offset of a state document; `StateError` when it is not one of ours, or tells what only a newer Tidemark knows."""
        resume, last, part = document.get("resume"), document.get("last"), document.get("part")
        if document.get("v", 1) not in _VERSIONS:
            message = f"the log offset in the state topic is of version {document['v']}: a newer Tidemark wrote it, start that one"
            raise StateError(message)
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
                last=None if last is None else _begun(last),
                inherited=str(document.get("inherited", "")),
                part=None if part is None else Part(_begun(part), int(part["rows"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            message = f"the log offset in the state topic cannot be understood ({error!r}): {document!r}"
            raise StateError(message) from error


def _begun(document: Mapping[str, Any]) -> Begun:
    gtid, ts_us = document["gtid"], document["ts_us"]
    return Begun(
        file=str(document["file"]),
        pos=int(document["pos"]),
        gtid=None if gtid is None else str(gtid),
        ts_us=None if ts_us is None else int(ts_us),
        checksum=int(document["checksum"]),
    )
