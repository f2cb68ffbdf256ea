"""`import-debezium`: each documented property is translated, reported with what to do, or named as not needed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import yaml

from schemas.errors import ConfigError
from schemas.settings import Settings, from_mapping
from tests.importers.connector_mixtures import HIDDEN, judge, may_be_silent, mixture
from tests.importers.test_name_lists import outcome
from tidemark import cli
from tidemark.importers.debezium import Translation, translate

_SHOP = {"topic.prefix": "p", "connector.class": "io.debezium.connector.mysql.MySqlConnector", "database.hostname": "h"}
_INCLUDED = {"table.include.list": r"shop\..*"}


def imported(**properties: str) -> tuple[Settings, dict[str, str]]:
    return of(translate(_SHOP | {name.replace("__", "."): value for name, value in properties.items()}))


def of(translation: Translation) -> tuple[Settings, dict[str, str]]:
    return from_mapping(translation.settings), {finding.name: finding.what for finding in translation.findings}


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 300))])
def test_a_random_mixture_of_properties_is_translated_or_named(seed: int) -> None:
    properties = mixture(random.Random(f"properties {seed}"))
    assert list(judge(properties)) == [], properties


@pytest.mark.parametrize("seed", range(40))
def test_the_judge_notices_a_property_that_an_importer_drops(seed: int) -> None:
    rng = random.Random(f"dropped {seed}")
    properties = mixture(rng)
    dropped = rng.choice(list(properties))

    def forgetful(given: dict[str, str]) -> Translation:
        return translate({name: value for name, value in given.items() if name != dropped})

    try:
        may_be = may_be_silent(dropped, properties[dropped], forgetful(properties))
    except ConfigError:
        return
    silent = [words for words in judge(properties, forgetful) if words.startswith(f"{dropped} = ")]
    assert len(silent) == (0 if may_be else 1)


@pytest.mark.parametrize("text", ["True", "TRUE", " true"])
def test_true_in_any_case_is_true(text: str) -> None:
    settings, _ = imported(
        tombstones__on__delete=text, include__schema__changes=text, provide__transaction__metadata=text,
        value__converter="org.apache.kafka.connect.json.JsonConverter", value__converter__schemas__enable=text,
    )  # fmt: skip
    assert (settings.records.tombstones, settings.records.include_schema_changes) == (True, True)
    assert (settings.records.provide_transaction_metadata, settings.format.schemas) == (True, True)


def test_a_word_that_is_neither_true_nor_false_is_reported() -> None:
    settings, findings = imported(tombstones__on__delete="yes")
    assert (settings.records.tombstones, "neither true nor false" in findings["tombstones.on.delete"]) == (True, True)


def test_words_of_a_mode_may_be_in_upper_case() -> None:
    settings, findings = imported(
        decimal__handling__mode="STRING", snapshot__mode="Schema_Only", time__precision__mode="CONNECT", database__ssl__mode="VERIFY_CA",
        signal__enabled__channels="KAFKA", skipped__operations="C, U",
    )  # fmt: skip
    assert (settings.format.decimal, settings.snapshot.mode, settings.format.time) == ("string", "no_data", "connect")
    assert (settings.source.tls.mode, settings.signal.channels) == ("verify_ca", ("kafka",))
    assert settings.records.skipped_operations == ("c", "u")
    assert not {"decimal.handling.mode", "snapshot.mode", "time.precision.mode", "signal.enabled.channels"} & findings.keys()


def test_tables_that_look_like_shadow_tables_are_captured_as_by_the_connector() -> None:
    settings, _ = imported(table__include__list=r"shop\.orders,shop\._x_new")
    assert settings.source.captures("shop", "_x_new")


@pytest.mark.parametrize("mode", ["initial", "initial_only", "always", "when_needed", ""])
def test_the_commonest_connector_gives_a_file_that_run_accepts(mode: str) -> None:
    settings, findings = imported(snapshot__mode=mode, **{name.replace(".", "__"): value for name, value in _INCLUDED.items()})
    assert (settings.snapshot.consistency, settings.snapshot.locking_mode) == ("one_transaction", "minimal")
    assert "one transaction" in findings["signal.data.collection"]
    with_signals, findings = imported(snapshot__mode=mode, signal__data__collection="shop.signals")
    assert (with_signals.snapshot.consistency, "signal.data.collection" in findings) == ("chunked", False)


@pytest.mark.parametrize(
    ("old", "new"),
    [("column.blacklist", "column.exclude.list"), ("table.whitelist", "table.include.list"), ("database.blacklist", "database.exclude.list")],
)
def test_old_names_of_lists_are_as_good_as_those_of_today(old: str, new: str) -> None:
    pattern = {"column": r"shop\.orders\.secret", "table": r"shop\.orders", "database": "shop"}[old.partition(".")[0]]
    settings, findings = of(translate(_SHOP | {old: pattern}))
    assert outcome(settings) == outcome(of(translate(_SHOP | {new: pattern}))[0])
    assert f"is called {new}" in findings[old]


def test_columns_are_excluded_also_if_others_are_included() -> None:
    found = outcome(imported(column__include__list=r"shop\.orders\..*", column__exclude__list=r"shop\.orders\.(secret|note)")[0])
    assert [name.rpartition(".")[2] for name in found if name.startswith("shop.orders.")] == ["id", "SSN", "email"]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("org.apache.kafka.connect.transforms.MaskField$Value", {"fields": "secret,SSN"}),
        ("org.apache.kafka.connect.transforms.ReplaceField$Value", {"exclude": "secret,SSN"}),
        ("org.apache.kafka.connect.transforms.ReplaceField$Value", {"blacklist": "secret,SSN"}),
    ],
)
def test_columns_that_a_transform_hides_are_left_out(kind: str, options: dict[str, str]) -> None:
    transforms = {
        "transforms": "flat,hide",
        "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.hide.type": kind,
        **{f"transforms.hide.{name}": value for name, value in options.items()},
    }
    translation = translate(_SHOP | transforms)
    settings, findings = of(translation)
    assert {name.rpartition(".")[2] for name in outcome(settings) if name.startswith("shop.orders.")} == {"id", "note", "email"}
    assert any("LEFT OUT" in what for what in findings.values())


@pytest.mark.parametrize("name", ["table.exclude.list", "column.blacklist", "column.mask.with.4.chars", "database.include.list"])
def test_a_list_that_kafka_connect_fills_in_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}.*Kafka Connect".replace(".", r"\.").replace(r"\.*", ".*")):
        translate(_SHOP | {name: "${file:/etc/x.properties:list}"})


def test_other_values_that_kafka_connect_fills_in_are_reported() -> None:
    names = ("database.hostname", "database.user", "database.port", "topic.prefix", "value.converter.schema.registry.url", "snapshot.mode")
    settings, findings = of(translate(_SHOP | dict.fromkeys(names, "${env:VALUE}")))
    assert all("filled in by Kafka Connect" in findings[name] for name in names if name != "topic.prefix")
    assert "${" not in yaml.safe_dump(translate(_SHOP | dict.fromkeys(names, "${env:VALUE}")).settings)
    assert settings.name == "imported"


@pytest.mark.parametrize(
    "name", ["io.debezium.connector.postgresql.PostgresConnector", "io.debezium.connector.jdbc.JdbcSinkConnector", "com.acme.MySqlSource"]
)
def test_another_connector_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "connector.properties"
    path.write_text(f"connector.class={name}\ndatabase.hostname=h\ntopic.prefix=p\n")
    assert cli.main(["import-debezium", str(path)]) == cli.USAGE
    assert f"connector.class = {name}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        {"value.converter.schema.registry.url": f"http://me:{HIDDEN}@r:8081"},
        {"value.converter.schema.registry.url": "http://r:8081", "value.converter.basic.auth.user.info": f"me:{HIDDEN}"},
        {
            "value.converter.schema.registry.url": "http://r:8081, http://other:8081",
            "value.converter.basic.auth.credentials.source": "USER_INFO",
            "value.converter.schema.registry.basic.auth.user.info": f"me:{HIDDEN}",
        },
    ],
)
def test_the_user_of_a_registry_is_taken_over_and_the_password_is_not(options: dict[str, str]) -> None:
    translation = translate(_SHOP | {"value.converter": "io.confluent.connect.avro.AvroConverter"} | options)
    settings, _ = of(translation)
    assert (settings.format.registry, settings.format.registry_access.user) == ("http://r:8081", "me")
    assert settings.format.registry_access.password_file == "/run/secrets/tidemark-registry"
    assert HIDDEN not in str(translation)


@pytest.mark.parametrize(
    ("text", "keys", "note"),
    [
        (r"shop\.t:a,b;crm\.u:c", {r"shop\.t": "a,b", r"crm\.u": "c"}, ""),
        (r"shop\.t:a;shop\.t:b", {r"shop\.t": "a,b"}, ""),
        (r"\Qshop.t\E:a", {r"shop\.t": "a"}, ""),
        (r"shop\.t|crm\.t:a", {r"shop\.t|crm\.t": "a"}, "last alternative"),
        (r"shop\.t:.*_id", {r"shop\.t": ".*_id"}, "a pattern in Debezium"),
        (r"shop\..*:id;crm\..*:id", {r"shop\..*": "id", r"crm\..*": "id"}, "several entries"),
        ("nonsense", {}, "is not of the form"),
    ],
)
def test_keys_are_taken_over_or_the_difference_is_reported(text: str, keys: dict[str, str], note: str) -> None:
    translation = translate(_SHOP | {"message.key.columns": text})
    assert translation.settings["records"].get("message_key_columns", {}) == keys if keys else True
    said = " ".join(finding.what for finding in translation.findings if finding.name == "message.key.columns")
    assert (note in said, bool(said)) == (True, bool(note))


_FLAT = {"transforms": "flat", "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState", "transforms.flat.add.fields": "op,source.ts_ms"}
_OUTBOX = {
    "transforms": "outbox",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "transforms.outbox.route.by.field": "kind",
    "transforms.outbox.table.field.event.id": "uid",
}
_AVRO = {"value.converter": "io.confluent.connect.avro.AvroConverter", "value.converter.schema.registry.url": "http://r:8081"}


@pytest.mark.parametrize("given", ["true", "false", ""])
@pytest.mark.parametrize(
    ("mode", "tombstones"), [("rewrite", False), ("drop", False), ("tombstone", True), ("", True), ("rewrite-with-tombstone", None)]
)
def test_the_transform_of_flat_rows_decides_on_tombstones_as_in_debezium(mode: str, tombstones: bool | None, given: str) -> None:
    """`DefaultDeleteHandlingStrategy` drops the connector's tombstones, except with rewrite-with-tombstone."""
    options = {"transforms.flat.delete.tombstone.handling.mode": mode, "tombstones.on.delete": given}
    translation = translate(_SHOP | _FLAT | {name: value for name, value in options.items() if value})
    assert of(translation)[0].records.tombstones == (tombstones if tombstones is not None else given != "false")
    assert ("tombstones.on.delete" in translation.not_needed) == (bool(given) and tombstones is not None)


def test_an_outbox_that_is_left_out_is_reported_as_a_whole() -> None:
    translation = translate(_SHOP | _OUTBOX | {"skipped.operations": "c,u"})
    settings, findings = of(translation)
    assert settings.records.outbox.tables == ()
    assert "c is skipped" in findings["transforms.outbox"]
    assert not [finding for finding in translation.findings if "records.outbox" in finding.what]
    second = {"transforms": "outbox,events", "transforms.events.type": _OUTBOX["transforms.outbox.type"], "transforms.events.predicate": "p"}
    kept, findings = of(translate(_SHOP | _OUTBOX | second | {"transforms.events.route.by.field": "sort"}))
    assert ("the first one" in findings["transforms.events"], "transforms.events.predicate" in findings) == (True, False)
    assert kept.records.outbox.tables
    assert (kept.records.outbox.id, kept.records.outbox.route_by, "transforms.outbox" in findings) == ("uid", "kind", False)


def test_a_flag_that_is_left_out_with_the_mode_of_the_snapshot_is_reported() -> None:
    based = "snapshot.mode.configuration.based"
    flags = {f"{based}.snapshot.on.data.error": "true", f"{based}.snapshot.data": "false"}
    settings, findings = of(translate(_SHOP | {"snapshot.mode": "configuration_based"} | flags))
    assert (settings.snapshot.mode, f"{based}.snapshot.data" in findings) == ("no_data", False)
    assert "left out" in findings[f"{based}.snapshot.on.data.error"]


def test_keys_of_a_converter_of_the_worker_are_reported() -> None:
    assert "Connect worker's" in of(translate(_SHOP | _AVRO))[1]["key.converter"]
    both = of(translate(_SHOP | _AVRO | {"key.converter": _AVRO["value.converter"]}))[1]
    neither = of(translate(_SHOP))[1]
    assert "key.converter" not in both | neither


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"value.converter.schemas.enable": "false"}, True),
        ({"value.converter.schemas.enable": "false", "key.converter.schemas.enable": "true"}, True),
        ({"value.converter.schemas.enable": "false", "key.converter.schemas.enable": "FALSE"}, False),
        ({"key.converter.schemas.enable": "false"}, True),
        ({"value.converter.schemas.enable": "true"}, False),
        ({}, False),
    ],
)
def test_keys_with_schemas_beside_values_without_are_reported(options: dict[str, str], reported: bool) -> None:
    json_converter = dict.fromkeys(("key.converter", "value.converter"), "org.apache.kafka.connect.json.JsonConverter")
    assert ("key.converter.schemas.enable" in of(translate(_SHOP | json_converter | options))[1]) == reported


_ACCESS = "value.converter.basic.auth"


@pytest.mark.parametrize(
    ("options", "user", "reported"),
    [
        ({"source": "USER_INFO", "url": "http://other:x@r:8081", "info": "me:x"}, "me", ""),
        ({"source": "URL", "url": "http://me:x@r:8081", "info": "other:x"}, "me", "user.info"),
        ({"url": "http://me:x@r:8081", "info": "other:x"}, "me", "user.info"),
        ({"source": "URL", "info": "other:x"}, None, "user.info"),
        ({"info": "me:x"}, "me", "credentials.source"),
        ({"source": "USER_INFO"}, None, "credentials.source"),
        ({"source": "SASL_INHERIT", "url": "http://other:x@r:8081"}, None, "credentials.source"),
        ({"source": "USER_INFO", "info": "me:x", "key": "other:x"}, "me", ""),
    ],
)
def test_the_user_of_a_registry_is_the_one_that_the_connector_sends(options: dict[str, str], user: str | None, reported: str) -> None:
    names = {
        "source": f"{_ACCESS}.credentials.source", "info": f"{_ACCESS}.user.info", "url": "value.converter.schema.registry.url",
        "key": "key.converter.basic.auth.user.info",
    }  # fmt: skip
    translation = translate(_SHOP | _AVRO | {names[name]: value for name, value in options.items()})
    settings, findings = of(translation)
    assert settings.format.registry_access.user == user
    assert not reported or f"{_ACCESS}.{reported}" in findings
    assert ("key.converter.basic.auth.user.info" in findings) == ("key" in options)


def test_a_mask_of_columns_that_another_one_masks_is_reported() -> None:
    pattern = r"shop\.orders\.note"
    hashed = "column.mask.hash.v2.SHA-256.with.salt.s"
    translation = translate(_SHOP | {"column.truncate.to.5.chars": pattern, "column.mask.with.3.chars": pattern, hashed: pattern})
    settings, findings = of(translation)
    assert [one.chars for one in settings.records.column_truncate_to_chars] == [5]
    assert (settings.records.column_mask_with_chars, settings.records.column_mask_hash_v2) == ((), ())
    assert "have another mask" in findings["column.mask.with.3.chars"]
    assert "have another mask" in findings["column.mask.hash.v2...with.salt"]
