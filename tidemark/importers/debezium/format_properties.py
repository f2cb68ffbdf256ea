"""The properties of Kafka and of the converters: brokers, topics, and how keys and values are written."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from schemas.settings import FormatSettings, KafkaSettings
from tidemark.importers.debezium.connector_ledger import ConnectorLedger
from tidemark.importers.key_ledger import choices

_AVRO: Final = {
    "io.confluent.connect.avro.AvroConverter": "schema.registry.url",
    "io.apicurio.registry.utils.converter.AvroConverter": "apicurio.registry.url",
}
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_ACCESS: Final = {part: (f"{part}.converter.", f"{part}.converter.schema.registry.") for part in ("value", "key")}
_SOURCE: Final = "value.converter.basic.auth.credentials.source"
_REGISTRY_SECRET: Final = "/run/secrets/tidemark-registry"  # noqa: S105  a path
_PLACEHOLDER: Final = "http://127.0.0.1:8081"
_MODES: Final = (
    ("decimal.handling.mode", "decimal", "precise"),
    ("bigint.unsigned.handling.mode", "bigint_unsigned", "long"),
    ("binary.handling.mode", "binary", "bytes"),
    ("time.precision.mode", "time", "adaptive_time_microseconds"),
    ("schema.name.adjustment.mode", "schema_names", "none"),
    ("field.name.adjustment.mode", "field_names", "none"),
)


def translate_kafka(ledger: ConnectorLedger) -> None:
    """Translate the brokers, the topics, and what Connect's producer was given."""
    name = "schema.history.internal.kafka.bootstrap.servers"
    if servers := ledger.text(name).strip():
        ledger.translate(name, "kafka.bootstrap_servers", servers)
    else:
        ledger.note("bootstrap.servers", "is the Connect worker's: set kafka.bootstrap_servers")
    name = "topic.creation.default.partitions"
    if name in ledger.open:
        ledger.whole(name, "kafka.partitions")
    else:
        ledger.note(name, "is not set: kafka.partitions must be the count that the topics have")
    name = "topic.delimiter"
    if re.fullmatch(r"[A-Za-z0-9._-]{1,20}", ledger.text(name).strip()):
        ledger.translate(name, "kafka.topic_delimiter", ledger.text(name).strip())
    elif name in ledger.open:
        ledger.report(name, "cannot be in a topic's name: 1 to 20 of A-Z a-z 0-9 . _ -")
    name = "producer.override.compression.type"
    if ledger.word(name) in choices(KafkaSettings, "compression"):
        ledger.translate(name, "kafka.compression", ledger.word(name))
    for name in sorted(ledger.open):
        match = re.fullmatch(r"schema\.history\.internal\.producer\.(security\.protocol|sasl\.mechanism)", name)
        if match is not None and ledger.text(name).strip():
            ledger.out.setdefault("kafka", {}).setdefault("options", {})[match[1]] = ledger.text(name).strip()
            ledger.close(name, "kafka.options")
    for name in [name for name in ledger.open if re.search(r"\.(sasl|security)\.|\.(producer|consumer|override)\.ssl\.", name)]:
        ledger.report(name, "set librdkafka's words for it in kafka.options (sasl.username, sasl.password, ssl.ca.location ...)")


def translate_format(ledger: ConnectorLedger) -> None:
    """Translate the converters, and the modes of values and names."""
    key, value = ledger.text("key.converter").strip(), ledger.text("value.converter").strip()
    if value in _AVRO:
        _avro(ledger, value)
    else:
        _json(ledger, key, value)
    if key and key != (value or _JSON):
        ledger.report("key.converter", "keys are written as values are; change their consumers")
    elif value and not key:
        ledger.note("key.converter", "is the Connect worker's: keys are written as values are")
    ledger.close("key.converter", "format.type")
    ledger.close("value.converter", "format.type")
    for name in [name for name in ledger.open if name.startswith(("key.converter.", "value.converter."))]:
        ledger.report(name, "belongs to a converter of Connect; Tidemark writes its own records")
    if "sanitize.field.names" in ledger.open and "field.name.adjustment.mode" not in ledger.open:
        if ledger.flag("sanitize.field.names", default=False):
            ledger.put("format.field_names", "avro")
        ledger.close("sanitize.field.names", "format.field_names")
    for name, ours, default in _MODES:
        mode, allowed = ledger.word(name, default), choices(FormatSettings, ours)
        if mode not in allowed:
            ledger.report(name, f"is unavailable; one of {', '.join(allowed)} (format.{ours})")
        elif mode != FormatSettings.__dataclass_fields__[ours].default:
            ledger.put(f"format.{ours}", mode)
        ledger.close(name, f"format.{ours}")


def _json(ledger: ConnectorLedger, key: str, value: str) -> None:
    schemas = ledger.flag("value.converter.schemas.enable", default=True)
    ledger.put("format.type", "json")
    ledger.put("format.schemas", schemas)
    if not value:
        ledger.note("value.converter", "is the Connect worker's: JSON with schemas is assumed; see format.type, schemas")
    elif value != _JSON:
        ledger.report("value.converter", "is unavailable: records are written as JSON or Avro; change the consumers")
    name = "key.converter.schemas.enable"
    if key in ("", _JSON):
        if (key_schemas := ledger.flag(name, default=True)) != schemas:
            ledger.report(name, f"keys and values have schemas both, or none: {str(key_schemas).lower()} is not kept")
        ledger.close(name, "format.schemas")
    ledger.close("value.converter.schemas.enable", "format.schemas")


def _avro(ledger: ConnectorLedger, value: str) -> None:
    option = _AVRO[value]
    name = f"value.converter.{option}"
    url = ledger.text(name).strip()
    first, _, others = url.partition(",")
    split = urlsplit(first.strip()) if "://" in first else None
    ledger.put("format.type", "avro")
    ledger.put("format.registry", _PLACEHOLDER)
    if split is None or not split.hostname:
        what = f"is no URL: {_PLACEHOLDER} is a placeholder, set format.registry" if url else "is missing: set format.registry"
        ledger.note(name, what, url)
    else:
        address = split._replace(netloc=split.netloc.rpartition("@")[2]).geturl()
        if "apicurio" in value:
            address = re.sub(r"/apis/.*$", "", address.rstrip("/")) + "/apis/ccompat/v7"
            ledger.note("value.converter", "records are in Confluent's wire format: consumers read as-confluent", value)
        ledger.put("format.registry", address)
        if others.strip():
            ledger.note(name, f"one registry is asked: {address} alone")
    ledger.close(name, "format.registry")
    other = f"key.converter.{option}"
    if ledger.text(other).strip() in ("", url):
        ledger.skip(other)
    _registry_access(ledger, name, (split and split.username) or "")


def _registry_access(ledger: ConnectorLedger, url: str, user_of_url: str) -> None:
    """Translate the user that the converter of values sends to the registry, as `credentials.source` says; URL is its default."""
    sources, infos = (
        [name for prefix in _ACCESS["value"] if (name := f"{prefix}basic.auth.{option}") in ledger.open]
        for option in ("credentials.source", "user.info")
    )
    for prefix in _ACCESS["key"]:
        for name in ledger.keys(f"{prefix}basic.auth"):
            if ledger.text(name) == ledger.text(name.replace("key", "value", 1)):
                ledger.skip(name)
            else:
                ledger.report(name, "differs from that of value.converter, which counts for keys too")
    source = next((ledger.word(name) for name in sources), "")
    if source == "user_info" or (not source and not user_of_url):
        for name in infos[:1]:
            _registry_user(ledger, name, ledger.text(name).partition(":")[0].strip())
            if not source:
                ledger.note(_SOURCE, "is not set, so the connector sends no user: the one of user.info is taken over")
            ledger.close_all([name, *sources], "format.registry_access.user")
    elif source in ("url", ""):
        if user_of_url:
            _registry_user(ledger, url, user_of_url)
        ledger.close_all(sources, "format.registry_access.user")
    for name in [name for name in infos if name in ledger.open]:
        ledger.report(name, "is not sent by the connector: credentials.source, or another user.info, chooses another user")
    for prefix in (*_ACCESS["value"], *_ACCESS["key"]):
        for name in [name for kind in ("ssl", "bearer", "basic.auth") for name in ledger.keys(f"{prefix}{kind}")]:
            ledger.report(name, "is not copied: set format.registry_access (user, password_file; ca, cert and key are PEM files)")


def _registry_user(ledger: ConnectorLedger, name: str, user: str) -> None:
    if not user or "${" in user:
        ledger.note(name, "has the user of the registry: set format.registry_access")
        return
    ledger.put("format.registry_access.user", user)
    ledger.put("format.registry_access.password_file", _REGISTRY_SECRET)
    ledger.note(name, f"secrets are not copied: put the password into {_REGISTRY_SECRET}, first line, or name another file")
