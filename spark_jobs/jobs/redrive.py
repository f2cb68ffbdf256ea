"""Quarantined records again: `retry` merges those that can be read now, `discard` gives them up.

Both hold the sink's lock, so no merge job runs beside them, and work between two batches, on the state of the last.

How a table's records are retried, each step harmless when it is repeated after a crash:

1. the records are read again from Kafka, where they stand; one that is no longer there, or is another, stays in quarantine;
2. they are decoded as any others; what cannot be read still stays;
3. they are merged by the one rule, together with *all* records of their keys that the merge job has read of the
   change topic: tombstones of deletes that came later may be gone long since. A snapshot row whose later changes Kafka
   no longer has, or thins out (compaction), stays in quarantine: only a snapshot tells what became of it;
4. with the last of them, what complete snapshots said is carried out: it waited for them (`TableState.gap`);
5. the state of the last batch forgets the table's range of keys before the rows are written, and gets the new one after;
6. the records leave the quarantine.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from schemas.errors import SinkError
from schemas.merge_rule import NOTHING, TableState
from schemas.registry_access import RegistryAccess
from schemas.settings import Settings
from spark_jobs.decode.avro_records import (
    OFFSET,
    PARTITION,
    POSITION,
    REASON,
    SNAPSHOT,
    TOPIC,
    TableLayout,
    decoded,
)
from spark_jobs.jobs.preflight import require_kafka, require_startable, require_writable
from spark_jobs.jobs.session import build_session
from spark_jobs.kafka.admin import require_same_topics, topic_facts
from spark_jobs.kafka.producer_schemas import GivenSchemas
from spark_jobs.kafka.read import EARLIEST, Slice
from spark_jobs.kafka.schema_registry import HttpRegistry, SchemaRegistry
from spark_jobs.merge.state import (
    StateStore,
    TableRecord,
    checkpoint_query_id,
    newest_batch,
    progress_document,
    require_own_sink,
    write_atomically,
)
from spark_jobs.merge.table_input import TableWork, topic_tables
from spark_jobs.merge.table_retry import until_done
from spark_jobs.merge.table_set_aside import is_of_one_table
from spark_jobs.merge.target_batch import Seen, Shared, TableBatch
from spark_jobs.merge.used_schemas import KnownSchemas
from spark_jobs.sinks.delta import alter as evolve
from spark_jobs.sinks.delta import quarantine_table as quarantine
from spark_jobs.sinks.delta import writes as merge
from spark_jobs.spark_errors import reason_of
from spark_jobs.store.sink_layout import Places
from spark_jobs.store.writer_lock import sole_writer

log = structlog.get_logger()

UNKNOWN_RANGE: Final = ("",)
_LAST: Final = "~"  # behind every position
_BORDER: Final = f".{0:010d}"  # how the version of a row ends that was read by a SELECT
_UNPROVEN: Final = "_tm_unproven "  # as the names of `decode`
_PLACE: Final = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class Retried:
    """What became of a table's quarantined records.

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


@contextmanager
def redrive(settings: Settings) -> Iterator[Redrive]:
    """The quarantine of the configured sink, while no merge job runs (`SinkError` when one does, or never did)."""
    places = Places.of(settings.sink)
    if not places.progress.exists():
        message = f"nothing has been merged into {places.sink} yet"
        raise SinkError(message)
    require_writable(places)
    require_startable(settings.spark)
    require_kafka(settings.kafka, threading.Event())
    spark = build_session(settings.spark, settings.name)
    try:
        with sole_writer(spark, places, wait_s=1):
            registry = HttpRegistry(settings.format.registry or "", RegistryAccess.of(settings.format))
            yield Redrive(settings, spark, registry)
    finally:
        spark.stop()


class Redrive:
    """The quarantine of one sink between two batches of its merge job. To be used inside `sole_writer`."""

    def __init__(self, settings: Settings, spark: SparkSession, registry: SchemaRegistry) -> None:
        self._settings = settings
        self._spark = spark.newSession()
        self._registry = registry
        self._places = Places.of(settings.sink)
        self._store = StateStore(self._places.state)
        self._topics = topic_tables(spark, settings)
        require_own_sink(self._places.checkpoint, self._places.progress, self._places.state)
        query_id = checkpoint_query_id(self._places.checkpoint) or ""
        given = GivenSchemas.of_producer(self._spark, settings)
        self._shared = Shared(settings, registry, self._places, query_id, KnownSchemas(self._places.schemas), given=given)
        self._state = self._store.load(query_id, _last_batch(self._places.checkpoint))

    def retry(self, patterns: Sequence[str]) -> list[Retried]:
        """Merge what can be read now, of the tables that a pattern matches whole (none: of all)."""
        self._recount()
        retried = []
        for place, held in self._chosen(patterns):
            name = ".".join(place)
            once = partial(self._retry, place, held)
            try:
                retried.append(until_done(once, partial(self._shared.forget, name), name, self._state.batch_id))
            except Exception as error:  # what is of one table leaves its records where they are
                if self._settings.on_table_error == "stop" or not is_of_one_table(error):
                    raise
                log.error("quarantine.table_failed", table=name, reason=reason_of(error))  # noqa: TRY400 - in one line
                retried.append(Retried(name, reasons={reason_of(error): held.count()}))
        return retried

    def discard(self, patterns: Sequence[str]) -> dict[str, int]:
        """Remove the records of those tables from quarantine; how many of each."""
        self._recount()
        removed: dict[str, int] = {}
        for place, held in self._chosen(patterns):
            name = ".".join(place)
            removed[name] = held.count()
            before = self._record(name)
            self._save(name, replace(before, state=before.state.giving_up()))
            self._leave(held)
            self._remember(name, self._record(name), place)
            log.warning("quarantine.discarded", table=name, records=removed[name])
        return removed

    def _chosen(self, patterns: Sequence[str]) -> list[tuple[tuple[str, str], DataFrame]]:
        """The tables with quarantined records that are asked for, and those records."""
        if not evolve.table_exists(self._places.quarantine):
            return []
        everything = self._spark.read.format("delta").load(str(self._places.quarantine))
        found: dict[tuple[str, str], list[str]] = {}
        for row in everything.select("topic").distinct().collect():
            place = self._topics.of(row["topic"])
            if place is not None and (
                not patterns or any(re.fullmatch(text, ".".join(place)) for text in patterns)
            ):
                found.setdefault(place, []).append(row["topic"])
        return [(place, everything.where(F.col("topic").isin(topics))) for place, topics in sorted(found.items())]

    def _retry(self, place: tuple[str, str], held: DataFrame) -> Retried:
        name = ".".join(place)
        before = self._record(name)
        table = _RetriedTable(
            self._shared, self._spark, self._work(place, held, before), before, self._state.batch_id, held
        )
        result, settled = table.judge()
        if settled is not None:
            self._save(name, replace(before, key_range=None, range_of=UNKNOWN_RANGE))
            after = table.merge_settled() if result.left else table.merge_last()
            self._save(name, after)
            self._leave(settled)
            self._remember(name, after, place)
            table.release()
        log.info("quarantine.retried", table=name, settled=result.settled, left=result.left)
        return result

    def _work(self, place: tuple[str, str], held: DataFrame, before: TableRecord) -> TableWork:
        """All that was read of the change topic, and the quarantined stretch of the snapshot topic."""
        changes, snapshots = self._topics.topics(place)
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
            stretches = held.where(F.col("topic") == F.lit(snapshots)).groupBy("partition")
            for row in stretches.agg(F.min("offset").alias("low"), F.max("offset").alias("high")).collect():
                start = rows.starts.get(row["partition"])
                if start is not None and start <= row["high"]:
                    slices.append(Slice(snapshots, row["partition"], max(start, row["low"]), row["high"] + 1))
        return TableWork(
            *place, changes, snapshots, before.change_offsets, before.snapshot_offsets, tuple(slices), rows=1
        )

    # ── what is remembered ────────────────────

    def _record(self, name: str) -> TableRecord:
        return self._state.tables.get(name, TableRecord())

    def _save(self, name: str, record: TableRecord) -> None:
        now = {item.path for item in record.tombstones}
        retired = [item.path for item in self._record(name).tombstones if item.path not in now]
        tables = dict(self._state.tables) | {name: record}
        state = replace(self._state, tables=tables, retired=tuple({*self._state.retired, *retired}))
        self._store.save(state)
        self._state = state

    def _remember(self, name: str, record: TableRecord, place: tuple[str, str]) -> None:
        """State and progress file with what is in quarantine now."""
        everything = self._spark.read.format("delta").load(str(self._places.quarantine))
        count = everything.where(F.col("topic").isin(list(self._topics.topics(place)))).count()
        self._save(name, replace(record, quarantined=count))
        self._tell()

    def _recount(self) -> None:
        """State and progress file as the quarantine is: a process that was killed may have left it without saying so."""
        there: Counter[str] = Counter()
        if evolve.table_exists(self._places.quarantine):
            everything = self._spark.read.format("delta").load(str(self._places.quarantine))
            for row in everything.groupBy("topic").agg(F.count("*").alias("records")).collect():
                place = self._topics.of(row["topic"])
                if place is not None:
                    there[".".join(place)] += row["records"]
        stale = [
            (name, record)
            for name, record in self._state.tables.items()
            if record.quarantined and record.quarantined != there[name]
        ]
        for name, record in stale:
            state = record.state if there[name] else record.state.giving_up()
            self._save(name, replace(record, quarantined=there[name], state=state))
        if stale:
            self._tell()

    def _tell(self) -> None:
        known = json.loads(self._places.progress.read_text(encoding="utf-8"))
        document = progress_document(
            self._state, time.time_ns() // 1_000_000, caught_up=not known.get("last_batch_full", True)
        )
        write_atomically(self._places.progress, json.dumps(document, indent=1))

    def _leave(self, records: DataFrame) -> None:
        quarantine.remove(records.select(*_PLACE).distinct(), str(self._places.quarantine))


class _RetriedTable(TableBatch):
    """A table's quarantined records, merged between two batches; `judge`, then `merge_settled`, then `release`."""

    def __init__(
        self,
        shared: Shared,
        spark: SparkSession,
        work: TableWork,
        before: TableRecord,
        batch_id: int,
        held: DataFrame,
    ) -> None:
        super().__init__(shared, spark, work, before, batch_id)
        self._held = held
        self._redrive = secrets.token_hex(6)
        self._commit = replace(self._commit, redrive=self._redrive)
        self._settled: DataFrame | None = None
        self._layout: TableLayout | None = None

    def judge(self) -> tuple[Retried, DataFrame | None]:
        """What can be said of the records, and those that can be merged (None: none can)."""
        self._require_not_vanished()
        name, total = self._work.full_name, self._held.count()
        if not self._work.data_slices:
            return Retried(name, gone=total), None
        again = self._read_again().persist()
        try:
            there = again.count()
            self._layout = self._plan()
            if self._layout is None:
                why = self._record.lost or self._record.skipped or "the registry knows no schema of the table"
                return Retried(name, 0, {why: there}, gone=total - there), None
            judged = decoded(again, self._layout, self._work.snapshot_topic).withColumn(
                _UNPROVEN, self._unproven(self._layout)
            )
            kept = judged.localCheckpoint(eager=True)
        finally:
            again.unpersist()
        bad = kept.where(F.col(REASON).isNotNull()).groupBy(REASON).count().collect()
        reasons = {row[REASON]: row["count"] for row in bad}
        unproven = kept.where(F.col(REASON).isNull() & F.col(_UNPROVEN)).count()
        good = kept.where(F.col(REASON).isNull() & ~F.col(_UNPROVEN))
        settled, markers = good.count(), there - kept.count()
        if markers:
            reasons["no row: a marker"] = markers
        self._settled = good if settled else None
        result = Retried(name, settled, reasons, total - there, unproven)
        if self._settled is None:
            return result, None
        origin = [F.col(name).alias(part) for name, part in zip((TOPIC, PARTITION, OFFSET), _PLACE, strict=True)]
        return result, good.select(*origin)

    def merge_settled(self) -> TableRecord:
        """Merge them with everything that is known of their keys, and give what is to be remembered."""
        assert self._layout is not None
        self._merge_records(self._layout)
        self._record = replace(self._record, set_aside=self._before.set_aside)  # what it is read on from has not changed
        return self._record

    def merge_last(self) -> TableRecord:
        """Merge them as the last that were left out, and carry out what waited for that: floors and sweeps of snapshots."""
        self.merge_settled()
        self._state = self._state.without_gap()
        self._settle()
        self._delete_what_is_gone(older_rows=True)
        rose = self._state.floor > self._before.state.floor
        self._record = replace(self._record, retype=self._record.retype or rose)  # by the table's next batch
        return self._record

    def release(self) -> None:
        """Free what was held."""
        self._settled = None

    def _read_again(self) -> DataFrame:
        """The records as Kafka has them, where they are still the same."""
        raw, held = self._raw.alias("r"), self._held.alias("h")
        same = F.col("r.value").eqNullSafe(F.col("h.value")) & F.col("r.key").eqNullSafe(F.col("h.key"))
        for part in _PLACE:
            same &= F.col(f"r.{part}") == F.col(f"h.{part}")
        return raw.join(held, same, "left_semi")

    def _unproven(self, plan: TableLayout) -> Any:
        """Whether a change that came after a record may be missing: trimmed away, compacted, or never in the log."""
        since = self._known_since(plan)
        moved = F.lit(len(plan.key_writers) > 1)  # else all changes of a key are behind it in its own partition
        swept = F.col(POSITION) < F.lit(self._state.swept)  # a parent may have taken the row with it
        return ((F.col(SNAPSHOT) | moved) & (F.col(POSITION) < F.lit(since))) | swept

    def _known_since(self, plan: TableLayout) -> str:
        """The change topic has every change from this position on."""
        kafka, topic = self._shared.settings.kafka, self._work.change_topic
        facts = topic_facts(self._spark, kafka, topic)
        if facts is None or facts.compacted:
            return _LAST
        partitions = list(facts.starts) if self._before.anew else facts.trimmed
        if not partitions:
            return NOTHING
        records = decoded(self._raw, plan, self._work.snapshot_topic)
        change = F.col(REASON).isNull() & ~F.col(POSITION).endswith(_BORDER)  # a row the producer merged may be older
        first = records.where(~F.col(SNAPSHOT) & change).groupBy(PARTITION)
        found = first.agg(F.min_by(POSITION, OFFSET).alias("first")).collect()
        positions = {row[PARTITION]: row["first"] for row in found}
        return max(str(positions.get(partition, _LAST)) for partition in partitions)

    def _winners(self, plan: TableLayout, seen: Seen | None) -> DataFrame:
        """The newest record of each key that a settled record has."""
        assert self._settled is not None
        judged = decoded(self._raw, plan, self._work.snapshot_topic)
        if seen is not None:
            judged = judged.observe(seen.records, F.count_if(F.lit(False)).alias("bad"))
        quoted = [evolve.quoted(name) for name in plan.keys]
        keys = self._settled.select(*quoted).distinct()
        # The guard stops rows of abandoned attempts because tombstones may be gone; here all deletes are at hand.
        admitted = merge.admitted(judged, TableState(), self._state).join(keys, list(plan.keys), "left_semi")
        rows = merge.winners(admitted, plan.keys)
        return rows if seen is None else rows.observe(seen.rows, *seen.measures)

    def _wrote(self, plan: TableLayout | None = None) -> None:
        super()._wrote(plan)
        self._record = replace(self._record, last_commit=self._before.last_commit)

    @property
    def _label(self) -> str:
        return f"{self._batch_id}-{self._redrive}"


def _last_batch(checkpoint: Path) -> int:
    """The last batch; `SinkError` when it was cut off."""
    begun, done = (newest_batch(checkpoint / kind) for kind in ("offsets", "commits"))
    if begun != done:
        message = (
            f"batch {begun} of the merge job was cut off: let it be finished first "
            "(tidemark merge --until-caught-up), then run this again"
        )
        raise SinkError(message)
    return begun
