"""The last liveness record of a producer, read from the end of its state topic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from kafkaio.committed_reader import SOON, CommittedReader
from kafkaio.slices import Slice
from schemas.errors import StateError
from schemas.json_codec import decode
from schemas.liveness import SIGN_KEY, Sign
from schemas.state import partition_of
from schemas.topics import state_topic

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings

_BEHIND: Final = (200, 5_000, 50_000)
"""So many offsets before the end are read, until there is a liveness record: a producer writes one every two seconds."""


def last_sign(kafka: KafkaSettings, name: str) -> Sign | None:
    """Return the last liveness record of a source's producer; None without one near the end of its state topic.

    Errors as `CommittedReader`; `StateError` for a record that is not understood.
    """
    topic = state_topic(name, kafka.topic_delimiter)
    one = (topic, partition_of(SIGN_KEY))
    with CommittedReader(kafka, f"{topic}-reader", SOON) as reader:
        if one not in reader.partitions(topic):
            return None
        first, end = reader.bounds([one])[one]
        for begin in sorted({max(first, end - behind) for behind in _BEHIND}, reverse=True) if end > first else ():
            values = [record.value for record in reader.read_slices([Slice(*one, begin, end)]) if record.key == SIGN_KEY.encode()]
            if values:
                return _parsed(topic, values[-1] or b"")
    return None


def _parsed(topic: str, value: bytes) -> Sign:
    try:
        return decode(Sign, json.loads(value))
    except (ValueError, KeyError, TypeError) as error:
        message = f"the liveness record in {topic} is not understood, or of a newer version: {error}"
        raise StateError(message) from error
