"""Quarantined records again: `retry` merges those that can be read now, `discard` gives them up.

Both are the only writer of the sink, so no merge job runs beside them, and work between two batches, on the state of the last.

How a table's records are retried, each step harmless when it is repeated after a crash:

1. the records are read again from Kafka; one that is no longer there, or is another, stays in quarantine;
2. they are decoded as any others; what cannot be read still stays;
3. they are merged by the one rule, together with *all* records of their keys that the merge job has read of the change topic:
   tombstones of deletes that came later may be gone long since. A snapshot row whose later changes Kafka no longer has, or thins
   out (compaction), stays in quarantine: only a snapshot shows its current state;
4. with the last of them, the conclusions of complete snapshots are carried out: they waited for them (`TableState.gap`);
5. the state of the last batch forgets the target's range of keys before the rows are written, and gets the new one after;
6. the records leave the quarantine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from kafkaio.schema_registry import HttpRegistry, SchemaRegistry
from kafkaio.slices import EARLIEST, Slice
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from schemas.settings import Settings
from spark_jobs.jobs.own_session import short_session
from spark_jobs.jobs.preflight import require_writable
from spark_jobs.jobs.shared_folder import SharedFolder
from spark_jobs.jobs.sink_factory import open_sink
from spark_jobs.kafka.admin import require_same_topics, topic_facts
from spark_jobs.merge.context import checkpoint_of, merge_parts
from spark_jobs.merge.job_state import JobStates, SourceRecord
from spark_jobs.merge.progress_report import publish_again
from spark_jobs.merge.quarantined import COORDINATES
from spark_jobs.merge.retried_table import Retried, RetriedTable
from spark_jobs.merge.spark_checkpoint import SparkCheckpoint
from spark_jobs.merge.table_batch import TableRecords
from spark_jobs.merge.table_input import TableInput
from spark_jobs.merge.table_set_aside import result_or_own_error, until_done, without_keys
from spark_jobs.pipeline.table_plan import plan_of
from spark_jobs.sinks.contract import TargetRecord
from spark_jobs.spark_errors import reason_of
from spark_jobs.store.sink_layout import PROGRESS, SinkLayout

log = structlog.get_logger()


@contextmanager
def redrive(settings: Settings) -> Iterator[Redrive]:
    """Open the quarantine of the configured sink, while no merge job runs (`SinkError` if one does, or never did)."""
    layout = SinkLayout.of(settings.sink)
    if not layout.progress.exists():
        message = f"nothing has been merged into {layout.sink} yet"
        raise SinkError(message)
    require_writable(settings.sink.name, layout)
    with short_session(settings) as spark, open_sink(settings, layout, checkpoint_of(layout)).exclusive(spark, wait_s=1):
        SharedFolder.of(spark, settings.sink.name, layout).require()
        registry = HttpRegistry(settings.format.registry or "", RegistryAccess.of(settings.format))
        yield Redrive(settings, spark, registry)


class Redrive:
    """The quarantine of one sink between two batches of its merge job. To be used by the only writer of the sink."""

    def __init__(self, settings: Settings, spark: SparkSession, registry: SchemaRegistry) -> None:
        self._settings = settings
        self._spark = spark.newSession()
        layout = SinkLayout.of(settings.sink)
        checkpoint = checkpoint_of(layout)
        sink = open_sink(settings, layout, checkpoint)
        self._files = layout.files
        self._quarantine = sink.quarantine()
        checkpoint.require_own_sink(PROGRESS, sink.states())
        parts = merge_parts(spark, settings, layout, sink)
        self._tables, self._naming = parts.tables, parts.naming
        self._states = JobStates(sink.states(), parts.naming)
        self._context = parts.context(self._spark, settings, registry)
        self._state = self._states.load(self._context.query_id, last_batch(checkpoint))
        self._context.plan = plan_of(parts.naming.routes, self._state.sources)

    def retry(self, patterns: Sequence[str]) -> list[Retried]:
        """Merge what can be read now, of the tables that a pattern matches whole (none: of all)."""
        self._recount()
        retried = []
        for table, kept in self._chosen(patterns):
            name = table.name.plain
            attempt = partial(until_done, self._context, [table], partial(self._retry, table, kept), name, self._state.batch_id)
            stops = self._settings.on_table_error == "stop"
            result = attempt() if stops else result_or_own_error(self._context, [table], attempt)
            if isinstance(result, Exception):  # its records stay in quarantine
                log.error("quarantine.table_failed", table=name, reason=reason_of(result))
                result = Retried(name, reasons={reason_of(result): kept.count()})
            retried.append(result)
        return retried

    def discard(self, patterns: Sequence[str]) -> dict[str, int]:
        """Remove the records of those tables from quarantine; return how many of each."""
        self._recount()
        removed: dict[str, int] = {}
        for table, kept in self._chosen(patterns):
            name = table.name.plain
            before = self._state.source(table)
            self._save_source(table, replace(before, state=before.state.giving_up()))
            removed[name] = self._leave(kept, kept.count())
            self._remember(table)
            log.warning("quarantine.discarded", table=name, records=removed[name])
        return removed

    def _chosen(self, patterns: Sequence[str]) -> list[tuple[SourceTable, DataFrame]]:
        """Return the tables with quarantined records that are asked for, and those records."""
        everything = self._quarantine.records(self._spark)
        if everything is None:
            return []
        found: dict[SourceTable, list[str]] = {}
        for row in everything.select("topic").distinct().collect():
            table = self._table_of(row["topic"])
            if table is not None and (not patterns or any(re.fullmatch(text, table.name.plain) for text in patterns)):
                found.setdefault(table, []).append(row["topic"])
        return [(table, everything.where(F.col("topic").isin(topics))) for table, topics in sorted(found.items())]

    def _table_of(self, topic: str) -> SourceTable | None:
        name = self._tables.of(topic)
        return None if name is None else self._naming.table(*name)

    def _retry(self, table: SourceTable, kept: DataFrame) -> Retried:
        name = table.name.plain
        before = TableRecords(self._state.source(table), self._state.target(self._target_of(table)))
        table_input = self._input(table, kept, before.source)
        retried = RetriedTable(self._context, self._spark, table_input, before, self._state.batch_id, kept)
        result, settled = retried.judge()
        if settled is not None:
            unknown = without_keys(before.target)
            self._save(table, TableRecords(before.source, unknown))
            self._save(table, retried.merge_settled() if result.left else retried.merge_last())
            self._leave(settled, result.settled)
            self._remember(table)
            retried.release()
        log.info("quarantine.retried", table=name, settled=result.settled, left=result.left)
        return result

    def _input(self, table: SourceTable, kept: DataFrame, before: SourceRecord) -> TableInput:
        """Return all that was read of the change topic, and the quarantined stretch of the snapshot topic."""
        changes, snapshots = self._tables.topics_of(table)
        kafka = self._settings.kafka
        require_same_topics(self._spark, kafka, [changes, snapshots], self._state.topics)
        slices: list[Slice] = []
        facts = topic_facts(self._spark, kafka, changes)
        if facts is not None:
            slices += [
                Slice(changes, number, EARLIEST, end)
                for number, end in before.change_offsets.items()
                if end > facts.starts.get(number, end)
            ]
        rows = topic_facts(self._spark, kafka, snapshots)
        if rows is not None:
            stretches = kept.where(F.col("topic") == F.lit(snapshots)).groupBy("partition")
            for row in stretches.agg(F.min("offset").alias("low"), F.max("offset").alias("high")).collect():
                start = rows.starts.get(row["partition"])
                if start is not None and start <= row["high"]:
                    slices.append(Slice(snapshots, row["partition"], max(start, row["low"]), row["high"] + 1))
        ends = before.change_offsets, before.snapshot_offsets
        return TableInput(table, changes, snapshots, *ends, tuple(slices), has_rows=True)

    def _target_of(self, table: SourceTable) -> Target:
        """Return the target of a table. `SinkError` for one whose rows are changed or put together with others."""
        alone = self._context.plan.alone
        if table not in alone:
            message = (
                f"records of {table.name.plain} cannot be merged by a retry, since a route or a transform changes the table: "
                "snapshot it again (tidemark signal execute-snapshot), then discard them"
            )
            raise SinkError(message)
        return alone[table]

    # ── what is remembered ────────────────────

    def _save(self, table: SourceTable, records: TableRecords) -> None:
        targets = {**self._state.targets, self._target_of(table): records.target}
        self._save_source(table, records.source, targets)

    def _save_source(
        self, table: SourceTable, record: SourceRecord, targets: Mapping[Target, TargetRecord] | None = None
    ) -> None:
        now = {item.path for item in record.tombstones}
        retired = [item.path for item in self._state.source(table).tombstones if item.path not in now]
        state = replace(
            self._state,
            sources={**self._state.sources, table: record},
            targets=self._state.targets if targets is None else targets,
            retired=tuple({*self._state.retired, *retired}),
        )
        self._states.save(state)
        self._state = state

    def _remember(self, table: SourceTable) -> None:
        """Write state and progress file with what is in quarantine now."""
        everything = self._quarantine.records(self._spark)
        count = 0 if everything is None else everything.where(F.col("topic").isin(list(self._tables.topics_of(table)))).count()
        self._save_source(table, replace(self._state.source(table), quarantined=count))
        publish_again(self._files, self._state)

    def _recount(self) -> None:
        """Write state and progress file as the quarantine is: a process that was killed may have left them as they were."""
        kept: Counter[SourceTable] = Counter()
        everything = self._quarantine.records(self._spark)
        if everything is not None:
            for row in everything.groupBy("topic").agg(F.count("*").alias("records")).collect():
                table = self._table_of(row["topic"])
                if table is not None:
                    kept[table] += row["records"]
        stale = [
            (table, record)
            for table, record in self._state.sources.items()
            if record.quarantined and record.quarantined != kept[table]
        ]
        for table, record in stale:
            state = record.state if kept[table] else record.state.giving_up()
            self._save_source(table, replace(record, quarantined=kept[table], state=state))
        if stale:
            publish_again(self._files, self._state)

    def _leave(self, records: DataFrame, count: int) -> int:
        """Remove records from quarantine; return how many left, `SinkError` if those are fewer than were found."""
        removed = self._quarantine.remove(records.select(*COORDINATES).distinct())
        if removed < count:
            raise SinkError(f"{count} records were to leave the quarantine, and {removed} have left it: run this again")
        return removed


def last_batch(checkpoint: SparkCheckpoint) -> int:
    """Return the last batch; `SinkError` if it was cut off."""
    begun, done = checkpoint.newest_begun, checkpoint.newest_done
    if begun != done:
        message = (
            f"batch {begun} of the merge job was cut off: let it be finished first "
            "(tidemark merge --until-caught-up), then run this again"
        )
        raise SinkError(message)
    return begun
