"""`merge: producer`: snapshot rows in the change topic, and a consumer that knows nothing of windows.

Such a consumer keeps the last record of each key. Whatever changed meanwhile, what it has in the end is the
source, row by row. Tests that need no settings of their own share a producer (a `Site`), each with tables of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal as signals
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import tidemark
from devservers.processes import GuardedProcess
from producer.snapshot import ledger as ledgers
from producer.snapshot import windowing
from producer.snapshot.coordinator import TableProgress
from schemas.settings import Settings
from schemas.windows import OpenWindows
from tests.support.producers import Running, Source, running
from tests.support.servers import database, drop_database, new_database
from tests.support.topics import Record, read_topic
from tidemark.observe import Observer

_numbers = itertools.count(1)
COLUMNS = "id INT PRIMARY KEY, v BIGINT NOT NULL, w VARCHAR(40)"


@pytest.fixture
def source(mysql80, kafka, fresh_database) -> Iterator[Source]:
    """A database without a producer, for tests whose producer is set up in a way of its own."""
    place = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    yield place
    place.connection.close()


def settings_of(source: Source, *, records: dict[str, Any] | None = None, **snapshot: Any) -> Settings:
    settings = source.settings(records)
    options = {"merge": "producer", "readers": 1, "chunk_rows": 50, **snapshot}
    return replace(settings, snapshot=replace(settings.snapshot, **options))


@dataclass(frozen=True)
class Site:
    """A database and the producer that follows it."""

    source: Source
    run: Running

    def create(self, columns: str, rows: Sequence[tuple[Any, ...]]) -> str:
        """A table of a test's own; its name. The log tells that it is there, and of none of its rows."""
        table = f"t{next(_numbers)}"
        self.source.execute(f"CREATE TABLE {table} ({columns})")
        with self.source.connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} VALUES ({','.join(['%s'] * len(rows[0]))})", rows[0])
            cursor.execute(f"DELETE FROM {table}")
        insert_unlogged(self.source, table, rows)
        return table

    def fill(self, rows: int, columns: str = COLUMNS) -> str:
        """The same, with as many rows."""
        return self.create(columns, [(number, 0, "x") for number in range(rows)])

    def snapshot(self, *tables: str, **data: Any) -> TableProgress:
        """As the function, and the log is read to its end."""
        progress = snapshot(self.source, self.run, list(tables), **data)
        self.run.caught_up(self.source)
        return progress


def site_of(server: str, kafka: Any, **options: Any) -> Iterator[Site]:
    place = Source(database(server), new_database(database(server)), kafka.bootstrap_servers)
    with running(settings_of(place, **options)) as run:
        yield Site(place, run)
    place.connection.close()
    drop_database(place.server, place.schema)


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


def signal(source: Source, name: str, tables: list[str], **data: Any) -> None:
    document = {"data-collections": [rf"{source.schema}\.{table}" for table in tables], **data}
    with source.connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tidemark_signal VALUES (%s, 'execute-snapshot', %s)", (name, json.dumps(document))
        )


def snapshot(source: Source, run: Running, tables: list[str], **data: Any) -> TableProgress:
    """Ask for a snapshot and wait for its end, well or not; what became of the first table."""
    name = f"s{next(_numbers)}"
    signal(source, name, tables, **data)
    run.until(lambda: ended(run, name), f"snapshot {name} has ended")
    assert run.producer.coordinator is not None
    return next(table for table in run.producer.coordinator.progress() if table.request == name)


def ended(run: Running, name: str) -> bool:
    assert run.producer.coordinator is not None
    states = [table.state for table in run.producer.coordinator.progress() if table.request == name]
    return bool(states) and all(state in ("done", "failed", "cancelled") for state in states)


def consumed(records: list[Record]) -> dict[str, Any]:
    """What a consumer has who keeps the last record of each key, by the key's text."""
    rows: dict[str, Any] = {}
    for record in records:
        key = json.dumps(record.key)
        if record.value is None or record.value["op"] == "d":
            rows.pop(key, None)
        else:
            rows[key] = record.value["after"]
    return rows


def stored(source: Source, table: str, key: tuple[str, ...] = ("id",)) -> dict[str, Any]:
    with source.connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {json.dumps({name: row[name] for name in key}): row for row in rows}


def reads(source: Source, table: str) -> list[Record]:
    return [record for record in source.records(table) if record.value and record.value["op"] == "r"]


def fill(source: Source, table: str, rows: int) -> None:
    create(source, table, COLUMNS, [(number, 0, "x") for number in range(rows)])


def create(source: Source, table: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """A table with rows that are not in the log: only a snapshot tells of them."""
    source.execute(f"CREATE TABLE {table} ({columns})")
    insert_unlogged(source, table, rows)


def insert_unlogged(source: Source, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    source.execute("SET sql_log_bin = 0")
    with source.connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} VALUES ({','.join(['%s'] * len(rows[0]))})", rows)
    source.execute("SET sql_log_bin = 1")


@contextmanager
def writers(source: Source, table: str, keys: int, count: int = 1) -> Iterator[None]:
    """Threads that insert, update, delete, and change keys, without a pause."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def write(seed: int) -> None:
        dice = random.Random(seed)
        try:
            with source.server.connect(database=source.schema) as connection, connection.cursor() as cursor:
                while not stop.is_set():
                    key, other, value = dice.randrange(keys), dice.randrange(keys), dice.randrange(1 << 40)
                    kind = dice.random()
                    if kind < 0.6:
                        cursor.execute(f"UPDATE {table} SET v = %s WHERE id = %s", (value, key))
                    elif kind < 0.75:
                        cursor.execute(f"DELETE FROM {table} WHERE id = %s", (key,))
                    elif kind < 0.9:
                        cursor.execute(f"REPLACE INTO {table} VALUES (%s, %s, 'new')", (key, value))
                    else:
                        cursor.execute(f"UPDATE IGNORE {table} SET id = %s WHERE id = %s", (other, key))
                    stop.wait(0.001)
        except BaseException as error:  # noqa: BLE001 - raised by the test
            failures.append(error)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not failures, failures


@contextmanager
def before_the_close_row(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> Iterator[None]:
    """Run something once, after a chunk was read and before its close row is committed."""
    commit, done = windowing.commit_close, []

    def committed(*arguments: Any) -> None:
        if not done:
            done.append(1)
            act()
        commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(windowing, "commit_close", committed)
        yield
    assert done, "no chunk was read"


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


def test_keys_that_are_equal_to_the_server_and_differ_in_bytes_are_kept_apart(site, monkeypatch):
    columns = "id VARCHAR(10) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v BIGINT NOT NULL"
    t = site.create(columns, [("a", 1), ("b", 2), ("ç", 3), ("d", 4), ("e", 5)])
    spellings = (
        f"UPDATE {t} SET id = 'A' WHERE id = 'a'",
        f"UPDATE {t} SET v = 20 WHERE id = 'B'",
        f"UPDATE {t} SET id = 'C' WHERE id = 'c'",
        f"DELETE FROM {t} WHERE id = 'D'",
    )
    with before_the_close_row(monkeypatch, lambda: site.source.execute(*spellings)):
        site.snapshot(t)
    assert [row.key["id"] for row in reads(site.source, t)] == ["e"]
    assert consumed(site.source.records(t)) == stored(site.source, t)


@pytest.mark.parametrize("wire", ["json_schema", "avro"])
def test_rows_are_told_apart_in_every_format(source, monkeypatch, registry, wire):
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


def test_rows_are_told_apart_by_the_primary_key_where_the_record_key_is_another(source, monkeypatch):
    create(source, "t", "id INT PRIMARY KEY, owner INT NOT NULL, v INT", [(1, 1, 0), (2, 1, 0), (3, 2, 0)])
    records = {"message_key_columns": {rf"{source.schema}\.t": "owner"}, "column_exclude_list": [".*\\.id"]}
    with running(settings_of(source, records=records)) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute("UPDATE t SET v = 1 WHERE id = 1")):
            snapshot(source, run, ["t"])
        run.caught_up(source)
    left = sorted(row.value["after"]["owner"] for row in reads(source, "t"))
    assert left == [1, 2], "the rows 2 and 3, of the owners 1 and 2, were not touched"


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


def test_a_chunk_that_does_not_fit_into_memory_is_cut_into_smaller_ones(narrow_site):
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
    ledger, windows = site.run.producer.coordinator._board.ledger, site.run.producer.coordinator._windows
    monkeypatch.setattr(windows, "_limit_bytes", 20_000)
    tell = ledger.lost
    monkeypatch.setattr(ledger, "lost", lambda names: lost.extend(names) or tell(names))
    with before_the_close_row(monkeypatch, lambda: site.source.execute(f"UPDATE {t} SET v = v + 1")):
        site.snapshot(t)
    assert lost, "the windows remembered all of it"
    assert len(reads(site.source, t)) == 1000
    assert consumed(site.source.records(t)) == stored(site.source, t)


@pytest.fixture
def impatient(monkeypatch) -> None:
    monkeypatch.setattr(ledgers, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(ledgers, "MAX_DELAY_S", 0.02)


def all_rows(source: Source, table: str) -> list[dict[str, Any]]:
    with source.connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        return sorted((dict(zip(names, row, strict=True)) for row in cursor.fetchall()), key=str)


def after_of(records: list[Record]) -> list[dict[str, Any]]:
    return sorted((record.value["after"] for record in records), key=str)


def test_a_table_with_a_unique_key_alone_is_read_by_it(site):
    source, t = site.source, site.fill(600, "id INT NOT NULL UNIQUE, v BIGINT NOT NULL, w VARCHAR(40)")
    with writers(source, t, 700):
        progress = snapshot(source, site.run, [t])
    site.run.caught_up(source)
    assert progress.chunks_done >= 5
    assert consumed(source.records(t)) == stored(source, t)


@pytest.mark.parametrize("merge", ["producer", "spark"])
def test_a_surrogate_key_that_repeats_or_is_null_loses_no_row(site, merge):
    """One value stands in more rows than a chunk has."""
    source = site.source
    values = [None, 7, 7, 7, 7, 7, 7, 8, 9, None, -1, -1] * 20 + list(range(10, 130))
    t = site.create("id INT PRIMARY KEY, s INT, INDEX (s)", list(enumerate(values)))
    progress = site.snapshot(t, **{"surrogate-key": "S", "merge": merge})
    assert (progress.state, progress.rows) == ("done", len(values))
    assert progress.chunks_done > 2
    if merge == "producer":
        assert after_of(reads(source, t)) == all_rows(source, t)


def test_a_surrogate_key_holds_under_load(site):
    source = site.source
    rows = [(number, number % 40, "x") for number in range(800)]
    t = site.create("id INT PRIMARY KEY, v BIGINT NOT NULL, w VARCHAR(40), INDEX (v)", rows)
    with writers(source, t, 900):
        snapshot(source, site.run, [t], **{"surrogate-key": "v"})
    site.run.caught_up(source)
    assert consumed(source.records(t)) == stored(source, t)


@pytest.mark.parametrize(
    ("column", "words"), [("nope", "has no column 'nope'; it has id, j"), ("j", "by which rows have no order")]
)
def test_a_surrogate_key_that_cannot_serve_is_answered_in_words(site, column, words):
    t = site.create("id INT PRIMARY KEY, j JSON", [(1, "{}")])
    progress = site.snapshot(t, **{"surrogate-key": column})
    assert progress.state == "failed"
    assert words in progress.error


def test_a_table_without_any_key_is_read_in_one_piece(site):
    source = site.source
    t = site.create("x INT, y VARCHAR(5)", [(1, "a"), (1, "a"), (2, None)] * 64)
    progress = site.snapshot(t)
    assert (progress.rows, progress.chunks_done) == (192, 1)
    assert after_of(reads(source, t)) == all_rows(source, t)
    assert {row.key for row in reads(source, t)} == {None}


@pytest.mark.usefixtures("impatient")
def test_equal_rows_that_change_while_they_are_read_are_read_again(site, monkeypatch):
    t = site.create("x INT", [(1,), (1,), (2,)])
    statements = (f"DELETE FROM {t} WHERE x = 1 LIMIT 1", f"INSERT INTO {t} VALUES (3)")
    with before_the_close_row(monkeypatch, lambda: site.source.execute(*statements)):
        site.snapshot(t)
    assert after_of(reads(site.source, t)) == [{"x": 1}, {"x": 2}, {"x": 3}]


@pytest.mark.usefixtures("impatient")
def test_a_table_without_any_key_that_does_not_fit_into_memory_fails_in_words(narrow_site, monkeypatch):
    monkeypatch.setattr(ledgers, "MAX_ATTEMPTS", 2)
    t = narrow_site.create("x LONGTEXT", [("x" * 30_000,)] * 5)
    progress = narrow_site.snapshot(t)
    assert progress.state == "failed"
    assert "snapshot.chunk_bytes" in progress.error


NOT_TO_ITS_END = """
import sys
from producer.snapshot.ledger import SnapshotLedger
from tidemark.cli import main
take = SnapshotLedger.take
def some(ledger):
    return take(ledger) if sum(task.rows for task in ledger.tasks.values()) < int(sys.argv[2]) else None
SnapshotLedger.take = some
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
