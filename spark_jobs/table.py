"""One table's part of one batch: its columns, its rows, its tombstones.

Enter a `TableWork` and what is remembered of the table, leave what is to be remembered next. The steps are
those of `schemas.merge_rule.MemoryTable.apply`, on columns.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Final

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql import types as T  # noqa: N812 - as F

from schemas.errors import RegistryError, SinkError, UnsupportedTypeError
from schemas.merge_rule import NOTHING
from schemas.settings import Settings
from schemas.topics import key_subject, value_subject
from spark_jobs import beginning, evolve, merge, quarantine, tombstones
from spark_jobs.decode import (
    DELETED,
    POSITION,
    REASON,
    TableLayout,
    Writer,
    decoded,
    key_positions,
    key_writer,
    layout,
    undecodable,
    value_writer,
)
from spark_jobs.places import Places
from spark_jobs.progress import (
    TableRecord,
    has_version,
    is_commit_of,
    newest_version,
    require_nothing_put_back,
    require_own_table,
    table_progress,
)
from spark_jobs.read import read_slices
from spark_jobs.registry import RegisteredSchema, SchemaRegistry
from spark_jobs.work import TableWork

log = structlog.get_logger()

MANY_VERSIONS: Final = 6
LOOK_AGAIN_S: Final = 10.0
COMPACT_AFTER: Final = 50
COMPACT_SPREAD: Final = 16
_LEAST_RANGE_BITS: Final = 16
_FEW_RANGES: Final = 8
_LARGEST: Final = 2**63 - 1
NO_KEY: Final = "no primary key and no unique key: a mirror needs one"


@dataclass(frozen=True, slots=True)
class Trusted:
    """Of a table: the version up to which all commits were looked at, and the newest one after our last write."""

    checked: int
    written: int


@dataclass(slots=True)
class Shared:
    """What all tables of a job share, and what is known of them until something fails.

    `columns` are the tables' columns, which this job alone changes; `trusted` the tables found as this job
    had left them, and up to which version; `looked_at` when the registry was last asked about a table that had no rows.
    """

    settings: Settings
    registry: SchemaRegistry
    places: Places
    query_id: str
    columns: dict[str, evolve.Columns] = field(default_factory=dict)
    trusted: dict[str, Trusted] = field(default_factory=dict)
    looked_at: dict[str, float] = field(default_factory=dict)
    writers: dict[tuple[str, int], Writer | None] = field(default_factory=dict)
    quarantine: Lock = field(default_factory=Lock)

    def forget(self, table: str) -> None:
        """After a failure nothing is taken for granted."""
        self.columns.pop(table, None)
        self.trusted.pop(table, None)
        self.looked_at.pop(table, None)


class TableBatch:
    """One table, one batch, on a session that no other thread uses."""

    def __init__(
        self, shared: Shared, spark: SparkSession, work: TableWork, before: TableRecord, batch_id: int
    ) -> None:
        self._shared = shared
        self._spark = spark
        self._work = work
        self._before = before
        self._batch_id = batch_id
        self._path = shared.places.table(work.database, work.name)
        record, markers = beginning.noted(before, work)
        self._state = before.state.advance(markers, work.change_ends)
        work.require_partitions(self._state.partitions)
        self._record = replace(
            record,
            state=self._state,
            tombstones=tombstones.needed(before.tombstones, self._state),
            change_offsets=work.change_ends or before.change_offsets,
            snapshot_offsets=work.snapshot_ends or before.snapshot_offsets,
            set_aside=None,
        )
        progress = table_progress(self._record)
        self._commit = merge.Commit(shared.query_id, batch_id, work.full_name, progress)

    def run(self) -> TableRecord:
        """Merge the table's records and give what is to be remembered."""
        self._require_not_vanished()
        self._quarantine_markers()
        plan = self._plan() if self._needs_plan else None
        older_rows = self._table_exists
        if self._work.data_slices:
            self._merge_records(plan)
        elif plan is not None:
            self._ready_table(plan)
        if self._state.floor > self._before.state.floor and older_rows:
            self._trust_table()
            merge.delete_below(self._spark, str(self._path), self._state.floor, self._commit)
            self._wrote()
        if self._state.due and self._table_exists:
            self._sweep()
        self._compact_if_due()
        if self._record.skipped is not None:  # what was read of it was passed over: no snapshot made it whole
            self._record = replace(self._record, state=replace(self._state, consistent_at=NOTHING))
        if self._record.state.consistent_at > NOTHING:
            self._record = replace(self._record, incomplete=None)
        return self._record

    def _sweep(self) -> None:
        """Children that the source changed without a word in the log, and that were not read again, go."""
        types = {name.lower(): kind for name, kind in self._existing_columns()}
        due = [one for one in self._state.due if all(name.lower() in types for name in one.sweep.columns)]
        if len(due) < len(self._state.due):
            log.warning("merge.sweep_of_unknown_columns", table=self._work.full_name)
        if due:
            self._trust_table()
            merge.sweep(self._spark, str(self._path), due, types, self._commit)
            self._wrote()

    def _require_not_vanished(self) -> None:
        if self._before.last_commit >= 0 and not self._table_exists:
            message = (
                f"the table {self._path} was written up to batch {self._before.last_commit} and is gone: what is "
                f"in Kafka now would be a part of it only. Put it back, or move the whole sink away (or give "
                f"another sinks.path), start the merge job, and snapshot the tables again"
            )
            raise SinkError(message)

    def _compact_if_due(self) -> None:
        """Files are made fewer now and then; a failure of that must not keep rows away, and is tried again."""
        due = COMPACT_AFTER + zlib.crc32(self._work.full_name.encode()) % COMPACT_SPREAD  # not all at once
        if self._record.writes < due:
            return
        try:
            merge.compact(self._spark, str(self._path), self._commit)
        except (PySparkException, Py4JError) as error:
            if merge.is_conflict(error):
                raise
            log.warning("merge.not_compacted", table=self._work.full_name, reason=str(error).splitlines()[:1])
        self._record = replace(self._record, writes=0)

    # ── columns ────────────────────

    @property
    def _needs_plan(self) -> bool:
        """Also without rows a table is made when a snapshot of it is complete, and follows an ALTER."""
        if self._work.data_slices or self._state.consistent_at > self._before.state.consistent_at:
            return True
        now, name = time.monotonic(), self._work.full_name
        due = self._table_exists and now - self._shared.looked_at.get(name, 0.0) > LOOK_AGAIN_S
        if due:
            self._shared.looked_at[name] = now
        return due

    @property
    def _folder(self) -> str:
        """Where the table lies below the sink."""
        return self._path.relative_to(self._shared.places.sink).as_posix()

    @property
    def _label(self) -> str:
        """What this batch's tombstones are called."""
        return str(self._batch_id)

    @property
    def _table_exists(self) -> bool:
        return evolve.table_exists(self._path)

    def _plan(self) -> TableLayout | None:
        """How the records are decoded; None while the registry knows no schema of the table."""
        versions = self._writers(value_subject(self._work.change_topic), value_writer)
        keys = self._writers(key_subject(self._work.change_topic), key_writer)
        if not versions:
            return None
        if not keys:
            if self._record.skipped is None:
                log.error("merge.table_skipped", table=self._work.full_name, reason=NO_KEY)
            self._record = replace(self._record, skipped=NO_KEY)
            return None
        self._record = replace(self._record, skipped=None)
        existing = evolve.own_columns(self._existing_columns())
        plan = layout(keys, versions, existing, self._present(versions))
        if len(keys) == 1:
            return plan
        self._find_key(plan)
        return layout(self._todays_key_last(keys), versions, existing, plan.value_writers)

    def _find_key(self, plan: TableLayout) -> None:
        """Remember which of several keys the newest record has."""
        if not self._work.data_slices:
            return
        seen = key_positions(self._raw, plan, self._work.snapshot_topic)
        known = [] if self._record.keyed_by is None else [self._record.keyed_by]
        newest = max([*known, *seen.items()], key=lambda item: item[1], default=None)
        self._record = replace(self._record, keyed_by=newest)

    def _todays_key_last(self, keys: Sequence[Writer]) -> list[Writer]:
        today = None if self._record.keyed_by is None else self._record.keyed_by[0]
        return sorted(keys, key=lambda writer: writer.id == today)

    def _writers(self, subject: str, build: Callable[[RegisteredSchema], Writer]) -> list[Writer]:
        """The usable schemas of a subject, oldest first; records of the others will be quarantined."""
        writers: dict[int, Writer] = {}
        for schema in self._shared.registry.versions(subject):
            name = (subject, schema.id)
            if name not in self._shared.writers:
                self._shared.writers[name] = _usable(subject, schema, build)
            writer = self._shared.writers[name]
            if writer is not None:
                writers.setdefault(schema.id, writer)
        return list(writers.values())

    def _present(self, versions: Sequence[Writer]) -> list[Writer] | None:
        """The versions that records of this batch have, looked up where there are many; None for all."""
        if len(versions) <= MANY_VERSIONS or not self._work.data_slices:
            return None
        frames = self._raw.select(F.substring("value", 1, 5).alias("frame")).distinct().collect()
        found = {bytes(row["frame"]) for row in frames if row["frame"] is not None}
        return [writer for writer in versions if writer.frame in found] or list(versions[-1:])

    def _existing_columns(self) -> evolve.Columns:
        cached = self._shared.columns.get(self._work.full_name)
        if cached is None:
            cached = evolve.table_columns(self._spark, str(self._path)) or ()
            self._shared.columns[self._work.full_name] = cached
        return cached

    def _ready_table(self, plan: TableLayout) -> None:
        """Bring an existing table to the plan's columns, or make an empty one."""
        if not self._table_exists:
            types = [*plan.columns, (POSITION, T.StringType())]
            empty = self._spark.createDataFrame([], T.StructType([T.StructField(n, k) for n, k in types]))
            merge.append(empty.withColumn(DELETED, F.lit(False)), str(self._path), self._commit)
            self._wrote(plan)
            return
        self._trust_table()
        change = evolve.evolution(self._existing_columns(), plan)
        if change.added or change.widened:
            with merge.stamped(self._spark, self._commit):
                evolve.apply(self._spark, str(self._path), change)
            names = [name for name, _, _ in change.added] + [name for name, _ in change.widened]
            log.info("merge.columns_changed", table=self._work.full_name, columns=names)
            self._wrote(plan)

    # ── rows ────────────────────

    @cached_property
    def _raw(self) -> DataFrame:
        return read_slices(self._spark, self._shared.settings.kafka, self._work.data_slices)

    def _merge_records(self, plan: TableLayout | None) -> None:
        if plan is None:
            if self._record.skipped is None:
                judged = undecodable(self._raw, self._work.snapshot_topic)
                self._quarantine(judged, judged.count())
            return
        if self._table_exists:
            self._ready_table(plan)
            self._merge_into_table(plan)
        else:
            self._append_first_rows(plan)

    def _append_first_rows(self, plan: TableLayout) -> None:
        """The first rows of a table: no MERGE, nothing kept; for its deletes, if any, it is read again."""
        seen = Seen(plan, self._state.safe_horizon)
        rows = self._winners(plan, seen)
        merge.append(rows, str(self._path), self._commit)
        self._wrote(plan)
        self._count(seen, plan)
        if seen.tombstones:
            self._keep_tombstones(self._winners(plan, None), plan)

    def _merge_into_table(self, plan: TableLayout) -> None:
        """The newest record per key is computed once and kept until MERGE and tombstones are written."""
        seen = Seen(plan, self._state.safe_horizon)
        rows = self._winners(plan, seen)
        if self._before.tombstones:
            overtaken = tombstones.read(
                self._spark, self._shared.places.tombstones, self._before.tombstones, _keys(plan)
            )
            rows = merge.not_overtaken(rows, overtaken, plan.keys)
        with merge.held(rows) as kept:
            self._count(seen, plan)
            if not seen.winners:
                return
            known = self._known_range(plan)
            if _all_new(seen.key_range, known):
                merge.append(kept, str(self._path), self._commit)
            else:
                condition = pruning(_range_column(plan), seen.key_range, known)
                merge.merge(kept, str(self._path), plan.keys, plan.names, self._commit, condition)
            self._wrote()
            if seen.tombstones:
                self._keep_tombstones(kept, plan)

    def _winners(self, plan: TableLayout, seen: Seen | None) -> DataFrame:
        judged = decoded(self._raw, plan, self._work.snapshot_topic)
        if seen is not None:
            judged = judged.observe(seen.records, F.count_if(F.col(REASON).isNotNull()).alias("bad"))
        rows = merge.winners(merge.admitted(judged, self._before.state, self._state), plan.keys)
        return rows if seen is None else rows.observe(seen.rows, *seen.measures)

    def _count(self, seen: Seen, plan: TableLayout) -> None:
        known, first = self._known_range(plan), self._before.last_commit < 0 and not self._before.range_of
        spanned = _spanning(known, seen.key_range) if first or known is not None else None
        merged = self._record.merged + seen.winners
        self._record = replace(self._record, merged=merged, key_range=spanned, range_of=plan.keys)
        if seen.bad:
            self._quarantine(decoded(self._raw, plan, self._work.snapshot_topic), seen.bad)

    def _known_range(self, plan: TableLayout) -> tuple[int, int] | None:
        """The range of all keys in the table; None once the key has become another: nobody knows it then."""
        return self._before.key_range if self._before.range_of == plan.keys else None

    def _keep_tombstones(self, rows: DataFrame, plan: TableLayout) -> None:
        root, keys = self._shared.places.tombstones, _keys(plan)
        deletes = tombstones.pending(rows, self._state).select(
            *[evolve.quoted(name) for name, _ in keys], POSITION
        )
        kept = self._record.tombstones
        if len(kept) >= tombstones.MANY_FOLDERS:
            deletes = deletes.unionByName(tombstones.read(self._spark, root, kept, keys))
            kept = ()
        folder = tombstones.write(deletes, root, f"{self._folder}/{self._label}", keys)
        self._record = replace(self._record, tombstones=(*kept, folder))

    # ── what else a batch leaves ────────────────────

    def _quarantine(self, judged: DataFrame, count: int) -> None:
        with self._shared.quarantine:
            quarantine.write(self._not_quarantined(self._raw), judged, str(self._shared.places.quarantine), self._commit)
        self._record = replace(self._record, quarantined=self._record.quarantined + count)
        log.error("merge.quarantined", table=self._work.full_name, records=count, batch_id=self._batch_id)

    def _not_quarantined(self, records: DataFrame) -> DataFrame:
        """The records without those that an attempt before the table was set aside has put into quarantine."""
        path = self._shared.places.quarantine
        if self._before.set_aside is None or not evolve.table_exists(path):
            return records
        there = self._spark.read.format("delta").load(str(path)).select("topic", "partition", "offset")
        return records.join(there, ["topic", "partition", "offset"], "left_anti")

    def _quarantine_markers(self) -> None:
        bad = self._work.bad_markers
        if bad:
            with self._shared.quarantine:
                rows = self._not_quarantined(quarantine.marker_rows(self._spark, bad, self._commit))
                quarantine.write_markers(rows, str(self._shared.places.quarantine), self._commit)
            self._record = replace(self._record, quarantined=self._record.quarantined + len(bad))
            log.error("merge.bad_markers", table=self._work.full_name, markers=len(bad), reason=bad[0].reason)

    def _trust_table(self) -> None:
        """Before a write to a table that is there: it must be as this job left it, nothing of it put back."""
        name, query_id = self._work.full_name, self._shared.query_id
        known = self._shared.trusted.get(name)
        if known is not None and has_version(self._path, known.written):
            version = require_nothing_put_back(self._path, query_id, known.checked)
        else:
            version = require_own_table(self._path, query_id, self._before.last_commit, self._batch_id)
        self._shared.trusted[name] = Trusted(version, version)
        self._note_commits(version, version)  # of an earlier attempt: this one may find nothing left to write

    def _wrote(self, plan: TableLayout | None = None) -> None:
        known = self._shared.trusted.get(self._work.full_name, Trusted(-1, -1))
        written = newest_version(self._path, known.written)
        self._shared.trusted[self._work.full_name] = replace(known, written=written)
        self._note_commits(known.checked + 1, written)
        if plan is not None:
            self._shared.columns[self._work.full_name] = (*plan.columns, (POSITION, T.StringType()))

    def _note_commits(self, first: int, last: int) -> None:
        """Remember that this batch wrote to the table, if one of these versions says so."""
        query_id = self._shared.query_id
        if any(is_commit_of(self._path, version, query_id, self._batch_id) for version in range(first, last + 1)):
            writes = self._before.writes + 1  # a batch counts once, however often it writes
            self._record = replace(self._record, last_commit=self._batch_id, writes=writes)


def _usable(
    subject: str, schema: RegisteredSchema, build: Callable[[RegisteredSchema], Writer]
) -> Writer | None:
    """The writer of a schema; None for one that no source table has."""
    try:
        return build(schema)
    except (RegistryError, UnsupportedTypeError, ValueError, KeyError, TypeError) as error:
        log.warning("merge.schema_not_usable", subject=subject, schema_id=schema.id, reason=str(error))
        return None


class Seen:
    """What is counted while the rows pass: no job of its own."""

    def __init__(self, plan: TableLayout, safe_horizon: str) -> None:
        self.records = Observation()
        self.rows = Observation()
        late = F.col(DELETED) & (F.col(POSITION) > F.lit(safe_horizon))
        self.measures = [F.count(F.lit(1)).alias("winners"), F.count_if(late).alias("tombstones")]
        ranged = _range_column(plan)
        if ranged is not None:
            column = F.col(evolve.quoted(ranged))
            self.measures += [F.min(column).alias("low"), F.max(column).alias("high")]

    @property
    def bad(self) -> int:
        """Records that cannot be merged."""
        return int(self.records.get.get("bad", 0))

    @property
    def winners(self) -> int:
        """Records that are the newest of their key."""
        return int(self.rows.get.get("winners", 0))

    @property
    def tombstones(self) -> int:
        """Deletes that a later batch may need."""
        return int(self.rows.get.get("tombstones", 0))

    @property
    def key_range(self) -> tuple[int, int] | None:
        """Smallest and largest value of the first key column; None when it is no integer or nothing came."""
        found = self.rows.get
        return (found["low"], found["high"]) if found.get("low") is not None else None


def _range_column(plan: TableLayout) -> str | None:
    """The first key column, if it is an integer."""
    name = plan.keys[0]
    integers = (T.ShortType, T.IntegerType, T.LongType)
    return name if isinstance(plan.types[name], integers) else None


def pruning(name: str | None, batch: tuple[int, int] | None, table: tuple[int, int] | None) -> str:
    """A condition on the target `t` to skip files by, where a batch touches few of the keys; else "".

    Its constants become part of the code Spark generates and compiles: they are rounded to a power of two
    above the range, so that a stretch of keys that moves slowly compiles once, and left out where little
    can be skipped.
    """
    if name is None or batch is None or table is None:
        return ""
    (low, high), span = batch, table[1] - table[0]
    step = 1 << max(_LEAST_RANGE_BITS, (high - low).bit_length())
    if span < _FEW_RANGES * step:
        return ""
    return (
        f"t.{evolve.quoted(name)} BETWEEN {low // step * step} AND {min((high // step + 1) * step, _LARGEST)}"
    )


def _all_new(batch: tuple[int, int] | None, table: tuple[int, int] | None) -> bool:
    """Whether every key of a batch is above all keys that ever were in the table: nothing can match."""
    return batch is not None and table is not None and batch[0] > table[1]


def _spanning(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def _keys(plan: TableLayout) -> list[tuple[str, T.DataType]]:
    return [(name, plan.types[name]) for name in plan.keys]
