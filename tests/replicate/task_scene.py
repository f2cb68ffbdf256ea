"""Tasks from a source of a test to a server, and the rows of both."""

from __future__ import annotations

import threading
from dataclasses import replace

from schemas.settings.task_section import TaskSettings, task_from_mapping
from spark_jobs.replicate.task import run_task
from tests.support.producers import Source

COLUMNS = "id INT PRIMARY KEY, v BIGINT NOT NULL, w VARCHAR(1000)"


class Died(BaseException):
    """The process is gone."""


def task_of(source: Source, registry: str, server, *others: Source, **more) -> TaskSettings:
    return task_from_mapping(
        {
            "task": f"replica-{source.name}",
            "sources": [{"name": one.name, "exclude_tables": [".*tidemark_signal"]} for one in (source, *others)],
            "kafka": {"bootstrap_servers": source.bootstrap_servers},
            "format": {"registry": registry},
            "target": {"type": "mysql", "host": server.host, "port": server.port, "user": server.user, "password": server.password,
                       "tls": {"mode": "disabled"}},
            **more,
        }
    )  # fmt: skip


def eventual(task: TaskSettings) -> TaskSettings:
    return replace(task, target=replace(task.target, consistency="eventual"))


def rows_of(server, schema: str, table: str) -> list[tuple]:
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
        return list(cursor.fetchall())


def catch_up(task: TaskSettings) -> None:
    """Run a task until it is loaded, and has applied all that is in Kafka."""
    run_task(task, threading.Event(), until_caught_up=True)
