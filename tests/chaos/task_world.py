"""The surroundings of a round of a replication task: sources, of which each has a producer, the task, and its target.

A source is a `World` of its own, so that the faults of rounds with one source hit one of several. The last statements of each
transaction of its load write the next number of the source, and the time (`journal`): numbers have the commit order. On the target
a trigger on that table notes each number that is inserted (`witness`), in the transaction that inserts it.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from devservers import Database
from devservers.databases import copy_sparsely
from devservers.processes import GuardedProcess
from mysqlio.server_errors import ServerError
from schemas.errors import PublishError, StateError
from schemas.overriding import override
from tests.chaos.peers import silent
from tests.chaos.proxy import Proxy
from tests.chaos.sink_servers import restart
from tests.chaos.world import RUN, ChaosError, Laps, Supervised, World
from tidemark.demo import commit_journal

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from tests.truth.split_kafka import SplitKafka

TASK, SPARE = "task", "spare"
JOBS: Final = ("first", "second", "third", TASK)
"""Processes with a way of their own to the broker."""
WITNESS: Final = "witness"
JOURNAL: Final = "journal"
_JOURNAL_COLUMNS: Final = "(n BIGINT PRIMARY KEY, at DATETIME(6) NOT NULL)"
AT_COMMIT: Final = (commit_journal.AT_COMMIT[0], "INSERT INTO journal VALUES (LAST_INSERT_ID(), UTC_TIMESTAMP(6))")
_VIEW_S: Final = 0.5
_PATIENCE_S: Final = 400.0


@dataclass(slots=True)
class Member(World):
    """A source of the task. `job` is its name at the broker.

    Numbers before `loaded` may have come with the load of the tables, in any order; None while they are loaded. `late` are numbers
    that may have been committed while the source was offline, with the time of the harness at which it was one again.
    """

    job: str = ""
    scene: TaskScene | None = None
    loaded: int | None = None
    late: list[tuple[range, float]] = field(default_factory=list)

    @override
    def pause(self, low: float, high: float) -> None:
        assert self.scene is not None
        self.scene.pause(low, high)

    @property
    def is_running(self) -> bool:
        """Whether its producer is to run at the moment."""
        return self.pipeline.running(RUN)

    def last_number(self) -> int:
        """Return the highest number that is committed."""
        with self.servers.database.connect() as connection:
            return commit_journal.count_and_last(connection, self.database)[1]

    def write_number(self) -> int:
        """Commit one more transaction, of a number alone; return it."""
        with self.servers.database.connect(database=self.database, autocommit=False) as connection:
            with connection.cursor() as cursor:
                for statement in AT_COMMIT:
                    cursor.execute(statement)
            connection.commit()
        return self.last_number()


def create_journal(server: Database, database: str) -> None:
    """Create the tables of the numbers of a source."""
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {JOURNAL} {_JOURNAL_COLUMNS}")
        cursor.execute("CREATE TABLE journal_end (id INT PRIMARY KEY, n BIGINT NOT NULL)")
        cursor.execute("INSERT INTO journal_end VALUES (1, 0)")


class TaskTarget:
    """The server that the task applies to, reached through a proxy, and a copy of its data."""

    def __init__(self, server: Database, folder: Path) -> None:
        self.server = server
        self.proxy = Proxy(server.port)
        self._copy = folder / "copy"
        self.has_copy = False

    def observe(self, databases: Sequence[str]) -> None:
        """Create the tables of the numbers, with triggers that note each insert."""
        self.forget([])
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {WITNESS}")
            cursor.execute(
                f"CREATE TABLE {WITNESS}.applied (seq BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(64) NOT NULL, n BIGINT NOT NULL)"
            )
            for name in databases:
                cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
                cursor.execute(f"CREATE TABLE {name}.{JOURNAL} {_JOURNAL_COLUMNS}")
                cursor.execute(
                    f"CREATE TRIGGER {name}.noted AFTER INSERT ON {name}.{JOURNAL} FOR EACH ROW"
                    f" INSERT INTO {WITNESS}.applied (name, n) VALUES ('{name}', NEW.n)"
                )

    def forget(self, databases: Sequence[str]) -> None:
        """Drop the databases of a round, and its copy."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            for name in (WITNESS, "tidemark_meta", *databases):
                cursor.execute(f"DROP DATABASE IF EXISTS {name}")
        shutil.rmtree(self._copy, ignore_errors=True)
        self.has_copy = False

    def copy(self) -> None:
        """Copy the data as they are on disk: a start on the copy is one after a crash."""
        shutil.rmtree(self._copy, ignore_errors=True)
        with silent(self.server.pid):
            _copied(self.server.data_dir, self._copy)
        self.has_copy = True

    def put_back(self) -> None:
        """Kill the server, and start it on the copy."""
        self.server.kill()
        shutil.rmtree(self.server.data_dir)
        _copied(self._copy, self.server.data_dir)
        restart(self.server)

    def close(self) -> None:
        """End the proxy."""
        self.proxy.__exit__()


def _copied(source: Path, into: Path) -> None:
    shutil.copytree(source, into, copy_function=copy_sparsely, ignore=shutil.ignore_patterns("*.sock*", "*.pid"))


class TaskProcesses(Supervised):
    """The processes of the task: one, or two with `--standby`."""

    VERBS = (TASK, SPARE)

    def __init__(self, folder: Path, document: dict[str, Any], *, has_spare: bool) -> None:
        super().__init__(folder)
        self.file = folder / "task.yaml"
        self.file.write_text(json.dumps(document, indent=1), encoding="utf-8")
        self._more = ("--standby",) if has_spare else ()
        self.verbs = (TASK, SPARE) if has_spare else (TASK,)

    @override
    def check(self) -> None:
        super().check()
        for verb in self.VERBS:
            if self.running(verb) and '"reason": "after an error' in self.said(verb):
                raise ChaosError(f"{verb} is paused after an error:\n{self.log_tail(verb)}")

    @override
    def spawn(self, verb: str, log_path: Path, *arguments: str) -> GuardedProcess:
        return self.spawn_command(["task", "run", str(self.file), "--log-format", "json", *self._more, *arguments], log_path)


@dataclass(slots=True)
class TaskScene:
    """All of a round: `members` are the sources, of which those whose producers do not run yet join later."""

    members: list[Member]
    task: TaskProcesses
    target: TaskTarget
    kafka: SplitKafka
    rng: random.Random
    laps: Laps
    name: str
    order: str
    is_ordered: bool = True
    """Whether transactions are applied in order: workers apply a batch in any order."""
    shaken: set[str] = field(default_factory=set)
    kills: int = 0
    faults: int = 0
    serial: int = 0
    _view_due: float = 0.0

    # ---- watching

    def pause(self, low: float, high: float) -> None:
        """Let things run for a drawn time, watching."""
        deadline = time.monotonic() + self.rng.uniform(low, high)
        while time.monotonic() < deadline:
            self.watch()
            time.sleep(0.1)

    def watch(self) -> None:
        """Fail if a process has ended by itself, a status has said something false, or a view of the target is wrong."""
        self.task.check()
        for member in self.members:
            member.pipeline.check()
            if member.is_running:
                try:
                    member.pipeline.status()
                except (PublishError, StateError):
                    if "kafka" not in self.shaken:
                        raise
        if time.monotonic() > self._view_due:
            self._view_due = time.monotonic() + _VIEW_S
            self.read_view()

    def excuse(self, verb: str, said: str) -> str | None:
        """Why a process of the task may have ended by itself."""
        is_fenced = "FencedError" in said or "has taken over task" in said or "started by another process" in said
        if verb in (TASK, SPARE) and is_fenced and self.shaken & {"put back", "second"}:
            return "fenced"
        return None

    def read_view(self) -> None:
        """Read one view of the target: numbers of a loaded source have no gap there."""
        with suppress(ServerError, OSError), self.target.server.connect(read_timeout=30) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            loaded = self._loaded(connection)
            for member in self.members:
                if member.pipeline.name not in loaded:
                    continue
                if member.loaded is None:
                    member.loaded = member.last_number() + 1
                    member.load.changes_owners = True
                numbers, last = commit_journal.count_and_last(connection, member.database)
                if self.is_ordered and numbers != last:
                    raise ChaosError(f"{member.job}: the target has number {last}, and {last - numbers} before it are missing")

    def _loaded(self, connection: Connection) -> set[str]:
        """Return the names of the sources whose tables are loaded."""
        return {name for name, state in self._states(connection).items() if not state["loading"]}

    def _states(self, connection: Connection) -> dict[str, dict[str, Any]]:
        """Return the states of the sources at the target."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'tidemark_meta' AND TABLE_NAME = 'source'")
            if not cursor.fetchall():
                return {}
            cursor.execute("SELECT name, state FROM tidemark_meta.source WHERE task = %s", (self.name,))
            return {str(name): json.loads(state) for name, state in cursor.fetchall()}

    def wait(self, event: str, done: Callable[[], bool], seconds: float = _PATIENCE_S) -> None:
        """Wait, watching."""
        deadline = time.monotonic() + seconds
        while True:
            self.watch()
            with suppress(ServerError, OSError):
                if done():
                    return
            if time.monotonic() > deadline:
                tails = "\n".join(
                    f"--- {processes.folder.name}/{verb}\n{processes.log_tail(verb)}"
                    for processes in (self.task, *(member.pipeline for member in self.members))
                    for verb in (*self.task.verbs, RUN)
                    if processes.running(verb)
                )
                raise ChaosError(f"not within {seconds:.0f} s: {event}\n{tails}")
            time.sleep(0.2)

    def wait_until_begun(self) -> None:
        """Wait until the task has asked the sources that run for their rows."""

        def has_asked() -> bool:
            with self.target.server.connect() as connection:
                states = self._states(connection)
            return all(states.get(one.pipeline.name, {}).get("asked_ms") for one in self.members if one.is_running)

        self.wait("the task has begun", has_asked)

    def wait_until_loaded(self, *members: Member) -> None:
        """Wait until the tables of these sources are loaded, or of all that run."""
        wanted = members or [member for member in self.members if member.is_running]
        self.wait("the tables are loaded", lambda: all(member.loaded is not None for member in wanted))

    def wait_for_all(self) -> None:
        """Wait until the target has everything that is committed."""
        numbers = {member.database: member.write_number() for member in self.members}

        def has_all() -> bool:
            with self.target.server.connect() as connection:
                return all(commit_journal.count_and_last(connection, name) == (last, last) for name, last in numbers.items())

        self.wait_until_loaded(*self.members)
        self.wait("everything has arrived", has_all)

    # ---- for faults

    def draw(self) -> Member:
        """Return a source whose producer runs."""
        return self.rng.choice([member for member in self.members if member.is_running])

    def heal(self) -> None:
        """Let everything reach everything again."""
        for proxy in (self.target.proxy, *self.kafka.proxies.values(), *(member.proxy for member in self.members)):
            proxy.heal()
        if not self.target.server.running:
            restart(self.target.server)

    def forget_views(self) -> None:
        """Read again which tables are loaded: the target was put back."""
        for member in self.members:
            member.loaded, member.load.changes_owners = None, False
        self.shaken.add("put back")
