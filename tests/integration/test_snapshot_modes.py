"""Snapshot modes: when all captured tables are read, and whether the log is followed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from producer.app import run as run_producer
from schemas.errors import SourceError
from schemas.settings import Settings, SnapshotFlags
from tests.support.big_table import ROWS, Load, folded_by_consumer, make_big, published, stored
from tests.support.producers import Running, Source, running
from tests.support.servers import end_dumps, own_database
from tidemark.api.observe import Observer


@pytest.fixture
def source(kafka, fresh_database) -> Iterator[Source]:
    server = own_database("mysql80", "snapshot-modes")  # its log is purged here
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    created.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    yield created
    created.connection.close()


def settings_of(source: Source, mode: str, **snapshot: Any) -> Settings:
    settings = source.settings()
    options = {"mode": mode, "merge": "producer", "readers": 1, **snapshot}
    return replace(settings, snapshot=replace(settings.snapshot, **options))


def read_ids(source: Source) -> list[int]:
    values = [record.value for record in source.records("t") if record.value is not None]
    return sorted(value["after"]["id"] for value in values if value["op"] == "r")


def is_read(run: Running, requests: int = 1) -> bool:
    progress = run.producer.coordinator.progress()
    return len(progress) == requests and all(table.state == "done" for table in progress)


def ends_by_itself(settings: Settings) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            run_producer(settings)
        except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(120)
    assert not thread.is_alive(), "it follows the log"
    if failures:
        raise failures[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "initial_only"},
        {"mode": "configuration_based", "configuration_based": SnapshotFlags(snapshot_data=True)},
        {"mode": "initial_only", "consistency": "one_transaction"},
    ],
    ids=["initial_only", "configuration_based", "one_transaction"],
)
def test_initial_only_reads_the_tables_and_ends(source, settings):
    ends_by_itself(settings_of(source, **settings))
    assert read_ids(source) == [1, 2, 3]
    source.execute("INSERT INTO t VALUES (4)")
    ends_by_itself(settings_of(source, **settings))
    assert read_ids(source) == [1, 2, 3]


def test_initial_only_under_load_ends_at_a_position_from_which_another_mode_continues(source):
    """Flink's bounded snapshot: it ends by itself; what was read and what follows are the source, and nothing is read twice."""
    make_big(source)
    load = Load(source, 5)
    ends_by_itself(settings_of(source, "initial_only", chunk_rows=300))
    read = len([record for record in published(source) if record.value["op"] == "r"])
    assert 0 < read <= 2 * ROWS
    with running(settings_of(source, "initial")) as run:
        load.stop()
        run.caught_up(source)
        assert is_read(run, 2), "both tables were asked for once"
    assert folded_by_consumer(source) == stored(source)
    assert len([record for record in published(source) if record.value["op"] == "r"]) == read


def test_initial_only_ends_with_an_error_when_a_table_cannot_be_read(source, monkeypatch):
    monkeypatch.setattr("producer.snapshot.snapshot_state.MAX_ATTEMPTS", 2)
    source.execute("CREATE TABLE broken (id INT PRIMARY KEY, v INT)")
    failing = "the rows cannot be read (on purpose)"

    def refuse(*_: object) -> None:
        raise SourceError(failing)

    monkeypatch.setattr("producer.snapshot.reader.require_columns", refuse)
    with pytest.raises(SourceError, match=r"the snapshot is failed: .*on purpose"):
        ends_by_itself(settings_of(source, "initial_only"))


@pytest.mark.parametrize("consistency", ["chunked", "one_transaction"])
def test_always_reads_the_tables_at_every_start(source, consistency):
    settings = settings_of(source, "always", consistency=consistency)
    for start in (1, 2, 3):
        with running(settings) as run:
            run.until(lambda start=start, run=run: is_read(run, start), "the tables are read")
        assert read_ids(source) == sorted([1, 2, 3] * start)


@pytest.mark.parametrize("mode", ["no_data", "never"])
def test_no_data_reads_nothing_and_follows_the_log(source, mode):
    with running(settings_of(source, mode)) as run:
        source.execute("INSERT INTO t VALUES (4)")
        run.caught_up(source)
    assert [change.value["op"] for change in source.changes("t")] == ["c"]


@pytest.mark.parametrize("consistency", ["chunked", "one_transaction"])
def test_when_needed_starts_over_where_the_server_no_longer_has_the_log(source, consistency):
    settings = settings_of(source, "when_needed", consistency=consistency)
    with running(settings) as run:
        run.until(lambda: is_read(run), "the tables are read")
    with running(settings) as run:
        run.caught_up(source)
    assert read_ids(source) == [1, 2, 3], "nothing was lost, and yet it was read again"
    source.execute("DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (5)", "FLUSH BINARY LOGS")
    with source.connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        (file, *_) = cursor.fetchone()
    end_dumps(source.server)
    source.execute(f"PURGE BINARY LOGS TO '{file}'")
    message = r"no longer has .*\(read so far: GTIDs .+:1-\d+\).* has .* to .*purged GTIDs: .+:1-\d+.*`tidemark repair` starts over"
    with pytest.raises(SourceError, match=message):
        ends_by_itself(settings_of(source, "initial"))
    with running(settings) as run:
        run.until(lambda: is_read(run, 2), "the tables are read again")
        source.execute("INSERT INTO t VALUES (6)")
        run.caught_up(source)
    assert read_ids(source) == [1, 1, 2, 3, 3, 5]
    last = [change for change in source.changes("t") if change.value["source"]["sequence"] >= "0001"]
    assert [change.value["after"]["id"] for change in last if change.value["op"] == "c"] == [6]
    assert len(last) == 4
    with running(settings) as run:
        run.caught_up(source)
        assert is_read(run, 2), "it started over once more"


def test_what_has_to_be_read_again_waits_for_a_signal_table_and_says_so(source):
    """A change of values that the log does not report: without a signal table nothing can be read, and that is remembered."""
    settings = settings_of(source, "no_data")
    source.execute("ALTER TABLE t ADD v DECIMAL(9, 4) NOT NULL DEFAULT 0.1234")
    with running(replace(settings, source=replace(settings.source, signal_table=None))) as run:
        source.execute("ALTER TABLE t MODIFY v DECIMAL(9, 2) NOT NULL")
        run.until(lambda: bool(run.producer.coordinator.progress()), "it is asked for")
        run.caught_up(source)
    with Observer(settings) as observer:
        (table,) = observer.read().tables
    assert (table.snapshot, table.error) == ("queued", "it waits for a signal table: set source.signal_table")
    with running(settings) as run:
        run.until(lambda: is_read(run), "it is read")
    assert read_ids(source) == [1, 2, 3]
    with Observer(settings) as observer:
        (error,) = {found.error for found in observer.read().tables if found.snapshot}
    assert error is None
