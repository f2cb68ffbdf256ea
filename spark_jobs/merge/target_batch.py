"""What a batch does to one target: winners, floors and sweeps enter, steps of the sink and the next `TargetRecord` leave."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SchemaChangeError
from schemas.identity import SourceTable, Target
from schemas.merge_rule import DueSweep
from spark_jobs.arrow.decoder_plan import Observed
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.decode.writer_schemas import WriterSchema
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.rule import range_column
from spark_jobs.merge.source_part import SourcePart
from spark_jobs.merge.table_set_aside import without_keys
from spark_jobs.pipeline.target_layout import evolution, narrowing
from spark_jobs.sinks.changelog_events import Appended, Events
from spark_jobs.sinks.contract import (
    ChangelogTarget,
    Columns,
    CompactionError,
    Evolution,
    FedBy,
    KeyRange,
    MirrorTarget,
    MirrorWriter,
    SinkTarget,
    TargetRecord,
    Winners,
)
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.worker_writes import PutShape, WorkerLoad, WorkerLoads, WorkerPut, WorkerPuts

log = structlog.get_logger()

COMPACT_AFTER: Final = 50
COMPACT_SPREAD: Final = 16


class TargetBatch:
    """One target in one batch. `record` is what is to be remembered of it, and grows with each step."""

    def __init__(self, target: SinkTarget, before: TargetRecord, batch_id: int) -> None:
        self._target = target
        self._before = before
        self._batch_id = batch_id
        self._is_trusted = False
        self._is_touched = False
        self.record = before

    @classmethod
    def of(cls, context: JobContext, spark: SparkSession, table: SourceTable, before: TargetRecord, batch_id: int) -> TargetBatch:
        """Return the batch of the one target of a table that goes into it alone."""
        return cls(context.sink.target(spark, context.target_of(table), [table]), before, batch_id)

    @property
    def name(self) -> Target:
        """The target."""
        return self._target.name

    @property
    def full_name(self) -> str:
        """The name, for logs."""
        return self._target.name.name

    @property
    def exists(self) -> bool:
        """Whether the target is there now."""
        return self._target.exists()

    @property
    def columns(self) -> Columns:
        """The columns of the source in the target."""
        return self._mirror.columns() or ()

    @property
    def _mirror(self) -> MirrorTarget:
        assert isinstance(self._target, MirrorTarget)
        return self._target

    @property
    def _changelog(self) -> ChangelogTarget:
        assert isinstance(self._target, ChangelogTarget)
        return self._target

    def require_not_gone(self) -> None:
        """Raise `SinkError` if the target was written to and is gone."""
        self._target.require_not_gone(self._before)

    def prepare(self, plan: TableLayout, stamp: Stamp) -> None:
        """Trust the target, and give it the columns of the layout."""
        self.trust()
        self.evolve(evolution(self.columns, plan), stamp)

    def evolve(self, change: Evolution, stamp: Stamp) -> None:
        """Change the columns of a target that is trusted, if there is something to change.

        Values for the rows of a source table are a step of that table's own: a batch that is run again may have more tables, and
        would fill over the rows that it has put since.
        """
        if change:
            columns = replace(change, filled=())
            if columns:
                self._mirror.evolve(columns, stamp)
            for source in sorted({source for _, source, _ in change.filled}):
                filled = tuple(item for item in change.filled if item[1] == source)
                self._mirror.evolve(Evolution((), (), filled), stamp.of_tables(self._target.name, [source]))
            names = [name for name, _, _ in (*change.added, *change.filled)] + [name for name, _ in change.retyped]
            log.info("merge.columns_changed", table=self.full_name, columns=sorted({*names, *change.dropped}))

    def trust(self) -> None:
        """Raise `SinkError` unless the target is as this job left it. Asked before the first step in a target that exists."""
        if not self._is_trusted:
            self._target.trust(self._before, self._batch_id)
            self._is_trusted = self._is_touched = True  # an attempt before a crash may have left nothing to write

    def commit(self, stamp: Stamp) -> AbstractContextManager[MirrorWriter]:
        """Write the batch."""
        return self._mirror.commit(stamp)

    def appended(self, table: SourceTable) -> Appended:
        """Return how far a source table is appended to the target, a changelog."""
        return self._changelog.appended(table) if self.exists else Appended()

    def append(self, stamp: Stamp, events: Sequence[Events]) -> None:
        """Append events to a changelog, in one commit."""
        with self._changelog.commit(stamp) as writer:
            for one in events:
                writer.append(one)
        self._is_touched = True

    def put(self, writer: MirrorWriter, rows: DataFrame, plan: TableLayout, spanned: KeyRange | None) -> None:
        """Put the winners; of computed ones the range of keys is known before (`spanned`)."""
        known = self._known_range(plan)
        writer.put(Winners(rows, plan.keys, plan.columns, range_column(plan), spanned, known))
        self._is_touched = True

    def worker_put(self, plan: TableLayout, stamp: Stamp, records: int) -> WorkerPut | None:
        """Return the `put` of the batch for a worker; None where the sink has none for this target."""
        return self._worker_put(PutShape(plan.keys, plan.columns, range_column(plan), self._known_range(plan), records), stamp)

    def worker_put_of_images(self, layout: TableLayout, stamp: Stamp, records: int) -> WorkerPut | None:
        """Return the `put` of rows of several tables, or of images, for a worker: of their keys no range is known."""
        return self._worker_put(PutShape(layout.keys, layout.columns, None, None, records), stamp)

    def _worker_put(self, shape: PutShape, stamp: Stamp) -> WorkerPut | None:
        return self._target.worker_put(shape, stamp) if isinstance(self._target, WorkerPuts) else None

    def note_put(self, plan: TableLayout) -> None:
        """Note that a worker has put the winners."""
        if isinstance(self._target, WorkerPuts):
            self._target.note_put(plan.columns)
        self._is_touched = True

    def note_declined(self) -> None:
        """Note that a worker left the put of this batch to the sink's other writer."""
        if isinstance(self._target, WorkerPuts):
            self._target.note_declined()

    def make_empty(self, writer: MirrorWriter, plan: TableLayout, spark: SparkSession) -> None:
        """Make the target without rows."""
        types = [*plan.columns, (DELETED, T.BooleanType()), (POSITION, T.StringType())]
        rows = spark.createDataFrame([], T.StructType([T.StructField(name, kind) for name, kind in types]))
        writer.put(Winners(rows, plan.keys, plan.columns))
        self._is_touched = True

    def note_keys(self, observed: Observed, plan: TableLayout) -> None:
        """Remember which keys the target has now."""
        known, first = self._known_range(plan), self._before.last_commit < 0 and not self._before.range_of
        spanned = _spanning(known, observed.key_range) if first or known is not None else None
        self.record = replace(self.record, key_range=spanned, range_of=plan.keys)

    def worker_load(self, plan: TableLayout, stamp: Stamp, lane: int) -> WorkerLoad | None:
        """Return a load of the batch for a worker; None where the sink has none for this target."""
        if not isinstance(self._target, WorkerLoads):
            return None
        return self._target.worker_load(
            PutShape(plan.keys, plan.columns, range_column(plan), self._known_range(plan), 0), stamp, lane
        )

    def note_loaded(self, spanned: KeyRange | None, plan: TableLayout) -> None:
        """Remember which keys loads have put besides those of the batch."""
        if spanned is None:
            return  # no row, or a column without a range
        known = self.record.key_range if self.record.range_of == plan.keys else None
        first = self.record.last_commit < 0 and not self.record.range_of
        kept = _spanning(known, spanned) if first or known is not None else None
        self.record = replace(self.record, key_range=kept, range_of=plan.keys)

    def forget_keys(self) -> None:
        """Remember that the keys of the target are not known, also for the steps that follow."""
        self._before, self.record = without_keys(self._before), without_keys(self.record)

    def note_unknown_rows(self) -> None:
        """Remember that an attempt at this batch before has written to the target, and may have put rows that this one does not."""
        self.forget_keys()
        self.record = replace(self.record, last_commit=self._batch_id)

    def put_rows(self, writer: MirrorWriter, rows: DataFrame, layout: TableLayout) -> None:
        """Put computed rows of several tables, or of images: of their keys no range is known."""
        writer.put(Winners(rows, layout.keys, layout.columns))
        self._is_touched = True

    def note_fed_by(self, table: SourceTable, layout: TableLayout, *, forgets: bool = False) -> None:
        """Remember the key and the columns that a source table has in the target.

        With `forgets` those that it had before and has no more are not remembered: they were dropped, or are NULL in its rows.
        """
        known = self.record.fed_by.get(table.text)
        columns = tuple(dict.fromkeys((*(known.columns if known and not forgets else ()), *layout.names)))
        if self.exists:
            fed_by = {**self.record.fed_by, table.text: FedBy(layout.keys, columns)}
            self.record = replace(self.record, fed_by=fed_by)

    def delete_below_floors(self, writer: MirrorWriter, parts: Sequence[SourcePart], *, had_rows: bool) -> None:
        """Delete the rows of each source table that its floor takes (`TableState.doomed`), if the floor has risen.

        In a target that had no rows before this batch, only if the batch has put a row below the floor.
        """
        risen = [part for part in parts if part.has_risen and (had_rows or part.has_rows_below_floor)]
        spans = {part.input.table: part.record.state.doomed for part in risen}
        if not spans:
            return
        if had_rows:
            self.trust()
        writer.delete_between({table: span for table, span in spans.items() if span[0] < span[1]})
        self._is_touched = True

    def drop(self, names: Sequence[str], stamp: Stamp) -> None:
        """Drop columns, with their values."""
        if names:
            self.trust()
            self.evolve(Evolution((), (), dropped=tuple(names)), stamp)
            self._is_touched = True

    def sweep(self, writer: MirrorWriter, table: SourceTable, due: Sequence[DueSweep]) -> None:
        """Delete the rows of a source table that sweeps take: of a parent that is gone, and not read again."""
        names = {name.lower() for name, _ in self.columns}
        known = [one for one in due if all(name.lower() in names for name in one.sweep.columns)]
        if len(known) < len(due):
            log.warning("merge.sweep_of_unknown_columns", table=self.full_name)
        if known:
            self.trust()
            writer.sweep({table: known})
            self._is_touched = True

    def narrow(self, writers: Sequence[WriterSchema], stamp: Stamp, *, insists: bool = False) -> Columns:
        """Give columns the types of these writers, where no value is lost; return the columns that changed.

        With `insists` a column with values that do not fit is a `SchemaChangeError`.
        """
        wanted = asked = narrowing(self.columns, writers)
        if wanted:
            self.trust()
            wanted = self._mirror.fitting(wanted)
        if insists and len(wanted) < len(asked):
            kept = ", ".join(f"{name} ({kind.simpleString()})" for name, kind in asked if (name, kind) not in wanted)
            message = (
                f"{self.full_name} has rows whose values do not fit the type that the source has now, though it was read again: "
                f"{kept}. Choose schema_changes.behaviour try_evolve to leave the columns as they are, or: tidemark rebuild "
                f"{self.full_name}"
            )
            raise SchemaChangeError(message)
        if wanted:
            self._mirror.evolve(Evolution((), tuple(wanted)), stamp)
            self._is_touched = True
            keys, names = {name.lower() for name in self.record.range_of}, {name.lower() for name, _ in wanted}
            self.record = replace(self.record, key_range=None if keys & names else self.record.key_range)
            log.info("merge.columns_changed", table=self.full_name, columns=sorted(name for name, _ in wanted))
        return wanted

    def note_commit(self) -> None:
        """Remember whether this batch wrote. It counts once, however many steps and attempts it took."""
        if self._is_touched and self._target.has_commit(self._batch_id):
            self.record = replace(self.record, last_commit=self._batch_id, writes=self._before.writes + 1)

    def compact_if_due(self, stamp: Stamp) -> None:
        """Compact the target now and then; a failure must not keep rows back, and is retried later."""
        due = COMPACT_AFTER + zlib.crc32(self.full_name.encode()) % COMPACT_SPREAD  # not all targets at once
        if self.record.writes < due:
            return
        try:
            self._mirror.compact(stamp)
        except CompactionError as error:
            log.warning("merge.not_compacted", table=self.full_name, reason=str(error))
        self.record = replace(self.record, writes=0)

    def _known_range(self, plan: TableLayout) -> KeyRange | None:
        """Return the range of all keys in the target; None once the key has become another: it is unknown then."""
        return self._before.key_range if self._before.range_of == plan.keys else None


def _spanning(one: KeyRange | None, other: KeyRange | None) -> KeyRange | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])
