"""The workers of a task as tasks of Spark: shares enter, each is applied by an executor in a session of its own.

Spark repeats a task whose process or machine is lost, and may run it twice at the same time: `ShareWorker` applies each row once.
A job that fails leaves the plan open, and the next attempt of the task repeats it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from schemas.errors import EndingError, RetriableSinkError, SinkError
from spark_jobs.jobs.jvm_start import forget_jvm, has_jvm_ended, jvm_ended
from spark_jobs.jobs.preflight import require_startable
from spark_jobs.jobs.session import build_session, running_session
from spark_jobs.replicate.apply.share_workers import WorkerSetup, rank
from spark_jobs.replicate.apply.shipped_shares import ShippedShare, apply_shipped
from spark_jobs.spark_errors import reason_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from schemas.settings.task_section import TaskSettings
    from spark_jobs.replicate.apply.apply_target import ApplyTarget
    from spark_jobs.replicate.rows.row_statements import TextedRow
    from spark_jobs.replicate.rows.row_values import RowDecoder

log = structlog.get_logger()

_POLL_S: Final = 0.2
_DEFAULTS: Final = {"spark.rpc.message.maxSize": "1024"}
"""MiB of a task: a share has the rows of a batch at most, and a row may be long."""


class ShareExecutors:
    """The executors of a process of a task; a session of Spark begins with the first batch. Use it in one thread, and close it.

    A session that this process has already is used, and stays.
    """

    def __init__(self, settings: TaskSettings, stop: threading.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._tables = 0
        self._spark: SparkSession | None = None
        self._is_own = False

    @property
    def least_rows(self) -> int:
        """Batches of more rows are for executors."""
        return self._settings.apply.executor_rows

    def close(self) -> None:
        """End the session, if it was begun here."""
        spark, self._spark = self._spark, None
        if spark is not None and self._is_own:
            with suppress(Py4JError, OSError):  # of a JVM that is gone
                spark.stop()

    def forget_tables(self) -> None:
        """Have executors ask the target for its tables again: a statement has run, or a person may have."""
        self._tables += 1

    def apply(self, target: ApplyTarget, decoder: RowDecoder, plan: int, shares: Sequence[Sequence[TextedRow]]) -> None:
        """Apply all shares. Errors as `ShareWorker.apply`: of several the one whose row is first in its source.

        `RetriableSinkError`: Spark failed. `EndingError`: the task is stopped, and the plan is left as it is.
        """
        setup = WorkerSetup.of(target, self._settings.apply)
        setup = replace(setup, access=target.access.with_secret(), tables=self._tables)
        shipped = [ShippedShare.of(plan, worker, rows, decoder) for worker, rows in enumerate(shares) if rows]
        outcomes = self._outcomes(setup, shipped, f"tidemark-{target.task}-{plan}")
        errors = [error for error in outcomes if error is not None]
        if errors:
            raise min(errors, key=rank)

    def _outcomes(self, setup: WorkerSetup, shares: Sequence[ShippedShare], tag: str) -> list[Exception | None]:
        try:
            context = self._session().sparkContext
            with self._stoppable(context, tag):
                return context.parallelize(shares, len(shares)).map(partial(apply_shipped, setup)).collect()
        except (SinkError, PySparkException, Py4JError, OSError) as error:
            if self._stop.is_set():
                raise EndingError("the task is stopped while executors apply a batch; its next start applies the rest") from error
            reason = str(jvm_ended(self._settings.spark)) if has_jvm_ended() else reason_of(error)
            self.close()  # its context may have stopped, too: the next attempt begins another one
            raise RetriableSinkError(f"executors have not applied a batch, the rest of which is repeated: {reason}") from error

    def _session(self) -> SparkSession:
        if self._spark is None:
            if has_jvm_ended():
                forget_jvm()
            spark = running_session()
            if spark is None:
                settings = replace(self._settings.spark, conf={**_DEFAULTS, **self._settings.spark.conf})
                require_startable(settings)
                log.info("task.spark_starts", master=settings.master)
                spark = build_session(settings, f"task {self._settings.task}")
                self._is_own = True
            self._spark = spark
        return self._spark

    @contextmanager
    def _stoppable(self, context: SparkContext, tag: str) -> Iterator[None]:
        """Cancel the jobs of a block if the task is stopped."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_POLL_S):
                if self._stop.is_set():  # again and again: the job may begin later
                    with suppress(Py4JError, OSError):
                        context.cancelJobsWithTag(tag)

        context.addJobTag(tag)
        watcher = threading.Thread(target=watch, name="spark-stop", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            with suppress(Py4JError, OSError):
                context.removeJobTag(tag)
