"""`python -m tests.conformance`: run both, compare, and say in the last line what was found."""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from producer.app import Producer
from schemas import topics
from schemas.settings import Settings, from_mapping
from tests.conformance import debezium as peer
from tests.conformance.debezium import Connector, Connectors
from tests.conformance.differences import DIFFERENCES, FOLLOWED, unneeded
from tests.conformance.records import TopicReader
from tests.conformance.scenarios import END, SIGNALS, Scenario, Session, sessions
from tests.support.producing import RunningProducer
from tests.support.topics import Record
from tidemark.compare import compare_prefixes
from tidemark.compare.comparison import Comparison
from tidemark.compare.pairing import is_read
from tidemark.compare.run import Broker, Choice, Prefix
from tidemark.embedded import Database, Kafka, Registry, start_database, start_kafka, start_registry

PATIENCE_S = 900.0
SHOWN = 20  # differences of each scenario
LAST = "\U0010ffff"  # behind every statement
COMMAND = "tidemark compare, "
BY_COMMAND = frozenset({"random", "avro", "snapshot", "mariadb_tx"})  # with `tidemark compare`, too


@dataclass(frozen=True, slots=True)
class Place:
    """The servers that all sessions share, and a session's folder."""

    folder: Path
    kafka: Kafka
    registry: Registry

    @property
    def registry_root(self) -> str:
        """Base of all APIs of the registry."""
        return self.registry.url.partition("/apis/")[0]


def main(arguments: list[str]) -> int:
    """0 when nothing differs but what is meant to, and all of that does."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of tables, rows and DDL")
    parser.add_argument("--steps", type=int, default=4000, help="changes of the longest script, about")
    parser.add_argument(
        "--only", default=".*", help="pattern of scenarios; the list of differences may then be too long"
    )
    options = parser.parse_args(arguments)
    # What a reader tells, tables that need a snapshot above all, is not the subject here; what ends it is raised.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    chosen = [only(session, options.only) for session in sessions(options.seed, options.steps)]
    comparisons: list[Comparison] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-conformance-")))
        kafka, registry = start_kafka(folder), start_registry(folder)
        stack.enter_context(kafka)
        stack.enter_context(registry)
        for number, session in enumerate(chosen):
            if session.scenarios:
                comparisons += play(session, Place(folder / str(number), kafka, registry))
    return verdict(comparisons, complete=options.only == ".*")


def only(session: Session, pattern: str) -> Session:
    """The session with the scenarios that are asked for, and the scripts they read."""
    scenarios = tuple(item for item in session.scenarios if re.fullmatch(pattern, item.name))
    read = {database for scenario in scenarios for database in scenario.databases}
    return replace(
        session,
        scenarios=scenarios,
        scripts=tuple(script for script in session.scripts if script.database in read),
    )


def verdict(comparisons: Sequence[Comparison], *, complete: bool) -> int:
    """Say what was found; 1 for any difference, for an intended one that never came, and for no record."""
    problems = sum(item.differing for item in comparisons)
    for item in comparisons:
        for problem in item.problems[:SHOWN]:
            print(f"{item.scenario}: {problem}")
    missing = unneeded(comparisons) if complete else []
    for name in missing:
        print(f"intended difference never seen: {name}")
    once = [item for item in comparisons if not item.scenario.startswith(COMMAND)]
    records = sum(item.records for item in once)
    for item in comparisons:
        print(
            f"  {item.scenario}: {item.records} records, {item.differing} differences, "
            f"{sum(item.intended.values())} intended"
        )
    print(
        f"conformance: {records} records compared, {problems} differences, "
        f"{sum(sum(item.intended.values()) for item in once)} intended"
    )
    silent = [item.scenario for item in comparisons if not item.records]
    return 1 if problems or missing or silent or not comparisons else 0


def play(session: Session, place: Place) -> list[Comparison]:
    """All readers on the same changes; what the comparison of their topics found."""
    begin = time.monotonic()
    reader = TopicReader(place.kafka.bootstrap_servers, place.registry.url)
    with ExitStack() as stack:
        database = stack.enter_context(start_database(session.server, place.folder))
        for script in session.scripts:
            execute(database, script.first, schema=None)
        connectors = [connector_for(scenario, place) for scenario in session.scenarios]
        debezium = Connectors(place.folder, database, place.kafka, connectors)
        # Those that read tables write to their signal tables: the others begin behind that in the log.
        producers = start(stack, [item for item in session.scenarios if item.has_snapshot], database, place)
        stack.enter_context(debezium.start())
        producers += start(stack, [item for item in session.scenarios if not item.has_snapshot], database, place)
        debezium.wait_until_streaming()
        say(begin, f"{session.server}: {len(producers)} scenarios read")
        for script in session.scripts:
            execute(database, script.after, schema=script.database)
        for script in session.scripts:
            execute(database, script.last, schema=None)
        say(begin, f"{session.server}: {len(session.scripts)} scripts played")
        wait_for_end(reader, session.scenarios, producers, debezium)
        say(begin, f"{session.server}: all was read")
    xa: set[str] = set()
    compared = [compare(reader, scenario, xa) for scenario in session.scenarios]
    compared += [by_command(place, scenario) for scenario in session.scenarios if scenario.name in BY_COMMAND]
    for item in compared:
        say(begin, f"{session.server}: {item.scenario}: {item.records} records, {item.differing} differences")
    return compared


def start(
    stack: ExitStack, scenarios: Iterable[Scenario], database: Database, place: Place
) -> list[RunningProducer]:
    """Producers that read the log, and have read the tables that they are to read."""
    producers = [
        stack.enter_context(RunningProducer(settings_for(scenario, database, place))) for scenario in scenarios
    ]
    for producer in producers:
        producer.wait_until("it reads the log and has read its tables", has_begun, PATIENCE_S)
    return producers


def has_begun(start: Producer) -> bool:
    """Its place in the log is durable (a start before that begins at the log's end), and its snapshot is done."""
    tables = [] if start.coordinator is None else start.coordinator.progress()
    failed = [table for table in tables if table.state in ("failed", "cancelled")]
    assert not failed, failed
    reads = start.reader is not None and start.reader.progress.cuts > 0
    return reads and all(table.state == "done" for table in tables)


def say(begin: float, what: str) -> None:
    """A line of progress."""
    print(f"  {time.monotonic() - begin:5.0f} s  {what}", flush=True)


def left(scenario: Scenario) -> str:
    """Debezium's prefix."""
    return f"d_{scenario.name}"


def right(scenario: Scenario) -> str:
    """Our prefix."""
    return f"t_{scenario.name}"


def connector_for(scenario: Scenario, place: Place) -> Connector:
    """The connector of a scenario."""
    converters = peer.avro(place.registry_root) if scenario.avro else {}
    return Connector(left(scenario), {"table.include.list": scenario.pattern, **scenario.connector, **converters})


def settings_for(scenario: Scenario, database: Database, place: Place) -> Settings:
    """Tidemark's settings that correspond to those of the connector."""
    wire = {"type": "avro", "registry": place.registry.url} if scenario.avro else {"type": "json", "schemas": True}
    return from_mapping(
        {
            "name": right(scenario),
            "source": {
                "host": database.host,
                "port": database.port,
                "user": database.user,
                "password": database.password,
                "tables": [scenario.pattern],
                **scenario.settings.get("source", {}),
            },
            "kafka": {"bootstrap_servers": place.kafka.bootstrap_servers, "partitions": 1},
            "snapshot": {"mode": "never"},
            **{section: values for section, values in scenario.settings.items() if section != "source"},
            "format": {**wire, **scenario.settings.get("format", {})},
        }
    )


def execute(database: Database, statements: Iterable[str], *, schema: str | None) -> None:
    """Execute on one connection; an error names its statement."""
    with database.connect() as connection, connection.cursor() as cursor:
        if schema:
            cursor.execute(f"USE `{schema}`")
        for statement in statements:
            try:
                cursor.execute(statement)
            except Exception as error:
                error.add_note(statement)
                raise


def wait_for_end(
    reader: TopicReader,
    scenarios: Sequence[Scenario],
    producers: Sequence[RunningProducer],
    debezium: Connectors,
) -> None:
    """Until both sides of every scenario have written what was written last."""
    pending = {prefix: scenario for scenario in scenarios for prefix in (left(scenario), right(scenario))}
    deadline = time.monotonic() + PATIENCE_S
    while late := behind(reader, pending):
        pending = {prefix: pending[prefix] for prefix in late}
        for producer in producers:
            producer.check()
        debezium.check()
        if time.monotonic() > deadline:
            message = f"after {PATIENCE_S:g} s still not at the end: {', '.join(pending)}"
            raise TimeoutError(message)
        time.sleep(1.0)


def behind(reader: TopicReader, pending: Mapping[str, Scenario]) -> set[str]:
    """The prefixes whose last rows, or the border after them, are not written yet."""
    ends = {
        prefix: [f"{prefix}.{database}.{END}" for database in scenario.databases]
        for prefix, scenario in pending.items()
    }
    records = reader.read_all(topic for wanted in ends.values() for topic in wanted)
    return {
        prefix
        for prefix, scenario in pending.items()
        if any(len(records[topic]) < scenario.end_records for topic in ends[prefix])
        or (scenario.has_borders and not through_end(reader, prefix, scenario))
    }


def through_end(reader: TopicReader, prefix: str, scenario: Scenario) -> list[Record]:
    """The borders of transactions until the end of that with the last row; none when it is not told yet."""
    rows = reader.read(f"{prefix}.{scenario.databases[-1]}.{END}")
    records = reader.read(topics.transaction_topic(prefix))
    last = rows[-1].value["payload"]["source"]["gtid"] if rows else None
    for number, record in enumerate(records, 1):
        payload = record.value["payload"]
        if payload["status"] == "END" and payload["id"] == last:
            return records[:number]
    return []


def compare(reader: TopicReader, scenario: Scenario, xa: set[str]) -> Comparison:
    """The topics of both sides, compared; `xa` as in `Comparison`."""
    sides = (left(scenario), right(scenario))
    comparison = Comparison(scenario.name, *sides, xa=xa, differences=DIFFERENCES)
    names = tables(reader.existing(), sides)
    if scenario.has_statements:  # of the tables that this script drops, whoever reads late knows no defaults
        names = [name for name in names if not name.startswith("ddl.")]
    records = reader.read_all(f"{prefix}.{table}" for table in names for prefix in sides)
    for table in names:
        comparison.topic(table, *(records[f"{prefix}.{table}"] for prefix in sides))
    if scenario.has_statements:
        told = [reader.read(topics.schema_change_topic(prefix)) for prefix in sides]
        comparison.topic("statements", *(in_order(side) for side in told))
    if scenario.has_borders:
        borders = [through_end(reader, prefix, scenario) for prefix in sides]
        comparison.borders("transactions", *borders)
    if scenario.has_heartbeats:
        beats = [reader.read(topics.heartbeat_topic(prefix)) for prefix in sides]
        comparison.first("heartbeats", *beats)
    return comparison


def in_order(statements: Iterable[Record]) -> list[Record]:
    """Those told at the start by their text, since Debezium tells tables in the order of a set; then those of the log."""
    kept = [item for item in statements if is_followed(item)]
    return sorted(kept, key=lambda item: payload_of(item)["ddl"] if is_read(payload_of(item)) else LAST)


def payload_of(record: Record) -> Any:
    """The payload of its value."""
    return record.value["payload"]


def is_followed(statement: Record) -> bool:
    """Whether it is not one of the log on tables that are not captured.

    Our models of these begin with what the server tells when the first statement is met, which may be of later.
    """
    payload = payload_of(statement)
    return is_read(payload) or payload["databaseName"] in FOLLOWED


def by_command(place: Place, scenario: Scenario) -> Comparison:
    """What `tidemark compare` finds, which pairs records by key and place."""
    registry = place.registry.url if scenario.avro else None
    found = compare_prefixes(
        Broker(place.kafka.bootstrap_servers),
        Prefix(left(scenario), registry),
        Prefix(right(scenario), registry),
        Choice(left_out=[rf"{SIGNALS}\..*"], snapshots=scenario.has_snapshot),
    ).comparison
    found.scenario = f"{COMMAND}{scenario.name}"
    return found


def tables(existing: Iterable[str], prefixes: Sequence[str]) -> list[str]:
    """`database.table` of every change topic that either side has, but for signal tables."""
    rests = {
        topic.removeprefix(f"{prefix}.")
        for topic in existing
        for prefix in prefixes
        if topic.startswith(f"{prefix}.")
    }
    return sorted(rest for rest in rests if "." in rest and not rest.startswith(f"{SIGNALS}."))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
