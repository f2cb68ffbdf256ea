"""The Spark session of a merge job: the checks before it, what is warmed up with it, and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from schemas.settings import Settings
from spark_jobs.jobs.preflight import require_kafka, require_startable
from spark_jobs.jobs.session import build_session
from spark_jobs.jobs.warm_up import import_meanwhile, warm_up
from spark_jobs.store.sink_layout import SinkLayout

log = structlog.get_logger()


@contextmanager
def short_session(settings: Settings) -> Iterator[SparkSession]:
    """Start Spark for a command that works between two batches, and end it with the block. Errors as in `own_session`."""
    require_startable(settings.spark)
    require_kafka(settings.kafka, threading.Event())
    spark = build_session(settings.spark, f"merge {settings.name}")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def own_session(settings: Settings, stop: threading.Event, *, has_workers: bool) -> Iterator[SparkSession | None]:
    """Start Spark, and end it with the block; None where the job was stopped meanwhile.

    Spark's own log is `spark.log` in the service folder of the first sink. `has_workers` warms Python workers up, too.
    Raises `ConfigError` and `SinkError` for what Spark cannot be started with.
    """
    require_startable(settings.spark)
    require_kafka(settings.kafka, stop)
    if stop.is_set():
        yield None
        return
    import_meanwhile()
    log_file = SinkLayout.of(settings.sinks[0]).spark_log
    log_file.touch()
    log.info("merge.spark_starts", log_of_spark=str(log_file))
    spark = build_session(settings.spark, f"merge {settings.name}", log_file)
    try:
        if stop.is_set():
            yield None
            return
        if has_workers:
            warm_up(spark)
        yield spark
    finally:
        with suppress(Py4JError, OSError):  # of a JVM that is gone
            spark.stop()
