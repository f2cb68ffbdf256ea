"""The commits of a sink in Kafka: the newest record of each target in the topic `<sink>.tidemark`.

A record is in the transaction of the messages that it commits. Read to the uncommitted end after a fence, the topic says all that
ever was committed, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Any, ClassVar, Final

from schemas.errors import SinkError
from schemas.identity import Target
from schemas.json_codec import Form, encode, json_field
from schemas.topics import RECORD_BYTES
from spark_jobs.sinks.changelog_events import VERSIONED, Appended, read_versioned
from spark_jobs.sinks.contract import REMEDY
from spark_jobs.sinks.kafka.kafka_client import KafkaClient, Transaction

_TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "max.message.bytes": str(RECORD_BYTES),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The number of the last step of a mirror whose messages are sent, -1 for none; and how many partitions the topic has."""

    sent: int
    partitions: int


@dataclass(frozen=True, slots=True)
class SinkCommit:
    """The last commit of a target: query and batch, its topic with the topic's id, and how far it is.

    `appended` says it of each source table of a changelog; `mirrored` of a mirror, for which `appended` is empty. The first one, of
    batch `MADE`, has no messages: it says that the topic is ours.
    """

    JSON: ClassVar[Form] = VERSIONED
    query_id: str
    batch_id: int
    topic: str
    topic_id: str
    appended: Mapping[str, Appended] = json_field(factory=dict, required=True)
    stamp: Mapping[str, Any] = json_field(factory=dict, required=True)
    mirrored: Mirrored | None = json_field(None, omits_default=True)


class SinkCommits:
    """The commit records of one sink, read once after each fence. a thread has `lock` for a whole transaction."""

    def __init__(self, client: KafkaClient, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.lock = RLock()
        self._known: dict[str, SinkCommit] | None = None

    def open(self) -> None:
        """Fence all other writers, and read what they have committed."""
        with self.lock:
            self._known = None
            self.client.fence()
            self._read()

    def of(self, target: Target) -> SinkCommit | None:
        """Return the last commit of a target; None where there is none."""
        with self.lock:
            return self._read().get(target.text)

    def add(self, transaction: Transaction, target: Target, record: SinkCommit | None) -> None:
        """Add the record of a target to the transaction that it commits; None has the target forgotten."""
        text = None if record is None else json.dumps(encode(record), separators=(",", ":"), ensure_ascii=False)
        transaction.produce(self.topic, target.text, text, partition=0)

    def note(self, target: Target, record: SinkCommit | None) -> None:
        """Remember a record whose transaction is committed."""
        known = self._read()
        if record is None:
            known.pop(target.text, None)
        else:
            known[target.text] = record

    def forget(self) -> None:
        """Take nothing for granted any longer: the topic is read again."""
        with self.lock:
            self._known = None

    def _read(self) -> dict[str, SinkCommit]:
        if not self.client.is_fenced:
            self._known = None
            self.client.fence()
        if self._known is None:
            self.client.create_topic(self.topic, 1, _TOPIC_CONFIG)
            found: dict[str, SinkCommit] = {}
            for key, value in self.client.committed_records(self.topic):
                name = (key or b"").decode()
                if value is None:
                    found.pop(name, None)
                else:
                    found[name] = self._parsed(value)
            self._known = found
        return self._known

    def _parsed(self, value: bytes) -> SinkCommit:
        try:
            return read_versioned(SinkCommit, value)
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(f"topic {self.topic} has a record that is no commit of a sink: {error}; {REMEDY}") from error
