"""Single records, outside of transactions: each is one of its own, and a failed delivery is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafkaio.client import client_config, failure, opened
from schemas.applied.kafka_security import client_options
from schemas.errors import PublishError

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings


class RecordWriter:
    """A writer of single records; for one thread at a time. Its errors are `PublishError` with the reason that Kafka gives."""

    def __init__(self, kafka: KafkaSettings, options: Mapping[str, Any] | None = None) -> None:
        config = client_config(kafka.bootstrap_servers, {**client_options(kafka), **(options or {})})
        self._producer = opened(Producer, config)
        self._failure: KafkaError | None = None

    def has_topic(self, topic: str, within_s: float) -> bool:
        """Return whether a broker reports this topic to our user. `PublishError` if none answers in time."""
        try:
            return self._producer.list_topics(topic, timeout=within_s).topics[topic].error is None
        except KafkaException as error:
            raise failure(error.args[0].str(), error.args[0]) from error

    def produce(self, topic: str, value: bytes, key: str | bytes, partition: int) -> None:
        """Hand a record to the client. `PublishError` if it takes none; a failed delivery is raised by `poll` and `flush`."""
        try:
            self._producer.produce(topic, value, key, partition, on_delivery=self._delivered)
        except KafkaException as error:
            raise failure(error.args[0].str(), error.args[0]) from error
        except BufferError as error:
            raise PublishError(str(error)) from error

    def poll(self) -> None:
        """Raise `PublishError` if a record was not delivered since the last call."""
        self._producer.poll(0)
        cause, self._failure = self._failure, None
        if cause is not None:
            raise failure(cause.str(), cause)

    def flush(self, within_s: float) -> None:
        """Wait until every record is delivered. `PublishError` if one was not, or has no answer in time."""
        unanswered = self._producer.flush(within_s)
        self.poll()
        if unanswered:
            raise PublishError("no answer in time")

    def _delivered(self, error: KafkaError | None, _record: Message) -> None:
        self._failure = self._failure or error
