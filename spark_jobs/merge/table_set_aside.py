"""Tables that cannot be merged: each is set aside with its reason, so that the others continue, and retried.

A failure that passes, such as a commit of somebody else or a lost executor, is retried at once (`until_done`).

While a table is set aside nothing that is remembered of it advances: markers, horizon, tombstones and offsets stay as its last
merged batch left them. It continues at those offsets: nothing is lost as long as Kafka keeps the records. It is retried in the
first batch of each start, after a pause that grows, and when the registry has other schemas of it.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from kafkaio.slices import EARLIEST, Offsets, Slice
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
from schemas.merge_rule import NOTHING
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.job_state import SourceRecord
from spark_jobs.sinks.contract import FedBy, FencedSinkError, TargetRecord
from spark_jobs.spark_errors import CANCELLED, lost_class, with_causes

log = structlog.get_logger()

ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.5
FIRST_PAUSE_MS: Final = 30_000
LONGEST_PAUSE_MS: Final = 600_000
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
_NOT_YET: Final = ". The new ones are read from their first record; snapshot this table when this reason asks for it"
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


def as_set_aside(record: SourceRecord, reason: str, now_ms: int) -> SourceRecord:
    """Return the record of a table that could not be merged now: as it was before, with the reason."""
    known = record.set_aside
    attempts = 1 if known is None else known.attempts + 1
    since = now_ms if known is None else known.since_ms
    pause = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(attempts - 1, 10))
    is_recreated = known is not None and known.is_recreated
    return replace(record, set_aside=SetAside(reason, since, attempts, now_ms + pause, is_recreated))


def reading_again(record: SourceRecord, topics: tuple[str, str], replaced: Collection[str], now_ms: int) -> SourceRecord:
    """Return the record of a table whose topics were deleted and created again: the next batch reads them from their first record.

    What waits for offsets of the former ones is dropped. The table is not consistent before it was read again. A snapshot in that
    batch does not count, since what its markers say may be about the former topics: it is asked for behind it (`new_topics_read`).
    """
    changes, snapshots = topics
    reason = (
        f"topic {', '.join(sorted(replaced))} was deleted and created again since it was read, records that were not merged may be "
        f"lost{_NOT_YET}"
    )
    state = replace(record.state, marks=(), completions={}, consistent_at=NOTHING, emptied=NOTHING)
    return replace(
        record,
        state=state,
        change_offsets={} if changes in replaced else record.change_offsets,
        snapshot_offsets={} if snapshots in replaced else record.snapshot_offsets,
        set_aside=SetAside(reason, now_ms, 1, now_ms, is_recreated=True),
        incomplete=reason,
        trimmed={} if changes in replaced else dict(record.trimmed or {}),
        known_from={},
        is_recreated=record.is_recreated or changes in replaced,
    )


def new_topics_read(record: SourceRecord) -> SourceRecord:
    """Return the record of a table whose new topics were read from their first record: from now on a snapshot counts."""
    incomplete = record.incomplete
    if incomplete is None or not incomplete.endswith(_NOT_YET):
        return record
    return replace(record, incomplete=f"{incomplete.removesuffix(_NOT_YET)}: snapshot this table again")


def ended_early(record: SourceRecord, topics: tuple[str, str], ends: Offsets) -> str | None:
    """Return why a table cannot be read further: a topic of it ends before what was read of it, or is not visible; else None."""
    for topic, known in zip(topics, (record.change_offsets, record.snapshot_offsets), strict=True):
        for partition, start in known.items():
            if ends.get(topic, {}).get(partition, 0) < start:
                return (
                    f"topic {topic} partition {partition} was read up to {start} and ends before that: it was deleted, or this "
                    "Kafka user cannot see it. The table continues when it is back; if it was deleted, let the producer create it "
                    "again and snapshot this table"
                )
    return None


def without_keys(record: TargetRecord) -> TargetRecord:
    """Return the record of a target whose keys are not known."""
    return replace(record, key_range=None, range_of=UNKNOWN_RANGE)


def half_written(record: TargetRecord, batch_id: int, fed_by: Mapping[str, FedBy] | None = None) -> TargetRecord:
    """Return the record of a target to which the batch that failed has written: its range of keys is no longer known.

    `fed_by` is what it was fed by when the batch failed: a column is not filled again, over rows that were put since.
    """
    fed_by = record.fed_by if fed_by is None else fed_by
    return replace(without_keys(record), last_commit=batch_id, fed_by=fed_by)


def unread(record: SourceRecord, topics: tuple[str, str], ends: Offsets) -> Iterator[Slice]:
    """Yield what of a table's change topic and snapshot topic is not merged up to the ends of a batch."""
    for topic, known in zip(topics, (record.change_offsets, record.snapshot_offsets), strict=True):
        for partition, end in ends.get(topic, {}).items():
            start = known.get(partition, EARLIEST)
            if end > 0 and start < end:
                yield Slice(topic, partition, start, end)


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
