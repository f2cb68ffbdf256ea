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
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import Final

import structlog
from pyspark.sql import DataFrame, SparkSession

from schemas.settings import Settings
from spark_jobs.again import until_done
from spark_jobs.kafka_admin import require_same_topics
from spark_jobs.known_schemas import KnownSchemas
from spark_jobs.places import Places
from spark_jobs.progress import (
    JobState,
    StateStore,
    TableRecord,
    checkpoint_query_id,
    progress_document,
    write_atomically,
)
from spark_jobs.read import Offsets, Slice, batch_offsets, forget_offsets, lost_partitions, slices_between
from spark_jobs.registry import SchemaRegistry
from spark_jobs.table import Shared, TableBatch
from spark_jobs.work import TableWork, topic_tables, works_of

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
        self.state: JobState | None = None

    def close(self) -> None:
        """Let the pool's threads go."""
        self._pool.shutdown(wait=True)

    def __call__(self, _records: DataFrame, batch_id: int) -> None:
        """Merge a batch. Its records are read by offset; Spark's own frame of them is not needed."""
        started = time.monotonic()
        shared = self._shared_by_tables()
        before = self._store.load(shared.query_id, batch_id - 1)
        start, ends = (batch_offsets(self._places.checkpoint, number) for number in (batch_id - 1, batch_id))
        slices = self._slices(start, ends, before, batch_id)
        works = works_of(self._spark, self._settings.kafka, self._tables, slices, ends)
        topics = self._same_topics(works, before)
        records = dict(before.tables) | self._merged(works, before, batch_id)
        self._on_step("merged", batch_id)
        state = JobState(shared.query_id, batch_id, records, _retired(before, records), topics)
        self._store.save(state)
        self._on_step("saved", batch_id)
        for folder in before.retired:
            shutil.rmtree(self._places.tombstones / folder, ignore_errors=True)
        self._tell(before, state, slices, time.monotonic() - started)
        self.state = state
        self._on_step("told", batch_id)

    def _slices(self, start: Offsets, ends: Offsets, before: JobState, batch_id: int) -> list[Slice]:
        """What the batch holds. One that finds a topic of ours cut short ends here at every attempt, before anything is written.

        So the next start may look again: a broker may have been behind, a right missing. A topic that was made anew it knows
        by its id. Topics of another producer, which are passed over, may go.
        """
        lost = {topic for topic, _, _ in lost_partitions(start, ends)}
        places = [(database, table) for database, _, table in (name.partition(".") for name in before.tables)]
        ours = lost & set(before.topics).union(*(self._tables.topics(place) for place in places))
        if ours and ours <= before.topics.keys():
            log.warning("merge.batch_withdrawn", batch_id=batch_id, topics=sorted(ours))
            forget_offsets(self._places.checkpoint, batch_id)
        return slices_between(start, ends, lost - ours)

    def _same_topics(self, works: Sequence[TableWork], before: JobState) -> dict[str, str]:
        """The ids of all topics that were read; those of this batch are asked for: they may be made anew at any time."""
        read = {part.topic for work in works for part in work.slices}
        ids = require_same_topics(self._spark, self._settings.kafka, read, before.topics)
        return {**before.topics, **{topic: ident for topic, ident in ids.items() if ident}}

    def _shared_by_tables(self) -> Shared:
        if self._shared is None:
            query_id = checkpoint_query_id(self._places.checkpoint) or ""
            known = KnownSchemas(self._places.schemas)
            self._shared = Shared(self._settings, self._registry, self._places, query_id, known, stops=self._stops)
        return self._shared

    def _merged(self, works: Sequence[TableWork], before: JobState, batch_id: int) -> dict[str, TableRecord]:
        shared = self._shared_by_tables()

        def run(work: TableWork) -> tuple[str, TableRecord]:
            record = before.tables.get(work.full_name, TableRecord())
            done = until_done(
                lambda: TableBatch(shared, self._session(), work, record, batch_id).run(),
                lambda: shared.forget(work.full_name),
                work.full_name,
                batch_id,
            )
            return work.full_name, done

        return dict(self._pool.map(run, works))

    def _session(self) -> SparkSession:
        """A session of this thread's own: commits are stamped by session configuration."""
        if not hasattr(self._threads, "session"):
            self._threads.session = self._spark.newSession()
        session: SparkSession = self._threads.session
        return session

    def _tell(self, before: JobState, state: JobState, slices: Sequence[Slice], seconds: float) -> None:
        read = sum(part.end - max(part.start, 0) for part in slices)
        caught_up = read < _NEARLY_FULL * self._settings.spark.max_batch_records
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
