"""What the rest of the producer has of this package: commands in, answers out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from producer.control.command_registry import CommandRegistry
from producer.control.notification_encoder import NotificationEncoder
from producer.control.signal_inbox import SignalInbox
from producer.kafka.connect_records import RecordEncoder
from schemas import topics
from schemas.notifications import NOTIFICATION_KEY, NOTIFICATION_VALUE

if TYPE_CHECKING:
    from producer.control.channels import Arrived, SignalChannel
    from producer.kafka.registry import SchemaIdRegistry
    from schemas.notifications import Notification
    from schemas.position import Position
    from schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class SignalControl:
    """The parts of this package, for one start."""

    commands: CommandRegistry
    inbox: SignalInbox
    encoder: NotificationEncoder

    @classmethod
    def of(
        cls,
        settings: Settings,
        channels: Sequence[SignalChannel] = (),
        registry: SchemaIdRegistry | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> Self:
        """Make the parts for these settings. Avro needs the `registry`, at the first notification."""
        topic = topics.notifications_topic(settings.name, settings.kafka.topic_delimiter)
        records = RecordEncoder(topic, NOTIFICATION_KEY, NOTIFICATION_VALUE, settings.format, registry)
        return cls(
            CommandRegistry(settings.name, now_ms),
            SignalInbox(channels, settings.signal.poll_interval_ms / 1000),
            NotificationEncoder(records, hides_keys=bool(settings.records.masks())),
        )

    def answer_arrived(self, position: Position, answers: list[Notification]) -> dict[str, Mapping[str, Any]]:
        """Carry out and answer what came by other channels; return the channels' documents.

        They are to be committed in the Kafka transaction of the effects and answers: so none is carried out twice, and none
        is lost.
        """

        def carry_out(signal: Arrived) -> None:
            if signal.problem:
                self.commands.reject(signal.row, signal.problem, answers)
            else:
                self.commands.answer(signal.row, position, answers, may_repeat=False)

        return self.inbox.drain(carry_out)
