"""Records that cannot be merged, kept with where they are and why: nothing is lost, nothing stops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from schemas.markers import MARKER_KEY
from spark_jobs.decode import REASON
from spark_jobs.merge import Commit, committing
from spark_jobs.work import BadMarker

COLUMNS: Final = ("topic", "partition", "offset", "reason", "key", "value", "batch_id")
_MARKER_ROW: Final = (
    "topic string, partition int, offset bigint, reason string, key binary, value binary, batch_id bigint"
)


def write(raw: DataFrame, judged: DataFrame, path: str, commit: Commit) -> None:
    """Append the records of `raw` that `judged` gives a reason for, once per batch and table.

    `raw` has topic, partition, offset, key, value; `judged` what `decode.decoded` gives for them.
    """
    bad = judged.where(F.col(REASON).isNotNull()).select(
        F.col("_tm_topic").alias("topic"),
        F.col("_tm_partition").alias("partition"),
        F.col("_tm_offset").alias("offset"),
        F.col(REASON).alias("reason"),
    )
    kept = raw.join(bad, ["topic", "partition", "offset"], "inner")
    rows = kept.withColumn("batch_id", F.lit(commit.batch_id).cast("bigint")).select(*COLUMNS)
    _append(rows, path, commit, "quarantine")


def write_markers(spark: SparkSession, markers: Iterable[BadMarker], path: str, commit: Commit) -> None:
    """Append records that have the marker key and are no markers."""
    rows = [(m.topic, m.partition, m.offset, m.reason, MARKER_KEY, m.value, commit.batch_id) for m in markers]
    _append(spark.createDataFrame(rows, _MARKER_ROW), path, commit, "markers")


def _append(rows: DataFrame, path: str, commit: Commit, step: str) -> None:
    """All tables share the quarantine; appends of several threads do not get into each other's way."""
    with committing(rows.sparkSession, commit, step):
        rows.write.format("delta").mode("append").save(path)
