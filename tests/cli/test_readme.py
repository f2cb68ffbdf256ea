"""The README's SQL, run as it stands by a database administrator: enough for the producer, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from producer.snapshot.watermark import SignalTable
from producer.source.connection import connect
from producer.source.facts import preflight, server_facts
from schemas.settings import from_mapping
from tests.support.servers import database as server_of
from tidemark.embedded import Database

README = Path(__file__).parents[2] / "README.md"


def statements(flavour: str) -> list[str]:
    text = README.read_text("utf-8")
    lines = [line.strip() for line in re.findall(r"^    ((?:SET|CREATE|GRANT) .*)$", text, re.MULTILINE)]
    assert len(lines) == 7
    if flavour == "mariadb":
        lines = [line for line in lines if "XA_RECOVER_ADMIN" not in line]
        lines = [re.sub(r"REPLICATION CLIENT ", "BINLOG MONITOR ", line) for line in lines]
    # The embedded servers have a user of that name already.
    return [re.sub(r"\b(USER|TO) tidemark\b", r"\1 readme", line.split(";")[0]) for line in lines]


@pytest.fixture(params=["mysql80", "mariadb114"])
def prepared(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A server with a database `shop` on which the README's statements have been run."""
    server = server_of(request.param)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY)")
        for statement in statements(server.flavour):
            cursor.execute(statement)
    yield server
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE shop")
        cursor.execute("DROP USER readme")


def test_the_grants_of_the_readme_are_enough_and_no_more(prepared: Database) -> None:
    source = from_mapping(
        {
            "name": "shop",
            "source": {
                "host": prepared.host,
                "port": prepared.port,
                "user": "readme",
                "password": "...",
                "tables": ["shop\\..*"],
                "signal_table": "shop.tidemark_signal",
            },
        }
    ).source
    connection = connect(source)
    try:
        preflight(server_facts(connection), connection)
        SignalTable("shop", "tidemark_signal").ensure(connection)
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO shop.tidemark_signal VALUES ('a', 'log', NULL)")
            cursor.execute("DELETE FROM shop.tidemark_signal")
            cursor.execute("SELECT * FROM shop.orders")
            with pytest.raises(pymysql.MySQLError, match="denied"):
                cursor.execute("INSERT INTO shop.orders VALUES (1)")
    finally:
        connection.close()
