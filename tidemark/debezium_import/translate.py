"""Debezium's properties to Tidemark's settings, one by one; what has no equivalent is reported.

The records of the result are those of the connector: a property that is not given counts with Debezium's default where
ours is another. Secrets are never copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args, get_type_hints

from schemas.settings import FormatSettings, SnapshotSettings, from_mapping
from tidemark.debezium_import.offsets import StartAt

_SECRET: Final = "/run/secrets/tidemark-source"  # noqa: S105  a path
_SECRETS: Final = re.compile(r"passw|secret|token|jaas|credential|user\.info|(api|access|private)[._-]?key|salt", re.IGNORECASE)
"""Names of properties whose values are not shown, whatever they are for."""
_OUTBOX: Final = "io.debezium.transforms.outbox.EventRouter"
_UNWRAP: Final = "io.debezium.transforms.ExtractNewRecordState"


@dataclass(frozen=True, slots=True)
class Finding:
    """A property that has no equivalent, or one that a person should look at; `what` says what to do."""

    name: str
    value: str
    what: str


@dataclass(frozen=True, slots=True)
class Translation:
    """Our settings as a mapping in YAML's order, and what they do not say."""

    settings: dict[str, Any]
    findings: tuple[Finding, ...]
    not_needed: tuple[str, ...]


@dataclass(slots=True)
class _Work:
    """One translation on its way. `left` are the properties nobody has looked at yet."""

    left: dict[str, str]
    out: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def put(self, path: str, value: object) -> None:
        """Set a key of our settings."""
        section, _, key = path.rpartition(".")
        target = self.out
        for part in section.split(".") if section else ():
            target = target.setdefault(part, {})
        target[key] = value

    def consume(self, name: str, default: str = "") -> str:
        """Take a property, looked at from now on."""
        return self.left.pop(name, default).strip()

    def number(self, name: str, path: str) -> int | None:
        """Take a property that is a number, for `path`; None where it is not given, or names a secret instead."""
        text = self.consume(name)
        if not text:
            return None
        if not re.fullmatch(r"\d+", text):
            self.report(name, text, f"is no number here: set {path}")
            return None
        return int(text)

    def report(self, name: str, value: str, what: str) -> None:
        """Note what a person has to do."""
        self.findings.append(Finding(name, value, what))


def translate(properties: Mapping[str, str], start_at: StartAt | None = None) -> Translation:
    """Return settings for a connector that read the same tables; `ConfigError` where even those given contradict each other.

    `start_at` is where the connector has come to: Tidemark begins there, without a snapshot.
    """
    work = _Work(dict(properties))
    _source(work)
    _tables(work)
    _kafka(work)
    _format(work)
    _records(work)
    _keep_secrets(work)
    _snapshot(work)
    _locking(work)
    _signals(work)
    _transforms(work)
    if start_at is not None:
        _start(work, start_at)
    not_needed = _not_needed(work)
    for name, value in sorted(work.left.items()):
        work.report(name, "" if _SECRETS.search(name) else value, _ADVICE.get(name, _UNKNOWN))
    from_mapping(work.out)  # what cannot be run is not written
    return Translation(work.out, tuple(work.findings), not_needed)


# ── source ────────────────────


def _source(work: _Work) -> None:
    prefix = work.consume("topic.prefix") or work.consume("database.server.name")
    name = work.consume("name")
    work.put("name", prefix or name or "imported")
    if not prefix:
        work.report("topic.prefix", "", f"is missing: topics are called {work.out['name']}.<database>.<table>; set `name`")
    for property_name, key in (("database.hostname", "host"), ("database.user", "user")):
        text = work.consume(property_name)
        if "${" in text:
            work.report(property_name, text, f"is filled in by Kafka Connect: set source.{key}")
        elif text:
            work.put(f"source.{key}", text)
    if port := work.number("database.port", "source.port"):
        work.put("source.port", port)
    if "database.password" in work.left:
        work.consume("database.password")
        work.put("source.password_file", _SECRET)
        work.report("database.password", "", f"secrets are not copied: put it into {_SECRET}, first line, or name another file")
    if number := work.number("database.server.id", "source.server_id"):
        work.put("source.server_id", number)
        work.report("database.server.id", str(number), "is kept: stop the connector before Tidemark starts, or choose another one")
    _tls(work)
    if timeout := work.number("connect.timeout.ms", "source.connect_timeout_s"):
        work.put("source.connect_timeout_s", max(1, -(-timeout // 1000)))
    if work.consume("read.only").lower() == "true":
        work.put("source.read_only", True)
    if signal := work.consume("signal.data.collection"):
        work.put("source.signal_table", signal)


def _tls(work: _Work) -> None:
    modes = {"disable": "disabled", "trust": "required", "verify-ca": "verify_ca", "verify-full": "verify_identity"}
    if mode := work.consume("database.ssl.mode"):
        work.put("source.tls.mode", modes.get(mode, mode))
    for name in [name for name in work.left if name.startswith("database.ssl.")]:
        work.report(name, "", "Java key stores are not read: convert it to PEM, name it in source.tls.ca, cert or key")
        work.consume(name)


def _start(work: _Work, start_at: StartAt) -> None:
    index = {"gtids": start_at.gtids} if start_at.gtids else {"file": start_at.file, "pos": start_at.pos}
    work.put("source.start_at", index)
    work.put("snapshot.mode", "never")
    if start_at.in_transaction:
        shown = start_at.gtids or f"{start_at.file}:{start_at.pos}"
        work.report("offset", shown, "is inside a transaction: its rows before that are published once more")
    work.report(
        "offset", "", "snapshot.mode is never: the tables were read before. A sink that is empty needs a snapshot: signal one"
    )


# ── tables ────────────────────


def split_patterns(text: str) -> list[str]:
    r"""Return a list of regular expressions: commas outside of brackets separate, `\,` does not."""
    parts, depth, current = [], 0, ""
    pieces = re.split(r"(\\.|[()\[\]{},])", text)
    for piece in pieces:
        if piece == "," and not depth:
            parts.append(current.strip())
            current = ""
            continue
        depth += (piece in ("(", "[", "{")) - (piece in (")", "]", "}") and depth > 0)
        current += piece
    parts.append(current.strip())
    return [part for part in parts if part]


def _tables(work: _Work) -> None:
    databases = split_patterns(work.consume("database.include.list") or work.consume("database.whitelist"))
    no_databases = split_patterns(work.consume("database.exclude.list") or work.consume("database.blacklist"))
    tables = split_patterns(work.consume("table.include.list") or work.consume("table.whitelist"))
    no_tables = split_patterns(work.consume("table.exclude.list") or work.consume("table.blacklist"))
    ahead = ""
    if no_databases:
        ahead += rf"(?!(?:{'|'.join(no_databases)})\.)"
    if no_tables:
        ahead += rf"(?!(?:{'|'.join(no_tables)})$)"
    if databases and tables:
        ahead += rf"(?=(?:{'|'.join(databases)})\.)"
    found = tables or [rf"(?:{name})\..*" if re.search(r"\W", name) else rf"{name}\..*" for name in databases]
    work.put("source.tables", [ahead + pattern for pattern in found or [r".*\..*"]])


# ── Kafka and format ────────────────────


def _kafka(work: _Work) -> None:
    servers = work.consume("schema.history.internal.kafka.bootstrap.servers")
    servers = servers or work.consume("database.history.kafka.bootstrap.servers")
    if servers and "${" not in servers:
        work.put("kafka.bootstrap_servers", servers)
    else:
        work.report("bootstrap.servers", "", "is the Connect worker's: set kafka.bootstrap_servers")
    if partitions := work.number("topic.creation.default.partitions", "kafka.partitions"):
        work.put("kafka.partitions", partitions)
    else:
        work.report(
            "topic.creation.default.partitions", "", "is not set: kafka.partitions must be the count that the topics have"
        )
    if delimiter := work.consume("topic.delimiter"):
        work.put("kafka.topic_delimiter", delimiter)
    if compression := work.consume("producer.override.compression.type"):
        work.put("kafka.compression", compression)
    for name in sorted(work.left):
        match = re.fullmatch(r"schema\.history\.internal\.producer\.(security\.protocol|sasl\.mechanism)", name)
        if match is not None:
            kafka = work.out.setdefault("kafka", {})
            kafka["options"] = {**kafka.get("options", {}), match[1]: work.consume(name)}
    for name in [name for name in work.left if re.search(r"\.(sasl|ssl|security)\.", name)]:
        work.consume(name)
        work.report(name, "", "set librdkafka's words for it in kafka.options (sasl.username, sasl.password, ssl.ca.location ...)")


_AVRO: Final = {
    "io.confluent.connect.avro.AvroConverter": "value.converter.schema.registry.url",
    "io.apicurio.registry.utils.converter.AvroConverter": "value.converter.apicurio.registry.url",
}


def _format(work: _Work) -> None:
    key, value = work.consume("key.converter"), work.consume("value.converter")
    schemas = work.consume("value.converter.schemas.enable", "true") == "true"
    key_schemas = work.consume("key.converter.schemas.enable", "true") == "true"
    if value in _AVRO:
        registry = work.consume(_AVRO[value])
        if "apicurio" in value:
            registry = re.sub(r"/apis/.*$", "", registry.rstrip("/")) + "/apis/ccompat/v7"
            work.report("value.converter", value, "records are in Confluent's wire format: consumers read as-confluent")
        work.put("format.type", "avro")
        work.put("format.registry", registry or "http://127.0.0.1:8081")
        if not registry:
            work.report(_AVRO[value], "", "is missing: set format.registry")
    else:
        work.put("format.type", "json")
        work.put("format.schemas", schemas)
        if not value:
            work.report("value.converter", "", "is the Connect worker's: JSON with schemas is assumed; see format.type, schemas")
        elif value != "org.apache.kafka.connect.json.JsonConverter":
            work.report("value.converter", value, "is unavailable: records are written as JSON or Avro; change the consumers")
        elif key_schemas != schemas:
            work.report("key.converter.schemas.enable", str(key_schemas), "keys and values have schemas both, or none")
    if key and value and key != value:
        work.report("key.converter", key, "keys are written as values are; change their consumers")
    for name in [name for name in work.left if name.startswith(("key.converter.", "value.converter."))]:
        work.consume(name)
        work.report(name, "", "belongs to a converter of Connect; Tidemark writes its own records")
    for name, key_name, default in (
        ("decimal.handling.mode", "decimal", "precise"),
        ("bigint.unsigned.handling.mode", "bigint_unsigned", "long"),
        ("binary.handling.mode", "binary", "bytes"),
        ("time.precision.mode", "time", "adaptive_time_microseconds"),
        ("schema.name.adjustment.mode", "schema_names", "none"),
        ("field.name.adjustment.mode", "field_names", "none"),
    ):
        mode = work.consume(name, default) or default
        if mode not in _choices(FormatSettings, key_name):
            work.report(name, mode, f"is unavailable; one of {', '.join(_choices(FormatSettings, key_name))} (format.{key_name})")
        elif mode != FormatSettings.__dataclass_fields__[key_name].default:
            work.put(f"format.{key_name}", mode)


def _choices(kind: type, name: str) -> tuple[str, ...]:
    return get_args(get_type_hints(kind)[name])


# ── records ────────────────────

_SAME: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "tombstones.on.delete": ("tombstones", lambda text: text == "true"),
    "skip.messages.without.change": ("skip_messages_without_change", lambda text: text == "true"),
    "provide.transaction.metadata": ("provide_transaction_metadata", lambda text: text == "true"),
    "heartbeat.action.query": ("heartbeat_action_query", str),
    "include.query": ("include_query", lambda text: text == "true"),
    "include.schema.changes": ("include_schema_changes", lambda text: text == "true"),
    "column.include.list": ("column_include_list", split_patterns),
    "column.exclude.list": ("column_exclude_list", split_patterns),
    "include.schema.comments": ("include_schema_comments", lambda text: text == "true"),
    "column.propagate.source.type": ("column_propagate_source_type", split_patterns),
    "datatype.propagate.source.type": ("datatype_propagate_source_type", split_patterns),
}
_KEEPS_VALUES: Final = "column_propagate_source_type"
_HASH: Final = re.compile(r"column\.mask\.hash\.(v2\.)?([^.]+)\.with\.salt\.(.+)")
_CHARS: Final = re.compile(r"column\.(mask\.with|truncate\.to)\.(\d+)\.chars")


def _records(work: _Work) -> None:
    for name, (key, read) in _SAME.items():
        if text := work.consume(name):
            work.put(f"records.{key}", read(text))
    if interval := work.number("heartbeat.interval.ms", "records.heartbeat_interval_ms"):
        work.put("records.heartbeat_interval_ms", interval)
    elif "heartbeat_action_query" in work.out.get("records", {}):
        work.report("heartbeat.action.query", work.out["records"].pop("heartbeat_action_query"), "is never run without heartbeats")
    if text := work.consume("skipped.operations"):
        skipped = [part.strip() for part in text.split(",")]
        if "r" in skipped:
            work.report("skipped.operations", text, "rows of snapshots are always published (r is left out)")
        work.put("records.skipped_operations", [op for op in skipped if op != "r"])
    if keys := work.consume("message.key.columns"):
        parts = [part.strip() for part in keys.split(";") if part.strip()]
        work.put("records.message_key_columns", {p.rpartition(":")[0]: p.rpartition(":")[2] for p in parts})
    for name in sorted(work.left):
        hashed, truncation = _HASH.fullmatch(name), _CHARS.fullmatch(name)
        if hashed is not None and hashed[1]:
            item = {"algorithm": hashed[2], "salt": hashed[3], "columns": split_patterns(work.consume(name))}
            work.out.setdefault("records", {}).setdefault("column_mask_hash_v2", []).append(item)
            work.report("column.mask.hash.v2...with.salt", "", "the salt was copied: it is in the written file")
        elif hashed is not None:
            columns = split_patterns(work.consume(name))
            work.report(
                "column.mask.hash...with.salt",
                ", ".join(columns),
                "hashes Java's serialised form. LEFT OUT: these columns would be written in clear, so they are excluded here; "
                "use records.column_mask_hash_v2, whose hashes are others",
            )
            _exclude(work, columns)
        elif truncation is not None:
            key = "column_mask_with_chars" if truncation[1] == "mask.with" else "column_truncate_to_chars"
            item = {"chars": int(truncation[2]), "columns": split_patterns(work.consume(name))}
            work.out.setdefault("records", {}).setdefault(key, []).append(item)


def _keep_secrets(work: _Work) -> None:
    """Statements hold what other options mask or leave out."""
    records = work.out.get("records", {})
    shaping = [key for key in records if key.startswith("column_") and key != _KEEPS_VALUES]
    if records.get("include_query") and shaping:
        del records["include_query"]
        work.report("include.query", "true", "is left out: statements hold the values that column.* masks or leaves out")


def _exclude(work: _Work, columns: list[str]) -> None:
    """Leave columns out; where only some are included, those are named by a pattern that excludes them."""
    records = work.out.setdefault("records", {})
    if "column_include_list" in records:
        ahead = f"(?!(?:{'|'.join(columns)})$)"
        records["column_include_list"] = [ahead + pattern for pattern in records["column_include_list"]]
    else:
        records["column_exclude_list"] = [*records.get("column_exclude_list", []), *columns]


# ── snapshots ────────────────────


def _snapshot(work: _Work) -> None:
    mode = work.consume("snapshot.mode", "initial") or "initial"
    known = _choices(SnapshotSettings, "mode")
    ours = {"schema_only": "no_data", "schema_only_recovery": "recovery"}.get(mode, mode)
    if ours == "recovery":
        work.put("snapshot.mode", "no_data")
        work.report("snapshot.mode", mode, "there is no schema history to be rebuilt: no_data continues from the offset")
    elif ours in known:
        work.put("snapshot.mode", ours)
    else:
        work.report("snapshot.mode", mode, f"is unavailable; one of {', '.join(known)} (snapshot.mode), and signals for the rest")
    for flag in ("snapshot_data", "start_stream", "snapshot_on_data_error"):
        name = f"snapshot.mode.configuration.based.{flag.replace('_', '.')}"
        if work.consume(name) == "true" and ours == "configuration_based":
            work.put(f"snapshot.configuration_based.{flag}", value=True)
    work.put("snapshot.merge", "producer")  # rows of snapshots in the change topics, as the consumers know them
    if strategy := work.consume("incremental.snapshot.watermarking.strategy"):
        work.put("snapshot.watermarking_strategy", strategy)
    if threads := work.number("snapshot.max.threads", "snapshot.readers"):
        work.put("snapshot.readers", min(64, threads))
    if rows := work.number("incremental.snapshot.chunk.size", "snapshot.chunk_rows"):
        work.put("snapshot.chunk_rows", rows)
        work.report("incremental.snapshot.chunk.size", str(rows), "is kept; chunks of 50000 rows, our default, are read faster")


def _locking(work: _Work) -> None:
    """Keep a lock that was asked for; without one tables are read in chunks, which need none."""
    mode = work.consume("snapshot.locking.mode")
    isolation = work.consume("snapshot.isolation.mode").lower().replace("-", "_")
    if mode in ("minimal", "extended"):
        work.put("snapshot.consistency", "one_transaction")
        work.put("snapshot.locking_mode", mode)
        if timeout := work.number("snapshot.lock.timeout.ms", "snapshot.lock_timeout_ms"):
            work.put("snapshot.lock_timeout_ms", timeout)
    elif mode == "none":
        work.report("snapshot.locking.mode", mode, "tables are read in chunks, without locks and also safe from DDL")
    elif mode:
        what = "is unavailable: tables are read in chunks, without locks; or one_transaction (snapshot.consistency)"
        work.report("snapshot.locking.mode", mode, what)
    if isolation not in ("", "repeatable_read"):
        work.report("snapshot.isolation.mode", isolation, "reads are repeatable, whichever way tables are read")


def _signals(work: _Work) -> None:
    asked = [part.strip() for part in work.consume("signal.enabled.channels", "source").split(",") if part.strip()]
    channels = [channel for channel in asked if channel in ("source", "kafka", "file")]
    for channel in asked:
        if channel not in channels:
            work.report("signal.enabled.channels", channel, "is a channel of Java processes: use kafka or file")
    topic, file = work.consume("signal.kafka.topic"), work.consume("signal.file")
    if "kafka" in channels and topic:
        work.put("signal.kafka_topic", topic)
    if "file" in channels:
        work.put("signal.file", file or "file-signals.txt")
        work.report("signal.file", file, "is only read: it may be appended to, Debezium empties it")
    if channels not in ([], ["source"]):
        work.put("signal.channels", channels)
        if interval := work.number("signal.poll.interval.ms", "signal.poll_interval_ms"):
            work.put("signal.poll_interval_ms", max(10, interval))


# ── transforms ────────────────────


def _transforms(work: _Work) -> None:
    for alias in [name.strip() for name in work.consume("transforms").split(",") if name.strip()]:
        options = {
            name.removeprefix(f"transforms.{alias}."): work.consume(name)
            for name in [name for name in work.left if name.startswith(f"transforms.{alias}.")]
        }
        kind = options.pop("type", "")
        if kind == _UNWRAP:
            _unwrap(work, alias, options)
        elif kind == _OUTBOX:
            _outbox(work, alias, options)
        else:
            work.report(f"transforms.{alias}", kind, _TRANSFORMS.get(kind.rpartition(".")[2], _OTHER_TRANSFORM))
    for name in [name for name in work.left if name.startswith("predicates")]:
        work.report(name, work.consume(name), "goes with its transform")


def _unwrap(work: _Work, alias: str, options: dict[str, str]) -> None:
    work.put("records.unwrap", value=True)
    tombstones = options.pop("delete.tombstone.handling.mode", "tombstone")
    if tombstones not in ("rewrite", "rewrite-with-tombstone"):
        work.report(
            f"transforms.{alias}.delete.tombstone.handling.mode", tombstones,
            "records.unwrap writes a flat row with __deleted for a delete (rewrite); consumers see it",
        )  # fmt: skip
    work.put("records.tombstones", tombstones in ("rewrite-with-tombstone", "tombstone"))
    fields = sorted(part.strip() for part in options.pop("add.fields", "").split(",") if part.strip())
    if fields != ["op", "source.ts_ms"]:
        work.report(f"transforms.{alias}.add.fields", ",".join(fields), "records.unwrap adds __op and __source_ts_ms, no others")
    for name, value in options.items():
        work.report(f"transforms.{alias}.{name}", value, "is unavailable with records.unwrap")


def _outbox(work: _Work, alias: str, options: dict[str, str]) -> None:
    work.put("records.outbox.tables", list(work.out["source"]["tables"]))
    work.report(f"transforms.{alias}", "", "records.outbox.tables are all captured tables here: name the outbox table alone")
    for name, key in (
        ("table.field.event.id", "id"),
        ("table.field.event.key", "key"),
        ("table.field.event.payload", "payload"),
        ("route.by.field", "route_by"),
        ("route.topic.replacement", "topic"),
    ):
        if value := options.pop(name, ""):
            work.put(f"records.outbox.{key}", value)
    for name, value in options.items():
        work.report(f"transforms.{alias}.{name}", value, "is unavailable: events have the payload as it is and the header id")


_OTHER_TRANSFORM: Final = "no transforms run in Tidemark: do it in the consumer, or in a stream processor behind the topics"
_TRANSFORMS: Final = {
    "ByLogicalTableRouter": "topics are not merged: consume by a pattern of topics",
    "ToLogicalTopicRouter": "topics are not merged: consume by a pattern of topics",
    "RegexRouter": "topics are called <name>.<database>.<table>: change the consumers' topic names",
    "Filter": "choose tables and columns (source.tables, records.column_*); filter rows in the consumer",
}

# ── the rest ────────────────────

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
_UNKNOWN: Final = "has no equivalent"
_ADVICE: Final = {
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


def _not_needed(work: _Work) -> tuple[str, ...]:
    names = sorted(name for name in work.left if _NOT_NEEDED.fullmatch(name))
    for name in names:
        work.consume(name)
    return tuple(names)


