"""One Iceberg table as a target of a batch: it is trusted, evolved, written to and compacted, each step a snapshot of its own.

A step that has taken effect is known by the stamp of its snapshot, and skipped when the batch is run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from schemas.merge_rule import DueSweep
from schemas.overriding import override
from spark_jobs.decode.record_columns import POSITION
from spark_jobs.decode.spark_types import quoted
from spark_jobs.sinks.contract import (
    Columns,
    CompactionError,
    Evolution,
    MirrorTarget,
    MirrorWriter,
    Winners,
    of_tables,
)
from spark_jobs.sinks.iceberg import iceberg_writes as writes
from spark_jobs.sinks.iceberg import java_tables
from spark_jobs.sinks.iceberg.snapshot_log import (
    COMPACT,
    REPLACES,
    STAMP,
    STEP,
    IcebergMetadata,
    SeenTable,
    Snapshot,
    has_commit_of,
    is_forgotten,
    newest_stamp,
    read_metadata,
    require_nothing_put_back,
    require_own_table,
    table_exists,
)
from spark_jobs.sinks.own_target import OwnTarget
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.table_rows import evolved_rows, key_pruning, lossless_columns, sweep_statements
from spark_jobs.sinks.target_shape import TargetShape
from spark_jobs.spark_errors import is_lost_executor, lost_class

METADATA_COLUMNS: Final = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
"""Names of Iceberg's metadata columns: it makes a table with such a column, and cannot merge into it."""

COMPACTION: Final[Mapping[str, str]] = {"delete-ratio-threshold": "0.2", "max-concurrent-file-group-rewrites": "1"}


@dataclass(slots=True)
class KnownIceberg:
    """What is known of a table until a step of it fails: the source's columns, and what it was after our last step."""

    columns: Columns | None = None
    seen: SeenTable | None = None


@dataclass(frozen=True, slots=True)
class TableAddress:
    """Where a table is: its folder, and its name in Spark, quoted."""

    path: Path
    sql: str


class IcebergTarget(OwnTarget, MirrorTarget):
    """An Iceberg table. `known` is shared by the batches of one run."""

    def __init__(
        self,
        spark: SparkSession,
        address: TableAddress,
        name: Target,
        tables: Sequence[SourceTable],
        query_id: str,
        known: KnownIceberg,
        shape: TargetShape,
    ) -> None:
        super().__init__(name, tables, query_id)
        self.spark = spark
        self.address = address
        self.shape = shape
        self._known = known

    @override
    def location(self) -> str:
        return str(self.address.path)

    @override
    def exists(self) -> bool:
        return table_exists(self.address.path)

    @override
    def columns(self) -> Columns | None:
        if not self.exists():
            return None
        if self._known.columns is None:
            found = java_tables.table_columns(self.spark, self.address.path)
            self._known.columns = [(name, kind) for name, kind in found if name != POSITION]
        return self._known.columns

    @override
    def fitting(self, columns: Columns) -> Columns:
        have = dict(self.columns() or ())
        others = [(name, kind) for name, kind in columns if java_tables.stored_type(kind) != have.get(name)]
        return lossless_columns(self.spark.table(self.address.sql), others) if others else []

    @override
    def trust_again(self, batch_id: int) -> None:
        metadata, last_commit = self.metadata(), self._record.last_commit
        if self._known.seen is not None:
            require_nothing_put_back(self.address.path, metadata, self._known.seen)
        require_own_table(self.address.path, metadata, self.query_id, last_commit, batch_id)
        if self._known.seen is None:
            # of an attempt before, whose steps are skipped, and of a batch that failed after it had written
            batches = (batch_id, last_commit)
            self._require_files(one for one in metadata.lineage() if any(one.is_of(self.query_id, batch) for batch in batches))
        self._note(metadata)

    @override
    def has_commit(self, batch_id: int) -> bool:
        metadata = read_metadata(self.address.path)
        return metadata is not None and has_commit_of(metadata, self.query_id, batch_id)

    @override
    def evolve(self, change: Evolution, stamp: Stamp) -> None:
        self.trust_again(stamp.batch_id)
        columns = self.columns() or ()
        metadata, stored = self.metadata(), [(name, java_tables.stored_type(kind)) for name, kind in change.retyped]
        missing = replace(change, retyped=tuple(stored)).missing_in(columns)
        if missing.filled and metadata.has_step(stamp, writes.FILL):
            missing = replace(missing, filled=())
        if missing.filled and not missing.added and is_forgotten(metadata, self.query_id):
            filled = ", ".join(sorted({name for name, _, _ in missing.filled}))
            message = (
                f"all snapshots of this job in {self.address.path} were expired before batch {stamp.batch_id} was repeated: it is "
                f"not known whether {filled} was filled, or has newer values. Have the target made again: tidemark rebuild"
            )
            raise SinkError(message)
        if not missing:
            return
        self.require_names(name for name, _, _ in missing.added)
        summary = writes.summary_of(stamp, writes.FILL if missing.filled else writes.COLUMNS)
        divided = [name for name in self.shape.partition_by if name not in missing.dropped]
        if java_tables.needs_rewrite(columns, missing) or len(divided) < len(self.shape.partition_by):
            rows = evolved_rows(self.spark.table(self.address.sql), missing)
            names = [name for name in rows.columns if name != POSITION]
            ordered = rows.select(*map(quoted, (*names, POSITION)))
            continued = {**summary, REPLACES: str(metadata.current)}
            writes.replace(ordered, self.address.sql, continued, divided)
        else:
            java_tables.evolve(self.spark, self.address.path, missing, summary)
        self.wrote(is_changed=True)

    @override
    @contextmanager
    def commit(self, stamp: Stamp) -> Iterator[MirrorWriter]:
        yield IcebergWriter(self, stamp)

    @override
    def compact(self, stamp: Stamp) -> None:
        path = self.address.path
        try:
            carried = {STAMP: newest_stamp(self.metadata()) or stamp.metadata, STEP: COMPACT}
            java_tables.compact(self.spark, path, carried, COMPACTION)
            self.wrote()
            current = self.metadata()
            if current.current is not None and current.snapshots[current.current].stamp is None:
                java_tables.stamp_without_files(self.spark, path, carried)  # else the snapshots of others could outlive ours
            java_tables.expire_snapshots(self.spark, path)
            self.wrote()
        except (PySparkException, Py4JError) as error:
            if writes.is_conflict(error) or is_lost_executor(error) or lost_class(error):
                raise
            raise CompactionError(str(error).partition("\n")[0]) from error

    def metadata(self) -> IcebergMetadata:
        """Return the newest metadata; `SinkError` if the table is gone."""
        found = read_metadata(self.address.path)
        if found is None:
            message = f"the table {self.address.path} was removed while a batch was written to it"
            raise SinkError(message)
        return found

    def wrote(self, *, is_changed: bool = False) -> None:
        """Note that a step may have made a snapshot, and whether it changed the columns. `SinkError` if files of it are missing."""
        metadata, seen = self.metadata(), self._known.seen
        since = -1 if seen is None or seen.uuid != metadata.uuid else seen.sequence
        self._note(metadata)
        if is_changed:
            self._known.columns = None
        self._require_files(one for one in metadata.snapshots.values() if one.sequence > since)

    def _require_files(self, snapshots: Iterable[Snapshot]) -> None:
        """Raise `SinkError` unless the files that snapshots add are there."""
        found = [one.id for one in snapshots if one.adds_files]
        if found:
            java_tables.require_files(self.spark, self.address.path, found)

    def require_names(self, names: Iterable[str]) -> None:
        """Raise `SinkError` for columns whose names Iceberg has for something else."""
        refused = sorted(name for name in names if name.lower() in METADATA_COLUMNS)
        if refused:
            message = (
                f"{self._name.name} cannot be an Iceberg table: Iceberg reserves the name of its column {', '.join(refused)}. "
                f"Rename it at the source, or give it another name by a transform of this sink (select: '{refused[0]} AS other')"
            )
            raise SinkError(message)

    def _note(self, metadata: IcebergMetadata) -> None:
        self._known.seen = SeenTable(metadata.uuid, metadata.current, metadata.last_sequence)


class IcebergWriter(MirrorWriter):
    """The steps of a batch in an Iceberg table: each is one snapshot, and skipped if the batch made it before."""

    def __init__(self, target: IcebergTarget, stamp: Stamp) -> None:
        self._target = target
        self._spark = target.spark
        self._address = target.address
        self._stamp = stamp

    @override
    def restamp(self, stamp: Stamp) -> None:
        self._stamp = stamp

    @override
    def put(self, winners: Winners) -> None:
        table, is_there = self._address.sql, self._target.exists()
        if not is_there:
            self._target.require_names(name for name, _ in winners.columns)
            writes.create(winners.rows, table, self._stamp, self._target.shape)
        elif self._is_done(writes.ROWS):
            return
        elif winners.are_all_new:
            writes.append(winners.rows, table, self._stamp)
        else:
            pruned = key_pruning(winners.range_column, winners.batch_range, winners.target_range)
            writes.merge(winners.rows, table, winners.keys, winners.columns, self._stamp, pruned)
        self._target.wrote(is_changed=not is_there)

    @override
    def delete_between(self, spans: Mapping[SourceTable, tuple[str, str]]) -> None:
        found = {self._target.source_of(table): span for table, span in of_tables(spans, self._target.tables).items()}
        if not found:
            return
        self._target.trust_again(self._stamp.batch_id)
        if self._is_done(writes.FLOOR):
            return
        mark, summary = self._target.shape.soft_delete, writes.summary_of(self._stamp, writes.FLOOR)
        if mark is not None or not java_tables.delete_whole_files(self._spark, self._address.path, found, summary):
            writes.delete_between(self._spark, self._address.sql, found, summary, mark)
        self._target.wrote()

    @override
    def sweep(self, due: Mapping[SourceTable, Sequence[DueSweep]]) -> None:
        for table, found in sorted(of_tables(due, self._target.tables).items()):
            self._target.trust_again(self._stamp.batch_id)
            types: dict[str, T.DataType] = {name.lower(): kind for name, kind in self._target.columns() or ()}
            source, mark = self._target.source_of(table), self._target.shape.soft_delete
            for step, statement in sweep_statements(self._spark, self._address.sql, found, types, source, mark):
                if not self._is_done(step):
                    with writes.stamped(self._spark, writes.summary_of(self._stamp, step)):
                        self._spark.sql(statement)
            self._target.wrote()

    def _is_done(self, step: str) -> bool:
        return self._target.metadata().has_step(self._stamp, step)
