"""The Spark session of a merge job: the checks before it, what is warmed up with it, and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from schemas.settings import Settings
from spark_jobs.jobs.preflight import require_kafka, require_startable
from spark_jobs.jobs.session import build_session
from spark_jobs.jobs.warm_up import import_meanwhile, warm_up


@contextmanager
def own_session(settings: Settings, stop: threading.Event, *, has_workers: bool) -> Iterator[SparkSession | None]:
    """Start Spark, and end it with the block; None where the job was stopped meanwhile.

    `has_workers` warms Python workers up, too. Raises `ConfigError` and `SinkError` for what Spark cannot be started with.
    """
    require_startable(settings.spark)
    require_kafka(settings.kafka, stop)
    if stop.is_set():
        yield None
        return
    import_meanwhile()
    spark = build_session(settings.spark, settings.name)
    try:
        if stop.is_set():
            yield None
            return
        if has_workers:
            warm_up(spark, settings)
        yield spark
    finally:
        with suppress(Py4JError, OSError):  # of a JVM that is gone
            spark.stop()
