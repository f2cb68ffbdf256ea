"""Looking at a sink, and running the merge job over it, in tests."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kafkaio.schema_registry import SchemaRegistry
from schemas.columns import Column, ColumnType, TableSchema
from schemas.markers import Marker
from schemas.position import Position
from schemas.settings import Settings
from spark_jobs.jobs.merge_job import MergeJob
from spark_jobs.jobs.sink_factory import open_sink
from spark_jobs.merge.context import checkpoint_of
from spark_jobs.store.files import LOCK_WAIT_S
from spark_jobs.store.sink_layout import SinkLayout
from tests.merge.topics import TableTopics

ORDERS = TableSchema(
    "shop",
    "orders",
    (
        Column("id", ColumnType.VARCHAR, nullable=False, length=20, charset="utf8mb4"),
        Column("amount", ColumnType.INT, nullable=True),
    ),
    ("id",),
)

Step = Callable[[str, int], None]


class Crash(Exception):  # noqa: N818 - not an error of ours: it plays kill -9
    """The job dies here."""


def crash(step: str = "", *_: object) -> None:
    """Play kill -9 wherever this is called, but for the step of a batch before its first write."""
    if step != "begun":
        raise Crash


def dies_at(step: str) -> Step:
    """Return a function that plays kill -9 at one step of a batch."""

    def die(name: str, _batch_id: int) -> None:
        if name == step:
            raise Crash

    return die


def at(offset: int, ordinal: int = 0) -> Position:
    """A position in the first file of the log."""
    return Position(1, 1, offset, ordinal)


def merge_all(spark: SparkSession, settings: Settings, on_step: Step = lambda *_: None) -> None:
    """Run the job until it has caught up."""
    MergeJob(settings, spark=spark, on_step=on_step).run(until_caught_up=True)


def sole_writer(spark: SparkSession, settings: Settings, wait_s: int = LOCK_WAIT_S) -> AbstractContextManager[None]:
    """Be the only writer of the sink, as a merge job is."""
    layout = SinkLayout.of(settings.sink)
    return open_sink(settings, layout, checkpoint_of(layout)).exclusive(spark, wait_s)


def merge_with(spark: SparkSession, settings: Settings, registry: SchemaRegistry) -> None:
    """Run the job until it has caught up, with this registry."""
    MergeJob(settings, spark=spark, registry=registry).run(until_caught_up=True)


def rows(settings: Settings, table: TableSchema = ORDERS) -> list[dict[str, Any]]:
    """The mirror's rows without our column, by key. Read by delta-rs: by Spark it costs as much as the merge."""
    read = DeltaTable(settings.sink.table_path(table.database, table.name)).to_pyarrow_table()
    found = read.drop_columns("_tm_position").to_pylist()
    return sorted(found, key=lambda row: [row[name] for name in table.record_key])


def amounts(settings: Settings, table: TableSchema = ORDERS) -> dict[str, int]:
    """The mirror of ORDERS, or of a table like it, as id → amount."""
    return {row["id"]: row["amount"] for row in rows(settings, table)}


def amounts_by_spark(spark: SparkSession, settings: Settings) -> dict[str, int]:
    """The same, as Spark reads it."""
    frame = spark.read.format("delta").load(settings.sink.table_path(ORDERS.database, ORDERS.name))
    return {row["id"]: row["amount"] for row in frame.collect()}


def quarantined(settings: Settings, *topics: TableTopics) -> list[tuple[str, int, int, str]]:
    """Topic, partition, offset and reason of every record in quarantine, or of those of some topics."""
    names = {name for one in topics for name in (one.changes, one.snapshots)}
    path = f"{settings.sink.service_path}/quarantine"
    if not DeltaTable.is_deltatable(path):
        return []
    read = DeltaTable(path).to_pyarrow_table()
    found = read.select(["topic", "partition", "offset", "reason"]).to_pylist()
    kept = [row for row in found if not names or row["topic"] in names]
    return sorted((row["topic"], row["partition"], row["offset"], row["reason"]) for row in kept)


def progress(settings: Settings, table: TableSchema = ORDERS) -> dict[str, Any]:
    """What progress.json says about a table."""
    document = json.loads(Path(settings.sink.progress_path).read_text(encoding="utf-8"))
    found: dict[str, Any] = document["tables"][table.full_name]
    return found


def column(
    name: str, kind: ColumnType = ColumnType.INT, *, nullable: bool = True, default: str | None = None
) -> Column:
    return Column(name, kind, nullable=nullable, default=default, has_default=default is not None)


def table(name: str, *columns: Column) -> TableSchema:
    return TableSchema("shop", name, (column("id", ColumnType.BIGINT, nullable=False), *columns), ("id",))


def topics_of(settings: Settings, schema: TableSchema, *, snapshot: bool = True) -> TableTopics:
    kafka, registry = settings.kafka.bootstrap_servers, settings.format.registry or ""
    return TableTopics(kafka, registry, settings.name, schema, partitions=2, snapshot=snapshot)


def marker(
    topics: TableTopics, kind: type[Marker], position: int, horizon: int | None = None, **more: object
) -> None:
    """Write a marker of the table, in every partition."""
    common = {
        "table": topics.table.full_name,
        "partitions": topics.partitions,
        "change_offsets": topics.change_offsets,
    }
    positions = {"position": at(position), "horizon": at(position if horizon is None else horizon)}
    topics.marker(kind(**common, **positions, **more))  # type: ignore[arg-type]


def flush(*topics: TableTopics) -> None:
    for one in topics:
        one.flush()


def wait_for(condition: object, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.2)


