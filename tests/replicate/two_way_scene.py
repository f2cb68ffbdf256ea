"""Two servers that replicate to each other: a producer and a task for each direction."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import QueryEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

import tidemark
from devservers.processes import GuardedProcess
from schemas.settings import Settings, from_mapping
from schemas.settings.task_section import TaskSettings, task_from_mapping
from tests.chaos import log as _log  # noqa: F401 - it teaches mysql-replication a status variable of MariaDB
from tests.e2e.binlog import changes_of
from tests.e2e.topics import RecordReader
from tests.integration.test_ordered_stream import mapping_of, write_transaction
from tests.support.producers import Source
from tests.support.writing_threads import writing_threads

Change = tuple[str, str, int]
"""A table, an operation, a key."""


@dataclass(frozen=True)
class Side:
    """A source, the channel that its producer ignores, and the one of the task that reads it."""

    source: Source
    ignores: str
    channel: str


class TwoWay:
    """Two sources that have databases of one name. The task from the first one has the channel `there`, the other one `back`."""

    def __init__(self, one: Source, other: Source, registry: str) -> None:
        self.registry, self.schema = registry, one.schema
        self.sides = Side(one, "back", "there"), Side(other, "there", "back")

    def producer(self, side: Side) -> dict[str, Any]:
        """The settings of the producer of a side."""
        mapping = mapping_of(side.source, self.registry)
        return {**mapping, "source": {**mapping["source"], "ignore_channels": [side.ignores]}}

    def task(self, side: Side, **more: Any) -> dict[str, Any]:
        """The settings of the task that reads a side and writes into the other one."""
        server = next(one.source.server for one in self.sides if one is not side)
        return {
            "task": f"from-{side.source.name}",
            "mode": "incremental",
            "sources": [{"name": side.source.name, "exclude_tables": [".*tidemark_signal"]}],
            "kafka": {"bootstrap_servers": side.source.bootstrap_servers},
            "format": {"registry": self.registry},
            "target": {"type": "mysql", "host": server.host, "port": server.port, "user": server.user, "password": server.password,
                       "tls": {"mode": "disabled"}, "channel": side.channel},
            **more,
        }  # fmt: skip

    def tasks(self, **more: Any) -> list[TaskSettings]:
        return [task_from_mapping(self.task(side, **more)) for side in self.sides]

    def settings(self, side: Side) -> Settings:
        return from_mapping(self.producer(side))

    def published(self, side: Side, *tables: str) -> list[Change]:
        """The changes that the producer of a side has published, in the order of its log."""
        source, reader = side.source, RecordReader(self.settings(side))
        changes = []
        for table in tables:
            for *_, value in reader.records(f"{source.name}.{source.schema}.{table}"):
                if value is not None and value["op"] != "r":
                    row = value["after"] or value["before"] or {}
                    changes.append((value["source"]["sequence"], value["op"] != "d", (table, value["op"], row.get("id"))))
        return [change for *_, change in sorted(changes)]

    def statements(self, side: Side) -> list[str]:
        """The DDL that the producer of a side has published, without the descriptions of its start."""
        values = [value for *_, value in RecordReader(self.settings(side)).records(side.source.name)]
        return [value["ddl"] for value in values if value["source"]["snapshot"] != "true"]


def logged(source: Source, begin: tuple[str, int], *tables: str) -> tuple[list[Change], list[Change]]:
    """The changes that the log of a server has from `begin` on: of users, and behind a loop mark."""
    server = source.server
    stream: Any = BinLogStreamReader(
        connection_settings={"host": server.host, "port": server.port, "user": server.user, "password": server.password},
        server_id=71_236, log_file=begin[0], log_pos=begin[1], resume_stream=True,
        only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent, QueryEvent, XidEvent],
    )  # fmt: skip
    own, of_tasks, now, is_marked = list[Change](), list[Change](), list[Change](), None
    try:
        for event in stream:
            if isinstance(event, QueryEvent) and event.query.startswith(("SAVEPOINT", "ROLLBACK TO")):
                continue
            if isinstance(event, (QueryEvent, XidEvent)):
                (of_tasks if is_marked else own).extend(now)
                now, is_marked = [], None
                continue
            if is_marked is None:
                is_marked = event.schema == "tidemark_meta" and event.table.startswith("channel_")
            if event.schema == source.schema and event.table in tables:
                now += [(one.table, one.op, one.key[0]) for row in event.rows for one in changes_of(event, row, ["id"])]
    finally:
        stream.close()
    return own, of_tasks


class Command:
    """`tidemark` with some words and a file of settings, which a test kills and starts again."""

    def __init__(self, folder: Path, settings: dict[str, Any], *words: str) -> None:
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps(settings), "utf-8")
        self._folder, self._words = folder, words
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tidemark", *self._words, str(self._folder / "settings.json")]
        env = {**os.environ, "PYTHONPATH": str(Path(tidemark.__file__).parents[1])}
        self.child = GuardedProcess.spawn(command, self._folder / "run.log", cwd=self._folder, env=env)

    @property
    def log(self) -> str:
        return (self._folder / "run.log").read_text("utf-8")

    def kill_and_start(self) -> None:
        self.require_alive()
        self.end(signal.SIGKILL)
        self.start()

    def require_alive(self) -> None:
        assert self.child.status is None, self.log[-3000:]

    def end(self, number: int = signal.SIGTERM) -> None:
        self.child.signal(number)
        assert self.child.wait(60)


def written_at(side: int, source: Source, keys: int, threads: int = 2) -> AbstractContextManager[None]:
    """Transactions of some rows in the tables `a` and `b`, also rolled back ones, with keys of one side: even or odd."""

    def write(cursor: Any, dice: random.Random, number: int) -> float:
        write_transaction(cursor, dice, [1, 1, 2, 5], lambda: side + 2 * (threads * dice.randrange(keys) + number))
        return dice.choice([0.0, 0.002, 0.01])

    return writing_threads(source, write, threads)
