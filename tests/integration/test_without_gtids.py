"""Servers without GTIDs (`gtid_mode=OFF`): the log by file and position alone, with all that GTIDs forbid in it.

Whatever is in the log and wherever the producer stops, what was published gives the source's rows, each change once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from devservers import Database, start_database
from producer.app import Producer
from schemas.errors import SourceError
from tests.support.big_table import (
    Load,
    folded_by_consumer,
    folded_by_rule,
    is_done,
    make_big,
    published,
    rows_read,
    stored,
)
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import new_database
from tests.support.topics import Record

OFF = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}


@pytest.fixture(scope="module", params=["mysql57", "mysql80"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    folder: Path = tmp_path_factory.mktemp("without-gtids")
    with start_database(request.param, folder, OFF) as started:
        yield started


@pytest.fixture
def source(server: Database, kafka: Any) -> Iterator[Source]:
    place = Source(server, new_database(server), kafka.bootstrap_servers)
    place.execute(SIGNAL)
    yield place
    place.connection.close()


def settings(source: Source, **snapshot: Any) -> Any:
    made = source.settings({"provide_transaction_metadata": True})
    return replace(made, snapshot=replace(made.snapshot, **snapshot)) if snapshot else made


def folded(records: list[Record]) -> dict[int, dict[str, Any]]:
    """The rows that records leave: per key the highest position wins."""
    rows: dict[int, dict[str, Any]] = {}
    for record in records:
        image = record.value["after"]
        if image is None:
            rows.pop(record.value["before"]["id"], None)
        else:
            rows[image["id"]] = image
    return rows


def changes(source: Source, table: str) -> list[Record]:
    """Log events, checked: no position twice, no GTIDs, transactions named by their place."""
    found = source.changes(table)
    told = [record.value["source"] for record in found]
    assert {block["gtid"] for block in told} <= {None}
    positions = [block["sequence"] for block in told]
    assert sorted(set(positions)) == positions
    for record in found:
        if record.value["op"] in "cud":
            block = record.value["source"]
            assert record.value["transaction"]["id"].startswith(f"file={block['file']},pos="), record
    return found


LOG = (
    "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE m (id INT PRIMARY KEY, v INT) ENGINE=MyISAM",
    "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
    # transactions of both engines
    "BEGIN",
    "INSERT INTO m VALUES (1, 10)",
    "INSERT INTO t VALUES (4, 4)",
    "INSERT INTO m VALUES (2, 20)",
    "COMMIT",
    "UPDATE t, m SET t.v = t.v + 100, m.v = m.v + 100 WHERE t.id = m.id",
    # what is rolled back in one engine stays in the other
    "BEGIN",
    "INSERT INTO t VALUES (50, 0)",
    "INSERT INTO m VALUES (50, 0)",
    "ROLLBACK",
    "BEGIN",
    "INSERT INTO t VALUES (5, 5)",
    "SAVEPOINT s",
    "INSERT INTO t VALUES (51, 0)",
    "INSERT INTO m VALUES (51, 0)",
    "ROLLBACK TO s",
    "UPDATE t SET v = 55 WHERE id = 5",
    "COMMIT",
    # a table made and filled by one statement
    "CREATE TABLE c (PRIMARY KEY (id)) SELECT id, v FROM t WHERE id < 4",
    # temporary tables inside a transaction, one under the name of a captured table
    "BEGIN",
    "INSERT INTO t VALUES (6, 6)",
    "CREATE TEMPORARY TABLE x (id INT PRIMARY KEY, v INT)",
    "INSERT INTO x VALUES (7, 7)",
    "INSERT INTO t SELECT * FROM x",
    "CREATE TEMPORARY TABLE c (id INT PRIMARY KEY)",
    "DROP TEMPORARY TABLE c",
    "DROP TEMPORARY TABLE x",
    "UPDATE t SET v = 77 WHERE id = 7",
    "COMMIT",
    "FLUSH BINARY LOGS",
    "XA START 'a'",
    "INSERT INTO t VALUES (8, 8)",
    "XA END 'a'",
    "XA PREPARE 'a'",
    "XA COMMIT 'a'",
    "XA START 'b'",
    "INSERT INTO t VALUES (58, 0)",
    "XA END 'b'",
    "XA PREPARE 'b'",
    "XA ROLLBACK 'b'",
    "ALTER TABLE t ADD COLUMN w INT NOT NULL DEFAULT 3",
    "INSERT INTO t VALUES (9, 9, 9)",
    "DELETE FROM t WHERE id = 2",
    "DELETE FROM m WHERE id = 1",
    "INSERT INTO c VALUES (9, 9)",
)


def test_all_that_gtids_forbid_is_read_and_a_restart_at_any_place_is_exact(source: Source) -> None:
    borders = [0, 3, 8, 9, 13, 22, 32, 37, 43, len(LOG)]
    assert LOG[36] == "XA PREPARE 'a'"
    for first, last in pairwise(borders):
        with running(settings(source)) as run:
            run.caught_up(source)
            source.execute(*LOG[first:last])
            run.caught_up(source)
        with source.server.connect(database=source.schema) as other, other.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS between_starts (id INT PRIMARY KEY, v INT)")
            cursor.execute(f"INSERT INTO between_starts VALUES ({first}, 0)")
    with running(settings(source)) as run:
        run.caught_up(source)
    for table in ("m", "c", "between_starts"):
        assert folded(changes(source, table)) == stored(source, table), table
    rows = folded(changes(source, "t"))  # rows from before ADD COLUMN do not have its default
    assert {key: row | {"w": row.get("w", 3)} for key, row in rows.items()} == stored(source, "t")
    assert [record.value["op"] for record in changes(source, "between_starts")] == ["c"] * (len(borders) - 1)
    ids = [record.value["after"]["id"] for record in changes(source, "t") if record.value["op"] == "c"]
    # what was rolled back may stand in the log, with the change that undoes it or without; it is never left over
    assert [one for one in ids if one < 50] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert 58 not in ids


def test_another_log_of_the_same_names_is_refused_though_the_place_is_in_it(source: Source) -> None:
    rows = ("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
    source.execute("RESET MASTER", *rows)
    with running(settings(source)) as run:
        run.until(lambda: run.producer.reader.progress.checkpoints > 0, "its place is known")
        source.execute("INSERT INTO t VALUES (3)")
        run.caught_up(source)
        place = run.producer.reader.committed
    time.sleep(1.1)  # transactions without GTIDs are distinguished by their second, on MySQL 5.7
    source.execute("DROP TABLE t", "RESET MASTER", *rows, "INSERT INTO t VALUES (3)", "INSERT INTO t VALUES (4)")
    with source.connection.cursor() as cursor:
        cursor.execute(f"SHOW BINLOG EVENTS IN '{place.file}' FROM {place.pos} LIMIT 1")
        assert cursor.fetchone() is not None, "the place is no border there: this proves nothing"
    with pytest.raises(SourceError, match="now is another"), Producer(settings(source)):
        pass
    with running(settings(source, mode="when_needed", merge="producer")) as run:
        run.until(lambda: is_done(run), "the table is read again")
        run.caught_up(source)
    assert sorted(record.value["after"]["id"] for record in source.changes("t") if record.value["op"] == "r") == [1, 2, 3, 4]


@pytest.mark.parametrize("merge", ["spark", "producer"])
def test_a_chunked_snapshot_under_load_and_restarts_gives_the_sources_rows(source: Source, merge: str) -> None:
    make_big(source)
    made = settings(source, mode="initial", merge=merge, chunk_rows=40, readers=2)
    load = Load(source, 7)
    try:
        for rows in (100, 600):
            with running(made) as run:
                run.until(lambda: rows_read(run) >= rows, f"{rows} rows are read")  # noqa: B023
                assert not is_done(run)
        with running(made) as run:
            run.until(lambda: is_done(run), "the snapshot is done")
            load.stop()
            run.caught_up(source)
    finally:
        load.stop()
    records = published(source)
    kinds = [record.value["op"] for record in records]
    assert kinds.count("r") > 1500
    assert len(kinds) > kinds.count("r") + 50, "no load ran beside the snapshot"
    found = folded_by_consumer(source) if merge == "producer" else folded_by_rule(records)
    assert found == stored(source)
