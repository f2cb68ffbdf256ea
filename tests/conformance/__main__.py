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

import structlog

from conformance import compare_prefixes
from conformance.comparison import Comparison
from conformance.prefixes import Broker, Choice, Prefix
from devservers import Database, Kafka, Registry, start_database, start_kafka, start_registry
from producer.app import Producer
from schemas.settings import Settings, from_mapping
from tests.conformance import debezium as peer
from tests.conformance.debezium import Connector, Connectors
from tests.conformance.differences import unneeded
from tests.conformance.falsify import Outcome, falsify
from tests.conformance.listed_events import Log, Truth, problems_of, read_log, truth_of
from tests.conformance.recorded import Recorded, left, read, right, through_end
from tests.conformance.records import TopicReader
from tests.conformance.scenarios import END, SIGNALS, Scenario, Session, sessions
from tests.support.producing import RunningProducer

PATIENCE_S = 900.0
SHOWN = 20  # differences of each scenario
EXACT_MODES = frozenset({"types", "keys", "queries", "snapshot", "unmasked"})  # whose records of Debezium's lose nothing
COMMAND = "python -m conformance, "
BY_COMMAND = frozenset({"random", "avro", "snapshot", "mariadb_tx"})  # with `python -m conformance`, too


@dataclass(frozen=True, slots=True)
class Setup:
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
    # What a reader reports, tables that need a snapshot above all, is not the subject here; what ends it is raised.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    chosen = [only(session, options.only) for session in sessions(options.seed, options.steps)]
    if not any(session.scenarios for session in chosen):
        parser.error(f"--only: no scenario is called like {options.only!r}")
    comparisons: list[Comparison] = []
    falsifications = Outcome()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-conformance-")))
        kafka, registry = start_kafka(folder), start_registry(folder)
        stack.enter_context(kafka)
        stack.enter_context(registry)
        for number, session in enumerate(chosen):
            if session.scenarios:
                comparisons += play(session, Setup(folder / str(number), kafka, registry), falsifications)
    return verdict(comparisons, falsifications, complete=options.only == ".*")


def only(session: Session, pattern: str) -> Session:
    """The session with the scenarios that are asked for, and the scripts they read."""
    scenarios = tuple(item for item in session.scenarios if re.fullmatch(pattern, item.name))
    read = {database for scenario in scenarios for database in scenario.databases}
    return replace(
        session,
        scenarios=scenarios,
        scripts=tuple(script for script in session.scripts if script.database in read),
    )


def verdict(comparisons: Sequence[Comparison], falsifications: Outcome, *, complete: bool) -> int:
    """Say what was found; 1 for any difference, for an intended one that never came, and for no record.

    Also for a falsification that nobody noticed, and where nothing was falsified.
    """
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
    for missed in falsifications.missed[:SHOWN]:
        print(f"falsified and not noticed: {missed}")
    print(
        f"conformance: {records} records compared, {problems} differences, "
        f"{sum(sum(item.intended.values()) for item in once)} intended; "
        f"{falsifications.tried} falsifications, {falsifications.noticed} noticed"
    )
    silent = [item.scenario for item in comparisons if not item.records]
    is_blind = falsifications.missed or not falsifications.tried
    return 1 if problems or missing or silent or is_blind or not comparisons else 0


def play(session: Session, setup: Setup, falsifications: Outcome) -> list[Comparison]:
    """All readers on the same changes; what the comparison of their topics found, and of falsified ones."""
    begin = time.monotonic()
    reader = TopicReader(setup.kafka.bootstrap_servers, setup.registry.url)
    with ExitStack() as stack:
        database = stack.enter_context(start_database(session.server, setup.folder))
        for script in session.scripts:
            execute(database, script.first, schema=None)
        connectors = [connector_for(scenario, setup) for scenario in session.scenarios]
        debezium = Connectors(setup.folder, database, setup.kafka, connectors)
        # Those that read tables write to their signal tables: the others begin behind that in the log.
        producers = start(stack, [item for item in session.scenarios if item.has_snapshot], database, setup)
        stack.enter_context(debezium.start())
        producers += start(stack, [item for item in session.scenarios if not item.has_snapshot], database, setup)
        debezium.wait_until_streaming()
        say(begin, f"{session.server}: {len(producers)} scenarios read")
        for script in session.scripts:
            execute(database, script.after, schema=script.database)
        for script in session.scripts:
            execute(database, script.last, schema=None)
        say(begin, f"{session.server}: {len(session.scripts)} scripts played")
        wait_for_end(reader, session.scenarios, producers, debezium)
        log = read_log(database)
        say(begin, f"{session.server}: all was read")
    xa: set[str] = set()
    recorded = [read(reader, scenario, xa) for scenario in session.scenarios]
    truth = known(recorded, log)
    compared = [item.compared(truth) for item in recorded]
    for problem in problems_of(truth):
        compared[0].differ(problem)
    for item in recorded:
        falsifications += falsify(item, truth)
    say(begin, f"{session.server}: {falsifications.tried} falsifications, {falsifications.noticed} noticed")
    compared += [by_command(setup, scenario) for scenario in session.scenarios if scenario.name in BY_COMMAND]
    for item in compared:
        say(begin, f"{session.server}: {item.scenario}: {item.records} records, {item.differing} differences")
    return compared


def known(recorded: Sequence[Recorded], log: Log) -> Truth:
    """What all readers of a session agree on."""
    ours = [[record for sides in item.topics.values() for record in sides[1]] for item in recorded]
    exact = [
        [record for sides in item.topics.values() for record in sides[0]]
        for item in recorded
        if item.scenario.name in EXACT_MODES
    ]
    return truth_of(ours, exact, log)


def start(
    stack: ExitStack, scenarios: Iterable[Scenario], database: Database, setup: Setup
) -> list[RunningProducer]:
    """Producers that read the log, and have read the tables that they are to read."""
    producers = [
        stack.enter_context(RunningProducer(settings_for(scenario, database, setup))) for scenario in scenarios
    ]
    for producer in producers:
        producer.wait_until("it reads the log and has read its tables", has_begun, PATIENCE_S)
    return producers


def has_begun(start: Producer) -> bool:
    """Its position in the log is durable (a start before that begins at the log's end), and its snapshot is done."""
    tables = [] if start.coordinator is None else start.coordinator.progress()
    failed = [table for table in tables if table.state in ("failed", "cancelled")]
    assert not failed, failed
    reads = start.reader is not None and start.reader.progress.checkpoints > 0
    return reads and all(table.state == "done" for table in tables)


def say(begin: float, what: str) -> None:
    """A line of progress."""
    print(f"  {time.monotonic() - begin:5.0f} s  {what}", flush=True)


def connector_for(scenario: Scenario, setup: Setup) -> Connector:
    """The connector of a scenario."""
    converters = peer.avro(setup.registry_root) if scenario.avro else peer.KEEPS_NULLS
    return Connector(left(scenario), {"table.include.list": scenario.pattern, **converters, **scenario.connector})


def settings_for(scenario: Scenario, database: Database, setup: Setup) -> Settings:
    """Tidemark's settings that correspond to those of the connector."""
    wire = {"type": "avro", "registry": setup.registry.url} if scenario.avro else {"type": "json", "schemas": True}
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
            "kafka": {"bootstrap_servers": setup.kafka.bootstrap_servers, "partitions": 1},
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
    """The prefixes whose last rows, or the boundary after them, are not written yet."""
    ends = {
        prefix: [f"{prefix}.{database}.{END}" for database in scenario.databases]
        for prefix, scenario in pending.items()
    }
    records = reader.read_all(topic for wanted in ends.values() for topic in wanted)
    return {
        prefix
        for prefix, scenario in pending.items()
        if any(len(records[topic]) < scenario.end_records for topic in ends[prefix])
        or (scenario.has_boundaries and not through_end(reader, prefix, scenario))
    }


def by_command(setup: Setup, scenario: Scenario) -> Comparison:
    """What `python -m conformance` finds, which pairs records by key and place."""
    registry = setup.registry.url if scenario.avro else None
    found = compare_prefixes(
        Broker(setup.kafka.bootstrap_servers),
        Prefix(left(scenario), registry),
        Prefix(right(scenario), registry),
        Choice(left_out=[rf"{SIGNALS}\..*"], snapshots=scenario.has_snapshot),
    ).comparison
    found.scenario = f"{COMMAND}{scenario.name}"
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
