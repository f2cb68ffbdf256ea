"""Consumers that no one here wrote read what we write: Confluent's Avro deserializer, and Spark's `from_avro`.

One table, changed in the middle of its rows, so that there are records of two schemas in its topic.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from devservers import Database, Kafka, Registry
from schemas.settings import from_mapping
from tests.support.producing import RunningProducer
from tests.support.servers import drop_database, new_database, unique_name
from tests.support.topics import Record, read_topic

TABLE = """CREATE TABLE things (
    id INT PRIMARY KEY, n BIGINT UNSIGNED, d DECIMAL(38,10), f DOUBLE, t VARCHAR(50), b VARBINARY(20), s SMALLINT,
    day DATE, at DATETIME(6), ts TIMESTAMP(3) NULL, e ENUM('x,y','ü'), j JSON, flag BIT(1), dflt INT DEFAULT 7)"""
CHANGES = (
    """INSERT INTO things VALUES (1, 18446744073709551615, -1234567890123456789012345678.0123456789, 0.1, '日本 🎉',
    x'00FF', -1, '2024-02-29', '9999-12-31 23:59:59.999999', '2024-06-01 12:00:00.120', 'x,y', '{"a": [1, null]}',
    b'1', 0)""",
    "INSERT INTO things (id, dflt) VALUES (2, NULL)",
    "ALTER TABLE things ADD COLUMN more VARCHAR(10) NOT NULL DEFAULT 'new' AFTER id",
    "UPDATE things SET id = 3, more = 'moved' WHERE id = 2",
    "DELETE FROM things WHERE id = 3",
)
FULL = {
    "id": 1,
    "n": Decimal(2**64 - 1),
    "d": Decimal("-1234567890123456789012345678.0123456789"),
    "f": 0.1,
    "t": "日本 🎉",
    "b": b"\0\xff",
    "s": -1,
    "day": (dt.date(2024, 2, 29) - dt.date(1970, 1, 1)).days,
    "at": 253402300799999999,
    "ts": "2024-06-01T12:00:00.120Z",
    "e": "x,y",
    "j": '{"a":[1,null]}',
    "flag": True,
    "dflt": 0,
}
EMPTY = dict.fromkeys(FULL, None)
EXPECTED = [  # key, op, before, after
    (1, "c", None, FULL),
    (2, "c", None, EMPTY | {"id": 2}),
    (2, "d", EMPTY | {"id": 2, "more": "new"}, None),
    (2, None, None, None),
    (3, "c", None, EMPTY | {"id": 3, "more": "moved"}),
    (3, "d", EMPTY | {"id": 3, "more": "moved"}, None),
    (3, None, None, None),
]


class Written(NamedTuple):
    """What is in Kafka and the registry."""

    topic: str
    records: list[Record]


@pytest.fixture(scope="module")
def written(mysql80: Database, kafka: Kafka, registry: Registry) -> Iterator[Written]:
    database, prefix = new_database(mysql80), unique_name("foreign")
    settings = from_mapping(
        {
            "name": prefix,
            "source": {
                "host": mysql80.host,
                "port": mysql80.port,
                "user": mysql80.user,
                "password": mysql80.password,
                "tables": [rf"{database}\..*"],
            },
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "partitions": 1},
            "format": {"registry": registry.url},
            "snapshot": {"mode": "never"},
        }
    )
    topic = f"{prefix}.{database}.things"
    with mysql80.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE)
        with RunningProducer(settings) as producer:
            producer.wait_until("it reads the log", lambda running: running.reader is not None)
            for statement in CHANGES:
                cursor.execute(statement)
            producer.wait_until("all is written", lambda _: len(read(kafka, topic)) >= len(EXPECTED))
    yield Written(topic, read(kafka, topic))
    drop_database(mysql80, database)


def read(kafka: Kafka, topic: str) -> list[Record]:
    return read_topic(kafka.bootstrap_servers, topic, raw=True)


def test_confluents_deserializer_reads_every_record(written: Written, registry: Registry) -> None:
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))

    def decoded(data: bytes | None, part: str) -> Any:
        return deserialize(data, SerializationContext(written.topic, part))

    found = []
    for record in written.records:
        key, value = decoded(record.key, MessageField.KEY), decoded(record.value, MessageField.VALUE)
        assert list(key) == ["id"]
        if value is None:
            found.append((key["id"], None, None, None))
            continue
        assert value["source"]["table"] == "things"
        found.append((key["id"], value["op"], value["before"], value["after"]))
    assert found == EXPECTED


def test_sparks_from_avro_reads_every_record(
    written: Written, kafka: Kafka, registry: Registry, spark: Any
) -> None:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.avro.functions import from_avro

    client = SchemaRegistryClient({"url": registry.url})
    stream = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", written.topic)
        .load()
    )

    def values(ident: int, part: str) -> dict[int, Any]:
        """By offset, what the records of one schema hold; as Spark's documentation reads Confluent's frame."""
        schema = client.get_schema(ident).schema_str
        body = F.expr(f"substring({part}, 6)")
        mine = stream.where(F.expr(f"hex(substring({part}, 2, 4)) = '{ident:08X}'"))
        rows = mine.select("offset", from_avro(body, schema, {"mode": "FAILFAST"}).alias("it")).collect()
        return {row["offset"]: row["it"].asDict(recursive=True) for row in rows}

    def ids(part: str) -> set[int]:
        frames = [getattr(record, part) for record in written.records]
        return {int.from_bytes(frame[1:5], "big") for frame in frames if frame is not None}

    assert (len(ids("key")), len(ids("value"))) == (1, 2)
    keys, found = (
        {offset: it for ident in ids(part) for offset, it in values(ident, part).items()}
        for part in ("key", "value")
    )
    told = []
    for record in written.records:
        value = found.get(record.offset, dict.fromkeys(("op", "before", "after")))
        told.append((keys[record.offset]["id"], value["op"], value["before"], value["after"]))
    assert told == EXPECTED
