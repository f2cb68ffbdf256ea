"""The writer without a JVM: the winners of a batch enter as an Arrow table, one stamped commit of a Delta table leaves.

delta-rs merges in the process that calls it: an executor's Python worker, or the driver. Nothing here knows of Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError

from schemas.errors import SinkError
from schemas.overriding import override
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.sinks.contract import KeyRange
from spark_jobs.sinks.delta.arrow_limits import (
    arrow_schema,
    is_without_statistics,
    open_table,
    quoted_column,
    why_not_path,
    why_not_table,
)
from spark_jobs.sinks.delta.commit_identity import commit_properties
from spark_jobs.sinks.delta.commit_log import require_transaction
from spark_jobs.sinks.delta.touched_files import touched_files
from spark_jobs.sinks.delta.writer_choice import NOTHING, Size, WriterRules, chosen_writer
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.worker_writes import PutDeclinedError, WorkerPut

_ATTEMPTS: Final = 5
_MOST_BYTES: Final = 256 * 1024 * 1024
_SMALL_BYTES: Final = 32 * 1024 * 1024
_COPIES: Final = 2
"""The records of a table are there twice, while those of all Spark batches become one array."""
HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""A checkpoint after `delta.checkpointInterval` commits, as the JVM makes it. Old commits are left to the log's maintenance."""


class UnsupportedTableError(SinkError):
    """A table that delta-rs cannot write exactly as it is now. A retry asks again, and has the JVM write it."""


@dataclass(frozen=True, slots=True)
class ArrowPut:
    """All that one `put` of a batch in one Delta table needs. It can be pickled.

    `columns` are those of the source in the table. `app_id` and `version` name the transaction as the JVM's writer does, `metadata`
    is the stamp as text. `append` says that no key of the batch can be in the table. `key_range` is a key column of integers and a
    range that every key of the batch is in: files without such keys are not read. `max_spill_bytes` bounds the memory of a MERGE:
    it spills beyond that, but for its hash table of the rows, and fails (`DeltaError`) where that does not fit. None for no bound.
    With `choice` a batch that costs the JVM less is declined (`PutDeclinedError`).
    """

    path: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    app_id: str
    version: int
    metadata: str
    append: bool = False
    key_range: tuple[str, int, int] | None = None
    max_spill_bytes: int | None = None
    streamed: bool = True
    choice: WriterRules | None = None

    def run(self, rows: pa.Table) -> None:
        """Put the newest row of each key into the table as it is now, in one commit.

        `rows` has the columns, `DELETED` and `POSITION`. Nothing is done if the table has the transaction already, whichever writer
        made it: then another attempt at this batch has put these rows. A commit that fails because of another one is retried.
        Raises `UnsupportedTableError`, and `CommitFailedError` (also in the text of Spark's error) where retries do not help.
        """
        failure: CommitFailedError | None = None
        for _ in range(_ATTEMPTS):
            self._require(why_not_path(self.path))
            table = open_table(self.path)
            if self.is_done(table):
                return
            self._require(why_not_table(table, self.path, self.columns, self.keys))
            self._require_cheaper(table, rows)
            try:
                self._write(table, rows)
            except CommitFailedError as error:
                failure = error
            else:
                return
        if failure is not None:
            raise failure

    def is_done(self, table: DeltaTable) -> bool:
        """Return whether an open table has the transaction: Delta skips a version that is not above the one it has seen."""
        seen = table.transaction_version(self.app_id)
        return seen is not None and seen >= self.version

    def require_arrived(self) -> None:
        """Raise `SinkError` unless the driver, which calls this, sees the transaction that a worker has made, and its files."""
        require_transaction(Path(self.path), self.app_id, self.version)

    def _require_cheaper(self, table: DeltaTable, rows: pa.Table) -> None:
        if self.choice is None:
            return
        name = self.key_range[0] if self.key_range is not None else None
        touched = NOTHING if self.append else touched_files(table, rows, name)
        batch = Size(rows.num_rows, rows.nbytes)
        if chosen_writer(batch, touched, None, self.choice) == "jvm":
            sizes = f"{batch.rows} rows into files with {touched.rows} rows and {touched.bytes} bytes"
            raise PutDeclinedError(f"{sizes} are left to the JVM: they cost less there, or take too much memory here")

    def writable(self) -> DeltaTable:
        """Return the table as it is now; `UnsupportedTableError` if delta-rs must not write it."""
        self._require(why_not_path(self.path))
        table = open_table(self.path)
        self._require(why_not_table(table, self.path, self.columns, self.keys))
        return table

    def _require(self, reason: str | None) -> None:
        if reason is not None:
            message = f"delta-rs cannot write the table {self.path}: {reason}. The JVM's writer can"
            raise UnsupportedTableError(message)

    def _write(self, table: DeltaTable, rows: pa.Table) -> None:
        if self.append:
            self._append(table, rows)
            return
        changed = self._merge(table, rows)
        if not changed:  # delta-rs makes no commit then, and a repetition would merge what a later step has deleted
            table.create_write_transaction(
                [], "append", table.schema(), [], commit_properties=self._commit, post_commithook_properties=HOOKS
            )

    def _append(self, table: DeltaTable, rows: pa.Table) -> None:
        schema = arrow_schema(table)
        live = rows.filter(pc.invert(rows[DELETED]))
        columns = [live[field.name].cast(field.type) for field in schema]
        write_deltalake(
            table,
            pa.table(columns, schema=schema),
            mode="append",
            writer_properties=writer_properties(schema),
            commit_properties=self._commit,
            post_commithook_properties=HOOKS,
        )

    def _merge(self, table: DeltaTable, rows: pa.Table) -> bool:
        """Merge, and return whether there was a commit. The source's columns get names that need no quotes and hide none."""
        schema = arrow_schema(table)
        sources = {field.name: f"s.c{number}" for number, field in enumerate(schema)}
        columns = [rows[field.name].cast(field.type) for field in schema]
        source = pa.table([*columns, rows[DELETED]], names=[*(name[2:] for name in sources.values()), "gone"])
        match = [f"t.{quoted_column(key)} = {sources[key]}" for key in self.keys]
        if self.key_range is not None:
            name, low, high = self.key_range
            match.append(f"t.{quoted_column(name)} >= {low} AND t.{quoted_column(name)} <= {high}")
        newer = f"{sources[POSITION]} > t.{quoted_column(POSITION)}"
        values = {quoted_column(name): source_name for name, source_name in sources.items()}
        merge = table.merge(
            source,
            " AND ".join(match),
            source_alias="s",
            target_alias="t",
            streamed_exec=self.streamed,
            max_spill_size=self.max_spill_bytes,
            writer_properties=writer_properties(schema),
            commit_properties=self._commit,
            post_commithook_properties=HOOKS,
        )
        merge = merge.when_matched_delete(f"s.gone AND {newer}").when_matched_update(values, newer)
        found = merge.when_not_matched_insert(values, "NOT s.gone").execute()
        return bool(found["num_target_files_added"] or found["num_target_files_removed"])

    @property
    def _commit(self) -> CommitProperties:
        return commit_properties(self.metadata, (self.app_id, self.version))


@dataclass(frozen=True, slots=True)
class RangedPut(WorkerPut):
    """A `put` of delta-rs by a worker, which finds out there which keys the rows have.

    `known` spans all values that the integer column `column` ever had in the table, where that is known: rows above it are
    appended.
    """

    put: ArrowPut
    column: str | None
    known: KeyRange | None

    @property
    @override
    def most_bytes(self) -> int | None:
        return None if self.put.choice is None else self.put.choice.memory_bytes // _COPIES

    @override
    def run(self, rows: pa.Table) -> None:
        put = self.put
        if self.column is not None and rows.num_rows:
            found = pc.min_max(rows[self.column])
            low, high = found["min"].as_py(), found["max"].as_py()
            is_above = self.known is not None and low > self.known[1]
            put = replace(put, append=put.append or is_above, key_range=(self.column, low, high))
        put.run(rows)

    @override
    def require_arrived(self, rows: int) -> None:
        self.put.require_arrived()


def delete_where(path: str, columns: Sequence[str], condition: str, app_id: str, stamp: Stamp) -> bool:
    """Delete the rows that meet a condition, in one commit that names the transaction; return False where the JVM has to.

    The files with such rows are written again by this process: a large table is left to the JVM, and its executors.
    """
    if why_not_path(path) is not None:
        return False
    table = open_table(path)
    seen = table.transaction_version(app_id)
    if seen is not None and seen >= stamp.batch_id:
        return True
    sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"]
    if (pc.sum(sizes).as_py() or 0) > _MOST_BYTES or why_not_table(table, path, columns, ()) is not None:
        return False
    table.delete(
        condition,
        writer_properties=writer_properties(arrow_schema(table)),
        commit_properties=commit_properties(stamp.metadata, (app_id, stamp.batch_id)),
        post_commithook_properties=HOOKS,
    )
    return True


def compact_files(path: str, columns: Sequence[str], stamp: Stamp) -> bool:
    """Make the small files of a table into large ones, in one commit; return False where the JVM has to.

    It has to where rows are marked as deleted: its compaction writes the files again that have many of them.
    """
    if why_not_path(path) is not None:
        return False
    table = open_table(path)
    sizes = pa.table(table.get_add_actions())["size_bytes"]
    small = pc.sum(sizes.filter(pc.less(sizes, _SMALL_BYTES))).as_py() or 0
    has_vectors = "deletionVectors" in (table.protocol().reader_features or ())
    if has_vectors or small > _MOST_BYTES or why_not_table(table, path, columns, ()) is not None:
        return False
    table.optimize.compact(
        target_size=_SMALL_BYTES,
        writer_properties=writer_properties(arrow_schema(table)),
        commit_properties=commit_properties(stamp.metadata),
        post_commithook_properties=HOOKS,
    )
    return True


def remove_expired_commits(path: str) -> None:
    """Remove the commits of a table that its log retention no longer keeps: Spark does so only where it makes a checkpoint."""
    if why_not_path(path) is None:
        open_table(path).cleanup_metadata()


def writer_properties(schema: pa.Schema) -> WriterProperties:
    """Return how the files of a table are written: as the JVM does, without statistics that would be wrong."""
    nothing = ColumnProperties(statistics_enabled="NONE")
    return WriterProperties(
        compression="SNAPPY",
        column_properties={field.name: nothing for field in schema if is_without_statistics(field.type)},
    )
