"""`tidemark import-flink-cdc`: every pipeline of Flink CDC's documentation, and each key of it translated or named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.errors import ConfigError
from schemas.settings import from_mapping
from tests.cli import flink_cdc_page
from tests.cli.flink_cdc_examples import EXAMPLES, PIPELINE, SINK, SOURCE
from tidemark import cli
from tidemark.importers.debezium import Translation
from tidemark.importers.flink_cdc import read_pipeline, translate_pipeline
from tidemark.importers.flink_cdc.expressions import alias_of, split_items, translated
from tidemark.importers.flink_cdc.pipeline_translation import close_all
from tidemark.importers.flink_cdc.sink_translation import change_kinds
from tidemark.importers.flink_cdc.table_patterns import split_tables, table_pattern
from tidemark.importers.key_ledger import Ledger

HIDDEN = ("hush", "'k'", "api-key = k", "apikey = k")


def pipeline(name: str) -> dict[str, Any]:
    return {"source": SOURCE, "sink": SINK, "pipeline": PIPELINE} | EXAMPLES[name]


def imported(name: str) -> Translation:
    return translate_pipeline(read_pipeline(yaml.safe_dump(pipeline(name), sort_keys=False), name))


def lines(translation: Translation) -> list[str]:
    return [f"{finding.name} = {finding.value}: {finding.what}" for finding in translation.findings]


def leaves(path: str, node: Any) -> set[str]:
    """The paths of all values, counted by the test itself."""
    if isinstance(node, dict):
        return {leaf for key, value in node.items() for leaf in leaves(f"{path}.{key}" if path else key, value)}
    if isinstance(node, list) and any(isinstance(one, dict) for one in node):
        return {leaf for number, value in enumerate(node) for leaf in leaves(f"{path}.{number}", value)}
    return {path}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_becomes_settings_and_each_key_is_translated_or_named(name: str) -> None:
    document = pipeline(name)
    ledger = Ledger(read_pipeline(yaml.safe_dump(document, sort_keys=False), name))
    result = close_all(ledger)
    settings = from_mapping(yaml.safe_load(yaml.safe_dump(result.settings)))
    assert settings.source.tables
    named = {finding.name for finding in result.findings}
    assert leaves("", document) == ledger.translated.keys() | set(ledger.not_needed) | (named & leaves("", document))
    assert not ledger.open
    assert not ledger.translated.keys() & set(ledger.not_needed)
    shown = "\n".join(lines(result)) + yaml.safe_dump(result.settings)
    assert not [secret for secret in HIDDEN if secret in shown]


@pytest.mark.parametrize(
    ("theirs", "ours", "note"),
    [
        (r"shop.\.*", r"shop\..*", ""),
        ("shop.bills", r"shop\.bills", ""),
        (r"db_(\.*).(\.*)_tbl", r"db_(.*)\.(.*)_tbl", ""),
        (r"shop_[0-9]+.\.*", r"shop_[0-9]+\..*", ""),
        (r"shop\.*", r"shop.*", ""),
        (r"shop\d{1,2}.t[.]x", r"shop\d{1,2}\.t[.]x", ""),
        ("shop.*", r"shop\..*", "is no regular expression"),
        (r"[one|two].bill_\.*", r"[one|two]\.bill_.*", "one character"),
        ("shop.(bills", r"shop\.\(bills", "written as the name"),
    ],
)
def test_patterns_of_tables_have_their_dots_the_other_way_round(theirs: str, ours: str, note: str) -> None:
    found, notes = table_pattern(theirs)
    assert found == ours
    assert bool(notes) == bool(note)
    assert note in " ".join(notes)


def test_lists_of_tables_are_divided_at_commas_outside_of_brackets() -> None:
    assert split_tables(r"a.b, c.d_[0-9]{1,2},e.(f|g) ,") == ["a.b", "c.d_[0-9]{1,2}", "e.(f|g)"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (r"\*", "*"),
        ("CHAR_LENGTH(a) > 3", "CHAR_LENGTH(a) > 3"),
        ("__schema_name__ || '.' || __table_name__", "__database__ || '.' || __table__"),
        ("upper(__data_event_type__)", "upper(CASE __op__ WHEN 'u' THEN '+U' WHEN 'd' THEN '-D' ELSE '+I' END)"),
        ("op_ts / 1000", "coalesce(unix_millis(__ts__), 0) / 1000"),
        ("TO_TIMESTAMP(a, 'yyyy')", "to_timestamp_ntz(a, 'yyyy')"),
        ("TO_TIMESTAMP_LTZ(a)", "TO_TIMESTAMP_LTZ(a)"),
        ("CAST(a AS VARCHAR)", "CAST(a AS STRING)"),
        ("CAST(f(a, b) + 1 AS TIMESTAMP_LTZ(3))", "CAST(f(a, b) + 1 AS TIMESTAMP)"),
        ("TRY_CAST(a AS DECIMAL(10, 2))", "TRY_CAST(a AS DECIMAL(10, 2))"),
        ("LTRIM(a, 'x')", "trim(LEADING 'x' FROM a)"),
        ("RTRIM(a)", "rtrim(a)"),
        ("FROM_BASE64(TO_BASE64(a))", "CAST(unbase64(base64(a)) AS STRING)"),
        (r"REGEXP_REPLACE(a, '\d', 'it''s')", r"REGEXP_REPLACE(a, '\\d', 'it\'s')"),
        ("ARRAY[1, MAP['a', b]]", "array(1, map('a', b))"),
        ("ROW(a, b)", "struct(a, b)"),
        ('"order" + `group`', "`order` + `group`"),
        ("CASE WHEN a IN (1, 2) THEN 'NOW()' ELSE b END", "CASE WHEN a IN (1, 2) THEN 'NOW()' ELSE b END"),
        ("EXTRACT(YEAR FROM at)", "EXTRACT(YEAR FROM at)"),
    ],
)
def test_expressions_become_those_of_spark(theirs: str, ours: str) -> None:
    result = translated(theirs, own=frozenset({"f"}))
    assert (result.text, result.missing) == (ours, ())


@pytest.mark.parametrize(
    "text",
    ["NOW()", "LOCALTIMESTAMP", "UUID()", "UNIX_TIMESTAMP()", "AI_EMBED('m', a)", "TALK(a)", "DATE_FORMAT_TZ(a, 'y', 'UTC')", "a[1]",
     "a SIMILAR TO 'x'", "unheard_of(a)"],
)  # fmt: skip
def test_what_spark_does_not_have_is_named(text: str) -> None:
    assert translated(text, models=frozenset({"talk"})).missing


def test_items_of_a_projection_and_their_aliases() -> None:
    items = split_items(r"\*, f(a, 'x, y') AS b, CAST(c AS INT) d, e, ARRAY[1, 2] AS g")
    assert [alias_of(item) for item in items] == [
        (r"\*", None), ("f(a, 'x, y')", "b"), ("CAST(c AS INT)", "d"), ("e", None), ("ARRAY[1, 2]", "g"),
    ]  # fmt: skip


def test_routes_and_transforms_are_those_of_the_sink() -> None:
    sink = imported("route with a symbol").settings["sinks"][0]
    assert sink["routes"] == [{"tables": r"shop\..*", "into": "ods.$table"}]
    assert imported("route mode").settings["sinks"][0]["match"] == "first"
    stream = imported("kafka, routes").settings["sinks"][0]
    assert stream["routes"][0]["into"] == "$database.topic_bills"
    assert {name: stream[name] for name in ("type", "mode", "format", "topic")} == {
        "type": "kafka", "mode": "changelog", "format": "debezium-json", "topic": "$table",
    }  # fmt: skip
    assert imported("kafka, by key").settings["sinks"][0]["format"] == "canal-json"
    assert imported("wildcards").settings["sinks"][0]["transforms"] == [
        {"tables": r"shop\.web_bill", "select": ["* EXCEPT (title)", "LOWER(title) AS title"]},
        {"tables": r"shop\.app_bill", "select": ["LOWER(title) AS title", "* EXCEPT (title)"]},
    ]
    whole = imported("a whole pipeline").settings["sinks"][0]["transforms"][0]
    assert whole["select"] == ["* EXCEPT (title)", "shape('%s', title) AS title"]
    wrong = imported("route with a wrong group")
    assert "routes" not in wrong.settings["sinks"][0]
    assert "the route is left out" in "\n".join(lines(wrong))
    computed = imported("computed")
    assert computed.settings["sinks"][0]["transforms"][0]["select"] == ["id", "bill_id", "LOWER(title) AS title"]
    assert "localtimestamp as seen: the column is left out" in "\n".join(lines(computed))


def test_sinks_that_cannot_be_are_refused_by_name_with_the_reason() -> None:
    for kind, reason in (("doris", "no server"), ("starrocks", "no server"), ("paimon", "no release"), ("hudi", "no release")):
        result = imported(kind)
        assert result.settings["sinks"][0]["type"] == "delta"
        (found,) = [finding for finding in result.findings if finding.name == "sink.type"]
        assert (found.value, reason in found.what) == (kind, True)


@pytest.mark.parametrize(
    ("given", "kinds", "reported"),
    [
        (["create.table", "column"], ["create.table", "add.column", "alter.column.type", "drop.column"], 0),
        ("[drop]", ["drop.column", "drop.table"], 0),
        ("rename.column, truncate.table", ["truncate.table"], 1),
        (["alter.table.comment"], [], 1),
    ],
)
def test_kinds_of_schema_changes_are_named_in_full(given: Any, kinds: list[str], reported: int) -> None:
    ledger = Ledger({"key": given})
    assert (change_kinds(ledger, "key"), len(ledger.findings)) == (kinds, reported)


def test_what_tables_have_is_taken_over() -> None:
    (one,) = imported("soft delete").settings["sinks"][0]["transforms"]
    kind = "CASE __op__ WHEN 'u' THEN '+U' WHEN 'd' THEN '-D' ELSE '+I' END AS kind"
    assert one == {"tables": r"shop\.web_bill", "select": ["*", kind], "soft_delete": "deleted"}
    (metadata,) = imported("metadata").settings["sinks"][0]["transforms"]
    assert metadata["select"][-2:] == [kind, "coalesce(unix_millis(__ts__), 0) AS at"]
    assert imported("primary keys").settings["sinks"][0]["transforms"][0]["key"] == ["bill_id"]
    assert "records of a topic have it as their key if" in "\n".join(lines(imported("primary keys of a topic")))
    assert imported("partition keys").settings["sinks"][0]["transforms"][0]["partition_by"] == ["title"]
    (made,) = imported("table options with a delimiter").settings["sinks"][0]["transforms"]
    assert made["options"] == {"sequence.field": "a,b", "bloom": "c"}
    assert imported("schema changes").settings["sinks"][0]["schema_changes"] == {"behaviour": "evolve"}
    assert imported("iceberg").settings["sinks"][0] == {"name": "lake", "type": "iceberg", "path": "/warehouse"}


def test_a_start_is_taken_over() -> None:
    offset = imported("mysql startup offset").settings
    assert (offset["snapshot"]["mode"], offset["source"]["start_at"]) == ("no_data", {"file": "binlog.000007", "pos": 194})
    gtids = imported("mysql startup gtids").settings["source"]["start_at"]
    assert gtids["gtids"] == "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77"
    assert (gtids["skip_events"], gtids["skip_rows"]) == (2, 1)
    assert imported("mysql startup earliest").settings["source"]["start_at"] == {"position": "earliest"}
    assert imported("mysql startup timestamp").settings["source"]["start_at"] == {"timestamp": "2025-11-24T16:00:00.000+00:00"}
    assert imported("mysql startup snapshot").settings["snapshot"]["mode"] == "initial_only"


def test_the_command_writes_settings_and_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, output = tmp_path / "pipeline.yaml", tmp_path / "tidemark.yaml"
    given.write_text(yaml.safe_dump(pipeline("a whole pipeline"), sort_keys=False))
    assert cli.main(["import-flink-cdc", str(given), "--output", str(output)]) == 0
    assert from_mapping(yaml.safe_load(output.read_text())).sinks[0].routes
    assert "sink.type = values: prints changes" in capsys.readouterr().err
    assert cli.main(["import-flink-cdc", str(given)]) == 0
    assert capsys.readouterr().out == output.read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [1", "is no YAML"),
        ("- 1", "is no Flink CDC pipeline"),
        ("", "is no Flink CDC pipeline"),
        ("route: []", "is no Flink CDC pipeline"),
        ("source: {type: mysql, port: 1, port: 2}", "port is given twice"),
    ],
)
def test_what_is_no_pipeline_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    assert cli.main(["import-flink-cdc", str(path)]) == cli.USAGE
    said = capsys.readouterr()
    assert (reason in said.err, said.out) == (True, "")
    with pytest.raises(ConfigError):
        read_pipeline(text, "p.yaml")


def test_the_page_has_what_the_importer_makes_of_its_pipeline() -> None:
    page = flink_cdc_page.PAGE.read_text("utf-8")
    assert flink_cdc_page.executed(page) == page, "run: python -m tests.cli.flink_cdc_page"
