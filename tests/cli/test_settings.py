from __future__ import annotations

import dataclasses
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.errors import ConfigError
from schemas.settings import Settings, describe, from_mapping, parse_text


def design_example() -> dict[str, Any]:
    """The shape that the design document shows."""
    return {
        "name": "shop",
        "source": {
            "host": "db",
            "port": 3306,
            "user": "tidemark",
            "password_file": "/run/secrets/db",
            "tables": ["shop\\..*"],
            "signal_table": "shop.tidemark_signal",
        },
        "kafka": {"bootstrap_servers": "kafka:9092"},
        "format": {"type": "avro", "registry": "http://registry:8080/apis/ccompat/v7"},
        "snapshot": {"mode": "initial", "readers": 4, "merge": "spark"},
        "sinks": [{"name": "lake", "type": "delta", "path": "/data/lake", "mode": "mirror"}],
        "service": {"port": 8080},
    }


def smallest() -> dict[str, Any]:
    return {"name": "shop", "source": {"tables": ["shop\\..*"]}}


def refusal(mapping: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        from_mapping(mapping)
    return str(caught.value)


def test_the_example_of_the_design_is_accepted() -> None:
    settings = from_mapping(design_example())

    assert settings.source.tables == ("shop\\..*",)
    assert settings.source.signal_names == ("shop", "tidemark_signal")
    assert settings.sink.table_path("shop", "orders") == "/data/lake/shop/orders"
    assert settings.sink.progress_path == "/data/lake/_tidemark/progress.json"


def test_every_key_but_name_and_tables_has_a_default() -> None:
    settings = from_mapping(smallest())

    assert settings.kafka.partitions == 4
    assert settings.snapshot.mode == "initial"
    assert settings.sinks == ()


def test_an_unknown_key_is_refused_with_its_path_and_the_nearest_name() -> None:
    mapping = smallest()
    mapping["source"]["prot"] = 3306

    message = refusal(mapping)

    assert message == "source.prot: unknown key 'prot' in source; did you mean 'port'?"


def test_an_unknown_key_like_no_other_is_answered_with_the_valid_ones() -> None:
    message = refusal(smallest() | {"zzzzzz": 1})

    assert message.startswith("zzzzzz: unknown key 'zzzzzz'; valid keys: name, source, kafka")


def test_an_unknown_key_inside_a_list_is_named_with_its_position() -> None:
    message = refusal(smallest() | {"sinks": [{"path": "/a"}, {"pth": "/b", "path": "/b"}]})

    assert message == "sinks.1.pth: unknown key 'pth' in sinks.1; did you mean 'path'?"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kafka": {"partitions": "4"}}, "kafka.partitions: expected an integer, got str '4'"),
        ({"kafka": {"partitions": True}}, "kafka.partitions: expected an integer, got bool True"),
        ({"kafka": {"partitions": 0}}, "kafka.partitions: 0 is below the smallest value, 1"),
        ({"kafka": None}, "kafka: expected a mapping of keys, got nothing"),
        ({"kafka": {"topic_delimiter": "/"}}, "kafka.topic_delimiter: '/' cannot stand in a topic's name"),
        ({"kafka": {"topic_delimiter": ""}}, "kafka.topic_delimiter: '' cannot stand in a topic's name"),
        ({"kafka": {"options": {"a": [1]}}}, "kafka.options.a: expected text"),
        ({"service": {"port": 65536}}, "service.port: 65536 is above the largest value, 65535"),
        (
            {"snapshot": {"mode": "inital"}},
            "snapshot.mode: expected one of initial, initial_only, always, no_data, never, when_needed, recovery, configuration_based, got str 'inital'; did you",
        ),
        ({"snapshot": {"mode": "recovery"}}, "snapshot.mode: recovery rebuilds Debezium's schema history"),
        (
            {"snapshot": {"mode": "configuration_based"}},
            "snapshot.configuration_based: neither reads tables nor follows the log",
        ),
        (
            {"snapshot": {"configuration_based": {"start_stream": True}}},
            "snapshot.configuration_based: says nothing with snapshot.mode: initial",
        ),
        ({"snapshot": {"via": "spark"}}, "snapshot.via: the merge job cannot read tables itself: its answers are rows of a signal table"),
        ({"snapshot": {"merge": "flink"}}, "snapshot.merge: expected one of spark, producer"),
        ({"format": {"type": "avro"}}, "format.registry: Avro needs the URL of a schema registry"),
        ({"format": {"registry": "http://r", "schemas": True}}, "format.schemas: is for type: json"),
        ({"format": {"schemas": "yes"}}, "format.schemas: expected true or false, got str 'yes'"),
        ({"name": "my shop"}, "name: 'my shop' is not a topic prefix"),
        ({"name": 5}, "name: expected text, got int 5"),
        ({"sinks": {"path": "/a"}}, "sinks: expected a list, got dict"),
        ({"sinks": [{"name": "a"}]}, "sinks.0.path: is empty: give the folder of the sink"),
        ({"sinks": [{"path": "/a"}, {"path": "/b"}]}, "sinks: two sinks are named 'lake'"),
        ({"sinks": [{"path": "/a", "type": "icebreg"}]}, "sinks.0.type: expected one of delta, iceberg"),
        ({"sinks": [{"path": "/a", "type": "Paimon"}]}, "sinks.0.type: 'Paimon' is unavailable: there is no release of Paimon"),
        ({"source": {"tables": []}}, "source.tables: no table is named"),
        ({"source": {"tables": "shop.orders"}}, "source.tables: expected a list, got str"),
        ({"source": {"tables": ["shop.("]}}, "source.tables: 'shop.(' is not a regular expression"),
        ({"source": {}}, "source.tables: is missing"),
        (
            {"source": {"tables": ["a"], "signal_table": "signals"}},
            "source.signal_table: 'signals' is not of the form",
        ),
        (
            {"source": {"tables": ["a"], "password": "x", "password_file": "y"}},
            "source.password_file: password and",
        ),
        (
            {"source": {"tables": ["a"], "tls": {"mode": "maybe"}}},
            "source.tls.mode: expected one of disabled",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_path_and_what_was_expected(
    change: dict[str, Any], expected: str
) -> None:
    assert refusal(smallest() | change).startswith(expected)


def test_a_missing_section_says_what_it_is() -> None:
    assert refusal({"name": "shop"}) == "source: is missing: the database that is read"


def test_the_password_is_in_no_representation() -> None:
    mapping = smallest()
    mapping["source"]["password"] = "hunter2"

    settings = from_mapping(mapping)

    assert settings.source.password == "hunter2"
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings.source)


def test_settings_cannot_be_changed_and_can_be_sent_to_other_processes() -> None:
    settings = from_mapping(design_example())

    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.name = "other"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own bytes


def test_tables_are_matched_in_full_in_any_case_and_never_the_signal_table() -> None:
    mapping = smallest()
    mapping["source"] = {
        "tables": ["shop\\.ord.*", "shop\\.tidemark.*"],
        "signal_table": "shop.tidemark_signal",
    }
    source = from_mapping(mapping).source

    assert source.captures("shop", "orders")
    assert source.captures("SHOP", "Orders")
    assert not source.captures("shop", "old_orders")
    assert not source.captures("workshop", "orders")
    assert source.captures("shop", "tidemark_other")
    assert not source.captures("shop", "tidemark_signal")


def test_the_format_follows_from_the_registry_unless_it_is_given() -> None:
    assert from_mapping(smallest()).format.type == "json"
    assert from_mapping(smallest() | {"format": {"registry": "http://r"}}).format.type == "avro"
    assert (
        from_mapping(smallest() | {"format": {"registry": "http://r", "type": "json"}}).format.type == "json"
    )


def test_the_server_id_follows_from_the_name_so_that_a_second_instance_takes_over() -> None:
    first, again = from_mapping(smallest()), from_mapping(smallest())
    other = from_mapping(smallest() | {"name": "other"})

    assert first.source.server_id == again.source.server_id
    assert first.source.server_id != other.source.server_id
    assert 2**30 <= (first.source.server_id or 0) < 2**31


@pytest.mark.parametrize(("first", "second"), [("/a", "/a/"), ("/a", "/a/b"), ("/a/b", "/a"), ("/a", "/c/../a")])
def test_two_sinks_with_one_folder_or_one_within_the_other_are_refused(first: str, second: str) -> None:
    sinks = {"sinks": [{"path": first, "name": "lake"}, {"path": second, "name": "mart"}]}
    with pytest.raises(ConfigError, match=r"sinks\.1\.path: .* of 'lake' overlap: give each a folder of its own"):
        from_mapping(smallest() | sinks)


def test_folders_that_only_begin_alike_do_not_overlap() -> None:
    sinks = {"sinks": [{"path": "/a", "name": "lake"}, {"path": "/ab", "name": "mart"}]}
    assert len(from_mapping(smallest() | sinks).sinks) == 2


def test_a_job_with_no_sink_or_two_is_refused_when_it_asks_for_the_sink() -> None:
    with pytest.raises(ConfigError, match="none is given"):
        _ = from_mapping(smallest()).sink
    two = {"sinks": [{"path": "/a"}, {"path": "/b", "name": "b"}]}
    with pytest.raises(ConfigError, match=r"there are 2 .lake, b.: choose one with --sink"):
        _ = from_mapping(smallest() | two).sink


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (("source", "host"), "db", "db"),
        (("source", "host"), "123", "123"),
        (("source", "port"), "3307", 3307),
        (("source", "tables"), "a\\.b, c", ["a\\.b", "c"]),
        (("source", "tables"), '["a{1,2}"]', ["a{1,2}"]),
        (("source", "signal_table"), "", None),
        (("format", "schemas"), "true", True),
        (("kafka", "options"), '{"a": "b"}', {"a": "b"}),
        (("sinks", "0", "path"), "/lake", "/lake"),
        (("sinks",), '[{"path": "/lake"}]', [{"path": "/lake"}]),
    ],
)
def test_text_is_read_as_the_keys_type(path: tuple[str, ...], text: str, expected: object) -> None:
    assert parse_text(path, text) == expected


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (("source", "port"), "many", "source.port: cannot read 'many' as integer"),
        (("source", "prot"), "1", "source.prot: unknown key 'prot' in source; did you mean 'port'"),
        (("name", "x"), "1", "name.x: name has no keys of its own"),
        (("sinks", "path"), "1", "sinks.path: sinks has no keys of its own"),
    ],
)
def test_text_for_a_wrong_key_or_of_a_wrong_type_is_refused(
    path: tuple[str, ...], text: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_text(path, text)

    assert str(caught.value).startswith(expected)


def test_every_key_describes_itself() -> None:
    described = {key.path: key for key in describe()}

    assert described["name"].default == "required"
    assert described["source.port"].default == "`3306`"
    assert described["source.tls.mode"].type.startswith("`disabled`")
    assert described["sinks[].path"].help
    assert all(key.help for key in described.values())
    assert not [
        name for name in Settings.__dataclass_fields__ if not any(path.startswith(name) for path in described)
    ]


@pytest.mark.parametrize(
    ("start_at", "expected"),
    [
        ({"position": "first"}, "source.start_at.position: expected one of earliest, latest, got str 'first'"),
        ({"position": "earliest", "timestamp": "2026-11-25T09:00:00Z"}, "source.start_at.position: and timestamp exclude each other"),
        ({"gtids": "x:1", "file": "b.1", "pos": 4}, "source.start_at.gtids: and file exclude each other"),
        ({"file": "b.1"}, "source.start_at: file and pos go together"),
        ({"timestamp": "yesterday"}, "source.start_at.timestamp: 'yesterday' is no such time"),
        ({"timestamp": "2026-11-25T09:00:00"}, "(it has no time zone); expected ISO 8601 with a time zone"),
        ({"timestamp": "1960-11-25T09:00:00Z"}, "is before 1970"),
        ({"position": "latest", "skip_rows": 1}, "source.start_at.skip_rows: goes with gtids, or with file and pos"),
        ({"file": "b.1", "pos": 4, "skip_events": -1}, "source.start_at.skip_events: -1 is below the smallest value"),
    ],
)
def test_where_to_begin_is_one_position(start_at: dict[str, object], expected: str) -> None:
    assert expected in refusal(smallest() | {"source": smallest()["source"] | {"start_at": start_at}})


def test_a_time_to_begin_at_is_counted_in_microseconds() -> None:
    start_at = {"timestamp": "2026-11-25T11:00:00.000001+02:00"}
    source = from_mapping(smallest() | {"source": smallest()["source"] | {"start_at": start_at}}).source
    assert source.start_at.timestamp_us == 1_795_597_200_000_001
    unquoted = {"timestamp": datetime(2026, 11, 25, 9, tzinfo=UTC)}
    source = from_mapping(smallest() | {"source": smallest()["source"] | {"start_at": unquoted}}).source
    assert source.start_at.timestamp_us == 1_795_597_200_000_000


def test_record_options_have_debeziums_defaults_and_are_checked() -> None:
    records = from_mapping(smallest()).records

    assert (records.tombstones, records.skipped_operations) == (True, ("t",))
    assert not from_mapping(smallest() | {"records": {"skipped_operations": ["none"]}}).records.skips("t")
    assert "'x' is not one of c, u, d, t, none" in refusal(
        smallest() | {"records": {"skipped_operations": ["x"]}}
    )
    assert "none excludes every other operation" in refusal(smallest() | {"records": {"skipped_operations": ["none", "c"]}})
    assert "set records.heartbeat_interval_ms as well" in refusal(
        smallest() | {"records": {"heartbeat_action_query": "DO 1"}}
    )
    assert "exclude each other" in refusal(
        smallest() | {"records": {"column_include_list": ["a"], "column_exclude_list": ["b"]}}
    )
    assert "statements hold the values" in refusal(
        smallest() | {"records": {"include_query": True, "column_exclude_list": ["b"]}}
    )
    assert "records.message_key_columns: '(' is not a regular expression" in refusal(
        smallest() | {"records": {"message_key_columns": {"(": "a"}}}
    )
    assert "a truncate has no row" in refusal(
        smallest() | {"records": {"unwrap": True, "skipped_operations": ["none"]}}
    )
