"""The properties without an equivalent: those that are not needed, and what to do about the others."""

from __future__ import annotations

import re
from typing import Final

from tidemark.importers.debezium.translation import Draft

_NOT_NEEDED: Final = re.compile(
    r"connector\.class|tasks\.max|schema\.history\.internal.*|database\.history.*|max\.(batch|queue)\.size.*|poll\..*"
    r"|queue\.provider.*|snapshot\.(lock\.timeout\.ms|fetch\.size|delay\.ms|max\.threads\.multiplier.*)"
    r"|legacy\.snapshot\.max\.threads|min\.row\.count\.to\.stream\.results|query\.fetch\.size|streaming\.delay\.ms"
    r"|connect\.keep\.alive.*|use\.nongraceful\.disconnect|binlog\..*|database\.(jdbc\..*|protocol|query\.timeout\.ms)"
    r"|connection\.validation\.timeout\.ms|errors\.(max\.retries|retry\..*)|retriable\.restart.*|executor\..*"
    r"|exactly\.once\.support|transaction\.boundary.*|offsets\.storage\.topic|offset\.flush.*|statistics\..*"
    r"|table\.ignore\.builtin|topic\.cache\.size|ddl\.parser\.type|database\.server\.id\.offset"
    r"|topic\.creation\.default\.replication\.factor|inconsistent\.schema\.handling\.mode|connect\.timeout\.ms"
    r"|event\.(processing|deserialization|converting)\.failure\.handling\.mode|extended\.headers\.enabled"
    r"|incremental\.snapshot\.allow\.schema\.changes|enable\.time\.adjuster"
)
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
    "tombstones.on.delete": "true or false",
}


def consume_not_needed(draft: Draft) -> tuple[str, ...]:
    """Consume the properties that Tidemark needs no setting for, and return their names."""
    names = sorted(name for name in draft.left if _NOT_NEEDED.fullmatch(name))
    for name in names:
        draft.consume(name)
    return tuple(names)
