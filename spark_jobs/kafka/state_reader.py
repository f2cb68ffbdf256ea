"""The producer's state topic, read by Spark: the tables that have topics, and the schemas by the ids in records."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from schemas.documents import SchemaIdDocument, TopicsDocument
from schemas.identity import SourceId
from schemas.settings import Settings
from schemas.state import State, StateRecords
from schemas.topics import state_topic
from spark_jobs.kafka.read import kafka_options
from spark_jobs.kafka.schema_registry import RegisteredSchema


def tables_with_topics(spark: SparkSession, settings: Settings) -> set[tuple[str, str]]:
    """Return every table that the producer has made topics for, by its state topic.

    A table is in it before a record of it can be read: both are committed in one Kafka transaction, or in this order.
    """
    documents = _state(spark, settings, TopicsDocument.PREFIX).all(TopicsDocument)
    return {(one.database, one.table) for one in documents.values()}


def schemas_by_subject(spark: SparkSession, settings: Settings) -> dict[str, list[RegisteredSchema]]:
    """Return the schemas of the ids in records, by subject, from the producer's state topic; oldest first."""
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
