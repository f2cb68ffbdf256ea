"""The records that cannot be merged, as rows of a sink's quarantine: with where they are and why."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from schemas.markers import MARKER_KEY
from spark_jobs.decode.record_columns import OFFSET, PARTITION, REASON, TOPIC
from spark_jobs.merge.table_input import BadMarker
from spark_jobs.sinks.contract import Quarantine
from spark_jobs.sinks.stamp import Stamp

COLUMNS: Final = ("topic", "partition", "offset", "reason", "key", "value", "batch_id", "timestamp", "table")
COORDINATES: Final = ("topic", "partition", "offset")
_MARKER_ROW: Final = (
    "topic string, partition int, offset bigint, reason string, key binary, value binary, batch_id bigint, "
    "timestamp timestamp, table string"
)


def rows_of(raw: DataFrame, judged: DataFrame, stamp: Stamp) -> DataFrame:
    """Return the records of `raw` that `judged` gives a reason for.

    `raw` has topic, partition, offset, key, value, timestamp; `judged` is what `decode.avro_records.decoded` returns for them.
    """
    bad = judged.where(F.col(REASON).isNotNull()).select(
        F.col(TOPIC).alias("topic"),
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.col(REASON).alias("reason"),
    )
    kept = raw.join(bad, list(COORDINATES), "inner")
    batch = F.lit(stamp.batch_id).cast("bigint")
    return kept.withColumn("batch_id", batch).withColumn("table", F.lit(stamp.table)).select(*COLUMNS)


def marker_rows(spark: SparkSession, markers: Iterable[BadMarker], stamp: Stamp) -> DataFrame:
    """Return the records that have the marker key and are no markers."""
    rows = [
        (m.topic, m.partition, m.offset, m.reason, MARKER_KEY, m.value, stamp.batch_id, m.written, stamp.table)
        for m in markers
    ]
    return spark.createDataFrame(rows, _MARKER_ROW)


def not_kept_yet(spark: SparkSession, records: DataFrame, quarantine: Quarantine) -> DataFrame:
    """Return the records without those that are in quarantine already.

    A record of a topic that was created again may have the coordinates of one of the former topic: key and value are compared, too.
    """
    kept = quarantine.records(spark)
    if kept is None:
        return records
    same = reduce(
        lambda one, other: one & other,
        [F.col(f"r.{part}").eqNullSafe(F.col(f"q.{part}")) for part in (*COORDINATES, "key", "value")],
    )
    return records.alias("r").join(kept.alias("q"), same, "left_anti")
