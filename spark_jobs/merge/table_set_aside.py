"""Tables that cannot be merged: each is set aside with its reason, so that the others go on, and retried.

While a table is set aside nothing that is remembered of it advances: markers, horizon, tombstones and offsets stay as its
last merged batch left them. It is read on from those offsets: nothing is lost as long as Kafka keeps the records. It is
retried in the first batch of each start, after a pause that grows, and when the registry has other schemas of it.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from schemas.errors import ConfigError, RegistryError, TidemarkError
from schemas.merge_rule import NOTHING
from spark_jobs.kafka.read import EARLIEST, Offsets, Slice
from spark_jobs.merge.state import SetAside, TableRecord
from spark_jobs.sinks.delta import writes as merge

FIRST_PAUSE_MS: Final = 30_000
LONGEST_PAUSE_MS: Final = 600_000
UNKNOWN_RANGE: Final = ("",)

# What is wrong with one folder; a full or read-only disk, or no more file handles, concern every table.
_OF_A_FOLDER: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP}
)
# Ours, and what Python raises where a table is not as the code expects it.
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
    "InterruptedException",
    "SPARK_JOB_CANCELLED",
    "SPARK_JOB_CANCELED",
    "errors.TimeoutException",
    "errors.DisconnectException",
    "errors.NetworkException",
    "AuthenticationException",
    "ConnectException",
    "UnknownHostException",
    "No resolvable bootstrap urls",
)


def is_of_one_table(error: Exception) -> bool:
    """Whether an error says something of the table it came with, and not of the job, its disk, Kafka or the registry."""
    if isinstance(error, (ConfigError, RegistryError)):
        return False
    if isinstance(error, OSError):
        return error.errno in _OF_A_FOLDER
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return False  # the JVM does not answer
    if isinstance(error, (PySparkException, Py4JError)):
        passing = merge.is_conflict(error) or merge.is_lost_executor(error)
        return not passing and not any(text in _whole(error) for text in _OF_ALL)
    return isinstance(error, _OF_A_TABLE) and not any(text in str(error) for text in _OF_ALL)


def _whole(error: Exception) -> str:
    """The message with those of its causes."""
    return f"{error}\n{getattr(error, '_stackTrace', '')}"


def set_aside(record: TableRecord, reason: str, now_ms: int) -> TableRecord:
    """The record of a table that could not be merged now: all as it was before, with the reason."""
    known = record.set_aside
    attempts = 1 if known is None else known.attempts + 1
    since = now_ms if known is None else known.since_ms
    pause = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(attempts - 1, 10))
    begins_again = known is not None and known.begins_again
    return replace(record, set_aside=SetAside(reason, since, attempts, now_ms + pause, begins_again))


def begun_again(record: TableRecord, topics: tuple[str, str], replaced: Collection[str], now_ms: int) -> TableRecord:
    """The record of a table whose topics were deleted and created again: they are read from their beginning, at the next batch.

    What was waiting for offsets of the former ones is dropped, and the table is not consistent before it was read again.
    """
    changes, snapshots = topics
    reason = (
        f"topic {', '.join(sorted(replaced))} was deleted and created again since it was read, records that were not merged may be "
        "lost: snapshot this table again"
    )
    state = replace(record.state, marks=(), completions={}, consistent_at=NOTHING, emptied=NOTHING)
    return replace(
        record,
        state=state,
        change_offsets={} if changes in replaced else record.change_offsets,
        snapshot_offsets={} if snapshots in replaced else record.snapshot_offsets,
        set_aside=SetAside(reason, now_ms, 1, now_ms, begins_again=True),
        incomplete=reason,
        trimmed={} if changes in replaced else dict(record.trimmed or {}),
        known_from={},
        anew=record.anew or changes in replaced,
    )


def cut_short(record: TableRecord, topics: tuple[str, str], ends: Offsets) -> str | None:
    """Why a table cannot be read on: a topic of it ends before what was read of it, or there is none in sight."""
    for topic, known in zip(topics, (record.change_offsets, record.snapshot_offsets), strict=True):
        for partition, start in known.items():
            if ends.get(topic, {}).get(partition, 0) < start:
                return (
                    f"topic {topic} partition {partition} was read up to {start} and ends before that: it was deleted, or is out "
                    "of sight of this Kafka user. The table is read on when it is back; if it was deleted, let the producer create "
                    "it again and snapshot this table"
                )
    return None


def half_written(record: TableRecord, batch_id: int) -> TableRecord:
    """The record of a table to which the batch that failed has written: which keys it has is no longer known for certain."""
    return replace(record, last_commit=batch_id, key_range=None, range_of=UNKNOWN_RANGE)


def unread(record: TableRecord, topics: tuple[str, str], ends: Offsets) -> Iterator[Slice]:
    """What of a table's change topic and snapshot topic is not merged up to the ends of a batch."""
    for topic, known in zip(topics, (record.change_offsets, record.snapshot_offsets), strict=True):
        for partition, end in ends.get(topic, {}).items():
            start = known.get(partition, EARLIEST)
            if end > 0 and start < end:
                yield Slice(topic, partition, start, end)
