"""Debezium's golden `ddl` scenario on a real MySQL: the records of the schema-change topic, JSON and Avro.

Both report comments. What differs: `row` and `thread` of Debezium's source blocks are those of the rows event before; and the
models of `test_model_records`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from producer.app import Producer
from tests.catalog.server_log import end_of_log
from tests.integration.test_golden import RunningProducer, execute, log_is_at, settings_for, snapshot_is_done
from tests.support.golden import GoldenRecord, load
from tests.support.servers import own_database
from tests.support.topics import Record, read_topic, read_topics

PREFIX = "ddl"
VOLATILE = ("ts_ms", "ts_us", "ts_ns", "server_id", "file", "pos", "gtid", "sequence")


@pytest.fixture(scope="module")
def reported(kafka: Any) -> Callable[[], list[Record]]:
    """The records of the topic, after the scenario and a restart with one more statement."""
    server = own_database("mysql97", "schema-changes")
    scenario = load("ddl", PREFIX)
    settings = settings_for(server, kafka, PREFIX, r"ddl\..*", records={"include_schema_comments": True})
    with server.connect() as user, user.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS golden_signals")
        execute(cursor, scenario, scenario.before)
        with RunningProducer(settings) as producer:
            producer.wait_until("the snapshot is done", snapshot_is_done)
            cursor.execute("USE ddl")
            execute(cursor, scenario, scenario.after)
            producer.wait_until("the log is read", partial(log_is_at, position=end_of_log(user)))
        cursor.execute("ALTER TABLE inh DROP COLUMN x")
        cursor.execute("ALTER TABLE inh DROP COLUMN hidden, DROP COLUMN y")
        cursor.execute("CREATE TABLE late (id INT)")
        cursor.execute("ALTER DATABASE ddl CHARACTER SET utf8mb4")
        with RunningProducer(settings) as producer:
            producer.wait_until("the log is read again", partial(log_is_at, position=end_of_log(user)))
    records = read_topics(kafka.bootstrap_servers, [PREFIX])[PREFIX]
    return lambda: [record for record in records if record.key["payload"]["databaseName"] != "golden_signals"]


def golden() -> list[GoldenRecord]:
    return [record for record in load("ddl", PREFIX).records if record.topic == PREFIX]


def as_ours(value: dict[str, Any]) -> dict[str, Any]:
    value["source"] |= {"row": 0, "thread": None}
    for change in value["tableChanges"]:
        is_copy = change["id"].rpartition(".")[2] in ('"t_like"', '"_t3_gho"', '"t3"')
        if change["table"] is not None and is_copy:
            change["table"]["comment"] = change["table"]["comment"] or "tab"  # its original's
    return value


def steady(value: dict[str, Any]) -> dict[str, Any]:
    """The value with the types of what differs from run to run."""
    source = {name: type(field) if name in VOLATILE else field for name, field in value["source"].items()}
    assert isinstance(value["ts_ms"], int)
    return {**value, "ts_ms": 0, "source": {**source, "sequence": None}}


def test_records_are_those_of_debezium(reported: Callable[[], list[Record]]) -> None:
    ours, theirs = reported(), golden()
    assert len(theirs) == 43
    for expected, record in zip(theirs, ours, strict=False):
        ddl = expected.value["ddl"]
        assert record.key == {"schema": expected.key_schema, "payload": expected.key}, ddl
        assert record.value["schema"] == expected.value_schema
        assert steady(record.value["payload"]) == steady(as_ours(expected.value)), ddl
    sequences = [record.value["payload"]["source"]["sequence"] for record in ours]
    assert sequences == sorted(sequences)


def test_a_restart_knows_tables_and_databases_as_they_were_at_its_position_in_the_log(
    reported: Callable[[], list[Record]],
) -> None:
    *late, created, altered = [record.value["payload"] for record in reported()[43:]]
    columns = [[c["name"] for c in value["tableChanges"][0]["table"]["columns"]] for value in late]
    # The column `hidden` was added with sql_log_bin=0: the server has reported it when it was asked.
    assert [value["ddl"] for value in late] == [
        "ALTER TABLE inh DROP COLUMN x",
        "ALTER TABLE inh DROP COLUMN hidden, DROP COLUMN y",
    ]
    assert columns == [["id", "y"], ["id"]]
    assert created["tableChanges"][0]["table"]["defaultCharsetName"] == "latin1"
    assert altered["ddl"] == "ALTER DATABASE ddl CHARACTER SET utf8mb4"


def test_avro_records_are_read_by_confluents_own_deserializer(kafka: Any, registry: Any) -> None:
    server = own_database("mysql97", "schema-changes")
    name = "ddl_avro"
    wire = {"type": "avro", "registry": registry.url}
    settings = settings_for(server, kafka, name, r"ddl_avro\..*", format=wire, snapshot={"mode": "never", "readers": 1})
    with server.connect() as user, user.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS golden_signals")
        cursor.execute("DROP DATABASE IF EXISTS ddl_avro")
        cursor.execute("CREATE DATABASE ddl_avro")
        with RunningProducer(settings) as producer:
            producer.wait_until("it is ready", is_ready)
            cursor.execute("CREATE TABLE ddl_avro.t (id INT PRIMARY KEY, e ENUM('a','b') DEFAULT 'b')")
            cursor.execute("DROP TABLE ddl_avro.t")
            producer.wait_until("the log is read", partial(log_is_at, position=end_of_log(user)))
        cursor.execute("DROP DATABASE ddl_avro")
    context = SerializationContext(name, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry.url}) as client:
        decode = AvroDeserializer(client)
        values: list[Any] = [decode(record, context) for record in raw_values(kafka, name)]
    created, dropped = (value for value in values if value["source"]["snapshot"] == "false")
    (change,) = created["tableChanges"]
    assert (change["type"], change["id"]) == ("CREATE", '"ddl_avro"."t"')
    assert change["table"]["columns"][1]["enumValues"] == ["'a'", "'b'"]
    assert json.dumps(dropped["tableChanges"]) == json.dumps([{"type": "DROP", "id": '"ddl_avro"."t"', "table": None}])


def is_ready(start: Producer) -> bool:
    return start.reader is not None and start.reader.progress.checkpoints > 0


def raw_values(kafka: Any, topic: str) -> list[bytes]:
    return [record.value for record in read_topic(kafka.bootstrap_servers, topic, raw=True)]
