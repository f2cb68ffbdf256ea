"""A Flink CDC pipeline to our settings, key by key: each is translated, reported with what to do, or named as not needed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from schemas.settings import from_mapping
from tidemark.importers.flink_cdc.rule_translation import RuleTranslation
from tidemark.importers.flink_cdc.sink_translation import translate_schema_changes, translate_sink
from tidemark.importers.flink_cdc.source_translation import translate_source
from tidemark.importers.key_ledger import Ledger, Translation

_NOT_NEEDED: Final = (
    "parallelism", "schema.operator.uid", "schema-operator.rpc-timeout", "operator.uid.prefix", "sink.partitioning.strategy",
)  # fmt: skip
_ONE_WAY: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "execution.runtime-mode": (
        ("STREAMING",), "there is no batch mode: snapshot.mode initial_only, and `tidemark merge --until-caught-up`"
    ),
    "local-time-zone": (
        ("UTC", "GMT", "Z"), "expressions compute in UTC: write from_utc_timestamp(value, zone) where a local time is wanted"
    ),
    "transform.decimal.precision.mode": (("UP_TO_38",), "decimals have up to 38 digits"),
}  # fmt: skip
"""By option: the values with which it has nothing to do here, and what to say of others."""
_UDFS: Final = "pipeline.user-defined-function"
_MODULE: Final = "pipeline_udfs"
_UNKNOWN: Final = "is no key that is known here"
_LONGEST_NAME: Final = 100
_KAFKA: Final = "changes go through Kafka: 127.0.0.1:9092 is a placeholder for its brokers"
_REGISTRY: Final = "the sinks need a schema registry (Confluent API): http://127.0.0.1:8081 is a placeholder"
_SIGNALS: Final = "snapshots need a signal table: create one (docs/snapshots.md) and name it, or set source.read_only"


def translate_pipeline(values: Mapping[str, Any]) -> Translation:
    """Return settings for the same tables, targets and rules.

    `values` are the pipeline's keys (`read_pipeline`). `ConfigError` where the settings contradict each other.
    """
    return close_all(Ledger(dict(values)))


def close_all(ledger: Ledger) -> Translation:
    """Close every key of a ledger, and return the settings."""
    _name(ledger)
    translate_source(ledger)
    _kafka(ledger)
    translate_sink(ledger)
    translate_schema_changes(ledger)
    if ledger.text("pipeline.route-mode").upper() == "FIRST_MATCH":
        ledger.translate("pipeline.route-mode", "sinks.0.match", "first")
    ledger.close("pipeline.route-mode", "sinks.0.match")
    rules = RuleTranslation(ledger, _functions(ledger), _models(ledger))
    rules.routes()
    rules.transforms()
    _pipeline(ledger)
    for key in list(ledger.open):
        ledger.report(key, _UNKNOWN)
    from_mapping(ledger.out)  # what cannot be run is not written
    return ledger.translation()


def _name(ledger: Ledger) -> None:
    """Translate the name, which is also the prefix of topics: letters, digits, `.`, `_` and `-`."""
    text = ledger.text("pipeline.name")
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-")[:_LONGEST_NAME]
    ledger.put("name", name or "imported")
    if text:
        ledger.translate("pipeline.name", "name", name or "imported")


def _kafka(ledger: Ledger) -> None:
    ledger.put("kafka.bootstrap_servers", "127.0.0.1:9092")
    ledger.put("format.registry", "http://127.0.0.1:8081")
    if "sink.properties.bootstrap.servers" not in ledger.open:
        ledger.note("kafka.bootstrap_servers", _KAFKA)
    ledger.note("format.registry", _REGISTRY)
    ledger.note("source.signal_table", _SIGNALS)


def _functions(ledger: Ledger) -> frozenset[str]:
    """Translate the user-defined functions, and return their names: each is to be written in Python."""
    found: list[str] = []
    for key in list(ledger.keys(_UDFS)):
        rule, _, member = key.removeprefix(f"{_UDFS}.").partition(".")
        if member != "name":
            continue
        name, number = ledger.text(key), len(found)
        ledger.translate(key, f"udfs.{number}.name", name)
        ledger.put(f"udfs.{number}.function", f"{_MODULE}:{name}")
        ledger.put(f"udfs.{number}.returns", "string")
        what = "from the Python code of the pipeline" if f"{_UDFS}.{rule}.python-code" in ledger.open else "in Python"
        ledger.note(key, f"write {_MODULE}.py with the function {name}, {what}, and correct its type in udfs.{number}.returns")
        found.append(name.lower())
    for key in list(ledger.keys(_UDFS)):
        ledger.report(key, f"is not copied: the function is to be in {_MODULE}.py")
    return frozenset(found)


def _models(ledger: Ledger) -> frozenset[str]:
    """Report the AI models, and return their names."""
    names = [key for key in ledger.keys("pipeline.model") if key.endswith((".name", ".model-name"))]
    found = frozenset(ledger.text(key).lower() for key in names)
    for key in list(ledger.keys("pipeline.model")):
        ledger.report(key, "AI models are not asked: their answers are not the same when a batch is run again")
    return found


def _pipeline(ledger: Ledger) -> None:
    for name in _NOT_NEEDED:
        ledger.skip(f"pipeline.{name}")
    for name, (ours, what) in _ONE_WAY.items():
        key = f"pipeline.{name}"
        if ledger.text(key).upper() in ours:
            ledger.skip(key)
        elif key in ledger.open:
            ledger.report(key, what)
