"""Clients of Kafka that have lost every broker, as librdkafka's do where a broker reports that there is none: they never answer again."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException


class LostClient:
    """In the place of a consumer or an admin client; `client` is what is closed in the end."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def poll(self, timeout: float = 0.0) -> None:
        time.sleep(timeout)

    def list_topics(self, *_: object, timeout: float) -> None:
        time.sleep(min(timeout, 0.2))
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def get_watermark_offsets(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))

    def close(self) -> None:
        self._client.close()
