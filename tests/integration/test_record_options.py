"""Debezium's golden scenarios of its record options, replayed on a real MySQL; as `test_golden`, which has the rest.

One producer per set of options, mostly log events only. What is meant to differ is the list of `test_golden`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest

from producer.app import Producer
from schemas import topics
from schemas.settings import Settings
from tests.catalog.server_log import end_of_log
from tests.integration.test_golden import (
    Comparison,
    Replay,
    RunningProducer,
    execute,
    log_is_at,
    settings_for,
    snapshot_is_done,
    tables_of,
    without_xa,
)
from tests.support.golden import GoldenRecord, Scenario, load
from tests.support.servers import own_database
from tests.support.topics import Record, read_topics

OPTIONS: dict[str, dict[str, Any]] = {
    "keys_notomb": {
        "records": {"tombstones": False, "skipped_operations": ["c"], "skip_messages_without_change": True}
    },
    "keys_alt": {
        "records": {
            "skipped_operations": ["none"],
            "message_key_columns": {r"keys\.k_none": "a", r"keys\.k_comp": "b,a", r"keys\.k_uniqnull": "a"},
        }
    },
    "tx": {"records": {"provide_transaction_metadata": True}},
    "mhash_only": {
        "snapshot": {"mode": "initial", "readers": 1},
        "records": {
            "column_exclude_list": [r"mhash\.t\.h1"],
            "column_mask_hash_v2": [{"algorithm": "SHA-256", "salt": "abc", "columns": [r"mhash\.t\.h2"]}],
        },
    },
    "mhash_trunc": {
        "snapshot": {"mode": "initial", "readers": 1},
        "records": {
            "column_include_list": [r"mhash\.t\.(id|h2|tr)"],
            "column_mask_with_chars": [{"chars": 10, "columns": [r"mhash\.t\.h2"]}],
            "column_truncate_to_chars": [{"chars": 5, "columns": [r"mhash\.t\.tr"]}],
        },
    },
    "hb": {
        "records": {
            "heartbeat_interval_ms": 200,
            "heartbeat_action_query": "INSERT INTO hb_out.beat VALUES (NOW(6))",
            "include_query": True,
        }
    },
}
SCENARIOS = {  # prefix: scenario, its database, the tables captured
    "keys_notomb": ("keys", "keys", r"keys\..*"),
    "keys_alt": ("keys", "keys", r"keys\.(k_none|k_comp|k_uniqnull|k_auto)"),
    "tx": ("tx", "tx", r"tx\..*"),
    "mhash_only": ("masking_hash", "mhash", r"mhash\..*"),
    "mhash_trunc": ("masking_hash", "mhash", r"mhash\..*"),
    "hb": ("heartbeat", "hb", r"hb\..*"),
}
QUERY = "INSERT INTO hb.t VALUES (4)  -- 'ü'"


@pytest.fixture(scope="module")
def replayed(kafka: Any) -> Callable[[str], Replay]:
    """What the producer of a prefix wrote; each scenario is played once, one producer at a time."""
    server = own_database("mysql97", "options")

    @cache
    def replay(prefix: str) -> Replay:
        name, database, tables = SCENARIOS[prefix]
        scenario = load(name, prefix)
        more = {"snapshot": {"mode": "never", "readers": 1}, **OPTIONS[prefix]}
        settings = settings_for(server, kafka, prefix, tables, **more)
        with server.connect() as user, user.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS golden_signals")
            execute(cursor, scenario, scenario.before)
            with RunningProducer(settings) as producer:
                producer.wait_until("it is ready", partial(is_ready, settings=settings))
                cursor.execute(f"USE `{database}`")
                execute(cursor, scenario, without_xa(scenario.after))
                if prefix == "hb":
                    cursor.execute("SET SESSION binlog_rows_query_log_events=ON")
                    cursor.execute(QUERY)
                    producer.wait_until("statements ran", lambda _: statements_run(cursor) > 2)
                producer.wait_until("the log is read", partial(log_is_at, position=end_of_log(user)))
        read = read_topics(kafka.bootstrap_servers, wanted(database, prefix, scenario))
        return Replay({database: scenario}, read)

    return replay


def is_ready(start: Producer, settings: Settings) -> bool:
    """Its position in the log is durable (a start before that begins at the log's end), its snapshot done."""
    if start.reader is None or not start.reader.progress.checkpoints:
        return False
    return settings.snapshot.mode == "never" or snapshot_is_done(start)


def statements_run(cursor: Any) -> int:
    cursor.execute("SELECT COUNT(*) FROM hb_out.beat")
    return int(cursor.fetchone()[0])


def wanted(name: str, prefix: str, scenario: Scenario) -> list[str]:
    makers = (topics.change_topic, topics.snapshot_topic)
    others = {"tx": [topics.transaction_topic(prefix)], "hb": [topics.heartbeat_topic(prefix)]}
    return [make(prefix, name, table) for make in makers for table in tables_of(scenario)] + others.get(
        prefix, []
    )


def compare_changes(comparison: Comparison, table: str) -> None:
    golden, ours = comparison.golden(table)[1], comparison.ours(table)[1]
    assert len(ours) == len(golden), table
    for expected, record in zip(golden, ours, strict=True):
        comparison.compare(table, expected, record)


def changes_of(replay: Replay, comparison: Comparison) -> list[Record]:
    return [record for table in tables_of(comparison.scenario) for record in comparison.ours(table)[1]]


class WithBlocks(Comparison):
    """Compares the transaction blocks as well; ids are the transactions' GTIDs."""

    def _transaction(self, golden: GoldenRecord, ours: Any, where: str) -> None:
        reported = golden.value["transaction"]
        if reported is None:
            assert ours is None, where
            return
        assert ours == reported | {"id": ours["id"]}, where
        self.ids.append((golden.value["source"]["gtid"] == reported["id"], ours["id"]))

    ids: list[tuple[bool, str]]


def test_envelopes_have_the_transaction_blocks_of_debezium(replayed: Callable[[str], Replay]) -> None:
    comparison = WithBlocks(replayed("tx"), "tx", "tx")
    comparison.ids = []
    for table in tables_of(comparison.scenario):
        compare_changes(comparison, table)
    assert len(comparison.ids) == 30
    envelopes = [
        record.value["payload"]
        for record in changes_of(replayed("tx"), comparison)
        if record.value is not None
    ]
    assert all(envelope["transaction"]["id"] == envelope["source"]["gtid"] for envelope in envelopes)


def test_transaction_boundaries_are_reported_as_debezium_does(
    replayed: Callable[[str], Replay],
) -> None:
    replay = replayed("tx")
    golden = [record for record in replay.scenarios["tx"].records if record.topic == "tx.transaction"]
    ours = replay.records["tx.transaction"]
    assert all(record.key["payload"] == {"id": record.value["payload"]["id"]} for record in ours)
    assert {json.dumps(record.key["schema"]) for record in ours} == {json.dumps(golden[0].key_schema)}
    assert {json.dumps(record.value["schema"]) for record in ours} == {json.dumps(golden[0].value_schema)}
    values = [record.value["payload"] for record in ours]
    assert [value["status"] for value in values] == ["BEGIN", "END"] * (len(values) // 2)
    assert [value["id"] for value in values[::2]] == [value["id"] for value in values[1::2]]
    reported = [boundaries(value) for value in values[1::2]]
    first = next(index for index, (events, _) in enumerate(reported) if events)
    expected = [boundaries(record.value) for record in golden if record.value["status"] == "END"]
    assert reported[first : first + len(expected)] == expected
    others = reported[:first] + reported[first + len(expected) :]  # of databases that are not captured
    assert set(map(str, others)) <= {"(0, [])"}


def boundaries(value: dict[str, Any]) -> tuple[int, list[tuple[str, int]]]:
    assert isinstance(value["ts_ms"], int)
    found = [(item["data_collection"], item["event_count"]) for item in value["data_collections"]]
    return value["event_count"], sorted(found)  # Debezium's order is that of a hash map


def test_without_tombstones_creates_and_empty_updates_as_debezium(replayed: Callable[[str], Replay]) -> None:
    replay = replayed("keys_notomb")
    comparison = Comparison(replay, "keys", "keys_notomb")
    for table in tables_of(comparison.scenario):
        compare_changes(comparison, table)
    ops = [record.value["payload"]["op"] for record in changes_of(replay, comparison)]
    assert {op: ops.count(op) for op in set(ops)} == {"c": 11, "d": 32, "u": 16, "t": 1}


class WithJsonHeaders(Comparison):
    """Of a connector whose header converter writes schema and payload."""

    def _headers(self, table: str, golden: GoldenRecord, ours: Record, where: str) -> None:
        reported = {name: json.loads(text)["payload"] for name, text in golden.headers}
        assert {name: json.loads(text) for name, text in ours.headers.items()} == reported, where


@pytest.mark.parametrize("table", ["k_none", "k_comp", "k_uniqnull", "k_auto"])
def test_chosen_keys_are_those_of_debezium(replayed: Callable[[str], Replay], table: str) -> None:
    comparison = WithJsonHeaders(replayed("keys_alt"), "keys", "keys_alt")
    compare_changes(comparison, table)


class WithoutFirstHash(Comparison):
    """Leaves out the column that is hashed by the first version of the option; asterisks do not replace NULL."""

    def _row(self, table: str, op: str, golden: Any, ours: Any, where: str) -> None:
        reported = None if golden is None else {name: value for name, value in golden.items() if name != "h1"}
        if reported and reported.get("id") == 2 and reported.get("h2") == "**********":
            reported["h2"] = None
        super()._row(table, op, reported, ours, where)

    def _schema(self, schema: dict[str, Any] | None, table: str) -> dict[str, Any] | None:
        block = super()._schema(schema, table)
        for image in () if block is None else block["fields"][:2]:
            if "fields" in image:
                image["fields"] = [field for field in image["fields"] if field["field"] != "h1"]
        return block


@pytest.mark.parametrize("prefix", ["mhash_only", "mhash_trunc"])
def test_masks_are_those_of_debezium(replayed: Callable[[str], Replay], prefix: str) -> None:
    comparison = WithoutFirstHash(replayed(prefix), "mhash", prefix)
    golden_rows, golden_changes = comparison.golden("t")
    rows, changes = comparison.ours("t")
    assert (len(rows), len(changes)) == (len(golden_rows), len(golden_changes)) == (3, 1)
    rows.sort(key=lambda record: record.key["payload"]["id"])
    for golden, ours in zip(golden_rows + golden_changes, rows + changes, strict=True):
        comparison.compare("t", golden, ours)


def test_heartbeats_are_those_of_debezium_and_run_the_query(replayed: Callable[[str], Replay]) -> None:
    golden = [
        record
        for record in replayed("hb").scenarios["hb"].records
        if record.topic == "__debezium-heartbeat.hb"
    ]
    ours = replayed("hb").records["__debezium-heartbeat.hb"]
    assert len(ours) > 2
    times = [record.value["payload"].pop("ts_ms") for record in ours]
    assert times == sorted(times)
    assert all(later - earlier >= 190 for earlier, later in pairwise(times))
    assert {json.dumps((record.key, record.value)) for record in ours} == {
        json.dumps(
            (
                {"schema": golden[0].key_schema, "payload": golden[0].key},
                {"schema": golden[0].value_schema, "payload": {}},
            )
        )
    }


def test_the_statement_is_in_the_source_block_where_the_server_logs_it(
    replayed: Callable[[str], Replay],
) -> None:
    inserted = replayed("hb").records["hb.hb.t"]
    found = {
        record.value["payload"]["after"]["id"]: record.value["payload"]["source"]["query"]
        for record in inserted
    }
    assert found == {2: None, 3: None, 4: QUERY}
