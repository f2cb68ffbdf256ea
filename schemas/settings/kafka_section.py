"""The section `kafka`: the cluster between producer and merge job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from schemas.settings.declaration import checking, problem, setting
from schemas.settings.text_forms import brokers, plain
from schemas.topics import DELIMITER

_DELIMITER: Final = re.compile(r"[A-Za-z0-9._-]{1,20}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTlsSettings:
    """How connections to the brokers are encrypted, with `security_protocol` SSL or SASL_SSL."""

    ca: str | None = setting(
        None, help="file (PEM) with the certificates that may sign the brokers'; by default the system's", file=True
    )
    cert: str | None = setting(None, help="file (PEM) with the client's certificate", file=True)
    key: str | None = setting(None, help="file (PEM) with the client's private key", file=True)
    key_password: str = setting("", help="what that key is encrypted with; better: `key_password_file`", secret=True)
    key_password_file: str | None = setting(None, help="file whose first line is that", file=True)
    verify_hostname: bool = setting(default=True, help="whether the brokers' certificates must have their host names")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """Who we are, with `security_protocol` SASL_PLAINTEXT or SASL_SSL."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = setting(
        "SCRAM-SHA-512", help="how the password is shown"
    )
    username: str | None = setting(None, help="user of the brokers", form=plain)
    password: str = setting("", help="that user's password; better: `password_file`", secret=True)
    password_file: str | None = setting(
        None, help="file whose first line is the password, read again for each connection of a start", file=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The cluster between producer and merge job."""

    bootstrap_servers: str = setting("127.0.0.1:9092", help="brokers to begin with, `host:port,host:port`", form=brokers)
    partitions: int = setting(4, help="partitions of a change or snapshot topic we create", minimum=1, maximum=10_000)
    topic_delimiter: str = setting(
        DELIMITER,
        help="the separator of the parts of topic names, and of the names of schemas, as Debezium's `topic.delimiter`; "
        "another one means new topics, and a new start",
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = setting(
        "lz4", help="compression of the records"
    )
    commit_interval_ms: int = setting(
        250,
        help="milliseconds from one Kafka transaction to the next while the log is read to its end: consumers see rows that much "
        "later. A smaller one costs CPU here and in the brokers, and records in the state topic. With a backlog it is 250",
        minimum=5,
        maximum=250,
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = setting(
        "PLAINTEXT", help="whether connections are encrypted (`tls`), and authenticated (`sasl`)"
    )
    tls: KafkaTlsSettings = setting(KafkaTlsSettings(), help="encryption of the connections")
    sasl: SaslSettings = setting(SaslSettings(), help="who we are")
    options: Mapping[str, str] = setting(
        {},
        help="further librdkafka options of every client; they win over the settings above. The merge job takes those of "
        "TLS and SASL, and refuses what Java's client has not",
        secret=True,
    )


@checking
def check_kafka(kafka: KafkaSettings) -> Iterator[str]:
    """Raise `ConfigError` if settings of the section exclude each other."""
    if _DELIMITER.match(kafka.topic_delimiter) is None:
        delimiter = kafka.topic_delimiter
        yield problem("kafka.topic_delimiter", f"{delimiter!r} cannot stand in a topic's name: 1 to 20 of A-Z a-z 0-9 . _ -")
    tls, sasl = kafka.tls, kafka.sasl
    if kafka.security_protocol.startswith("SASL"):
        if sasl.username is None and "sasl.username" not in kafka.options:
            yield problem("kafka.sasl.username", f"is missing, and security_protocol is {kafka.security_protocol}")
    elif sasl.username is not None:
        yield problem("kafka.sasl", f"is not used with security_protocol: {kafka.security_protocol}; set SASL_SSL")
    if not kafka.security_protocol.endswith("SSL") and tls != KafkaTlsSettings():
        yield problem("kafka.tls", f"is not used with security_protocol: {kafka.security_protocol}; set SSL or SASL_SSL")
    if sasl.password and sasl.password_file is not None:
        yield problem("kafka.sasl.password_file", "password and password_file are both given; keep the file")
    if tls.key_password and tls.key_password_file is not None:
        yield problem("kafka.tls.key_password_file", "key_password and key_password_file are both given; keep the file")
    if (tls.cert is None) != (tls.key is None):
        yield problem("kafka.tls.key", "and cert go together; give both")
