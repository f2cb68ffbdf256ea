"""Reads of Kafka: the stream that paces the batches, and the records of a table between two offsets.

The streaming query decides which offsets a batch has. The records of a table are then read by offset: a batch of many tables reads
each record once, and nothing is kept in memory between tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from kafkaio.slices import Slice
from schemas.settings import KafkaSettings, Settings
from schemas.topics import (
    change_topic,
    change_topic_pattern,
    snapshot_topic_pattern,
)
from spark_jobs.kafka.security import security_options

CONSUMERS: Final = "tidemark-merge"
FEW_RECORDS: Final = 50_000


def cluster_options(settings: KafkaSettings) -> dict[str, str]:
    """Return the options of any Java client of Kafka, as Spark's Kafka source names them: the cluster, and how to be let in.

    Raises `ConfigError` for a security option that Java's client has not, and for a file that cannot be read.
    """
    return {"kafka.bootstrap.servers": settings.bootstrap_servers, **security_options(settings)}


def kafka_options(settings: KafkaSettings) -> dict[str, str]:
    """Return the options of Spark's Kafka source: `cluster_options`, committed records only, and loss of data is an error."""
    return {
        "kafka.isolation.level": "read_committed",
        # A consumer asks ahead: at the end of a partition that question would delay the next one, and a small batch is all ends.
        "kafka.fetch.max.wait.ms": "1",
        # A consumer asks for the next records when it hands out the last ones of those it has: with few at a time (500 is the
        # default) a task waits for them. What the broker sends meanwhile is in the socket's buffer: -1 lets the system size it.
        "kafka.max.poll.records": "5000",
        "kafka.receive.buffer.bytes": "-1",
        "failOnDataLoss": "true",
        **cluster_options(settings),
    }


def topic_pattern(settings: Settings) -> str:
    """Return a pattern of all change and snapshot topics of the source, without the signal table's change topic."""
    name, delimiter = settings.name, settings.kafka.topic_delimiter
    both = f"(?:{change_topic_pattern(name, delimiter)}|{snapshot_topic_pattern(name, delimiter)})"
    signal = settings.source.signal_names
    if signal is None:
        return both
    return f"(?!{re.escape(change_topic(name, *signal, delimiter))}$){both}"


def stream(spark: SparkSession, settings: Settings) -> DataFrame:
    """Return the stream that paces the batches; new topics join it by themselves, from their first record.

    Nothing is read of it. What is lost of our own topics is found by their offsets (`slices_between`) and where they are read
    (`read_slices`); for Spark those of another producer, whose name begins with ours, count as well.
    """
    reader = spark.readStream.format("kafka").options(**kafka_options(settings.kafka))
    reader = reader.option("subscribePattern", topic_pattern(settings)).option("startingOffsets", "earliest")
    return reader.option("failOnDataLoss", "false").option("maxOffsetsPerTrigger", settings.spark.max_batch_records).load()


def read_slices(spark: SparkSession, kafka: KafkaSettings, slices: Iterable[Slice]) -> DataFrame:
    """Return the records of the slices: key, value, topic, partition, offset, timestamp.

    A task for each partition of Kafka costs more than reading a few records: then there are no more tasks than cores.
    """
    slices = list(slices)
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
    records = reader.load().select("topic", "partition", "offset", "key", "value", "timestamp")
    cores = spark.sparkContext.defaultParallelism
    is_small = len(slices) > cores and sum(part.size for part in slices) <= FEW_RECORDS
    return records.coalesce(cores) if is_small else records
