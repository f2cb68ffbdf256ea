"""Random mixtures of the documented properties of a connector, and the judge of what the importer makes of them.

Properties and values are those of Debezium 3.6.1 (the `Field` definitions of its MySQL and MariaDB connectors), of Kafka Connect and its
converters, and of older versions. Used by `make fuzz` (target `properties`) and by a test with some seeds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import yaml

from schemas.errors import ConfigError
from schemas.settings import Settings, from_mapping
from tests.importers.name_list_cases import names_of_tables
from tidemark.importers.debezium import Translation, translate

Importer = Callable[[dict[str, str]], Translation]
HIDDEN: Final = "hunter2"
_BOOLS: Final = ("true", "false", "True", "FALSE", " true ", "TRUE")
_NUMBERS: Final = ("0", "1", "5000", "70000", "-1", "many", " 12 ", "99999999999")
_PROVIDED: Final = ("${file:/etc/db.properties:value}", "${env:VALUE}", "a-${vault:secret/x:y}")

_FLAGS: Final = {
    "tombstones.on.delete": "true", "skip.messages.without.change": "false", "provide.transaction.metadata": "false",
    "include.query": "false", "include.schema.changes": "true", "include.schema.comments": "false", "read.only": "false",
    "table.ignore.builtin": "true", "sanitize.field.names": "false", "value.converter.schemas.enable": "true",
    "key.converter.schemas.enable": "true",
}  # fmt: skip
"""Flags that mean something here, and Debezium's defaults."""
_OTHER_FLAGS: Final = (
    "connect.keep.alive", "use.nongraceful.disconnect", "gtid.source.filter.dml.events", "gtid.ignore.on.recovery",
    "enable.time.adjuster", "incremental.snapshot.allow.schema.changes", "extended.headers.enabled", "statistics.metrics.enabled",
    "openlineage.integration.enabled", "legacy.snapshot.max.threads", "log.position.check.enable", "advanced.metrics.enable",
    "snapshot.mode.configuration.based.snapshot.data", "snapshot.mode.configuration.based.snapshot.schema",
    "snapshot.mode.configuration.based.start.stream", "snapshot.mode.configuration.based.snapshot.on.schema.error",
    "snapshot.mode.configuration.based.snapshot.on.data.error", "snapshot.scan.all.columns.force", "snapshot.minimal.locks",
    "schema.history.internal.skip.unparseable.ddl", "schema.history.internal.store.only.captured.tables.ddl",
)  # fmt: skip
_COUNTS: Final = (
    "database.port", "database.server.id", "connect.timeout.ms", "heartbeat.interval.ms", "snapshot.max.threads",
    "incremental.snapshot.chunk.size", "signal.poll.interval.ms", "snapshot.lock.timeout.ms", "topic.creation.default.partitions",
    "max.batch.size", "max.queue.size", "max.queue.size.in.bytes", "poll.interval.ms", "snapshot.fetch.size", "snapshot.delay.ms",
    "streaming.delay.ms", "query.fetch.size", "binlog.buffer.size", "database.server.id.offset", "database.query.timeout.ms",
    "connection.validation.timeout.ms", "min.row.count.to.stream.results", "errors.max.retries", "retriable.restart.connector.wait.ms",
    "executor.shutdown.timeout.ms", "connect.keep.alive.interval.ms", "binlog.net.read.timeout", "topic.cache.size",
    "guardrail.collections.max", "signal.kafka.poll.timeout.ms", "snapshot.max.threads.multiplier", "tasks.max",
    "topic.creation.default.replication.factor", "offset.flush.interval.ms",
)  # fmt: skip
_WORDS: Final = {
    "snapshot.mode": (
        "initial", "initial_only", "always", "no_data", "never", "schema_only", "schema_only_recovery", "recovery", "when_needed",
        "configuration_based", "custom", "nonsense",
    ),
    "snapshot.locking.mode": ("minimal", "extended", "none", "custom", "minimal_percona", "nonsense"),
    "snapshot.isolation.mode": ("serializable", "repeatable_read", "read_committed", "read_uncommitted"),
    "snapshot.query.mode": ("select_all", "custom"),
    "snapshot.tables.order.by.row.count": ("disabled", "ascending", "descending"),
    "decimal.handling.mode": ("precise", "double", "string", "nonsense"),
    "bigint.unsigned.handling.mode": ("long", "precise"),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
    "time.precision.mode": ("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds", "structured"),
    "schema.name.adjustment.mode": ("none", "avro", "avro_unicode"),
    "field.name.adjustment.mode": ("none", "avro", "avro_unicode"),
    "database.ssl.mode": ("disabled", "preferred", "required", "verify_ca", "verify_identity", "disable", "trust", "verify-ca", "verify-full"),
    "incremental.snapshot.watermarking.strategy": ("insert_insert", "insert_delete", "nonsense"),
    "event.processing.failure.handling.mode": ("fail", "warn", "skip", "ignore"),
    "event.deserialization.failure.handling.mode": ("fail", "warn"),
    "event.converting.failure.handling.mode": ("warn", "fail", "skip"),
    "inconsistent.schema.handling.mode": ("fail", "warn", "skip"),
    "guardrail.collections.limit.action": ("warn", "fail"),
    "exactly.once.support": ("required", "requested"),
    "producer.override.compression.type": ("lz4", "gzip", "none", "producer"),
}  # fmt: skip
_TEXTS: Final = {
    "name": ("shop-connector", "shop/1"),
    "topic.prefix": ("shop", "shop/1", "s" * 101),
    "database.server.name": ("shop",),
    "database.hostname": ("db",), "database.user": ("dbz",), "database.password": (HIDDEN,),
    "signal.data.collection": ("shop.signals", "signals", "a.b.c", "shop.a,shop.b", "`shop`.`signals`"),
    "signal.enabled.channels": ("source", "kafka", "file", "source,kafka,file", "jmx", "SOURCE, Kafka"),
    "signal.kafka.topic": ("signals",), "signal.file": ("s.txt",), "signal.kafka.bootstrap.servers": ("k:9092",),
    "signal.kafka.groupId": ("g",), "signal.consumer.security.protocol": ("SASL_SSL",),
    "notification.enabled.channels": ("sink", "log"), "notification.sink.topic.name": ("n",),
    "skipped.operations": ("t", "none", "c,u", "c, d ,t", "R,T", "none,t", "x", "U"),
    "heartbeat.action.query": ("UPDATE shop.h SET a = 1",),
    "heartbeat.topics.prefix": ("hb", "__debezium-heartbeat"), "topic.heartbeat.prefix": ("hb",), "topic.heartbeat.name": ("h",),
    "topic.transaction": ("tx", "transaction"), "transaction.topic": ("tx",), "topic.delimiter": ("_", "/", "."),
    "topic.naming.strategy": ("io.debezium.schema.DefaultTopicNamingStrategy", "io.debezium.schema.DefaultRegexTopicNamingStrategy"),
    "column.propagate.source.type": (".*", r"shop\.t\.a|shop\.t\.b"), "datatype.propagate.source.type": (r".+\.VARCHAR",),
    "message.key.columns": (r"shop\.t:a,b", r"shop\.t:a;shop\.t:b", r"(.*).t|x:a", "nonsense", r"shop\..*:id", r"shop\.t:.*_id"),
    "gtid.source.includes": ("abc",), "gtid.source.excludes": ("abc",),
    "snapshot.include.collection.list": (r"shop\.t",), "snapshot.select.statement.overrides": ("shop.t",),
    "snapshot.select.statement.overrides.shop.t": ("SELECT * FROM shop.t",), "snapshot.new.tables": ("parallel",),
    "converters": ("b",), "b.type": ("io.debezium.connector.mysql.converters.TinyIntOneToBooleanConverter",),
    "post.processors": ("r",), "r.type": ("io.debezium.processors.reselect.ReselectColumnsPostProcessor",),
    "unavailable.value.placeholder": ("x", "__debezium_unavailable_value"), "database.initial.statements": ("SET a=1",),
    "schema.history.internal": ("io.debezium.storage.file.history.FileSchemaHistory",),
    "schema.history.internal.kafka.bootstrap.servers": ("k1:9092,k2:9092",), "schema.history.internal.kafka.topic": ("h",),
    "database.history.kafka.bootstrap.servers": ("k1:9092",), "database.history.kafka.topic": ("h",),
    "schema.history.internal.producer.security.protocol": ("SASL_SSL",), "schema.history.internal.producer.sasl.mechanism": ("PLAIN",),
    "schema.history.internal.consumer.sasl.jaas.config": (f"x password='{HIDDEN}'",),
    "database.history.producer.sasl.jaas.config": (f"x password='{HIDDEN}'",),
    "database.ssl.keystore": ("/k.jks",), "database.ssl.keystore.password": (HIDDEN,), "database.ssl.truststore": ("/t.jks",),
    "database.jdbc.driver": ("com.mysql.cj.jdbc.Driver",), "database.connectionTimeZone": ("UTC",), "driver.useSSL": ("true",),
    "key.converter": ("org.apache.kafka.connect.json.JsonConverter", "io.confluent.connect.avro.AvroConverter"),
    "value.converter": (
        "org.apache.kafka.connect.json.JsonConverter", "io.confluent.connect.avro.AvroConverter",
        "io.apicurio.registry.utils.converter.AvroConverter", "io.confluent.connect.protobuf.ProtobufConverter",
    ),
    "value.converter.schema.registry.url": ("http://r:8081", f"http://me:{HIDDEN}@r:8081", "https://a:1,https://b:1", "registry:8081"),
    "key.converter.schema.registry.url": ("http://r:8081",), "value.converter.apicurio.registry.url": ("http://r/apis/registry/v2",),
    "value.converter.basic.auth.credentials.source": ("USER_INFO", "URL", "SASL_INHERIT"),
    "value.converter.basic.auth.user.info": (f"me:{HIDDEN}",), "key.converter.basic.auth.user.info": (f"me:{HIDDEN}", f"you:{HIDDEN}"),
    "key.converter.basic.auth.credentials.source": ("USER_INFO", "URL"),
    "value.converter.schema.registry.basic.auth.user.info": (f"me:{HIDDEN}",),
    "value.converter.schema.registry.ssl.truststore.password": (HIDDEN,), "value.converter.auto.register.schemas": ("false",),
    "header.converter": ("org.apache.kafka.connect.storage.StringConverter",), "errors.tolerance": ("all", "none"),
    "transforms": ("flat,mask", "outbox", "route", "absent", "drop,flat", "outbox,events"),
    "transforms.flat.type": ("io.debezium.transforms.ExtractNewRecordState",),
    "transforms.flat.delete.tombstone.handling.mode": ("rewrite", "DROP", "tombstone", "Rewrite-With-Tombstone"), "transforms.flat.add.fields": ("op", "op,source.ts_ms"),
    "transforms.mask.type": ("org.apache.kafka.connect.transforms.MaskField$Value",), "transforms.mask.fields": ("ssn,email",),
    "transforms.drop.type": ("org.apache.kafka.connect.transforms.ReplaceField$Value",), "transforms.drop.exclude": ("ssn",),
    "transforms.outbox.type": ("io.debezium.transforms.outbox.EventRouter",), "transforms.outbox.table.field.event.id": ("uid",),
    "transforms.outbox.route.topic.replacement": ("ev.${routedByValue}", "fixed"), "transforms.outbox.route.by.field": ("kind",),
    "transforms.events.type": ("io.debezium.transforms.outbox.EventRouter",), "transforms.events.route.by.field": ("sort",),
    "transforms.route.type": ("org.apache.kafka.connect.transforms.RegexRouter",), "transforms.route.regex": ("(.*)",),
    "transforms.flat.predicate": ("p",), "predicates": ("p",), "predicates.p.type": ("x",),
    "custom.metric.tags": ("a=b",), "openlineage.integration.job.namespace": ("n",), "database.names": ("x",), "made.up": ("1",),
}  # fmt: skip
_PARTS: Final = (
    "shop", "crm|tmp", "app_[0-9]+", "(app|shop)_1", "^shop$", ".*", "äpp", "a\\,b", "app_99", "SHOP",
)  # fmt: skip
_TABLE_PARTS: Final = ("orders", "(orders|items)", ".*", "_orders_new", "customers", "t\\,1", "ORDERS", "secret.*")
_COLUMN_LISTS: Final = (
    "column.exclude.list", "column.blacklist", "column.truncate.to.5.chars", "column.mask.with.3.chars",
    "column.mask.hash.v2.SHA-256.with.salt.s", "column.mask.hash.SHA-256.with.salt.t",
)  # fmt: skip
_OLD_NAMES: Final = {"include": "whitelist", "exclude": "blacklist"}
_DEFAULTS: Final = {
    **_FLAGS, "heartbeat.interval.ms": "0", "topic.delimiter": ".", "skipped.operations": "t", "snapshot.isolation.mode": "repeatable_read",
    "signal.enabled.channels": "source", "decimal.handling.mode": "precise", "bigint.unsigned.handling.mode": "long",
    "binary.handling.mode": "bytes", "time.precision.mode": "adaptive_time_microseconds", "schema.name.adjustment.mode": "none",
    "field.name.adjustment.mode": "none", "snapshot.mode": "initial", "snapshot.mode.configuration.based.snapshot.data": "false",
    "snapshot.mode.configuration.based.start.stream": "false", "snapshot.mode.configuration.based.snapshot.on.data.error": "false",
    "snapshot.minimal.locks": "true", "key.converter": "org.apache.kafka.connect.json.jsonconverter",
    "value.converter.basic.auth.credentials.source": "url", "transforms.flat.delete.tombstone.handling.mode": "tombstone",
}  # fmt: skip
_SAME_CASE: Final = {**_FLAGS, **_WORDS, **dict.fromkeys(_OTHER_FLAGS)}


def mixture(rng: random.Random) -> dict[str, str]:
    """Return a connector: some documented properties with values that people write, right and wrong."""
    names = [*_FLAGS, *_OTHER_FLAGS, *_COUNTS, *_WORDS, *_TEXTS]
    found = {"connector.class": "io.debezium.connector.mysql.MySqlConnector", "topic.prefix": "p"}
    for name in rng.sample(names, rng.randrange(1, 30)):
        found[name] = _value(rng, name)
    if "transforms" in found:
        for alias in found["transforms"].split(","):
            found |= {name: rng.choice(texts) for name, texts in _TEXTS.items() if name.startswith(f"transforms.{alias}.")}
    for kind, which, make in (("database", ("include", "exclude"), _database), ("table", ("include", "exclude"), _table)):
        if rng.random() < 0.5:
            chosen = rng.choice(which)
            found[f"{kind}.{rng.choice((f'{chosen}.list', _OLD_NAMES[chosen]))}"] = _list(rng, make)
    for name in _COLUMN_LISTS:
        if rng.random() < 0.15:
            found[name] = _list(rng, lambda one: f"{_table(one)}\\.note")
    if rng.random() < 0.1:
        found[rng.choice(list(found))] = rng.choice(_PROVIDED)
    return found


def _value(rng: random.Random, name: str) -> str:
    if name in _FLAGS or name in _OTHER_FLAGS:
        return rng.choice((*_BOOLS, "yes")) if rng.random() < 0.9 else ""
    if name in _COUNTS:
        return rng.choice(_NUMBERS)
    if name in _WORDS:
        word = rng.choice(_WORDS[name])
        return rng.choice((word, word.upper(), f" {word} ", word.title()))
    return rng.choice(_TEXTS[name])


def _list(rng: random.Random, make: Any) -> str:
    return rng.choice((",", " , ")).join(make(rng) for _ in range(rng.choice((1, 1, 2, 3))))


def _database(rng: random.Random) -> str:
    return rng.choice(_PARTS)


def _table(rng: random.Random) -> str:
    parts = [f"(?:{rng.choice(_PARTS)})\\.(?:{rng.choice(_TABLE_PARTS)})" for _ in range(rng.choice((1, 2)))]
    return "|".join(part.replace("^", "").replace("$", "") for part in parts)


# ── the judge ────────────────────


def judge(properties: dict[str, str], importer: Importer = translate) -> Iterator[str]:
    """Yield what is wrong with the translation of a connector; nothing if it is right."""
    try:
        translation = importer(properties)
    except ConfigError as error:
        if not any(name in str(error) for name in properties):
            yield f"refused without the name of a property: {error}"
        return
    text = yaml.safe_dump(translation.settings)
    if HIDDEN in text + str(translation.findings):
        yield "a secret is shown"
    settings = from_mapping(yaml.safe_load(text))
    yield from _dropped(properties, translation, importer)
    yield from _refused_by_run(settings)
    yield from _differently_captured(properties, settings)
    yield from _other_tombstones(properties, settings)
    alike = {name: value.strip().lower() if name in _SAME_CASE else value for name, value in properties.items()}
    if importer(alike).settings != translation.settings:
        yield "upper and lower case, or spaces, make a difference"


def may_be_silent(name: str, value: str, translation: Translation) -> bool:
    """Return whether a property needs no mention: it has its default, or belongs to a transform that is reported as a whole."""
    transform = ".".join(name.split(".")[:2]) if name.startswith("transforms.") else None
    return value.strip().lower() in ("", _DEFAULTS.get(name)) or any(finding.name == transform for finding in translation.findings)


def _dropped(properties: dict[str, str], translation: Translation, importer: Importer) -> Iterator[str]:
    """Yield the properties without which settings, findings and the properties that are not needed are the same.

    A finding that names a property is no proof: some say that one is missing.
    """
    for name, value in properties.items():
        if name in translation.not_needed or may_be_silent(name, value, translation):
            continue
        try:
            without = importer({key: text for key, text in properties.items() if key != name})
        except ConfigError:
            continue
        if without == translation:
            yield f"{name} = {value!r} is dropped in silence"


def _refused_by_run(settings: Settings) -> Iterator[str]:
    start, snapshot = settings.snapshot.at_start, settings.snapshot
    reads = start.at_first_start or start.at_every_start or start.when_log_is_lost
    has_windows = settings.source.signal_table is not None or settings.source.read_only
    if reads and not has_windows and snapshot.consistency != "one_transaction":
        yield "run refuses the initial snapshot: there is no signal table"


def _other_tombstones(properties: dict[str, str], settings: Settings) -> Iterator[str]:
    """Yield whether a record without value follows a delete here and not in Debezium, or the other way round."""
    flag = properties.get("tombstones.on.delete", "").strip().lower() != "false"
    if settings.records.unwrap:
        mode = properties.get("transforms.flat.delete.tombstone.handling.mode", "").strip().lower()
        flag = {"drop": False, "rewrite": False, "rewrite-with-tombstone": flag}.get(mode, True)
    if settings.records.tombstones != flag:
        yield f"tombstones are {'not ' if flag else ''}sent"


def _differently_captured(properties: dict[str, str], settings: Settings) -> Iterator[str]:
    for database, table in names_of_tables():
        expected = _chosen(properties, "database", database) and _chosen(properties, "table", f"{database}.{table}")
        if settings.source.signal_table == f"{database}.{table}":
            continue
        if settings.source.captures(database, table) != expected:
            yield f"{database}.{table} is {'not ' if expected else ''}captured"


def _chosen(properties: dict[str, str], kind: str, name: str) -> bool:
    """Return whether lists choose a name, by Debezium's rule; the patterns here are those of Python, too."""
    for which, old in _OLD_NAMES.items():
        text = properties.get(f"{kind}.{which}.list") or properties.get(f"{kind}.{old}")
        if text:
            parts = [part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", text)]
            is_named = any(re.fullmatch(part, name, re.IGNORECASE | re.ASCII) for part in parts)
            return is_named == (which == "include")
    return True
