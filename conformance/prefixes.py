"""The course of a comparison: which topics, which part of the log, then topic by topic; and what is said of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from conformance.comparison import Comparison
from conformance.pairing import SIDES, Coordinates, Incoming, Pairing, Span, Tally
from conformance.topic_reader import Side, Stream, span_of
from kafkaio.committed_reader import Partition
from schemas import topics
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import ConfigError

KEPT_BYTES: Final = 128 * 1024 * 1024
"""What records may take that wait for their counterpart."""
CLOCKS_APART_MS: Final = 3_600_000
"""How far the clocks of source and broker may be apart, for records before the common begin to be left unread."""
WIDEST: Final = 2_000
"""Characters of a difference that are shown: schemas may differ as wholes."""
HEARTBEAT: Final = "heartbeat"
_OTHERS: Final[Mapping[str, Callable[[str], str]]] = {
    "schema-changes": topics.schema_change_topic,
    "transaction": topics.transaction_topic,
    HEARTBEAT: topics.heartbeat_topic,
}
"""Topics that are of no table, by the names that `--exclude` takes."""
READERS_OWN: Final = frozenset({"version"})


@dataclass(frozen=True, slots=True)
class Prefix:
    """One side: its prefix, the registry its Avro schemas are in, and how that is reached."""

    name: str
    registry: str | None = None
    access: RegistryAccess | None = None


@dataclass(frozen=True, slots=True)
class Broker:
    """Where the topics of both sides are; `options` are librdkafka's."""

    bootstrap_servers: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is compared: regular expressions on `database.table`, and whether rows of snapshots are."""

    tables: Sequence[str] = ()
    left_out: Sequence[str] = ()
    snapshots: bool = False
    shown: int = 20
    kept_bytes: int = KEPT_BYTES

    def takes(self, table: str) -> bool:
        """Return whether a table is compared."""
        is_named = not self.tables or any(re.fullmatch(pattern, table) for pattern in self.tables)
        return is_named and not self.is_left_out(table)

    def is_left_out(self, name: str) -> bool:
        """Return whether a table, or the topic of statements, transactions or heartbeats, is left out by name."""
        return any(re.fullmatch(pattern, name) for pattern in self.left_out)


@dataclass(slots=True)
class Report:
    """What was found. `notes` say what was not compared, and why."""

    comparison: Comparison
    tallies: list[Tally] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether records were compared, and nothing differs but what is meant to."""
        return self.comparison.records > 0 and self.comparison.differing == 0

    @property
    def summary(self) -> str:
        """The last line."""
        found = self.comparison
        return (
            f"compare: {found.records} records compared, {found.differing} differences, "
            f"{sum(found.intended.values())} intended"
        )

    def to_text(self) -> str:
        """Differences, intended ones by name, topics, notes, and the summary."""
        found = self.comparison
        lines = [line if len(line) <= WIDEST else f"{line[:WIDEST]}…" for line in found.problems]
        if found.differing > len(found.problems):
            lines.append(f"... and {found.differing - len(found.problems)} more differences")
        lines += [f"intended, {count} times: {item.name}: {item.reason}" for item, count in found.intended.items()]
        lines += [line for tally in self.tallies for line in _summary(tally)]
        lines += self.notes
        return "\n".join([*lines, self.summary])


def compare_prefixes(
    broker: Broker, left: Prefix, right: Prefix, choice: Choice, report_line: Callable[[str], None] = lambda _line: None
) -> Report:
    """Compare all topics of two prefixes up to their ends as they are now.

    `report_line` is given a line for each topic that is done. Raises `ConfigError` where nothing can be compared as asked,
    `PublishError` when Kafka, `RegistryError` when the registry does not answer, `DecodeError` for a broken record.
    """
    if left.name == right.name:
        raise ConfigError(f"both prefixes are {left.name}: name two")
    with ExitStack() as stack:
        sides = [
            stack.enter_context(
                Side(
                    broker.bootstrap_servers, broker.options, prefix.registry, prefix.access, is_left=prefix is left
                )
            )
            for prefix in (left, right)
        ]
        return _Run(sides, (left.name, right.name), choice, report_line).report()


class _Run:
    """One comparison of two sides."""

    def __init__(
        self, sides: Sequence[Side], names: tuple[str, str], choice: Choice, report_line: Callable[[str], None]
    ) -> None:
        self._sides = sides
        self._names = names
        self._choice = choice
        self._report_line = report_line
        comparison = Comparison(
            "mysql", *names, kept=choice.shown, names=("left", "right"), readers_own=READERS_OWN
        )
        self._report = Report(comparison)
        self._missing: list[str] = []
        self._proven: tuple[Coordinates | None, ...] = (None, None)
        self._lasts: list[Coordinates | None] = [None, None]

    def report(self) -> Report:
        """Compare topic by topic: rows, then statements, then transactions, whose XA ids the rows have.

        Where producers run meanwhile, the ends of partitions are of different moments: what is compared ends with the
        last record behind the first ends, and is read up to later ends, behind which there is nothing of it. Topics
        that came between are found by a second look; what is deleted between, by one before each topic is read.
        """
        self._proven = tuple(side.checkpoint(name) for side, name in zip(self._sides, self._names, strict=True))
        wanted_partitions = _partitions_of(self._pairs([]))
        ends = [side.ends(wanted) for side, wanted in zip(self._sides, wanted_partitions, strict=True)]
        firsts = [side.first_coordinates(_filled(offsets)) for side, offsets in zip(self._sides, ends, strict=True)]
        lasts = [side.last_coordinates(_filled(offsets)) for side, offsets in zip(self._sides, ends, strict=True)]
        spans = [
            span_of([*first.values(), *last.values()]) for first, last in zip(firsts, lasts, strict=True)
        ]
        self._lasts = [each.last for each in spans]
        span = spans[0].both(spans[1])
        pairs = self._pairs(self._report.notes)
        for missing in self._missing:
            self._report.comparison.differ(missing)
        transactions = topics.transaction_topic(self._names[0])
        self._report.comparison.has_blocks = any(pair.left == transactions for pair in pairs)
        self._say_spans(spans, span)
        compacted = frozenset[str]().union(
            *(side.compacted(pair[at] for pair in pairs if pair.partitions[at]) for at, side in enumerate(self._sides))
        )
        settled = [self._settled(*offsets) for offsets in zip(self._sides, _partitions_of(pairs), strict=True)]
        for pair in pairs:
            there = self._still_there(pair, settled)
            for at, side in enumerate(self._sides):
                moved = {part: offsets for part, offsets in there[at].items() if offsets[0] > ends[at].get(part, (0, 0))[0]}
                firsts[at] = {part: offsets for part, offsets in firsts[at].items() if part not in moved}
                firsts[at] |= side.first_coordinates(_filled(moved))
            self._compare(pair, there, self._trimmed(pair, there, firsts, spans, span), compacted)
        return self._report

    def _still_there(
        self, pair: _Pair, ends: Sequence[Mapping[Partition, tuple[int, int]]]
    ) -> list[dict[Partition, tuple[int, int]]]:
        """Return the ends of a topic's partitions, without what was deleted since they were read."""
        own = [{part: offsets for part, offsets in ends[at].items() if part[0] == pair[at]} for at in (0, 1)]
        now = [side.ends(offsets) for side, offsets in zip(self._sides, own, strict=True)]
        return [
            {part: (max(low, now[at][part][0]), high) for part, (low, high) in own[at].items()} for at in (0, 1)
        ]

    def _settled(self, side: Side, partitions: Sequence[Partition]) -> dict[Partition, tuple[int, int]]:
        ends, hidden = side.settled(partitions)
        self._report.notes.extend(
            f"{topic}[{partition}]: a transaction is still open and hides what is there from offset {ends[topic, partition][1]} "
            "on, which may be reported as missing; compare again when it has ended"
            for topic, partition in hidden
        )
        return ends

    def _pairs(self, notes: list[str]) -> list[_Pair]:
        """Return the topics of both sides, by what follows the prefix; those of one side only are named."""
        existing = [side.topics() for side in self._sides]
        tables = [
            _tables(there, prefix, other)
            for there, prefix, other in zip(existing, self._names, reversed(self._names), strict=True)
        ]
        left_out = sorted(name for name in {*tables[0], *tables[1]} if not self._choice.takes(name))
        if left_out:
            notes.append(f"not compared, as asked: {', '.join(left_out)}")
        for prefix, there in zip(self._names, existing, strict=True):
            if any(re.fullmatch(topics.snapshot_topic_pattern(prefix), name) for name in there):
                notes.append(f"not compared: {prefix}{topics.SNAPSHOT_SUFFIX}.*, rows read for a window-aware sink")
        others = {name: topic for name, topic in _OTHERS.items() if not self._choice.is_left_out(name)}
        wanted: list[Callable[[str], str]] = [
            *(partial(_topic, name) for name in sorted({*tables[0], *tables[1]}) if self._choice.takes(name)),
            *(topic for name, topic in others.items() if name != HEARTBEAT),
        ]
        self._missing = [] if self._choice.tables else self._lacking(existing, others)
        pairs = []
        for name_of in wanted:
            names = [name_of(prefix) for prefix in self._names]
            counts = [there.get(name, 0) for there, name in zip(existing, names, strict=True)]
            if not any(counts):
                continue
            if not all(counts):
                missing = counts.index(0)
                notes.append(f"only on the {SIDES[1 - missing]}: topic {names[1 - missing]}")
            if all(counts) or isinstance(name_of, partial):  # statements and transactions are options of either side
                pairs.append(_Pair(names[0], names[1], (counts[0], counts[1])))
        if not pairs:
            raise ConfigError(
                f"no topics of {self._names[0]} and {self._names[1]} to compare: check the prefixes, the patterns and the broker"
            )
        return pairs

    def _lacking(self, existing: Sequence[Mapping[str, int]], others: Mapping[str, Callable[[str], str]]) -> list[str]:
        """Return a difference for each topic of statements, transactions or heartbeats that only the left side has."""
        return [
            f"only on the left: topic {topic(self._names[0])}: the right side has no {topic(self._names[1])}; leave it out with "
            f"--exclude {name}, if the right side is to have none"
            for name, topic in others.items()
            if existing[0].get(topic(self._names[0])) and not existing[1].get(topic(self._names[1]))
        ]

    def _say_spans(self, spans: Sequence[Span], span: Span) -> None:
        for side, prefix, has in zip(SIDES, self._names, spans, strict=True):
            if has.first is not None:
                self._report.notes.append(f"{side} {prefix}: {has.first} to {has.last}")
        bases = {has.first.file.rpartition(".")[0] for has in spans if has.first is not None}
        if len(bases) > 1:
            raise ConfigError(
                f"the two sides read different logs ({spans[0].first}, {spans[1].first}): both have to read one server"
            )
        if span.first is not None and span.last is not None and span.first.rank > span.last.rank:
            self._report.notes.append("the two sides have no part of the log in common")

    def _trimmed(
        self,
        pair: _Pair,
        ends: Sequence[Mapping[Partition, tuple[int, int]]],
        firsts: Sequence[Mapping[Partition, Coordinates]],
        spans: Sequence[Span],
        span: Span,
    ) -> Span:
        """Return the span without what a broker has deleted of a topic by age.

        A partition of which all was deleted does not report how far that reached: up to the end of its side, perhaps.
        """
        for at, side in enumerate(SIDES):
            trimmed = [part for part, (low, _) in ends[at].items() if part[0] == pair[at] and low > 0]
            begins = [firsts[at][part] for part in trimmed if part in firsts[at]]
            emptied = [f"{topic}[{partition}]" for topic, partition in trimmed if (topic, partition) not in firsts[at]]
            last = spans[at].last
            if emptied and last is not None:
                self._report.notes.append(
                    f"{', '.join(emptied)}: all records were deleted on the {side}; "
                    f"which ones cannot be known, and nothing before {last} is compared"
                )
                span = span.since(last)
            elif begins:
                begin = max(begins, key=lambda coordinates: coordinates.rank)
                self._report.notes.append(f"{pair[at]}: older records were deleted on the {side}; it begins at {begin}")
                span = span.since(begin)
        return span

    def _compare(
        self,
        pair: _Pair,
        ends: Sequence[Mapping[Partition, tuple[int, int]]],
        span: Span,
        compacted: frozenset[str],
    ) -> None:
        choice, comparison = self._choice, self._report.comparison
        tally = Tally(pair.left)
        self._report.tallies.append(tally)
        before = comparison.records, comparison.differing, sum(comparison.intended.values())
        is_compacted = bool({pair.left, pair.right} & compacted)
        if is_compacted:
            self._report.notes.append(
                f"{pair.left}: compacted: records that one side does not have any more are no differences"
            )
        comparison.partitions = pair.partitions[1]
        pairing = Pairing(
            comparison,
            span,
            tally,
            kept_bytes=choice.kept_bytes,
            with_snapshots=choice.snapshots,
            is_compacted=is_compacted,
            proven=self._proven,
            lasts=self._lasts,
        )
        streams = [self._stream(at, pair, ends[at], span, tally) for at in (0, 1)]
        for item in merged(*streams):
            if item.is_left and item.coordinates is not None and item.coordinates.file:
                comparison.scenario = _connector(item) or comparison.scenario
            pairing.add(item)
        pairing.finish()
        tally.records = comparison.records - before[0]
        tally.differing = comparison.differing - before[1]
        tally.intended = sum(comparison.intended.values()) - before[2]
        if tally.given_up:
            self._report.notes.append(
                f"{pair.left}: {tally.given_up} records waited in vain until {choice.kept_bytes} bytes were waiting, and "
                "may be reported as missing though they come later"
            )
        if tally.differing and self._still_there(pair, ends) != [*ends]:
            self._report.notes.append(
                f"{pair.left}: records were deleted while it was read, and may be reported as missing; compare again"
            )
        self._report_line(next(iter(_summary(tally))))

    def _stream(
        self, at: int, pair: _Pair, ends: Mapping[Partition, tuple[int, int]], span: Span, tally: Tally
    ) -> Stream:
        """Return one side's records of a topic; what was written long before the common begin is not read."""
        side = self._sides[at]
        own = {part[1]: offsets for part, offsets in ends.items() if part[0] == pair[at]}
        if own and span.first_ms and span.first is not None and not self._choice.snapshots:
            begun = side.since(pair[at], own, span.first_ms - CLOCKS_APART_MS)
            tally.earlier[at] += sum(begun[partition][0] - low for partition, (low, _) in own.items())
            own = begun
        return side.read(pair[at], own, is_single=max(pair.partitions) == 1)


@dataclass(frozen=True, slots=True)
class _Pair:
    """A topic of the left and one of the right, with their numbers of partitions, 0 where there is none."""

    left: str
    right: str
    partitions: tuple[int, int]

    def __getitem__(self, at: int) -> str:
        return self.right if at else self.left


def merged(left: Stream, right: Stream) -> Iterable[Incoming]:
    """Yield the records of both sides, those first that stand first in the log."""
    while True:
        ranks = left.rank, right.rank
        if ranks == (None, None):
            return
        is_left = ranks[1] is None or (ranks[0] is not None and ranks[0] <= ranks[1])
        yield (left if is_left else right).next_record()


def _topic(rest: str, prefix: str) -> str:
    return f"{topics.sanitise(prefix)}.{rest}"


def _tables(existing: Iterable[str], prefix: str, other: str) -> set[str]:
    """`database.table` of every change topic; not of the other prefix, which may begin as this one: `shop`, `shop.new`."""
    pattern = re.compile(topics.change_topic_pattern(prefix))
    begin = len(topics.sanitise(prefix)) + 1
    others = re.compile(topics.change_topic_pattern(other))
    others_own = {topics.transaction_topic(other), topics.notifications_topic(other), topics.state_topic(other)}
    is_longer = len(other) > len(prefix)  # the topics of the shorter one are not distinguished by its pattern
    return {
        name[begin:]
        for name in existing
        if pattern.fullmatch(name) and not (is_longer and (name in others_own or others.fullmatch(name)))
    }


def _partitions_of(pairs: Iterable[_Pair]) -> list[list[Partition]]:
    """Return the partitions of the left side, and those of the right."""
    return [[(pair[at], partition) for pair in pairs for partition in range(pair.partitions[at])] for at in (0, 1)]


def _filled(ends: Mapping[Partition, tuple[int, int]]) -> dict[Partition, tuple[int, int]]:
    return {part: (low, high) for part, (low, high) in ends.items() if low < high}


def _connector(item: Incoming) -> str | None:
    value = item.loaded().value
    source = value["payload"].get("source") if value is not None else None
    return source.get("connector") if isinstance(source, dict) else None


def _summary(tally: Tally) -> list[str]:
    """Return a line of what was compared of a topic, and of what was not."""
    apart = [
        f"{counts[at]} on the {side} {why}"
        for counts, why in (
            (tally.earlier, "before the other side begins"),
            (tally.later, "after the other side ends"),
            (tally.snapshot, "read by a snapshot"),
            (tally.compacted, "compacted away on the other"),
        )
        for at, side in enumerate(SIDES)
        if counts[at]
    ]
    line = f"{tally.topic}: {tally.records} records, {tally.differing} differences, {tally.intended} intended"
    return [f"{line}; not compared: {', '.join(apart)}" if apart else line]
