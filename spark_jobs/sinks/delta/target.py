"""One Delta table as a target of a batch: it is trusted, evolved, written to and compacted, each step a commit of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

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
from spark_jobs.sinks.contract import (
    Columns,
    CompactionError,
    Evolution,
    PutShape,
    SinkTarget,
    Stamp,
    TargetRecord,
    Winners,
    WorkerLoad,
    WorkerPut,
    Writer,
    only_source,
)
from spark_jobs.sinks.delta import alter, writes
from spark_jobs.sinks.delta.arrow_limits import why_not, why_not_path
from spark_jobs.sinks.delta.arrow_load import ArrowLoad
from spark_jobs.sinks.delta.arrow_put import ArrowPut, RangedPut, delete_below, remove_expired_commits
from spark_jobs.sinks.delta.commit_identity import FLOOR, LOAD, LOAD_OVER, ROWS, transaction_name
from spark_jobs.sinks.delta.commit_log import (
    has_version,
    is_commit_of,
    newest_version,
    require_nothing_put_back,
    require_own_table,
    table_exists,
    was_written_by,
)
from spark_jobs.sinks.delta.table_schema import add_columns, create_table
from spark_jobs.sinks.delta.writer_choice import WriterSetting, chosen_writer
from spark_jobs.spark_errors import is_lost_executor

_WORKER_BYTES: Final = 2 * 1024**3
"""Memory that the rows of a batch may take in a worker. The rows that a batch touches in the table are not known before."""


@dataclass(slots=True)
class KnownTable:
    """What is known of a table until a step of it fails.

    `columns` are the source's, `checked` is the version up to which all commits were looked at (-1: none), `written` the newest
    version after our last write.
    """

    columns: Columns | None = None
    checked: int = -1
    written: int = -1


class DeltaTarget(SinkTarget):
    """A Delta table. `known` is shared by the batches of one run."""

    def __init__(
        self,
        spark: SparkSession,
        path: Path,
        name: Target,
        table: SourceTable,
        query_id: str,
        known: KnownTable,
        writer: WriterSetting = "auto",
    ) -> None:
        self._writer = writer
        self._spark = spark
        self._path = path
        self._name = name
        self._table = table
        self._query_id = query_id
        self._known = known
        self._record = TargetRecord()

    @property
    @override
    def name(self) -> Target:
        return self._name

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
            found = alter.table_columns(self._spark, str(self._path)) or ()
            self._known.columns = [(name, kind) for name, kind in found if name != POSITION]
        return self._known.columns

    @override
    def fitting(self, columns: Columns) -> Columns:
        return alter.without_loss(self._spark, str(self._path), columns)

    @override
    def require_not_gone(self, record: TargetRecord) -> None:
        if record.last_commit >= 0 and not self.exists():
            message = (
                f"the table {self._path} was written up to batch {record.last_commit} and is gone: what is "
                f"in Kafka now would be a part of it only. Put it back, or move the whole sink away (or give "
                f"another sinks.path), start the merge job, and snapshot the tables again"
            )
            raise SinkError(message)

    @override
    def trust(self, record: TargetRecord, batch_id: int) -> None:
        self._record, known = record, self._known
        if known.written >= 0 and has_version(self._path, known.written):
            version = require_nothing_put_back(self._path, self._query_id, known.checked)
        else:
            version = require_own_table(self._path, self._query_id, record.last_commit, batch_id)
        known.checked = known.written = version

    @override
    def has_commit(self, batch_id: int) -> bool:
        known = self._known
        try:
            if known.written < 0:
                return was_written_by(self._path, self._query_id, batch_id)
            since = range(max(known.checked, 0), known.written + 1)
            return any(is_commit_of(self._path, version, self._query_id, batch_id) for version in since)
        except SinkError:  # somebody replaced the table
            return False

    @override
    def evolve(self, change: Evolution, stamp: Stamp) -> None:
        self.trust_again(stamp.batch_id)
        columns = self.columns() or ()
        missing = change.missing_in(columns)
        if missing:
            added = [(name, kind) for name, kind, _ in missing.added]
            by_jvm = self._writer == "jvm" or missing.touches_rows
            if by_jvm or not add_columns(str(self._path), columns, added, stamp):
                with writes.stamped(self._spark, stamp):
                    alter.apply(self._spark, str(self._path), missing)
            self.wrote(missing.applied_to(columns))

    @override
    @contextmanager
    def commit(self, stamp: Stamp) -> Iterator[Writer]:
        yield DeltaWriter(self, self._spark, self._path, self._table, stamp, self._writer)

    @override
    def worker_put(self, shape: PutShape, stamp: Stamp) -> WorkerPut | None:
        is_new = not self.exists()
        put = self._arrow_put(shape, stamp, ROWS)
        if put is None:
            return None
        return RangedPut(replace(put, append=is_new), shape.range_column, shape.target_range)

    def _arrow_put(self, shape: PutShape, stamp: Stamp, step: str, lane: int | None = None) -> ArrowPut | None:
        """Return a put of delta-rs by a worker, into a table that is made for it; None where the JVM is to write."""
        path = str(self._path)
        if chosen_writer(shape.records, 0, why_not_path(path), _WORKER_BYTES, self._writer) == "jvm":
            return None
        if not self.exists():
            create_table(path, shape.columns, stamp)
            self.wrote(shape.columns)
        names = tuple(name for name, _ in shape.columns)
        if why_not(path, names, shape.keys) is not None:
            return None
        app_id = transaction_name(stamp.query_id, stamp.table, step if lane is None else f"{step}/{lane}", stamp.redrive)
        return ArrowPut(path, shape.keys, names, app_id, stamp.batch_id, stamp.metadata)

    @override
    def worker_load(self, shape: PutShape, stamp: Stamp, lane: int) -> WorkerLoad | None:
        put = self._arrow_put(shape, stamp, LOAD_OVER, lane)
        if put is None:
            return None
        return ArrowLoad(put, transaction_name(stamp.query_id, stamp.table, f"{LOAD}/{lane}", stamp.redrive), shape.range_column)

    @override
    def compact(self, stamp: Stamp) -> None:
        try:
            writes.compact(self._spark, str(self._path), stamp)
            remove_expired_commits(str(self._path))
        except (PySparkException, Py4JError, DeltaError) as error:
            if writes.is_conflict(error) or is_lost_executor(error):
                raise
            raise CompactionError(str(error).partition("\n")[0]) from error

    def trust_again(self, batch_id: int) -> None:
        """Refuse what happened since the last step of this batch (`SinkError`), before a further one."""
        self.trust(self._record, batch_id)

    def wrote(self, columns: Columns | None = None) -> None:
        """Note that a step may have made commits, and which columns the table has now."""
        self._known.written = newest_version(self._path, self._known.written)
        if columns is not None:
            self._known.columns = columns


class DeltaWriter(Writer):
    """The steps of a batch in a Delta table: each is one commit, which Delta skips if the batch made it before."""

    def __init__(
        self,
        target: DeltaTarget,
        spark: SparkSession,
        path: Path,
        table: SourceTable,
        stamp: Stamp,
        writer: WriterSetting = "auto",
    ) -> None:
        self._writer = writer
        self._target = target
        self._spark = spark
        self._path = str(path)
        self._table = table
        self._stamp = stamp

    @override
    def restamp(self, stamp: Stamp) -> None:
        self._stamp = stamp

    @override
    def put(self, winners: Winners) -> None:
        if self._target.exists() and self._is_for_arrow(winners):
            self._arrow(winners).run(winners.rows.toArrow())
        elif not self._target.exists() or winners.are_all_new:
            writes.append(winners.rows, self._path, self._stamp)
        else:
            pruned = writes.pruning(winners.range_column, winners.batch_range, winners.target_range)
            writes.merge(winners.rows, self._path, winners.keys, winners.names, self._stamp, pruned)
        self._target.wrote(winners.columns)

    @override
    def note_put(self, columns: Columns) -> None:
        self._target.wrote(columns)

    def _is_for_arrow(self, winners: Winners) -> bool:
        """Return whether delta-rs puts these rows: where it is forced, until the session hands Arrow to a worker of its own."""
        if self._writer != "arrow":
            return False
        reason = why_not(self._path, winners.names, winners.keys)
        return chosen_writer(0, 0, reason, 0, self._writer) == "arrow"

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
    def delete_below(self, floors: Mapping[SourceTable, str]) -> None:
        floor = only_source(floors, self._table)
        if floor:
            self._target.trust_again(self._stamp.batch_id)
            stamp, names = self._stamp, [name for name, _ in self._target.columns() or ()]
            app_id = transaction_name(stamp.query_id, stamp.table, FLOOR, stamp.redrive)
            if self._writer == "jvm" or not delete_below(self._path, names, floor, app_id, stamp):
                writes.delete_below(self._spark, self._path, floor, stamp)
            self._target.wrote()

    @override
    def sweep(self, due: Mapping[SourceTable, Sequence[DueSweep]]) -> None:
        sweeps = only_source(due, self._table)
        if sweeps:
            self._target.trust_again(self._stamp.batch_id)
            types: dict[str, T.DataType] = {name.lower(): kind for name, kind in self._target.columns() or ()}
            writes.sweep(self._spark, self._path, sweeps, types, self._stamp)
            self._target.wrote()
