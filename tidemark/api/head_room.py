"""How long Kafka keeps the records that a reader of commit records needs next."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from kafkaio.committed_reader import OPEN_END, SOON, CommittedReader
from kafkaio.topic_admin import TopicAdmin
from schemas.topics import commits_topic, schema_change_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.settings import KafkaSettings


class KafkaHeadRoom(NamedTuple):
    """Kafka keeps the next records for so many seconds at least; None: unknown. `is_kept`: it removes none by time or size."""

    seconds: float | None
    is_kept: bool | None


def read_head_room(kafka: KafkaSettings, source: str, offset: int) -> KafkaHeadRoom:
    """Return the head room of a reader whose next commit record is at `offset` or behind it. Errors as `CommittedReader`.

    Rows are written with their commit record in one Kafka transaction. So the time in Kafka of the next commit record, and the
    shortest retention of the source's topics, say when the first row may be removed.
    """
    commits = commits_topic(source, kafka.topic_delimiter)
    with CommittedReader(kafka, f"{commits}-reader", SOON) as reader:
        tables = f"{source}{kafka.topic_delimiter}"
        named = [topic for topic in reader.topics() if topic.startswith(tables) and kafka.topic_delimiter in topic[len(tables) :]]
        first, _ = reader.bounds([(commits, 0)])[commits, 0]
        reader.begin({(commits, 0): max(first, offset)})
        record = next(iter(reader.read_to({(commits, 0): OPEN_END})), None)
    kept_s = _kept_s(TopicAdmin(kafka).configs([commits, schema_change_topic(source), *named]).values())
    if offset < first:
        return KafkaHeadRoom(0.0, is_kept=False)
    if kept_s is None or (record is not None and record.timestamp_ms is None):
        return KafkaHeadRoom(None, is_kept=None)
    if kept_s == math.inf:
        return KafkaHeadRoom(None, is_kept=True)
    age_s = 0.0 if record is None or record.timestamp_ms is None else time.time() - record.timestamp_ms / 1000
    return KafkaHeadRoom(max(0.0, kept_s - age_s), is_kept=False)


def _kept_s(configs: Iterable[Mapping[str, str]]) -> float | None:
    """Return the shortest retention of topics; None if one of them is limited by its size, or compacted: that has no time."""
    shortest = math.inf
    for config in configs:
        if config.get("cleanup.policy", "delete") != "delete" or int(config.get("retention.bytes") or -1) >= 0:
            return None
        kept_ms = int(config.get("retention.ms") or -1)
        if kept_ms >= 0:
            shortest = min(shortest, kept_ms / 1000)
    return shortest
