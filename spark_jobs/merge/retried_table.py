"""A table's quarantined records, merged between two batches together with all records of their keys that were read.

All records of the change topic that the merge job has read are read again, and the quarantined stretch of the snapshot topic:
tombstones of deletes that came later may be gone.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from schemas.merge_rule import NOTHING, TableState
from schemas.overriding import override
from spark_jobs.decode.avro_records import decoded
from spark_jobs.decode.record_columns import OFFSET, PARTITION, POSITION, REASON, SNAPSHOT, TOPIC
from spark_jobs.decode.spark_types import quoted
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.kafka.admin import topic_facts
from spark_jobs.merge import rule
from spark_jobs.merge.context import JobContext
from spark_jobs.merge.quarantined import COORDINATES
from spark_jobs.merge.rule import ObservedRows
from spark_jobs.merge.source_part import SourcePart
from spark_jobs.merge.table_batch import TableBatch, TableRecords
from spark_jobs.merge.table_input import TableInput
from spark_jobs.merge.target_batch import TargetBatch

_LAST: Final = "~"  # after every position
_BOUNDARY: Final = f".{0:010d}"  # the end of the version of a row that was read by a SELECT
_UNPROVEN: Final = "_tm_unproven "  # ends with a space, as the names of `decode.record_columns`


@dataclass(frozen=True, slots=True)
class Retried:
    """The result of a retry of a table's quarantined records.

    `settled` have left the quarantine; `unreadable` cannot be decoded yet (`reasons`: how many for which reason);
    `gone` are no longer in Kafka; `unproven` are snapshot rows whose later changes Kafka no longer has.
    """

    table: str
    settled: int = 0
    reasons: Mapping[str, int] | None = None
    gone: int = 0
    unproven: int = 0

    @property
    def unreadable(self) -> int:
        """Records that cannot be decoded."""
        return sum((self.reasons or {}).values())

    @property
    def left(self) -> int:
        """Records still in quarantine."""
        return self.unreadable + self.gone + self.unproven


class RetriedPart(SourcePart):
    """The source part of a retry: its winners are the newest records of the keys that a settled record has."""

    settled: DataFrame | None = None

    @override
    def winners(self, plan: TableLayout, observed: ObservedRows | None) -> DataFrame:
        assert self.settled is not None
        judged = decoded(self.raw.frame, plan, self.input.snapshot_topic)
        if observed is not None:
            judged = judged.observe(observed.records, F.count_if(F.lit(False)).alias("bad"))
        keys = self.settled.select(*[quoted(name) for name in plan.keys]).distinct()
        # The guard stops rows of abandoned attempts because tombstones may be gone; here all deletes are at hand.
        admitted = rule.admitted(judged, TableState(), self.record.state).join(keys, list(plan.keys), "left_semi")
        rows = rule.winners(admitted, plan.keys)
        return rows if observed is None else rows.observe(observed.rows, *observed.measures)


class RetriedTable:
    """A table in a retry, on a session that no other thread uses: `judge`, then `merge_settled` or `merge_last`."""

    def __init__(
        self,
        context: JobContext,
        spark: SparkSession,
        table_input: TableInput,
        before: TableRecords,
        batch_id: int,
        kept: DataFrame,
    ) -> None:
        self._context = context
        self._spark = spark
        self._input = table_input
        self._kept = kept
        self._before = before
        self._source = RetriedPart(context, spark, table_input, before.source, batch_id, secrets.token_hex(6))
        target = TargetBatch.of(context, spark, table_input.table, before.target, batch_id)
        self._batch = TableBatch(context, self._source, target)
        self._layout: TableLayout | None = None

    def judge(self) -> tuple[Retried, DataFrame | None]:
        """Return what can be said of the records, and the coordinates of those that can be merged (None: none can)."""
        self._batch.target.require_not_gone()
        name, total = self._input.full_name, self._kept.count()
        if not self._source.raw:
            return Retried(name, gone=total), None
        again = self._read_again().persist()
        try:
            found = again.count()
            self._layout = self._source.plan(self._batch.target.columns)
            if self._layout is None:
                record = self._source.record
                why = record.lost or record.skipped or "the registry knows no schema of the table"
                return Retried(name, 0, {why: found}, gone=total - found), None
            judged = decoded(again, self._layout, self._input.snapshot_topic).withColumn(
                _UNPROVEN, self._unproven(self._layout)
            )
            judged = judged.localCheckpoint(eager=True)
        finally:
            again.unpersist()
        bad = judged.where(F.col(REASON).isNotNull()).groupBy(REASON).count().collect()
        reasons = {row[REASON]: row["count"] for row in bad}
        unproven = judged.where(F.col(REASON).isNull() & F.col(_UNPROVEN)).count()
        good = judged.where(F.col(REASON).isNull() & ~F.col(_UNPROVEN))
        settled, markers = good.count(), found - judged.count()
        if markers:
            reasons["no row: a marker"] = markers
        result = Retried(name, settled, reasons, total - found, unproven)
        if not settled:
            return result, None
        self._source.settled = good
        origin = [F.col(name).alias(part) for name, part in zip((TOPIC, PARTITION, OFFSET), COORDINATES, strict=True)]
        return result, good.select(*origin)

    def merge_settled(self) -> TableRecords:
        """Merge them with everything that is known of their keys, and return what is to be remembered."""
        self._merge(are_last=False)
        return self._records()

    def merge_last(self) -> TableRecords:
        """Merge them as the last that were left out, and carry out what waited for that: floors and sweeps of snapshots."""
        self._merge(are_last=True)
        source = self._source
        source.record = replace(source.record, retype=source.record.retype or source.has_risen)  # by the table's next batch
        return self._records()

    def release(self) -> None:
        """Release the settled records."""
        self._source.settled = None

    def _merge(self, *, are_last: bool) -> None:
        assert self._layout is not None
        target, source = self._batch.target, self._source
        if target.exists:
            target.prepare(self._layout, source.stamp)
        with target.commit(source.stamp) as writer:
            self._batch.merge_records(writer, self._layout)
            source.record = replace(source.record, set_aside=self._before.source.set_aside)  # it continues at the same offsets
            if are_last:
                source.record = replace(source.record, state=source.record.state.without_gap())
                self._batch.settle(writer)
                self._batch.delete_what_is_gone(writer, had_rows=True)

    def _records(self) -> TableRecords:
        self._batch.target.note_commit()
        records = self._batch.records
        return replace(records, target=replace(records.target, last_commit=self._before.target.last_commit))

    def _read_again(self) -> DataFrame:
        """Return the records as Kafka has them, if they are still the same."""
        raw, kept = self._source.raw.frame.alias("r"), self._kept.alias("h")
        same = F.col("r.value").eqNullSafe(F.col("h.value")) & F.col("r.key").eqNullSafe(F.col("h.key"))
        for part in COORDINATES:
            same &= F.col(f"r.{part}") == F.col(f"h.{part}")
        return raw.join(kept, same, "left_semi")

    def _unproven(self, plan: TableLayout) -> Column:
        """Return whether a change that came after a record may be missing: trimmed, compacted, or never in the log."""
        since = self._known_since(plan)
        moved = F.lit(len(plan.key_writers) > 1)  # else all changes of a key are behind it in its own partition
        swept = F.col(POSITION) < F.lit(self._source.record.state.swept)  # a parent may have taken the row with it
        return ((F.col(SNAPSHOT) | moved) & (F.col(POSITION) < F.lit(since))) | swept

    def _known_since(self, plan: TableLayout) -> str:
        """Return the position from which on the change topic has every change."""
        kafka, topic = self._context.settings.kafka, self._input.change_topic
        facts = topic_facts(self._spark, kafka, topic)
        if facts is None or facts.compacted:
            return _LAST
        partitions = list(facts.starts) if self._before.source.is_recreated else facts.trimmed
        if not partitions:
            return NOTHING
        records = decoded(self._source.raw.frame, plan, self._input.snapshot_topic)
        change = F.col(REASON).isNull() & ~F.col(POSITION).endswith(_BOUNDARY)  # a row the producer merged may be older
        first = records.where(~F.col(SNAPSHOT) & change).groupBy(PARTITION)
        found = first.agg(F.min_by(POSITION, OFFSET).alias("first")).collect()
        positions = {row[PARTITION]: row["first"] for row in found}
        return max(str(positions.get(partition, _LAST)) for partition in partitions)
