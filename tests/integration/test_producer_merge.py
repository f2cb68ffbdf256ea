"""`merge: producer`: snapshot rows in the change topic, and a consumer that knows nothing of windows.

Such a consumer keeps the last record of each key. Whatever changed meanwhile, what it has in the end is the
source, row by row. Tests that need no settings of their own share a producer (a `Site`), each with tables of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal as signals
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tidemark
from devservers.processes import GuardedProcess
from producer.snapshot import snapshot_state
from schemas.windows import OpenWindows
from tests.integration.among_changes import (
    COLUMNS,
    Site,
    before_the_close_row,
    consumed,
    create,
    ended,
    reads,
    settings_of,
    signal,
    site_of,
    snapshot,
    stored,
    writers,
)
from tests.support.producers import Source, running
from tests.support.topics import read_topic
from tidemark.api.observe import Observer


@pytest.fixture
def source(mysql80, kafka, fresh_database) -> Iterator[Source]:
    """A database without a producer, for tests whose producer is set up in a way of its own."""
    created = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    yield created
    created.connection.close()


@pytest.fixture(scope="module")
def site(kafka) -> Iterator[Site]:
    yield from site_of("mysql80", kafka, readers=4)


@pytest.fixture(scope="module")
def mariadb_site(kafka) -> Iterator[Site]:
    yield from site_of("mariadb114", kafka)


@pytest.fixture(scope="module")
def deleting_site(kafka) -> Iterator[Site]:
    """Its open rows are deleted where others write close rows."""
    yield from site_of("mysql80", kafka, readers=2, chunk_rows=25, watermarking_strategy="insert_delete")


@pytest.fixture(scope="module")
def narrow_site(kafka) -> Iterator[Site]:
    """It has little memory for chunks."""
    yield from site_of("mysql80", kafka, chunk_rows=1000, chunk_bytes=1 << 16)


def fill(source: Source, table: str, rows: int) -> None:
    create(source, table, COLUMNS, [(number, 0, "x") for number in range(rows)])


@pytest.mark.parametrize("server", ["site", "mariadb_site"])
def test_a_table_read_while_it_changes_is_the_source_for_who_keeps_the_last_record_of_each_key(server, request):
    site: Site = request.getfixturevalue(server)
    source, t = site.source, site.fill(1500)
    with writers(source, t, 1800):
        snapshot(source, site.run, [t])
    site.run.caught_up(source)
    assert consumed(source.records(t)) == stored(source, t)
    rows = reads(source, t)
    assert len(rows) > 500
    assert {row.value["source"]["snapshot"] for row in rows} == {"incremental"}
    in_snapshot_topic = read_topic(source.bootstrap_servers, f"{source.name}-snapshot.{source.schema}.{t}")
    assert in_snapshot_topic
    assert all("type" in record.value for record in in_snapshot_topic), "rows went to the snapshot topic"


def changes(t: str) -> tuple[str, ...]:
    """Statements that touch the keys 1, 2, 3 and 5, and make those of 300 and 400."""
    return (
        f"UPDATE {t} SET v = 7 WHERE id = 1",
        f"DELETE FROM {t} WHERE id = 2",
        f"UPDATE {t} SET id = 300 WHERE id = 3",
        f"INSERT INTO {t} VALUES (400, 4, 'new')",
        f"DELETE FROM {t} WHERE id = 5",
        f"INSERT INTO {t} VALUES (5, 5, 'again')",
    )

TOUCHED = {1, 2, 3, 5}


def test_keys_that_the_log_touches_between_open_and_close_are_not_written_as_read(site, monkeypatch):
    t = site.fill(20)
    with before_the_close_row(monkeypatch, lambda: site.source.execute(*changes(t))):
        site.snapshot(t)
    assert {row.key["id"] for row in reads(site.source, t)} == set(range(20)) - TOUCHED
    assert consumed(site.source.records(t)) == stored(site.source, t)


def test_without_the_touched_keys_the_same_consumer_is_wrong(site, monkeypatch):
    t = site.fill(20)
    monkeypatch.setattr(OpenWindows, "touch", lambda *_: ())
    with before_the_close_row(monkeypatch, lambda: site.source.execute(*changes(t))):
        site.snapshot(t)
    assert consumed(site.source.records(t)) != stored(site.source, t)


@pytest.mark.parametrize("wire", ["json_schema", "avro"])
def test_rows_are_distinguished_in_every_format(source, monkeypatch, registry, wire):
    fill(source, "t", 20)
    settings = settings_of(source)
    wires = {
        "json_schema": replace(settings.format, schemas=True),
        "avro": replace(settings.format, type="avro", registry=registry.url),
    }
    with running(replace(settings, format=wires[wire])) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute(*changes("t"))):
            assert snapshot(source, run, ["t"]).rows == 20
        run.caught_up(source)
    written = [record for record in source.records("t") if record.value is not None]
    logged = len(changes("t")) + 1  # a changed key is a delete and a create
    assert len(written) == 20 - len(TOUCHED) + logged


@pytest.mark.usefixtures("impatient")
def test_a_change_that_gives_no_record_costs_no_row(source, monkeypatch):
    records = {
        "message_key_columns": {rf"{source.schema}\.by_{key}": key for key in ("id", "owner")},
        "column_exclude_list": [".*\\.hidden"],
        "skip_messages_without_change": True,
    }
    for key in ("id", "owner"):
        create(source, f"by_{key}", "id INT PRIMARY KEY, owner INT NOT NULL, hidden INT", [(1, 1, 0), (2, 1, 0)])
    settings = settings_of(source, records=records)
    with running(replace(settings, format=replace(settings.format, schemas=True))) as run:
        for key in ("id", "owner"):
            hidden = f"UPDATE by_{key} SET hidden = 1 WHERE id = 1"
            with before_the_close_row(monkeypatch, lambda hidden=hidden: source.execute(hidden)):
                snapshot(source, run, [f"by_{key}"])
        run.caught_up(source)
    for key in ("id", "owner"):
        values = [record.value["payload"] for record in source.records(f"by_{key}")]
        assert sorted((value["op"], value["after"]["id"]) for value in values) == [("r", 1), ("r", 2)], key


@pytest.mark.parametrize("server", ["site", "deleting_site"])
def test_many_readers_read_several_tables_at_once_under_load(server, request):
    site: Site = request.getfixturevalue(server)
    source, t, u = site.source, site.fill(400), site.fill(400)
    with writers(source, t, 500), writers(source, u, 500):
        snapshot(source, site.run, [t, u])
    site.run.caught_up(source)
    for table in (t, u):
        assert consumed(source.records(table)) == stored(source, table), table
        assert reads(source, table)
    with source.connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM tidemark_signal WHERE type LIKE 'snapshot-window%'")
        (left,) = cursor.fetchone()
    assert (left == 0) == (server == "deleting_site")


def test_a_window_whose_open_row_somebody_deletes_is_read_again(deleting_site, monkeypatch):
    source, t = deleting_site.source, deleting_site.fill(20)

    def empty() -> None:
        source.execute("DELETE FROM tidemark_signal WHERE type = 'snapshot-window-open'")

    with before_the_close_row(monkeypatch, empty):
        deleting_site.snapshot(t)
    assert consumed(source.records(t)) == stored(source, t)


def test_a_chunk_that_does_not_fit_into_memory_is_split_into_smaller_ones(narrow_site):
    source = narrow_site.source
    sizes = [300_000 if number == 17 else 20_000 for number in range(40)]
    rows = [(number, "x" * size) for number, size in enumerate(sizes)]
    t = narrow_site.create("id INT PRIMARY KEY, v LONGBLOB NOT NULL", rows)
    progress = narrow_site.snapshot(t)
    assert progress.state == "done"
    assert progress.rows == 40
    assert progress.chunks_done > 10
    assert sorted(row.key["id"] for row in reads(source, t)) == list(range(40))


def test_a_signal_says_who_merges_its_rows(source):
    fill(source, "t", 100)
    with running(settings_of(source, merge="spark")) as run:
        snapshot(source, run, ["t"])
        assert reads(source, "t") == []
        snapshot(source, run, ["t"], merge="producer")
    assert len(reads(source, "t")) == 100


def test_a_truncate_and_a_ddl_in_a_window_make_its_chunk_be_read_again(site, monkeypatch):
    t = site.fill(20)
    statements = (
        f"TRUNCATE {t}",
        f"INSERT INTO {t} VALUES (1, 1, 'x')",
        f"ALTER TABLE {t} ADD COLUMN n INT DEFAULT 5",
    )
    with before_the_close_row(monkeypatch, lambda: site.source.execute(*statements)):
        site.snapshot(t)
    assert [row.value["after"] for row in reads(site.source, t)] == [{"id": 1, "v": 1, "w": "x", "n": 5}]


def test_too_many_touched_keys_cost_a_second_reading_and_no_memory(site, monkeypatch):
    t = site.fill(1000)
    lost: list[str] = []
    register, windows = site.run.producer.coordinator.shared.ledger.windows, site.run.producer.coordinator.windows.keys
    monkeypatch.setattr(windows, "_limit_bytes", 20_000)
    void = register.lost
    monkeypatch.setattr(register, "lost", lambda names: lost.extend(names) or void(names))
    with before_the_close_row(monkeypatch, lambda: site.source.execute(f"UPDATE {t} SET v = v + 1")):
        site.snapshot(t)
    assert lost, "the windows remembered all of it"
    assert len(reads(site.source, t)) == 1000
    assert consumed(site.source.records(t)) == stored(site.source, t)


@pytest.fixture
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(snapshot_state, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(snapshot_state, "MAX_DELAY_S", 0.02)

NOT_TO_ITS_END = """
import sys
from producer.snapshot.turns import Turns
from tidemark.cli import main
start = Turns.start_next_window
def some(turns):
    return start(turns) if sum(task.rows for task in turns.tasks.values()) < int(sys.argv[2]) else None
Turns.start_next_window = some
sys.exit(main(["run", "--config", sys.argv[1]]))
"""
"""A producer that reads so many rows and no more, for when it is killed later than it was meant to be."""


def test_killed_again_and_again_no_row_is_lost_and_no_change_is_doubled(source, tmp_path):
    rows, dice = 5_000, random.Random(7)
    fill(source, "t", rows)
    settings = settings_of(source, readers=2, chunk_rows=20)
    config = tmp_path / "tidemark.json"
    config.write_text(
        json.dumps(
            {
                "name": settings.name,
                "source": {
                    name: getattr(settings.source, name)
                    for name in ("host", "port", "user", "password", "tables", "signal_table")
                },
                "kafka": {"bootstrap_servers": source.bootstrap_servers, "partitions": 2},
                "format": {"type": "json"},
                "snapshot": {"mode": "never", "merge": "producer", "readers": 2, "chunk_rows": 20},
            }
        )
    )
    (tmp_path / "some.py").write_text(NOT_TO_ITS_END)
    with running(settings):
        signal(source, "s", ["t"])
    with writers(source, "t", rows + 500), Observer(settings) as observer:

        def rows_read() -> int:
            return sum(table.rows_read for table in observer.read().tables)

        for number in range(2):
            before = rows_read()
            child = GuardedProcess.spawn(
                [sys.executable, str(tmp_path / "some.py"), str(config), str(before + 1000)],
                tmp_path / f"run-{number}.log",
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(Path(tidemark.__file__).parents[1])},
            )
            wait_for(lambda before=before: rows_read() > before, "more rows are read")
            time.sleep(dice.random() * 0.2)
            assert child.status is None
            child.signal(signals.SIGKILL)
            assert child.wait(30)
        assert observer.read().snapshot_running, "the snapshot was over before the last kill"
        with running(settings) as run:
            run.until(lambda: ended(run, "s"), "the snapshot has ended")
    with running(settings) as run:
        run.caught_up(source)
        (progress,) = run.producer.coordinator.progress()
        assert progress.state == "done"
    records = source.records("t")
    assert consumed(records) == stored(source, "t")
    changes = [
        (record.value["op"], record.value["source"]["sequence"])
        for record in records
        if record.value is not None and record.value["op"] != "r"
    ]
    assert len(changes) == len(set(changes))


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 120) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.1)
