"""Logs whose TABLE_MAPs do not name columns: MySQL 5.7, MySQL's MINIMAL, MariaDB's NO_LOG.

Whatever is altered and wherever the producer stops, every record has the columns its row had when it was written.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from devservers import Database
from schemas.errors import SourceError
from tests.support.producers import Running, Source, running
from tests.support.servers import database, own_database, unique_name
from tests.support.topics import read_topic
from tests.verify import all_types

METADATA = {"mysql57": "", "mariadb114": "NO_LOG", "mysql80": "MINIMAL"}
SIGNAL = "CREATE TABLE tidemark_signal (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))"


def nameless(name: str) -> Database:
    """A server whose log names no columns."""
    if not METADATA[name]:
        return database(name)
    server = own_database(name, "nameless")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET GLOBAL binlog_row_metadata = '{METADATA[name]}'")
    return server


@pytest.fixture(params=METADATA)
def source(request: pytest.FixtureRequest, kafka: Any, fresh_database: Any) -> Iterator[Source]:
    server = nameless(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    created.execute(SIGNAL)
    yield created
    created.connection.close()


class Writer:
    """Writes rows and remembers what a record of each has to hold."""

    def __init__(self, source: Source, table: str = "t") -> None:
        self.source, self.table = source, table
        self.keys = itertools.count(1)
        self.expected: list[dict[str, Any]] = []

    def row(self, **values: Any) -> None:
        key = next(self.keys)
        names = ", ".join(f"`{name}`" for name in ("id", *values))
        with self.source.connection.cursor() as cursor:
            marks = ", ".join(["%s"] * (len(values) + 1))
            cursor.execute(f"INSERT INTO {self.table} ({names}) VALUES ({marks})", (key, *values.values()))
            cursor.execute(f"SELECT * FROM {self.table} WHERE id = %s", (key,))
            columns = [column[0] for column in cursor.description]
            self.expected.append(dict(zip(columns, cursor.fetchone(), strict=True)))

    def check(self) -> None:
        found = [record.value["after"] for record in self.source.changes(self.table)]
        assert [list(row.items()) for row in found] == [list(row.items()) for row in self.expected]


ALTERS = (
    "ADD COLUMN c{n} INT FIRST",
    "ADD COLUMN s{n} VARCHAR(20) CHARACTER SET latin1 DEFAULT 'é' AFTER id, ADD u{n} INT UNSIGNED NOT NULL DEFAULT 7",
    "MODIFY v VARCHAR(40) AFTER id",
    "DROP COLUMN u{n}, CHANGE s{n} `odd name{n}` VARCHAR(30)",
    "ADD UNIQUE (v), CONVERT TO CHARACTER SET latin1",
    "MODIFY v VARCHAR(44) CHARACTER SET utf8mb4 NOT NULL FIRST",
    "ADD e{n} ENUM('x','ü','z') DEFAULT 'x', ALTER v SET DEFAULT 'q'",
    "DROP INDEX v, DROP c{n}, COMMENT 'x, DROP id'",
)


def alter_and_write(source: Source, writer: Writer, number: int) -> None:
    for clauses in ALTERS:
        source.execute(f"ALTER TABLE t {clauses.format(n=number)}")
        writer.row(v=f"ä{number}-{clauses[:12]}-{len(writer.expected)}")


class CrashError(Exception):
    """The end of a producer."""


def crash_after(source: Source, writes: int) -> None:
    """A run that ends in the middle of its backlog, some of it committed."""
    with running(source.settings()) as run:
        write = run.producer.publisher.write
        left = itertools.count(writes, -1)

        def slow(*arguments: Any) -> None:
            if not next(left):
                raise CrashError
            time.sleep(0.1)
            write(*arguments)

        run.producer.publisher.write = slow
        run.until_ended()
        assert isinstance(run.error, CrashError)


def test_alters_while_it_runs_while_it_is_stopped_and_in_a_backlog(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30)) CHARSET utf8mb4")
    writer = Writer(source)
    with running(source.settings()) as run:
        writer.row(v="before")
        alter_and_write(source, writer, 1)
        run.caught_up(source)
    for number in (2, 3, 4):
        alter_and_write(source, writer, number)
    crash_after(source, 9)
    crash_after(source, 7)
    alter_and_write(source, writer, 5)
    with running(source.settings()) as run:
        run.caught_up(source)
        writer.row(v="after")
        run.caught_up(source)
    writer.check()


QUALIFIED = {
    "mysql": (
        "DROP t.remark",
        "CHANGE `t`.`grade` mark INT, ADD remark INT FIRST",
        "MODIFY {db}.t.v VARCHAR(30) /*! NOT */ NULL AFTER remark -- t.v",
        "CHANGE t.remark grade VARCHAR(9) FIRST, ALTER t.mark SET DEFAULT 7",
        "DROP `{db}`.`t`.grade RESTRICT, ADD t.remark INT DEFAULT 5 AFTER id",
    ),
    "mariadb": ("DROP COLUMN IF EXISTS t.none, DROP {db}.t.mark CASCADE, ADD IF NOT EXISTS v VARCHAR(9) FIRST",),
}


@pytest.mark.parametrize(
    "source", [name if name != "mysql80" else pytest.param(name, marks=pytest.mark.slow) for name in METADATA], indirect=True
)
def test_columns_with_the_name_of_their_table_are_the_servers_columns(source: Source) -> None:
    """Only MySQL 5.7 and MariaDB accept such names in most clauses; what the server refuses is in no log."""
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, grade INT, t INT, remark VARCHAR(20), v VARCHAR(30)) CHARSET latin1"
    )
    writer, accepted = Writer(source), 0
    with running(source.settings()) as run:
        writer.row(v="before", t=1)
        run.caught_up(source)
        for clauses in QUALIFIED["mysql"] + QUALIFIED[source.server.flavour] * (source.server.flavour == "mariadb"):
            try:
                source.execute(f"ALTER TABLE t {clauses.format(db=source.schema)}")
            except pymysql.MySQLError:
                assert source.server.name == "mysql80"
                continue
            accepted += 1
            writer.row(v="x", t=accepted)
        run.caught_up(source)
    writer.check()
    assert accepted > 3 or source.server.name == "mysql80"


def test_tables_made_renamed_copied_and_dropped_in_the_log_are_followed(source: Source) -> None:
    with running(source.settings()) as run:
        run.caught_up(source)
        source.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30))")  # of the database's character set
        writer = Writer(source)
        writer.row(v="ä")
        source.execute("CREATE TABLE copy LIKE t", "ALTER TABLE copy ADD w INT FIRST")
        copied = Writer(source, "copy")
        copied.row(v="b")
        source.execute("RENAME TABLE copy TO y", "DROP TABLE t")
        renamed = Writer(source, "y")
        renamed.keys = copied.keys
        renamed.row(v="c")
        run.caught_up(source)
    with running(source.settings()) as run:
        renamed.row(v="d")
        run.caught_up(source)
    for table in (writer, copied, renamed):
        table.check()


def wide(source: Source) -> str:
    """Every type this server has."""
    columns = all_types.COLUMNS + ((all_types.JSON_COLUMN,) if source.server.flavour == "mysql" else ())
    with source.connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        cursor.execute(all_types.create_sql("wide", columns))
    return all_types.insert_sql("wide", all_types.rows(12, columns))


def test_every_type_reads_from_the_log_as_from_a_snapshot_while_alters_continue(source: Source) -> None:
    insert = wide(source)
    settings = source.settings()
    with running(settings) as run:
        run.caught_up(source)
        source.execute(insert)
        run.caught_up(source)
        altering = threading.Event()
        thread = threading.Thread(target=alter_until, args=(source, altering))
        thread.start()
        try:
            with source.server.connect(database=source.schema) as connection, connection.cursor() as cursor:
                data = f'{{"data-collections": ["{source.schema}.wide"]}}'
                cursor.execute(
                    "INSERT INTO tidemark_signal VALUES ('s', 'execute-snapshot', %s)", (data,)
                )
            run.until(lambda: run.producer.coordinator.progress() != [], "the snapshot began")
        finally:
            altering.set()
            thread.join()
        run.until(lambda: done(run), "the snapshot is done")
        run.caught_up(source)
    logged = {record.value["after"]["id"]: record.value["after"] for record in source.changes("wide")[:12]}
    topic = f"{source.name}-snapshot.{source.schema}.wide"
    read = [
        record.value["after"]
        for record in read_topic(source.bootstrap_servers, topic)
        if isinstance(record.value, dict) and record.value.get("op") == "r"
    ]
    assert len(logged) == 12
    assert {row["id"] for row in read} >= set(range(12))
    for row in read:
        assert {name: row[name] for name in logged[row["id"]]} == logged[row["id"]]


def alter_until(source: Source, stop: threading.Event) -> None:
    for number in itertools.count():
        source.execute(f"ALTER TABLE wide ADD COLUMN n{number} INT NULL")
        if stop.wait(0.05):
            return


def done(run: Running) -> bool:
    progress = run.producer.coordinator.progress()
    return bool(progress) and all(table.state == "done" for table in progress)


def test_a_row_whose_columns_are_not_certain_stops_the_reader_and_says_what_to_do(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30))")
    with running(source.settings()) as run:
        run.caught_up(source)
    source.execute("INSERT INTO t VALUES (1, 'a')", "SET SESSION sql_log_bin = 0", "ALTER TABLE t ADD hidden INT FIRST")
    source.execute("SET SESSION sql_log_bin = 1", "INSERT INTO t VALUES (5, 2, 'b')", "ALTER TABLE t ADD seen INT")
    with running(replace(source.settings(), on_table_error="stop")) as run:
        run.until_ended()
        assert isinstance(run.error, SourceError)
        assert "which they were there is not certain" in str(run.error)
        assert "the log has 3 columns, the table 2" in str(run.error)
        assert "start under another name" in str(run.error)


def test_a_start_in_the_past_reads_tables_made_since_and_refuses_rows_of_unknown_columns(source: Source) -> None:
    source.execute("CREATE TABLE old (id INT PRIMARY KEY, v VARCHAR(30))")
    with source.connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        file, pos = cursor.fetchone()[:2]
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30))")
    writer = Writer(source)
    writer.row(v="a")
    source.execute("ALTER TABLE t ADD x INT FIRST", "ALTER TABLE old ADD y INT FIRST")
    writer.row(v="b")
    with running(source.settings(start_at={"file": file, "pos": pos})) as run:
        run.caught_up(source)
    writer.check()
    source.execute("INSERT INTO old VALUES (7, 1, 'x')", "ALTER TABLE old DROP y")
    source.name = unique_name("log")
    with running(replace(source.settings(start_at={"file": file, "pos": pos}), on_table_error="stop")) as run:
        run.until_ended()
    assert isinstance(run.error, SourceError)
    assert "old" in str(run.error)
    assert "a statement further on in the log changes it" in str(run.error)


def test_an_alter_that_was_hidden_from_the_log_is_read_from_the_server(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30))")
    writer = Writer(source)
    with running(source.settings()) as run:
        run.caught_up(source)
        source.execute("SET SESSION sql_log_bin = 0", "ALTER TABLE t ADD hidden INT FIRST", "SET SESSION sql_log_bin = 1")
        writer.row(v="a")
        run.caught_up(source)
    writer.check()


def test_full_metadata_wins_where_it_appears(kafka: Any, fresh_database: Any) -> None:
    server = nameless("mysql80")
    source = Source(server, fresh_database(server), kafka.bootstrap_servers)
    source.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(30))")
    writer = Writer(source)
    try:
        with running(source.settings()) as run:
            writer.row(v="a")
            run.caught_up(source)
            source.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
            source.connection.close()
            source.connection = server.connect(database=source.schema)
            source.execute("SET SESSION sql_log_bin = 0", "ALTER TABLE t CHANGE v w VARCHAR(30)", "SET SESSION sql_log_bin = 1")
            writer.row(w="b")
            run.caught_up(source)
            source.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
            source.connection.close()
            source.connection = server.connect(database=source.schema)
            source.execute("ALTER TABLE t ADD x INT FIRST")
            writer.row(w="c")
            run.caught_up(source)
    finally:
        source.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
        source.connection.close()
    writer.check()

