"""Snapshots in one view by signals of type BLOCKING: the log waits for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from producer.snapshot import blocking
from tests.integration.views import (
    ACCOUNTS,
    MONEY,
    ask,
    bank,
    business,
    consumed,
    ended,
    mark,
    progress,
    reads,
    reported,
    sequences,
    settings_of,
    stored,
    wait_for,
)
from tests.support.golden import load
from tests.support.producers import Source, running
from tests.support.servers import database


@pytest.fixture
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(getattr(request, "param", "mysql80"))
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield created
    created.connection.close()


@pytest.mark.parametrize("source", ["mysql80", "mariadb114"], indirect=True)
def test_a_blocking_signal_stops_the_log_reads_one_position_and_continues(source):
    bank(source)
    with running(settings_of(source, mode="no_data", partitions=1)) as run, business(source) as wait_for_progress:
        wait_for_progress()
        ask(source, "b1", ["t", "u"])
        run.until(lambda: ended(run, "b1"), "the tables are read")
        wait_for_progress()
    with running(settings_of(source, mode="no_data", partitions=1)) as run:
        run.caught_up(source)
    rows = {table: reads(source.records(table)) for table in ("t", "u")}
    (position,) = sequences(rows["t"] + rows["u"])
    assert sum(record.value["after"]["v"] for found in rows.values() for record in found) == 2 * MONEY * ACCOUNTS
    for table in ("t", "u"):
        records = [record for record in source.records(table) if record.value is not None]
        ops = "".join(record.value["op"] for record in records)
        assert "r" * ACCOUNTS in ops, "the log continued between the rows"
        assert ops.strip("r") == ops, "the log stood still before or after them as well"
        versions = [record.value["source"]["sequence"] for record in records]
        assert versions == sorted(versions)
        assert position in versions
        assert consumed(source.records(table)) == stored(source, table)
    kinds = [(kind, data.get("status")) for ident, kind, data in reported(source) if ident == "b1"]
    assert kinds[:2] == [("ACCEPTED", None), ("STARTED", None)]
    assert kinds.count(("TABLE_SCAN_COMPLETED", "SUCCEEDED")) == 2
    assert kinds[-1] == ("COMPLETED", None)


def test_blocking_signals_give_the_records_that_debezium_gives(source):
    scenario = load("sig_blocking", "sig_blk")
    adapted = [statement.replace("sig_blk", source.schema) for statement in (*scenario.before, *scenario.after)]
    before, after = adapted[: len(scenario.before)], adapted[len(scenario.before) :]
    settings = settings_of(source, mode="no_data", partitions=1)
    settings = replace(settings, source=replace(settings.source, signal_table=f"{source.schema}.debezium_signal"))
    for statement in before:
        if not statement.startswith(("DROP", "USE", "CREATE DATABASE")):
            source.execute(statement)
    with running(settings) as run:
        for statement in after:
            source.execute(statement)
            if "debezium_signal" in statement and "execute-snapshot" in statement and "nope" not in statement:
                name = statement.split("'")[1]
                if name != "b1":  # the next statement comes while b1 continues
                    run.until(lambda name=name: ended(run, name), f"{name} has ended")
            elif "(5,5)" in statement:
                run.until(lambda: ended(run, "b1"), "b1 has ended")
        run.caught_up(source)
    compared = 0
    for table in ("a", "u", "nopk"):
        theirs = [mark(record.value) for record in scenario.changes if record.table == table]
        ours = [mark(record.value) for record in source.records(table)]
        assert ours == theirs, table
        compared += len(ours)
    assert compared == len([r for r in scenario.changes if r.table in ("a", "u", "nopk")])
    answers = {ident: (kind, data.get("reason", "")) for ident, kind, data in reported(source) if kind in ("ACCEPTED", "REJECTED")}
    assert [answers[name][0] for name in ("b1", "b2", "b3")] == ["ACCEPTED"] * 3
    assert answers["b4"][0] == "REJECTED"
    assert "must be a predicate" in answers["b4"][1]
    assert answers["b5"] == ("REJECTED", "no snapshot is running")


def test_conditions_and_failures_of_a_blocking_signal_are_reported_and_the_log_continues(source):
    bank(source)
    with running(settings_of(source, mode="no_data", lock_timeout_ms=1000)) as run:
        conditions = [{"data-collection": rf"{source.schema}\.t", "filter": "id < 10"}]
        ask(source, "some", ["t"], **{"additional-conditions": conditions})
        run.until(lambda: ended(run, "some"), "some has ended")
        conditions[0]["filter"] = "nope < 10"
        ask(source, "none", ["t", "u"], **{"additional-conditions": conditions})
        run.until(lambda: ended(run, "none"), "none has ended")
        source.execute("UPDATE t SET v = 3 WHERE id = 3")
        run.caught_up(source)
    assert sorted(record.key["id"] for record in reads(source.records("t"))) == list(range(10))
    assert [record.value["op"] for record in source.changes("t")][-1] == "u"
    notes = {(ident, kind): data for ident, kind, data in reported(source)}
    assert "nope" in notes["none", "ABORTED"]["reason"]
    assert ("none", "COMPLETED") not in notes


def test_chunks_beside_a_blocking_snapshot_continue_after_it(source):
    bank(source)
    settings = settings_of(source, mode="no_data", readers=2, chunk_rows=50)
    with running(settings) as run, business(source):
        ask(source, "chunks", ["t", "u"], type="INCREMENTAL")
        ask(source, "view", ["t", "u"])
        run.until(lambda: ended(run, "view") and ended(run, "chunks"), "both have ended")
    with running(settings) as run:
        run.caught_up(source)
    for table in ("t", "u"):
        assert consumed(source.records(table)) == stored(source, table)


def test_a_blocking_snapshot_needs_no_signal_table(source, tmp_path):
    bank(source)
    file = tmp_path / "signals"
    settings = settings_of(source, mode="no_data")
    signal = replace(settings.signal, channels=("source", "file"), file=str(file), poll_interval_ms=20)
    settings = replace(settings, signal=signal, source=replace(settings.source, signal_table=None))
    data = {"data-collections": [rf"{source.schema}\.t"]}
    lines = [
        {"id": "chunks", "type": "execute-snapshot", "data": data},
        {"id": "view", "type": "execute-snapshot", "data": {**data, "type": "BLOCKING"}},
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with running(settings) as run:
        run.until(lambda: ended(run, "view"), "view has ended")
    assert len(reads(source.records("t"))) == ACCOUNTS
    notes = {(ident, kind): data for ident, kind, data in reported(source)}
    assert "or ask for BLOCKING" in notes["chunks", "REJECTED"]["reason"]


def test_a_blocking_snapshot_can_be_stopped_from_a_file_while_the_log_waits(source, tmp_path, monkeypatch):
    bank(source)
    file = tmp_path / "signals"
    settings = settings_of(source, mode="no_data")
    signal = replace(settings.signal, channels=("source", "file"), file=str(file), poll_interval_ms=20)
    marked = blocking.marked

    def slowly(*arguments: Any, **options: Any) -> Any:
        for piece in marked(*arguments, **options):
            yield piece
            if not file.exists():  # behind the first row
                file.write_text(json.dumps({"id": "enough", "type": "stop-snapshot", "data": {"type": "BLOCKING"}}) + "\n")
                wait_for(lambda: not run.producer.coordinator.control.inbox.is_empty, "the signal is read")

    monkeypatch.setattr(blocking, "marked", slowly)
    monkeypatch.setattr("producer.stream.view_publication.VIEW_INTERVAL_S", 0)
    with running(replace(settings, signal=signal)) as run:
        ask(source, "long", ["t", "u"])
        run.until(lambda: ended(run, "long"), "it has ended")
        assert {state for state, _ in progress(run).values()} == {"cancelled"}
        source.execute("UPDATE t SET v = 3 WHERE id = 3")
        run.caught_up(source)
    assert [record.value["op"] for record in source.changes("t")][-1] == "u"
    assert reads(source.records("u")) == []
    assert ("enough", "ACCEPTED") in [(ident, kind) for ident, kind, _ in reported(source)]
