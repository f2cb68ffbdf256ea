"""Options of the consumer of a Python worker, in librdkafka's words; certificates as text: executors need no files."""

from __future__ import annotations

from typing import Final

from schemas.applied.kafka_security import client_options
from schemas.secrets import pem_of
from schemas.settings import KafkaSettings
from schemas.topics import RECORD_BYTES
from spark_jobs.kafka.read import CONSUMERS

_FILES: Final = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
_GIVEN: Final = ("security.", "ssl.", "enable.ssl", "sasl.", "client.", "socket.", "broker.", "group.id")
"""Options of a connection. Others of `kafka.options` are for the producer, and may not fit to the ones below."""
_QUEUE_KBYTES: Final = 4 << 10
"""Reading 190 MiB took 180 MiB of memory with 16 MiB, 110 MiB with this, in the same time."""
READING: Final = {
    "check.crcs": "true",
    "queued.max.messages.kbytes": str(_QUEUE_KBYTES),
    "auto.offset.reset": "error",
    "receive.message.max.bytes": str(2 * RECORD_BYTES),
    # At the end of a partition a question would delay the next one, and a small batch is all ends.
    "fetch.wait.max.ms": "5",
    "topic.metadata.propagation.max.ms": "3000",  # a topic that is not there is an error after that: it was there before
}
"""Options of a reader of slices: an error if records are gone. A broker sends one record that is larger than what was asked for:
the largest that a topic of ours takes, and room."""


def connection_options(kafka: KafkaSettings) -> dict[str, str]:
    """Return the options of `kafka.options` that a reader may have: those of a connection."""
    return {name: value for name, value in kafka.options.items() if name.startswith(_GIVEN)}


def worker_options(kafka: KafkaSettings) -> dict[str, str]:
    """Return the options: committed records only, nothing committed to a group, an error where records are gone.

    Raises `SecretError` for a file that cannot be read.
    """
    given = {
        _FILES.get(name, name): pem_of(value, f"kafka.options.{name}" if name in kafka.options else "kafka.tls")
        if name in _FILES
        else value
        for name, value in client_options(kafka).items()
        if name.startswith(_GIVEN)
    }
    return {
        "group.id": CONSUMERS,
        "socket.keepalive.enable": "true",
        "reconnect.backoff.max.ms": "2000",
        **given,
        "bootstrap.servers": kafka.bootstrap_servers,
        "log_level": "2",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": "false",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",
        # For so long it asks for nothing once its queue is full, which it is most of the time: decoding takes longer than reading.
        "fetch.queue.backoff.ms": "5",
        **READING,
    }
