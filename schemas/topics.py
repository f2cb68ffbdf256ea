"""The names of all topics of one producer, how large their records may be, and the registry subjects that go with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from schemas.errors import ConfigError
from schemas.identity import TableName

DELIMITER: Final = "."
"""The separator of the parts of a topic's name, unless the settings say otherwise."""
SNAPSHOT_SUFFIX: Final = "-snapshot"
MAX_TOPIC_LENGTH: Final = 249
RECORD_BYTES: Final = 192 << 20
"""The largest record, uncompressed: both images of a row of 64 MiB, and room for what is around them."""
GENERATION: Final = "tidemark.generation"
"""Property of a schema that distinguishes it from itself, if a registry gives ids a second time."""
_NOT_TOPIC: Final = re.compile(r"[^A-Za-z0-9._-]")
_NAMES: Final = re.compile(r"\$(database|table)|\$\{(database|table)\}")


def sanitise(name: str) -> str:
    """Return a name made valid for Kafka: characters other than `A-Z a-z 0-9 . _ -` become `_` (as Debezium)."""
    return _NOT_TOPIC.sub("_", name)


def target_topic(template: str, database: str, table: str) -> str:
    """Return the topic of a target of a sink: `$database` and `$table` in the template are the names of the target."""
    parts = {"database": database, "table": table}
    return sanitise(_NAMES.sub(lambda match: parts[match[1] or match[2]], template))


def change_topic(prefix: str, database: str, table: str, delimiter: str = DELIMITER) -> str:
    """Return the topic of a table's log events; for the signal table its signals and window rows."""
    return sanitise(delimiter.join((prefix, database, table)))


def snapshot_topic(prefix: str, database: str, table: str, delimiter: str = DELIMITER) -> str:
    """Return the topic of a table's snapshot rows and markers."""
    return sanitise(delimiter.join((prefix + SNAPSHOT_SUFFIX, database, table)))


def notifications_topic(prefix: str, delimiter: str = DELIMITER) -> str:
    """Return the topic of answers to signals, and of the progress of snapshots."""
    return sanitise(f"{prefix}{delimiter}notifications")


def schema_change_topic(prefix: str) -> str:
    """Return the topic of DDL statements."""
    return sanitise(prefix)


def signal_topic(prefix: str) -> str:
    """Return the topic where signals come from, unless the settings name another."""
    return sanitise(f"{prefix}-signal")


def transaction_topic(prefix: str, delimiter: str = DELIMITER) -> str:
    """Return the topic of the transaction boundaries."""
    return sanitise(f"{prefix}{delimiter}transaction")


def commits_topic(prefix: str, delimiter: str = DELIMITER) -> str:
    """Return the topic of commit records (`schemas.commit_records`)."""
    return sanitise(f"{prefix}{delimiter}commits")


def members_topic(group: str) -> str:
    """Return the topic of the members of a group (`schemas.members`): the sources of a group may have other delimiters."""
    return sanitise(f"{group}{DELIMITER}members")


def heartbeat_topic(prefix: str, delimiter: str = DELIMITER) -> str:
    """Return the topic of heartbeats."""
    return sanitise(f"__debezium-heartbeat{delimiter}{prefix}")


def state_topic(prefix: str, delimiter: str = DELIMITER) -> str:
    """Our compacted topic of offsets, snapshot progress and window register."""
    return sanitise(f"{prefix}{delimiter}state")


def change_topic_pattern(prefix: str, delimiter: str = DELIMITER) -> str:
    """Return a regular expression matching every change topic of the prefix, and no other topic of ours but snapshot topics.

    Those it matches only with another delimiter than `.`, where names alone do not distinguish them.
    """
    return _pattern(prefix, delimiter)


def snapshot_topic_pattern(prefix: str, delimiter: str = DELIMITER) -> str:
    """Return a regular expression matching every snapshot topic of the prefix."""
    return _pattern(prefix + SNAPSHOT_SUFFIX, delimiter)


def _pattern(head: str, delimiter: str) -> str:
    database = "[^.]+" if delimiter == DELIMITER else ".+"
    return rf"{re.escape(sanitise(head + delimiter))}{database}{re.escape(delimiter)}.+"


def key_subject(topic: str) -> str:
    """Return the registry subject of a topic's keys (TopicNameStrategy)."""
    return f"{topic}-key"


def value_subject(topic: str) -> str:
    """Return the registry subject of a topic's values (TopicNameStrategy)."""
    return f"{topic}-value"


def require_distinct_topics(
    prefix: str, tables: Iterable[tuple[str, str]], delimiter: str = DELIMITER
) -> None:
    """Refuse tables whose rows would be mixed in one topic, and names Kafka can't have (`ConfigError`)."""
    for message in without_topics(prefix, tables, delimiter).values():
        raise ConfigError(message)


def without_topics(
    prefix: str, tables: Iterable[tuple[str, str]], delimiter: str = DELIMITER
) -> dict[tuple[str, str], str]:
    """Return the tables that can have no topics or no name of their own beside those named before them, and why."""
    found: dict[tuple[str, str], str] = {}
    named: dict[str, tuple[str, str]] = {}
    seen: dict[str, tuple[tuple[str, str], str]] = {
        _collision(topic): ((prefix, name), topic)
        for name, topic in (
            ("notifications", notifications_topic(prefix, delimiter)),
            ("state", state_topic(prefix, delimiter)),
        )
    }
    for database, table in tables:
        wanted = [name(prefix, database, table, delimiter) for name in (change_topic, snapshot_topic)]
        for topic in wanted:
            if len(topic) > MAX_TOPIC_LENGTH:
                message = f"topic {topic!r} is longer than the {MAX_TOPIC_LENGTH} characters Kafka allows"
                found.setdefault((database, table), message)
            other, theirs = seen.get(_collision(topic), ((database, table), topic))
            if other != (database, table):
                ways = "" if delimiter == DELIMITER and theirs == topic else ", or choose another kafka.topic_delimiter"
                shared = "would share the topic" if theirs == topic else f"would have topics Kafka takes for one, {theirs!r} and"
                message = (
                    f"tables {TableName(*other).text} and {TableName(database, table).text} {shared} {topic!r}; "
                    f"capture only one of them{ways}"
                )
                found.setdefault((database, table), message)
        twin = named.get(f"{database}.{table}", (database, table))
        if twin != (database, table):
            texts = f"{TableName(*twin).text} and {TableName(database, table).text}"
            message = f"tables {texts} would both be called {database}.{table} in signals, markers and messages"
            found.setdefault((database, table), f"{message}; capture only one of them, or rename one")
        if (database, table) not in found:
            named[f"{database}.{table}"] = database, table
            seen |= {_collision(topic): ((database, table), topic) for topic in wanted}
    return found


def _collision(topic: str) -> str:
    """Return what Kafka compares names by: it refuses a topic that differs from another by `.` and `_` only."""
    return topic.replace(".", "_")
