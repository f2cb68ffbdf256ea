"""A replication task that a workload measures: its target, its settings, and its process."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.lake_feed import ROOT, Feed, spawned, tail
from bench.scene import BenchError
from bench.stage import Stage
from devservers import start_database
from devservers.processes import GuardedProcess

SERVER_NAME: Final = "mysql80"
_OPTIONS: Final = {"innodb_buffer_pool_size": "1G", "innodb_log_file_size": "1G"}


class TargetServer:
    """The server that a task applies to."""

    def __init__(self, stack: ExitStack, folder: Path, options: Mapping[str, str] | None = None) -> None:
        self.database: Final = stack.enter_context(start_database(SERVER_NAME, folder, {**_OPTIONS, **(options or {})}))

    def settings(self) -> dict[str, Any]:
        """Return the section `target` of a task."""
        server = self.database
        return {
            "type": "mysql", "host": server.host, "port": server.port, "user": server.user, "password": server.password,
            "tls": {"mode": "disabled"},
        }  # fmt: skip

    def create(self, stage: Stage, tables: Sequence[str]) -> None:
        """Create the tables of a stage, without rows."""
        statements = [f"CREATE DATABASE {stage.name} CHARACTER SET utf8mb4"]
        with stage.connect() as connection, connection.cursor() as cursor:
            for table in tables:
                cursor.execute(f"SHOW CREATE TABLE {table}")
                statements += [f"USE {stage.name}", cursor.fetchone()[1]]
        with self.database.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def value(self, sql: str) -> int:
        """Return the number that a statement asks for."""
        with self.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return int(cursor.fetchone()[0])


def task_document(name: str, feeds: Sequence[Feed], target: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a task that follows the tables of these producers."""
    return {
        "task": name,
        "mode": "incremental",
        "sources": [{"name": one.stage.name, "exclude_tables": [r".*\.tidemark_signal", r".*\.thousand"]} for one in feeds],
        "kafka": {"bootstrap_servers": feeds[0].servers},
        "format": {"registry": feeds[0].registry},
        "target": dict(target),
    }


class FollowingTask:
    """A process that runs a task, until the end of the stack."""

    def __init__(self, stack: ExitStack, folder: Path, document: Mapping[str, Any]) -> None:
        config, self._log = folder / "task.yaml", folder / "task.log"
        config.write_text(json.dumps(document), encoding="utf-8")
        self._child: GuardedProcess = spawned(["task", "run", str(config)], self._log, ROOT)
        stack.callback(self._stop)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._child.pid

    def wait_until(self, what: str, is_so: Callable[[], bool], seconds: float = 600.0) -> None:
        """Wait until something is so; `BenchError` if the process ends before that, or if it takes too long."""
        deadline = time.monotonic() + seconds
        while not is_so():
            if self._child.status is not None or time.monotonic() > deadline:
                message = f"waited for {what}, and the task has the status {self._child.status}:\n{tail(self._log)}"
                raise BenchError(message)
            time.sleep(0.2)

    def _stop(self) -> None:
        self._child.signal(signal.SIGTERM)
        self._child.wait(60)
        self._child.kill()
