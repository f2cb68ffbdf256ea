"""Python workers are started, and the JVM has learned to talk to them, while the query is still being planned."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    import pyarrow as pa


def warm_up(spark: SparkSession) -> threading.Thread:
    """Have a worker on each core do nothing, on a thread of its own. What fails here fails in the first batch, which says so."""
    thread = threading.Thread(target=_run, args=(spark.newSession(),), name="warm-up", daemon=True)
    thread.start()
    return thread


def _run(spark: SparkSession) -> None:
    with suppress(PySparkException, Py4JError, OSError):
        frame = spark.range(0, spark.sparkContext.defaultParallelism, 1, spark.sparkContext.defaultParallelism)
        frame.mapInArrow(_unchanged, "id long").collect()  # type: ignore[arg-type]


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches
