"""Reading Kafka: the offsets of a batch out of the checkpoint, and just those records of just those topics.

The streaming query decides which offsets a batch has; the records of a table are then read by offset, so that
a batch of many tables reads each record once and nothing is kept in memory between tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from schemas.documents import SchemaIdDocument, TopicsDocument
from schemas.errors import SinkError
from schemas.identity import SourceId
from schemas.settings import KafkaSettings, Settings
from schemas.state import State, StateRecords
from schemas.topics import (
    change_topic,
    change_topic_pattern,
    snapshot_topic_pattern,
    state_topic,
)
from spark_jobs.kafka_security import security_options
from spark_jobs.registry import RegisteredSchema

Offsets = Mapping[str, Mapping[int, int]]  # topic → partition → offset, exclusive

EARLIEST: Final = -2
CONSUMERS: Final = "tidemark-merge"


@dataclass(frozen=True, slots=True)
class Slice:
    """Records `start` (inclusive) to `end` (exclusive) of a partition; `start` may be EARLIEST."""

    topic: str
    partition: int
    start: int
    end: int


def kafka_options(settings: KafkaSettings) -> dict[str, str]:
    """Options of Spark's Kafka source: the cluster, committed records only, and loss of data is an error.

    Raises `ConfigError` for a security option that Java's client has not, and for a file that cannot be read.
    """
    return {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        # A consumer asks ahead: at the end of a partition that question would hold up the next one.
        "kafka.fetch.max.wait.ms": "20",
        "failOnDataLoss": "true",
        **security_options(settings),
    }


def topic_pattern(settings: Settings) -> str:
    """A pattern of all change and snapshot topics of the source, the signal table's change topic excepted."""
    name, delimiter = settings.name, settings.kafka.topic_delimiter
    both = f"(?:{change_topic_pattern(name, delimiter)}|{snapshot_topic_pattern(name, delimiter)})"
    signal = settings.source.signal_names
    if signal is None:
        return both
    return f"(?!{re.escape(change_topic(name, *signal, delimiter))}$){both}"


def stream(spark: SparkSession, settings: Settings) -> DataFrame:
    """The stream that paces the batches; new topics join it by themselves, from their first record.

    Nothing is read of it. What is lost of our own topics is found by their offsets (`slices_between`) and where they are read
    (`read_slices`); for Spark those of another producer, whose name begins with ours, count as well.
    """
    reader = spark.readStream.format("kafka").options(**kafka_options(settings.kafka))
    reader = reader.option("subscribePattern", topic_pattern(settings)).option("startingOffsets", "earliest")
    return reader.option("failOnDataLoss", "false").option("maxOffsetsPerTrigger", settings.spark.max_batch_records).load()


def read_slices(spark: SparkSession, kafka: KafkaSettings, slices: Iterable[Slice]) -> DataFrame:
    """The records of the slices: key, value, topic, partition, offset, timestamp."""
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for part in slices:
        assign.setdefault(part.topic, []).append(part.partition)
        starts.setdefault(part.topic, {})[str(part.partition)] = part.start
        ends.setdefault(part.topic, {})[str(part.partition)] = part.end
    reader = spark.read.format("kafka").options(**kafka_options(kafka)).option("assign", json.dumps(assign))
    # Nothing is committed under it: executors keep their consumers from batch to batch by this name.
    reader = reader.option("kafka.group.id", kafka.options.get("group.id", CONSUMERS))
    reader = reader.option("startingOffsets", json.dumps(starts)).option("endingOffsets", json.dumps(ends))
    return reader.load().select("topic", "partition", "offset", "key", "value", "timestamp")


def tables_with_topics(spark: SparkSession, settings: Settings) -> set[tuple[str, str]]:
    """Every table the producer has made topics for, as its state topic tells.

    A table is in it before a record of it can be read: both are committed in one Kafka transaction, or in this order.
    """
    documents = _state(spark, settings, TopicsDocument.PREFIX).all(TopicsDocument)
    return {(one.database, one.table) for one in documents.values()}


def given_schemas(spark: SparkSession, settings: Settings) -> dict[str, list[RegisteredSchema]]:
    """What the ids in records stand for, by subject, as the producer's state topic tells; oldest first."""
    found: dict[str, list[RegisteredSchema]] = {}
    for one in _state(spark, settings, SchemaIdDocument.PREFIX).all(SchemaIdDocument).values():
        found.setdefault(one.subject, []).append(RegisteredSchema(0, one.id, one.schema))
    return found


def _state(spark: SparkSession, settings: Settings, prefix: str) -> State:
    """Return the documents of the producer's state topic whose keys begin so, in the order in which they were written."""
    topic = state_topic(settings.name, settings.kafka.topic_delimiter)
    reader = spark.read.format("kafka").options(**kafka_options(settings.kafka)).option("subscribe", topic)
    records = reader.option("startingOffsets", "earliest").option("endingOffsets", "latest").load()
    rows = records.where(F.col("key").cast("string").startswith(prefix)).select("partition", "offset", "key", "value").collect()
    found = StateRecords(topic, SourceId(settings.name))
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        found.apply(bytes(row["key"]), None if row["value"] is None else bytes(row["value"]))
    return found.state


def batch_offsets(checkpoint: Path, batch_id: int) -> Offsets:
    """End offsets of a batch, as Spark wrote them down before running it; empty before the first batch.

    Raises `SinkError` when the file is not there or not understood.
    """
    if batch_id < 0:
        return {}
    path = checkpoint / "offsets" / str(batch_id)
    try:
        source = json.loads(path.read_text(encoding="utf-8").splitlines()[2])
        return {topic: {int(p): int(o) for p, o in parts.items()} for topic, parts in source.items()}
    except (OSError, ValueError, IndexError, AttributeError) as error:
        message = f"cannot read the offsets of batch {batch_id} in {path}: {error}; the checkpoint is damaged"
        raise SinkError(message) from error


def forget_offsets(checkpoint: Path, batch_id: int) -> None:
    """Have Spark find out anew what a batch holds. Only for one that nothing was written of, at any attempt."""
    for name in (f".{batch_id}.crc", str(batch_id)):
        (checkpoint / "offsets" / name).unlink(missing_ok=True)


def lost_partitions(start: Offsets, end: Offsets) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of what was read further than it goes now."""
    return [
        (topic, partition, offset)
        for topic, partitions in start.items()
        for partition, offset in partitions.items()
        if end.get(topic, {}).get(partition, 0) < offset
    ]


def slices_between(start: Offsets, end: Offsets, others: Container[str] = ()) -> list[Slice]:
    """What lies between two sets of offsets; `SinkError` when a topic went back or away (it was deleted), of others' it may."""
    for topic, partition, offset in lost_partitions(start, end):
        if topic not in others:
            message = (
                f"topic {topic} partition {partition} was read up to {offset} and ends before that: it "
                "was deleted or made anew, or is out of sight of this Kafka user. If it does not come back, start the merge "
                "job on an empty sink path and snapshot again"
            )
            raise SinkError(message)
    found: list[Slice] = []
    for topic, partitions in end.items():
        for partition, offset in partitions.items():
            first = start.get(topic, {}).get(partition, EARLIEST)
            if offset > 0 and first < offset:
                found.append(Slice(topic, partition, first, offset))
    return found
