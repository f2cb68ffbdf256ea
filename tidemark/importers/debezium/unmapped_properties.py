"""The properties without an equivalent: those that are not needed, and what to do about the others."""

from __future__ import annotations

import re
from typing import Final

from tidemark.importers.debezium.connector_ledger import ConnectorLedger

_NOT_NEEDED: Final = re.compile(
    r"tasks\.max|schema\.history\.internal.*|max\.(batch|queue)\.size.*|poll\..*"
    r"|queue\.provider.*|snapshot\.(lock\.timeout\.ms|fetch\.size|delay\.ms|max\.threads\.multiplier.*)"
    r"|legacy\.snapshot\.max\.threads|min\.row\.count\.to\.stream\.results|query\.fetch\.size|streaming\.delay\.ms"
    r"|connect\.keep\.alive.*|use\.nongraceful\.disconnect|binlog\.net\..*|database\.(jdbc\..*|protocol|query\.timeout\.ms)"
    r"|connection\.validation\.timeout\.ms|errors\.(max\.retries|retry\..*)|retriable\.restart.*|executor\..*"
    r"|exactly\.once\.support|transaction\.boundary.*|offsets\.storage\.topic|offset\.flush.*|statistics\..*"
    r"|topic\.cache\.size|ddl\.parser\.type|database\.server\.id\.offset"
    r"|topic\.creation\.default\.replication\.factor"
    r"|extended\.headers\.enabled"
    r"|incremental\.snapshot\.allow\.schema\.changes|enable\.time\.adjuster"
)
_DEFAULTS: Final = {
    "topic.naming.strategy": ("io.debezium.schema.DefaultTopicNamingStrategy", "io.debezium.schema.SchemaTopicNamingStrategy"),
    "topic.transaction": ("transaction",),
    "topic.heartbeat.prefix": ("__debezium-heartbeat",),
    "snapshot.query.mode": ("select_all",),
    "snapshot.tables.order.by.row.count": ("disabled",),
    "header.converter": ("org.apache.kafka.connect.storage.SimpleHeaderConverter",),
    "event.processing.failure.handling.mode": ("fail",),
    "event.deserialization.failure.handling.mode": ("fail",),
    "inconsistent.schema.handling.mode": ("fail",),
    "unavailable.value.placeholder": ("__debezium_unavailable_value",),
    "guardrail.collections.max": ("0",),
    "errors.tolerance": ("none",),
}
UNKNOWN: Final = "has no equivalent"
ADVICE: Final = {
    "gtid.source.includes": "all transactions of the log are read: choose by tables",
    "gtid.source.excludes": "all transactions of the log are read: choose by tables",
    "signal.kafka.bootstrap.servers": "signals are read from the cluster of kafka.bootstrap_servers",
    "notification.enabled.channels": "notifications are always in the topic <name>.notifications",
    "notification.sink.topic.name": "notifications are in the topic <name>.notifications: change the consumers' topic",
    "snapshot.include.collection.list": "set snapshot.mode: never and signal the tables to be read",
    "snapshot.tables.order.by.row.count": "tables are read at the same time",
    "snapshot.select.statement.overrides": "give the signal additional-conditions: `tidemark signal ... --where`",
    "header.converter": "keys in headers are text, as the default converter writes them",
    "signal.poll.interval.ms": "signals of the signal table are seen in the log, others looked for by signal.poll_interval_ms",
    "converters": "columns are written as their types are: convert in the consumer",
    "post.processors": "rows are always whole (binlog_row_image=FULL): none to select again",
    "topic.transaction": "transactions are reported in <name>.transaction: change the consumers' topic name",
    "topic.heartbeat.prefix": "heartbeats are in __debezium-heartbeat.<name>: change the consumers' topic name",
    "topic.heartbeat.name": "heartbeats are in __debezium-heartbeat.<name>: change the consumers' topic name",
    "topic.naming.strategy": "topics are called <name>.<database>.<table>",
    "unavailable.value.placeholder": "rows are always whole (binlog_row_image=FULL)",
    "database.initial.statements": "sessions are pinned by Tidemark (UTC, utf8mb4)",
    "snapshot.new.tables": "a table that comes into source.tables is read (`tidemark reload`)",
    "event.processing.failure.handling.mode": "an event that cannot be read stops the producer or sets its table aside",
    "event.deserialization.failure.handling.mode": "an event that cannot be read stops the producer, or sets its table aside",
    "inconsistent.schema.handling.mode": "rows that do not fit their table set it aside (on_table_error): none is skipped",
    "event.converting.failure.handling.mode": "a value that cannot be converted sets its table aside: none becomes NULL",
    "binlog.buffer.size": "rows of a transaction that is rolled back are never published, however large it is",
    "guardrail.collections.max": "there is no limit on tables: `tidemark tables` lists those that are captured",
    "topic.creation.default.cleanup.policy": "topics are created with the brokers' defaults: set it for the topics",
}


def close_unmapped(ledger: ConnectorLedger) -> None:
    """Close the properties that are left: skip those that need no setting, and report the others."""
    for name in sorted(ledger.open):
        if _NOT_NEEDED.fullmatch(name) or ledger.text(name).strip() in _DEFAULTS.get(name, ()):
            ledger.skip(name)
        else:
            ledger.report(name, ADVICE.get(name, UNKNOWN))
