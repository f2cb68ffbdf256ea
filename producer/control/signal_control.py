"""What the rest of the producer has of this package: commands in, answers out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from producer.control.command_registry import CommandRegistry
from producer.control.notification_encoder import NotificationEncoder
from producer.control.signal_inbox import SignalInbox

if TYPE_CHECKING:
    from producer.control.channels import Arrived, SignalChannel
    from producer.control.command_registry import Answers, Handler
    from producer.control.signal_inbox import ChannelWorker
    from producer.control.signal_row import SignalRow
    from schemas.notifications import Notification
    from schemas.position import Position
    from schemas.settings import Settings
    from schemas.signals import Command

_ROW_KEYS: Final = frozenset({"maximum_key", "last_processed_key"})


class SignalControl:
    """Registry, inbox and encoder, composed. `register` is the schema registry's (`NotificationEncoder`)."""

    def __init__(
        self,
        settings: Settings,
        channels: Sequence[SignalChannel] = (),
        register: Callable[[str, str], int] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._registry = CommandRegistry(settings.name, now_ms)
        self._inbox = SignalInbox(channels, settings.signal.poll_interval_ms / 1000)
        self._encoder = NotificationEncoder(
            settings.name, settings.format, register, settings.kafka.topic_delimiter
        )
        self._masks = settings.records.masks()

    def register(self, command: type[Command], handler: Handler) -> None:
        """Have commands of that type carried out by that handler."""
        self._registry.register(command, handler)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue each channel where its document says."""
        self._inbox.restore(state)

    def workers(self) -> list[ChannelWorker]:
        """Return the workers that poll the channels."""
        return self._inbox.workers()

    def stop(self) -> None:
        """End polling."""
        self._inbox.stop()

    @property
    def has_arrived(self) -> bool:
        """Whether a signal waits for a checkpoint to carry it out."""
        return not self._inbox.is_empty

    def answer(self, row: SignalRow, position: Position, answers: Answers) -> None:
        """Carry out and answer a row of the signal table; the same row may be read again after a restart."""
        self._registry.answer(row, position, answers)

    def answer_arrived(self, position: Position, answers: Answers) -> dict[str, Mapping[str, Any]]:
        """Carry out and answer what came by other channels; return the channels' documents.

        They are to be committed in the Kafka transaction of the effects and answers: so none is carried out twice, and none
        is lost.
        """

        def carry_out(signal: Arrived) -> None:
            if signal.problem:
                self._registry.reject(signal.row, signal.problem, answers)
            else:
                self._registry.answer(signal.row, position, answers, may_repeat=False)

        return self._inbox.drain(carry_out)

    def encode(self, notification: Notification) -> tuple[bytes, bytes]:
        """Return key and value of a notification's record; without keys of rows where columns are masked."""
        if self._masks:
            data = {n: text for n, text in notification.additional_data.items() if n not in _ROW_KEYS}
            notification = replace(notification, additional_data=data)
        return self._encoder.encode(notification)
