"""`merge: producer`: snapshot rows in the change topic, and a consumer that knows nothing of windows.

Such a consumer keeps the last record of each key. Whatever changed meanwhile, what it has in the end is the
source, row by row.
"""

from __future__ import annotations

import json
import os
import random
import signal as signals
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidemark
from producer.snapshot import ledger as ledgers
from producer.snapshot import reader as readers
from schemas.settings import Settings
from schemas.windows import OpenWindows
from tests.support.producers import Running, Source, running
from tests.support.servers import database
from tests.support.topics import Record, read_topic
from tidemark.embedded.processes import GuardedProcess
from tidemark.observe import Observer


@pytest.fixture(params=["mysql80"])
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(request.param)
    place = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield place
    place.connection.close()


def settings_of(source: Source, *, records: dict[str, Any] | None = None, **snapshot: Any) -> Settings:
    settings = source.settings(records)
    options = {"merge": "producer", "readers": 1, "chunk_rows": 50, **snapshot}
    return replace(settings, snapshot=replace(settings.snapshot, **options))


def signal(source: Source, name: str, tables: list[str], **data: Any) -> None:
    document = {"data-collections": [rf"{source.schema}\.{table}" for table in tables], **data}
    with source.connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO tidemark_signal VALUES (%s, 'execute-snapshot', %s)", (name, json.dumps(document))
        )


def snapshot(source: Source, run: Running, tables: list[str], name: str = "s", **data: Any) -> None:
    """Ask for a snapshot and wait for its end, well or not."""
    signal(source, name, tables, **data)
    run.until(lambda: ended(run, name), f"snapshot {name} has ended")


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


def fill(source: Source, table: str, rows: int, key: str = "INT") -> None:
    source.execute(f"CREATE TABLE {table} (id {key} PRIMARY KEY, v BIGINT NOT NULL, w VARCHAR(40))")
    with source.connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} VALUES (%s, 0, 'x')", [(number,) for number in range(rows)])


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
    commit, done = readers.commit_close, []

    def committed(*arguments: Any) -> None:
        if not done:
            done.append(1)
            act()
        commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(readers, "commit_close", committed)
        yield
    assert done, "no chunk was read"


@pytest.mark.parametrize("source", ["mysql80", "mariadb114"], indirect=True)
def test_a_table_read_while_it_changes_is_the_source_for_who_keeps_the_last_record_of_each_key(source):
    fill(source, "t", 1500)
    with running(settings_of(source)) as run:
        with writers(source, "t", 1800):
            snapshot(source, run, ["t"])
        run.caught_up(source)
    assert consumed(source.records("t")) == stored(source, "t")
    rows = reads(source, "t")
    assert len(rows) > 500
    assert {row.value["source"]["snapshot"] for row in rows} == {"incremental"}
    in_snapshot_topic = read_topic(source.bootstrap_servers, f"{source.name}-snapshot.{source.schema}.t")
    assert all("type" in record.value for record in in_snapshot_topic), "rows went to the snapshot topic"


CHANGES = (
    "UPDATE t SET v = 7 WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
    "UPDATE t SET id = 300 WHERE id = 3",
    "INSERT INTO t VALUES (400, 4, 'new')",
    "DELETE FROM t WHERE id = 5",
    "INSERT INTO t VALUES (5, 5, 'again')",
)


def test_keys_that_the_log_touches_between_open_and_close_are_not_written_as_read(source, monkeypatch):
    fill(source, "t", 20)
    with running(settings_of(source)) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute(*CHANGES)):
            snapshot(source, run, ["t"])
        run.caught_up(source)
    assert {row.key["id"] for row in reads(source, "t")} == set(range(20)) - {1, 2, 3, 5}
    assert consumed(source.records("t")) == stored(source, "t")


def test_without_the_touched_keys_the_same_consumer_is_wrong(source, monkeypatch):
    fill(source, "t", 20)
    monkeypatch.setattr(OpenWindows, "touch", lambda *_: ())
    with running(settings_of(source)) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute(*CHANGES)):
            snapshot(source, run, ["t"])
        run.caught_up(source)
    assert consumed(source.records("t")) != stored(source, "t")


def test_keys_that_are_equal_to_the_server_and_differ_in_bytes_are_kept_apart(source, monkeypatch):
    source.execute(
        "CREATE TABLE t (id VARCHAR(10) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v BIGINT NOT NULL)",
        "INSERT INTO t VALUES ('a', 1), ('b', 2), ('ç', 3), ('d', 4), ('e', 5)",
    )
    changes = (
        "UPDATE t SET id = 'A' WHERE id = 'a'",
        "UPDATE t SET v = 20 WHERE id = 'B'",
        "UPDATE t SET id = 'C' WHERE id = 'c'",
        "DELETE FROM t WHERE id = 'D'",
    )
    with running(settings_of(source)) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute(*changes)):
            snapshot(source, run, ["t"])
        run.caught_up(source)
    assert [row.key["id"] for row in reads(source, "t")] == ["e"]
    assert consumed(source.records("t")) == stored(source, "t")


@pytest.mark.parametrize("wire", ["json_schema", "avro"])
def test_rows_are_told_apart_in_every_format(source, monkeypatch, registry, wire):
    fill(source, "t", 20)
    settings = settings_of(source)
    wires = {
        "json_schema": replace(settings.format, schemas=True),
        "avro": replace(settings.format, type="avro", registry=registry.url),
    }
    with running(replace(settings, format=wires[wire])) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute(*CHANGES)):
            snapshot(source, run, ["t"])
        run.caught_up(source)
        assert run.producer.coordinator.progress()[0].rows == 20
    written = [record for record in source.records("t") if record.value is not None]
    reads_left = 20 - len({1, 2, 3, 5})
    changes = len(CHANGES) + 1  # a changed key is a delete and a create
    assert len(written) == reads_left + changes


def test_rows_are_told_apart_by_the_primary_key_where_the_record_key_is_another(source, monkeypatch):
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, owner INT NOT NULL, v INT)",
        "INSERT INTO t VALUES (1, 1, 0), (2, 1, 0), (3, 2, 0)",
    )
    records = {"message_key_columns": {rf"{source.schema}\.t": "owner"}, "column_exclude_list": [".*\\.id"]}
    with running(settings_of(source, records=records)) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute("UPDATE t SET v = 1 WHERE id = 1")):
            snapshot(source, run, ["t"])
        run.caught_up(source)
    left = sorted(row.value["after"]["owner"] for row in reads(source, "t"))
    assert left == [1, 2], "the rows 2 and 3, of the owners 1 and 2, were not touched"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("key", ["id", "owner"])
def test_a_change_that_gives_no_record_costs_no_row(source, monkeypatch, key):
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, owner INT NOT NULL, hidden INT)",
        "INSERT INTO t VALUES (1, 1, 0), (2, 1, 0)",
    )
    records = {
        "message_key_columns": {rf"{source.schema}\.t": key},
        "column_exclude_list": [".*\\.hidden"],
        "skip_messages_without_change": True,
    }
    settings = settings_of(source, records=records)
    with running(replace(settings, format=replace(settings.format, schemas=True))) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute("UPDATE t SET hidden = 1 WHERE id = 1")):
            snapshot(source, run, ["t"])
        run.caught_up(source)
    values = [record.value["payload"] for record in source.records("t")]
    assert sorted((value["op"], value["after"]["id"]) for value in values) == [("r", 1), ("r", 2)]


@pytest.mark.parametrize("strategy", ["insert_insert", "insert_delete"])
def test_many_readers_read_several_tables_at_once_under_load(source, strategy):
    for table in ("t", "u"):
        fill(source, table, 400)
    settings = settings_of(source, readers=4, chunk_rows=25, watermarking_strategy=strategy)
    with running(settings) as run:
        with writers(source, "t", 500), writers(source, "u", 500):
            snapshot(source, run, ["t", "u"])
        run.caught_up(source)
    for table in ("t", "u"):
        assert consumed(source.records(table)) == stored(source, table), table
        assert reads(source, table)
    with source.connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM tidemark_signal WHERE type LIKE 'snapshot-window%'")
        (left,) = cursor.fetchone()
    assert (left == 0) == (strategy == "insert_delete")


def test_a_window_whose_open_row_somebody_deletes_is_read_again(source, monkeypatch):
    fill(source, "t", 20)

    def empty() -> None:
        source.execute("DELETE FROM tidemark_signal WHERE type = 'snapshot-window-open'")

    with running(settings_of(source, watermarking_strategy="insert_delete")) as run:
        with before_the_close_row(monkeypatch, empty):
            snapshot(source, run, ["t"])
        run.caught_up(source)
    assert consumed(source.records("t")) == stored(source, "t")


def test_a_chunk_that_does_not_fit_into_memory_is_cut_into_smaller_ones(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB NOT NULL)")
    with source.connection.cursor() as cursor:
        for number in range(40):
            size = 300_000 if number == 17 else 20_000
            cursor.execute("INSERT INTO t VALUES (%s, REPEAT('x', %s))", (number, size))
    with running(settings_of(source, chunk_rows=1000, chunk_bytes=1 << 16)) as run:
        snapshot(source, run, ["t"])
        (progress,) = run.producer.coordinator.progress()
    assert progress.state == "done"
    assert progress.rows == 40
    assert progress.chunks_done > 10
    assert sorted(row.key["id"] for row in reads(source, "t")) == list(range(40))


def test_a_signal_says_who_merges_its_rows(source):
    fill(source, "t", 100)
    with running(settings_of(source, merge="spark")) as run:
        snapshot(source, run, ["t"], "as-set")
        assert reads(source, "t") == []
        snapshot(source, run, ["t"], "as-said", merge="producer")
    assert len(reads(source, "t")) == 100


def test_a_truncate_and_a_ddl_in_a_window_make_its_chunk_be_read_again(source, monkeypatch):
    fill(source, "t", 20)
    changes = ("TRUNCATE t", "INSERT INTO t VALUES (1, 1, 'x')", "ALTER TABLE t ADD COLUMN n INT DEFAULT 5")
    with running(settings_of(source)) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute(*changes)):
            snapshot(source, run, ["t"])
        run.caught_up(source)
    assert [row.value["after"] for row in reads(source, "t")] == [{"id": 1, "v": 1, "w": "x", "n": 5}]


def test_too_many_touched_keys_cost_a_second_reading_and_no_memory(source, monkeypatch):
    monkeypatch.setattr("producer.snapshot.coordinator.TOUCHED_BYTES", 20_000)
    fill(source, "t", 1000)
    with running(settings_of(source, chunk_rows=2000)) as run:
        with before_the_close_row(monkeypatch, lambda: source.execute("UPDATE t SET v = v + 1")):
            snapshot(source, run, ["t"])
        run.caught_up(source)
    assert len(reads(source, "t")) == 1000
    assert consumed(source.records("t")) == stored(source, "t")


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


def test_a_table_with_a_unique_key_alone_is_read_by_it(source):
    source.execute("CREATE TABLE t (id INT NOT NULL UNIQUE, v BIGINT NOT NULL, w VARCHAR(40))")
    with source.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, 0, 'x')", [(number,) for number in range(600)])
    with running(settings_of(source)) as run:
        with writers(source, "t", 700):
            snapshot(source, run, ["t"])
        run.caught_up(source)
        (progress,) = run.producer.coordinator.progress()
    assert progress.chunks_done >= 5
    assert consumed(source.records("t")) == stored(source, "t")


@pytest.mark.parametrize("merge", ["producer", "spark"])
def test_a_surrogate_key_that_repeats_or_is_null_loses_no_row(source, merge):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, s INT, INDEX (s))")
    values = [None, 7, 7, 7, 7, 7, 7, 8, 9, None, -1, -1]
    with source.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s)", list(enumerate(values)))
    with running(settings_of(source, chunk_rows=2)) as run:
        snapshot(source, run, ["t"], **{"surrogate-key": "S", "merge": merge})
        (progress,) = run.producer.coordinator.progress()
    assert (progress.state, progress.rows) == ("done", len(values))
    assert progress.chunks_done > 2
    if merge == "producer":
        assert after_of(reads(source, "t")) == all_rows(source, "t")


def test_a_surrogate_key_holds_under_load(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT NOT NULL, w VARCHAR(40), INDEX (v))")
    with source.connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s, 'x')", [(number, number % 40) for number in range(800)])
    with running(settings_of(source, readers=2)) as run:
        with writers(source, "t", 900):
            snapshot(source, run, ["t"], **{"surrogate-key": "v"})
        run.caught_up(source)
    assert consumed(source.records("t")) == stored(source, "t")


@pytest.mark.parametrize(
    ("column", "words"), [("nope", "has no column 'nope'; it has id, j"), ("j", "by which rows have no order")]
)
def test_a_surrogate_key_that_cannot_serve_is_answered_in_words(source, column, words):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON)")
    with running(settings_of(source)) as run:
        snapshot(source, run, ["t"], **{"surrogate-key": column})
        (progress,) = run.producer.coordinator.progress()
    assert progress.state == "failed"
    assert words in progress.error


def test_a_table_without_any_key_is_read_in_one_piece(source):
    source.execute("CREATE TABLE t (x INT, y VARCHAR(5))", "INSERT INTO t VALUES (1,'a'),(1,'a'),(2,NULL)")
    with running(settings_of(source, chunk_rows=1)) as run:
        snapshot(source, run, ["t"])
    assert after_of(reads(source, "t")) == all_rows(source, "t")
    assert {row.key for row in reads(source, "t")} == {None}


@pytest.mark.usefixtures("impatient")
def test_equal_rows_that_change_while_they_are_read_are_read_again(source, monkeypatch):
    source.execute("CREATE TABLE t (x INT)", "INSERT INTO t VALUES (1), (1), (2)")
    changes = ("DELETE FROM t WHERE x = 1 LIMIT 1", "INSERT INTO t VALUES (3)")
    with running(settings_of(source)) as run, before_the_close_row(monkeypatch, lambda: source.execute(*changes)):
        snapshot(source, run, ["t"])
    assert after_of(reads(source, "t")) == [{"x": 1}, {"x": 2}, {"x": 3}]


@pytest.mark.usefixtures("impatient")
def test_a_table_without_any_key_that_does_not_fit_into_memory_fails_in_words(source, monkeypatch):
    monkeypatch.setattr(ledgers, "MAX_ATTEMPTS", 2)
    source.execute("CREATE TABLE t (x LONGTEXT)")
    source.execute(*["INSERT INTO t VALUES (REPEAT('x', 30000))"] * 5)
    with running(settings_of(source, chunk_bytes=1 << 16)) as run:
        snapshot(source, run, ["t"])
        (progress,) = run.producer.coordinator.progress()
    assert progress.state == "failed"
    assert "snapshot.chunk_bytes" in progress.error


def test_killed_again_and_again_no_row_is_lost_and_no_change_is_doubled(source, tmp_path):
    rows, dice = 12_000, random.Random(7)
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
    with running(settings):
        signal(source, "s", ["t"])
    with writers(source, "t", rows + 500), Observer(settings) as observer:

        def rows_read() -> int:
            return sum(table.rows_read for table in observer.read().tables)

        for number in range(2):
            before = rows_read()
            child = GuardedProcess.spawn(
                [sys.executable, "-m", "tidemark", "run", "--config", str(config)],
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
