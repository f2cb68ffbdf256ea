"""A task of several sources on real servers: each in the order of its log, or the transactions of all in one order."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Self

import pymysql
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from producer import app
from schemas.errors import ConfigError
from schemas.schema_changes import ChangeOrigin
from schemas.settings import Settings, from_mapping
from schemas.settings.task_section import TaskSettings
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from spark_jobs.replicate.apply.plans import PlanStore
from spark_jobs.replicate.task import run_task
from tests.integration.test_ordered_stream import mapping_of, written
from tests.replicate.task_scene import COLUMNS, Died, catch_up, eventual, rows_of, task_of
from tests.support.producers import SIGNAL, Source, running
from tests.support.producing import RunningProducer
from tests.support.servers import database, unique_name
from tidemark.api.sending import produce

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")  # of mysql-replication


@pytest.fixture
def sources(kafka, fresh_database) -> Iterator[tuple[Source, Source]]:
    """Of two servers, of which both have microseconds in their logs."""
    made = [Source(server, fresh_database(server), kafka.bootstrap_servers) for server in map(database, ("mysql80", "mysql97"))]
    for source in made:
        source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in ("a", "b")))
        source.execute(f"INSERT INTO a VALUES {','.join(f'({number}, 1, NULL)' for number in range(100))}")
    yield made[0], made[1]
    for source in made:
        source.connection.close()


def settings_of(source: Source, registry: str, group: str) -> Settings:
    return from_mapping(mapping_of(source, registry, group=group))


def require_equal(target, *sources: Source) -> None:
    for source in sources:
        for table in ("a", "b"):
            assert rows_of(target, source.schema, table) == rows_of(source.server, source.schema, table), (source.name, table)


def test_sources_of_two_servers_are_applied_each_in_its_order(sources, registry):
    one, other = sources
    target, group = database("mariadb114"), unique_name("group")
    task = task_of(one, registry.url, target, other)
    with ExitStack() as stack:
        runs = [stack.enter_context(running(settings_of(source, registry.url, group))) for source in sources]
        with written(one, keys=30), written(other, keys=30):
            catch_up(task)
            time.sleep(0.5)
        for run, source in zip(runs, sources, strict=True):
            run.caught_up(source)
        catch_up(task)
    require_equal(target, one, other)


def test_two_sources_with_one_table_are_refused(sources, registry):
    one, other = sources
    with other.connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {one.schema}")
        cursor.execute(f"CREATE TABLE {one.schema}.a ({COLUMNS})")
    group = unique_name("group")
    theirs = from_mapping({**mapping_of(other, registry.url, group=group), "source": {**other.mapping()["source"], "tables": [r".*\.[ab]"]}})
    try:
        with running(settings_of(one, registry.url, group)) as run, running(theirs) as other_run:
            run.caught_up(one)
            other_run.caught_up(other)
            with pytest.raises(ConfigError, match=rf"has tables that another source of the task has, too: {one.schema}\.a"):
                catch_up(task_of(one, registry.url, database("mariadb114"), other))
    finally:
        other.execute(f"DROP DATABASE {one.schema}")


# ---- one order


@contextmanager
def alternating(*sources: Source, count: list[int] | None = None, pause_s: float = 0.002) -> Iterator[list[int]]:
    """Numbers, each committed at one of the sources, by chance, after the one before it; yields how many there are."""
    stop, count, dice = threading.Event(), count or [0], random.Random(7)
    for source in sources:
        source.execute("CREATE TABLE IF NOT EXISTS numbers (n INT PRIMARY KEY)")

    def write() -> None:
        connections = [source.server.connect(database=source.schema) for source in sources]
        while not stop.is_set():
            with dice.choice(connections).cursor() as cursor:
                cursor.execute("INSERT INTO numbers VALUES (%s)", (count[0],))
            count[0] += 1
            time.sleep(pause_s)
        for connection in connections:
            connection.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join(30)


def numbers_in_order(server, sources: tuple[Source, ...], begin: tuple[str, int]) -> list[int]:
    """The numbers in the order in which the target has committed them, by its own log."""
    stream: Any = BinLogStreamReader(
        connection_settings={"host": server.host, "port": server.port, "user": server.user, "password": server.password},
        server_id=71_235, log_file=begin[0], log_pos=begin[1], resume_stream=True,
        only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent], only_tables=["numbers"],
        only_schemas=[source.schema for source in sources],
    )  # fmt: skip
    try:
        return [next(iter(row["values"].values())) for event in stream for row in event.rows]
    finally:
        stream.close()


def have_all(server, sources: tuple[Source, ...], count: int) -> bool:
    try:
        return sum(len(rows_of(server, source.schema, "numbers")) for source in sources) == count
    except pymysql.err.ProgrammingError:  # the table is not there yet
        return False


def end_of_log(server) -> tuple[str, int]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        file, position, *_ = cursor.fetchone()
    return file, int(position)


class Mortal:
    """A task that dies after some of its statements at the target, each time others, until it may live."""

    def __init__(self, task: TaskSettings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deaths, self.failures = 0, list[BaseException]()
        self._task, self._dice, self._left, self._may_live = task, random.Random(11), 0, threading.Event()
        execute, execute_many = ApplyTarget.execute, ApplyTarget.execute_many
        monkeypatch.setattr(ApplyTarget, "execute", lambda *arguments: self._around(execute, *arguments))
        monkeypatch.setattr(ApplyTarget, "execute_many", lambda *arguments: self._around(execute_many, *arguments))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _around(self, run: Any, *arguments: Any) -> Any:
        self._left -= 1
        is_behind = self._left % 2
        if self._left <= 0 and not self._may_live.is_set() and not is_behind:
            raise Died
        result = run(*arguments)
        if self._left <= 0 and not self._may_live.is_set():
            raise Died
        return result

    def _run(self) -> None:
        while not self._stop.is_set():
            self._left = self._dice.randrange(10, 90)
            try:
                run_task(self._task, self._stop)
            except Died:
                self.deaths += 1
            except BaseException as error:  # noqa: BLE001 - raised by the test
                self.failures.append(error)
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def live(self) -> None:
        self._may_live.set()

    def until(self, done: Any, event: str, timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, f"not within {timeout_s} s: {event}"
            time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self._may_live.set()
        self._stop.set()
        self._thread.join(60)
        assert not self.failures, self.failures


def test_transactions_of_all_sources_are_applied_in_one_order_whatever_dies(sources, registry, monkeypatch):
    one, other = sources
    target, group = database("mariadb114"), unique_name("group")
    task = task_of(one, registry.url, target, other, order="global", group=group, apply={"driver_rows": 50, "compact": False})
    begin = end_of_log(target)
    with ExitStack() as stack:
        runs = [stack.enter_context(running(settings_of(source, registry.url, group))) for source in sources]
        with Mortal(task, monkeypatch) as mortal:
            with alternating(*sources) as count:
                time.sleep(10)
                mortal.until(lambda: mortal.deaths > 3, "it has died some times")
            for run, source in zip(runs, sources, strict=True):
                run.caught_up(source)
            mortal.live()

            mortal.until(lambda: have_all(target, sources, count[0]), "every number is there")
    numbers = numbers_in_order(target, sources, begin)
    assert sorted(numbers) == list(range(count[0])), "each once"
    assert numbers == sorted(numbers), "in their order"
    require_equal(target, one, other)


def test_workers_apply_each_transaction_of_all_sources_once_whatever_dies(sources, registry, monkeypatch):
    """In any order within a batch."""
    one, other = sources
    target, group = database("mariadb114"), unique_name("group")
    apply = {"workers": 3, "driver_rows": 5, "txn_rows": 7, "max_batch_rows": 100, "max_delay_ms": 300, "compact": False}
    task = eventual(task_of(one, registry.url, target, other, order="global", group=group, apply=apply))
    plans, begin_plan = list[int](), PlanStore.begin
    monkeypatch.setattr(PlanStore, "begin", lambda store, plan: plans.append(begin_plan(store, plan)) or plans[-1])
    begin = end_of_log(target)
    with ExitStack() as stack:
        runs = [stack.enter_context(running(settings_of(source, registry.url, group))) for source in sources]
        catch_up(task)  # loaded
        with Mortal(task, monkeypatch) as mortal:
            with alternating(*sources) as count:
                time.sleep(6)
                mortal.until(lambda: mortal.deaths > 3, "it has died some times")
            for run, source in zip(runs, sources, strict=True):
                run.caught_up(source)
            mortal.live()
            mortal.until(lambda: have_all(target, sources, count[0]), "every number is there")
    assert len(plans) > 3
    assert sorted(numbers_in_order(target, sources, begin)) == list(range(count[0])), "each once"
    require_equal(target, one, other)


def until_loaded(server, *sources: Source) -> None:
    """Numbers that are loaded would have the order of their keys."""
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, "not loaded"
        with suppress(pymysql.err.MySQLError, AssertionError):
            require_equal(server, *sources)
            return
        time.sleep(0.2)


def follow(task: TaskSettings, stop: threading.Event, failures: list[BaseException]) -> None:
    try:
        run_task(task, stop)
    except BaseException as error:  # noqa: BLE001 - raised by the test
        failures.append(error)


def test_the_clock_of_the_machine_of_a_producer_is_in_no_time_of_the_order(sources, registry, monkeypatch):
    """It is an hour ahead. Descriptions of tables have its time, and the transactions of the log are behind them."""
    hour_us, target, group = 3_600_000_000, database("mariadb114"), unique_name("group")
    monkeypatch.setattr(app, "ChangeOrigin", lambda at, us, *more, **named: ChangeOrigin(at, us + hour_us, *more, **named))
    task = task_of(sources[0], registry.url, target, sources[1], order="global", group=group)
    stop, failures = threading.Event(), list[BaseException]()
    follower = threading.Thread(target=follow, args=(task, stop, failures))
    with ExitStack() as stack:
        stack.callback(follower.join, 60)
        stack.callback(stop.set)
        stack.enter_context(running(settings_of(sources[0], registry.url, group)))
        follower.start()
        until_loaded(target, sources[0])
        stack.enter_context(running(settings_of(sources[1], registry.url, group)))
        until_loaded(target, *sources)
    assert not failures, failures
    require_equal(target, *sources)


def test_sources_join_return_and_leave_under_load(sources, registry, kafka, fresh_database):
    """The third one is started when the task has been running; the second one stops and comes back; the third one is closed."""
    server, group = database("mysql80"), unique_name("group")
    third = Source(server, fresh_database(server), kafka.bootstrap_servers)
    third.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in ("a", "b")), "INSERT INTO a VALUES (1, 2, '3')")
    target, everybody = database("mariadb114"), (*sources, third)
    task = task_of(everybody[0], registry.url, target, *everybody[1:], order="global", group=group, apply={"compact": False})
    begin, stop, failures = end_of_log(target), threading.Event(), list[BaseException]()
    follower = threading.Thread(target=follow, args=(task, stop, failures))
    one, other, late = (settings_of(source, registry.url, group) for source in everybody)
    leaving = RunningProducer(late)
    with ExitStack() as stack:
        stack.callback(follower.join, 60)
        stack.callback(stop.set)
        stack.enter_context(RunningProducer(one))
        with ExitStack() as second:
            second.enter_context(RunningProducer(other))
            follower.start()
            until_loaded(target, *sources)
            with alternating(*sources) as count:
                time.sleep(4)
                stack.enter_context(leaving)
                leaving.wait_until("the third one has joined", lambda start: start.reader is not None)
            until_loaded(target, third)
            with alternating(*everybody, count=count):
                time.sleep(2)
                second.close()
                time.sleep(1)
        with RunningProducer(other):
            produce(late, unique_name("close"), "close-source", "{}")
            leaving.thread.join(60)
            assert not failures, failures
            assert not leaving.thread.is_alive(), "the third one is not closed"
            leaving.check()
            with alternating(*sources, count=count):
                time.sleep(2)
            deadline = time.monotonic() + 60
            while not have_all(target, everybody, count[0]):
                assert not failures, failures
                assert time.monotonic() < deadline, "not every number is there"
                time.sleep(0.2)
    assert not failures, failures
    numbers = numbers_in_order(target, everybody, begin)
    assert sorted(numbers) == list(range(count[0])), "each once"
    assert numbers == sorted(numbers), "in their order"
    require_equal(target, *everybody)
    third.connection.close()
