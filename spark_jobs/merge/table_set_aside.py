"""Tables that cannot be merged: each is set aside with its reason, so that the others continue, and retried.

A failure that passes, such as a commit of somebody else or a lost executor, is retried at once (`until_done`).

While a table is set aside nothing that is remembered of it advances: markers, horizon, tombstones and offsets stay as its last
merged batch left them. It continues at those offsets: nothing is lost as long as Kafka keeps the records. It is retried in the
first batch of each start, after a pause that grows, and when the registry has other schemas of it.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from kafkaio.schema_registry import SchemaRegistry
from schemas.errors import (
    ConfigError,
    EndingError,
    FencedError,
    RegistryError,
    RetriableSinkError,
    SchemaChangeError,
    TidemarkError,
    result_or_error,
)
from schemas.identity import SourceTable
from schemas.merge_progress import SetAside
from schemas.topics import key_subject, value_subject
from spark_jobs.merge.context import JobContext, MergeParts
from spark_jobs.merge.job_state import MergeState, SourceRecord
from spark_jobs.sinks.contract import FedBy, FencedSinkError, TargetRecord
from spark_jobs.spark_errors import CANCELLED, lost_class, reason_of, with_causes
from spark_jobs.store.sink_layout import TOMBSTONES

log = structlog.get_logger()

ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.5
FIRST_PAUSE_MS: Final = 30_000
LONGEST_PAUSE_MS: Final = 600_000
_ASKS_EVERY_S: Final = 10.0
UNKNOWN_RANGE: Final = ("",)
_Result = TypeVar("_Result")

_OF_THE_JOB: Final = (
    ConfigError, EndingError, FencedError, RegistryError, SchemaChangeError, RetriableSinkError, FencedSinkError,
)  # fmt: skip
# Errors of one folder. A full or read-only disk, or a lack of file handles, concerns every table.
_OF_A_FOLDER: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
)
# Our own errors, and those of Python for a table that is not as the code expects it.
_OF_A_TABLE: Final = (TidemarkError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
_OF_ALL: Final = (
    "No space left on device",
    "Disk quota exceeded",
    "Read-only file system",
    "File too large",
    "Too many open files",
    "Input/output error",
    "OutOfMemoryError",
    "Cannot allocate memory",
    "SparkContext was shut down",
    "stopped SparkContext",
    "SparkContext is stopped",
    "ExecutorLostFailure",
    *CANCELLED,
    "errors.TimeoutException",
    "errors.DisconnectException",
    "errors.NetworkException",
    "AuthenticationException",
    "ConnectException",
    "UnknownHostException",
    "No resolvable bootstrap urls",
)


def is_of_one_table(error: Exception, passing: Callable[[Exception], str | None]) -> bool:
    """Return whether an error is about the table it came with, and not about the job, its disk, Kafka or the registry."""
    if isinstance(error, _OF_THE_JOB):
        return False
    if isinstance(error, OSError):
        return error.errno in _OF_A_FOLDER
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return False  # the JVM does not answer
    if isinstance(error, (PySparkException, Py4JError)):
        if lost_class(error) is not None:
            return False
        return passing(error) is None and not any(text in with_causes(error) for text in _OF_ALL)
    return isinstance(error, _OF_A_TABLE) and not any(text in str(error) for text in _OF_ALL)


def result_or_own_error(
    context: JobContext, tables: Iterable[SourceTable], work: Callable[[], _Result], *, takes_passing: bool = False
) -> _Result | Exception:
    """Return the result of work on one table, or on tables that share targets, or its error if it concerns them only.

    What was known of the tables is forgotten then. Any other error is raised. With `takes_passing` an error that passes is
    returned, too: the work is done again.
    """
    done, passing = result_or_error(work), context.sink.passing
    if isinstance(done, Exception):
        if not is_of_one_table(done, passing) and not (takes_passing and passing(done) is not None):
            raise done
        for table in tables:
            context.forget(table)
    return done


class TablesSetAside:
    """The tables of a job that are set aside: which are retried now, and what is remembered of one that fails."""

    def __init__(self, parts: MergeParts, registry: SchemaRegistry) -> None:
        self._layout = parts.layout
        self._tables = parts.tables
        self._registry = registry
        self._seen: dict[SourceTable, tuple[float, tuple[int, ...]]] = {}
        self._failed_with: dict[SourceTable, tuple[int, ...]] = {}

    def due(self, before: MergeState, *, is_first: bool) -> set[SourceTable]:
        """Return the tables that are set aside and retried now: in the first batch, after a pause, or with another schema."""
        now_ms = time.time_ns() // 1_000_000
        return {
            table
            for table, record in before.sources.items()
            if record.set_aside is not None
            and (
                is_first
                or now_ms >= record.set_aside.retry_ms
                or self._schema_ids(table) != self._failed_with.get(table)
            )
        }

    def record(self, table: SourceTable, known: SourceRecord, error: Exception, batch_id: int) -> SourceRecord:
        """Return the record of a table that could not be merged: as before, with the reason."""
        folder = self._layout.folder(table.name.database, table.name.table)
        self._layout.files.remove(f"{TOMBSTONES}/{folder}/{batch_id}")  # none of the state's: the next attempt writes its own
        record = as_set_aside(known, reason_of(error), time.time_ns() // 1_000_000)
        self._seen.pop(table, None)
        self._failed_with[table] = self._schema_ids(table)
        log_set_aside(table, known, record)
        return record

    def _schema_ids(self, table: SourceTable) -> tuple[int, ...]:
        """Return the schemas the registry has of a table, asked for now and then; what was known if it does not answer."""
        now, (asked, known) = time.monotonic(), self._seen.get(table, (-_ASKS_EVERY_S, ()))
        if now - asked >= _ASKS_EVERY_S:
            changes, _ = self._tables.topics_of(table)
            subjects = (value_subject(changes), key_subject(changes))
            try:
                known = tuple(schema.id for subject in subjects for schema in self._registry.versions(subject))
            except RegistryError as error:
                log.warning("merge.schemas_unknown", table=table.name.plain, reason=str(error))
            self._seen[table] = (now, known)
        return known


def as_set_aside(record: SourceRecord, reason: str, now_ms: int) -> SourceRecord:
    """Return the record of a table that could not be merged now: as it was before, with the reason."""
    known = record.set_aside
    attempts = 1 if known is None else known.attempts + 1
    since = now_ms if known is None else known.since_ms
    pause = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(attempts - 1, 10))
    is_recreated = known is not None and known.is_recreated
    return replace(record, set_aside=SetAside(reason, since, attempts, now_ms + pause, is_recreated))


def without_keys(record: TargetRecord) -> TargetRecord:
    """Return the record of a target whose keys are not known."""
    return replace(record, key_range=None, range_of=UNKNOWN_RANGE)


def half_written(record: TargetRecord, batch_id: int, fed_by: Mapping[str, FedBy] | None = None) -> TargetRecord:
    """Return the record of a target to which the batch that failed has written: its range of keys is no longer known.

    `fed_by` is what it was fed by when the batch failed: a column is not filled again, over rows that were put since.
    """
    fed_by = record.fed_by if fed_by is None else fed_by
    return replace(without_keys(record), last_commit=batch_id, fed_by=fed_by)


def log_set_aside(table: SourceTable, before: SourceRecord, record: SourceRecord) -> None:
    """Log once that a table is set aside, and again when the reason is another."""
    name = table.name.plain
    if record.set_aside is None:
        log.info("merge.table_taken_up", table=name)
        return
    is_news = before.set_aside is None or before.set_aside.reason != record.set_aside.reason
    report = log.error if is_news else log.debug
    report("merge.table_set_aside", table=name, reason=record.set_aside.reason, attempts=record.set_aside.attempts)


def until_done(
    context: JobContext, tables: Collection[SourceTable], attempt: Callable[[], _Result], name: str, batch_id: int
) -> _Result:
    """Return the result of an attempt at work on tables, after some retries at most. `name` is for the log.

    An error that does not pass (`Sink.passing`), or that came every time, is raised.
    """
    for number in range(1, ATTEMPTS + 1):
        done = result_or_error(attempt)
        if not isinstance(done, Exception):
            return done
        reason = context.sink.passing(done)
        if reason is None and not isinstance(done, (PySparkException, Py4JError)):
            raise done  # it says itself what it is about
        for table in tables:
            context.forget(table)
        if number == ATTEMPTS or reason is None:
            log.error("merge.table_failed", table=name, batch_id=batch_id)
            raise done
        log.warning("merge.again", table=name, reason=reason, batch_id=batch_id, attempt=number)
        time.sleep(_PAUSE_S * number)
    raise AssertionError
