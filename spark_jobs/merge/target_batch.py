"""One table's part of one batch: its columns, its rows, its tombstones.

Enter a `TableWork` and what is remembered of the table, leave what is to be remembered next. The steps are
those of `schemas.merge_rule.MemoryTable.apply`, on columns.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
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
from spark_jobs.decode.avro_records import (
    DELETED,
    OFFSET,
    PARTITION,
    POSITION,
    REASON,
    SNAPSHOT,
    WRITER,
    TableLayout,
    Writer,
    decoded,
    framed_parts,
    key_writer,
    layout,
    newest_positions,
    undecodable,
    value_writer,
)
from spark_jobs.kafka.producer_schemas import GivenSchemas
from spark_jobs.kafka.read import read_slices
from spark_jobs.kafka.schema_registry import RegisteredSchema, SchemaRegistry
from spark_jobs.merge import tombstones
from spark_jobs.merge import trimmed_topics as beginning
from spark_jobs.merge.state import (
    TableRecord,
    has_version,
    is_commit_of,
    left_out_text,
    newest_version,
    require_nothing_put_back,
    require_own_table,
    table_progress,
)
from spark_jobs.merge.table_input import TableWork
from spark_jobs.merge.used_schemas import KnownSchemas, Part, chronological, reused_ids
from spark_jobs.sinks.delta import alter as evolve
from spark_jobs.sinks.delta import quarantine_table as quarantine
from spark_jobs.sinks.delta import writes as merge
from spark_jobs.store.sink_layout import Places

log = structlog.get_logger()

MANY_VERSIONS: Final = 6
LOOK_AGAIN_S: Final = 10.0
COMPACT_AFTER: Final = 50
COMPACT_SPREAD: Final = 16
_LEAST_RANGE_BITS: Final = 16
_FEW_RANGES: Final = 8
LOST_WAIT_S: Final = 30.0
_ASK_AGAIN_S: Final = 0.5
_LARGEST: Final = 2**63 - 1
LOST: Final = (
    "the schema registry no longer has {}: a producer that runs registers it again, at the latest with the table's next snapshot; "
    "then tidemark quarantine retry"
)
NO_SCHEMA: Final = "the schema registry has no usable schema of the table"
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
    `known` are the schemas that were ever used, `given` those that the producer keeps, `lost` the subjects that nobody has any more
    and since when.
    """

    settings: Settings
    registry: SchemaRegistry
    places: Places
    query_id: str
    known: KnownSchemas
    given: GivenSchemas = field(default_factory=GivenSchemas)
    columns: dict[str, evolve.Columns] = field(default_factory=dict)
    trusted: dict[str, Trusted] = field(default_factory=dict)
    looked_at: dict[str, float] = field(default_factory=dict)
    writers: dict[tuple[str, int, str], Writer | None] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    stops: Callable[[], bool] = field(default=lambda: False)
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
        self._state = before.state.read(markers, work.change_ends)
        if work.begins_again and not before.change_offsets:
            self._state = self._state.with_changes_anew()
        self._left_out: dict[int, int] | None = None
        self._oldest: str | None = None
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
        needs_plan = self._needs_plan
        plan = self._plan() if needs_plan else None
        older_rows = self._table_exists
        if self._work.data_slices:
            self._merge_records(plan)
        elif plan is not None:
            self._ready_table(plan)
        if plan is not None or self._left_out is not None or not needs_plan:
            self._settle()
        self._delete_what_is_gone(older_rows=older_rows)
        self._retype_if_due()
        self._compact_if_due()
        return self._record

    def _settle(self) -> None:
        """Conclude what the rows allow; where some were left out, no snapshot that they may be of deletes a row or counts."""
        self._state = self._state.settled(self._work.change_ends, self._left_out)
        if self._record.skipped is not None:
            self._state = self._state.giving_up()
        self._record = replace(self._record, state=self._state)
        if self._state.is_consistent:
            self._record = replace(self._record, incomplete=None)
        self._commit = replace(self._commit, progress=table_progress(self._record))
        if self._state.gap is not None and self._before.state.gap is None:
            log.warning("merge.records_left_out", table=self._work.full_name, reason=left_out_text(self._state))

    def _delete_what_is_gone(self, *, older_rows: bool) -> None:
        """Delete below the floor, in a table of this batch only what lies there, and sweep."""
        rose = self._state.floor > self._before.state.floor
        if rose and (older_rows or (self._oldest is not None and self._oldest < self._state.floor)):
            self._trust_table()
            merge.delete_below(self._spark, str(self._path), self._state.floor, self._commit)
            self._wrote()
        if self._state.due and self._table_exists:
            self._sweep()

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

    def _retype_if_due(self) -> None:
        """Give columns the types of the newest records when a floor has taken every row from before, where no value is lost.

        The schemas whose values they do not hold any more are retired, until a record of one is above the floor again.
        """
        if not (self._record.retype or self._state.floor > self._before.state.floor) or not self._table_exists:
            return
        versions, keys = self._value_writers(), self._key_writers()
        newest = self._record.written_by
        writer = next((one for one in versions if newest and one.id == newest[0]), None)
        awaited = len(versions) > 1 and (newest is None or newest[1] < self._state.floor)
        self._record = replace(self._record, retype=awaited)
        if awaited or not keys or not versions:
            return
        today = (writer or versions[-1], self._todays_key_last(keys)[-1])
        existing = self._existing_columns()
        wanted = evolve.narrowing(evolve.own_columns(existing), today)
        if wanted:
            self._trust_table()
            wanted = evolve.without_loss(self._spark, str(self._path), wanted)
        if wanted:
            with merge.stamped(self._spark, self._commit):
                evolve.apply(self._spark, str(self._path), evolve.Evolution((), tuple(wanted)))
            taken = dict(wanted)
            self._wrote()
            columns = tuple((name, taken.get(name, kind)) for name, kind in existing)
            self._shared.columns[self._work.full_name] = columns
            retired = evolve.outgrown(evolve.own_columns(columns), (*versions, *keys))
            keys_of = {name.lower() for name in self._record.range_of}
            known = None if keys_of & {name.lower() for name in taken} else self._record.key_range
            self._record = replace(self._record, retired=retired, key_range=known)
            log.info("merge.columns_changed", table=self._work.full_name, columns=sorted(taken))

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
    def _is_waited_for(self) -> bool:
        """Whether something cannot go on without the table's schemas: rows, or a snapshot that is complete."""
        complete = self._state.settled(self._work.change_ends)
        return bool(self._work.data_slices) or complete.consistent_at > self._before.state.consistent_at

    @property
    def _needs_plan(self) -> bool:
        """Also without rows a table is made when a snapshot of it is complete, and follows an ALTER."""
        if self._is_waited_for:
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
        """How the records are decoded; None while the registry lacks a schema of the table, and where that has no key."""
        topic = self._work.change_topic
        subjects: dict[Part, str] = {"key": key_subject(topic), "value": value_subject(topic)}
        found = {part: self._schemas_of(subject) for part, subject in subjects.items()}
        lost = [subject for part, subject in subjects.items() if not found[part] and self._was_registered(part)]
        if lost and not self._is_waited_for:
            return None
        if lost:
            found |= self._waited_for(subjects, lost)
        for part, subject in subjects.items():
            if found[part]:
                self._shared.lost.pop(subject, None)
        lost = [subject for subject in lost if subject in self._shared.lost]
        if lost:
            self._record = replace(self._record, skipped=None, lost=LOST.format(" and ".join(lost)))
            return None
        self._record = replace(self._record, lost=None)
        versions = self._writers(subjects["value"], "value", found["value"], value_writer)
        keys = self._writers(subjects["key"], "key", found["key"], key_writer)
        if not versions or not (found["key"] or self._work.data_slices):
            return None  # without records it is not known whether the table has a key
        if not found["key"]:
            if self._record.skipped is None:
                log.error("merge.table_skipped", table=self._work.full_name, reason=NO_KEY)
            self._record = replace(self._record, skipped=NO_KEY)
            return None
        if not keys:
            return None
        self._record = replace(self._record, skipped=None)
        existing = evolve.own_columns(self._existing_columns())
        versions = self._todays_value_last(keys, versions, existing)
        present = self._present(versions)
        retired = self._retired(keys, versions, existing, present)
        plan = layout(keys, versions, existing, present, retired)
        if len({writer.text for writer in keys}) == 1:
            return plan
        self._find_key(plan)
        return layout(self._todays_key_last(keys), versions, existing, plan.value_writers, retired)

    def _retired(
        self, keys: Sequence[Writer], versions: Sequence[Writer], existing: evolve.Columns, present: Sequence[Writer] | None
    ) -> tuple[int, ...]:
        """The schemas whose types do not count: none of those with a record above the floor in this batch."""
        outgrown = evolve.outgrown(existing, (*versions, *keys))
        retired = tuple(one for one in self._record.retired if one in outgrown)
        if retired and self._work.data_slices:
            parts = ((self._frames[0], keys), (self._frames[1], versions))
            if any(one.id in retired and one.frame in read for read, writers in parts for one in writers):
                seen = newest_positions(self._raw, layout(keys, versions, existing, present), self._work.snapshot_topic)
                newest = {one: max(part.get(one, NOTHING) for part in (seen.keys, seen.values)) for one in retired}
                retired = tuple(one for one in retired if newest[one] < self._state.floor)
        self._record = replace(self._record, retired=retired)
        return retired

    @cached_property
    def _frames(self) -> tuple[frozenset[bytes], frozenset[bytes]]:
        """What keys and what values of this batch begin with: the ids of their schemas."""
        rows = self._raw.select(F.substring("key", 1, 5), F.substring("value", 1, 5)).distinct().collect()
        keys, values = (frozenset(bytes(row[part]) for row in rows if row[part] is not None) for part in (0, 1))
        return keys, values

    def _value_writers(self) -> list[Writer]:
        subject = value_subject(self._work.change_topic)
        return self._writers(subject, "value", self._schemas_of(subject), value_writer)

    def _key_writers(self) -> list[Writer]:
        subject = key_subject(self._work.change_topic)
        return self._writers(subject, "key", self._schemas_of(subject), key_writer)

    def _find_key(self, plan: TableLayout) -> None:
        """Remember which of several keys the newest record has."""
        if not self._work.data_slices:
            return
        positions = newest_positions(self._raw, plan, self._work.snapshot_topic)
        known = [] if self._record.keyed_by is None else [self._record.keyed_by]
        newest = max([*known, *positions.keys.items()], key=lambda item: item[1], default=None)
        self._record = replace(self._record, keyed_by=newest)

    def _todays_key_last(self, keys: Sequence[Writer]) -> list[Writer]:
        today = None if self._record.keyed_by is None else self._record.keyed_by[0]
        return sorted(keys, key=lambda writer: writer.id == today)

    def _schemas_of(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """What the registry has of a subject now, and what the producer keeps of it; oldest first."""
        answer = self._shared.registry.versions(subject)
        given = self._shared.given.of(subject, answer)
        return chronological(answer, given)

    def _was_registered(self, part: Part) -> bool:
        """Whether there must be a schema: this sink has used one, or records have its id (those without a key have none)."""
        if self._shared.known.known(self._folder, part):
            return True
        return bool(self._work.data_slices) and part in self._framed_parts[0]

    @cached_property
    def _framed_parts(self) -> tuple[frozenset[str], dict[int, int]]:
        return framed_parts(self._raw, self._work.snapshot_topic)

    def _waited_for(self, subjects: Mapping[Part, str], lost: Sequence[str]) -> dict[Part, tuple[RegisteredSchema, ...]]:
        """What the registry has of the subjects once it has all of them again, or when time is up; `shared.lost` names them.

        The producer registers them again. All tables wait once, together: a registry that lost one has often lost all.
        """
        shared = self._shared
        until = min([*shared.lost.values(), time.monotonic()]) + LOST_WAIT_S
        for subject in lost:
            if subject not in shared.lost:
                shared.lost[subject] = time.monotonic()
                log.error("merge.schema_lost", table=self._work.full_name, subject=subject, waits_s=LOST_WAIT_S)
        while True:
            found = {part: self._schemas_of(subject) for part, subject in subjects.items()}
            if all(found[part] for part, subject in subjects.items() if subject in lost) or time.monotonic() >= until:
                return found
            if shared.stops():
                message = f"the job was stopped while it waited for the registry: {LOST.format(' and '.join(lost))}"
                raise RegistryError(message)
            time.sleep(_ASK_AGAIN_S)

    def _writers(
        self,
        subject: str,
        part: Part,
        found: Sequence[RegisteredSchema],
        build: Callable[[RegisteredSchema], Writer],
    ) -> list[Writer]:
        """The usable schemas of a subject, oldest first; records of the others will be quarantined."""
        schemas = self._shared.known.noted(self._folder, part, found)
        reused = reused_ids(schemas)
        writers: list[Writer] = []
        for schema in schemas:
            name = (subject, schema.id, schema.text)
            if name not in self._shared.writers:
                self._shared.writers[name] = _usable(subject, schema, build)
                if schema.id in reused:
                    log.error("merge.schema_id_reused", table=self._work.full_name, subject=subject, schema_id=schema.id)
            writer = self._shared.writers[name]
            if writer is None or (part == "key" and schema.id in reused):
                continue  # of two keys that fit nobody knows which was meant
            if not any((one.id, one.text) == (writer.id, writer.text) for one in writers):
                writers.append(writer)
        return writers

    def _todays_value_last(
        self, keys: Sequence[Writer], versions: list[Writer], existing: evolve.Columns
    ) -> list[Writer]:
        """The versions, last the one of the newest record, where that may have a column that the sink and the last have not.

        A schema that comes back (a column is dropped and added again as it was) keeps its old place in the registry.
        """
        have = {name.lower() for name, _ in existing} | set(versions[-1].by_name)
        more = [writer for writer in versions[:-1] if not have.issuperset(writer.by_name)]
        if not more or not self._work.data_slices or self._frames[1].isdisjoint(writer.frame for writer in more):
            return versions
        positions = newest_positions(self._raw, layout(keys, versions, existing), self._work.snapshot_topic)
        known = [] if self._record.written_by is None else [self._record.written_by]
        today, _ = max([*known, *positions.values.items()], key=lambda item: item[1], default=(versions[-1].id, ""))
        return sorted(versions, key=lambda writer: writer.id == today)

    def _present(self, versions: Sequence[Writer]) -> list[Writer] | None:
        """The versions that records of this batch have, looked up where there are many; None for all."""
        if len(versions) <= MANY_VERSIONS or not self._work.data_slices:
            return None
        return [writer for writer in versions if writer.frame in self._frames[1]] or list(versions[-1:])

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
            if self._record.skipped is not None:
                self._left_out = self._framed_parts[1]
                return
            judged = undecodable(self._raw, self._work.snapshot_topic, self._record.lost or NO_SCHEMA)
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
        self._oldest = seen.oldest
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
            judged = judged.observe(seen.records, *seen.judgements)
        rows = merge.winners(merge.admitted(judged, self._before.state, self._state), plan.keys)
        return rows if seen is None else rows.observe(seen.rows, *seen.measures)

    def _count(self, seen: Seen, plan: TableLayout) -> None:
        known, first = self._known_range(plan), self._before.last_commit < 0 and not self._before.range_of
        spanned = _spanning(known, seen.key_range) if first or known is not None else None
        merged = self._record.merged + seen.winners
        newest = max(filter(None, (self._record.written_by, seen.newest)), key=lambda item: item[1], default=None)
        self._record = replace(self._record, merged=merged, key_range=spanned, range_of=plan.keys, written_by=newest)
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

    def _leave_out(self, judged: DataFrame) -> None:
        """Remember that records with a reason were not merged, and where those of the change topic end."""
        bad = judged.where(F.col(REASON).isNotNull() & ~F.col(SNAPSHOT)).groupBy(PARTITION)
        ends = {row[PARTITION]: row["last"] + 1 for row in bad.agg(F.max(OFFSET).alias("last")).collect()}
        self._left_out = (self._left_out or {}) | ends

    def _quarantine(self, judged: DataFrame, count: int) -> None:
        self._leave_out(judged)
        with self._shared.quarantine:
            quarantine.write(self._not_quarantined(self._raw), judged, str(self._shared.places.quarantine), self._commit)
        self._record = replace(self._record, quarantined=self._record.quarantined + count)
        log.error("merge.quarantined", table=self._work.full_name, records=count, batch_id=self._batch_id)

    def _not_quarantined(self, records: DataFrame) -> DataFrame:
        """The records without those that an attempt before the table was set aside has put into quarantine.

        A record of a topic that was created again may have the place of one of the former topic.
        """
        path = self._shared.places.quarantine
        if self._before.set_aside is None or not evolve.table_exists(path):
            return records
        there = self._spark.read.format("delta").load(str(path))
        same = reduce(
            lambda one, other: one & other,
            [F.col(f"r.{part}").eqNullSafe(F.col(f"q.{part}")) for part in ("topic", "partition", "offset", "key", "value")],
        )
        return records.alias("r").join(there.alias("q"), same, "left_anti")

    def _quarantine_markers(self) -> None:
        bad = self._work.bad_markers
        if bad:
            self._left_out = self._left_out or {}
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
    except (RegistryError, UnsupportedTypeError, ArithmeticError, ValueError, KeyError, TypeError) as error:
        log.warning("merge.schema_not_usable", subject=subject, schema_id=schema.id, reason=str(error))
        return None


class Seen:
    """What is counted while the rows pass: no job of its own."""

    def __init__(self, plan: TableLayout, safe_horizon: str) -> None:
        self.records = Observation()
        self.judgements = [F.count_if(F.col(REASON).isNotNull()).alias("bad")]
        if len(plan.versions) > 1:
            good = F.when(F.col(REASON).isNull(), F.struct(POSITION, WRITER))
            self.judgements.append(F.max(good).alias("newest"))
        self.rows = Observation()
        late = F.col(DELETED) & (F.col(POSITION) > F.lit(safe_horizon))
        self.measures = [
            F.count(F.lit(1)).alias("winners"),
            F.count_if(late).alias("tombstones"),
            F.min(POSITION).alias("oldest"),
        ]
        ranged = _range_column(plan)
        if ranged is not None:
            column = F.col(evolve.quoted(ranged))
            self.measures += [F.min(column).alias("low"), F.max(column).alias("high")]

    @property
    def bad(self) -> int:
        """Records that cannot be merged."""
        return int(self.records.get.get("bad", 0))

    @property
    def newest(self) -> tuple[int, str] | None:
        """The value schema's id of the newest record that can be merged, and the record's position."""
        found = self.records.get.get("newest")
        return None if found is None else (found[WRITER], found[POSITION])

    @property
    def winners(self) -> int:
        """Records that are the newest of their key."""
        return int(self.rows.get.get("winners", 0))

    @property
    def tombstones(self) -> int:
        """Deletes that a later batch may need."""
        return int(self.rows.get.get("tombstones", 0))

    @property
    def oldest(self) -> str | None:
        """The lowest position; None when nothing came."""
        found: str | None = self.rows.get.get("oldest")
        return found

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
