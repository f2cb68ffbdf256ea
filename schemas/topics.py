"""The names of all topics of one producer, and the registry subjects that go with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from schemas.errors import ConfigError

SNAPSHOT_SUFFIX: Final = "-snapshot"
MAX_TOPIC_LENGTH: Final = 249
_NOT_TOPIC: Final = re.compile(r"[^A-Za-z0-9._-]")


def sanitise(name: str) -> str:
    """A name made valid for Kafka: characters other than `A-Z a-z 0-9 . _ -` become `_` (as Debezium)."""
    return _NOT_TOPIC.sub("_", name)


def change_topic(prefix: str, database: str, table: str) -> str:
    """The topic of a table's log events; for the signal table its signals and window rows."""
    return sanitise(f"{prefix}.{database}.{table}")


def snapshot_topic(prefix: str, database: str, table: str) -> str:
    """The topic of a table's snapshot rows and markers."""
    return sanitise(f"{prefix}{SNAPSHOT_SUFFIX}.{database}.{table}")


def notifications_topic(prefix: str) -> str:
    """The topic where every signal is answered and every snapshot tells how it goes."""
    return sanitise(f"{prefix}.notifications")


def schema_change_topic(prefix: str) -> str:
    """The topic of DDL statements."""
    return sanitise(prefix)


def signal_topic(prefix: str) -> str:
    """The topic where signals come from, unless the settings name another."""
    return sanitise(f"{prefix}-signal")


def transaction_topic(prefix: str) -> str:
    """The topic where the borders of transactions are told."""
    return sanitise(f"{prefix}.transaction")


def heartbeat_topic(prefix: str) -> str:
    """The topic of heartbeats."""
    return sanitise(f"__debezium-heartbeat.{prefix}")


def state_topic(prefix: str) -> str:
    """Our compacted topic of offsets, snapshot progress and window register."""
    return sanitise(f"{prefix}.state")


def change_topic_pattern(prefix: str) -> str:
    """A regular expression matching every change topic of the prefix, and no snapshot topic."""
    return rf"{re.escape(sanitise(prefix))}\.[^.]+\..+"


def snapshot_topic_pattern(prefix: str) -> str:
    """A regular expression matching every snapshot topic of the prefix."""
    return rf"{re.escape(sanitise(prefix) + SNAPSHOT_SUFFIX)}\.[^.]+\..+"


def key_subject(topic: str) -> str:
    """The registry subject of a topic's keys (TopicNameStrategy)."""
    return f"{topic}-key"


def value_subject(topic: str) -> str:
    """The registry subject of a topic's values (TopicNameStrategy)."""
    return f"{topic}-value"


def require_distinct_topics(prefix: str, tables: Iterable[tuple[str, str]]) -> None:
    """Refuse tables whose rows would be mixed in one topic, and names Kafka can't hold (`ConfigError`)."""
    seen: dict[str, tuple[str, str]] = {
        notifications_topic(prefix): (prefix, "notifications"),
        state_topic(prefix): (prefix, "state"),
    }
    for database, table in tables:
        for topic in (change_topic(prefix, database, table), snapshot_topic(prefix, database, table)):
            if len(topic) > MAX_TOPIC_LENGTH:
                message = f"topic {topic!r} is longer than the {MAX_TOPIC_LENGTH} characters Kafka allows"
                raise ConfigError(message)
            other = seen.setdefault(topic, (database, table))
            if other != (database, table):
                message = (
                    f"tables {'.'.join(other)} and {database}.{table} would share the topic {topic!r}; "
                    "capture only one of them"
                )
                raise ConfigError(message)
