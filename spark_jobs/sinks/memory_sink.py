"""A sink in memory: the twin of the real ones for tests, and the contract at its shortest. It needs neither Delta nor files.

`MemoryStorage` is what is durable; a `MemorySink` is one opening of it, as after a start. Each step is atomic alone, as in Delta.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from schemas.merge_rule import NOTHING, DueSweep
from schemas.overriding import override
from spark_jobs.decode.record_columns import CHANGE, DELETED, POSITION, SOURCE
from spark_jobs.formats.event_columns import DETAIL
from spark_jobs.sinks.changelog_events import Appended, Events, notices_of
from spark_jobs.sinks.contract import (
    REMEDY,
    ChangelogTarget,
    ChangelogWriter,
    Columns,
    Evolution,
    MirrorTarget,
    MirrorWriter,
    Quarantine,
    QuarantineStep,
    Sink,
    SinkTarget,
    StateStore,
    Winners,
    of_tables,
)
from spark_jobs.sinks.own_target import OwnTarget, newest_own_commit
from spark_jobs.sinks.sql_values import parsed
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape
from spark_jobs.sinks.worker_writes import LoadedRows, PutShape, WorkerLoad, WorkerLoads

_INTEGER_BITS: Final = ((T.ByteType, 8), (T.ShortType, 16), (T.IntegerType, 32), (T.LongType, 64))
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MemoryCommit:
    """One step that took effect: its stamp (None: of somebody else), its name, and whether it replaced the whole table."""

    stamp: Stamp | None
    step: str
    replaces: bool = False


@dataclass(slots=True)
class StoredTable:
    """One table: its columns, its rows by key, the commits that made it. Each row has its position.

    A changelog has `events` instead of rows, each with its source table, and how far each table is `appended`.
    """

    columns: Columns = ()
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    commits: list[MemoryCommit] = field(default_factory=list)
    events: list[Row] = field(default_factory=list)
    appended: dict[str, Appended] = field(default_factory=dict)

    def has(self, stamp: Stamp, step: str) -> bool:
        """Return whether a step of this batch, or of this redrive, took effect."""
        ours = [one.stamp for one in self.commits if one.stamp is not None and one.step == step]
        stamps = [one for one in ours if one.table == stamp.table]
        writer = (stamp.query_id, stamp.redrive)
        return any((one.query_id, one.redrive) == writer and one.batch_id >= stamp.batch_id for one in stamps)


@dataclass(slots=True)
class MemoryStorage:
    """What is durable: tables, states, quarantined records with the writes that brought them, and who writes."""

    tables: dict[Target, StoredTable] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    quarantined: list[Row] = field(default_factory=list)
    quarantine_writes: list[tuple[str, str, str, int]] = field(default_factory=list)
    writer: Lock = field(default_factory=Lock)


class MemorySink(Sink):
    """One opening of a storage. `query_id` returns the id of the streaming query; it has one from its first batch on."""

    def __init__(self, storage: MemoryStorage, query_id: Callable[[], str]) -> None:
        self._storage = storage
        self._query_id = query_id
        self._quarantine = MemoryQuarantine(storage)

    @override
    @contextmanager
    def exclusive(self, spark: SparkSession, wait_s: int) -> Iterator[None]:
        if not self._storage.writer.acquire(timeout=wait_s):
            message = "another merge job writes to this sink; stop it first"
            raise SinkError(message)
        try:
            yield
        finally:
            self._storage.writer.release()

    @override
    def states(self) -> StateStore:
        return MemoryStates(self._storage.states)

    @override
    def quarantine(self) -> Quarantine:
        return self._quarantine

    @override
    def target(
        self, spark: SparkSession, name: Target, tables: Sequence[SourceTable], shape: TargetShape = PLAIN_SHAPE
    ) -> SinkTarget:
        return MemoryTarget(self._storage, name, tuple(tables), self._query_id(), shape.soft_delete)

    @override
    def remove(self, name: Target) -> None:
        self._storage.tables.pop(name, None)

    @override
    def forget(self, name: Target) -> None:
        """Do nothing: nothing is remembered besides the storage."""

    @override
    def passing(self, error: Exception) -> str | None:
        return None


class MemoryStates(StateStore):
    """States as texts by batch."""

    def __init__(self, states: dict[int, str]) -> None:
        self._states = states

    @override
    def newest(self) -> int:
        return max(self._states, default=-1)

    @override
    def load(self, batch_id: int) -> str:
        try:
            return self._states[batch_id]
        except KeyError:
            raise FileNotFoundError(self.location(batch_id)) from None

    @override
    def save(self, batch_id: int, text: str) -> None:
        self._states[batch_id] = text

    @override
    def location(self, batch_id: int) -> str:
        return f"the state of batch {batch_id} in memory"


class MemoryQuarantine(Quarantine):
    """Quarantined records as a list."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage
        self._lock = Lock()

    @override
    def append(self, rows: DataFrame, stamp: Stamp, step: QuarantineStep) -> None:
        with self._lock:
            write = (stamp.query_id, stamp.table, step, stamp.batch_id)
            if write not in self._storage.quarantine_writes:
                self._storage.quarantined += [row.asDict() for row in rows.collect()]
                self._storage.quarantine_writes.append(write)

    @override
    def records(self, spark: SparkSession) -> DataFrame | None:
        return spark.createDataFrame(self._storage.quarantined) if self._storage.quarantine_writes else None

    @override
    def remove(self, coordinates: DataFrame) -> int:
        gone = {(row["topic"], row["partition"], row["offset"]) for row in coordinates.collect()}
        kept = [row for row in self._storage.quarantined if (row["topic"], row["partition"], row["offset"]) not in gone]
        removed = len(self._storage.quarantined) - len(kept)
        self._storage.quarantined[:] = kept
        return removed

    @override
    def has_commit(self, query_id: str, batch_id: int) -> bool:
        writes = self._storage.quarantine_writes
        return bool(writes) and (writes[-1][0], writes[-1][3]) == (query_id, batch_id)


class MemoryTarget(OwnTarget, MirrorTarget, ChangelogTarget, WorkerLoads):
    """A table of a storage."""

    def __init__(
        self, storage: MemoryStorage, name: Target, tables: tuple[SourceTable, ...], query_id: str, soft_delete: str | None
    ) -> None:
        super().__init__(name, tables, query_id)
        self._storage = storage
        self._soft_delete = soft_delete

    @override
    def location(self) -> str:
        return self._name.text

    @override
    def exists(self) -> bool:
        return self._name in self._storage.tables

    @override
    def columns(self) -> Columns | None:
        return self._storage.tables[self._name].columns if self.exists() else None

    @override
    def fitting(self, columns: Columns) -> Columns:
        table = self.table()
        types = dict(table.columns)

        def fits(name: str, kind: T.DataType) -> bool:
            values = [row[name] for row in table.rows.values() if row[name] is not None]
            return all(_converted(_converted(value, kind), types[name]) == value for value in values)

        return [(name, kind) for name, kind in columns if fits(name, kind)]

    @override
    def trust_again(self, batch_id: int) -> None:
        def stamped() -> Iterator[tuple[MemoryCommit, Mapping[str, Any] | None]]:
            for commit in reversed(self.table().commits):
                if commit.replaces:
                    raise SinkError(f"{commit.step} replaced the table {self.location()}: {REMEDY}")
                yield commit, None if commit.stamp is None else json.loads(commit.stamp.metadata)

        newest_own_commit(self.location(), stamped(), (self.query_id, self._record.last_commit, batch_id), lambda: False)

    @override
    def has_commit(self, batch_id: int) -> bool:
        commits = self._storage.tables.get(self._name, StoredTable()).commits
        if any(one.replaces for one in commits):
            return False
        stamps = [one.stamp for one in commits if one.stamp is not None and not one.stamp.redrive]
        return (self.query_id, batch_id) in {(stamp.query_id, stamp.batch_id) for stamp in stamps}

    @override
    def evolve(self, change: Evolution, stamp: Stamp) -> None:
        self.trust_again(stamp.batch_id)
        table = self.table()
        missing = change.missing_in(table.columns)
        if table.has(stamp, "fill"):
            missing = replace(missing, filled=())
        if not missing:
            return
        rows: dict[tuple[Any, ...], Row] = {}
        for key, row in table.rows.items():
            changed = _evolved(row, missing)
            is_shared_now = SOURCE in changed and SOURCE not in row
            rows[(changed[SOURCE], *key) if is_shared_now else key] = changed
        table.columns = missing.applied_to(table.columns)
        table.rows = rows
        table.commits.append(MemoryCommit(stamp, "fill" if missing.filled else "evolve"))

    @override
    @contextmanager
    def commit(self, stamp: Stamp) -> Iterator[MemoryWriter]:
        writer = MemoryWriter(self, self.tables, stamp, self._soft_delete)
        yield writer
        writer.publish()

    @override
    def appended(self, table: SourceTable) -> Appended:
        return self.table().appended.get(table.text, Appended())

    @override
    def worker_load(self, shape: PutShape, stamp: Stamp, lane: int) -> WorkerLoad | None:
        return MemoryLoad(self, shape, stamp, f"load {lane}")

    @override
    def compact(self, stamp: Stamp) -> None:
        self.table().commits.append(MemoryCommit(stamp, "compact"))

    def table(self) -> StoredTable:
        """Return the stored table, which exists."""
        return self._storage.tables[self._name]

    def made_table(self, columns: Columns) -> StoredTable:
        """Return the stored table; make it if it does not exist."""
        return self._storage.tables.setdefault(self._name, StoredTable(columns))


class MemoryWriter(MirrorWriter, ChangelogWriter):
    """The steps of a batch in a stored table."""

    def __init__(self, target: MemoryTarget, fed_by: tuple[SourceTable, ...], stamp: Stamp, soft_delete: str | None) -> None:
        self._soft_delete = soft_delete
        self._target = target
        self._fed_by = fed_by
        self._stamp = stamp
        self._events: list[Row] = []
        self._appended: dict[str, Appended] = {}

    @override
    def append(self, events: Events) -> None:
        of_tables({events.table: events}, self._fed_by)
        source = events.table.text
        made = [{CHANGE: op, POSITION: position, DETAIL: text, SOURCE: source} for op, position, text in notices_of(events)]
        rows = [{**row.asDict(), SOURCE: source} for row in events.rows.collect()]
        self._events += sorted([*made, *rows], key=itemgetter(POSITION)) if made else rows
        self._appended[source] = events.until

    def publish(self) -> None:
        """Have what was appended count, as one step."""
        if self._appended:
            table = self._target.made_table(())
            table.events = [*table.events, *self._events]
            table.appended = {**table.appended, **self._appended}
            table.commits.append(MemoryCommit(self._stamp, "append"))

    @override
    def restamp(self, stamp: Stamp) -> None:
        self._stamp = stamp

    @override
    def put(self, winners: Winners) -> None:
        found: Iterable[Row] = [row.asDict() for row in winners.rows.collect()]
        table = self._target.made_table(winners.columns)
        if table.has(self._stamp, "put"):
            return
        rows = dict(table.rows)
        for row in found:
            key = tuple(row[name] for name in winners.keys)
            current = rows.get(key)
            if current is not None and row[POSITION] <= current[POSITION]:
                continue
            if row[DELETED]:
                rows.pop(key, None)
            else:
                rows[key] = {name: row[name] for name in (*winners.names, POSITION)}
        table.rows = rows
        table.commits.append(MemoryCommit(self._stamp, "put"))

    @override
    def delete_between(self, spans: Mapping[SourceTable, tuple[str, str]]) -> None:
        found: dict[SourceTable, tuple[str, str]] = of_tables(spans, self._fed_by)

        def stays(row: Row) -> bool:
            first, below = found.get(self._source_of(row), (NOTHING, NOTHING))
            return not first <= row[POSITION] < below

        if found:
            self._keep("floor", stays)

    @override
    def sweep(self, due: Mapping[SourceTable, Sequence[DueSweep]]) -> None:
        sweeps: dict[SourceTable, Sequence[DueSweep]] = of_tables(due, self._fed_by)
        types = {name.lower(): (name, kind) for name, kind in self._target.table().columns}

        def is_swept(row: Row, one: DueSweep) -> bool:
            columns = [types[name.lower()] for name in one.sweep.columns]
            values = tuple(row[name] for name, _ in columns)
            kinds = [kind for _, kind in columns]
            taken = (tuple(map(parsed, texts, kinds)) for texts in one.sweep.values)
            return one.above <= row[POSITION] < one.below and None not in values and values in taken

        if sweeps:
            self._keep("sweep", lambda row: not any(is_swept(row, one) for one in sweeps.get(self._source_of(row), ())))

    def _source_of(self, row: Row) -> SourceTable:
        return SourceTable.parse(row[SOURCE]) if len(self._fed_by) > 1 else self._fed_by[0]

    def _keep(self, step: str, stays: Any) -> None:
        """Keep the rows that stay, once per batch and step; with `soft_delete` mark the others."""
        self._target.trust_again(self._stamp.batch_id)
        table, mark = self._target.table(), self._soft_delete
        if not table.has(self._stamp, step):
            marked = {key: row if stays(row) or mark is None else {**row, mark: True} for key, row in table.rows.items()}
            table.rows = {key: row for key, row in marked.items() if mark is not None or stays(row)}
            table.commits.append(MemoryCommit(self._stamp, step))


class MemoryLoad(WorkerLoad):
    """A load into a stored table, in the process that has the storage."""

    def __init__(self, target: MemoryTarget, shape: PutShape, stamp: Stamp, step: str) -> None:
        self._table = target.made_table(shape.columns)
        self._shape = shape
        self._stamp = stamp
        self._step = step
        self._older: list[Row] = []

    @override
    def run(self, blocks: Iterator[pa.Table], version: str, kept: Path) -> LoadedRows:
        found = [row for block in blocks for row in block.to_pylist()]
        column = self._shape.range_column
        spanned: Iterable[Row] = [*found, *self._table.rows.values()] if self.has_written() else found
        values = [row[column] for row in spanned] if column is not None else []
        current = self._table.rows
        names = (*(name for name, _ in self._shape.columns), POSITION)
        keyed = {tuple(row[name] for name in self._shape.keys): {name: row[name] for name in names} for row in found}
        self._older = [row for key, row in keyed.items() if key in current and current[key][POSITION] < version]
        if not self.has_written():
            self._table.rows = keyed | current
            self._table.commits.append(MemoryCommit(self._stamp, self._step))
        return LoadedRows(len(found), (min(values), max(values)) if values else None, older=len(self._older), has_added=True)

    @override
    def replace_older(self, kept: Path) -> int:
        rows = {tuple(row[name] for name in self._shape.keys): row for row in self._older}
        self._table.rows = self._table.rows | rows
        self._table.commits.append(MemoryCommit(self._stamp, f"{self._step} over"))
        return len(rows)

    @override
    def require_arrived(self, done: LoadedRows) -> None:
        if done.has_added and not self.has_written():
            raise SinkError(f"a load has put {done.rows} rows, and the table has no commit of it")

    @override
    def has_written(self) -> bool:
        return self._table.has(self._stamp, self._step)


def _evolved(row: Row, change: Evolution) -> Row:
    """Return a row after a change of the columns."""
    retyped = dict(change.retyped)
    found = {name: _converted(value, retyped[name]) if name in retyped else value for name, value in row.items()}
    found |= {name: value for name, _, value in change.added}
    found |= {name: value for name, source, value in change.filled if found[SOURCE] == source}
    return {name: value for name, value in found.items() if name not in change.dropped}


def _converted(value: Any, kind: T.DataType) -> Any:
    """Return a value as a column of another type has it; None for one that the type does not have."""
    if value is None:
        return None
    if isinstance(kind, T.StringType):
        return str(value)
    for integer, bits in _INTEGER_BITS:
        if isinstance(kind, integer):
            return int(value) if -(1 << bits - 1) <= int(value) < 1 << bits - 1 else None
    return value
