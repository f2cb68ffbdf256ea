"""Records that cannot be merged, kept with where they are and why: nothing is lost, nothing stops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from schemas.markers import MARKER_KEY
from spark_jobs.decode.avro_records import OFFSET, PARTITION, REASON, TOPIC
from spark_jobs.merge.table_input import BadMarker
from spark_jobs.sinks.delta.alter import quoted
from spark_jobs.sinks.delta.writes import Commit, committing

COLUMNS: Final = ("topic", "partition", "offset", "reason", "key", "value", "batch_id", "timestamp", "table")
_MARKER_ROW: Final = (
    "topic string, partition int, offset bigint, reason string, key binary, value binary, batch_id bigint, "
    "timestamp timestamp, table string"
)


def write(raw: DataFrame, judged: DataFrame, path: str, commit: Commit) -> None:
    """Append the records of `raw` that `judged` gives a reason for, once per batch and table.

    `raw` has topic, partition, offset, key, value, timestamp; `judged` what `decode.decoded` gives for them.
    """
    bad = judged.where(F.col(REASON).isNotNull()).select(
        F.col(TOPIC).alias("topic"),
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.col(REASON).alias("reason"),
    )
    kept = raw.join(bad, ["topic", "partition", "offset"], "inner")
    batch = F.lit(commit.batch_id).cast("bigint")
    rows = kept.withColumn("batch_id", batch).withColumn("table", F.lit(commit.table)).select(*COLUMNS)
    _append(rows, path, commit, "quarantine")


def marker_rows(spark: SparkSession, markers: Iterable[BadMarker], commit: Commit) -> DataFrame:
    """Records that have the marker key and are no markers, as rows of the quarantine."""
    rows = [
        (m.topic, m.partition, m.offset, m.reason, MARKER_KEY, m.value, commit.batch_id, m.written, commit.table)
        for m in markers
    ]
    return spark.createDataFrame(rows, _MARKER_ROW)


def write_markers(rows: DataFrame, path: str, commit: Commit) -> None:
    """Append such rows."""
    _append(rows.select(*COLUMNS), path, commit, "markers")


def _append(rows: DataFrame, path: str, commit: Commit, step: str) -> None:
    """All tables share the quarantine; appends of several threads do not get into each other's way."""
    with committing(rows.sparkSession, commit, step):
        rows.write.format("delta").mode("append").option("mergeSchema", "true").save(path)


def remove(places: DataFrame, path: str) -> None:
    """Take the records at these places (topic, partition, offset) out; those that are not there do no harm."""
    spark = places.sparkSession
    places.createOrReplaceTempView("tidemark_settled")
    spark.sql(
        f"MERGE INTO delta.{quoted(path)} q USING tidemark_settled s "
        "ON q.topic = s.topic AND q.partition = s.partition AND q.offset = s.offset "
        "WHEN MATCHED THEN DELETE"
    )
