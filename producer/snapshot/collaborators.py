"""What the snapshot side needs of its neighbours, as protocols: signals of `producer.control`, the threads of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from producer.snapshot.outbox import Outbox
    from schemas.notifications import Notification
    from schemas.position import Position
    from schemas.signals import Command


class Signal(Protocol):
    """One row of the signal table: Debezium's `(id, type, data)`."""

    @property
    def id(self) -> str:
        """The row's id."""

    @property
    def type(self) -> str:
        """The command, or the kind of a window row."""

    @property
    def data(self) -> str | None:
        """What the command has as JSON."""


class Worker(Protocol):
    """What a thread of the coordinator runs."""

    def run(self) -> None:
        """Work until the process stops."""

    def break_off(self) -> None:
        """Give up what the thread may be waiting for; called by another thread."""


class NamedWorker(Worker, Protocol):
    """A worker that knows the name of its thread."""

    @property
    def name(self) -> str:
        """The name."""


class CommandHandler(Protocol):
    """What carries out the commands of one type; `SignalError` where that is not possible."""

    def __call__(self, command: Any, position: Position, *, may_repeat: bool) -> bool:
        """Carry the command out; return False if it was carried out before."""


class Control(Protocol):
    """Signals in, answers out: `producer.control.signal_control.SignalControl`."""

    @property
    def has_arrived(self) -> bool:
        """Whether a signal waits for a checkpoint to carry it out."""

    def register(self, command: type[Command], handler: CommandHandler) -> None:
        """Have commands of that type carried out by that handler."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue each channel where its document says."""

    def workers(self) -> Sequence[NamedWorker]:
        """Return the workers that poll channels."""

    def stop(self) -> None:
        """End polling."""

    def answer(self, row: Any, position: Position, answers: Outbox) -> None:
        """Carry out and answer a row of the signal table."""

    def answer_arrived(self, position: Position, answers: Outbox) -> dict[str, Mapping[str, Any]]:
        """Carry out and answer what came by other channels; return the channels' documents."""

    def encode(self, notification: Notification) -> tuple[bytes, bytes]:
        """Return key and value of a notification's record."""
