"""A task on real servers: one source, one target, the rows of both compared."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from schemas.settings import from_mapping
from schemas.settings.task_section import TaskSettings, task_from_mapping
from spark_jobs.replicate.task import run_task
from tests.integration.test_ordered_stream import mapping_of, written
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database

COLUMNS = "id INT PRIMARY KEY, v BIGINT NOT NULL, w VARCHAR(1000)"


@pytest.fixture(params=["mysql80"])
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield created
    created.connection.close()


def task_of(source: Source, registry: str, server, **more) -> TaskSettings:
    return task_from_mapping(
        {
            "task": f"replica-{source.name}",
            "sources": [{"name": source.name, "exclude_tables": [".*tidemark_signal"]}],
            "kafka": {"bootstrap_servers": source.bootstrap_servers},
            "format": {"registry": registry},
            "target": {"type": "mysql", "host": server.host, "port": server.port, "user": server.user, "password": server.password,
                       "tls": {"mode": "disabled"}},
            **more,
        }
    )  # fmt: skip


def rows_of(server, schema: str, table: str) -> list[tuple]:
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
        return list(cursor.fetchall())


def test_a_loaded_and_followed_source_is_equal(source, registry):
    target = database("mariadb114")
    settings = from_mapping(mapping_of(source, registry.url))
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in ("a", "b")))
    rows = ",".join(f"({number}, 1, 'x')" for number in range(300))
    source.execute(f"INSERT INTO a VALUES {rows}")
    task = task_of(source, registry.url, target)
    with running(settings) as run, written(source, keys=100):
        time.sleep(1)
        run_task(task, threading.Event(), until_caught_up=True)
        source.execute("ALTER TABLE b ADD COLUMN x INT NOT NULL DEFAULT 7", "CREATE TABLE c (id INT PRIMARY KEY)", "INSERT INTO c VALUES (1)")
        time.sleep(1)
    with running(settings) as run:
        run.caught_up(source)
        run_task(task, threading.Event(), until_caught_up=True)
    for table in ("a", "b", "c"):
        assert rows_of(target, source.schema, table) == rows_of(source.server, source.schema, table), table
