"""What a batch holds, by table: slices of the topics, and markers split from rows in one small job."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from schemas.errors import DecodeError, SinkError
from schemas.markers import MARKER_KEY, MARKER_VERSION, Marker, parse_marker
from schemas.settings import KafkaSettings
from schemas.topics import DELIMITER, SNAPSHOT_SUFFIX, change_topic, sanitise, snapshot_topic, state_topic
from spark_jobs.read import Offsets, Slice, read_slices

_ASKED: Final = 6
_ASK_AGAIN_S: Final = 2.0


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


class TopicTables:
    """Which table a topic is of.

    With the delimiter `.` the name tells: there is none in a database's. With another one it does not (`shop_a_b_c`), so
    the tables that have topics tell; `read_tables` asks for them anew when a topic is of none that is known. Partitions of
    one Kafka transaction need not become readable at once, so it is asked for some seconds.
    """

    def __init__(self, prefix: str, delimiter: str, read_tables: Callable[[], set[tuple[str, str]]]) -> None:
        self._prefix = prefix
        self._delimiter = delimiter
        self._read_tables = read_tables
        self._known: dict[str, tuple[str, str]] = {}

    def topics(self, place: tuple[str, str]) -> tuple[str, str]:
        """The change topic and the snapshot topic of a table."""
        return (
            change_topic(self._prefix, *place, self._delimiter),
            snapshot_topic(self._prefix, *place, self._delimiter),
        )

    def of(self, topic: str) -> tuple[str, str] | None:
        """Database and table; None for a topic whose name tells that it is no table's.

        Raises `SinkError` for one that no table of the producer has.
        """
        if self._delimiter == DELIMITER:
            return table_of(topic, self._prefix)
        for attempt in range(_ASKED):
            if topic in self._known:
                break
            time.sleep(attempt and _ASK_AGAIN_S)
            self._known |= {name: place for place in self._read_tables() for name in self.topics(place)}
        if topic not in self._known:
            message = (
                f"topic {topic} is called like a table's of {self._prefix!r}, whose producer knows no table of it (topic "
                f"{state_topic(self._prefix, self._delimiter)}). If it is another producer's, call them so that the name of "
                f"neither begins with the other's and {self._delimiter!r} (kafka.topic_delimiter)"
            )
            raise SinkError(message)
        return self._known[topic]


def table_of(topic: str, prefix: str) -> tuple[str, str] | None:
    """Database and table of a change or snapshot topic named with `.`; None for a topic that is no table's."""
    name = sanitise(prefix)
    for head in (f"{name}{SNAPSHOT_SUFFIX}.", f"{name}."):
        if topic.startswith(head):
            database, _, table = topic.removeprefix(head).partition(".")
            return (database, table) if database and table else None
    return None


def works_of(
    spark: SparkSession, kafka: KafkaSettings, tables: TopicTables, slices: Sequence[Slice], ends: Offsets
) -> list[TableWork]:
    """The slices of a batch by table, with their markers, the largest first."""
    works: dict[tuple[str, str], TableWork] = {}
    for part in slices:
        place = tables.of(part.topic)
        if place is not None:
            work = works.get(place) or _empty(place, tables, ends)
            works[place] = replace(work, slices=(*work.slices, part))
    found = _read_markers(
        spark, kafka, [p for w in works.values() for p in w.slices if p.topic == w.snapshot_topic]
    )
    complete = [replace(work, **found.get(work.snapshot_topic, {})) for work in works.values()]
    return sorted(complete, key=lambda work: work.size, reverse=True)


def _empty(place: tuple[str, str], tables: TopicTables, ends: Offsets) -> TableWork:
    changes, snapshots = tables.topics(place)
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
