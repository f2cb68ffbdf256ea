"""What the merge asks of a sink, and what it promises. The docstring of each method is its specification.

A batch writes to a target in steps. A crash before or after any of them repeats the batch with the same rows and the same record of
the target, so every step must take effect once however often it is run.

    mirror       trust → evolve → commit: put, delete_between, sweep → compact → state
    changelog    trust → commit: append → state

The interfaces of a sink and its targets say what it can do: `MirrorTarget`, `ChangelogTarget`, `OldFilesSink`, and those of writes
by workers (`worker_writes.py`). `tests/sinks/behaviour.py` and its neighbours test every implementation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from schemas.json_codec import json_field
from schemas.merge_rule import DueSweep
from spark_jobs.sinks.changelog_events import Appended, Events
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape

Columns = Sequence[tuple[str, T.DataType]]
KeyRange = tuple[int, int]
QuarantineStep = Literal["quarantine", "markers", "images", "changes"]

REMEDY: Final = (
    "the sink and its checkpoint no longer fit together. Move the sink's folder away (or give another "
    "one: sinks.path, of a database sinks.work), start the merge job, and snapshot the tables again"
)


class CompactionError(SinkError):
    """A compaction that failed: the rows are as they were, and a later batch compacts."""


class FencedSinkError(SinkError):
    """Another job has opened the sink since: nothing that this one writes takes effect any more, whatever the table."""


@dataclass(frozen=True, slots=True)
class FedBy:
    """What a source table has in a target: the columns of its key there, and all columns that it ever had there."""

    keys: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """What is remembered of one target from batch to batch.

    `last_commit` is the last batch that wrote to it (-1: none). `key_range` spans all values that the first key column, if it is
    an integer, ever had, while the key was `range_of`; None where that is not known. `writes` counts the batches that wrote since
    the target was last compacted. `fed_by` are the source tables that ever went into it, by their texts, where routes are given.
    """

    last_commit: int = json_field(-1, required=True)
    key_range: KeyRange | None = json_field(None, required=True)
    range_of: tuple[str, ...] = ()
    writes: int = 0
    fed_by: Mapping[str, FedBy] = json_field(factory=dict, omits_default=True)


@dataclass(frozen=True, slots=True)
class Evolution:
    """A change of a target's columns: those added, with the value that its rows get, and those that get another type.

    `filled` are values that the rows of one source table get (by `SOURCE`, in a target that several go into), in a column that is
    added or was there: column, text of the source table, value. `dropped` are columns that go, with their values: never one of the
    key.
    """

    added: tuple[tuple[str, T.DataType, Any], ...]
    retyped: tuple[tuple[str, T.DataType], ...]
    filled: tuple[tuple[str, str, Any], ...] = ()
    dropped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.retyped or self.filled or self.dropped)

    @property
    def touches_rows(self) -> bool:
        """Whether rows change, and not only the list of columns."""
        return bool(self.retyped or self.filled or self.dropped) or any(value is not None for _, _, value in self.added)

    def missing_in(self, columns: Columns) -> Evolution:
        """Return what of the change these columns do not have yet; whether rows were `filled` is not seen there."""
        have = dict(columns)
        added = tuple(item for item in self.added if item[0] not in have)
        retyped = tuple((name, kind) for name, kind in self.retyped if have.get(name) != kind)
        dropped = tuple(name for name in self.dropped if name in have)
        return Evolution(added, retyped, self.filled, dropped)

    def applied_to(self, columns: Columns) -> tuple[tuple[str, T.DataType], ...]:
        """Return the columns after the change."""
        retyped = dict(self.retyped)
        kept = [(name, retyped.get(name, kind)) for name, kind in columns if name not in self.dropped]
        return (*kept, *((name, kind) for name, kind, _ in self.added))


@dataclass(frozen=True, slots=True)
class Winners:
    """The newest row of each key of a batch.

    `rows` has the `columns` of the target, `DELETED` and `POSITION`. For a target that exists it is computed already, and gives
    the same rows each time. For one that does not it is computed when it is read. `batch_range` and `target_range` span the values
    of `range_column`, the first key column, in the batch and in the target, where they are known: a hint to skip rows by.
    """

    rows: DataFrame
    keys: tuple[str, ...]
    columns: Columns
    range_column: str | None = None
    batch_range: KeyRange | None = None
    target_range: KeyRange | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(name for name, _ in self.columns)

    @property
    def are_all_new(self) -> bool:
        """Whether every key of the batch is above all keys that the target ever had."""
        return self.batch_range is not None and self.target_range is not None and self.batch_range[0] > self.target_range[1]


class StateStore(ABC):
    """The states of the last batches, each a text. Durable with the rows where the sink is transactional, else beside them."""

    @abstractmethod
    def newest(self) -> int:
        """Return the newest batch that a state was saved of; -1 for none."""

    @abstractmethod
    def load(self, batch_id: int) -> str:
        """Return the state after a batch; `OSError` if it is not there or cannot be read."""

    @abstractmethod
    def save(self, batch_id: int, text: str) -> None:
        """Replace the state after a batch: a crash leaves all of the old text or all of the new one.

        States that no repeated batch can ask for may be removed; at least those of the last 20 batches stay.
        """

    @abstractmethod
    def location(self, batch_id: int) -> str:
        """Return where the state after a batch is, for messages."""


class Quarantine(ABC):
    """The records that could not be merged, of all source tables of a sink. Safe for several threads with sessions of their own."""

    @abstractmethod
    def append(self, rows: DataFrame, stamp: Stamp, step: QuarantineStep) -> None:
        """Keep these records: once per batch, table and step, however often it is called.

        `rows` has the columns of `merge.quarantined.COLUMNS`; a sink that has fewer of them gets the others.
        """

    @abstractmethod
    def records(self, spark: SparkSession) -> DataFrame | None:
        """Return all records that are kept; None if there never was one."""

    @abstractmethod
    def remove(self, coordinates: DataFrame) -> int:
        """Remove the records with these coordinates (topic, partition, offset), and return how many records those were."""

    @abstractmethod
    def has_commit(self, query_id: str, batch_id: int) -> bool:
        """Return whether the newest write is of this batch of this query."""


class MirrorWriter(ABC):
    """The steps of one batch in one mirror, in the order in which they are called."""

    @abstractmethod
    def restamp(self, stamp: Stamp) -> None:
        """Give the steps that follow a stamp with more progress, of the same query and batch."""

    @abstractmethod
    def put(self, winners: Winners) -> None:
        """Make the rows of the target those of `winners`, key by key.

        A row of a newer position updates, inserts or deletes; any other does nothing. A delete of a key without a row leaves
        nothing. A target that does not exist is made, with the columns of `winners`, also for no rows at all.
        """

    @abstractmethod
    def delete_between(self, spans: Mapping[SourceTable, tuple[str, str]]) -> None:
        """Delete the rows of each source table from the first position of its span on, and below the second.

        The first may be `NOTHING`, which is below every position.
        """

    @abstractmethod
    def sweep(self, due: Mapping[SourceTable, Sequence[DueSweep]]) -> None:
        """Delete the rows of each source table that a sweep takes: those with one of its values, and a position below its bound.

        Rows below `DueSweep.above` stay. Values are texts; one that the column's type cannot have takes no row. Columns are found
        whatever the case of their names.
        """


class ChangelogWriter(ABC):
    """The step of one batch in one changelog."""

    @abstractmethod
    def append(self, events: Events) -> None:
        """Append the events of a source table to a changelog; at most once in a commit for each table.

        Events of all tables of a commit become visible at its end, together with how far they reach (`ChangelogTarget.appended`),
        or none of them ever does. A target that does not exist is made, also for no events at all.
        """


class SinkTarget(ABC):
    """A table of a sink, in one batch: a `MirrorTarget` or a `ChangelogTarget`. Used by one thread."""

    @property
    @abstractmethod
    def name(self) -> Target:
        """The name."""

    @abstractmethod
    def location(self) -> str:
        """Return where it is, for messages."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether it is there now. A first write that was cut off leaves none, or an empty one that `trust` accepts."""

    @abstractmethod
    def require_not_gone(self, record: TargetRecord) -> None:
        """Raise `SinkError` if it was written to and does not exist."""

    @abstractmethod
    def trust(self, record: TargetRecord, batch_id: int) -> None:
        """Raise `SinkError` unless it is as this query left it in the batch of the record, or in an attempt at this batch.

        Refused are a target of another query, one that was put back to an earlier state or forward to a later one, replaced, or
        made by no merge job. What others do without replacing it (a compaction, a property) is accepted. Asked before the first
        step of a batch in a target that exists. Later steps of the batch refuse what happened since.
        """

    @abstractmethod
    def has_commit(self, batch_id: int) -> bool:
        """Return whether a step of this batch, made by any attempt, is in it.

        A step that changes nothing may leave no trace, and a target that somebody replaced has none. A write between two batches
        (`Stamp.redrive`) is none of a batch.
        """


class MirrorTarget(SinkTarget):
    """A table that has the rows of its source tables."""

    @abstractmethod
    def columns(self) -> Columns | None:
        """Return the columns of the source in it, without the sink's own; None where it does not exist.

        They may be remembered from the last step: a batch of this query alone changes them.
        """

    @abstractmethod
    def fitting(self, columns: Columns) -> Columns:
        """Return those of these columns whose type has every value of the target's column, and gives back the very same."""

    @abstractmethod
    def evolve(self, change: Evolution, stamp: Stamp) -> None:
        """Change the columns. Repeated after a crash it finds them as they should be, and fills no rows again.

        No reader ever sees a row under a new column without the value that the change gives it, or some columns of a change
        without the others.
        """

    @abstractmethod
    def commit(self, stamp: Stamp) -> AbstractContextManager[MirrorWriter]:
        """Write one batch. Each step takes effect once however often it is run, and is durable with its stamp.

        Delta makes each step one commit: a crash leaves the steps before it. A sink with transactions makes all of them one, at
        the end of the context. Nothing is promised over two targets. An error in the context may leave any number of whole steps.
        """

    @abstractmethod
    def compact(self, stamp: Stamp) -> None:
        """Make many small pieces few large ones; the rows stay what they are. `CompactionError` if that fails.

        An error of which `Sink.passing` knows the reason is raised as it is.
        """


class ChangelogTarget(SinkTarget):
    """A table, or a topic, that has the changes of its source tables: it is appended to, and never changed."""

    @abstractmethod
    def appended(self, table: SourceTable) -> Appended:
        """Return how far a source table was appended by what is committed, by any attempt at any batch of this query."""

    @abstractmethod
    def commit(self, stamp: Stamp) -> AbstractContextManager[ChangelogWriter]:
        """Append what one batch has, all of it or nothing, with its stamp."""


class Sink(ABC):
    """A configured sink. Opened once per run of its query; called on the driver, `target` by any thread."""

    @abstractmethod
    def exclusive(self, spark: SparkSession, wait_s: int) -> AbstractContextManager[None]:
        """Be the only writer while the context is open; `SinkError` if another still is after `wait_s` seconds.

        What a former writer has not committed when the context opens it never will.
        """

    @abstractmethod
    def states(self) -> StateStore:
        """Return the states of the last batches."""

    @abstractmethod
    def quarantine(self) -> Quarantine:
        """Return the quarantine."""

    @abstractmethod
    def target(
        self, spark: SparkSession, name: Target, tables: Sequence[SourceTable], shape: TargetShape = PLAIN_SHAPE
    ) -> SinkTarget:
        """Return a target, on a session that no other thread uses. `tables` are the source tables that go into it.

        With more than one it has the column `SOURCE`, which says from which of them a row is, and which is part of its key.
        """

    @abstractmethod
    def remove(self, name: Target) -> None:
        """Remove a target with its rows, while no batch runs. One that does not exist is no error."""

    @abstractmethod
    def forget(self, name: Target) -> None:
        """Take nothing of a target for granted any longer: a step of it failed."""

    @abstractmethod
    def passing(self, error: Exception) -> str | None:
        """Return why another attempt at the same step helps (a conflict, a lost executor); None if it does not."""


class OldFilesSink(Sink):
    """A sink whose targets have files that only older versions of them need."""

    @abstractmethod
    def remove_old_files(self, spark: SparkSession, name: Target) -> bool:
        """Remove the files of a target that only older versions of it need, by the retention of the target.

        Called beside batches of the same target, and broken off by the end of the process: rows, and what is being written, stay.
        Returns False, and leaves all files, where the target does not exist or was last written by somebody else.
        """


def of_tables(values: Mapping[SourceTable, Any], fed_by: Sequence[SourceTable]) -> dict[SourceTable, Any]:
    """Return what there is of these values; `SinkError` for floors or sweeps of a table that does not go into a target."""
    others = [table.text for table in values if table not in fed_by]
    if others:
        message = f"a target of {', '.join(table.text for table in fed_by)} has no rows of {', '.join(others)}"
        raise SinkError(message)
    return {table: value for table, value in values.items() if value}
