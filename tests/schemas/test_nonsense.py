"""Values that no setting can have: each is refused with its key, and with what to write in its place."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.settings import describe, from_mapping, why_no_merge

FILES = {"name": "files", "type": "files", "path": "/files"}
KAFKA = {"name": "topics", "type": "kafka", "path": "/topics"}
PATTERN = r"shop\.orders"


def settings_with(path: str, value: object) -> dict[str, Any]:
    """Return settings that are right, with one key of another value."""
    document: dict[str, Any] = {
        "name": "shop",
        "source": {"tables": [r"shop\..*"]},
        "format": {"registry": "http://registry:8081"},
        "sinks": [{"path": "/lake"}],
    }
    node: Any = document
    *parents, key = path.replace("[]", ".0").split(".")
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
    node[int(key) if isinstance(node, list) else key] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("source.host", "mysql://db", "'mysql://db' is an address of another kind"),
        ("source.host", "db:3306", "the port has a key of its own"),
        ("source.user", "", "is empty"),
        ("source.password", 12345, "expected text, got an integer without quotes; put it in quotes"),
        ("source.user", 12345, "expected text, got int 12345; put it in quotes"),
        ("source.start_at.gtids", "10 parsecs", "is not a set of GTIDs"),
        ("source.start_at.gtids", f"3e11fa47-71ca-11e1-9e33-c80aa9429562{':100-300' * 50}!", "is not a set of GTIDs"),
        ("source.connect_timeout_s", 10**12, "is above the largest value, 3600"),
        ("kafka.bootstrap_servers", "kafka", "'kafka' is not of the form <host>:<port>"),
        ("kafka.bootstrap_servers", "kafka:9092,other", "'other' is not of the form <host>:<port>"),
        ("kafka.bootstrap_servers", "kafka:99999", "'kafka:99999' is not of the form <host>:<port>"),
        ("kafka.bootstrap_servers", "http://kafka:9092", "is not of the form <host>:<port>"),
        ("kafka.partitions", 10**9, "is above the largest value"),
        ("format.registry", "registry:8081", "it begins with http:// or https://"),
        ("format.registry", "ftp://registry", "it begins with http:// or https://"),
        ("spark.driver_memory", "lots", "'lots' is not a size of memory"),
        ("spark.driver_memory", "2 parsecs", "is not a size of memory"),
        ("spark.driver_memory", "0g", "is not a size of memory"),
        ("sinks.0.name", "a/b", "'a/b' is not a name"),
        ("sinks.0.name", "..", "'..' is not a name"),
        ("sinks.0.name", "a\\b", "is not a name"),
        ("sinks.0.path", "~/lake", "give the whole path"),
        ("sinks.0.path", "/la\nke", "control character"),
        ("sinks.0.merge_memory_bytes", 10**15, "is above the largest value"),
        ("source.tls.ca", "~/ca.pem", "give the whole path"),
        ("service.host", "http://0.0.0.0", "address of another kind"),
        ("sinks.0", {**KAFKA, "format": "parquet"}, "sinks.0.format: parquet is for files"),
        ("sinks.0", {**FILES, "mode": "mirror"}, "sinks.0.mode: a sink of type files has no mode mirror, only changelog"),
        ("sinks.0", {"path": "/lake", "mode": "changelog"}, "sinks.0.mode: a sink of type delta has no mode changelog"),
        (
            "sinks.0",
            {**FILES, "mode": "changelog", "schema_changes": {"behaviour": "ignore"}},
            "sinks.0.schema_changes: each event has the columns that its table had then",
        ),
        *[
            (
                "sinks.0",
                {**FILES, "mode": "changelog", "schema_changes": given},
                f"sinks.0.schema_changes: {reason}",
            )
            for given, reason in (
                ({"behaviour": "try_evolve"}, "each event has the columns that its table had then"),
                ({"exclude": ["alter"]}, "each event has the columns that its table had then"),
                ({"exclude": ["truncate"]}, "a sink of type files cannot keep rows: apply truncate.table and drop.table"),
                ({"include": ["add", "alter", "truncate"]}, "a sink of type files cannot keep rows"),
            )
        ],
        *[
            (
                "sinks.0",
                {**KAFKA, "mode": "mirror", "transforms": [{"tables": PATTERN, **given}]},
                f"sinks.0.transforms.0.{name}: a sink of type kafka has no such setting",
            )
            for name, given in (("key", {"key": ["id"]}), ("soft_delete", {"soft_delete": "gone"}))
        ],
        (
            "sinks.0",
            {**FILES, "mode": "changelog", "transforms": [{"tables": PATTERN, "soft_delete": "gone"}]},
            "sinks.0.transforms.0.soft_delete: a sink of type files has no such setting",
        ),
        (
            "sinks.0",
            {**KAFKA, "mode": "changelog", "transforms": [{"tables": PATTERN, "soft_delete": "gone"}]},
            "sinks.0.transforms.0.soft_delete: a sink of type kafka has no such setting",
        ),
    ],
)
def test_nonsense_is_refused_with_its_key_and_a_reason(path: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_mapping(settings_with(path, value))
    assert str(refused.value).startswith(path)
    assert reason in str(refused.value)
    assert "12345" not in str(refused.value) or "password" not in path


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("source.host", "::1"),
        ("source.host", "db-1.example.org"),
        ("source.host", "my_db"),
        ("kafka.bootstrap_servers", "SASL_SSL://a:9092, [::1]:9093"),
        ("format.registry", "https://registry.example.org/apis/ccompat/v7"),
        ("source.start_at.gtids", "0-1-20,1-2-3"),
        ("source.start_at.gtids", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:11:47-49,\n3e11fa47-71ca-11e1-9e33-c80aa9429563:1"),
        ("spark.driver_memory", "512m"),
        ("spark.driver_memory", "2G"),
        ("spark.master", "local[2]"),
        ("spark.master", "spark://a:7077,b:7077"),
        ("sinks.0.name", "lake-1_b.c"),
        ("sinks.0.name", "der See, prod:1"),
        ("sinks.0", {**FILES, "mode": "changelog"}),
        ("sinks.0", {**KAFKA, "mode": "both", "format": "debezium-json"}),
    ],
)
def test_what_is_right_is_taken(path: str, value: object) -> None:
    from_mapping(settings_with(path, value))


def test_no_number_may_be_below_zero_or_without_an_end_and_no_text_may_have_a_character_of_code_0() -> None:
    for one in describe():
        if one.path.count("[]") > 1 or one.path.startswith("udfs"):
            continue
        for value in (-1, 10**18) if one.type == "integer" else ("a\0b",) if one.type == "text" else ():
            with pytest.raises(ConfigError):
                from_mapping(settings_with(one.path, value))


def test_json_is_right_for_a_producer_and_for_no_merge_job() -> None:
    document = settings_with("format", {"type": "json"})
    (reason,) = why_no_merge(from_mapping(document))
    assert reason.startswith("format.type: the merge job reads Avro only")
