"""A statement in the log is not always one that happened, nor only once, nor about the table that has its name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.support.producers import SIGNAL, Running, Source, running
from tests.support.servers import database, own_database, unique_name
from tests.support.topics import read_topic

SLOW = pytest.mark.slow


def followed(server: Any, schema: str, kafka: Any) -> Source:
    created = Source(server, schema, kafka.bootstrap_servers)
    created.execute(SIGNAL)
    return created


@pytest.fixture(params=["mariadb114", pytest.param("mariadb118", marks=SLOW), pytest.param("mariadb1011", marks=SLOW)])
def mariadb(request: Any, kafka: Any) -> Iterator[Source]:
    """A server whose log names no columns."""
    server = own_database(request.param, "nameless")
    schema = unique_name("twice").replace("-", "_")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_row_metadata = 'NO_LOG'")
        cursor.execute(f"CREATE DATABASE {schema}")
    created = followed(server, schema, kafka)
    yield created
    created.connection.close()


@pytest.fixture(params=["mysql80", "mariadb114", pytest.param("mysql57", marks=SLOW), pytest.param("mysql97", marks=SLOW)])
def source(request: Any, kafka: Any, fresh_database: Callable[..., str]) -> Iterator[Source]:
    server = database(request.param)
    created = followed(server, fresh_database(server), kafka)
    yield created
    created.connection.close()


def rows(source: Source, table: str) -> list[dict[str, Any]]:
    return [change.value["after"] for change in source.changes(table) if change.value["op"] != "t"]


def statements(source: Source) -> list[str]:
    found = [record.value.get("payload", record.value) for record in read_topic(source.bootstrap_servers, source.name)]
    return [one["ddl"] for one in found if "ddl" in one]


def floors(source: Source, table: str) -> list[str]:
    records = read_topic(source.bootstrap_servers, f"{source.name}-snapshot.{source.schema}.{table}")
    return [record.value["cause"] for record in records if record.value.get("type") == "floor" and record.partition == 0]


def phases(source: Source) -> list[tuple[int, str]]:
    """Return the ends of the groups of the log's current file that are one phase of an ALTER, each with its phase."""
    with source.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        file = cursor.fetchone()[0]
        cursor.execute(f"SHOW BINLOG EVENTS IN '{file}'")
        return [(int(one[4]), word) for one in cursor.fetchall() for word in ("START", "COMMIT") if f" {word} ALTER" in str(one[5])]


def status_variables(source: Source, words: bytes) -> bytes:
    """Return the status variables of the statement in the log's current file that has these words."""
    with source.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        log = (source.server.data_dir / cursor.fetchone()[0]).read_bytes()
    at, found = 4, []
    while at < len(log):
        size = int.from_bytes(log[at + 9 : at + 13], "little")
        if log[at + 4] == 2 and words in log[at : at + size]:
            found.append(log[at + 32 : at + 32 + int.from_bytes(log[at + 30 : at + 32], "little")])
        at += size
    (variables,) = found
    return variables


def is_read(run: Running, table: str) -> bool:
    assert run.producer.coordinator is not None
    return any(one.state == "done" for one in run.producer.coordinator.progress() if one.table.endswith(f".{table}"))


@contextmanager
def rolled_back_at_failure(connection: Any) -> Iterator[None]:
    """Roll back if the body fails: an end of the producer would wait for the locks of the connection."""
    try:
        yield
    except BaseException:
        connection.rollback()
        raise


def test_an_alter_in_two_phases_is_applied_once_at_its_end_and_one_that_failed_never(mariadb: Source) -> None:
    mariadb.execute("CREATE TABLE ab (id INT PRIMARY KEY, a INT, b INT)", "CREATE TABLE name (id INT PRIMARY KEY, u INT)")
    settings = mariadb.settings({"include_schema_changes": True})
    with running(settings) as run:
        mariadb.execute(
            "INSERT INTO ab VALUES (1, 10, 20)", "INSERT INTO name VALUES (1, 5), (2, 5)",
            "SET SESSION binlog_alter_two_phase = ON",
            "ALTER TABLE ab CHANGE a b INT, CHANGE b a INT",
            "UPDATE ab SET a = 21",
        )  # fmt: skip
        with pytest.raises(Exception, match="Duplicate entry"):
            mariadb.execute(f"ALTER TABLE name RENAME TO {mariadb.schema}.other, ADD UNIQUE KEY (u), ALGORITHM=COPY")
        with pytest.raises(Exception, match="Duplicate entry"):
            mariadb.execute("CREATE UNIQUE INDEX i ON name (u)")
        mariadb.execute("INSERT INTO name VALUES (3, 6)")
        run.caught_up(mariadb)
    assert rows(mariadb, "ab") == [{"id": 1, "a": 10, "b": 20}, {"id": 1, "b": 10, "a": 21}]
    assert [row["id"] for row in rows(mariadb, "name")] == [1, 2, 3]
    assert floors(mariadb, "name") == []
    assert [one for one in statements(mariadb) if one.startswith(("ALTER TABLE", "CREATE UNIQUE"))] == [
        "ALTER TABLE ab CHANGE a b INT, CHANGE b a INT"
    ]


def test_a_start_between_the_phases_of_an_alter_applies_it_once(mariadb: Source) -> None:
    mariadb.execute("CREATE TABLE ab (id INT PRIMARY KEY, a INT, b INT)", "CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO ab VALUES (1, 10, 20)")
    mariadb.execute("FLUSH BINARY LOGS")  # a file without the phases of other tests

    def alter() -> None:
        mariadb.execute("SET SESSION binlog_alter_two_phase = ON", "ALTER TABLE ab CHANGE a b INT, CHANGE b a INT, ALGORITHM=COPY")

    thread = threading.Thread(target=alter)
    with closing(mariadb.server.connect(database=mariadb.schema)) as other:
        with running(mariadb.settings()) as run, rolled_back_at_failure(other):
            mariadb.execute("INSERT INTO ab VALUES (2, 11, 21)")
            other.begin()
            with other.cursor() as cursor:
                cursor.execute("SELECT * FROM ab")  # its metadata lock keeps the ALTER from its end, until `other` is closed
            thread.start()
            run.until(lambda: bool(phases(mariadb)), "the START is in the log")
            with mariadb.server.connect(database=mariadb.schema) as third, third.cursor() as cursor:
                cursor.execute("INSERT INTO u VALUES (1)")
            run.caught_up(mariadb)
            ((start, word),) = phases(mariadb)
            assert word == "START"
            assert run.producer.coordinator is not None
            assert run.producer.coordinator.progress() == [], "the START asks for no snapshot"
        assert run.producer.reader.committed.pos > start, "the START is read, the COMMIT is not yet written"
    thread.join()
    assert [word for _, word in phases(mariadb)] == ["START", "COMMIT"]
    with running(mariadb.settings()) as run:
        mariadb.execute("UPDATE ab SET a = 22 WHERE id = 2")
        run.caught_up(mariadb)
    assert rows(mariadb, "ab")[-1] == {"id": 2, "b": 11, "a": 22}


def test_ddl_of_a_temporary_table_does_not_touch_the_captured_one_of_that_name(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    with running(source.settings({"skipped_operations": ["none"]})) as run:
        source.execute("INSERT INTO t VALUES (1, 1)")
        source.execute(
            "SET SESSION binlog_format = 'MIXED'",
            "CREATE TEMPORARY TABLE t (id INT)", "ALTER TABLE t ADD z INT", "TRUNCATE t", "CREATE INDEX i ON t (z)",
            "ALTER TABLE t RENAME TO t2", "DROP TABLE t2",
            "SET SESSION binlog_format = 'ROW'",
            "INSERT INTO t VALUES (2, 2)",
        )  # fmt: skip
        run.caught_up(source)
        assert run.error is None
    assert [(one.value["op"], one.value["after"]) for one in source.changes("t")] == [
        ("c", {"id": 1, "v": 1}), ("c", {"id": 2, "v": 2})
    ]  # fmt: skip
    assert floors(source, "t") == []


def test_a_truncate_in_a_session_with_temporary_tables_empties_the_captured_table(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    with running(source.settings({"skipped_operations": ["none"]})) as run:
        source.connection.close()
        source.connection = source.server.connect(database=source.schema)  # a session that began after the producer
        source.execute("INSERT INTO t VALUES (1, 1)", "CREATE TEMPORARY TABLE stage (id INT)", "TRUNCATE t", "INSERT INTO t VALUES (2, 2)")
        run.caught_up(source)
        assert [one.value["op"] for one in source.changes("t")] == ["c", "t", "c"]


@pytest.mark.parametrize("name", ["mysql57"])
def test_a_drop_that_failed_in_part_leaves_the_tables_that_are_still_there(name: str, kafka: Any, fresh_database: Callable[..., str]) -> None:
    server = database(name)
    source = followed(server, fresh_database(server), kafka)
    source.execute(
        "CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE c (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES p (id))",
    )  # fmt: skip
    with running(source.settings()) as run:
        source.execute("INSERT INTO a VALUES (1)", "INSERT INTO p VALUES (1)")
        with pytest.raises(Exception, match="foreign key"):
            source.execute("DROP TABLE a, p")
        with pytest.raises(Exception, match="Unknown table"):
            source.execute("DROP TABLE c, nowhere")
        source.execute("INSERT INTO p VALUES (2)")
        run.caught_up(source)
        run.until(lambda: is_read(run, "p"), "the table of which it is not known is read")
    assert floors(source, "a") == ["drop"]
    assert floors(source, "p") == []
    source.connection.close()


@pytest.mark.parametrize("name", [pytest.param("mariadb118", marks=SLOW)])
def test_a_statement_of_a_latin1_client_is_read_in_its_character_set_whatever_the_collations_are(
    name: str, kafka: Any, fresh_database: Callable[..., str]
) -> None:
    server = database(name)
    source = followed(server, fresh_database(server), kafka)
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(source.settings()) as run:
        source.execute("INSERT INTO t VALUES (1)")
        with server.connect(database=source.schema, charset="latin1") as client, client.cursor() as cursor:
            cursor.execute("SET SESSION character_set_collations = 'utf8mb3=utf8mb3_bin,utf8mb4=utf8mb4_bin'")
            # a statement that names a character set without a collation has the session's collations before its own
            cursor.execute("ALTER TABLE t RENAME TO übrig, DEFAULT CHARACTER SET utf8mb4")
        pairs = status_variables(source, b"RENAME TO")
        assert bytes((131, 2)) in pairs, pairs
        source.execute("INSERT INTO übrig VALUES (2)")
        run.caught_up(source)
        run.until(lambda: is_read(run, "übrig"), "the rows from before")
    assert floors(source, "t") == ["rename"]
    source.connection.close()
