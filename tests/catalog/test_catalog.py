"""The catalog's view of the log agrees with the server, on MySQL and MariaDB."""

from __future__ import annotations

import time
from contextlib import closing

import pymysql
import pytest

from mysqlio.connection import connect
from mysqlio.information_schema import list_tables, read_table_facts, wait_for_ddl
from mysqlio.server_access import ServerAccess
from schemas.avro import to_avro
from schemas.settings import SourceSettings
from schemas.types.connect import value_schema
from schemas.types.semantic_types import column_default
from tests.catalog.logged_source import ALL_TYPES, Source, catalog_of, pinned


def test_the_log_and_the_server_agree_on_every_type(source: Source) -> None:
    version, _ = source.version_after(ALL_TYPES, "INSERT INTO t (id, part, el) VALUES (1, 'p', 'A')")
    schema = source.read("t")
    assert version.schema == schema
    assert schema.primary_key == ("part", "id")
    assert len(version.layout.types) == len(schema.columns)
    assert to_avro(value_schema(version.schema, "p", "mysql")) == to_avro(value_schema(schema, "p", "mysql"))


def test_facts_hold_also_without_having_seen_the_ddl(source: Source) -> None:
    source.run(ALL_TYPES)
    table_map = source.map_of("INSERT INTO t (id, part, el) VALUES (1, 'p', 'A')")
    assert source.catalog.version_of(table_map).schema == source.read("t")
    assert source.catalog.version_of(table_map) is source.catalog.version_of(table_map)


def test_defaults_are_the_values_the_server_stores(source: Source) -> None:
    source.run(ALL_TYPES)
    columns = {column.name: column for column in source.read("t").columns}
    assert columns["v"].default == 'it\'s "x" \\ \n \0'
    assert columns["vn"].default == "NULL"
    assert columns["ts"].default == "2020-01-01 21:34:05"  # of a session at +05:30
    assert columns["b4"].default == "0x61620000"
    assert columns["vr"].default == "0x00FF"
    assert columns["s"].default == "a,b"
    assert columns["c"].default == "ab"
    assert columns["dn"].default_is_expression
    assert not columns["gv"].has_default
    assert columns["e"].members == ("x,y", "it's", "back\\slash", "", "ünï", "nl\n", 'q"q')


def test_a_default_with_zero_bytes_of_a_column_that_is_not_null_is_whole(source: Source) -> None:
    columns = "(id INT PRIMARY KEY, z VARBINARY(9) NOT NULL DEFAULT X'00FF00', y VARBINARY(9) DEFAULT X'FF00FF')"
    source.run(f"CREATE TABLE zeros {columns}", "INSERT INTO zeros (id) VALUES (1)")
    found = {column.name: column.default for column in source.read("zeros").columns}
    found = {name: value for name, value in found.items() if name != "id"}
    assert {name: value.encode() if value[:2] != "0x" else bytes.fromhex(value[2:]) for name, value in found.items()} == {
        "z": b"\0\xff\0", "y": b"\xff\0\xff",
    }  # fmt: skip


def test_the_record_key_is_the_first_unique_index_of_required_columns(source: Source) -> None:
    version, _ = source.version_after(
        "CREATE TABLE u (x INT, a INT NOT NULL, b INT NOT NULL, UNIQUE (x), UNIQUE u1 (b, a), UNIQUE u2 (a))",
        "INSERT INTO u VALUES (1, 2, 3)",
    )
    assert version.schema == source.read("u")
    assert version.schema.record_key == ("b", "a")
    bare, _ = source.version_after("CREATE TABLE n (a INT, UNIQUE (a))", "INSERT INTO n VALUES (1)")
    assert bare.schema.record_key == source.read("n").record_key == ()


def test_tables_are_listed_without_views_and_the_servers_own(source: Source) -> None:
    source.run("CREATE TABLE b (id INT)", "CREATE TABLE a (id INT)", "CREATE VIEW v AS SELECT 1")
    with closing(pinned(source.server)()) as connection:
        listed = list_tables(connection)
    assert [table for database, table in listed if database == source.database] == ["a", "b"]
    assert not {database for database, _ in listed} & {
        "mysql",
        "sys",
        "information_schema",
        "performance_schema",
    }


def test_a_table_that_is_not_there_is_none(source: Source) -> None:
    assert source.read("nothing") is None


def test_a_string_is_the_bytes_of_a_bit_default(source: Source) -> None:
    version, _ = source.version_after(
        "CREATE TABLE t (id INT PRIMARY KEY, b BIT(16) DEFAULT 1, c BIT(16) DEFAULT 'A')",
        "ALTER TABLE t ALTER b SET DEFAULT '5'",
        "INSERT INTO t (id) VALUES (1)",
    )
    with source.user.cursor() as cursor:
        cursor.execute("SELECT b + 0, c + 0 FROM t")
        assert cursor.fetchone() == (0x35, 0x41)
    assert [column_default(column) for column in version.schema.columns[1:]] == [b"5\0", b"A\0"]
    assert version.schema == source.read("t")


def test_a_table_is_described_while_somebody_holds_the_global_read_lock(source: Source) -> None:
    """A backup, or our own view. MySQL 8 would write statistics down that it has not asked for yet, and wait for the lock."""
    source.run("CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 7)", "FLUSH TABLES WITH READ LOCK")
    server = source.server
    settings = SourceSettings(
        host=server.host, port=server.port, user=server.user, password=server.password, tables=(".*",)
    )
    try:
        with closing(connect(ServerAccess.of(settings))) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION lock_wait_timeout = 20")
            began = time.monotonic()
            facts = read_table_facts(connection, source.database, "t")
            waited_s = time.monotonic() - began
    finally:
        source.run("UNLOCK TABLES")
    assert facts is not None
    assert (facts.schema.primary_key, facts.schema.column("a").default) == (("id",), "7")
    assert waited_s < 15


def test_a_table_that_cannot_be_opened_is_not_waited_for(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE DEFINER = nobody@nowhere VIEW v AS SELECT id FROM t",
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "CREATE VIEW w AS SELECT id FROM gone",
        "DROP TABLE gone",
    )
    with closing(pinned(source.server)()) as connection:
        for name in ("v", "w"):
            with connection.cursor() as cursor, pytest.raises(pymysql.MySQLError):
                cursor.execute(f"SELECT 1 FROM {source.database}.{name} LIMIT 0")
            wait_for_ddl(connection, source.database, name, 1)


def test_renamed_and_made_again_tables_start_afresh(source: Source) -> None:
    source.version_after(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 4)", "INSERT INTO t (id) VALUES (1)"
    )
    renamed, (change,) = source.version_after("RENAME TABLE t TO u", "INSERT INTO u (id) VALUES (2)")
    assert (change.kind, renamed.schema.name, renamed.schema.column("a").default) == ("rename", "u", "4")
    again, changes = source.version_after("CREATE TABLE t (id INT, a INT)", "INSERT INTO t VALUES (1, 2)")
    assert [change.kind for change in changes] == ["create"]
    assert (again.schema.primary_key, again.schema.column("a").has_default) == ((), False)
    source.version_after("DROP TABLE t", "CREATE TABLE t (z INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert [column.name for column in source.read("t").columns] == ["z"]


def test_a_unique_index_on_prefixes_is_no_record_key_neither_for_the_log_nor_for_the_server(
    source: Source,
) -> None:
    version, _ = source.version_after(
        "CREATE TABLE p (v VARCHAR(20) NOT NULL, n INT NOT NULL, UNIQUE (v(5)), UNIQUE (n))",
        "INSERT INTO p VALUES ('a', 1)",
    )
    assert version.schema == source.read("p")
    assert version.schema.record_key == ("n",)
    source.run("ALTER TABLE p DROP INDEX n")
    table_map = source.map_of("INSERT INTO p VALUES ('b', 1)")
    assert catalog_of(source.server).version_of(table_map).schema == source.read("p")
    assert source.read("p").record_key == ()
