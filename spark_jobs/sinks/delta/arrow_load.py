"""Many snapshot rows of one version enter as they are read, one or two stamped commits of a Delta table leave.

Rows whose key is not in the table are appended as a stream: parquet files grow while the source is still read, and memory is that
of some blocks. Rows whose key is there with an older version, which are few in a first load, are kept in a file, and go through the
guarded MERGE when the appends of all loads are done: delta-rs refuses either commit where the other was made meanwhile. Rows whose
key is there with this version or a newer one are dropped.

Why a load may be run again, though a second SELECT may give other rows: all that is read after the barrier of the window is a
valid state at `version`, since whatever changed behind it is in the log, with a higher position. The append comes first and has a
transaction of its own. Where it is not committed, nothing of the attempt is in the table. Where it is, every key that only the
load brings is there: it is not repeated, and what the second SELECT has besides was inserted later, and comes by the log. What is
left to do is found in the table as it is now: keys with an older version. A row of the first attempt has this version, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from schemas.overriding import override
from spark_jobs.decode.record_columns import DELETED
from spark_jobs.sinks.contract import KeyRange
from spark_jobs.sinks.delta.arrow_limits import arrow_schema, open_table
from spark_jobs.sinks.delta.arrow_put import HOOKS, ArrowPut, writer_properties
from spark_jobs.sinks.delta.commit_identity import commit_properties
from spark_jobs.sinks.delta.commit_log import require_transaction
from spark_jobs.sinks.delta.known_keys import KnownKeys, stored_range
from spark_jobs.sinks.worker_writes import LoadedRows, WorkerLoad

_AHEAD: Final = 2
_PATIENCE_S: Final = 0.2
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class ArrowLoad(WorkerLoad):
    """A load of delta-rs. `over` replaces older rows, with the same stamp and a transaction of its own.

    `column` is the first key column, if it is an integer.
    """

    over: ArrowPut
    app_id: str
    column: str | None

    @override
    def run(self, blocks: Iterator[pa.Table], version: str, kept: Path) -> LoadedRows:
        table = self.over.writable()
        is_appended = self._is_appended(table)
        run = _Run(self, table, version, kept)
        try:
            found = run.new_rows(blocks)
            if is_appended:
                for _ in found:
                    pass
                has_added = True
            else:
                has_added = self._append(table, found)
        finally:
            run.close()
        if not is_appended:
            return LoadedRows(run.rows, run.spanned, older=run.older, has_added=has_added)
        stored = None if self.column is None else stored_range(open_table(self.over.path), self.column)
        return LoadedRows(run.rows, stored, is_known=self.column is None or stored is not None, older=run.older, has_added=True)

    @override
    def replace_older(self, kept: Path) -> int:
        with pa.memory_map(str(kept)) as source:
            rows = pa.ipc.open_file(source).read_all()
        spanned = _spanning(self.column, None, rows)
        ranged = None if spanned is None or self.column is None else (self.column, *spanned)
        rows = rows.append_column(DELETED, pa.repeat(pa.scalar(value=False), rows.num_rows))
        replace(self.over, key_range=ranged).run(rows)
        return int(rows.num_rows)

    @override
    def require_arrived(self, done: LoadedRows) -> None:
        if done.has_added:
            require_transaction(Path(self.over.path), self.app_id, self.over.version)
        if done.older:
            self.over.require_arrived()

    @override
    def has_written(self) -> bool:
        return self._is_appended(open_table(self.over.path))

    def _is_appended(self, table: DeltaTable) -> bool:
        seen = table.transaction_version(self.app_id)
        return seen is not None and seen >= self.over.version

    def _append(self, table: DeltaTable, found: Iterator[pa.Table]) -> bool:
        """Append these rows in one commit, and return True; without a row there is none."""
        schema = arrow_schema(table)
        first = next(found, None)
        if first is None:
            return False
        with _Ahead(found) as ahead:

            def batches() -> Iterator[pa.RecordBatch]:
                yield from _fitting(first, schema)
                for rows in ahead:
                    yield from _fitting(rows, schema)

            write_deltalake(
                table,
                pa.RecordBatchReader.from_batches(schema, batches()),
                mode="append",
                writer_properties=writer_properties(schema),
                commit_properties=commit_properties(self.over.metadata, (self.app_id, self.over.version)),
                post_commithook_properties=HOOKS,
            )
        return True


class _Run:
    """One pass over the rows of a load. `rows` counts them, `older` those that are kept; `spanned` is the range of the column."""

    def __init__(self, load: ArrowLoad, table: DeltaTable, version: str, kept: Path) -> None:
        self._load = load
        self._known = KnownKeys(table, load.over.keys)
        self._version = version
        self._kept = kept
        self._writer: Any = None
        self.rows = self.older = 0
        self.spanned: KeyRange | None = None

    def new_rows(self, blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows whose key is not in the table, and keep those whose key is there with an older version."""
        for rows in self._known.groups(blocks):
            self.rows += rows.num_rows
            self.spanned = _spanning(self._load.column, self.spanned, rows)
            positions = self._known.positions(rows)
            if positions is None:
                yield rows
                continue
            self._keep(rows.filter(pc.less(positions, self._version)))  # null, of a new row, is no match
            new = rows.filter(pc.is_null(positions))
            if new.num_rows:
                yield new

    def close(self) -> None:
        """Complete the file of the rows that are kept."""
        if self._writer is not None:
            self._writer.close()

    def _keep(self, rows: pa.Table) -> None:
        if rows.num_rows:
            if self._writer is None:
                self._kept.parent.mkdir(parents=True, exist_ok=True)
                self._writer = pa.ipc.new_file(str(self._kept), rows.schema)
            self._writer.write_table(rows)
            self.older += rows.num_rows


def _spanning(column: str | None, known: KeyRange | None, rows: pa.Table) -> KeyRange | None:
    """Return the range of a column in what is known and in these rows."""
    if column is None:
        return None
    found = pc.min_max(rows[column])
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is None:
        return known
    return (low, high) if known is None else (min(low, known[0]), max(high, known[1]))


def _fitting(rows: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    columns = [rows[field.name].cast(field.type) for field in schema]
    return pa.table(columns, schema=schema).to_batches()  # type: ignore[no-any-return]


class _Ahead(Iterable[_Item]):
    """Items that a thread of its own computes, a few ahead of the reader: delta-rs cannot be asked for keys while it writes.

    The reader gets the error of the computation, and so does the end of the context: delta-rs has the text alone of an error of its
    stream.
    """

    def __init__(self, items: Iterator[_Item]) -> None:
        self._items = items
        self._queue: Queue[_Item | None] = Queue(_AHEAD)
        self._ends = Event()
        self._thread = Thread(target=self._compute, name="load-ahead", daemon=True)
        self._error: Exception | None = None

    def __enter__(self) -> _Ahead[_Item]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        if self._error is not None:
            raise self._error from None

    @override
    def __iter__(self) -> Iterator[_Item]:
        while (item := self._queue.get()) is not None:
            yield item
        if self._error is not None:
            raise self._error

    def _compute(self) -> None:
        try:
            for item in self._items:
                if not self._put(item):
                    return
        except BaseException as error:  # noqa: BLE001 - raised where the items are read; a panic in Rust is no Exception
            self._error = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        self._put(None)

    def _put(self, item: _Item | None) -> bool:
        while not self._ends.is_set():
            try:
                self._queue.put(item, timeout=_PATIENCE_S)
            except Full:
                continue
            return True
        return False
