"""The section `sink` of a Flink CDC pipeline to a sink of ours: its type, where it is, and which schema changes it follows."""

from __future__ import annotations

import re
from typing import Final

from schemas.settings import KafkaSettings, SinkSettings
from schemas.settings.kafka_section import SaslSettings
from schemas.settings.sink_section import UNAVAILABLE
from tidemark.importers.key_ledger import Ledger, choices, has_setting

_TYPES: Final = {"iceberg": "iceberg", "kafka": "kafka"}
_REASONS: Final = {
    **UNAVAILABLE,
    "elasticsearch": "there is no such sink: read the topics with a connector of Kafka Connect",
    "maxcompute": "there is no such sink",
    "fluss": "there is no such sink",
    "values": "prints changes: read the topics with a console consumer",
}
_FORMATS: Final = ("debezium-json", "canal-json")
_PLACEHOLDER: Final = "/data/lake"
_BEHAVIOURS: Final = ("lenient", "evolve", "try_evolve", "ignore", "exception")
_COLUMNS: Final = ("add.column", "alter.column.type", "drop.column")
_KINDS: Final = ("create.table", *_COLUMNS, "truncate.table", "drop.table")
_GROUPS: Final = {"column": _COLUMNS, "table": ("create.table", "truncate.table", "drop.table")}
_EMPTIED: Final = (
    "rows of a table that is truncated or dropped go here, where Flink CDC keeps them unless the behaviour is evolve"
)
_SASL_SECRET: Final = "/run/secrets/tidemark-kafka"  # noqa: S105  a path
_USER: Final = re.compile(r"""username\s*=\s*["']([^"']+)["']""")
_TOPIC_ADVICE: Final = {
    "partition.strategy": "records go to partitions by their keys, in order for each key",
    "key.format": "keys are written as values are",
    "sink.add-tableId-to-header-enabled": "is unavailable: the value has database and table",
    "sink.custom-header": "is unavailable: records have no headers of your own",
    "sink.delivery-guarantee": "each event is written once, in transactions: read committed records",
    "sink.delivery.guarantee": "each event is written once, in transactions: read committed records",
    "debezium-json.include-schema.enabled": "is unavailable: values have no schema block",
}
_SAME_OPTIONS: Final = ("client.id", "linger.ms", "batch.size", "request.timeout.ms")
_NOT_NEEDED: Final = (
    "acks", "enable.idempotence", "retries", "delivery.timeout.ms", "transaction.timeout.ms",
    "max.in.flight.requests.per.connection", "transactional.id", "key.serializer", "value.serializer", "buffer.memory",
)  # fmt: skip
_OF_KAFKA: Final = "sink.properties.bootstrap.servers"


def translate_sink(ledger: Ledger) -> None:
    """Translate every key of the section; a type that cannot be is written as a Delta sink, and reported."""
    kind = ledger.text("sink.type").lower()
    ours = _TYPES.get(kind)
    ledger.put("sinks.0.name", "lake")
    if ours in choices(SinkSettings, "type"):
        ledger.translate("sink.type", "sinks.0.type", ours)
    else:
        ledger.put("sinks.0.type", "delta")
        why = _REASONS.get(kind, "there is no such sink in this version")
        ledger.report("sink.type", f"{why}; a Delta sink is written instead")
        ours = None
    _address(ledger, ours)
    if ours == "kafka":
        _topics(ledger)
    ledger.skip("sink.name")
    for key in ledger.keys("sink"):
        if not key.endswith(("clude.schema.changes",)):
            ledger.report(key, f"is an option of {kind or 'that sink'}, and has no equivalent")


def _address(ledger: Ledger, ours: str | None) -> None:
    """Translate the address of the sink."""
    key = "sink.catalog.properties.warehouse"
    path = ledger.text(key)
    ledger.put("sinks.0.path", _PLACEHOLDER)
    if ours == "iceberg" and path.startswith(("/", "file:")):
        ledger.translate(key, "sinks.0.path", path)
        if ledger.text("sink.catalog.properties.type") == "hadoop":
            ledger.close("sink.catalog.properties.type", "sinks.0.type")
    else:
        ledger.note("sinks.0.path", f"{_PLACEHOLDER} is a placeholder: name the folder of the sink")
    if ledger.text(_OF_KAFKA):
        ledger.translate(_OF_KAFKA, "kafka.bootstrap_servers", ledger.text(_OF_KAFKA).removeprefix("PLAINTEXT://"))


def _topics(ledger: Ledger) -> None:
    """Translate what is written to topics, and where: changelogs, each event once."""
    ledger.put("sinks.0.mode", "changelog")
    key = "sink.value.format"
    form = ledger.text(key).lower() or _FORMATS[0]
    if form in _FORMATS:
        ledger.put("sinks.0.format", form)
        ledger.close(key, "sinks.0.format")
    else:
        ledger.report(key, f"is no format of Flink CDC; one of {', '.join(_FORMATS)}")
    _client(ledger)
    ledger.report_given("sink.topic", "each target has a topic of its own: route all tables into one target for one topic")
    ledger.report_given("sink.sink.tableId-to-topic.mapping", "write a route for each of these tables")
    ledger.note("sinks.0.type", "topics must not have records of others: give new ones (sinks.0.topic, routes)")


def _client(ledger: Ledger) -> None:
    """Translate the properties of Kafka's client. What makes its records exact is always so here."""
    properties = "sink.properties"
    protocol = ledger.text(f"{properties}.security.protocol").strip().upper()
    if protocol in choices(KafkaSettings, "security_protocol"):
        ledger.translate(f"{properties}.security.protocol", "kafka.security_protocol", protocol)
    key = f"{properties}.sasl.jaas.config"
    user = _USER.search(ledger.text(key))
    if protocol.startswith("SASL") and user is not None:
        ledger.put("kafka.sasl.username", user[1])
        ledger.put("kafka.sasl.password_file", _SASL_SECRET)
        ledger.note(key, f"secrets are not copied: put the password into {_SASL_SECRET}, first line, or name another file")
        ledger.close(key, "kafka.sasl")
    elif protocol.startswith("SASL"):
        ledger.out["kafka"].pop("security_protocol", None)
        ledger.note(f"{properties}.security.protocol", "needs a user: set kafka.security_protocol with kafka.sasl", protocol)
    mechanism = ledger.text(f"{properties}.sasl.mechanism").strip().upper()
    if user is not None and mechanism in choices(SaslSettings, "mechanism"):
        ledger.translate(f"{properties}.sasl.mechanism", "kafka.sasl.mechanism", mechanism)
    compression = ledger.text(f"{properties}.compression.type").strip().lower()
    if compression in choices(KafkaSettings, "compression"):
        ledger.translate(f"{properties}.compression.type", "kafka.compression", compression)
    for name in _SAME_OPTIONS:
        if value := ledger.text(f"{properties}.{name}").strip():
            ledger.out["kafka"].setdefault("options", {})[name] = value
            ledger.close(f"{properties}.{name}", "kafka.options")
    for name in _NOT_NEEDED:
        ledger.skip(f"{properties}.{name}")
    for name in list(ledger.keys(f"{properties}.ssl")):
        ledger.report(name, "Java key stores are not read: convert it to PEM, name it in kafka.tls.ca, cert or key")
    for name, what in _TOPIC_ADVICE.items():
        ledger.report_given(f"sink.{name}", what)


def translate_schema_changes(ledger: Ledger) -> None:
    """Translate which changes of columns the sink follows: keys of `sink` and of `pipeline`."""
    if ledger.out["sinks"][0].get("mode") == "changelog":
        for key in ("pipeline.schema.change.behavior", "sink.include.schema.changes", "sink.exclude.schema.changes"):
            ledger.report_given(key, "a changelog has each row as its table was then: there is nothing to choose")
        return
    known = has_setting(SinkSettings, "schema_changes")
    key = "pipeline.schema.change.behavior"
    behaviour = ledger.text(key).lower()
    if behaviour in ("", "lenient"):
        ledger.note(key, _EMPTIED)
        ledger.close(key, "sinks.0")
    elif behaviour not in _BEHAVIOURS:
        ledger.report(key, f"is no behaviour of Flink CDC; one of {', '.join(_BEHAVIOURS)}")
    elif known:
        ledger.translate(key, "sinks.0.schema_changes.behaviour", behaviour)
    else:
        ledger.report(key, "columns follow the source leniently in this version: added, widened, never dropped")
    for name in ("include", "exclude"):
        key = f"sink.{name}.schema.changes"
        if key in ledger.open and known:
            ledger.translate(key, f"sinks.0.schema_changes.{name}", change_kinds(ledger, key) or ["create.table"])
        elif key in ledger.open:
            ledger.report(key, "every change of columns is followed leniently in this version")


def change_kinds(ledger: Ledger, key: str) -> list[str]:
    """Return the kinds of changes that a list names; those that are none here are reported."""
    given = ledger.value(key)
    found: list[str] = []
    for one in given if isinstance(given, list) else str(given).strip("[]").split(","):
        name = str(one).strip().lower()
        kinds = _GROUPS.get(name) or [kind for kind in _KINDS if kind == name or kind.startswith(f"{name}.")]
        if not kinds:
            ledger.note(key, f"{name} is no kind of change here: a renamed column is one that is dropped and one that is added")
        found += [kind for kind in kinds if kind not in found]
    return found
