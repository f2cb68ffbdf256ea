"""Carries out the commands of signals on the snapshot ledger, and words the answers (pure)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from producer.snapshot.documents import Origin
from producer.snapshot.ledger import SnapshotLedger, require_new
from schemas.errors import SignalError
from schemas.notifications import signal_accepted, signal_rejected
from schemas.position import Position
from schemas.signals import (
    Command,
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    StopSnapshot,
    parse_signal,
)

if TYPE_CHECKING:
    from producer.control.signal_row import SignalRow

log = structlog.get_logger(__name__)

_NEAR: Final = 3
_NO_WINDOWS: Final = (
    "snapshots of type INCREMENTAL need a signal table for their windows: set source.signal_table (or source.read_only), "
    "or ask for BLOCKING"
)


def answer(
    row: SignalRow,
    position: Position,
    ledger: SnapshotLedger,
    captured: Iterable[str],
    name: str,
    now_ms: int,
    *,
    windows: bool = True,
) -> None:
    """Carry a signal out and answer it: ACCEPTED, or REJECTED with the reason, in words.

    `position` is that of the row's transaction: the same row met again after a restart does nothing.
    `captured` are the tables there are, as `db.table`; `name` is the connector's. `windows`: there is a signal table
    whose rows can open them.
    """
    before = ledger.notifications_waiting
    try:
        command = parse_signal(row.id, row.type, row.data)
        if isinstance(command, ExecuteSnapshot) and not (windows or command.blocking):
            raise SignalError(_NO_WINDOWS)
        told = _carry_out(command, position, ledger, tuple(captured))
    except SignalError as error:
        log.warning("signal.rejected", id=row.id, type=row.type, reason=str(error))
        ledger.notify(signal_rejected(name, row.id, row.type, now_ms, str(error)))
        return
    if told:
        log.info("signal.accepted", id=row.id, type=row.type)
        ledger.notify_at(before, signal_accepted(name, row.id, row.type, now_ms))


def _carry_out(
    command: Command, position: Position, ledger: SnapshotLedger, captured: tuple[str, ...]
) -> bool:
    """Whether the command is new, and so needs an answer."""
    if isinstance(command, ExecuteSnapshot):
        return _execute(command, position, ledger, captured)
    if isinstance(command, StopSnapshot):
        _stop(command, ledger)
    elif isinstance(command, PauseSnapshot):
        if not ledger.pause():
            message = "no snapshot is running, there is nothing to pause"
            raise SignalError(message)
    elif isinstance(command, ResumeSnapshot):
        if not ledger.resume():
            message = "no snapshot is paused"
            raise SignalError(message)
    else:
        _log(command, position)
    return True


def _execute(
    command: ExecuteSnapshot, position: Position, ledger: SnapshotLedger, captured: tuple[str, ...]
) -> bool:
    if not require_new(ledger, command.id, position):
        return False
    found: dict[str, None] = {}
    unknown: list[str] = []
    for pattern in command.data_collections:
        tables = matching(pattern, captured)
        found.update(dict.fromkeys(tables))
        if not tables:
            unknown.append(pattern)
    if not found:
        raise SignalError(_nothing_matches(unknown, captured))
    chosen = [(table, command.condition_for(table)) for table in found]
    ledger.submit(
        command.id,
        Origin.SIGNAL,
        chosen,
        position=position,
        unknown=unknown,
        merge=command.merge,
        surrogate=command.surrogate_key,
        blocking=command.blocking,
    )
    return True


def _stop(command: StopSnapshot, ledger: SnapshotLedger) -> None:
    def choose(running: tuple[str, ...]) -> tuple[str, ...]:
        patterns = command.data_collections
        return tuple(
            table for table in running if not patterns or any(matching(each, (table,)) for each in patterns)
        )

    if not ledger.stop(choose, automatic=bool(command.data_collections)):
        which = f" of {', '.join(command.data_collections)}" if command.data_collections else ""
        message = f"no snapshot{which} is running"
        raise SignalError(message)


def _log(command: LogMessage, position: Position) -> None:
    log.info("signal.message", id=command.id, message=command.message.replace("{}", position.text))


def matching(pattern: str, tables: Sequence[str]) -> tuple[str, ...]:
    """The tables (`db.table`) a pattern matches in full, in any letter case."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return tuple(table for table in tables if compiled.fullmatch(table))


def _nothing_matches(patterns: Sequence[str], captured: Sequence[str]) -> str:
    asked = ", ".join(repr(pattern) for pattern in patterns)
    plain = patterns[0].replace("\\", "")
    near = difflib.get_close_matches(plain, captured, n=_NEAR, cutoff=0.6)
    if near:
        return f"{asked} matches no captured table; near are {', '.join(near)}"
    some = ", ".join(sorted(captured)[:_NEAR]) or "none"
    return (
        f"{asked} matches no captured table (patterns match 'database.table' in full); captured are {some}"
        f"{' ...' if len(captured) > _NEAR else ''}"
    )
