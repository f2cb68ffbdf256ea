"""What the server is asked for schema-change records, by a user with the grants of the README."""

from __future__ import annotations

import pytest

from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from producer.stream.handlers.schema_change_records import DescribingServer
from schemas.settings import SourceSettings
from tests.support.servers import database


@pytest.mark.parametrize("name", ["captured", "not_granted", "gone"])
def test_tables_are_described_where_they_may_be_seen(name, mysql, fresh_database):
    other = fresh_database(mysql.server)
    mysql.execute(
        "CREATE TABLE captured (id INT PRIMARY KEY)",
        f"CREATE TABLE {other}.not_granted (id INT PRIMARY KEY)",
        "CREATE USER IF NOT EXISTS 'seeing'@'%' IDENTIFIED BY 'x'",
        f"GRANT SELECT ON {mysql.schema}.* TO 'seeing'@'%'",
    )
    settings = SourceSettings(
        host=mysql.server.host, port=mysql.server.port, user="seeing", password="x", tables=("a",)
    )
    server = DescribingServer(lambda: connect(ServerAccess.of(settings)))
    reported = server.create_statement(other if name == "not_granted" else mysql.schema, name)
    assert (reported is not None) == (name == "captured")
    assert server.charset(mysql.schema) == "utf8mb4"
    assert server.charset("nowhere") is None
    assert server.charset("") is not None
    mysql.execute("DROP USER 'seeing'@'%'")


def test_a_table_that_the_server_cannot_open_is_not_described(mysql):
    """DDL of it may be in the log all the same, and must not end the producer."""
    mysql.execute(
        "CREATE TABLE part (id INT) ENGINE=MyISAM",
        "CREATE TABLE whole (id INT) ENGINE=MERGE UNION=(part)",
        "DROP TABLE part",
    )
    settings = SourceSettings(
        host=mysql.server.host, port=mysql.server.port, user=mysql.server.user, password=mysql.server.password, tables=("a",)
    )
    assert DescribingServer(lambda: connect(ServerAccess.of(settings))).create_statement(mysql.schema, "whole") is None


def test_a_definition_that_is_no_utf8_is_read_as_debezium_s_driver_does(fresh_database) -> None:
    server = database("mariadb114")
    schema = fresh_database(server)
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARBINARY(4) DEFAULT 0xff)")
    settings = SourceSettings(
        host=server.host, port=server.port, user=server.user, password=server.password, tables=("a",)
    )
    reported = DescribingServer(lambda: connect(ServerAccess.of(settings))).create_statement(schema, "t")
    assert reported is not None
    assert "`v` varbinary(4) DEFAULT '\N{REPLACEMENT CHARACTER}'" in reported
