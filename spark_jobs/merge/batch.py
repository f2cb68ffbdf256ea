"""One micro-batch: from offsets to tables, tombstones and state, in steps that can be repeated.

In the words of DESIGN §6:

1. the offsets of the batch are read from the checkpoint; markers are split from rows (`work`);
2. per table, in a small pool (`table`): decode, drop snapshot rows under the guard and everything below the
   floor, keep the highest position per key;
3. drop what a tombstone of an earlier batch has overtaken;
4. one guarded MERGE (the first rows of a table are appended), stamped with query, batch and progress; this
   batch's deletes are kept as tombstones while a row could still need them;
5. rows below a floor go: truncate, drop, sweep after a complete snapshot; so do those of sweeps that are due;
6. the state of the batch is written, then `progress.json`; then Spark ends the batch.

A crash at any point repeats the batch with the same offsets and the state of the batch before it: every step
above gives the same result again.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import local
from typing import Final

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from schemas.errors import RegistryError, SinkError
from schemas.settings import Settings
from schemas.topics import key_subject, state_topic, value_subject
from spark_jobs.kafka.admin import id_of_anchor, is_same_producer, require_same_topics, topic_ids
from spark_jobs.kafka.producer_schemas import GivenSchemas
from spark_jobs.kafka.read import (
    Offsets,
    Slice,
    batch_offsets,
    forget_offsets,
    lost_partitions,
    slices_between,
)
from spark_jobs.kafka.schema_registry import SchemaRegistry
from spark_jobs.merge import trimmed_topics as beginning
from spark_jobs.merge.state import (
    JobState,
    StateStore,
    TableRecord,
    checkpoint_query_id,
    progress_document,
    was_written_by,
    write_atomically,
)
from spark_jobs.merge.table_input import TableWork, topic_tables, works_of
from spark_jobs.merge.table_retry import until_done
from spark_jobs.merge.table_set_aside import (
    begun_again,
    cut_short,
    half_written,
    is_of_one_table,
    set_aside,
    unread,
)
from spark_jobs.merge.target_batch import LOOK_AGAIN_S, Shared, TableBatch
from spark_jobs.merge.used_schemas import KnownSchemas
from spark_jobs.spark_errors import reason_of
from spark_jobs.store.sink_layout import Places

log = structlog.get_logger()

POOL_THREADS: Final = 2
_NEARLY_FULL: Final = 0.9

Step = Callable[[str, int], None]


def no_step(_name: str, _batch_id: int) -> None:
    """What happens after each step of a batch when nobody watches."""


class BatchMerger:
    """Called by Spark with every batch; writes the tables and everything the next batch needs.

    `on_step` is told of each step that is done; what it raises ends the batch there, as a crash would.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        registry: SchemaRegistry,
        on_step: Step = no_step,
        stops: Callable[[], bool] = lambda: False,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._registry = registry
        self._on_step = on_step
        self._stops = stops
        self._places = Places.of(settings.sink)
        self._store = StateStore(self._places.state)
        self._tables = topic_tables(spark, settings)
        self._shared: Shared | None = None
        self._pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="merge")
        self._threads = local()
        self._anchor = state_topic(settings.name, settings.kafka.topic_delimiter)
        self._is_first = True
        self._places_of: dict[str, tuple[str, str]] = {}
        self._schemas_seen: dict[str, tuple[float, tuple[int, ...]]] = {}
        self._failed_with: dict[str, tuple[int, ...]] = {}
        self.state: JobState | None = None

    def close(self) -> None:
        """Let the pool's threads go."""
        self._pool.shutdown(wait=True)

    def __call__(self, _records: DataFrame, batch_id: int) -> None:
        """Merge a batch. Its records are read by offset; Spark's own frame of them is not needed."""
        started = time.monotonic()
        shared = self._shared_by_tables()
        shared.given.begin()
        before = self._store.load(shared.query_id, batch_id - 1)
        start, ends = (batch_offsets(self._places.checkpoint, number) for number in (batch_id - 1, batch_id))
        slices, topics, examined = self._examined(start, ends, before, batch_id)
        works = works_of(self._spark, self._settings.kafka, self._tables, slices, ends)
        records = dict(before.tables) | examined | self._merged(works, before, batch_id)
        self._on_step("merged", batch_id)
        state = JobState(shared.query_id, batch_id, records, _retired(before, records), topics)
        self._store.save(state)
        self._on_step("saved", batch_id)
        for folder in before.retired:
            shutil.rmtree(self._places.tombstones / folder, ignore_errors=True)
        self._tell(before, state, slices, time.monotonic() - started)
        self.state = state
        self._is_first = False
        self._on_step("told", batch_id)

    def _examined(
        self, start: Offsets, ends: Offsets, before: JobState, batch_id: int
    ) -> tuple[list[Slice], dict[str, str], dict[str, TableRecord]]:
        """What the batch reads, the ids of all topics that were read, and records of tables that are not merged in it.

        A topic that is missing, shorter than what was read of it, or another of the same name, sets its table aside. It ends the
        batch where the producer is another one as well, and where tables are not to be set aside.
        """
        there = before.topics.keys() | start.keys() | ends.keys()
        self._places_of |= {name: self._tables.place_of(name, there) for name in before.tables.keys() - self._places_of.keys()}
        topics = {name: self._tables.topics(self._places_of[name]) for name in before.tables}
        owners = {topic: name for name, pair in topics.items() for topic in pair}
        due = {name for name, record in before.tables.items() if record.set_aside is not None and self._is_due(name, record)}
        lost = {topic for topic, _, _ in lost_partitions(start, ends)}
        ours = lost & (before.topics.keys() | owners.keys())
        slices = slices_between(start, ends, lost)
        missing = {owners[topic] for topic in ours if topic in owners}
        if ours and not self._concerns_tables_only(before, ours, missing, topics):  # the state topic may be missing as well
            self._withdraw(ours, before, slices, batch_id)
            slices_between(start, ends, lost - ours)
        self._tables.expect(part.topic for part in slices)
        slices = [part for part in slices if self._tables.of(part.topic) is not None]  # else another producer's
        read = {part.topic for part in slices}
        looked_at = due | {owners[topic] for topic in read | ours if topic in owners}
        ids = topic_ids(self._spark, self._settings.kafka, read.union(*(topics[name] for name in looked_at)))
        replaced = {topic for topic, ident in ids.items() if before.topics.get(topic, ident) != ident}
        affected = {owners[topic] for topic in ours | replaced if topic in owners}
        if replaced and not self._concerns_tables_only(before, ours | replaced, affected, topics):
            self._withdraw(ours, before, slices, batch_id)
            slices_between(start, ends, lost - ours)
            require_same_topics(self._spark, self._settings.kafka, replaced, before.topics)
        now_ms = time.time_ns() // 1_000_000
        records: dict[str, TableRecord] = {}
        for name in sorted(affected | due):
            record, gone = before.tables[name], replaced.intersection(topics[name])
            if gone:
                records[name] = begun_again(record, topics[name], gone, now_ms)
            elif (reason := cut_short(record, topics[name], ends)) is not None:
                records[name] = set_aside(record, reason, now_ms)
            elif not any(unread(record, topics[name], ends)):
                records[name] = replace(record, set_aside=None)
        for name, record in records.items():
            if self._wrote(self._places.table(*self._places_of[name]), batch_id):  # by an attempt before a crash
                records[name] = half_written(record, batch_id)
            self._log_set_aside(name, before.tables[name], record)
        resting = {name for name, record in before.tables.items() if record.set_aside is not None} | affected
        left_out = {topic for name in resting for topic in topics[name]}
        slices = [part for part in slices if part.topic not in left_out]
        for name in sorted(due - records.keys()):
            slices.extend(unread(before.tables[name], topics[name], ends))
        return slices, {**before.topics, **ids, **self._anchor_of(before)}, records

    def _concerns_tables_only(
        self, before: JobState, changed: AbstractSet[str], affected: AbstractSet[str], topics: Mapping[str, tuple[str, str]]
    ) -> bool:
        """Whether topics that are missing or replaced are a matter of their tables, which may be set aside."""
        if self._settings.on_table_error == "stop" or not changed <= {topic for name in affected for topic in topics[name]}:
            return False
        others = before.topics.keys() - {topic for name in affected for topic in topics[name]}
        return is_same_producer(self._spark, self._settings.kafka, self._anchor, before.topics, others)

    def _withdraw(self, topics: AbstractSet[str], before: JobState, slices: Sequence[Slice], batch_id: int) -> None:
        """Have a batch that finds topics of ours cut short begin anew at the next start, with other offsets.

        So that one looks again: a broker may have been behind, a right missing. A topic that was made anew it knows by its id.
        Topics of another producer, which are passed over, may go. A batch that an attempt has written to some table keeps
        its offsets: Delta would skip what else it held then.
        """
        if not topics or not topics <= before.topics.keys():
            return
        places = {self._places_of[name] for name in before.tables} | {self._place_if_known(part.topic) for part in slices}
        folders = [self._places.table(*place) for place in places if place is not None]
        if any(self._wrote(folder, batch_id) for folder in (*folders, self._places.quarantine)):
            advice = "it goes on with on_table_error: set_aside, which takes the tables up again when their topics are back"
            log.warning("merge.batch_not_withdrawn", batch_id=batch_id, topics=sorted(topics), advice=advice)
            return
        log.warning("merge.batch_withdrawn", batch_id=batch_id, topics=sorted(topics))
        forget_offsets(self._places.checkpoint, batch_id)

    def _place_if_known(self, topic: str) -> tuple[str, str] | None:
        """The table of a topic; None where it is another producer's, or the state topic cannot be read."""
        with suppress(SinkError, PySparkException, Py4JError):
            return self._tables.of(topic)
        return None

    def _wrote(self, path: Path, batch_id: int) -> bool:
        """Whether an attempt at this batch has written to a table."""
        with suppress(SinkError):
            return was_written_by(path, self._shared_by_tables().query_id, batch_id)
        return False

    def _anchor_of(self, before: JobState) -> dict[str, str]:
        """The id of the producer's state topic, while it is not known."""
        if self._anchor in before.topics:
            return {}
        ident = id_of_anchor(self._spark, self._settings.kafka, self._anchor)
        return {self._anchor: ident} if ident else {}

    def _is_due(self, name: str, record: TableRecord) -> bool:
        """Whether a table that is set aside is retried now: in the first batch, after its pause, or with another schema."""
        assert record.set_aside is not None
        if self._is_first or time.time_ns() // 1_000_000 >= record.set_aside.retry_ms:
            return True
        return self._schemas(name) != self._failed_with.get(name)

    def _schemas(self, name: str) -> tuple[int, ...]:
        """The schemas the registry has of a table, asked for now and then; what was known where it does not answer."""
        now, (asked, known) = time.monotonic(), self._schemas_seen.get(name, (-LOOK_AGAIN_S, ()))
        if now - asked >= LOOK_AGAIN_S:
            changes, _ = self._tables.topics(self._places_of[name])
            subjects = (value_subject(changes), key_subject(changes))
            try:
                known = tuple(schema.id for subject in subjects for schema in self._registry.versions(subject))
            except RegistryError as error:
                log.warning("merge.schemas_unknown", table=name, reason=str(error))
            self._schemas_seen[name] = (now, known)
        return known

    def _shared_by_tables(self) -> Shared:
        if self._shared is None:
            query_id = checkpoint_query_id(self._places.checkpoint) or ""
            known = KnownSchemas(self._places.schemas)
            given = GivenSchemas.of_producer(self._spark, self._settings)
            self._shared = Shared(
                self._settings, self._registry, self._places, query_id, known, stops=self._stops, given=given
            )
        return self._shared

    def _merged(self, works: Sequence[TableWork], before: JobState, batch_id: int) -> dict[str, TableRecord]:
        shared = self._shared_by_tables()

        def run(work: TableWork) -> tuple[str, TableRecord]:
            known = before.tables.get(work.full_name, TableRecord())
            begins_again = known.set_aside is not None and known.set_aside.begins_again
            table = replace(work, begins_again=begins_again)
            record = beginning.cut(known, table)
            try:
                if table.untold is not None:
                    raise SinkError(f"{table.untold}; it is asked again")
                if table.lost is not None and self._settings.on_table_error == "stop":
                    advice = "start the merge job on an empty sink path and snapshot again, or with on_table_error: set_aside"
                    raise SinkError(f"{table.lost}, or {advice}")
                done = until_done(
                    lambda: TableBatch(shared, self._session(), table, record, batch_id).run(),
                    lambda: shared.forget(work.full_name),
                    work.full_name,
                    batch_id,
                )
            except Exception as error:  # what is of one table ends with it
                if self._settings.on_table_error == "stop" or not is_of_one_table(error):
                    raise
                shared.forget(work.full_name)
                return work.full_name, self._set_aside(work, known, error, batch_id)
            if known.set_aside is not None:
                log.info("merge.table_taken_up", table=work.full_name)
            return work.full_name, done

        return dict(self._pool.map(run, works))

    def _set_aside(self, work: TableWork, known: TableRecord, error: Exception, batch_id: int) -> TableRecord:
        """The record of a table that could not be merged: as it was, but for what the attempt has written already."""
        path, name = self._places.table(work.database, work.name), work.full_name
        if self._wrote(path, batch_id):
            known = half_written(known, batch_id)
        folder = self._places.tombstones / path.relative_to(self._places.sink) / str(batch_id)
        shutil.rmtree(folder, ignore_errors=True)  # none of the state's: the next attempt writes its own
        record = set_aside(known, reason_of(error), time.time_ns() // 1_000_000)
        self._places_of[name] = (work.database, work.name)
        self._schemas_seen.pop(name, None)
        self._failed_with[name] = self._schemas(name)
        self._log_set_aside(name, known, record)
        return record

    def _log_set_aside(self, name: str, before: TableRecord, record: TableRecord) -> None:
        """Say once that a table is set aside, and again when the reason is another."""
        if record.set_aside is None:
            log.info("merge.table_taken_up", table=name)
            return
        is_news = before.set_aside is None or before.set_aside.reason != record.set_aside.reason
        tell = log.error if is_news else log.debug
        tell("merge.table_set_aside", table=name, reason=record.set_aside.reason, attempts=record.set_aside.attempts)

    def _session(self) -> SparkSession:
        """A session of this thread's own: commits are stamped by session configuration."""
        if not hasattr(self._threads, "session"):
            self._threads.session = self._spark.newSession()
        session: SparkSession = self._threads.session
        return session

    def _tell(self, before: JobState, state: JobState, slices: Sequence[Slice], seconds: float) -> None:
        read = sum(part.end - max(part.start, 0) for part in slices)
        left = any(record.set_aside is not None for record in state.tables.values())
        caught_up = read < _NEARLY_FULL * self._settings.spark.max_batch_records and not left
        document = progress_document(state, time.time_ns() // 1_000_000, caught_up=caught_up)
        write_atomically(self._places.progress, json.dumps(document, indent=1))
        merged = document["rows_total"] - sum(record.merged for record in before.tables.values())
        tell = log.info if merged else log.debug
        tell("merge.batch", batch_id=state.batch_id, records=read, merged=merged, seconds=round(seconds, 2))


def _retired(before: JobState, records: Mapping[str, TableRecord]) -> tuple[str, ...]:
    """Tombstone folders that counted before this batch and count no more."""
    now = {item.path for record in records.values() for item in record.tombstones}
    then = {item.path for record in before.tables.values() for item in record.tombstones}
    return tuple(sorted(then - now))
