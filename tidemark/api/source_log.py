"""The source's log, as the source itself reports it: how much of it is not in Kafka, and how long the source keeps it."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import TidemarkError
from tidemark.status.lags import Lags, lags_of

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.source.retention import HeadRoom
    from schemas.settings import Settings
    from tidemark.status.job_standing import Standing
    from tidemark.status.status_tree import LogStatus, Status


_FIRST_PAUSE_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class SourceLog:
    """What was seen of the log; `problem` says why the source could not be asked, or why to worry.

    `is_of_now`: it was asked for this answer, not some time before.
    """

    room: HeadRoom | None
    problem: str
    is_of_now: bool = False

    @property
    def document(self) -> dict[str, Any]:
        """The JSON form; null is unknown."""
        room = self.room
        return {
            "oldest_file": room and room.oldest_file,
            "newest_file": room and room.newest_file,
            "behind_bytes": room and room.behind_bytes,
            "keeps_s": room and room.keeps_s,
            "head_room_s": room and room.left_s,
            "problem": self.problem or None,
        }

    def lags(self, status: Status) -> Lags:
        """Return how far a sink is behind, by what the source says now."""
        room, log = self.room, status.log
        if room is None:  # the problem is that it does not answer, which says nothing of its log
            return lags_of(status)
        left_bytes = room.bytes_after(log.file, log.pos) if self.is_of_now and log is not None else None
        return lags_of(status, left_bytes, self.problem)


UNSEEN: Final = SourceLog(None, "")
"""Nobody has looked."""


class SourceConnection:
    """Asks the source again and again over one connection. After an error it waits before the next attempt, for up to a minute.

    A password that is wrong must not lock the user of the producer. For one thread.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._pause_s = 0.0
        self._again_s = 0.0
        self._problem = ""

    def close(self) -> None:
        """Give the connection up."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def ask(self, status: Status) -> SourceLog:
        """Return how long the source keeps what is not in Kafka yet; while it waits after an error, the error."""
        from mysqlio.connection import connect
        from mysqlio.server_access import ServerAccess

        if status.log is None:
            return UNSEEN
        if time.monotonic() < self._again_s:
            return SourceLog(None, self._problem)
        try:
            self._connection = self._connection or connect(ServerAccess.of(self._settings.source))
            answer = log_seen(self._settings, self._connection, status.log)
        except TidemarkError as error:
            self.close()
            self._pause_s = min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * self._pause_s))
            self._again_s = time.monotonic() + self._pause_s
            self._problem = f"the source cannot be asked: {error}"
            return SourceLog(None, self._problem)
        self._pause_s = 0.0
        return answer


def log_seen(settings: Settings, connection: Connection, log: LogStatus) -> SourceLog:
    """Ask the source over a connection how long it keeps what is not in Kafka yet; raises `SourceError`."""
    from mysqlio.server_errors import source_errors
    from producer.source.retention import ResumePosition, head_room

    position = ResumePosition(log.needed_file, log.needed_pos, log.read_ms / 1000, log.server)
    with source_errors("the source's log"):
        room = head_room(connection, position, time.time())
    return seen(settings, room, is_of_now=True)


def source_of(settings: Settings, status: Status) -> SourceLog:
    """Ask the source once, over a connection of its own; that it does not answer is no error here."""
    with closing(SourceConnection(settings)) as connection:
        return connection.ask(status)


def seen(settings: Settings, room: HeadRoom | None, *, is_of_now: bool = False) -> SourceLog:
    """Return what was seen of the source's log, None where nobody has looked yet, and whether to worry."""
    return SourceLog(room, "" if room is None else room.warning(settings.source.log_head_room_s), is_of_now)


def producer_of(status: Status, source: SourceLog | None) -> Standing:
    """Return the producer's state, by what the source said of its log's end."""
    return status.producer(None if source is None or source.room is None else source.room.behind_bytes)
