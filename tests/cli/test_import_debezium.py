"""`tidemark import-debezium`: Debezium's own golden connectors, and configurations as teams have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.errors import ConfigError
from schemas.settings import from_mapping
from tests.support.golden import FOLDER
from tidemark import cli
from tidemark.importers.debezium import StartAt, Translation, parse_offset, read_properties, translate

GOLDEN = sorted(FOLDER.glob("*/connector-*.properties"))
SHOP = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "tasks.max": "1",
    "topic.prefix": "shop",
    "database.hostname": "mysql",
    "database.port": "3307",
    "database.user": "dbz",
    "database.password": "s3cret!",
    "database.server.id": "184054",
    "database.ssl.mode": "verify_ca",
    "database.ssl.truststore": "/etc/trust.jks",
    "table.include.list": r"shop\.orders, shop\.(customers|addr{1\,2})",
    "signal.data.collection": "shop.debezium_signal",
    "schema.history.internal.kafka.bootstrap.servers": "k1:9092,k2:9092",
    "schema.history.internal.kafka.topic": "shop-history",
    "schema.history.internal.producer.security.protocol": "SASL_SSL",
    "schema.history.internal.producer.sasl.jaas.config": "org... password='x'",
    "topic.creation.default.partitions": "6",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "key.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://registry:8081",
    "key.converter.schema.registry.url": "http://registry:8081",
    "tombstones.on.delete": "false",
    "heartbeat.interval.ms": "5000",
    "column.mask.with.4.chars": r"shop\.customers\.phone",
    "column.exclude.list": r"shop\.customers\.ssn",
    "message.key.columns": r"shop\.log:a,b;(.*)\.audit:id",
    "snapshot.mode": "schema_only",
    "snapshot.max.threads": "8",
    "max.batch.size": "4096",
    "gtid.source.includes": "abc",
    "made.up": "1",
}


def reported(translation: Translation) -> dict[str, str]:
    return {finding.name: finding.what for finding in translation.findings}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_golden_connector_becomes_settings_that_are_accepted(path: Path) -> None:
    properties = read_properties(path.read_text("utf-8").replace("${KAFKA}", "kafka:9092"), str(path))
    translation = translate(properties)
    settings = from_mapping(translation.settings)
    assert settings.name == properties["topic.prefix"]
    assert settings.source.tables == (properties["table.include.list"],)
    assert settings.format.bigint_unsigned == properties.get("bigint.unsigned.handling.mode", "long")
    assert settings.format.time == properties.get("time.precision.mode", "adaptive_time_microseconds")
    assert settings.format.schemas
    # Every property is set, reported, or named as not needed.
    shown = set(reported(translation)) | set(translation.not_needed)
    silent = {name for name in properties if name not in shown and not name.startswith("column.mask.hash")}
    assert silent <= {
        "bigint.unsigned.handling.mode", "binary.handling.mode", "column.mask.with.10.chars",
        "column.propagate.source.type", "column.truncate.to.5.chars", "database.hostname", "database.port", "database.user", "decimal.handling.mode",
        "heartbeat.action.query", "heartbeat.interval.ms", "include.query", "include.schema.changes", "include.schema.comments",
        "message.key.columns", "name", "provide.transaction.metadata", "schema.history.internal.kafka.bootstrap.servers",
        "skip.messages.without.change", "skipped.operations", "snapshot.mode", "table.include.list",
        "time.precision.mode", "tombstones.on.delete", "topic.creation.default.partitions", "topic.prefix",
    }  # fmt: skip


def test_there_are_golden_connectors() -> None:
    assert len(GOLDEN) >= 8


def test_a_teams_connector_becomes_its_settings() -> None:
    translation = translate(SHOP)
    settings = from_mapping(translation.settings)
    assert (settings.name, settings.source.host, settings.source.port) == ("shop", "mysql", 3307)
    assert settings.source.tables == (r"shop\.orders", r"shop\.(customers|addr{1,2})")
    assert settings.source.captures("shop", "customers")
    assert not settings.source.captures("shop", "other")
    assert (settings.source.signal_table, settings.source.tls.mode) == ("shop.debezium_signal", "verify_ca")
    assert (settings.format.type, settings.format.registry) == ("avro", "http://registry:8081")
    assert settings.format.bigint_unsigned == "long"
    assert (settings.kafka.bootstrap_servers, settings.kafka.partitions) == ("k1:9092,k2:9092", 6)
    assert settings.kafka.options == {"security.protocol": "SASL_SSL"}
    assert (settings.records.tombstones, settings.records.heartbeat_interval_ms) == (False, 5000)
    assert settings.records.message_key_columns == {r"shop\.log": "a,b", r"(.*)\.audit": "id"}
    assert [(item.chars, item.columns) for item in settings.records.column_mask_with_chars] == [
        (4, (r"shop\.customers\.phone",))
    ]
    assert settings.snapshot.readers == 8
    findings = reported(translation)
    assert "password" in findings["database.password"] or "secrets" in findings["database.password"]
    assert "s3cret" not in str(translation)
    assert "password='x'" not in str(translation)
    assert findings["made.up"] == "has no equivalent"
    assert "choose by tables" in findings["gtid.source.includes"]
    assert "PEM" in findings["database.ssl.truststore"]
    assert "max.batch.size" in translation.not_needed


@pytest.mark.parametrize(
    ("lists", "inside", "outside"),
    [
        ({"database.include.list": "shop,crm"}, ["shop.a", "crm.b"], ["shopx.a", "other.a"]),
        ({"table.exclude.list": r"shop\.log.*"}, ["shop.a", "crm.log"], ["shop.log_2020"]),
        ({"database.exclude.list": "tmp", "table.exclude.list": r"shop\.x"}, ["shop.xy"], ["tmp.a", "shop.x"]),
        ({"database.include.list": "shop", "table.include.list": r".*\.orders"}, ["shop.orders"], ["crm.orders"]),
        ({"database.include.list": "shop_[0-9]+", "table.exclude.list": r".*\.t"}, ["shop_1.a"], ["shop_1.t", "shop_.a"]),
        ({}, ["a.b"], []),
    ],
)
def test_lists_of_databases_and_tables_choose_the_same_tables(
    lists: dict[str, str], inside: list[str], outside: list[str]
) -> None:
    settings = from_mapping(translate({"topic.prefix": "p", "database.hostname": "h", **lists}).settings)
    assert [name for name in inside if not settings.source.captures(*name.split(".", 1))] == []
    assert [name for name in outside if settings.source.captures(*name.split(".", 1))] == []


def test_columns_hashed_the_old_way_are_left_out_and_not_written_in_clear() -> None:
    name = "column.mask.hash.SHA-256.with.salt.abc"
    translation = translate({"topic.prefix": "p", name: r"d\.t\.secret", "column.include.list": r"d\.t\..*"})
    (pattern,) = translation.settings["records"]["column_include_list"]
    assert pattern == r"(?!d\.t\.secret\Z)d\.t\..*"
    assert "LEFT OUT" in reported(translation)["column.mask.hash...with.salt"]


def test_names_of_topics_comments_and_source_types_are_taken_over() -> None:
    translation = translate(
        {
            "topic.prefix": "p",
            "topic.delimiter": "_",
            "include.query": "true",
            "include.schema.comments": "true",
            "column.propagate.source.type": r"d\.t\.a, d\.u\.(b\,c)",
            "datatype.propagate.source.type": r".+\.VARCHAR",
        }
    )
    settings = from_mapping(translation.settings)
    assert settings.kafka.topic_delimiter == "_"
    assert (settings.records.include_schema_comments, settings.records.include_query) == (True, True)
    assert settings.records.column_propagate_source_type == (r"d\.t\.a", r"d\.u\.(b,c)")
    assert settings.records.datatype_propagate_source_type == (r".+\.VARCHAR",)
    assert not {"topic.delimiter", "include.schema.comments", "column.propagate.source.type"} & set(reported(translation))


def test_flat_rows_and_other_transforms() -> None:
    unwrap = {
        "transforms": "flat,route",
        "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.flat.delete.tombstone.handling.mode": "rewrite",
        "transforms.flat.add.fields": "op,source.ts_ms",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": "a",
    }
    translation = translate({"topic.prefix": "p", **unwrap})
    settings = from_mapping(translation.settings)
    assert settings.records.unwrap
    assert not settings.records.tombstones
    assert not [name for name in reported(translation) if name.startswith("transforms.flat")]
    assert "topic names" in reported(translation)["transforms.route"]


def test_an_outbox_router_becomes_outbox_settings() -> None:
    router = {
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": "events.${routedByValue}",
        "transforms.outbox.table.field.event.payload": "body",
        "transforms.outbox.table.expand.json.payload": "true",
    }
    translation = translate({"topic.prefix": "p", "table.include.list": r"d\.outbox", **router})
    outbox = from_mapping(translation.settings).records.outbox
    assert (outbox.tables, outbox.topic, outbox.payload) == ((r"d\.outbox",), "events.${routedByValue}", "body")
    assert "transforms.outbox.table.expand.json.payload" in reported(translation)


def test_snapshots_and_signals_are_those_of_the_connector() -> None:
    connector = {
        "snapshot.mode": "configuration_based",
        "snapshot.mode.configuration.based.snapshot.data": "true",
        "snapshot.mode.configuration.based.start.stream": "true",
        "incremental.snapshot.watermarking.strategy": "insert_delete",
        "signal.enabled.channels": "source,kafka,file,jmx",
        "signal.kafka.topic": "shop-signals",
        "signal.file": "signals.txt",
        "signal.poll.interval.ms": "500",
    }
    translation = translate({"topic.prefix": "p", **connector})
    settings = from_mapping(translation.settings)
    flags = settings.snapshot.configuration_based
    assert (settings.snapshot.mode, settings.snapshot.merge) == ("configuration_based", "producer")
    assert (flags.snapshot_data, flags.start_stream, flags.snapshot_on_data_error) == (True, True, False)
    assert settings.snapshot.watermarking_strategy == "insert_delete"
    assert settings.signal.channels == ("source", "kafka", "file")
    assert (settings.signal.kafka_topic, settings.signal.file) == ("shop-signals", "signals.txt")
    assert settings.signal.poll_interval_ms == 500
    assert "Java processes" in reported(translation)["signal.enabled.channels"]


@pytest.mark.parametrize(("theirs", "ours"), [("schema_only", "no_data"), ("recovery", "no_data"), ("always", "always")])
def test_snapshot_modes_have_their_names_of_today(theirs: str, ours: str) -> None:
    assert from_mapping(translate({"topic.prefix": "p", "snapshot.mode": theirs}).settings).snapshot.mode == ours


OFFSET: dict[str, Any] = {"ts_sec": 1, "file": "binlog.000003", "pos": 154, "gtids": "a:1-5,\nb:1", "event": 2, "row": 1}


@pytest.mark.parametrize(
    "document",
    [
        OFFSET,
        {"offsets": [{"partition": {"server": "shop"}, "offset": OFFSET}]},
        {"partition": {"server": "shop"}, "offset": OFFSET},
    ],
)
def test_an_offset_says_where_to_begin(document: dict[str, Any]) -> None:
    assert parse_offset(json.dumps(document), "x") == StartAt("binlog.000003", 154, "a:1-5,b:1", in_transaction=True)


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ({**OFFSET, "snapshot": True}, "inside its snapshot"),
        ({"lsn": 5}, "no file and pos"),
        ({"offsets": []}, "0 offsets"),
        ([1], "not an offset"),
    ],
)
def test_what_is_no_offset_to_continue_from_is_refused(document: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        parse_offset(json.dumps(document), "x")


def test_an_offset_becomes_the_first_starts_position() -> None:
    with_gtids = translate(SHOP, StartAt("f.1", 4, "a:1-5", in_transaction=True))
    assert with_gtids.settings["source"]["start_at"] == {"gtids": "a:1-5"}
    assert with_gtids.settings["snapshot"]["mode"] == "never"
    without = from_mapping(translate(SHOP, StartAt("f.000001", 4, "", in_transaction=False)).settings)
    assert (without.source.start_at.file, without.source.start_at.pos) == ("f.000001", 4)


@pytest.mark.parametrize("wrapped", [True, False])
def test_the_command_writes_a_file_that_run_accepts(
    wrapped: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document: dict[str, Any] = {"name": "shop-connector", "config": SHOP} if wrapped else SHOP
    connector, offset, output = tmp_path / "c.json", tmp_path / "o.json", tmp_path / "tidemark.yaml"
    connector.write_text(json.dumps(document))
    offset.write_text(json.dumps({**OFFSET, "gtids": ""}))
    code = cli.main(["import-debezium", str(connector), "--offset", str(offset), "--output", str(output)])
    assert code == cli.OK
    text = output.read_text("utf-8")
    assert from_mapping(yaml.safe_load(text)).source.start_at.pos == 154
    assert "#   made.up = 1: has no equivalent" in text
    assert "made.up = 1: has no equivalent" in capsys.readouterr().err
    assert "s3cret" not in text


def test_what_may_be_a_secret_is_not_shown_whatever_it_is_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets = {"vault.token": "hunter2", "header.provider.password": "hunter2", "lineage.api.key": "hunter2"}
    connector = tmp_path / "connector.json"
    connector.write_text(json.dumps(SHOP | secrets), "utf-8")
    assert cli.main(["import-debezium", str(connector)]) == 0
    printed = "".join(capsys.readouterr())
    assert "vault.token: has no equivalent" in printed
    assert "made.up = 1: has no equivalent" in printed
    assert "hunter2" not in printed


def test_a_position_that_cannot_be_written_is_reported_with_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    connector = tmp_path / "connector.json"
    connector.write_text(json.dumps(SHOP), "utf-8")
    assert cli.main(["import-debezium", str(connector), "--output", str(tmp_path / "none" / "x.yaml")]) == 2
    assert "x.yaml cannot be written: No such file" in capsys.readouterr().err


def test_what_is_no_connector_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.properties"
    path.write_text("a=b")
    assert cli.main(["import-debezium", str(path)]) == cli.USAGE
    assert "no configuration of a Debezium connector" in capsys.readouterr().err


def test_properties_are_read_as_java_reads_them() -> None:
    text = "# c\n! c\ntopic.prefix : a\\\n   b\nx\\ y=\\u0041\\t\nempty=\nz = q\\\\.w\n"
    assert read_properties(text, "x") == {"topic.prefix": "ab", "x y": "A\t", "empty": "", "z": "q\\.w"}


def test_a_lock_of_the_snapshot_is_kept_and_none_is_what_chunks_need() -> None:
    minimal = {"topic.prefix": "p", "snapshot.locking.mode": "minimal", "snapshot.lock.timeout.ms": "5000"}
    snapshot = from_mapping(translate(minimal).settings).snapshot
    assert (snapshot.consistency, snapshot.locking_mode, snapshot.lock_timeout_ms) == ("one_transaction", "minimal", 5000)
    extended = translate({"topic.prefix": "p", "snapshot.locking.mode": "extended", "snapshot.isolation.mode": "repeatable_read"})
    assert from_mapping(extended.settings).snapshot.locking_mode == "extended"
    assert not {"snapshot.locking.mode", "snapshot.isolation.mode"} & set(reported(extended))
    for mode, words in (("none", "without locks"), ("minimal_percona", "is unavailable")):
        other = translate({"topic.prefix": "p", "snapshot.locking.mode": mode, "snapshot.isolation.mode": "read_committed"})
        assert from_mapping(other.settings).snapshot.consistency == "one_transaction"  # there is no signal table
        assert "without a signal table" in reported(other)["snapshot.locking.mode"]
        other = translate({"topic.prefix": "p", "signal.data.collection": "d.s", "snapshot.locking.mode": mode, "snapshot.isolation.mode": "read_committed"})
        assert from_mapping(other.settings).snapshot.consistency == "chunked"
        assert words in reported(other)["snapshot.locking.mode"]
        assert "repeatable" in reported(other)["snapshot.isolation.mode"]
