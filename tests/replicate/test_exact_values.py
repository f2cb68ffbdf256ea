"""What an envelope cannot say is in the header `tidemark.exact`, of records of the log and of snapshots."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from mysqlio.quoting import qualified, quoted
from producer.stream.groups import TransactionAssembler
from schemas.exact_values import EXACT_HEADER
from schemas.settings import Settings
from schemas.topics import change_topic
from spark_jobs.replicate.rows.row_values import RowChange
from tests.codec.oracle import session
from tests.integration.among_changes import ended, signal
from tests.replicate.test_row_values import Target, require_same_rows, settings_of
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database
from tests.support.topics import read_topic

TABLE = """CREATE TABLE t (
    id INT PRIMARY KEY, d DATE, `d-n` DATE NOT NULL, m DATETIME(3), mn DATETIME(6) NOT NULL,
    s TIMESTAMP(2) NULL, sn TIMESTAMP NOT NULL DEFAULT '1999-01-01', unchecked INT NOT NULL, v INT)"""
DAYS = ("0000-00-00", "2024-02-30", "2024-00-00", "2024-04-00", "0000-02-29", "1970-01-01", "2024-02-29")
COUNT = 300


@pytest.fixture(params=["mysql80", "mariadb114"])
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    created.execute(SIGNAL, TABLE)
    yield created
    created.connection.close()


def write(source: Source, count: int, seed: int, *, share: float = 0.1, keys: int = 40) -> None:
    """Small transactions. `share` of the values are zero or impossible dates, and as many transactions check no foreign keys."""
    dice = Random(seed)
    with session(source.server, source.schema) as connection, connection.cursor() as cursor:
        for _ in range(count):
            unchecked = dice.random() < share
            cursor.execute(f"SET foreign_key_checks = {int(not unchecked)}")
            days = [dice.choice(DAYS) if dice.random() < share else "2001-02-03" for _ in range(4)]
            stamp = dice.choice(["0000-00-00 00:00:00", "2001-02-03 04:05:06.78"]) if dice.random() < share else None
            moments = [f"{day} 01:02:03.456" for day in days[2:]]
            key = dice.randrange(keys)
            row = (key, *days[:2], *moments, stamp, stamp or "1999-01-01 00:00:01", unchecked, dice.randrange(9))
            statement = dice.random()
            if statement < 0.5:
                cursor.execute(f"REPLACE INTO t VALUES ({','.join(['%s'] * 9)})", row)
            elif statement < 0.7:
                cursor.execute("UPDATE t SET d = NULL, m = %s, v = v + 1, unchecked = %s WHERE id = %s", (row[3], unchecked, key))
            elif statement < 0.8:
                cursor.execute("UPDATE IGNORE t SET id = id + %s, unchecked = %s WHERE id = %s", (keys, unchecked, key))
            else:
                cursor.execute("DELETE FROM t WHERE id = %s", (key,))
            connection.commit()


def changes_of(settings: Settings, target: Target, schema: str) -> list[tuple[RowChange, bool]]:
    """The changes of the table in the order of the log, and whether each record has the header."""
    records = read_topic(settings.kafka.bootstrap_servers, change_topic(settings.name, schema, "t"), raw=True)
    wires = [one.wire for one in records if one.wire is not None and one.wire.value is not None]
    changes = [(target.decoder.decode(one.value or b"", one.headers), EXACT_HEADER in dict(one.headers)) for one in wires]
    return sorted(changes, key=lambda one: (one[0].source["sequence"], one[0].op != "d"))


def apply(target: Target, source: Source, changes: Sequence[RowChange]) -> None:
    """Apply changes to a copy of the table."""
    target.execute(f"CREATE TABLE t LIKE {qualified(source.schema, 't')}")
    table = target.table("t")
    with session(target.server, target.schema) as connection, connection.cursor() as cursor:
        for change in changes:
            columns = target.decoder.columns(change.schema_id, table)
            if change.after is None:
                assert change.before is not None
                cursor.execute(b"DELETE FROM t WHERE id = " + columns[0].literal(change.before))
                continue
            names = ", ".join(quoted(column.name) for column in columns)
            values = b", ".join(column.literal(change.after) for column in columns)
            cursor.execute(f"REPLACE INTO t ({names}) VALUES (".encode() + values + b")")
        connection.commit()


def is_inexact(change: RowChange) -> bool:
    """Whether a decoded row has a text in place of a date, or was written without foreign keys."""
    dates = [row[name] for row in (change.before, change.after) if row for name in ("d", "d_n", "m", "mn")]
    stamps = [row[name] for row in (change.before, change.after) if row for name in ("s", "sn")]
    return any(isinstance(one, str) for one in dates) or any("Z" not in (one or "Z") for one in stamps)


def test_dates_and_checks_of_the_log_arrive_exactly(source, registry, fresh_database, monkeypatch) -> None:
    passed: list[int] = []
    pass_run = TransactionAssembler.pass_run
    monkeypatch.setattr(TransactionAssembler, "pass_run", lambda self, run: (passed.append(run.count), pass_run(self, run)))
    settings = settings_of(source, registry.url)
    with running(settings) as run:
        run.caught_up(source)
    for share in (0.0, 0.1):
        write(source, COUNT, seed=1, share=share)
        with running(settings) as run:
            run.caught_up(source)
    target = Target(source.server, fresh_database(source.server), registry.url)
    changes = changes_of(settings, target, source.schema)
    apply(target, source, [change for change, _ in changes])
    require_same_rows(source, target, "t")
    for change, has_header in changes:
        assert has_header == (is_inexact(change) or not change.foreign_key_checks), change
    written = [change for change, _ in changes if change.after is not None]
    assert [change.foreign_key_checks for change in written] == [not (change.after or {})["unchecked"] for change in written]
    assert any(not change.foreign_key_checks for change, _ in changes if change.op == "d")
    require_old_rows([change for change, _ in changes])
    assert sum(passed) > COUNT / 2, "no transaction was in a run"


def require_old_rows(changes: Sequence[RowChange]) -> None:
    """Each old row is the row that was written last under its key."""
    rows: dict[int, object] = {}
    for change in changes:
        if change.before is not None:
            assert rows.pop(change.before["id"]) == change.before
        if change.after is not None:
            rows[change.after["id"]] = change.after


def test_dates_of_a_snapshot_arrive_exactly_among_changes(source, registry, fresh_database) -> None:
    write(source, COUNT, seed=2)
    settings = settings_of(source, registry.url)
    settings = replace(settings, snapshot=replace(settings.snapshot, merge="producer", chunk_rows=10))
    with running(settings) as run:
        run.caught_up(source)
        thread = threading.Thread(target=write, args=(source, COUNT, 3))
        thread.start()
        signal(source, "one", ["t"])
        run.until(lambda: ended(run, "one"), "the snapshot has ended")
        thread.join()
        run.caught_up(source)
    target = Target(source.server, fresh_database(source.server), registry.url)
    changes = changes_of(settings, target, source.schema)
    assert any(has_header for change, has_header in changes if change.op == "r")
    newest = {}
    for change, _ in changes_in_topic(settings, target, source.schema):
        row = change.after or change.before or {}
        newest[row["id"]] = change
    apply(target, source, [change for change in newest.values() if change.after is not None])
    require_same_rows(source, target, "t")


def changes_in_topic(settings: Settings, target: Target, schema: str) -> list[tuple[RowChange, bool]]:
    """The changes in the order of the topic's partitions: rows of one key are in one."""
    records = read_topic(settings.kafka.bootstrap_servers, change_topic(settings.name, schema, "t"), raw=True)
    wires = [one.wire for one in records if one.wire is not None and one.wire.value is not None]
    return [(target.decoder.decode(one.value or b"", one.headers), False) for one in wires]


def test_without_a_group_no_record_has_the_header(source, registry) -> None:
    settings = settings_of(source, registry.url)
    settings = replace(settings, order=replace(settings.order, group=None))
    with running(settings) as run:
        run.caught_up(source)
        write(source, 60, seed=4)
        run.caught_up(source)
    records = read_topic(settings.kafka.bootstrap_servers, change_topic(settings.name, source.schema, "t"), raw=True)
    assert len(records) > 30
    assert not [one for one in records if EXACT_HEADER in one.headers]
