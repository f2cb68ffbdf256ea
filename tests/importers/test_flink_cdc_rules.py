"""`import-flink-cdc`: rules and properties whose plain text would mean something else here."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.settings import Settings, from_mapping
from tidemark.importers.flink_cdc import translate_pipeline
from tidemark.importers.flink_cdc.expressions import translated


def imported(*transforms: dict[str, str], **keys: Any) -> tuple[Settings, dict[str, str]]:
    values: dict[str, Any] = {"source.type": "mysql", "source.hostname": "h", "source.tables": r"shop.\.*", "sink.type": "iceberg"}
    for number, transform in enumerate(transforms):
        values |= {f"transform.{number}.{name.replace('_', '-')}": value for name, value in transform.items()}
    translation = translate_pipeline(values | {name.replace("__", "."): value for name, value in keys.items()})
    return from_mapping(translation.settings), {one.name: one.what for one in translation.findings}


def test_a_filter_means_the_computed_column_also_if_the_table_has_one_of_its_name() -> None:
    settings, _ = imported({"source_table": "shop.t", "projection": r"\*, UPPER(name) AS name", "filter": "name = 'A' AND id > 1"})
    assert settings.sinks[0].transforms[0].where == "(UPPER(name)) = 'A' AND id > 1"


def test_a_filter_on_a_computed_column_that_is_left_out_is_left_out_too() -> None:
    settings, findings = imported({"source_table": "shop.t", "projection": "id, UUID() AS u", "filter": "u <> 'x'"})
    assert settings.sinks[0].transforms[0].where is None
    assert "u is left out of the projection" in findings["transform.0.filter"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("a <> b", "NOT coalesce(a = b, FALSE)"),
        ("a != 1 AND b = 2", "NOT coalesce(a = 1, FALSE) AND b = 2"),
        ("a NOT IN (1, 2)", "NOT coalesce(a IN (1, 2), FALSE)"),
        ("a NOT LIKE 'x%' ESCAPE '!'", "NOT coalesce(a LIKE 'x%' ESCAPE '!', FALSE)"),
        ("a NOT BETWEEN 1 AND 2 OR b = 1", "NOT coalesce(a BETWEEN 1 AND 2, FALSE) OR b = 1"),
        ("NOT (a > 1 AND b IN (1))", "NOT (coalesce(a > 1, FALSE) AND coalesce(b IN (1), FALSE))"),
        ("a IS NOT NULL AND b = 1", "a IS NOT NULL AND b = 1"),
        ("POSITION('b' IN a) <> 0", "NOT coalesce(POSITION('b' IN a) = 0, FALSE)"),
        ("WEEK(at)", "weekofyear(at)"),
        ("TO_TIMESTAMP_LTZ(ms, 3)", "timestamp_millis(ms)"),
        ("TO_TIMESTAMP_LTZ(s, 0)", "timestamp_seconds(s)"),
        ("TO_TIMESTAMP_LTZ(1700000000000)", "timestamp_millis(1700000000000)"),
    ],
)
def test_a_condition_keeps_the_rows_that_flink_cdc_keeps(theirs: str, ours: str) -> None:
    assert translated(theirs).text == ours


@pytest.mark.parametrize(
    ("text", "note"),
    [("a / b", "7 DIV 2"), ("'a' || b", "the text null"), ("CONCAT(a, b)", "the text null"), ("TO_TIMESTAMP_LTZ(a)", "timestamp_millis")],
)
def test_a_difference_that_depends_on_types_and_values_is_reported(text: str, note: str) -> None:
    assert note in " ".join(translated(text).notes)


def test_two_rules_for_one_table_are_reported() -> None:
    _, findings = imported(
        {"source_table": "shop.t", "projection": "id", "filter": "id > 1"}, {"source_table": r"shop.\.*", "projection": "id, b"}
    )
    assert "first whose filter it passes" in findings["transform.1.source-table"]
    _, findings = imported(
        {"source_table": "shop.t", "projection": "id", "filter": "id > 1"}, {"source_table": "shop.u", "projection": "id, b"}
    )
    assert "transform.1.source-table" not in findings


def test_a_rule_that_changes_nothing_still_keeps_later_ones_from_its_tables() -> None:
    settings, _ = imported({"source_table": "shop.t", "projection": r"\*"}, {"source_table": r"shop.\.*", "projection": "id"})
    assert [one.select for one in settings.sinks[0].transforms] == [("*",), ("id",)]
    settings, _ = imported({"source_table": "shop.t", "projection": r"\*"}, {"source_table": "shop.u", "projection": "id"})
    assert [one.select for one in settings.sinks[0].transforms] == [("id",)]


@pytest.mark.parametrize(("given", "into"), [("ods.ods_<>_di", "ods.ods_${table}_di"), ("ods.<>", "ods.$table"), ("ods.<>-x", "ods.$table-x")])
def test_a_symbol_in_the_name_of_a_target_is_the_table(given: str, into: str) -> None:
    route = {"source-table": r"shop.\.*", "sink-table": given, "replace-symbol": "<>"}
    settings, findings = imported(**{f"route__0__{name}": value for name, value in route.items()})
    assert [one.into for one in settings.sinks[0].routes] == [into]
    assert not [what for what in findings.values() if "left out" in what]


def test_properties_of_kafka_that_have_an_equivalent_are_taken_over() -> None:
    given = {
        "sink.type": "kafka", "sink.properties.bootstrap.servers": "k:9092", "sink.properties.compression.type": "zstd",
        "sink.properties.security.protocol": "SASL_SSL", "sink.properties.sasl.mechanism": "SCRAM-SHA-256", "sink.properties.acks": "all",
        "sink.properties.sasl.jaas.config": 'org.x.ScramLoginModule required username="me" password="hunter2";',
        "sink.properties.client.id": "c", "sink.properties.ssl.truststore.location": "/t.jks", "sink.partition.strategy": "all-to-zero",
    }  # fmt: skip
    settings, findings = imported(**{name.replace(".", "__"): value for name, value in given.items()})
    kafka = settings.kafka
    assert (kafka.bootstrap_servers, kafka.compression, kafka.security_protocol) == ("k:9092", "zstd", "SASL_SSL")
    assert (kafka.sasl.username, kafka.sasl.mechanism, kafka.options) == ("me", "SCRAM-SHA-256", {"client.id": "c"})
    assert not [name for name, what in findings.items() if "has no equivalent" in what]
    assert "PEM" in findings["sink.properties.ssl.truststore.location"]
    assert "hunter2" not in str(findings)
