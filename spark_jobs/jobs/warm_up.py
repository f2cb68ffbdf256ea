"""What the first batch needs is there before it.

While the JVM starts, pandas is imported. While the job takes the sink's lock, asks for topics and plans its query, Python workers
load their kernels. More would be slower: two cores have enough to do then (docs/performance.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

import structlog
from pyspark.sql import SparkSession

from schemas.errors import result_or_error

log = structlog.get_logger()


def import_meanwhile() -> threading.Thread:
    """Import pandas on a thread of its own: `mapInArrow` takes a second for it, and the start of a JVM leaves Python idle."""
    return _begun("imports", lambda: import_module("pandas"))


def warm_up(spark: SparkSession) -> list[threading.Thread]:
    """Have workers and the JVM do once what batches do, each on a thread. What fails here the first batch does, and says so."""
    return [
        _begun("warm-up-workers", lambda: _start_workers(spark.newSession())),
        _begun("warm-up-libraries", lambda: _load_libraries(spark.sparkContext._jvm)),  # noqa: SLF001 - there is no other way to a class of Java
    ]


def _begun(name: str, work: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        error = result_or_error(work)  # of every kind, also if the session is being stopped
        if isinstance(error, Exception):
            log.debug("merge.not_warmed_up", what=name, reason=str(error).partition("\n")[0])

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _start_workers(spark: SparkSession) -> None:
    """Start a worker on each core, on an executor elsewhere, too: the daemon that forks them loads what their tasks need."""
    count = spark.sparkContext.defaultParallelism
    spark.range(0, count, 1, count).mapInArrow(lambda batches: batches, "id long").collect()


def _load_libraries(jvm: Any) -> None:
    """Have the driver's JVM load the libraries of Parquet and Kafka that are not Java: each is written to a temporary file first.

    A class whose library cannot be written, on a full disk for example, is lost for the rest of the JVM's life ("Could not
    initialize class"): at the start of a job that is less likely than in the middle of a batch.
    """
    jvm.org.xerial.snappy.Snappy.getNativeLibraryVersion()
    jvm.com.github.luben.zstd.util.Native.load()
    jvm.net.jpountz.lz4.LZ4Factory.fastestInstance()
