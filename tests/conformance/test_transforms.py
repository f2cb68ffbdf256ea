"""Flat rows, outbox events and adjusted names beside the real Debezium, whose transforms and options these stand for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from schemas.settings import from_mapping
from tests.conformance.debezium import Debezium
from tests.support.producing import RunningProducer
from tests.support.servers import own_database, run_folder
from tests.support.topics import Record, read_topics

pytestmark = pytest.mark.slow  # a Kafka Connect for each case

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
PATIENCE_S = 120.0
CASES: dict[str, tuple[dict[str, str], dict[str, Any], list[str]]] = {
    "unwrap": (
        {
            "transforms": "flat",
            "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.flat.delete.tombstone.handling.mode": "rewrite-with-tombstone",
            "transforms.flat.add.fields": "op,source.ts_ms",
        },
        {"records": {"unwrap": True, "include_schema_changes": False}},
        [
            "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9), n INT NOT NULL DEFAULT 5)",
            "INSERT INTO t VALUES (1, 'a', 1), (2, NULL, 2)",
            "UPDATE t SET v = 'ü' WHERE id = 1",
            "UPDATE t SET id = 9 WHERE id = 2",
            "DELETE FROM t WHERE id = 1",
        ],
    ),
    "names": (
        {"schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro_unicode"},
        {"format": {"type": "json", "schemas": True, "schema_names": "avro", "field_names": "avro_unicode"}},
        [
            "CREATE TABLE `t-1$` (`co l` INT PRIMARY KEY, `sel.ect` VARCHAR(5), `ü_1` INT, `1st` INT)",
            "INSERT INTO `t-1$` VALUES (1, 'd', 2, 3)",
            "UPDATE `t-1$` SET `co l` = 7",
        ],
    ),
    "outbox": (
        {
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "transforms": "outbox",
            "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
            "transforms.outbox.route.topic.replacement": "outbox_left.${routedByValue}",
        },
        {"records": {"outbox": {"tables": [r"outbox\.outbox"], "topic": "outbox_right.${routedByValue}"}}},
        [
            """CREATE TABLE outbox (id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(99) NOT NULL,
            aggregateid VARCHAR(99) NOT NULL, type VARCHAR(99) NOT NULL, payload TEXT)""",
            "INSERT INTO outbox VALUES ('e1', 'order', 'o1', 'created', '{\"a\": 1.50}'), ('e2', 'order', 'ü', 'x', '')",
            "DELETE FROM outbox WHERE id = 'e1'",
            "INSERT INTO outbox VALUES ('e3', 'order', 'o1', 'paid', 'text')",
        ],
    ),
}
TOPICS = {
    "unwrap": ("{}.unwrap.t", "{}.unwrap.t"),
    "names": ("{}.names.t-1_", "{}.names.t-1_"),
    "outbox": ("outbox_left.order", "outbox_right.order"),
}
COUNTS = {"unwrap": 8, "names": 4, "outbox": 3}


def settings(server: Any, kafka: Any, case: str) -> Any:
    source = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    return from_mapping(
        {
            "name": f"right_{case}",
            "source": {**source, "tables": [rf"{case}\..*"]},
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "partitions": 1},
            "format": {"type": "json", "schemas": True},
            "snapshot": {"mode": "never"},
            **CASES[case][1],
        }
    )


def wait(what: str, done: Callable[[], bool], check: Callable[[], None]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        check()
        assert time.monotonic() < deadline, f"after {PATIENCE_S:.0f} s still not: {what}"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def both(kafka: Any) -> Callable[[str], tuple[list[Record], list[Record]]]:
    """What Debezium and Tidemark wrote in a case."""
    server = own_database("mysql97", "transforms")

    def play(case: str) -> tuple[list[Record], list[Record]]:
        options, _, statements = CASES[case]
        folder = Path(run_folder() / f"debezium-{case}")
        folder.mkdir()
        include = {"table.include.list": rf"{case}\..*", "extended.headers.enabled": "false"}
        debezium = Debezium(folder, server, kafka, f"left_{case}", include | options)
        names = [made.format(side) for made, side in zip(TOPICS[case], (f"left_{case}", f"right_{case}"), strict=True)]
        with server.connect() as user, user.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{case}` CHARACTER SET utf8mb4")
            with RunningProducer(settings(server, kafka, case)) as producer, debezium.start():
                producer.wait_until("it reads the log", lambda running: running.reader is not None)
                cursor.execute(f"USE `{case}`")
                for statement in statements:
                    cursor.execute(statement)

                def written() -> bool:
                    return all(len(found) >= COUNTS[case] for found in read(kafka, names).values())

                def check() -> None:
                    producer.check()
                    debezium.check()

                wait(f"{COUNTS[case]} records in {names}", written, check)
        found = read(kafka, names)
        return found[names[0]], found[names[1]]

    return play


def read(kafka: Any, names: list[str]) -> dict[str, list[Record]]:
    there = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=30).topics
    known = [name for name in names if name in there]
    return {**{name: [] for name in names}, **(read_topics(kafka.bootstrap_servers, known) if known else {})}


def steady(document: Any) -> Any:
    """A document without clocks and places, Debezium's prefix as ours."""
    if isinstance(document, dict):
        volatile = ("ts_ms", "ts_us", "ts_ns", "__source_ts_ms", "server_id", "thread", "sequence", "pos")
        return {key: type(value) if key in volatile and not isinstance(value, dict) else steady(value)
                for key, value in document.items()}  # fmt: skip
    if isinstance(document, list):
        return [steady(item) for item in document]
    return document.replace("left_", "right_") if isinstance(document, str) else document


@pytest.mark.parametrize("case", CASES)
def test_records_are_those_of_the_real_debezium(
    case: str, both: Callable[[str], tuple[list[Record], list[Record]]]
) -> None:
    theirs, ours = both(case)
    assert (len(theirs), len(ours)) == (COUNTS[case], COUNTS[case])
    for left, right in zip(theirs, ours, strict=True):
        assert steady(left.key) == steady(right.key)
        if isinstance(left.value, dict) and "schema" in left.value:
            assert steady(left.value["schema"]) == steady(right.value["schema"])
            assert list(left.value["payload"]) == list(right.value["payload"])
            left_source, right_source = (side.value["payload"].get("source") for side in (left, right))
            assert (left_source is None) == (right_source is None)
            for side in (left, right):
                (side.value["payload"].get("source") or {}).pop("sequence", None)
        assert steady(left.value) == steady(right.value)
        assert left.headers == right.headers
