"""Table inputs: the slices of a batch enter, one input per table leaves, its markers split from its rows in one small job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from kafkaio.slices import EARLIEST, Offsets, Slice
from schemas.errors import DecodeError, SinkError
from schemas.identity import SourceId, SourceTable
from schemas.markers import MARKER_KEY, MARKER_VERSION, Marker, parse_marker
from schemas.settings import KafkaSettings
from spark_jobs.decode.avro_records import framed_parts
from spark_jobs.kafka.admin import first_offsets
from spark_jobs.kafka.few_records import DriverRecord, FewRecords
from spark_jobs.kafka.read import read_slices
from spark_jobs.kafka.topic_tables import TopicTables


@dataclass(frozen=True, slots=True)
class TableInput:
    """What a batch has of one source table.

    `has_rows` says whether the snapshot topic has records that are no markers. The ends are those of the whole topics after this
    batch, exclusive, also where the batch read nothing. `change_starts` is where partitions of the change topic began that no
    batch read before; `trimmed` says whether records were gone by then, of either topic. `lost` says which records are gone that
    were to be read next, `unreadable` why nothing can be read. `is_recreated` is that of `SetAside`.
    """

    table: SourceTable
    change_topic: str
    snapshot_topic: str
    change_ends: Mapping[int, int]
    snapshot_ends: Mapping[int, int]
    slices: tuple[Slice, ...] = ()
    markers: tuple[Marker, ...] = ()
    bad_markers: tuple[BadMarker, ...] = ()
    has_rows: bool = False
    change_starts: Mapping[int, int] = field(default_factory=dict)
    trimmed: bool = False
    lost: str | None = None
    unreadable: str | None = None
    is_recreated: bool = False

    @property
    def full_name(self) -> str:
        """`database.table`, for logs and messages."""
        return self.table.name.plain

    @property
    def data_slices(self) -> tuple[Slice, ...]:
        """The slices that have more than markers."""
        return tuple(part for part in self.slices if self.has_rows or part.topic == self.change_topic)

    @property
    def size(self) -> int:
        """The number of records at most."""
        return sum(part.end - max(part.start, 0) for part in self.slices)

    def require_partitions(self, expected: int) -> None:
        """Raise `SinkError` if a topic has more partitions than the markers of the table name (0: there was no marker yet).

        No marker says anything of the others: a tombstone could be forgotten too early.
        """
        counts = ((self.change_topic, self.change_ends), (self.snapshot_topic, self.snapshot_ends))
        for topic, ends in counts:
            if expected and len(ends) > expected:
                message = (
                    f"topic {topic} has {len(ends)} partitions, the producer knows {expected}: somebody has added some. "
                    "Nothing is lost: give the producer another name (new topics) and the sink another folder (sinks.path, of a "
                    "database sinks.work), and have the tables read again"
                )
                raise SinkError(message)


@dataclass(frozen=True, slots=True)
class BadMarker:
    """A record with the marker key that is no marker."""

    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes
    written: datetime | None = None


def inputs_of(
    spark: SparkSession,
    kafka: KafkaSettings,
    few: FewRecords,
    source: SourceId,
    tables: TopicTables,
    slices: Sequence[Slice],
    ends: Offsets,
) -> list[TableInput]:
    """Return the inputs of a batch, with their markers, the largest first. `few` reads those itself where records are few."""
    inputs: dict[tuple[str, str], TableInput] = {}
    tables.expect(part.topic for part in slices)
    for part in slices:
        name = tables.of(part.topic)
        if name is not None:
            found = inputs.get(name) or _empty(SourceTable.of(source, *name), tables.topics(name), ends)
            inputs[name] = replace(found, slices=(*found.slices, part))
    asked = [(part.topic, part.partition) for one in inputs.values() for part in one.slices]
    starts = first_offsets(spark, kafka, asked) if asked else {}
    begun = [_begun(one, starts) for one in inputs.values()]
    marked = [part for one in begun for part in one.slices if part.topic == one.snapshot_topic]
    few_found = few.read(marked, MARKER_KEY)
    found_markers = _read_markers(spark, kafka, marked) if few_found is None else _markers_among(marked, few_found)
    complete = [replace(one, **found_markers.get(one.snapshot_topic, {})) for one in begun]
    return sorted(complete, key=lambda one: one.size, reverse=True)


def _begun(table_input: TableInput, starts: Mapping[tuple[str, int], int]) -> TableInput:
    """Return the input with the offsets where its partitions begin. What is removed later, before it is read, fails the read."""
    slices: list[Slice] = []
    changes: dict[int, int] = {}
    trimmed, lost = False, None
    unknown = sorted({part.topic for part in table_input.slices if (part.topic, part.partition) not in starts})
    if unknown:
        reason = f"Kafka does not say where topic {', '.join(unknown)} begins, it may be gone"
        return replace(table_input, slices=(), unreadable=reason)
    for part in table_input.slices:
        first = starts[part.topic, part.partition]
        is_fresh, is_lost = part.start == EARLIEST, EARLIEST < part.start < first
        if is_lost:
            lost = (
                f"records of topic {part.topic} that were not merged yet are no longer in Kafka (partition {part.partition}, "
                f"offsets {part.start} to {first - 1}): the job was stopped, or the table set aside, for longer than the topic is "
                "kept. Snapshot this table again"
            )
        if (is_fresh or is_lost) and part.topic == table_input.change_topic:
            changes[part.partition] = first
        trimmed |= is_fresh and first > 0
        start = first if is_fresh or is_lost else part.start
        if start < part.end:
            slices.append(replace(part, start=start))
    return replace(table_input, slices=tuple(slices), change_starts=changes, trimmed=trimmed, lost=lost)


def _empty(table: SourceTable, topics: tuple[str, str], ends: Offsets) -> TableInput:
    changes, snapshots = topics
    return TableInput(table, changes, snapshots, dict(ends.get(changes, {})), dict(ends.get(snapshots, {})))


def _read_markers(
    spark: SparkSession, kafka: KafkaSettings, slices: Sequence[Slice]
) -> dict[str, dict[str, Any]]:
    """Return markers and bad markers of each snapshot topic, and whether it has rows: one stage, without a shuffle."""
    if not slices:
        return {}
    is_marker = F.col("key").eqNullSafe(F.lit(MARKER_KEY))
    with_rows = Observation()
    is_row = ~is_marker & F.col("value").isNotNull()
    records = read_slices(spark, kafka, slices)
    noted = records.observe(with_rows, F.collect_set(F.when(is_row, F.col("topic"))).alias("topics"))
    markers: dict[str, list[DriverRecord]] = {part.topic: [] for part in slices}
    for row in noted.where(is_marker).select("topic", "partition", "offset", "key", "value", "timestamp").collect():
        markers[row["topic"]].append(DriverRecord(*row))
    topics = with_rows.get["topics"]
    return {topic: _parsed(topic, found) | {"has_rows": topic in topics} for topic, found in markers.items()}


def _markers_among(slices: Sequence[Slice], records: Sequence[DriverRecord]) -> dict[str, dict[str, Any]]:
    """Return the same of records that are here already."""
    markers: dict[str, list[DriverRecord]] = {part.topic: [] for part in slices}
    with_rows = set()
    for record in records:
        if record.key == MARKER_KEY:
            markers[record.topic].append(record)
        elif record.value is not None:
            with_rows.add(record.topic)
    return {topic: _parsed(topic, found) | {"has_rows": topic in with_rows} for topic, found in markers.items()}


def _parsed(topic: str, records: Sequence[DriverRecord]) -> dict[str, Any]:
    markers: list[Marker] = []
    bad: list[BadMarker] = []
    for record in sorted(records, key=lambda item: (item.partition, item.offset)):
        value = bytes(record.value or b"")
        try:
            markers.append(replace(parse_marker(value), partition=record.partition))
        except DecodeError as error:
            _require_known_version(topic, value)
            bad.append(BadMarker(topic, record.partition, record.offset, error.reason, value, record.timestamp))
    return {"markers": tuple(markers), "bad_markers": tuple(bad)}


def _require_known_version(topic: str, value: bytes) -> None:
    try:
        version = json.loads(value)["v"]
    except (ValueError, TypeError, KeyError):
        return
    if version != MARKER_VERSION:
        message = (
            f"topic {topic} has markers of version {version}, this job knows {MARKER_VERSION}: upgrade it"
        )
        raise SinkError(message)


class RawRecords:
    """The records of a table input. What is asked twice is computed once."""

    def __init__(self, spark: SparkSession, kafka: KafkaSettings, table_input: TableInput) -> None:
        self._spark = spark
        self._kafka = kafka
        self._input = table_input
        self.snapshot_topic = table_input.snapshot_topic

    def __bool__(self) -> bool:
        return bool(self._input.data_slices)

    @cached_property
    def frame(self) -> DataFrame:
        """The records: topic, partition, offset, key, value, timestamp."""
        return read_slices(self._spark, self._kafka, self._input.data_slices)

    @cached_property
    def frames(self) -> tuple[frozenset[bytes], frozenset[bytes]]:
        """The first bytes of the keys, and of the values: the ids of their schemas."""
        rows = self.frame.select(F.substring("key", 1, 5), F.substring("value", 1, 5)).distinct().collect()
        keys, values = (frozenset(bytes(row[part]) for row in rows if row[part] is not None) for part in (0, 1))
        return keys, values

    @cached_property
    def framed_parts(self) -> tuple[frozenset[str], dict[int, int]]:
        """Which of key and value some record has a schema id in, and where the records of the change topic end (exclusive)."""
        return framed_parts(self.frame, self.snapshot_topic)
