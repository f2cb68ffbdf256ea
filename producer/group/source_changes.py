"""Signals that pause, resume and close the source of this producer: between two transactions of its log they take effect.

A paused source reads nothing, so readers wait for it. One that closes is read to the end that its log has when it is asked to; its
last commit record says so. Then it leaves its group, when the readers have released everything, and the producer ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import structlog

from schemas.errors import SignalError
from schemas.members import SourcePhase
from schemas.signals import CLOSE_SOURCE, PAUSE_SOURCE, RESUME_SOURCE

if TYPE_CHECKING:
    from producer.group.joined_source import JoinedSource
    from schemas.position import Position
    from schemas.signals import ChangeSource

log = structlog.get_logger(__name__)


class LastRecord(Protocol):
    """The writer of commit records: `producer.stream.handlers.commit_seal.CommitSeal`, or its memory twin."""

    def end(self) -> None:
        """Have the next commit record say that it is the last."""


class SourceChanges:
    """The changes of a joined source, for the log reader's thread (`producer.stream.ports.BoundaryTask`).

    `boundary` returns how far the log is read, `end_of_log` asks the server for its end, `has_signals` returns whether any wait.
    """

    def __init__(
        self,
        source: JoinedSource,
        commits: LastRecord,
        boundary: Callable[[], Position],
        end_of_log: Callable[[], Position],
        has_signals: Callable[[], bool],
    ) -> None:
        self.source = source
        self._commits = commits
        self._boundary = boundary
        self._end_of_log = end_of_log
        self._has_signals = has_signals
        self._end: Position | None = None
        self._asked = CLOSE_SOURCE if source.is_closing else ""
        self.is_published = False
        """Whether the source closes, and everything is published but the last commit record."""

    def handle(self, command: ChangeSource, position: Position, *, may_repeat: bool) -> bool:  # noqa: ARG002 - a handler
        """Note a signal; it takes effect behind the checkpoint that has its answer."""
        if self._asked == CLOSE_SOURCE:
            raise SignalError("the source is closing; start its producer again when it is offline")
        if command.type == RESUME_SOURCE and self._asked != PAUSE_SOURCE:
            raise SignalError("the source is not paused")
        self._asked = command.type
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to do at the boundary."""
        return bool(self._asked) and (self._end is None or self._boundary() >= self._end)

    def carry_out(self, boundary: Position) -> None:
        """Carry out the last request. A paused source waits here until other signals may have come."""
        source = self.source
        if self._asked == PAUSE_SOURCE:
            source.change(SourcePhase.PAUSED)
            source.wait_for_resumption(self._has_signals)
        elif self._asked == RESUME_SOURCE:
            source.change(SourcePhase.ONLINE)
            self._asked = ""
        elif self._end is None:
            source.change(SourcePhase.CLOSING)
            self._end = self._end_of_log()
            log.info("source.closes", group=source.group, boundary=boundary.text, end=self._end.text)
        else:
            self._commits.end()
            self.is_published = True
