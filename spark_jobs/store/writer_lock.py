"""One writer per sink: the merge job, or a command that repairs what it left, never both."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from schemas.errors import SinkError
from spark_jobs.store.sink_layout import Places

log = structlog.get_logger()

LOCK_WAIT_S: Final = 60


@contextmanager
def sole_writer(spark: SparkSession, places: Places, wait_s: int = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the sink's lock; `SinkError` when another still does after that many seconds.

    The JVM holds it, which may go on writing for a moment when Python is killed.
    """
    java: Any = spark.sparkContext._jvm  # noqa: SLF001 - a lock must be the JVM's own
    file = java.java.io.RandomAccessFile(str(places.lock), "rw")
    try:
        lock = _locked(file.getChannel(), wait_s)
        if lock is None:
            message = f"another merge job writes to {places.sink}; stop it first ({places.lock} is locked)"
            raise SinkError(message)
        yield
    finally:
        file.close()


def _locked(channel: Any, wait_s: int) -> Any:
    for attempt in range(wait_s):
        try:
            lock = channel.tryLock()
        except Py4JJavaError:  # this very JVM holds it: another job in the same process
            return None
        if lock is not None:
            return lock
        if attempt == 0:
            log.info("merge.waiting_for_lock")
        threading.Event().wait(1)
    return None
