"""One Delta table as a target of a batch: it is trusted, evolved, written to and compacted, each step a commit of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from deltalake.exceptions import DeltaError
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
from spark_jobs.sinks.delta import alter, writes
from spark_jobs.sinks.delta.arrow_limits import why_not, why_not_path
from spark_jobs.sinks.delta.arrow_load import ArrowLoad
from spark_jobs.sinks.delta.arrow_put import (
    ArrowPut,
    RangedPut,
    compact_files,
    delete_where,
    remove_expired_commits,
)
from spark_jobs.sinks.delta.commit_identity import FILL, FLOOR, LOAD, LOAD_OVER, ROWS, transaction_name
from spark_jobs.sinks.delta.commit_log import (
    has_version,
    is_commit_of,
    newest_version,
    require_files,
    require_files_of_batches,
    require_nothing_put_back,
    require_own_table,
    table_exists,
    was_written_by,
)
from spark_jobs.sinks.delta.table_schema import add_columns, create_table
from spark_jobs.sinks.delta.writer_choice import NOTHING, WriterRules, chosen_writer
from spark_jobs.sinks.own_target import OwnTarget
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.table_rows import key_pruning, sweep_statements
from spark_jobs.sinks.target_shape import TargetShape
from spark_jobs.sinks.worker_writes import PutShape, WorkerLoad, WorkerLoads, WorkerPut, WorkerPuts
from spark_jobs.spark_errors import is_lost_executor, lost_class


@dataclass(slots=True)
class KnownTable:
    """What is known of a table until a step of it fails.

    `columns` are the source's, `checked` is the version up to which all commits were looked at (-1: none), `written` the newest
    version after our last write. `fits` are columns and keys that a worker last put: it looked at the table then, and the driver
    need not, until a worker fails. `is_declined`: a worker found that the JVM's writer costs less.
    """

    columns: Columns | None = None
    fits: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    is_declined: bool = False
    checked: int = -1
    written: int = -1


@contextmanager
def _said_of(path: Path | str) -> Iterator[None]:
    """Raise an error of delta-rs as one of the table, a `SinkError`; a conflict as it is: `DeltaSink.passing` knows it."""
    try:
        yield
    except DeltaError as error:
        if writes.is_conflict(error):
            raise
        message = f"the table {path} cannot be used by delta-rs: {str(error).partition(chr(10))[0]}"
        raise SinkError(message) from error


class DeltaTarget(OwnTarget, MirrorTarget, WorkerPuts, WorkerLoads):
    """A Delta table. `known` is shared by the batches of one run."""

    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        name: Target,
        tables: Sequence[SourceTable],
        query_id: str,
        known: KnownTable,
        rules: WriterRules,
        shape: TargetShape,
    ) -> None:
        super().__init__(name, tables, query_id)
        self.rules = rules
        self.shape = shape
        self.spark = spark
        self._path = path
        self._known = known
        self._offered: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    @override
    def location(self) -> str:
        return str(self._path)

    @override
    def exists(self) -> bool:
        return table_exists(self._path)

    @override
    def columns(self) -> Columns | None:
        if not self.exists():
            return None
        if self._known.columns is None:
            found = alter.table_columns(self.spark, str(self._path)) or ()
            self._known.columns = [(name, kind) for name, kind in found if name != POSITION]
        return self._known.columns

    @override
    def fitting(self, columns: Columns) -> Columns:
        return alter.without_loss(self.spark, str(self._path), columns)

    @override
    def trust_again(self, batch_id: int) -> None:
        known, last_commit = self._known, self._record.last_commit
        if known.written >= 0 and has_version(self._path, known.written):
            version = require_nothing_put_back(self._path, self.query_id, known.checked)
        else:
            version = require_own_table(self._path, self.query_id, last_commit, batch_id)
            # of an attempt before, whose steps are skipped, and of a batch that failed after it had written
            require_files_of_batches(self._path, self.query_id, (batch_id, last_commit))
        known.checked = known.written = version

    @override
    def has_commit(self, batch_id: int) -> bool:
        known = self._known
        try:
            since = range(max(known.checked, 0), known.written + 1)
            if any(is_commit_of(self._path, version, self.query_id, batch_id) for version in since):
                return True
            return was_written_by(self._path, self.query_id, batch_id)  # others may have written since, and `trust` looked at it
        except SinkError:  # somebody replaced the table
            return False

    @override
    def evolve(self, change: Evolution, stamp: Stamp) -> None:
        self.trust_again(stamp.batch_id)
        columns = self.columns() or ()
        missing = change.missing_in(columns)
        if missing:
            added = [(name, kind) for name, kind, _ in missing.added]
            by_jvm = self.rules.forced == "jvm" or missing.touches_rows
            with _said_of(self._path):
                is_done = not by_jvm and add_columns(str(self._path), columns, added, stamp)
            if not is_done:
                stamping = writes.committing(self.spark, stamp, FILL) if missing.filled else writes.stamped(self.spark, stamp)
                with stamping:
                    alter.apply(self.spark, str(self._path), missing)
            self.wrote(missing.applied_to(columns))

    @override
    @contextmanager
    def commit(self, stamp: Stamp) -> Iterator[MirrorWriter]:
        yield DeltaWriter(self, stamp)

    @override
    def worker_put(self, shape: PutShape, stamp: Stamp) -> WorkerPut | None:
        is_new, rules = not self.exists(), self.rules
        put = self._arrow_put(shape, stamp, ROWS)
        if put is None:
            return None
        self._offered = (put.columns, put.keys)
        put = replace(put, append=is_new, choice=rules if rules.forced == "auto" else None)
        return RangedPut(put, shape.range_column, shape.target_range)

    def _arrow_put(self, shape: PutShape, stamp: Stamp, step: str, lane: int | None = None) -> ArrowPut | None:
        """Return a put of delta-rs by a worker, into a table that is made for it; None where the JVM is to write."""
        path, rules = str(self._path), self.rules
        if chosen_writer(NOTHING, NOTHING, why_not_path(path), rules) == "jvm":
            return None
        names = tuple(name for name, _ in shape.columns)
        with _said_of(self._path):
            if not self.exists():
                create_table(path, shape.columns, stamp, self.shape)
                self.wrote(shape.columns)
            if self._known.fits != (names, shape.keys) and why_not(path, names, shape.keys) is not None:
                return None
        self._known.fits = None
        app_id = transaction_name(stamp.query_id, stamp.table, step if lane is None else f"{step}/{lane}", stamp.redrive)
        bound = rules.memory_bytes // 2 if rules.forced == "auto" else None
        return ArrowPut(path, shape.keys, names, app_id, stamp.batch_id, stamp.metadata, max_spill_bytes=bound)

    @override
    def worker_load(self, shape: PutShape, stamp: Stamp, lane: int) -> WorkerLoad | None:
        put = self._arrow_put(shape, stamp, LOAD_OVER, lane)
        if put is None:
            return None
        return ArrowLoad(put, transaction_name(stamp.query_id, stamp.table, f"{LOAD}/{lane}", stamp.redrive), shape.range_column)

    @override
    def note_declined(self) -> None:
        self._known.is_declined = True

    @override
    def compact(self, stamp: Stamp) -> None:
        try:
            names = [name for name, _ in self.columns() or ()]
            if self.rules.forced == "jvm" or not compact_files(str(self._path), names, stamp):
                writes.compact(self.spark, str(self._path), stamp)
            self.wrote()
            remove_expired_commits(str(self._path))
        except (PySparkException, Py4JError, DeltaError) as error:
            if writes.is_conflict(error) or is_lost_executor(error) or lost_class(error):
                raise
            raise CompactionError(str(error).partition("\n")[0]) from error

    @override
    def note_put(self, columns: Columns) -> None:
        self.wrote(columns)
        self._known.fits, self._known.is_declined = self._offered, False

    def use_vectors(self, stamp: Stamp) -> None:
        """Have the JVM mark rows as deleted, instead of writing files again, where a worker left the table to it for its cost."""
        if self._known.is_declined and self.rules.has_vectors and writes.enable_vectors(self.spark, str(self._path), stamp):
            self.wrote()

    def wrote(self, columns: Columns | None = None) -> None:
        """Note that a step may have made commits, and which columns the table has now."""
        before, self._known.written = self._known.written, newest_version(self._path, self._known.written)
        if columns is not None:
            self._known.columns = columns
        require_files(self._path, range(before + 1, self._known.written + 1))


class DeltaWriter(MirrorWriter):
    """The steps of a batch in a Delta table: each is one commit, which Delta skips if the batch made it before."""

    def __init__(self, target: DeltaTarget, stamp: Stamp) -> None:
        self._rules = target.rules
        self._shape = target.shape
        self._target = target
        self._spark = target.spark
        self._path = target.location()
        self._stamp = stamp

    @override
    def restamp(self, stamp: Stamp) -> None:
        self._stamp = stamp

    @override
    def put(self, winners: Winners) -> None:
        if self._target.exists() and self._is_for_arrow(winners):
            self._arrow(winners).run(winners.rows.toArrow())
        elif not self._target.exists() or winners.are_all_new:
            writes.append(winners.rows, self._path, self._stamp, self._shape)
        else:
            self._target.use_vectors(self._stamp)
            pruned = key_pruning(winners.range_column, winners.batch_range, winners.target_range)
            writes.merge(winners.rows, self._path, winners.keys, winners.names, self._stamp, pruned)
        self._target.wrote(winners.columns)

    def _is_for_arrow(self, winners: Winners) -> bool:
        """Return whether delta-rs puts these rows: where it is forced, until the session hands Arrow to a worker of its own."""
        if self._rules.forced != "arrow":
            return False
        reason = why_not(self._path, winners.names, winners.keys)
        return chosen_writer(NOTHING, NOTHING, reason, self._rules) == "arrow"

    def _arrow(self, winners: Winners) -> ArrowPut:
        stamp, spanned = self._stamp, winners.batch_range
        name = winners.range_column
        return ArrowPut(
            self._path,
            winners.keys,
            winners.names,
            transaction_name(stamp.query_id, stamp.table, ROWS, stamp.redrive),
            stamp.batch_id,
            stamp.metadata,
            append=winners.are_all_new,
            key_range=(name, *spanned) if name is not None and spanned is not None else None,
        )

    @override
    def delete_between(self, spans: Mapping[SourceTable, tuple[str, str]]) -> None:
        found = of_tables(spans, self._target.tables)
        if found:
            self._target.trust_again(self._stamp.batch_id)
            stamp, names = self._stamp, [name for name, _ in self._target.columns() or ()]
            app_id = transaction_name(stamp.query_id, stamp.table, FLOOR, stamp.redrive)
            condition = " OR ".join(
                writes.rows_between(first, below, self._target.source_of(table)) for table, (first, below) in sorted(found.items())
            )
            with _said_of(self._path):
                by_worker = self._rules.forced != "jvm" and "\\" not in condition and self._shape.soft_delete is None
                is_done = by_worker and delete_where(self._path, names, condition, app_id, stamp)
            if not is_done:
                writes.delete_where(self._spark, self._path, condition, stamp, self._shape.soft_delete)
            self._target.wrote()

    @override
    def sweep(self, due: Mapping[SourceTable, Sequence[DueSweep]]) -> None:
        for table, sweeps in sorted(of_tables(due, self._target.tables).items()):
            self._target.trust_again(self._stamp.batch_id)
            types: dict[str, T.DataType] = {name.lower(): kind for name, kind in self._target.columns() or ()}
            source, mark = self._target.source_of(table), self._shape.soft_delete
            for step, statement in sweep_statements(self._spark, f"delta.{quoted(self._path)}", sweeps, types, source, mark):
                with writes.committing(self._spark, self._stamp, step):
                    self._spark.sql(statement)
            self._target.wrote()
