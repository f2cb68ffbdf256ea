"""The newest documents of the state topic, and of them the offset from which the next start of the producer reads the log."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.documents import OffsetDocument
from schemas.errors import PublishError, StateError, TidemarkError
from schemas.json_codec import decode
from schemas.state import partition_of
from tidemark.status.reckoning import log_status

if TYPE_CHECKING:
    from kafkaio.committed_reader import CommittedReader
    from schemas.settings import Settings
    from tidemark.status.status_tree import LogStatus

_LAST_RECORDS: Final = 2_000
"""How much of a partition's end is read. A producer writes a liveness record every two seconds, an offset with each commit."""
_ANSWER_S: Final = 3.0


def committed_log(settings: Settings) -> LogStatus | None:
    """Return what the newest committed offset says; None if there is none, or Kafka does not answer: its own area reports that."""
    from kafkaio.committed_reader import CommittedReader

    topic, key = topics.state_topic(settings.name, settings.kafka.topic_delimiter), OffsetDocument.KEY
    try:
        with CommittedReader(settings.kafka, f"{topic}-reader", silence_s=_ANSWER_S) as reader:
            values = last_values(reader, topic, partition_of(key), key)
        return log_status(decode(OffsetDocument, json.loads(values[-1]))) if values else None
    except (TidemarkError, ValueError, KeyError, TypeError):
        return None


def last_values(reader: CommittedReader, topic: str, partition: int, key: str) -> list[bytes]:
    """Return the values of a key among the last records of a partition, the newest last; none if there is no such topic yet.

    `PublishError` if Kafka falls silent before there is any: it may have some.
    """
    one = topic, partition
    if one not in reader.partitions(topic):
        return []
    (first, end) = reader.bounds([one])[one]
    reader.begin({one: max(first, end - _LAST_RECORDS)})
    values: list[bytes] = []
    try:
        with suppress(StateError):  # those behind an open transaction are not committed
            for record in reader.read_to({one: end}):
                if record.key == key.encode():
                    values = [] if record.value is None else [*values, record.value]
    except PublishError:
        if not values:
            raise
    return values  # after an error: those that were read are better than none
