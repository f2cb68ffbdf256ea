"""What both sides of a scenario wrote, read once: it is compared, and then falsified and compared again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from conformance.comparison import Comparison
from conformance.pairing import is_read
from schemas import topics
from tests.conformance.differences import DIFFERENCES, FOLLOWED
from tests.conformance.listed_events import Truth
from tests.conformance.scenarios import SIGNALS, Scenario
from tests.support.topics import Record

LAST: Final = "\U0010ffff"  # behind every statement
CLOCKS_APART_MS: Final = 3_600_000  # of two readers of one run
Sides = tuple[Sequence[Record], Sequence[Record]]


class Reader(Protocol):
    """Reads whole topics."""

    def existing(self) -> set[str]:
        """All topics there are."""

    def read(self, topic: str) -> list[Record]:
        """Every record of a topic; none when it does not exist."""

    def read_all(self, topics: Iterable[str]) -> dict[str, list[Record]]:
        """Every record of some topics."""


def left(scenario: Scenario) -> str:
    """Debezium's prefix."""
    return f"d_{scenario.name}"


def right(scenario: Scenario) -> str:
    """Our prefix."""
    return f"t_{scenario.name}"


@dataclass(frozen=True)
class Recorded:
    """The records of a scenario by topic, as they are compared: tables by name, then `KINDS`. No I/O."""

    scenario: Scenario
    topics: Mapping[str, Sides]
    xa: set[str] = field(default_factory=set)

    def with_topic(self, name: str, ours: Sequence[Record]) -> Recorded:
        """The same with other records of ours in one topic."""
        return replace(self, topics={**self.topics, name: (self.topics[name][0], ours)})

    def comparison(self, truth: Truth) -> Comparison:
        """A comparison of this scenario that has seen nothing yet."""
        return Comparison(
            self.scenario.name,
            left(self.scenario),
            right(self.scenario),
            xa=set(self.xa),
            differences=DIFFERENCES,
            keeps_nulls=not self.scenario.avro,
            witness=truth.seen,
            objections=truth.objections,
            clocks_apart_ms=CLOCKS_APART_MS,
            statements={payload_of(item)["ddl"] or "" for item in self.topics.get(STATEMENTS, ((), ()))[0]},
        )

    def compared(self, truth: Truth, only: str | None = None) -> Comparison:
        """What the comparison of all topics, or of one, finds."""
        comparison = self.comparison(truth)
        for name, sides in self.topics.items():
            if only in (None, name):
                compare_topic(comparison, name, *sides)
        self.xa.update(comparison.xa)
        return comparison


BOUNDARIES, HEARTBEATS, STATEMENTS = "transactions", "heartbeats", "statements"


def compare_topic(comparison: Comparison, name: str, theirs: Sequence[Record], ours: Sequence[Record]) -> None:
    """Compare the records of a topic as those of its kind are."""
    compare = {BOUNDARIES: comparison.transaction_boundaries, HEARTBEATS: comparison.first}.get(name, comparison.topic)
    compare(name, theirs, ours)


def read(reader: Reader, scenario: Scenario, xa: set[str]) -> Recorded:
    """Everything both sides wrote; `xa` are the XA transactions of the session."""
    sides = (left(scenario), right(scenario))
    names = tables(reader.existing(), sides)
    if scenario.has_statements:  # of the tables that this script drops, the one that reads late knows no defaults
        names = [name for name in names if not name.startswith("ddl.")]
    records = reader.read_all(f"{prefix}.{table}" for table in names for prefix in sides)
    found: dict[str, Sides] = {
        table: (records[f"{sides[0]}.{table}"], records[f"{sides[1]}.{table}"]) for table in names
    }
    if scenario.has_statements:
        reported = [in_order(reader.read(topics.schema_change_topic(prefix))) for prefix in sides]
        found[STATEMENTS] = reported[0], reported[1]
    if scenario.has_boundaries:
        boundaries = [through_end(reader, prefix, scenario) for prefix in sides]
        found[BOUNDARIES] = boundaries[0], boundaries[1]
    if scenario.has_heartbeats:
        heartbeats = [reader.read(topics.heartbeat_topic(prefix)) for prefix in sides]
        found[HEARTBEATS] = heartbeats[0], heartbeats[1]
    return Recorded(scenario, found, xa)


def through_end(reader: Reader, prefix: str, scenario: Scenario) -> list[Record]:
    """The transaction boundaries until the end of that with the last row; none when it is not reported yet."""
    rows = reader.read(f"{prefix}.{scenario.databases[-1]}.the_end")
    records = reader.read(topics.transaction_topic(prefix))
    last = rows[-1].value["payload"]["source"]["gtid"] if rows else None
    for number, record in enumerate(records, 1):
        payload = record.value["payload"]
        if payload["status"] == "END" and payload["id"] == last:
            return records[:number]
    return []


def in_order(statements: Iterable[Record]) -> list[Record]:
    """Those reported at the start by their text, since Debezium reports tables in the order of a set; then those of the log."""
    kept = [item for item in statements if is_followed(item)]
    return sorted(kept, key=lambda item: payload_of(item)["ddl"] if is_read(payload_of(item)) else LAST)


def payload_of(record: Record) -> Any:
    """The payload of its value."""
    return record.value["payload"]


def is_followed(statement: Record) -> bool:
    """Whether it is not one of the log on tables that are not captured.

    Our models of these begin with what the server reports when the first statement is seen, which may be of later.
    """
    payload = payload_of(statement)
    return is_read(payload) or payload["databaseName"] in FOLLOWED


def tables(existing: Iterable[str], prefixes: Sequence[str]) -> list[str]:
    """`database.table` of every change topic that either side has, but for signal tables."""
    rests = {
        topic.removeprefix(f"{prefix}.")
        for topic in existing
        for prefix in prefixes
        if topic.startswith(f"{prefix}.")
    }
    return sorted(rest for rest in rests if "." in rest and not rest.startswith(f"{SIGNALS}."))
