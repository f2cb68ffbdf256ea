"""The registry of commands: a signal is parsed, carried out by the handler of its command, and answered (pure)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from schemas.errors import SignalError
from schemas.notifications import Notification, signal_accepted, signal_rejected
from schemas.position import Position
from schemas.signals import Command, LogMessage, parse_signal

if TYPE_CHECKING:
    from producer.control.signal_row import SignalRow

log = structlog.get_logger(__name__)


class Handler(Protocol):
    """What carries out the commands of one type."""

    def __call__(self, command: Any, position: Position, *, may_repeat: bool) -> bool:
        """Carry the command out; return False if it was carried out before and needs no second answer.

        `position` is the position of the signal's transaction. `may_repeat`: the same signal may come again after a restart.
        Raises `SignalError` if it cannot be carried out: that is the answer its sender gets.
        """


class CommandRegistry:
    """Handlers by the type of the command. `name` is the connector's, in every answer."""

    def __init__(self, name: str, now_ms: Callable[[], int]) -> None:
        self._name = name
        self._now_ms = now_ms
        self._handlers: dict[type, Handler] = {LogMessage: _log_message}

    def register(self, command: type[Command], handler: Handler) -> None:
        """Have commands of that type carried out by that handler."""
        self._handlers[command] = handler

    def answer(
        self, row: SignalRow, position: Position, answers: list[Notification], *, may_repeat: bool = True
    ) -> None:
        """Carry a signal out and answer it: ACCEPTED, before the notifications of its handler, or REJECTED with the reason.

        `answers` are the notifications that wait to be sent, in order; handlers add to the same ones.
        """
        before = len(answers)
        try:
            command = parse_signal(row.id, row.type, row.data)
            is_new = self._handler(command)(command, position, may_repeat=may_repeat)
        except SignalError as error:
            self.reject(row, str(error), answers)
            return
        if is_new:
            log.info("signal.accepted", id=row.id, type=row.type)
            answers.insert(before, signal_accepted(self._name, row.id, row.type, self._now_ms()))

    def reject(self, row: SignalRow, reason: str, answers: list[Notification]) -> None:
        """Answer a signal that cannot be carried out."""
        log.warning("signal.rejected", id=row.id, type=row.type, reason=reason)
        answers.append(signal_rejected(self._name, row.id, row.type, self._now_ms(), reason))

    def _handler(self, command: Command) -> Handler:
        handler = self._handlers.get(type(command))
        if handler is None:
            message = "this producer has no handler for such a signal"
            raise SignalError(message)
        return handler


def _log_message(command: LogMessage, position: Position, *, may_repeat: bool) -> bool:  # noqa: ARG001 - a handler
    log.info("signal.message", id=command.id, message=command.message.replace("{}", position.text))
    return True
