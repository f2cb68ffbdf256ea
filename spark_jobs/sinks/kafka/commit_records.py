"""The commits of a sink in Kafka: the newest record of each target in the topic `<sink>.tidemark`.

A record is in the transaction of the messages that it commits. Read to the uncommitted end after a fence, the topic says all that
ever was committed, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from threading import RLock
from typing import Any, Final

from schemas.errors import SinkError
from schemas.identity import Target
from schemas.topics import RECORD_BYTES
from spark_jobs.sinks.changelog_events import Appended
from spark_jobs.sinks.changelog_only import appended_document, appended_of
from spark_jobs.sinks.contract import REMEDY
from spark_jobs.sinks.kafka.kafka_client import KafkaClient, Transaction

_VERSION: Final = 1
_TOPIC_CONFIG: Final = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "max.message.bytes": str(RECORD_BYTES),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The number of the last step of a mirror whose messages are sent, -1 for none; and how many partitions the topic has."""

    sent: int
    partitions: int


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The last commit of a target: query and batch, its topic with the topic's id, and how far it is.

    `appended` says it of each source table of a changelog; `mirrored` of a mirror, for which `appended` is empty. The first one, of
    batch `MADE`, has no messages: it says that the topic is ours.
    """

    query_id: str
    batch_id: int
    topic: str
    topic_id: str
    appended: Mapping[str, Appended] = field(default_factory=dict)
    stamp: Mapping[str, Any] = field(default_factory=dict)
    mirrored: Mirrored | None = None

    @property
    def text(self) -> str:
        """The JSON text that `parsed` reads."""
        document: dict[str, Any] = {
            "v": _VERSION,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "appended": appended_document(self.appended),
            "stamp": dict(self.stamp),
        }
        if self.mirrored is not None:
            document["mirrored"] = asdict(self.mirrored)
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


class CommitRecords:
    """The commit records of one sink, read once after each fence. a thread has `lock` for a whole transaction."""

    def __init__(self, client: KafkaClient, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.lock = RLock()
        self._known: dict[str, CommitRecord] | None = None

    def open(self) -> None:
        """Fence all other writers, and read what they have committed."""
        with self.lock:
            self._known = None
            self.client.fence()
            self._read()

    def of(self, target: Target) -> CommitRecord | None:
        """Return the last commit of a target; None where there is none."""
        with self.lock:
            return self._read().get(target.text)

    def add(self, transaction: Transaction, target: Target, record: CommitRecord | None) -> None:
        """Add the record of a target to the transaction that it commits; None has the target forgotten."""
        transaction.produce(self.topic, target.text, None if record is None else record.text, partition=0)

    def note(self, target: Target, record: CommitRecord | None) -> None:
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

    def _read(self) -> dict[str, CommitRecord]:
        if not self.client.is_fenced:
            self._known = None
            self.client.fence()
        if self._known is None:
            self.client.create_topic(self.topic, 1, _TOPIC_CONFIG)
            found: dict[str, CommitRecord] = {}
            for key, value in self.client.committed_records(self.topic):
                name = (key or b"").decode()
                if value is None:
                    found.pop(name, None)
                else:
                    found[name] = self._parsed(value)
            self._known = found
        return self._known

    def _parsed(self, value: bytes) -> CommitRecord:
        try:
            document = json.loads(value)
            if document["v"] != _VERSION:
                raise ValueError(f"it has version {document['v']}, this job knows {_VERSION}: upgrade it")
            query_id, batch_id, topic, topic_id = (document[name] for name in ("query_id", "batch_id", "topic", "topic_id"))
            appended, stamp = appended_of(document["appended"]), document["stamp"]
            mirrored = Mirrored(**document["mirrored"]) if "mirrored" in document else None
            return CommitRecord(query_id, batch_id, topic, topic_id, appended, stamp, mirrored)
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(f"topic {self.topic} has a record that is no commit of a sink: {error}; {REMEDY}") from error
