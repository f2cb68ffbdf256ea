"""Producing in tests, so that no record is lost silently."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

_PATIENCE_S: Final = 120.0


class RecordProducer(Producer):
    """A producer of confluent-kafka whose `flush` fails if a record was not delivered, or has no answer in time."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self._failures: list[str] = []

    def produce(
        self, topic: str, value: str | bytes | None = None, key: str | bytes | None = None, partition: int = -1, **more: Any
    ) -> None:
        super().produce(topic, value, key, partition, on_delivery=self._delivered, **more)

    def flush(self, timeout: float = _PATIENCE_S) -> int:
        unanswered = super().flush(timeout)
        failures, self._failures = self._failures, []
        assert not failures, failures
        assert not unanswered, f"{unanswered} records have no answer after {timeout:g} s"
        return 0

    def _delivered(self, error: KafkaError | None, record: Message) -> None:
        if error is not None:
            self._failures.append(f"{record.topic()}[{record.partition()}]: {error.str()}")
        elif record.offset() is None:  # a repeat that the broker called out of order: it may be lost (`TopicAdmin.ensure`)
            self._failures.append(f"{record.topic()}[{record.partition()}]: acknowledged without an offset")
