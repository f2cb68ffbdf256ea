"""The course of `tidemark demo --sources`: shops on MySQL and MariaDB, applied to another server in one order.

::

    1. servers start; three shops are filled, two of them on the MySQL server; a write load runs on each
    2. the producers of two shops start, and a task with `order: global`, which loads their tables
    3. the third producer joins the group, and its tables are loaded
    4. each producer and the task are killed (SIGKILL) once and started again, and continue while the loads run
    5. the loads stop; all must arrive in the target
    6. each table is compared row by row

From the moment at which the tables of a source are loaded, views of the target are read again and again: each must have a prefix of
the transactions of that source (`commit_journal`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark.demo import commit_journal, row_comparison, shop
from tidemark.demo.commit_journal import JournalWatcher
from tidemark.demo.progress_display import Display
from tidemark.demo.stack import SOURCES, DemoError, Stack
from tidemark.demo.workload import WORKERS, Workload

if TYPE_CHECKING:
    from devservers import Database

SERVERS_OF_SOURCES: Final = ("mysql", "mariadb", "mysql")
"""Of the first and the third source, of the second one, and the target."""
_LATE: Final = SOURCES[2]
_JOINS_AT: Final = 0.2
_PATIENCE_S: Final = 300.0
_TICK_S: Final = 0.1
_LINE_S: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcesFound:
    """How many sources, transactions that were watched, and rows; differences between target and sources."""

    sources: int
    transactions: int
    rows: int
    differences: list[str]


class SourcesCourse:
    """One run of the scenario."""

    def __init__(self, stack: Stack, display: Display, *, rows: int, load_seconds: float, rate: float, seed: int) -> None:
        self._stack = stack
        self._display = display
        self._rows = rows // len(SOURCES)
        self._load_s = load_seconds
        self._rate = rate / len(SOURCES)
        self._seed = seed
        self._servers: dict[str, Database] = {}
        self._loads: dict[str, Workload] = {}
        self._watcher: JournalWatcher
        self._line_due = 0.0

    def run(self) -> SourcesFound:
        """Play it; return the result of the comparison."""
        mysql, mariadb, target = self._stack.start_servers()
        self._servers = dict(zip(SOURCES, (mysql, mariadb, mysql), strict=True))
        self._display.say(f"{mysql.name}, {mariadb.name} and the target, another {target.name}, are up; filling three shops")
        filled = [self._stack.in_background(self._filler(name)) for name in SOURCES]
        files = {name: self._stack.configure_source(server, name) for name, server in self._servers.items()}
        task = self._stack.configure_task(SOURCES, target)
        for wait in filled:
            wait()
        with ExitStack() as ends:
            for load in self._loads.values():
                load.start()
                ends.callback(load.stop)
            self._watcher = ends.enter_context(JournalWatcher(target))
            self._under_load(files, task)
            counts = {name: load.stop().transactions for name, load in self._loads.items()}
            self._wait("the rest arrives", lambda: self._watcher.applied == counts)
            self._watcher.check()
        self._require_journals(counts)
        self._display.say(f"everything has arrived, seen in {self._watcher.views:,} views of the target; comparing row by row")
        return self._compared(target, sum(counts.values()) - sum(self._watcher.first.values()))

    def _filler(self, name: str) -> Callable[[], None]:
        def fill() -> None:
            server = self._servers[name]
            with server.connect() as connection:
                shop.create_schema(connection, server.flavour, name)
                commit_journal.create(connection, name)
                sizes = shop.load_rows(connection, self._rows, seed=self._seed, database=name)
            self._loads[name] = Workload(
                server.connect, seed=self._seed, rate=self._rate, sizes=sizes, database=name, at_commit=commit_journal.AT_COMMIT
            )

        return fill

    def _under_load(self, files: dict[str, Path], task: Path) -> None:
        say, began = self._display.say, self._display.elapsed_s
        commands = {name: ("run", "--config", str(file)) for name, file in files.items()} | {"task": ("task", "run", str(task))}
        say(f"loads run; starting `tidemark run` for {SOURCES[0]} and {SOURCES[1]}, and `tidemark task run`")
        for name in (*SOURCES[:2], "task"):
            self._stack.start_child(name, *commands[name])
        self._wait("two shops are loaded", lambda: self._watcher.first.keys() == set(SOURCES[:2]))
        self._wait("changes are applied", lambda: self._display.elapsed_s > began + self._load_s * _JOINS_AT)
        say(f"starting `tidemark run` for {_LATE}: it joins the group")
        self._stack.start_child(_LATE, *commands[_LATE])
        self._wait(f"{_LATE} is loaded", lambda: _LATE in self._watcher.first)
        for name, command in commands.items():
            self._stack.kill_child(name)
            say(f"{name} killed (SIGKILL); starting it again")
            self._stack.start_child(name, *command)
            self._wait(f"{name} continues", self._continues(SOURCES if name == "task" else (name,)))
        self._wait("changes are applied", lambda: self._display.elapsed_s > began + self._load_s)

    def _continues(self, names: tuple[str, ...]) -> Callable[[], bool]:
        """Return whether transactions of these sources have been applied that are committed from this moment on."""
        committed = {name: self._loads[name].counts().transactions for name in names}
        slack = WORKERS  # of transactions that are committed, and not counted yet
        return lambda: all(self._watcher.applied[name] > number + slack for name, number in committed.items())

    def _wait(self, phase: str, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not until():
            self._stack.check()
            self._watcher.check()
            if time.monotonic() > deadline:
                raise DemoError(f"{phase}: not done after {_PATIENCE_S:g} s; see the logs")
            if self._display.elapsed_s > self._line_due:
                self._line_due = self._display.elapsed_s + _LINE_S
                self._display.say(f"{phase}: {', '.join(map(self._progress, SOURCES))}")
            time.sleep(_TICK_S)

    def _progress(self, name: str) -> str:
        applied = self._watcher.applied.get(name)
        committed = self._loads[name].counts().transactions
        return f"{name} {'not loaded' if applied is None else f'{applied:,}'} of {committed:,}"

    def _require_journals(self, counts: dict[str, int]) -> None:
        """Raise `DemoError` if a source has other numbers than its load has committed."""
        for name, server in self._servers.items():
            with server.connect() as connection:
                found = commit_journal.count_and_last(connection, name)
            if found != (counts[name], counts[name]):
                raise DemoError(f"{name}: {counts[name]} transactions are committed, the source has {found[0]} up to {found[1]}")

    def _compared(self, target: Database, transactions: int) -> SourcesFound:
        rows, differences = 0, list[str]()
        for name, server in self._servers.items():
            found = row_comparison.compare(server, target, name)
            rows, differences = rows + found[0], differences + found[1]
        return SourcesFound(sources=len(self._servers), transactions=transactions, rows=rows, differences=differences)
