"""What a batch holds, by table: slices of the topics, and markers split from rows in one small job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from schemas.errors import DecodeError, SinkError
from schemas.markers import MARKER_KEY, MARKER_VERSION, Marker, parse_marker
from schemas.settings import KafkaSettings
from schemas.topics import SNAPSHOT_SUFFIX, change_topic, sanitise, snapshot_topic
from spark_jobs.read import Offsets, Slice, read_slices


@dataclass(frozen=True, slots=True)
class TableWork:
    """What a batch holds of one table.

    `rows` counts the records of the snapshot topic that are no markers; the ends are those of the whole
    topics after this batch, exclusive, also where the batch read nothing.
    """

    database: str
    name: str
    change_topic: str
    snapshot_topic: str
    change_ends: Mapping[int, int]
    snapshot_ends: Mapping[int, int]
    slices: tuple[Slice, ...] = ()
    markers: tuple[Marker, ...] = ()
    bad_markers: tuple[BadMarker, ...] = ()
    rows: int = 0

    @property
    def full_name(self) -> str:
        """`database.table`."""
        return f"{self.database}.{self.name}"

    @property
    def data_slices(self) -> tuple[Slice, ...]:
        """The slices that hold more than markers."""
        return tuple(part for part in self.slices if self.rows or part.topic == self.change_topic)

    @property
    def size(self) -> int:
        """Records at most."""
        return sum(part.end - max(part.start, 0) for part in self.slices)


@dataclass(frozen=True, slots=True)
class BadMarker:
    """A record with the marker key that is no marker."""

    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes


def table_of(topic: str, prefix: str) -> tuple[str, str] | None:
    """Database and table of a change or snapshot topic; None for a topic that is no table's."""
    name = sanitise(prefix)
    for head in (f"{name}{SNAPSHOT_SUFFIX}.", f"{name}."):
        if topic.startswith(head):
            database, _, table = topic.removeprefix(head).partition(".")
            return (database, table) if database and table else None
    return None


def works_of(
    spark: SparkSession, kafka: KafkaSettings, prefix: str, slices: Sequence[Slice], ends: Offsets
) -> list[TableWork]:
    """The slices of a batch by table, with their markers, the largest first."""
    works: dict[tuple[str, str], TableWork] = {}
    for part in slices:
        place = table_of(part.topic, prefix)
        if place is not None:
            work = works.get(place) or _empty(place, prefix, ends)
            works[place] = replace(work, slices=(*work.slices, part))
    found = _read_markers(
        spark, kafka, [p for w in works.values() for p in w.slices if p.topic == w.snapshot_topic]
    )
    complete = [replace(work, **found.get(work.snapshot_topic, {})) for work in works.values()]
    return sorted(complete, key=lambda work: work.size, reverse=True)


def _empty(place: tuple[str, str], prefix: str, ends: Offsets) -> TableWork:
    changes, snapshots = change_topic(prefix, *place), snapshot_topic(prefix, *place)
    return TableWork(*place, changes, snapshots, dict(ends.get(changes, {})), dict(ends.get(snapshots, {})))


def _read_markers(
    spark: SparkSession, kafka: KafkaSettings, slices: Sequence[Slice]
) -> dict[str, dict[str, Any]]:
    """Markers, bad markers and the number of rows of each snapshot topic."""
    if not slices:
        return {}
    is_marker = F.col("key").eqNullSafe(F.lit(MARKER_KEY))
    grouped = (
        read_slices(spark, kafka, slices)
        .groupBy("topic")
        .agg(
            F.collect_list(F.when(is_marker, F.struct("partition", "offset", "value"))).alias("markers"),
            F.count_if(~is_marker & F.col("value").isNotNull()).alias("rows"),
        )
    )
    return {
        row["topic"]: _parsed(row["topic"], row["markers"]) | {"rows": row["rows"]}
        for row in grouped.collect()
    }


def _parsed(topic: str, records: Sequence[Any]) -> dict[str, Any]:
    markers: list[Marker] = []
    bad: list[BadMarker] = []
    for record in sorted(records, key=lambda item: (item["partition"], item["offset"])):
        value = bytes(record["value"] or b"")
        try:
            markers.append(replace(parse_marker(value), partition=record["partition"]))
        except DecodeError as error:
            _require_known_version(topic, value)
            bad.append(BadMarker(topic, record["partition"], record["offset"], error.reason, value))
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
