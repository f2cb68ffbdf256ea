"""The commands about snapshots, carried out on the ledger (pure)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from producer.snapshot.requests import SnapshotRequests, used_before
from schemas.documents import Origin
from schemas.errors import SignalError
from schemas.signals import Command, ExecuteSnapshot, PauseSnapshot, ResumeSnapshot, StopSnapshot

if TYPE_CHECKING:
    from producer.control.command_registry import CommandRegistry, Handler
    from schemas.position import Position

_NEAR: Final = 3
_NO_WINDOWS: Final = (
    "snapshots of type INCREMENTAL need a signal table for their windows: set source.signal_table (or source.read_only), "
    "or ask for BLOCKING"
)


class SnapshotCommands:
    """The handlers of execute, stop, pause and resume.

    `captured` returns the tables there are, as `db.table`. `windows`: windows can be opened, so tables can be read in chunks.
    """

    def __init__(
        self, requests: SnapshotRequests, captured: Callable[[], Iterable[str]], *, windows: bool
    ) -> None:
        self._requests = requests
        self._captured = captured
        self._windows = windows

    def register_in(self, registry: CommandRegistry) -> None:
        """Register the handlers of all commands about snapshots."""
        handlers: dict[type[Command], Handler] = {
            ExecuteSnapshot: self.execute,
            StopSnapshot: self.stop,
            PauseSnapshot: self.pause,
            ResumeSnapshot: self.resume,
        }
        for command, handler in handlers.items():
            registry.register(command, handler)

    def execute(self, command: ExecuteSnapshot, position: Position, *, may_repeat: bool) -> bool:
        """Submit the request; return False for the same row that is read again after a restart."""
        if not (self._windows or command.blocking):
            raise SignalError(_NO_WINDOWS)
        former = self._requests.get(command.id)
        if former is not None:
            if may_repeat and former.position == position:
                return False
            raise SignalError(used_before(former))
        captured = tuple(self._captured())
        chosen: dict[str, None] = {}
        unknown: list[str] = []
        for pattern in command.data_collections:
            tables = matching(pattern, captured)
            chosen.update(dict.fromkeys(tables))
            if not tables:
                unknown.append(pattern)
        if not chosen:
            raise SignalError(_nothing_matches(unknown, captured))
        self._requests.submit(
            command.id,
            Origin.SIGNAL,
            [(table, command.condition_for(table)) for table in chosen],
            position=position,
            unknown=unknown,
            merge=command.merge,
            surrogate=command.surrogate_key,
            blocking=command.blocking,
            via=command.via,
        )
        return True

    def stop(self, command: StopSnapshot, position: Position, *, may_repeat: bool) -> bool:  # noqa: ARG002 - a handler
        """Cancel the unfinished tables that match; `SignalError` if none does."""
        patterns = command.data_collections

        def choose(running: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(
                table for table in running if not patterns or any(matching(each, (table,)) for each in patterns)
            )

        if not self._requests.stop(choose, automatic=bool(patterns)):
            which = f" of {', '.join(patterns)}" if patterns else ""
            message = f"no snapshot{which} is running"
            raise SignalError(message)
        return True

    def pause(self, command: PauseSnapshot, position: Position, *, may_repeat: bool) -> bool:  # noqa: ARG002 - a handler
        """Start no more chunks; `SignalError` if nothing is running."""
        if not self._requests.pause():
            message = "no snapshot is running, there is nothing to pause"
            raise SignalError(message)
        return True

    def resume(self, command: ResumeSnapshot, position: Position, *, may_repeat: bool) -> bool:  # noqa: ARG002 - a handler
        """Continue paused requests; `SignalError` if none is paused."""
        if not self._requests.resume():
            message = "no snapshot is paused"
            raise SignalError(message)
        return True


def matching(pattern: str, tables: Sequence[str]) -> tuple[str, ...]:
    """Return the tables (`db.table`) a pattern matches in full, in any letter case."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return tuple(table for table in tables if compiled.fullmatch(table))


def _nothing_matches(patterns: Sequence[str], captured: Sequence[str]) -> str:
    asked = ", ".join(repr(pattern) for pattern in patterns)
    plain = patterns[0].replace("\\", "")
    near = difflib.get_close_matches(plain, captured, n=_NEAR, cutoff=0.6)
    if near:
        return f"{asked} matches no captured table; did you mean {', '.join(near)}?"
    some = ", ".join(sorted(captured)[:_NEAR]) or "none"
    return (
        f"{asked} matches no captured table (patterns match 'database.table' in full); captured are {some}"
        f"{' ...' if len(captured) > _NEAR else ''}"
    )
