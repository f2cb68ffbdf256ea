"""What the tests of snapshots in one view share: a bank whose money is moved all the time, and consumers of its topics."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pymysql

from schemas.settings import Settings
from tests.support.producers import Running, Source
from tests.support.topics import Record, read_topic

MONEY = 100
ACCOUNTS = 600


def settings_of(source: Source, partitions: int = 2, **snapshot: Any) -> Settings:
    settings = source.settings()
    options = {"mode": "initial", "consistency": "one_transaction", "merge": "producer", "lock_timeout_ms": 60_000, **snapshot}
    kafka = replace(settings.kafka, partitions=partitions)
    return replace(settings, kafka=kafka, snapshot=replace(settings.snapshot, **options))


def bank(source: Source) -> None:
    for table in ("t", "u"):
        source.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v BIGINT NOT NULL, note VARCHAR(40))")
        with source.connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {table} VALUES (%s, {MONEY}, '')", [(n,) for n in range(ACCOUNTS)])


@contextmanager
def business(source: Source, clerks: int = 2, pause_s: float = 0.005) -> Iterator[Callable[[], None]]:
    """Threads that move money between the tables, close accounts and open others, in transactions.

    Given is what waits until more of it was moved, in transactions that were begun since, all of which change both tables.
    """
    stop, failures, moved = threading.Event(), [], []

    def work(seed: int) -> None:
        dice = random.Random(seed)
        try:
            with source.server.connect(database=source.schema) as connection, connection.cursor() as cursor:
                while not stop.is_set():
                    giver, taker = dice.randrange(ACCOUNTS), dice.randrange(ACCOUNTS)
                    one, other = dice.sample(("t", "u"), 2)
                    try:
                        cursor.execute("BEGIN")
                        given = cursor.execute(f"UPDATE {one} SET v = v - 1, note = %s WHERE id = %s", (seed, giver))
                        taken = cursor.execute(f"UPDATE {other} SET v = v + 1 WHERE id = %s", (taker,))
                        if given and taken and dice.random() < 0.2:
                            new = 1000 + dice.randrange(ACCOUNTS)
                            cursor.execute(f"UPDATE IGNORE {one} SET id = %s WHERE id = %s", (new, giver))
                        cursor.execute("COMMIT" if given and taken else "ROLLBACK")
                        if given and taken:
                            moved.append(seed)
                    except pymysql.err.OperationalError as error:
                        if error.args[0] != 1213:  # a deadlock, which rolls back
                            raise
                    stop.wait(pause_s)
        except BaseException as error:  # noqa: BLE001 - raised by the test
            failures.append(error)

    def wait_for_progress() -> None:
        enough = len(moved) + clerks + 5
        wait_for(lambda: bool(failures) or len(moved) >= enough, "more money is moved")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(clerks)]
    for thread in threads:
        thread.start()
    try:
        yield wait_for_progress
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not failures, failures


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


def stored(source: Source, table: str) -> dict[str, Any]:
    with source.connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {json.dumps({"id": row["id"]}): row for row in rows}


def reads(records: list[Record]) -> list[Record]:
    return [record for record in records if record.value and record.value["op"] == "r"]


def sequences(records: list[Record]) -> set[str]:
    return {record.value["source"]["sequence"] for record in records}


def ended(run: Running, request: str | None = None) -> bool:
    states = [task.state for task in run.producer.coordinator.progress() if request in (None, task.request)]
    return bool(states) and all(state in ("done", "failed", "cancelled") for state in states)


def progress(run: Running) -> dict[str, tuple[str, int]]:
    return {task.table.rpartition(".")[2]: (task.state, task.rows) for task in run.producer.coordinator.progress()}


def ask(source: Source, name: str, tables: list[str], **data: Any) -> None:
    named = [rf"{source.schema}\.{table}" for table in tables]
    document = {"data-collections": named, "type": "BLOCKING", **data}
    with source.connection.cursor() as cursor:
        cursor.execute("INSERT INTO tidemark_signal VALUES (%s, 'execute-snapshot', %s)", (name, json.dumps(document)))


def reported(source: Source) -> list[tuple[str, str, dict[str, str]]]:
    """Notifications, as (id, type, data)."""
    found = [record.value for record in read_topic(source.bootstrap_servers, f"{source.name}.notifications")]
    return [(value["id"], value["type"], value["additional_data"]) for value in found]


def note(kind: str, data: dict[str, str]) -> tuple[str | None, ...]:
    """A notification but for its clock, its id, and what is ours."""
    tables = (data.get(name, "").rpartition(".")[2] for name in ("current_collection_in_progress", "scanned_collection"))
    return kind, *tables, data.get("total_rows_scanned"), data.get("status")


def mark(value: dict[str, Any]) -> tuple[Any, ...]:
    return value["op"], value["after"], value["source"]["snapshot"]


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 120) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
        time.sleep(0.1)
