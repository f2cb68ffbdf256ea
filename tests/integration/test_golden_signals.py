"""Debezium's golden incremental snapshots, asked for by the same signals, through our `merge: producer`.

Compared are the `r` records with Debezium's (schemas, field by field), and per table and key the last record; how often a
row is read is a matter of timing. Where Debezium loses rows (a surrogate key that repeats, a table without key) ours
are all there.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from producer.app import Producer
from producer.snapshot import snapshot_state
from schemas.position import Position
from schemas.settings import from_mapping
from tests.support.golden import GoldenRecord, Scenario, load
from tests.support.producing import RunningProducer
from tests.support.topics import Record, read_topics

NAME = "sig_inc"
KEYED = ("a", "a4", "late", "u")
# Not comparable with Debezium: clocks, positions and numbers of this very run.
VOLATILE = {"ts_ms", "ts_us", "ts_ns", "server_id", "file", "pos", "thread", "gtid"}


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load("sig_incremental", NAME)


@pytest.fixture(scope="module")
def ours(scenario: Scenario, mysql80: Any, kafka: Any) -> dict[str, list[Record]]:
    settings = from_mapping(
        {
            "name": NAME,
            "source": {
                "host": mysql80.host,
                "port": mysql80.port,
                "user": mysql80.user,
                "password": mysql80.password,
                "tables": [rf"{NAME}\..*"],
                "signal_table": f"{NAME}.debezium_signal",
            },
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "partitions": 1},
            "format": {"type": "json", "schemas": True},
            "snapshot": {"mode": "no_data", "merge": "producer", "chunk_rows": 5, "readers": 2},
        }
    )
    patch = pytest.MonkeyPatch()
    patch.setattr(snapshot_state, "FIRST_DELAY_S", 0.01)
    patch.setattr(snapshot_state, "MAX_DELAY_S", 0.02)
    with mysql80.connect() as user, user.cursor() as cursor:
        for statement in scenario.before:
            cursor.execute(statement)
        cursor.execute(f"USE {NAME}")
        with RunningProducer(settings) as producer:
            producer.wait_until("the producer runs", lambda start: start.reader is not None)
            for statement in scenario.after:
                cursor.execute(statement)
                if "debezium_signal" in statement:
                    producer.wait_until(f"{statement} is done", lambda start: is_quiet(start, user))
            producer.wait_until("all is done", lambda start: is_quiet(start, user))
        cursor.execute(f"DROP DATABASE {NAME}")
    patch.undo()
    topics = [f"{NAME}.{NAME}.{table}" for table in (*KEYED, "nopk")]
    return read_topics(kafka.bootstrap_servers, topics)


def is_quiet(start: Producer, user: Any) -> bool:
    """Whether the log is read to its end, and no snapshot continues but one that is paused."""
    with user.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()")
        if cursor.fetchone()[0]:
            return True  # inside BEGIN: nothing of it is in the log yet
        cursor.execute("SHOW MASTER STATUS")
        position = cursor.fetchone()[:2]
    assert start.reader is not None
    assert start.coordinator is not None
    committed = start.reader.committed
    ended = ("done", "failed", "cancelled", "paused")
    return (committed.file, committed.pos) >= position and all(
        table.state in ended for table in start.coordinator.progress()
    )


def rows_of(scenario: Scenario, table: str) -> list[GoldenRecord]:
    return [r for r in scenario.changes if r.table == table and r.value and r.value["op"] == "r"]


def payload(record: Record) -> Any:
    return None if record.value is None else record.value["payload"]


def test_r_records_are_those_of_debezium_field_by_field(scenario, ours) -> None:
    compared = 0
    for table in KEYED:
        golden = rows_of(scenario, table)
        schemas = [record.value_schema for record in golden]
        by_row = {json.dumps([record.key, record.value["after"]]): record for record in golden}
        for record in ours[f"{NAME}.{NAME}.{table}"]:
            value = payload(record)
            if value is None or value["op"] != "r":
                continue
            twin = by_row.get(json.dumps([record.key["payload"], value["after"]]))
            if twin is None:  # read at another moment than Debezium did, or not at all by it
                assert record.value["schema"] in schemas, table
                continue
            compared += 1
            assert record.key["schema"] == twin.key_schema
            assert record.value["schema"] == twin.value_schema
            assert list(value) == list(twin.value)
            assert value["transaction"] is None
            assert record.headers == {}
            compare_source(twin.value["source"], value["source"])
    assert compared > 60


def compare_source(golden: dict[str, Any], own: dict[str, Any]) -> None:
    assert list(golden) == list(own)
    assert Position.parse(own["sequence"]).ordinal == 0
    for name, value in golden.items():
        if name in VOLATILE:
            assert type(value) is type(own[name]), name
        elif name != "sequence":
            assert value == own[name], name


def test_the_last_record_of_each_key_is_that_of_debezium(scenario, ours) -> None:
    for table in KEYED:
        golden: dict[str, Any] = {}
        for record in scenario.changes:
            if record.table == table and record.value is not None:
                golden[json.dumps(record.key)] = record.value["after"]
        own: dict[str, Any] = {}
        for record in ours[f"{NAME}.{NAME}.{table}"]:
            if record.value is not None:
                own[json.dumps(record.key["payload"])] = payload(record)["after"]
        assert own == golden, table


def test_no_row_is_lost_by_a_key_that_repeats_or_by_a_table_without_key(scenario, ours) -> None:
    surrogate = [payload(record)["after"]["u1"] for record in ours[f"{NAME}.{NAME}.u"] if payload(record)]
    assert {key: surrogate.count(key) >= 2 for key in range(1, 9)} == dict.fromkeys(range(1, 9), True)
    keyless = [payload(record) for record in ours[f"{NAME}.{NAME}.nopk"]]
    assert all(record.key is None for record in ours[f"{NAME}.{NAME}.nopk"])
    read = [(value["after"]["x"], value["after"]["y"]) for value in keyless if value["op"] == "r"]
    assert {row: read.count(row) for row in read}.keys() == {(1, 1), (2, 2)}
    assert len(rows_of(scenario, "nopk")) == 1, "Debezium lost one"
