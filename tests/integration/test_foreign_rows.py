"""Rows of tables that nobody captures are passed over, whatever their types; a captured table of such a type is set aside alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.test_set_aside import documents, is_read, snapshot_rows
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database

SLOW = pytest.mark.slow
OLD_TIMES = """CREATE TABLE {name} (id INT PRIMARY KEY, t0 TIME, t3 TIME(3), t6 TIME(6), d0 DATETIME, d1 DATETIME(1), d6 DATETIME(6),
 s0 TIMESTAMP NULL, s2 TIMESTAMP(2) NULL, s6 TIMESTAMP(6) NULL)"""
OLD_ROW = """({id}, '-12:34:56', '-01:02:03.123', '838:59:58.999999', '2026-01-02 03:04:05', '2026-01-02 03:04:05.6',
 '2026-01-02 03:04:05.678901', '2026-01-02 03:04:05', '2026-01-02 03:04:05.67', '2026-01-02 03:04:05.678901')"""


MARIADB = pytest.mark.parametrize(
    "name", ["mariadb114", pytest.param("mariadb1011", marks=SLOW), pytest.param("mariadb118", marks=SLOW)]
)


def create_old(source: Source, *names: str) -> None:
    """Create tables with times as MariaDB stored them before 10.1."""
    with source.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL mysql56_temporal_format = OFF")
        try:
            source.execute(*(OLD_TIMES.format(name=name) for name in names))
        finally:
            cursor.execute("SET GLOBAL mysql56_temporal_format = ON")


@MARIADB
def test_times_as_mariadb_stored_them_before_10_1_end_nothing(
    name: str, kafka: Any, fresh_database: Callable[..., str]
) -> None:
    server = database(name)
    source, outside = Source(server, fresh_database(server), kafka.bootstrap_servers), fresh_database(server)
    source.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY)")
    create_old(source, f"{outside}.old", "old")
    with running(source.settings()) as run:
        for number in (1, 2):
            rows = f"{OLD_ROW.format(id=number)}, {OLD_ROW.format(id=number + 10)}"
            source.execute(
                "BEGIN", f"INSERT INTO {outside}.old VALUES {rows}", f"UPDATE {outside}.old SET t3 = '1:2:3.4'",
                f"INSERT INTO t VALUES ({number})", f"INSERT INTO old VALUES {rows}", f"INSERT INTO t VALUES ({number + 10})",
                "COMMIT",
            )  # fmt: skip
        run.caught_up(source)
        assert run.error is None
    found = source.changes("t")
    assert [one.value["after"]["id"] for one in found] == [1, 11, 2, 12]
    assert len({one.value["source"]["sequence"] for one in found}) == 4
    assert "before 5.6" in documents(source)["old"]["reason"]
    source.connection.close()


@MARIADB
def test_a_table_with_such_times_is_read_again_after_alter_table_force(
    name: str, kafka: Any, fresh_database: Callable[..., str]
) -> None:
    source = Source(database(name), fresh_database(database(name)), kafka.bootstrap_servers)
    source.execute(SIGNAL, OLD_TIMES.format(name="new"))
    create_old(source, "old")
    with running(source.settings()) as run:
        source.execute(f"INSERT INTO new VALUES {OLD_ROW.format(id=1)}", f"INSERT INTO old VALUES {OLD_ROW.format(id=1)}")
        run.caught_up(source)
        assert "before 5.6" in documents(source)["old"]["reason"]
        source.execute("ALTER TABLE old FORCE")
        run.until(lambda: is_read(run, "old"), "the table is read again")
        source.execute(f"INSERT INTO old VALUES {OLD_ROW.format(id=2)}", "UPDATE old SET d6 = NULL WHERE id = 1")
        run.caught_up(source)
        run.until(lambda: not documents(source), "nothing is set aside")
        assert run.error is None
    right = source.changes("new")[0].value["after"]
    assert snapshot_rows(source, "old") == {1: right}
    logged = [(change.value["before"], change.value["after"]) for change in source.changes("old")]
    assert logged == [(None, right | {"id": 2}), (right, right | {"d6": None})]
    source.connection.close()


TYPES = {
    "mariadb114": "u UUID, i6 INET6, i4 INET4, c TEXT COMPRESSED, g GEOMETRY, e ENUM('ä') CHARACTER SET latin1, j JSON",
    "mariadb118": "u UUID, i6 INET6, v VECTOR(3) NOT NULL, c TEXT COMPRESSED, t VARCHAR(5) COLLATE utf8mb4_uca1400_ai_ci",
    "mysql97": "v VECTOR(3), j JSON, g GEOMETRY SRID 4326, t VARCHAR(5) COLLATE utf8mb4_zh_0900_as_cs",
    "mysql80": "j JSON, g GEOMETRY, t VARCHAR(5) COLLATE utf8mb4_0900_as_cs, s SET('x','y') CHARACTER SET ucs2, y YEAR, b BIT(3)",
    "mysql57": "j JSON, g GEOMETRY, t VARCHAR(5) CHARACTER SET utf16le, s SET('x','y') CHARACTER SET ucs2",
}
MORE = {
    "mysql80": ("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'", "UPDATE {outside}.o SET j = JSON_SET(j, '$.a', 2)"),
    "mysql97": ("SET SESSION binlog_transaction_compression = ON", "UPDATE {outside}.o SET id = id + 1",
                "SET SESSION binlog_transaction_compression = OFF"),
}  # fmt: skip
SYSTEM = (
    "CREATE USER IF NOT EXISTS passing@localhost IDENTIFIED BY 'Secret-12345'", "GRANT SELECT ON {outside}.* TO passing@localhost",
    "ANALYZE TABLE {outside}.o", "OPTIMIZE TABLE {outside}.o", "DROP USER passing@localhost",
    "CREATE VIEW {outside}.w AS SELECT id FROM {outside}.o", "CREATE PROCEDURE {outside}.p() SELECT 1",
    "ALTER TABLE {outside}.o COMMENT 'ünclear', ORDER BY id", "FLUSH TABLES", "DROP DATABASE {outside}", "CREATE DATABASE {outside}",
    "XA START 'foreign'", "XA END 'foreign'", "XA ROLLBACK 'foreign'",
)  # fmt: skip


@pytest.mark.parametrize("name", [one if one in ("mysql80", "mariadb114") else pytest.param(one, marks=SLOW) for one in TYPES])
def test_types_ddl_and_administration_of_other_databases_end_nothing(
    name: str, kafka: Any, fresh_database: Callable[..., str]
) -> None:
    server = database(name)
    source, outside = Source(server, fresh_database(server), kafka.bootstrap_servers), fresh_database(server)
    source.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY)")
    with running(source.settings()) as run:
        value = ", v) VALUES (1, VEC_FromText('[1,2,3]'))" if "NOT NULL" in TYPES[name] else ") VALUES (1)"
        source.execute(
            f"CREATE TABLE {outside}.o (id INT PRIMARY KEY, {TYPES[name]})", f"INSERT INTO {outside}.o (id{value}",
            "INSERT INTO t VALUES (1)", *(one.format(outside=outside) for one in (*MORE.get(name, ()), *SYSTEM)),
            "INSERT INTO t VALUES (2)",
        )  # fmt: skip
        run.caught_up(source)
        assert run.error is None
    assert [one.value["after"]["id"] for one in source.changes("t")] == [1, 2]
    source.connection.close()
