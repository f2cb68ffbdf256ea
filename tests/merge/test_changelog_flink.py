"""Flink SQL reads the topics of the Kafka sink with its own formats of the same names, and computes what the source holds."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from schemas.columns import Column, ColumnType, TableSchema
from tests.merge.conftest import SinkFactory
from tests.merge.lake import at, flush, merge_all, topics_of
from tests.merge.test_changelog_kafka import streamed, topic_of
from tests.support.flink import Flink

THINGS = TableSchema(
    "shop",
    "things",
    (
        Column("id", ColumnType.INT, nullable=False),
        Column("name", ColumnType.VARCHAR, nullable=True, length=50, charset="utf8mb4"),
        Column("price", ColumnType.DECIMAL, nullable=True, precision=30, scale=4),
        Column("ratio", ColumnType.DOUBLE, nullable=True),
        Column("day", ColumnType.DATE, nullable=True),
        Column("bytes", ColumnType.VARBINARY, nullable=True, length=20),
    ),
    ("id",),
)
COLUMNS = "id INT, name STRING, price DECIMAL(30,4), ratio DOUBLE, `day` DATE, `bytes` BYTES"
EPOCH = dt.date(1970, 1, 1)

Row = dict[str, Any]


def thing(number: int, name: str | None, **more: Any) -> Row:
    values = {"price": Decimal("12345678901234567890.1234"), "ratio": 1.5e-7, "day": (dt.date(2024, 2, 29) - EPOCH).days, "bytes": b"\0\xff"}
    return {"id": number, "name": name} | values | more


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["changelog", "mirror"])
@pytest.mark.parametrize("form", ["debezium-json", "canal-json", "maxwell-json"])
def test_flink_computes_the_table_from_its_messages(
    form: str, mode: Literal["mirror", "changelog"], flink: Flink, spark: SparkSession, merge_settings: SinkFactory
) -> None:
    settings = streamed(merge_settings(), mode, format=form)
    topics = topics_of(settings, THINGS)
    rows = [thing(1, 'quoted " \\ \n 日本'), thing(2, None, price=None, ratio=None, day=None, bytes=None), thing(3, "three")]
    for number, row in enumerate(rows):
        topics.change("c", row, at(100 + number, 1).text)
    flush(topics)
    merge_all(spark, settings)
    renamed = thing(1, None, price=Decimal("-0.0001"))
    filled = thing(2, "two", ratio=-0.0)
    topics.change("u", renamed, at(200, 1).text, before=rows[0])
    topics.change("u", filled, at(201, 1).text, before=rows[1])
    topics.change("d", rows[2], at(202, 1).text)
    flush(topics)
    merge_all(spark, settings)

    name = f"things_{mode}_{form.partition('-')[0]}"
    options = {
        "connector": "kafka",
        "topic": topic_of(settings, "shop.things"),
        "properties.bootstrap.servers": settings.kafka.bootstrap_servers,
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": form,
    }
    named = ", ".join(f"'{option}' = '{value}'" for option, value in options.items())
    flink.sql(f"CREATE TABLE {name} ({COLUMNS}) WITH ({named})")
    found = flink.rows(f"SELECT id, name, CAST(price AS STRING), ratio, CAST(`day` AS STRING), `bytes` FROM {name}")
    assert found == Counter(
        [(1, None, "-0.0001", 1.5e-7, "2024-02-29", b"\0\xff"), (2, "two", "12345678901234567890.1234", -0.0, "2024-02-29", b"\0\xff")]
    )
