"""Debezium's properties to Tidemark's settings, one by one; what has no equivalent is reported.

The records of the result are those of the connector: a property that is not given counts with Debezium's default where
ours is another. Secrets are never copied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from schemas.settings import FormatSettings, SnapshotSettings, from_mapping
from tidemark.importers.debezium.offsets import StartAt
from tidemark.importers.debezium.record_properties import keep_secrets, translate_records
from tidemark.importers.debezium.translation import SECRETS, Draft, Translation, choices, split_patterns
from tidemark.importers.debezium.unmapped_properties import ADVICE, UNKNOWN, consume_not_needed

_SECRET: Final = "/run/secrets/tidemark-source"  # noqa: S105  a path
_OUTBOX: Final = "io.debezium.transforms.outbox.EventRouter"
_UNWRAP: Final = "io.debezium.transforms.ExtractNewRecordState"


def translate(properties: Mapping[str, str], start_at: StartAt | None = None) -> Translation:
    """Return settings for a connector that read the same tables; `ConfigError` where even those given contradict each other.

    `start_at` is where the connector has come to: Tidemark begins there, without a snapshot.
    """
    draft = Draft(dict(properties))
    _source(draft)
    _tables(draft)
    _kafka(draft)
    _format(draft)
    translate_records(draft)
    keep_secrets(draft)
    _snapshot(draft)
    _locking(draft)
    _signals(draft)
    _transforms(draft)
    if start_at is not None:
        _start(draft, start_at)
    not_needed = consume_not_needed(draft)
    for name, value in sorted(draft.left.items()):
        draft.report(name, "" if SECRETS.search(name) else value, ADVICE.get(name, UNKNOWN))
    from_mapping(draft.out)  # what cannot be run is not written
    return Translation(draft.out, tuple(draft.findings), not_needed)


# ── source ────────────────────


def _source(draft: Draft) -> None:
    prefix = draft.consume("topic.prefix") or draft.consume("database.server.name")
    name = draft.consume("name")
    draft.put("name", prefix or name or "imported")
    if not prefix:
        draft.report("topic.prefix", "", f"is missing: topics are called {draft.out['name']}.<database>.<table>; set `name`")
    for property_name, key in (("database.hostname", "host"), ("database.user", "user")):
        text = draft.consume(property_name)
        if "${" in text:
            draft.report(property_name, text, f"is filled in by Kafka Connect: set source.{key}")
        elif text:
            draft.put(f"source.{key}", text)
    if port := draft.number("database.port", "source.port"):
        draft.put("source.port", port)
    if "database.password" in draft.left:
        draft.consume("database.password")
        draft.put("source.password_file", _SECRET)
        draft.report("database.password", "", f"secrets are not copied: put it into {_SECRET}, first line, or name another file")
    if number := draft.number("database.server.id", "source.server_id"):
        draft.put("source.server_id", number)
        draft.report("database.server.id", str(number), "is kept: stop the connector before Tidemark starts, or choose another one")
    _tls(draft)
    if timeout := draft.number("connect.timeout.ms", "source.connect_timeout_s"):
        draft.put("source.connect_timeout_s", max(1, -(-timeout // 1000)))
    if draft.consume("read.only").lower() == "true":
        draft.put("source.read_only", True)
    if signal := draft.consume("signal.data.collection"):
        draft.put("source.signal_table", signal)


def _tls(draft: Draft) -> None:
    modes = {"disable": "disabled", "trust": "required", "verify-ca": "verify_ca", "verify-full": "verify_identity"}
    if mode := draft.consume("database.ssl.mode"):
        draft.put("source.tls.mode", modes.get(mode, mode))
    for name in [name for name in draft.left if name.startswith("database.ssl.")]:
        draft.report(name, "", "Java key stores are not read: convert it to PEM, name it in source.tls.ca, cert or key")
        draft.consume(name)


def _start(draft: Draft, start_at: StartAt) -> None:
    index = {"gtids": start_at.gtids} if start_at.gtids else {"file": start_at.file, "pos": start_at.pos}
    draft.put("source.start_at", index)
    draft.put("snapshot.mode", "never")
    if start_at.in_transaction:
        shown = start_at.gtids or f"{start_at.file}:{start_at.pos}"
        draft.report("offset", shown, "is inside a transaction: its rows before that are published once more")
    draft.report(
        "offset", "", "snapshot.mode is never: the tables were read before. A sink that is empty needs a snapshot: signal one"
    )


# ── tables ────────────────────


def _tables(draft: Draft) -> None:
    databases = split_patterns(draft.consume("database.include.list") or draft.consume("database.whitelist"))
    no_databases = split_patterns(draft.consume("database.exclude.list") or draft.consume("database.blacklist"))
    tables = split_patterns(draft.consume("table.include.list") or draft.consume("table.whitelist"))
    no_tables = split_patterns(draft.consume("table.exclude.list") or draft.consume("table.blacklist"))
    ahead = ""
    if no_databases:
        ahead += rf"(?!(?:{'|'.join(no_databases)})\.)"
    if no_tables:
        ahead += rf"(?!(?:{'|'.join(no_tables)})$)"
    if databases and tables:
        ahead += rf"(?=(?:{'|'.join(databases)})\.)"
    found = tables or [rf"(?:{name})\..*" if re.search(r"\W", name) else rf"{name}\..*" for name in databases]
    draft.put("source.tables", [ahead + pattern for pattern in found or [r".*\..*"]])


# ── Kafka and format ────────────────────


def _kafka(draft: Draft) -> None:
    servers = draft.consume("schema.history.internal.kafka.bootstrap.servers")
    servers = servers or draft.consume("database.history.kafka.bootstrap.servers")
    if servers and "${" not in servers:
        draft.put("kafka.bootstrap_servers", servers)
    else:
        draft.report("bootstrap.servers", "", "is the Connect worker's: set kafka.bootstrap_servers")
    if partitions := draft.number("topic.creation.default.partitions", "kafka.partitions"):
        draft.put("kafka.partitions", partitions)
    else:
        draft.report(
            "topic.creation.default.partitions", "", "is not set: kafka.partitions must be the count that the topics have"
        )
    if delimiter := draft.consume("topic.delimiter"):
        draft.put("kafka.topic_delimiter", delimiter)
    if compression := draft.consume("producer.override.compression.type"):
        draft.put("kafka.compression", compression)
    for name in sorted(draft.left):
        match = re.fullmatch(r"schema\.history\.internal\.producer\.(security\.protocol|sasl\.mechanism)", name)
        if match is not None:
            kafka = draft.out.setdefault("kafka", {})
            kafka["options"] = {**kafka.get("options", {}), match[1]: draft.consume(name)}
    for name in [name for name in draft.left if re.search(r"\.(sasl|ssl|security)\.", name)]:
        draft.consume(name)
        draft.report(name, "", "set librdkafka's words for it in kafka.options (sasl.username, sasl.password, ssl.ca.location ...)")


_AVRO: Final = {
    "io.confluent.connect.avro.AvroConverter": "value.converter.schema.registry.url",
    "io.apicurio.registry.utils.converter.AvroConverter": "value.converter.apicurio.registry.url",
}


def _format(draft: Draft) -> None:
    key, value = draft.consume("key.converter"), draft.consume("value.converter")
    schemas = draft.consume("value.converter.schemas.enable", "true") == "true"
    key_schemas = draft.consume("key.converter.schemas.enable", "true") == "true"
    if value in _AVRO:
        registry = draft.consume(_AVRO[value])
        if "apicurio" in value:
            registry = re.sub(r"/apis/.*$", "", registry.rstrip("/")) + "/apis/ccompat/v7"
            draft.report("value.converter", value, "records are in Confluent's wire format: consumers read as-confluent")
        draft.put("format.type", "avro")
        draft.put("format.registry", registry or "http://127.0.0.1:8081")
        if not registry:
            draft.report(_AVRO[value], "", "is missing: set format.registry")
    else:
        draft.put("format.type", "json")
        draft.put("format.schemas", schemas)
        if not value:
            draft.report("value.converter", "", "is the Connect worker's: JSON with schemas is assumed; see format.type, schemas")
        elif value != "org.apache.kafka.connect.json.JsonConverter":
            draft.report("value.converter", value, "is unavailable: records are written as JSON or Avro; change the consumers")
        elif key_schemas != schemas:
            draft.report("key.converter.schemas.enable", str(key_schemas), "keys and values have schemas both, or none")
    if key and value and key != value:
        draft.report("key.converter", key, "keys are written as values are; change their consumers")
    for name in [name for name in draft.left if name.startswith(("key.converter.", "value.converter."))]:
        draft.consume(name)
        draft.report(name, "", "belongs to a converter of Connect; Tidemark writes its own records")
    for name, key_name, default in (
        ("decimal.handling.mode", "decimal", "precise"),
        ("bigint.unsigned.handling.mode", "bigint_unsigned", "long"),
        ("binary.handling.mode", "binary", "bytes"),
        ("time.precision.mode", "time", "adaptive_time_microseconds"),
        ("schema.name.adjustment.mode", "schema_names", "none"),
        ("field.name.adjustment.mode", "field_names", "none"),
    ):
        mode = draft.consume(name, default) or default
        if mode not in choices(FormatSettings, key_name):
            draft.report(name, mode, f"is unavailable; one of {', '.join(choices(FormatSettings, key_name))} (format.{key_name})")
        elif mode != FormatSettings.__dataclass_fields__[key_name].default:
            draft.put(f"format.{key_name}", mode)


# ── snapshots ────────────────────


def _snapshot(draft: Draft) -> None:
    mode = draft.consume("snapshot.mode", "initial") or "initial"
    known = choices(SnapshotSettings, "mode")
    ours = {"schema_only": "no_data", "schema_only_recovery": "recovery"}.get(mode, mode)
    if ours == "recovery":
        draft.put("snapshot.mode", "no_data")
        draft.report("snapshot.mode", mode, "there is no schema history to be rebuilt: no_data continues from the offset")
    elif ours in known:
        draft.put("snapshot.mode", ours)
    else:
        draft.report("snapshot.mode", mode, f"is unavailable; one of {', '.join(known)} (snapshot.mode), and signals for the rest")
    for flag in ("snapshot_data", "start_stream", "snapshot_on_data_error"):
        name = f"snapshot.mode.configuration.based.{flag.replace('_', '.')}"
        if draft.consume(name) == "true" and ours == "configuration_based":
            draft.put(f"snapshot.configuration_based.{flag}", value=True)
    draft.put("snapshot.merge", "producer")  # rows of snapshots in the change topics, as the consumers know them
    if strategy := draft.consume("incremental.snapshot.watermarking.strategy"):
        draft.put("snapshot.watermarking_strategy", strategy)
    if threads := draft.number("snapshot.max.threads", "snapshot.readers"):
        draft.put("snapshot.readers", min(64, threads))
    if rows := draft.number("incremental.snapshot.chunk.size", "snapshot.chunk_rows"):
        draft.put("snapshot.chunk_rows", rows)
        draft.report("incremental.snapshot.chunk.size", str(rows), "is kept; chunks of 50000 rows, our default, are read faster")


def _locking(draft: Draft) -> None:
    """Keep a lock that was asked for; without one tables are read in chunks, which need none."""
    mode = draft.consume("snapshot.locking.mode")
    isolation = draft.consume("snapshot.isolation.mode").lower().replace("-", "_")
    if mode in ("minimal", "extended"):
        draft.put("snapshot.consistency", "one_transaction")
        draft.put("snapshot.locking_mode", mode)
        if timeout := draft.number("snapshot.lock.timeout.ms", "snapshot.lock_timeout_ms"):
            draft.put("snapshot.lock_timeout_ms", timeout)
    elif mode == "none":
        draft.report("snapshot.locking.mode", mode, "tables are read in chunks, without locks and also safe from DDL")
    elif mode:
        what = "is unavailable: tables are read in chunks, without locks; or one_transaction (snapshot.consistency)"
        draft.report("snapshot.locking.mode", mode, what)
    if isolation not in ("", "repeatable_read"):
        draft.report("snapshot.isolation.mode", isolation, "reads are repeatable, whichever way tables are read")


def _signals(draft: Draft) -> None:
    asked = [part.strip() for part in draft.consume("signal.enabled.channels", "source").split(",") if part.strip()]
    channels = [channel for channel in asked if channel in ("source", "kafka", "file")]
    for channel in asked:
        if channel not in channels:
            draft.report("signal.enabled.channels", channel, "is a channel of Java processes: use kafka or file")
    topic, file = draft.consume("signal.kafka.topic"), draft.consume("signal.file")
    if "kafka" in channels and topic:
        draft.put("signal.kafka_topic", topic)
    if "file" in channels:
        draft.put("signal.file", file or "file-signals.txt")
        draft.report("signal.file", file, "is only read: it may be appended to, Debezium empties it")
    if channels not in ([], ["source"]):
        draft.put("signal.channels", channels)
        if interval := draft.number("signal.poll.interval.ms", "signal.poll_interval_ms"):
            draft.put("signal.poll_interval_ms", max(10, interval))


# ── transforms ────────────────────


def _transforms(draft: Draft) -> None:
    for alias in [name.strip() for name in draft.consume("transforms").split(",") if name.strip()]:
        options = {
            name.removeprefix(f"transforms.{alias}."): draft.consume(name)
            for name in [name for name in draft.left if name.startswith(f"transforms.{alias}.")]
        }
        kind = options.pop("type", "")
        if kind == _UNWRAP:
            _unwrap(draft, alias, options)
        elif kind == _OUTBOX:
            _outbox(draft, alias, options)
        else:
            draft.report(f"transforms.{alias}", kind, _TRANSFORMS.get(kind.rpartition(".")[2], _OTHER_TRANSFORM))
    for name in [name for name in draft.left if name.startswith("predicates")]:
        draft.report(name, draft.consume(name), "goes with its transform")


def _unwrap(draft: Draft, alias: str, options: dict[str, str]) -> None:
    draft.put("records.unwrap", value=True)
    tombstones = options.pop("delete.tombstone.handling.mode", "tombstone")
    if tombstones not in ("rewrite", "rewrite-with-tombstone"):
        draft.report(
            f"transforms.{alias}.delete.tombstone.handling.mode", tombstones,
            "records.unwrap writes a flat row with __deleted for a delete (rewrite); consumers see it",
        )  # fmt: skip
    draft.put("records.tombstones", tombstones in ("rewrite-with-tombstone", "tombstone"))
    fields = sorted(part.strip() for part in options.pop("add.fields", "").split(",") if part.strip())
    if fields != ["op", "source.ts_ms"]:
        draft.report(f"transforms.{alias}.add.fields", ",".join(fields), "records.unwrap adds __op and __source_ts_ms, no others")
    for name, value in options.items():
        draft.report(f"transforms.{alias}.{name}", value, "is unavailable with records.unwrap")


def _outbox(draft: Draft, alias: str, options: dict[str, str]) -> None:
    draft.put("records.outbox.tables", list(draft.out["source"]["tables"]))
    draft.report(f"transforms.{alias}", "", "records.outbox.tables are all captured tables here: name the outbox table alone")
    for name, key in (
        ("table.field.event.id", "id"),
        ("table.field.event.key", "key"),
        ("table.field.event.payload", "payload"),
        ("route.by.field", "route_by"),
        ("route.topic.replacement", "topic"),
    ):
        if value := options.pop(name, ""):
            draft.put(f"records.outbox.{key}", value)
    for name, value in options.items():
        draft.report(f"transforms.{alias}.{name}", value, "is unavailable: events have the payload as it is and the header id")


_OTHER_TRANSFORM: Final = "no transforms run in Tidemark: do it in the consumer, or in a stream processor behind the topics"
_TRANSFORMS: Final = {
    "ByLogicalTableRouter": "topics are not merged: consume by a pattern of topics",
    "ToLogicalTopicRouter": "topics are not merged: consume by a pattern of topics",
    "RegexRouter": "topics are called <name>.<database>.<table>: change the consumers' topic names",
    "Filter": "choose tables and columns (source.tables, records.column_*); filter rows in the consumer",
}
