"""Debezium's golden scenarios of its record options, replayed on a real MySQL; as `test_golden`, which has the rest.

One log, one producer per set of options. What is meant to differ is the list of `test_golden`.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from schemas import topics
from tests.catalog.logs import end_of_log
from tests.integration.test_golden import (
    WITHOUT_PRIMARY_KEY,
    Comparison,
    Replay,
    RunningProducer,
    execute,
    log_is_at,
    settings_for,
    snapshot_is_done,
    tables_of,
)
from tests.support.golden import Scenario, load
from tests.support.servers import own_database
from tests.support.topics import Record, read_topics

OPTIONS: dict[str, dict[str, Any]] = {
    "keys_notomb": {
        "records": {"tombstones": False, "skipped_operations": ["c"], "skip_messages_without_change": True}
    },
}
SCENARIOS = {"keys": ("keys_notomb",)}


@pytest.fixture(scope="module")
def records(kafka: Any) -> dict[str, Replay]:
    """What each producer wrote, by its prefix."""
    server = own_database("mysql97", "options")
    scenarios = {prefix: load(name, prefix) for name, prefixes in SCENARIOS.items() for prefix in prefixes}
    with server.connect() as user, user.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS golden_signals")
        for prefixes in SCENARIOS.values():
            execute(cursor, scenarios[prefixes[0]], scenarios[prefixes[0]].before)
        with ExitStack() as stack:
            running = []
            for prefix in scenarios:
                settings = settings_for(server, kafka, prefix, **OPTIONS[prefix])
                producer = stack.enter_context(RunningProducer(settings))
                producer.wait_until("the snapshot is done", snapshot_is_done)
                running.append(producer)
            for name, prefixes in SCENARIOS.items():
                cursor.execute(f"USE `{name}`")
                execute(cursor, scenarios[prefixes[0]], scenarios[prefixes[0]].after)
            place = end_of_log(user)
            for producer in running:
                producer.wait_until("the log is read", partial(log_is_at, place=place))
    found = {}
    for name, prefixes in SCENARIOS.items():
        for prefix in prefixes:
            read = read_topics(kafka.bootstrap_servers, wanted(name, prefix, scenarios[prefix]))
            found[prefix] = Replay({name: scenarios[prefix]}, read)
    return found


def wanted(name: str, prefix: str, scenario: Scenario) -> list[str]:
    makers = (topics.change_topic, topics.snapshot_topic)
    return [make(prefix, name, table) for make in makers for table in tables_of(scenario)]


def changes_of(replay: Replay, comparison: Comparison) -> list[Record]:
    return [record for table in tables_of(comparison.scenario) for record in comparison.ours(table)[1]]


def test_without_tombstones_creates_and_empty_updates_as_debezium(records: dict[str, Replay]) -> None:
    replay = records["keys_notomb"]
    comparison = Comparison(replay, "keys", "keys_notomb")
    for table in tables_of(comparison.scenario):
        golden_rows, golden_changes = comparison.golden(table)
        rows, changes = comparison.ours(table)
        golden_rows = [] if table in WITHOUT_PRIMARY_KEY else golden_rows
        assert (len(rows), len(changes)) == (len(golden_rows), len(golden_changes)), table
        for golden, ours in zip(golden_rows + golden_changes, rows + changes, strict=True):
            comparison.compare(table, golden, ours)
    ops = [record.value["payload"]["op"] for record in changes_of(replay, comparison)]
    assert {op: ops.count(op) for op in set(ops)} == {"c": 11, "d": 32, "u": 16, "t": 1}
