"""The demo's course, from nothing to `source equals sink`.

::

    1. database, broker and registry start side by side; the shop is filled as soon as the database is up
    2. the merge job starts beside that, the producer after it: it begins at the end of the log
    3. the write load starts, then one INSERT into the signal table asks for a snapshot of all tables
    4. in the middle, ALTER TABLE adds a column with a default to a populated table
    5. when every table has been read, the load stops; all must arrive in the lake
    6. source and lake are compared row by row
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from devservers import Database
from mysqlio.server_facts import current_position
from schemas import signals
from schemas.position import file_number
from tidemark.api.observe import Observer
from tidemark.demo import shop
from tidemark.demo.pipeline_course import PipelineCourse, lines
from tidemark.demo.progress_display import Display, LagMeter, LogEnd, ProgressView
from tidemark.demo.sources_course import SERVERS_OF_SOURCES, SourcesCourse
from tidemark.demo.stack import POSTGRES, DemoError, Stack
from tidemark.demo.workload import Workload
from tidemark.status.status_tree import Status

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from schemas.position import Position
    from schemas.settings import Settings
    from tidemark.verify import VerifyReport

_TICK_S: Final = 0.5
# Far more than is needed: what has ended or failed is noticed at once, and the machine may be a busy one.
_PRODUCER_START_S: Final = 180.0
_SNAPSHOT_S: Final = 900.0
_ARRIVAL_S: Final = 900.0
_ALTER_AT: Final = 0.4
_SIGNAL_ID: Final = "demo-snapshot"
QUERY: Final = """SELECT status, count(*) AS orders, sum(total) AS total
FROM orders GROUP BY status ORDER BY status"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """What is to be played."""

    database: str = "mysql"
    rows: int = 210_000
    load_seconds: float = 25.0
    rate: float = 100.0
    seed: int = 1
    folder: Path = Path("demo-data")


def play(plan: DemoPlan) -> int:
    """Play it; 0 when source equals sink, 1 otherwise. Every process and server is gone afterwards."""
    with _terminated_like_interrupted(), Display() as display:
        with Stack([plan.database], plan.folder, display.say) as stack:
            course = _Course(plan, stack, display)
            report = course.run()
            display.stop()
            print(report.to_text())
        if not report.ok:
            print(f"logs and lake are in {plan.folder}")
            return 1
        _show_result(course.settings)
        print(
            f"demo: source equals sink: {len(report.tables)} tables, {report.rows} rows, "
            f"{course.changes} changes, {display.elapsed_s:.0f} s",
            flush=True,
        )
    return 0


def play_pipeline(plan: DemoPlan) -> int:
    """Play the demo of pipelines (`pipeline_course`); 0 when every sink equals the source, 1 otherwise."""
    with _terminated_like_interrupted(), Display() as display:
        with Stack([plan.database], plan.folder, display.say, more=("spark", POSTGRES)) as stack:
            course = PipelineCourse(
                stack, display, rows=plan.rows, load_seconds=plan.load_seconds, rate=plan.rate, seed=plan.seed
            )
            reports = course.run()
            display.stop()
            for name, report in reports.items():
                if not report.ok:
                    print(f"{name}:\n{report.to_text()}")
            closing, is_equal = lines(course.settings, reports)
        print("\n".join(closing))
        print(f"demo: {course.changes} changes, {display.elapsed_s:.0f} s; sinks and logs are in {plan.folder}", flush=True)
    return 0 if is_equal else 1


def play_sources(plan: DemoPlan) -> int:
    """Play the demo of several sources (`sources_course`); 0 when the target equals them, 1 otherwise."""
    with _terminated_like_interrupted(), Display() as display:
        with Stack(SERVERS_OF_SOURCES, plan.folder, display.say, more=()) as stack:
            course = SourcesCourse(
                stack, display, rows=plan.rows, load_seconds=plan.load_seconds, rate=plan.rate, seed=plan.seed
            )
            found = course.run()
        if found.differences:
            print("\n".join([*found.differences, f"the target DIFFERS; logs are in {plan.folder}"]))
            return 1
        print(
            f"sources: {found.sources} sources, {found.transactions} transactions in commit order, {found.rows} rows, "
            f"target equals sources, {display.elapsed_s:.0f} s",
            flush=True,
        )
    return 0


class _Course:
    """One run of the scenario."""

    def __init__(self, plan: DemoPlan, stack: Stack, display: Display) -> None:
        self._plan = plan
        self._stack = stack
        self._display = display
        self._log_lag = LagMeter()
        self._sink_lag = LagMeter()
        self._load: Workload
        self.changes = 0
        self.settings: Settings

    def run(self) -> VerifyReport:
        """Return steps 1 to 6; what verify found."""
        say = self._display.say
        (database,) = self._stack.start_servers()
        say(f"{database.name} is up on port {database.port}; filling the shop")
        filled = self._stack.in_background(lambda: self._fill(database))
        self.settings = self._stack.configure(database)
        say("Kafka and the schema registry are up; starting `tidemark merge`")
        self._stack.start_child("merge")
        sizes = filled()
        say(f"{sum(sizes.values()):,} rows in {len(sizes)} tables; starting `tidemark run`")
        self._stack.start_child("run")
        self._load = Workload(database.connect, seed=self._plan.seed, rate=self._plan.rate, sizes=sizes)
        with database.connect() as connection, Observer(self.settings) as observer:
            self._watch(
                connection, observer, "the producer starts", _PRODUCER_START_S, lambda s: s.log is not None
            )
            self._snapshot_under_load(connection, observer)
            self._arrive(connection, observer)
        say("everything has arrived; comparing source and lake row by row")
        from tidemark.verify import verify

        return verify(self.settings)

    def _fill(self, database: Database) -> dict[str, int]:
        with database.connect() as connection:
            shop.create_schema(connection, database.flavour)
            return shop.load_rows(connection, self._plan.rows, seed=self._plan.seed)

    def _snapshot_under_load(self, connection: Connection, observer: Observer) -> None:
        say = self._display.say
        began = self._display.elapsed_s
        self._load.start()
        say(f"write load: about {self._plan.rate:g} transactions a second")
        statement = _request_snapshot(connection)
        say(f"snapshot asked for: {statement}")

        def altered(_: Status) -> bool:
            return self._display.elapsed_s > began + self._plan.load_seconds * _ALTER_AT

        self._watch(connection, observer, "snapshot under load", _SNAPSHOT_S, altered)
        say(shop.add_column(connection))
        self._load.column_added.set()

        def read(status: Status) -> bool:
            long_enough = self._display.elapsed_s > began + self._plan.load_seconds
            return long_enough and _is_read(status)

        self._watch(connection, observer, "snapshot under load", _SNAPSHOT_S, read)
        counts = self._load.stop()
        self.changes = counts.changes
        say(
            f"load stopped: {counts.transactions:,} transactions, {counts.inserted:,} rows inserted, "
            f"{counts.updated:,} updated, {counts.deleted:,} deleted, {counts.key_changes:,} keys changed, "
            f"{counts.rolled_back:,} transactions rolled back"
        )

    def _arrive(self, connection: Connection, observer: Observer) -> None:
        """Wait until Kafka and the lake hold all that the log holds now."""
        end = _log_end(connection)

        def arrived(status: Status) -> bool:
            return (
                _log_end_of(status.applied) >= end
                and all(table.consistent_at is not None for table in status.tables)
                and not status.snapshot_running
            )

        self._watch(connection, observer, "waiting for the rest", _ARRIVAL_S, arrived)

    def _watch(
        self,
        connection: Connection,
        observer: Observer,
        phase: str,
        seconds: float,
        until: Callable[[Status], bool],
    ) -> None:
        """Show the progress until `until`; `DemoError` when that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            self._stack.check()
            status = observer.read()
            now = time.monotonic()
            end = _log_end(connection)
            self._log_lag.sample(now, end)
            self._sink_lag.sample(now, end)
            self._display.show(
                ProgressView(
                    elapsed_s=self._display.elapsed_s,
                    phase=phase,
                    status=status,
                    load=self._load.counts(),
                    log_lag_s=self._log_lag.lag_s(now, _log_end_of(status.log.position) if status.log else None),
                    sink_lag_s=self._sink_lag.lag_s(now, _log_end_of(status.applied) if status.applied else None),
                )
            )
            _refuse_failed(status)
            if until(status):
                return
            if now > deadline:
                raise DemoError(f"{phase}: not done after {seconds:g} s; see the logs in {self._plan.folder}")
            time.sleep(_TICK_S)


def _request_snapshot(connection: Connection) -> str:
    """INSERT the signal; the statement as one would type it."""
    data = json.dumps({"data-collections": [f"{shop.DATABASE}[.].*"], "type": "INCREMENTAL"})
    table = f"{shop.DATABASE}.{shop.SIGNAL_TABLE}"
    statement = f"INSERT INTO {table} VALUES ('{_SIGNAL_ID}', '{signals.EXECUTE_SNAPSHOT}', '{data}')"
    with connection.cursor() as cursor:
        cursor.execute(statement)
    connection.commit()
    return statement


def _is_read(status: Status) -> bool:
    states = {table.table.partition(".")[2]: table.snapshot for table in status.tables}
    return all(states.get(table) == "done" for table in shop.TABLES)


def _refuse_failed(status: Status) -> None:
    for table in status.tables:
        if table.snapshot == "failed":
            raise DemoError(f"the snapshot of {table.table} failed: {table.error}")


def _log_end(connection: Connection) -> LogEnd:
    """Return where the source's log ends now."""
    end = current_position(connection)
    return file_number(end.file), end.pos


def _log_end_of(position: Position | None) -> LogEnd:
    return (0, 0) if position is None else (position.file, position.offset)


def _show_result(settings: Settings) -> None:
    """One query over a table of the lake, with its output, and how to ask more."""
    from deltalake import DeltaTable, QueryBuilder
    from rich.console import Console
    from rich.table import Table

    path = settings.sink.table_path(shop.DATABASE, "orders")
    reader = QueryBuilder().register("orders", DeltaTable(path)).execute(QUERY)
    batches = [batch for batch in reader]  # noqa: C416 - the reader is no iterable of a known kind
    print(f"\nThe lake is in {settings.sink.path}. A query over a table of it, by any Delta reader:\n")
    print("\n".join(f"    {line}" for line in QUERY.splitlines()) + "\n")
    rows = [
        row
        for batch in batches
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    table = Table("status", "orders", "total", box=None)
    for row in rows:
        table.add_row(*(str(value) for value in row))
    Console().print(table)
    print(
        "\nYour own, in .venv/bin/python:\n\n"
        "    from deltalake import DeltaTable, QueryBuilder\n"
        f'    orders = DeltaTable("{path}")\n'
        '    print(QueryBuilder().register("orders", orders).execute("SELECT ...").read_all())\n'
    )


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does: everything is cleaned up on the way out."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # the clean-up is not to be interrupted
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
