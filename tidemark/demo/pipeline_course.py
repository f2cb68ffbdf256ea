"""The course of `tidemark demo --pipeline`: a whole database and sixteen shards, by routes and transforms, into several sinks.

::

    1. servers start; shop and shards are filled; merge job and producer start
    2. two write loads run, one INSERT into the signal table asks for a snapshot of all tables
    3. meanwhile one shard gets a column, one more table is captured by `tidemark reload`, and the merge job is killed (SIGKILL)
    4. the loads stop; all must arrive in every sink
    5. each sink is compared with what the plan makes of the source's rows
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from devservers import Database
from mysqlio.server_facts import current_position
from schemas import signals
from schemas.position import file_number
from tidemark.api.observe import Observer
from tidemark.demo import order_shards, pipeline_sinks, shop, stream_fold
from tidemark.demo.order_shards import ShardLoad
from tidemark.demo.pipeline_sinks import CAPTURED
from tidemark.demo.progress_display import Display
from tidemark.demo.stack import DemoError, Stack
from tidemark.demo.workload import Workload
from tidemark.status.status_tree import Status

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from schemas.settings import Settings
    from tidemark.verify import VerifyReport

_TICK_S: Final = 0.5
_PATIENCE_S: Final = 900.0
_SIGNAL_ID: Final = "demo-snapshot"


class PipelineCourse:
    """One run of the scenario."""

    def __init__(self, stack: Stack, display: Display, *, rows: int, load_seconds: float, rate: float, seed: int) -> None:
        self._stack = stack
        self._display = display
        self._rows = rows
        self._load_s = load_seconds
        self._rate = rate
        self._seed = seed
        self.changes = 0
        self.settings: Settings

    def run(self) -> dict[str, VerifyReport]:
        """Return what verify found of each sink, by its name."""
        say = self._display.say
        (database,) = self._stack.start_servers()
        filled = self._stack.in_background(lambda: self._fill(database))
        self.settings = self._stack.configure_pipeline(database)
        say("servers are up; starting `tidemark merge` into " + ", ".join(sink.name for sink in self.settings.sinks))
        self._stack.start_child("merge")
        sizes = filled()
        say("shop and shards are filled; starting `tidemark run`")
        self._stack.start_child("run")
        with database.connect() as connection, Observer(self.settings) as observer:
            self._wait(observer, "the producer starts", lambda found: all(one.log is not None for one in found))
            self._under_load(database, connection, observer, sizes)
            self._arrive(connection, observer)
        say("everything has arrived; comparing each sink with what the plan makes of the source")
        from tidemark.verify import verify

        mirrors = [sink.name for sink in self.settings.sinks if sink.name != pipeline_sinks.STREAM]
        return {name: verify(self.settings.of_sink(name)) for name in mirrors}

    def _fill(self, database: Database) -> dict[str, int]:
        with database.connect() as connection:
            shop.create_schema(connection, database.flavour)
            sizes = shop.load_rows(connection, self._rows * 2 // 3, seed=self._seed)
            order_shards.create(connection, self._rows // 3, self._seed)
        return sizes

    def _under_load(self, database: Database, connection: Connection, observer: Observer, sizes: dict[str, int]) -> None:
        say, began = self._display.say, time.monotonic()
        whole = Workload(database.connect, seed=self._seed, rate=self._rate / 2, sizes=sizes)
        shards = ShardLoad(database.connect, self._seed, self._rate / 2)
        whole.start()
        shards.start()
        tables = [rf"{shop.DATABASE}[.].*", rf"{order_shards.DATABASE}[.]orders.*"]
        say(f"loads run; snapshot asked for: {_request_snapshot(connection, _SIGNAL_ID, tables)}")
        self._sleep_until(began + self._load_s * 0.25)
        say(order_shards.alter_one(connection))
        self._sleep_until(began + self._load_s * 0.45)
        self.settings = self._stack.capture([*CAPTURED, rf"sales\.{order_shards.LATER}"])
        say(self._command("reload").strip().replace("\n", "; "))
        _request_snapshot(connection, f"{_SIGNAL_ID}-2", [rf"{order_shards.DATABASE}[.]{order_shards.LATER}"])
        self._sleep_until(began + self._load_s * 0.65)
        self._stack.kill_child("merge")
        say("`tidemark merge` killed (SIGKILL); starting it again")
        self._stack.start_child("merge")
        self._wait(
            observer, "snapshot under load", lambda found: time.monotonic() > began + self._load_s and all(map(_is_read, found))
        )
        counts = whole.stop()
        shards.stop()
        self.changes = counts.changes + shards.changes
        say(f"loads stopped: {self.changes:,} changes, {shards.moves:,} rows moved between shards")

    def _arrive(self, connection: Connection, observer: Observer) -> None:
        end = current_position(connection)
        wanted = (file_number(end.file), end.pos)

        def arrived(status: Status) -> bool:
            applied = status.applied
            return (
                applied is not None
                and (applied.file, applied.offset) >= wanted
                and all(table.consistent_at is not None for table in status.tables)
                and not status.snapshot_running
            )

        self._wait(observer, "waiting for the rest", lambda found: all(map(arrived, found)))

    def _wait(self, observer: Observer, phase: str, until: Callable[[Sequence[Status]], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            self._stack.check()
            found = observer.read_each()
            for status in found.values():
                for table in status.tables:
                    if table.snapshot == "failed":
                        raise DemoError(f"the snapshot of {table.table} failed: {table.error}")
            if until(list(found.values())):
                return
            if time.monotonic() > deadline:
                raise DemoError(f"{phase}: not done after {_PATIENCE_S:g} s; see the logs")
            time.sleep(_TICK_S)

    def _sleep_until(self, moment: float) -> None:
        while time.monotonic() < moment:
            self._stack.check()
            time.sleep(_TICK_S)

    def _command(self, verb: str) -> str:
        command = [sys.executable, "-m", "tidemark", verb, "--config", str(self._stack.config_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=self._stack.environment)
        if done.returncode != 0:
            raise DemoError(f"`tidemark {verb}` ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout


def lines(settings: Settings, reports: dict[str, VerifyReport]) -> tuple[list[str], bool]:
    """Return the closing line of each sink, and whether all are equal to the source."""
    found, is_equal = [], all(report.ok for report in reports.values())
    for name, report in reports.items():
        targets = {table.table.rpartition("→ ")[2] for table in report.tables}
        verdict = "source equals sink" if report.ok else "DIFFERS"
        found.append(f"demo: {name}: {verdict}: {len(targets)} targets, {report.rows} rows")
    topics = pipeline_sinks.TOPICS
    rows, differing = stream_fold.differences(settings, pipeline_sinks.MIRROR, topics)
    verdict = "source equals sink" if not differing and is_equal else f"DIFFERS in {differing} rows"
    of = f"folded, each identity at its position as in {pipeline_sinks.MIRROR}"
    found.append(f"demo: {pipeline_sinks.STREAM}: {verdict}: {len(topics)} targets, {rows} rows ({of})")
    return found, is_equal and not differing


def _request_snapshot(connection: Connection, name: str, tables: Sequence[str]) -> str:
    data = json.dumps({"data-collections": list(tables), "type": "INCREMENTAL"})
    statement = f"INSERT INTO {shop.DATABASE}.{shop.SIGNAL_TABLE} VALUES (%s, %s, %s)"
    with connection.cursor() as cursor:
        cursor.execute(statement, (name, signals.EXECUTE_SNAPSHOT, data))
    connection.commit()
    return data


def _is_read(status: Status) -> bool:
    states = {table.table: table.snapshot for table in status.tables}
    wanted = [f"{shop.DATABASE}.{name}" for name in shop.TABLES]
    wanted += [f"{order_shards.DATABASE}.{name}" for name in (*order_shards.SHARDS, order_shards.LATER)]
    return all(states.get(name) == "done" for name in wanted)
