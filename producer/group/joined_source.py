"""The source of this process as a member of its group: its records are appended, and readers are waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from schemas.errors import PublishError
from schemas.members import Admitted, SourcePhase, WaitFor, closing_step, source_key
from schemas.waiting import ENDING, WAITS, waiting

if TYPE_CHECKING:
    from threading import Event

    from schemas.member_log import FollowedMembers
    from schemas.members import Members, MemberSource, SourceEntry

log = structlog.get_logger(__name__)

_PEER: Final = "group"
FOLLOWED_EVERY_S: Final = 0.1


class JoinedSource:
    """The source of a start, which owns its member records. For one thread at a time; `stop` ends its waits.

    `join` is how it was admitted. `is_closing`: an earlier process was asked to close it.
    """

    join: Admitted

    def __init__(self, name: str, group: str, followed: FollowedMembers, stop: Event) -> None:
        self.name = name
        self.group = group
        self.is_closing = False
        self.stop = stop
        self._followed = followed
        followed.follow()

    @property
    def members(self) -> Members:
        """The members as they were followed last."""
        return self._followed.members

    @property
    def own(self) -> MemberSource:
        """The source as the topic has it. It has appended a record before."""
        return self.members.sources[self.name]

    def append(self, record: SourceEntry) -> int:
        """Append a record, and read up to it; return its offset."""
        offset = self._followed.append(source_key(self.name), record)
        log.info("source.member", group=self.group, state=record.state.value, offset=offset)
        return offset

    def change(self, state: SourcePhase) -> None:
        """Append that the source, a member, has that state, if it has another."""
        self._followed.follow()
        if self.own.state is not state:
            self.append(self.own.record_of(state))

    def leave(self, commits_end: int) -> None:
        """Append that everything is published, and wait until the readers have released it: the source is offline then.

        `PublishError` if `stop` is set before that.
        """
        while (step := closing_step(self.members, self.name, commits_end)) is not None:
            if isinstance(step, WaitFor):
                self.wait_for(step.readers, "release its last transactions", lambda: self.members.undrained(self.own))
            else:
                self.append(step)
        log.info("source.closed", group=self.group, source=self.name)

    def wait_for(self, readers: tuple[str, ...], what: str, missing: Callable[[], tuple[str, ...]]) -> None:
        """Wait until others than these readers are missing; the log, the status and the endpoint name them meanwhile."""
        named = ", ".join(readers)
        reason = (
            f"reader {named} to {what}: source {self.name}. A reader that does not run blocks this until it is started, or put "
            "offline (`tidemark ctl reader offline`)"
        )
        log.info("source.waits", group=self.group, reason=reason)
        with waiting(_PEER, self.group, reason):
            while not self.stop.wait(FOLLOWED_EVERY_S):
                self._followed.follow()
                if missing() != readers or self.own.state is SourcePhase.OFFLINE or self.own.is_void:
                    return
        raise PublishError(f"source {self.name} of group {self.group} waits for {named}, and {ENDING}")

    def wait_for_resumption(self, may_have_come: Callable[[], bool]) -> None:
        """Wait until a signal may have come, or `stop` is set; the status and the endpoint show that the source is paused."""
        with waiting(_PEER, self.group, f"`tidemark ctl source resume`: source {self.name} is paused"):
            while not may_have_come() and not self.stop.wait(FOLLOWED_EVERY_S):
                pass


def waits_in_group() -> str:
    """Return the reason why the source of this process publishes nothing because of its group; "" without one."""
    reason = WAITS.reason(_PEER)
    return reason and f"it waits for {reason}"
