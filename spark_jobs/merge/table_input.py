"""What a batch holds, by table: slices of the topics, and markers split from rows in one small job."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import structlog
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from schemas.errors import DecodeError, SinkError
from schemas.markers import MARKER_KEY, MARKER_VERSION, Marker, parse_marker
from schemas.settings import KafkaSettings, Settings
from schemas.topics import DELIMITER, SNAPSHOT_SUFFIX, change_topic, sanitise, snapshot_topic, state_topic
from spark_jobs.kafka.admin import first_offsets, topic_exists
from spark_jobs.kafka.read import EARLIEST, Offsets, Slice, read_slices, tables_with_topics

log = structlog.get_logger()

_ASKED: Final = 6
_ASK_AGAIN_S: Final = 2.0
_PLAIN: Final = re.compile(r"[A-Za-z0-9-]+")
_SERVICES: Final = frozenset({"state", "notifications", "transaction"})


@dataclass(frozen=True, slots=True)
class TableWork:
    """What a batch holds of one table.

    `rows` counts the records of the snapshot topic that are no markers; the ends are those of the whole
    topics after this batch, exclusive, also where the batch read nothing. `change_starts` is where partitions of the
    change topic began that no batch read before, `trimmed` whether records were gone by then, of either topic. `lost` says which
    records are gone that were to be read next, `untold` why nothing can be read; `begins_again` is that of `SetAside`.
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
    change_starts: Mapping[int, int] = field(default_factory=dict)
    trimmed: bool = False
    lost: str | None = None
    untold: str | None = None
    begins_again: bool = False

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


    def require_partitions(self, expected: int) -> None:
        """`SinkError` where a topic has more partitions than the table's markers speak of (0: there was none yet).

        What lies in the others is told by no marker: a tombstone could go too early.
        """
        counts = ((self.change_topic, self.change_ends), (self.snapshot_topic, self.snapshot_ends))
        for topic, ends in counts:
            if expected and len(ends) > expected:
                message = (
                    f"topic {topic} has {len(ends)} partitions, the producer knows {expected}: somebody has added some. "
                    "Nothing is lost: give the producer another name (new topics) and the sink another sinks.path, and "
                    "have the tables read again"
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


class TopicTables:
    """Which table a topic is of.

    A name of letters, digits and `-` between dots tells. Else the tables that have topics do: a `_` may stand for anything
    Kafka does not bear in names, a dot may be a table's, another delimiter may be anywhere. `read_tables` asks for them anew
    when a topic is of none that is known; partitions of one Kafka transaction need not become readable at once, so it is
    asked for some seconds. `exists` tells whether there is a topic: a producer of a longer name is known by its state.
    """

    def __init__(
        self,
        prefix: str,
        delimiter: str,
        read_tables: Callable[[], set[tuple[str, str]]],
        exists: Callable[[str], bool],
    ) -> None:
        self._prefix = prefix
        self._delimiter = delimiter
        self._read_tables = read_tables
        self._exists = exists
        self._known: dict[str, tuple[str, str] | None] = {}
        self._seen: dict[str, float] = {}

    def topics(self, place: tuple[str, str]) -> tuple[str, str]:
        """The change topic and the snapshot topic of a table."""
        return (
            change_topic(self._prefix, *place, self._delimiter),
            snapshot_topic(self._prefix, *place, self._delimiter),
        )

    def place_of(self, name: str, there: Container[str]) -> tuple[str, str]:
        """Database and table of a full name: where both may have dots, those that have topics."""
        parts = name.split(".")
        places = [(".".join(parts[:number]), ".".join(parts[number:])) for number in range(1, len(parts))]
        return next((place for place in places if any(topic in there for topic in self.topics(place))), places[0])

    def expect(self, topics: Iterable[str]) -> None:
        """These topics will be asked about: waiting for the table of one is waiting for those of all."""
        for topic in topics:
            self._seen.setdefault(topic, time.monotonic())

    def of(self, topic: str) -> tuple[str, str] | None:
        """Database and table; None for a topic of another producer, whose name begins with ours.

        Raises `SinkError` for one that no producer has a table of.
        """
        told = self._told(topic) if self._delimiter == DELIMITER else None
        if told is None and topic not in self._known:
            self._look_up(topic)
        return told or self._known[topic]

    def _told(self, topic: str) -> tuple[str, str] | None:
        """What the name says by itself."""
        place = table_of(topic, self._prefix)
        if place is None or place[1] in _SERVICES or not all(_PLAIN.fullmatch(name) for name in place):
            return None
        return place

    def _look_up(self, topic: str) -> None:
        self.expect([topic])
        for attempt in range(_ASKED):
            time.sleep(attempt and _ASK_AGAIN_S)
            is_late = attempt == _ASKED - 1 or time.monotonic() - self._seen[topic] >= (_ASKED - 1) * _ASK_AGAIN_S
            tables = {name: place for place in self._read_tables() for name in self.topics(place)}
            self._known |= tables
            if topic in tables:
                return
            if is_late and self._is_anothers(topic):
                log.info("merge.topic_of_another", topic=topic)
                self._known[topic] = None
                return
        message = (
            f"topic {topic} is called like a table's of {self._prefix!r}, whose producer knows no table of it (topic "
            f"{state_topic(self._prefix, self._delimiter)}). If it is another producer's, call them so that the name of "
            f"neither begins with the other's and {self._delimiter!r} (kafka.topic_delimiter)"
        )
        raise SinkError(message)

    def _is_anothers(self, topic: str) -> bool:
        """Whether there is a producer whose name begins with ours and whose topic this could be: a table's, or of itself."""
        name = sanitise(self._prefix)
        rest = topic.removeprefix(name).removeprefix(SNAPSHOT_SUFFIX)
        parts = rest.split(self._delimiter)[1:]
        for number in range(1, len(parts)):
            if len(parts) - number < 2 and parts[-1] not in _SERVICES:
                break
            longer = self._delimiter.join((name, *parts[:number]))
            if any(
                self._exists(state_topic(one, self._delimiter))
                for one in {longer, longer.removesuffix(SNAPSHOT_SUFFIX)}
            ):
                return True
        return False


def topic_tables(spark: SparkSession, settings: Settings) -> TopicTables:
    """Of the configured producer, as Kafka tells."""
    return TopicTables(
        settings.name,
        settings.kafka.topic_delimiter,
        lambda: tables_with_topics(spark, settings),
        lambda topic: topic_exists(spark, settings.kafka, topic),
    )


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
    tables.expect(part.topic for part in slices)
    for part in slices:
        place = tables.of(part.topic)
        if place is not None:
            work = works.get(place) or _empty(place, tables, ends)
            works[place] = replace(work, slices=(*work.slices, part))
    asked = [(part.topic, part.partition) for work in works.values() for part in work.slices]
    starts = first_offsets(spark, kafka, asked) if asked else {}
    begun = [_begun(work, starts) for work in works.values()]
    found = _read_markers(spark, kafka, [p for w in begun for p in w.slices if p.topic == w.snapshot_topic])
    complete = [replace(work, **found.get(work.snapshot_topic, {})) for work in begun]
    return sorted(complete, key=lambda work: work.size, reverse=True)


def _begun(work: TableWork, starts: Mapping[tuple[str, int], int]) -> TableWork:
    """The work with where its partitions begin. What goes from there on, before it is read, is an error of the reading."""
    slices: list[Slice] = []
    changes: dict[int, int] = {}
    trimmed, lost = False, None
    untold = sorted({part.topic for part in work.slices if (part.topic, part.partition) not in starts})
    if untold:
        return replace(work, slices=(), untold=f"Kafka does not say where topic {', '.join(untold)} begins, it may be gone")
    for part in work.slices:
        first = starts[part.topic, part.partition]
        is_fresh, is_lost = part.start == EARLIEST, EARLIEST < part.start < first
        if is_lost:
            lost = (
                f"records of topic {part.topic} that were not merged yet are no longer in Kafka (partition {part.partition}, "
                f"offsets {part.start} to {first - 1}): the job was stopped, or the table set aside, for longer than the topic is "
                "kept. Snapshot this table again"
            )
        if (is_fresh or is_lost) and part.topic == work.change_topic:
            changes[part.partition] = first
        trimmed |= is_fresh and first > 0
        start = first if is_fresh or is_lost else part.start
        if start < part.end:
            slices.append(replace(part, start=start))
    return replace(work, slices=tuple(slices), change_starts=changes, trimmed=trimmed, lost=lost)


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
            F.collect_list(F.when(is_marker, F.struct("partition", "offset", "value", "timestamp"))).alias("markers"),
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
            bad.append(BadMarker(topic, record["partition"], record["offset"], error.reason, value, record["timestamp"]))
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
