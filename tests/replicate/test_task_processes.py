"""`tidemark task run` as processes: one leads, another takes over when it is killed, and SIGTERM ends it in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from devservers import Database
from devservers.processes import free_port
from schemas.settings import from_mapping
from tests.integration.test_ordered_stream import mapping_of
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database


@pytest.fixture
def source(kafka: Any, fresh_database: Any) -> Iterator[Source]:
    server = database("mysql80")
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield created
    created.connection.close()


def count(server: Database, schema: str) -> int:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = 'a'", (schema,))
        if not cursor.fetchall():
            return 0
        cursor.execute(f"SELECT COUNT(*) FROM {schema}.a")
        return int(cursor.fetchall()[0][0])


def test_a_standby_takes_over_from_a_killed_task_and_ends_with_0(source: Source, registry: Any, tmp_path: Path) -> None:
    target = database("mariadb114")
    task = {
        "task": source.name,
        "sources": [{"name": source.name}],
        "kafka": {"bootstrap_servers": source.bootstrap_servers},
        "format": {"registry": registry.url},
        "target": {"type": "mariadb", "host": target.host, "port": target.port, "user": target.user, "password": target.password},
    }
    (tmp_path / "task.yaml").write_text(json.dumps(task), "utf-8")
    command = [sys.executable, "-m", "tidemark", "task", "run", str(tmp_path / "task.yaml"), "--standby", "--log-format", "json"]
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    with running(from_mapping(mapping_of(source, registry.url))), ExitStack() as stack:

        def started(**environment: str) -> subprocess.Popen[str]:
            process = stack.enter_context(subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            return process

        def logs(process: subprocess.Popen[str], event: str) -> None:
            assert process.stderr is not None
            assert any(event in line for line in process.stderr)

        def applies(rows: int) -> None:
            deadline = time.monotonic() + 120
            while count(target, source.schema) != rows:
                assert time.monotonic() < deadline
                time.sleep(0.2)

        first = started()
        logs(first, "task.started")
        port = free_port()
        second = started(TIDEMARK_SERVICE__PORT=str(port))
        logs(second, "standby.waits")
        applies(1)
        first.kill()
        source.execute("INSERT INTO a VALUES (2)")
        logs(second, "task.started")
        applies(2)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            figures = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
        of_source = f'{{source="{source.name}"}}'
        assert figures["tidemark_task_ready"] == "1.0"
        assert figures[f'tidemark_apply_rows_total{{op="insert",source="{source.name}"}}'] == "1.0"
        assert 0 < float(figures[f"tidemark_checkpoint_lag_seconds{of_source}"]) < 60
        assert float(figures[f"tidemark_heartbeat_age_seconds{of_source}"]) < 60
        assert "tidemark_frontier_us" not in figures, "of an order that it does not have"
        second.terminate()
        assert second.wait(30) == 0
