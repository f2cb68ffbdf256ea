"""The producer's state topic, read by Spark: the tables that have topics, and the schemas by the ids in records."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from schemas.settings import Settings
from schemas.topics import SCHEMA_DOCUMENTS, TABLE_DOCUMENTS, state_topic
from spark_jobs.kafka.read import kafka_options
from spark_jobs.kafka.schema_registry import RegisteredSchema


def tables_with_topics(spark: SparkSession, settings: Settings) -> set[tuple[str, str]]:
    """Return every table that the producer has made topics for, by its state topic.

    A table is in it before a record of it can be read: both are committed in one Kafka transaction, or in this order.
    """
    documents = _state_documents(spark, settings, TABLE_DOCUMENTS)
    return {(str(document["database"]), str(document["table"])) for document in documents}


def schemas_by_subject(spark: SparkSession, settings: Settings) -> dict[str, list[RegisteredSchema]]:
    """Return the schemas of the ids in records, by subject, from the producer's state topic; oldest first."""
    found: dict[str, list[RegisteredSchema]] = {}
    for document in _state_documents(spark, settings, SCHEMA_DOCUMENTS):
        schema = RegisteredSchema(0, int(document["id"]), str(document["schema"]))
        found.setdefault(str(document["subject"]), []).append(schema)
    return found


def _state_documents(spark: SparkSession, settings: Settings, prefix: str) -> list[dict[str, Any]]:
    """Return the documents of the producer's state topic whose keys begin so, in the order in which they were written."""
    topic = state_topic(settings.name, settings.kafka.topic_delimiter)
    reader = spark.read.format("kafka").options(**kafka_options(settings.kafka)).option("subscribe", topic)
    records = reader.option("startingOffsets", "earliest").option("endingOffsets", "latest").load()
    wanted = F.col("key").cast("string").startswith(prefix) & F.col("value").isNotNull()
    rows = records.where(wanted).select("partition", "offset", "value").collect()
    return [json.loads(bytes(row["value"])) for row in sorted(rows)]
