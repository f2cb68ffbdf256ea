"""The README's SQL, run as it is by a database administrator: enough for the producer, and no more."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from devservers import Database, Kafka
from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_errors import source_errors
from mysqlio.server_facts import server_facts
from mysqlio.signal_table import SignalTable
from producer.app import Producer
from producer.snapshot.watermark import WindowRow, commit_barrier, commit_close
from producer.source.source_preflight import preflight
from schemas.errors import SourceError
from schemas.settings import Settings, from_mapping
from tests.support.producing import RunningProducer
from tests.support.servers import database as server_of
from tests.support.servers import unique_name
from tests.support.topics import Record, read_topic
from tidemark.api.observe import Observer
from tidemark.api.sending import insert
from tidemark.api.source_log import source_of
from tidemark.verify.source import Source

NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
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


SERVERS = ["mysql80", "mariadb114", pytest.param("mysql97", marks=pytest.mark.slow)]


@pytest.fixture(params=SERVERS)
def prepared(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A server with a database `shop` on which the README's statements have been run."""
    server = server_of(request.param)
    execute(server, "CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY)", *statements(server.flavour))
    yield server
    execute(server, "DROP DATABASE shop", "DROP USER readme")


def execute(server: Database, *wanted: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in wanted:
            cursor.execute(statement)


def settings_of(server: Database, kafka: Kafka | None = None) -> Settings:
    return from_mapping(
        {
            "name": unique_name("readme"),
            "source": {
                "host": server.host,
                "port": server.port,
                "user": "readme",
                "password": "...",
                "tables": ["shop\\..*"],
                "signal_table": "shop.tidemark_signal",
            },
            "kafka": {"bootstrap_servers": "127.0.0.1:1" if kafka is None else kafka.bootstrap_servers},
            "format": {"type": "json"},
            "snapshot": {"mode": "initial", "watermarking_strategy": "insert_delete"},
        }
    )


def test_the_grants_of_the_readme_are_enough_and_no_more(prepared: Database, kafka: Kafka) -> None:
    settings = settings_of(prepared, kafka)
    execute(prepared, "INSERT INTO shop.orders VALUES (1), (2)")
    with RunningProducer(settings) as producer:
        producer.wait_until("the first snapshot", lambda start: start.coordinator is not None and all_done(start, 1))
        insert(settings, "again", "execute-snapshot", '{"data-collections": ["shop.orders"], "type": "INCREMENTAL"}')
        execute(prepared, "INSERT INTO shop.orders VALUES (3)")
        producer.wait_until("the second snapshot", lambda start: all_done(start, 2))
        producer.wait_until("the log", lambda _: [r.key["id"] for r in changes(settings)] == [3])
        producer.wait_until("the retention", lambda start: start.retention.latest is not None)
        assert not producer.waited
    with Observer(settings) as observer:
        source = source_of(settings, observer.read())
    assert source.room is not None
    assert source.problem == ""
    verified = Source(settings.source)
    assert ("shop", "orders") in verified.table_names()
    verified.close()
    with connect(ServerAccess.of(settings.source)) as connection, connection.cursor() as cursor:
        preflight(server_facts(connection), connection)
        with pytest.raises(pymysql.MySQLError, match="denied"):
            cursor.execute("INSERT INTO shop.orders VALUES (4)")


def all_done(start: Producer, requests: int) -> bool:
    progress = start.coordinator.progress()
    return len(progress) == requests and all(table.state == "done" for table in progress)


def changes(settings: Settings) -> list[Record]:
    return read_topic(settings.kafka.bootstrap_servers, f"{settings.name}.shop.orders")


def test_each_grant_that_is_missing_is_named_with_its_statement(prepared: Database) -> None:
    settings = settings_of(prepared)
    monitor = "BINLOG MONITOR" if prepared.flavour == "mariadb" else "REPLICATION CLIENT"
    wanted = [
        ("REPLICATION SLAVE ON *.*", "GRANT REPLICATION SLAVE ON *.* TO"),
        (f"{monitor} ON *.*", f"GRANT {monitor} ON *.* TO"),
        ("XA_RECOVER_ADMIN ON *.*", "GRANT XA_RECOVER_ADMIN ON *.* TO"),
        ("INSERT ON shop.tidemark_signal", "GRANT INSERT ON "),
        ("DELETE ON shop.tidemark_signal", "GRANT DELETE ON `shop`.`tidemark_signal` TO"),
        ("SELECT ON shop.*", "GRANT SELECT ON "),
    ]
    for privilege, statement in wanted:
        if prepared.flavour == "mariadb" and "XA" in privilege:
            continue
        execute(prepared, f"REVOKE {privilege} FROM readme")
        with pytest.raises(SourceError) as caught:
            read_a_chunk(settings)
        assert statement in str(caught.value)
        execute(prepared, "DELETE FROM shop.tidemark_signal", f"GRANT {privilege} TO readme")


def read_a_chunk(settings: Settings) -> None:
    """All that needs a privilege: the checks of a start, a window, a SELECT in it."""
    table, row = SignalTable("shop", "tidemark_signal"), WindowRow.open("w", "shop.orders", "r", NOON)
    with connect(ServerAccess.of(settings.source)) as connection, source_errors("the source"), connection.cursor() as cursor:
        preflight(server_facts(connection), connection)
        commit_barrier(connection, table, row)
        cursor.execute("SELECT * FROM shop.orders")
        commit_close(connection, table, row, "insert_delete")
