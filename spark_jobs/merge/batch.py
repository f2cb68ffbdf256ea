"""One micro-batch: from offsets to tables, tombstones and state, in steps that can be repeated.

In the words of DESIGN §6:

1. the offsets of the batch are read from the checkpoint; markers are split from rows (`table_input`); how the batch is begun is
   stored (`begun_batch`): an attempt that was cut off is repeated as it was, or refused;
2. per table, in a small pool (`table_batch`): decode, drop snapshot rows under the guard and everything below the floor, keep the
   highest position per key (`source_part`);
3. drop what a tombstone of an earlier batch has overtaken;
4. the steps of the sink (`target_batch`): columns, rows, floors and sweeps, each stamped with query, batch and progress; this
   batch's deletes are kept as tombstones while a row could need them;
5. the chunks that the producer asked for are read from the source, and put (`batch_loads`);
6. the state of the batch is saved, the loads are answered, then `progress.json` is written; then Spark ends the batch.

A crash at any point repeats the batch with the same offsets and the state of the batch before it: every step gives the same result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from threading import local
from typing import Final

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from structlog.contextvars import bind_contextvars

from kafkaio.schema_registry import SchemaRegistry
from kafkaio.slices import Slice
from schemas.delay_histogram import DelayCounter
from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from schemas.settings import Settings
from schemas.sink_figures import BatchCounts
from spark_jobs.loads.source_of_chunks import ChunkSource, open_chunk_source
from spark_jobs.merge.batch_loads import Loads
from spark_jobs.merge.begun_batch import BegunBatch, BegunBatches, EarlierBatch, RowSettings
from spark_jobs.merge.changelog_batch import run_both, run_changelog
from spark_jobs.merge.context import JobContext, MergeParts
from spark_jobs.merge.group_batch import GroupRecords, GroupWork, MemberError
from spark_jobs.merge.job_state import JobStates, MergeState, SourceRecord, retired_folders
from spark_jobs.merge.mirror_batch import run_mirror
from spark_jobs.merge.progress_report import StageClock, TableDelays, publish_progress
from spark_jobs.merge.source_part import require_readable
from spark_jobs.merge.spark_checkpoint import SparkCheckpoint
from spark_jobs.merge.table_batch import TableRecords, run_alone
from spark_jobs.merge.table_input import TableInput, inputs_of
from spark_jobs.merge.table_set_aside import (
    TablesSetAside,
    half_written,
    is_of_one_table,
    log_set_aside,
    result_or_own_error,
    until_done,
)
from spark_jobs.merge.table_topics import without_conclusions
from spark_jobs.merge.tables_by_workers import TablesByWorkers
from spark_jobs.merge.topic_check import ADVICE, BatchBounds, TopicCheck
from spark_jobs.pipeline.table_plan import Group, plan_of
from spark_jobs.pipeline.table_routes import Feed
from spark_jobs.pipeline.udfs import register_udfs
from spark_jobs.sinks.contract import TargetRecord
from spark_jobs.store.sink_layout import TOMBSTONES

log = structlog.get_logger()

POOL_THREADS: Final = 2
NO_ROUTE: Final = "no route takes it into this sink"
_NEARLY_FULL: Final = 0.9
_RUNS: Final = {"mirror": run_mirror, "changelog": run_changelog, "both": run_both}
"""What merges a group, by the mode of the sink."""

Step = Callable[[str, int], None]


def no_step(_name: str, _batch_id: int) -> None:
    """Do nothing after a step of a batch."""


class BatchMerger:
    """Called by Spark with every batch; writes the tables and everything the next batch needs.

    `on_step` is called after each step; what it raises ends the batch there, as a crash would.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        parts: MergeParts,
        registry: SchemaRegistry,
        on_step: Step = no_step,
        stops: Callable[[], bool] = lambda: False,
        open_source: Callable[[Settings], ChunkSource | None] = open_chunk_source,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._parts = parts
        self._registry = registry
        self._on_step = on_step
        self._stops = stops
        self._files = parts.layout.files
        self._checkpoint: SparkCheckpoint = parts.checkpoint
        self._states = JobStates(parts.sink.states(), parts.naming)
        self._tables = parts.tables
        self._check = TopicCheck(spark, settings, self._tables, parts.naming, self._withdraw)
        self._pool = ThreadPoolExecutor(POOL_THREADS, "merge", partial(bind_contextvars, sink=settings.sink.name))
        self._delays = TableDelays()
        self._by_workers = TablesByWorkers(spark, settings.kafka, self._pool, POOL_THREADS)
        self._loads = Loads(spark, self._tables, lambda: open_source(settings))
        self._threads = local()
        self._begun = BegunBatches(parts.layout.files)
        self._row_settings = RowSettings.of(settings)
        self._is_first = True
        self._is_changelog = settings.sink.mode == "changelog"
        self._stops_on_errors = settings.on_table_error == "stop"
        self._aside = TablesSetAside(parts, registry)
        self.state: MergeState | None = None
        self.counts = BatchCounts()
        self.stages = StageClock()

    @property
    def delays(self) -> dict[SourceTable, DelayCounter]:
        """How long changes were on their way, per table, as far as it is known."""
        return self._delays.tables

    def close(self) -> None:
        """Release the threads of the pool."""
        self._pool.shutdown(wait=True)

    def __call__(self, _records: DataFrame, batch_id: int) -> None:
        """Merge a batch. Its records are read by offset; Spark's own frame of them is not needed."""
        started = time.monotonic()
        self.stages.begin()
        context = self._context
        before = self._states.load(context.query_id, batch_id - 1)
        start, ends = (self._checkpoint.offsets(number) for number in (batch_id - 1, batch_id))
        attempt = self._earlier_attempt(batch_id)
        bounds = BatchBounds(batch_id, start, ends, attempt.known(before))
        examined = self._check.examine(bounds, self._aside.due(before, is_first=self._is_first))
        targets = dict(before.targets)
        for table, record in examined.records.items():
            self._note_unmerged(table, before, record, targets, batch_id)
        kafka, source = self._settings.kafka, self._parts.naming.source
        found = inputs_of(self._spark, kafka, self._parts.few, source, self._tables, examined.slices, ends)
        context.plan = plan_of(self._parts.naming.routes, {*before.sources, *(one.table for one in found)})
        context.topic_ids = examined.topics
        self._begin(before, bounds, [one.table for one in found if one.unreadable is None], examined.topics, attempt)
        self.stages.passed("read_s")
        self._on_step("begun", batch_id)
        merged = self._merged([one for one in found if context.plan.has(one.table)], before, batch_id)
        self.stages.passed("merge_s")
        self._on_step("merged", batch_id)
        left_out = {one.table: _left_out(before.source(one.table), one) for one in found if not context.plan.has(one.table)}
        records = {**examined.records, **merged.sources, **left_out}
        sources = {table: self._with_feeds(table, record) for table, record in records.items()}
        sources = {table: self._loads.unwritten(record) for table, record in {**before.sources, **sources}.items()}
        targets |= merged.targets
        loaded = self._loaded(before, sources, targets, batch_id)
        self.stages.passed("load_s")
        self._on_step("loaded", batch_id)
        sources |= {table: records.source for table, records in loaded.items()}
        targets |= {context.target_of(table): one.target for table, one in loaded.items() if table in context.plan.alone}
        state = MergeState(context.query_id, batch_id, sources, targets, retired_folders(before, sources), examined.topics)
        self._states.save(state)
        self._on_step("saved", batch_id)
        self._loads.answer(state)
        self._on_step("answered", batch_id)
        for folder in before.retired:
            self._files.remove(f"{TOMBSTONES}/{folder}")
        self._publish(before, state, examined.slices, time.monotonic() - started)
        self.state = state
        self._is_first = False
        self._on_step("published", batch_id)

    def _loaded(
        self, before: MergeState, sources: Mapping[SourceTable, SourceRecord], targets: Mapping[Target, TargetRecord], batch_id: int
    ) -> dict[SourceTable, TableRecords]:
        """Carry out the loads of all tables, now that the rows of the batch are in their targets."""
        alone = self._context.plan.alone
        records = {
            table: TableRecords(record, targets.get(alone[table], TargetRecord()) if table in alone else TargetRecord())
            for table, record in sources.items()
            if record.loads.pending
        }
        if not records:
            return {}
        saved = self._states.saved(before.query_id, batch_id)
        put = {} if saved is None else {table: saved.source(table).loads.put for table in records}
        return self._loads.carried_out(self._context, before, records, batch_id, put)

    # ── the attempt before ────────────────────

    def _earlier_attempt(self, batch_id: int) -> EarlierBatch:
        """Return what an attempt at this batch before has left; nothing of a batch that is new."""
        context, begun = self._context, self._begun.load()
        if begun is not None and (begun.query_id, begun.batch_id) != (context.query_id, batch_id):
            begun = None if begun.batch_id == batch_id - 1 or not self._is_first else BegunBatch.unknown(context.query_id, batch_id)
        elif begun is None and self._is_first:
            begun = BegunBatch.unknown(context.query_id, batch_id)
        if begun is None:
            return EarlierBatch()
        quarantine = self._parts.sink.quarantine()
        kept = quarantine.records(self._spark) if quarantine.has_commit(context.query_id, batch_id) else None
        names = [] if kept is None else kept.where(F.col("batch_id") == batch_id).select("table").distinct().collect()
        written = frozenset(target for target in begun.all_targets if self._has_commit(target, batch_id))
        return EarlierBatch(begun, written, frozenset(row["table"] for row in names))

    def _begin(
        self,
        before: MergeState,
        bounds: BatchBounds,
        tables: Sequence[SourceTable],
        topics: Mapping[str, str],
        attempt: EarlierBatch,
    ) -> None:
        """Store how the batch is begun, before its first write. `SinkError` if an attempt has written something else."""
        context, routes = self._context, self._parts.naming.routes
        loading = [table for table, record in before.sources.items() if record.loads.pending]
        known = {*tables, *loading} | attempt.tables
        feeds = [feed for table in sorted(known) if table not in context.plan.failed for feed in routes.feeds(table)]
        new = {topic: ident for topic, ident in topics.items() if topic not in before.topics}
        now = self._row_settings.begin(context.query_id, bounds.batch_id, (bounds.start, bounds.ends), feeds, new)
        if attempt.is_unknown:
            written = frozenset(feed.target for feed in feeds if self._has_commit(feed.target, bounds.batch_id))
            attempt = replace(attempt, written=written)
        if attempt.begun is not None:
            read = {topic for table in attempt.tables for topic in self._tables.topics_of(table)}
            attempt.begun.require_same(now, attempt.touched, read)
            now = attempt.begun.of_repeat(now, attempt.touched)
        context.written, context.rebuilt = attempt.written, now.rebuilt
        context.reads_otherwise = attempt.begun is not None and attempt.begun.records not in ("", now.records)
        context.schemas.begin(self._read_before(attempt, feeds))
        if attempt.begun != now:
            self._begun.save(now)

    def _read_before(self, attempt: EarlierBatch, feeds: Iterable[Feed]) -> frozenset[str]:
        """Return the folders of tables that an attempt before has read: by the schemas that are kept there.

        One of an older version may have kept none: then the registry is asked, as that version did.
        """
        context = self._context
        folders = frozenset(context.folder_of(feed.table) for feed in feeds if attempt.has_read(feed.table, feed.target))
        if not attempt.is_unknown:
            return folders
        return frozenset(folder for folder in folders if context.schemas.used.known(folder, "value"))

    # ── tables that are not merged ────────────────────

    def _note_unmerged(
        self, table: SourceTable, before: MergeState, record: SourceRecord, targets: dict[Target, TargetRecord], batch_id: int
    ) -> None:
        """Remember of a table that is not merged in this batch what an attempt before a crash has written."""
        targets |= self._half_written(self._parts.naming.targets_of(table), before, batch_id)
        log_set_aside(table, before.source(table), record)

    def _withdraw(self, bounds: BatchBounds, topics: AbstractSet[str], tables: AbstractSet[SourceTable]) -> None:
        """Have Spark choose the offsets of a batch again; one that an attempt has written to some table keeps them.

        The sink would skip what else the batch held then.
        """
        query_id = self._context.query_id
        quarantined = self._parts.sink.quarantine().has_commit(query_id, bounds.batch_id)
        targets = {target for table in tables for target in self._parts.naming.targets_of(table)}
        if quarantined or any(self._has_commit(target, bounds.batch_id) for target in targets):
            log.warning("merge.batch_not_withdrawn", batch_id=bounds.batch_id, topics=sorted(topics), advice=ADVICE)
            return
        log.warning("merge.batch_withdrawn", batch_id=bounds.batch_id, topics=sorted(topics))
        self._begun.remove()
        self._checkpoint.forget_offsets(bounds.batch_id)

    def _has_commit(self, target: Target, batch_id: int) -> bool:
        """Return whether an attempt at this batch has written to a target."""
        sink = self._context.sink
        sink.forget(target)
        return sink.target(self._spark, target, ()).has_commit(batch_id)

    def _half_written(self, targets: Iterable[Target], before: MergeState, batch_id: int) -> dict[Target, TargetRecord]:
        """Return the records of those targets that an attempt at this batch has written to."""
        written = (target for target in targets if self._has_commit(target, batch_id))
        fed_by = self._context.fed_by
        return {target: half_written(before.target(target), batch_id, fed_by.pop(target, None)) for target in written}

    # ── tables that are merged ────────────────────

    @cached_property
    def _context(self) -> JobContext:
        """What the tables share: made in the first batch, which has the id of the query."""
        return self._parts.context(self._spark, self._settings, self._registry, self._stops)

    def _with_feeds(self, table: SourceTable, record: SourceRecord) -> SourceRecord:
        """Return the record of a table with the rules by which it is merged, where routes are given."""
        routes = self._parts.naming.routes
        if not routes.are_given or table in self._context.plan.failed:
            return record
        return replace(record, feeds={feed.target.text: feed.rule for feed in routes.feeds(table)})

    def _merged(self, inputs: Sequence[TableInput], before: MergeState, batch_id: int) -> GroupRecords:
        """Merge the tables of a batch: what workers can merge in one job first, then one group after the other."""
        context, routes = self._context, self._parts.naming.routes
        alone = {} if self._is_changelog else context.plan.alone
        done = self._by_workers.merged(context, [one for one in inputs if one.table in alone], before, batch_id)
        by_workers = {table for one in done for table in one.sources}
        sources: dict[SourceTable, SourceRecord] = {}
        for table in (one.table for one in inputs if one.table in context.plan.failed):
            error = SinkError(context.plan.failed[table])
            if self._stops_on_errors:
                raise error
            sources[table] = self._aside.record(table, before.source(table), error, batch_id)
        left = [one for one in inputs if one.table in context.plan.alone and one.table not in by_workers]
        wanted = [(Group(routes.feeds(one.table)), [one]) for one in left]
        wanted += [(group, [one for one in inputs if one.table in group.tables]) for group in context.plan.groups]
        wanted = [(group, members) for group, members in wanted if members]
        done += self._pool.map(lambda item: self._merge_group(item[0], item[1], before, batch_id), wanted)
        targets: dict[Target, TargetRecord] = {}
        for found in done:
            sources |= found.sources
            targets |= found.targets
            for table, delays in found.delays.items():
                self._delays.note(table, delays)
        return GroupRecords(sources, targets)

    def _merge_group(self, group: Group, inputs: Sequence[TableInput], before: MergeState, batch_id: int) -> GroupRecords:
        """Merge the tables of a group; set aside one that cannot be read or planned, and all of them for an error of a target."""
        context = self._context
        is_alone = not self._is_changelog and inputs[0].table in context.plan.alone
        run = run_alone if is_alone else _RUNS[self._settings.sink.mode]
        ready, sources = self._readable(inputs, before, batch_id)
        if not ready:
            return GroupRecords(sources, self._half_written(group.targets, before, batch_id))
        known = {one.table: without_conclusions(before.source(one.table), one) for one in ready}
        concluded = replace(before, sources={**before.sources, **known})
        names = ", ".join(target.name for target in group.targets)

        def attempt() -> GroupRecords:
            return run(GroupWork(context, self._session(), group, ready, concluded, batch_id))

        merge = partial(until_done, context, known, attempt, names, batch_id)
        done = self._merged_or_stopped(merge) if self._stops_on_errors else result_or_own_error(context, known, merge)
        if isinstance(done, Exception):
            if isinstance(done, MemberError):
                return self._merge_without(done, group, inputs, before, batch_id)
            for one in ready:
                sources[one.table] = self._aside.record(one.table, before.source(one.table), done, batch_id)
            return GroupRecords(sources, self._half_written(group.targets, before, batch_id))
        for one in ready:
            if before.source(one.table).set_aside is not None:
                log.info("merge.table_taken_up", table=one.full_name)
        return replace(done, sources={**sources, **done.sources})

    @staticmethod
    def _merged_or_stopped(merge: Callable[[], GroupRecords]) -> GroupRecords:
        """Merge tables of a job that stops on errors: an error of one table is raised as it came up."""
        try:
            return merge()
        except MemberError as error:
            raise error.error from error

    def _readable(
        self, inputs: Sequence[TableInput], before: MergeState, batch_id: int
    ) -> tuple[list[TableInput], dict[SourceTable, SourceRecord]]:
        """Return the tables that can be read, and the records of the others, which are set aside."""
        ready: list[TableInput] = []
        aside: dict[SourceTable, SourceRecord] = {}
        for one in inputs:
            set_aside = before.source(one.table).set_aside
            is_recreated = set_aside is not None and set_aside.is_recreated
            try:
                require_readable(one, stops_on_errors=self._stops_on_errors)
                ready.append(replace(one, is_recreated=is_recreated))
            except SinkError as error:
                if self._stops_on_errors or not is_of_one_table(error, self._context.sink.passing):
                    raise
                aside[one.table] = self._aside.record(one.table, before.source(one.table), error, batch_id)
        return ready, aside

    def _merge_without(
        self, error: MemberError, group: Group, inputs: Sequence[TableInput], before: MergeState, batch_id: int
    ) -> GroupRecords:
        """Merge the other tables of a group, and set this one aside."""
        aside = {error.table: self._aside.record(error.table, before.source(error.table), error.error, batch_id)}
        others = [one for one in inputs if one.table != error.table]
        if not others:
            return GroupRecords(aside, self._half_written(group.targets, before, batch_id))
        done = self._merge_group(group, others, before, batch_id)
        return replace(done, sources={**done.sources, **aside})

    def _session(self) -> SparkSession:
        """Return a session of this thread's own: commits are stamped by session configuration."""
        if not hasattr(self._threads, "session"):
            self._threads.session = self._spark.newSession()
            register_udfs(self._threads.session, self._settings.udfs)
        session: SparkSession = self._threads.session
        return session

    def _publish(self, before: MergeState, state: MergeState, slices: Sequence[Slice], seconds: float) -> None:
        read = sum(part.end - max(part.start, 0) for part in slices)
        left = any(record.set_aside is not None for record in state.sources.values())
        caught_up = read < _NEARLY_FULL * self._settings.spark.max_batch_records and not left
        publish_progress(self._files, state, self._delays.tables, caught_up=caught_up)
        merged = sum(record.merged for record in state.sources.values()) - sum(record.merged for record in before.sources.values())
        self.stages.passed("save_s")
        ended_ms = time.time_ns() // 1_000_000
        self.stages.end(state.batch_id, read, ended_ms)
        self.counts = self.counts.with_batch(read, merged, seconds, ended_ms)
        report = log.info if merged else log.debug
        report("merge.batch", batch_id=state.batch_id, records=read, merged=merged, seconds=round(seconds, 2))


def _left_out(record: SourceRecord, one: TableInput) -> SourceRecord:
    """Return the record of a table that no route takes into the sink: how far it was read, should one take it later."""
    changes, snapshots = one.change_ends or record.change_offsets, one.snapshot_ends or record.snapshot_offsets
    return replace(record, change_offsets=changes, snapshot_offsets=snapshots, skipped=NO_ROUTE)
