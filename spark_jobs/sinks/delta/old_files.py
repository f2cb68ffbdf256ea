"""The files that older versions of a Delta table had: each batch leaves some, which nobody needs after the table's retention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_jobs.decode.spark_types import quoted

LEAST_HOURS: Final = 24
"""A file of a batch that is not committed yet is of no version, too: what is younger stays, whatever the table's retention is."""

_CONF: Final[Mapping[str, str]] = {
    # Else each VACUUM is two commits that change nothing.
    "spark.databricks.delta.vacuum.logging.enabled": "false",
    # Else RETAIN is ignored, since Delta 4.0.
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
}
_HOUR_MS: Final = 3_600_000


def remove_old_files(spark: SparkSession, path: str) -> None:
    """Remove the files below a table's folder that no version within its retention has (VACUUM), and that are a day old or more.

    The retention is `delta.deletedFileRetentionDuration`, a week where the table does not say. It is Spark's VACUUM also for
    tables that delta-rs writes: that of delta-rs 1.x takes files of deletion vectors for files of no version. Nothing is
    committed. Raises errors of Spark as they are.
    """
    session = spark.newSession()
    for key, value in _CONF.items():
        session.conf.set(key, value)
    with _forgotten(session, path) as log:
        retention = _retention_hours(session, log)
        kept = f" RETAIN {LEAST_HOURS} HOURS" if retention < LEAST_HOURS else ""
        _silence(session)
        session.sql(f"VACUUM delta.{quoted(path)}{kept}")


@contextmanager
def _forgotten(session: SparkSession, path: str) -> Iterator[Any]:
    """Give what the JVM knows of a table, and have it forget that: it keeps the list of files of each table it was asked for."""
    jvm = session.sparkContext._gateway.jvm  # type: ignore[union-attr]  # noqa: SLF001 - PySpark has no other way to it
    logs = jvm.org.apache.spark.sql.delta.DeltaLog
    try:
        yield logs.forTable(session._jsparkSession, path)  # noqa: SLF001 - as above
    finally:
        logs.invalidateCache(session._jsparkSession, jvm.org.apache.hadoop.fs.Path(path))  # noqa: SLF001 - as above


def _silence(session: SparkSession) -> None:
    """Have Scala print nothing in the JVM's thread of this one: VACUUM prints a line that is none of the log's."""
    jvm = session.sparkContext._gateway.jvm  # type: ignore[union-attr]  # noqa: SLF001 - as above
    nothing = jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream())
    getattr(getattr(jvm.scala, "Console$"), "MODULE$").setOutDirect(nothing)


def _retention_hours(session: SparkSession, log: Any) -> float:
    jvm = session.sparkContext._gateway.jvm  # type: ignore[union-attr]  # noqa: SLF001 - as above
    metadata = log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty()).metadata()
    millis: int = jvm.org.apache.spark.sql.delta.DeltaLog.tombstoneRetentionMillis(metadata)
    return millis / _HOUR_MS
