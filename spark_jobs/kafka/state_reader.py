"""The producer's state topic: the tables that have topics, and the schemas by the ids in records.

The driver reads it by itself, and Spark does where that is not possible: a job of Spark's is 2 s of the start of a JVM.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from kafkaio.schema_registry import RegisteredSchema
from schemas.documents import SchemaIdDocument, TopicsDocument
from schemas.identity import SourceId
from schemas.settings import Settings
from schemas.state import State, StateRecords, partition_of
from schemas.topics import state_topic
from spark_jobs.kafka.few_records import FewRecords
from spark_jobs.kafka.read import kafka_options


def tables_with_topics(spark: SparkSession, settings: Settings, few: FewRecords) -> set[tuple[str, str]]:
    """Return every table that the producer has made topics for, by its state topic.

    A table is in it before a record of it can be read: both are committed in one Kafka transaction, or in this order.
    """
    documents = _state(spark, settings, few, TopicsDocument.PREFIX).all(TopicsDocument)
    return {(one.database, one.table) for one in documents.values()}


def schemas_by_subject(spark: SparkSession, settings: Settings, few: FewRecords) -> dict[str, list[RegisteredSchema]]:
    """Return the schemas of the ids in records, by subject, from the producer's state topic; oldest first."""
    found: dict[str, list[RegisteredSchema]] = {}
    for one in _state(spark, settings, few, SchemaIdDocument.PREFIX).all(SchemaIdDocument).values():
        found.setdefault(one.subject, []).append(RegisteredSchema(one.id, one.schema))
    return found


def _state(spark: SparkSession, settings: Settings, few: FewRecords, prefix: str) -> State:
    """Return the documents of the producer's state topic whose keys begin so, in the order in which they were written."""
    topic = state_topic(settings.name, settings.kafka.topic_delimiter)
    found = StateRecords(topic, SourceId(settings.name))
    records = few.read_partition(topic, partition_of(prefix), prefix.encode())
    if records is not None:
        for record in records:
            found.apply(record.key, record.value)
        return found.state
    reader = spark.read.format("kafka").options(**kafka_options(settings.kafka)).option("subscribe", topic)
    all_records = reader.option("startingOffsets", "earliest").option("endingOffsets", "latest").load()
    wanted = all_records.where(F.col("key").cast("string").startswith(prefix))
    rows = wanted.select("partition", "offset", "key", "value").collect()
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        found.apply(bytes(row["key"]), None if row["value"] is None else bytes(row["value"]))
    return found.state
