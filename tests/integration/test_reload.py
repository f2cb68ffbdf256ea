"""Tables that come in and leave while the producer runs: topics and source compared row by row, under load and over kills."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from producer.app import Producer, run
from producer.recapture import Recapture
from producer.reloads import Reloads
from schemas.errors import ConfigError
from schemas.settings import from_mapping
from tests.support.mirror import Mirror, read_mirrors
from tests.support.producers import SIGNAL, Source
from tests.support.servers import database
from tidemark import cli
from tidemark.api.observe import Observer
from tidemark.commands.status import as_text

PATIENCE_S = 120
ROWS = 400
TABLES = ("a", "b", "c")


class Load(threading.Thread):
    """Changes rows of the tables at random until it is stopped."""

    def __init__(self, source: Source, tables: tuple[str, ...] = TABLES, pause_s: float = 0.004) -> None:
        super().__init__(daemon=True)
        self._source, self._tables, self._pause_s = source, tables, pause_s
        self._random, self._stopped = random.Random(7), threading.Event()
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()
        assert self.error is None

    def run(self) -> None:
        draw = self._random.randrange
        with self._source.server.connect(database=self._source.schema) as connection, connection.cursor() as cursor:
            while not self._stopped.wait(self._pause_s):
                key, table = draw(ROWS + 100), self._tables[draw(len(self._tables))]
                statements = (
                    f"UPDATE {table} SET v = {draw(10**6)} WHERE id BETWEEN {key} AND {key + 3}",
                    f"DELETE FROM {table} WHERE id = {key}",
                    f"REPLACE INTO {table} VALUES ({key}, {draw(10**6)})",
                )
                try:
                    cursor.execute(statements[draw(3)])
                except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
                    self.error = error
                    return


class Site:
    """A source, the file of a producer's settings, and what its topics leave."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.source = source
        self.path = folder / f"{source.name}.yaml"
        self.tables: tuple[str, ...] = ()

    def create(self, *tables: str) -> None:
        for table in tables:
            self.source.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT NOT NULL)")
            rows = ",".join(f"({key}, 0)" for key in range(ROWS))
            self.source.execute(f"INSERT INTO {table} VALUES {rows}")

    def write(self, *tables: str, **more: Any) -> None:
        """Write the file: these tables are captured."""
        patterns = [rf"{self.source.schema}\.{table}" for table in tables]
        snapshot = {"mode": "initial", "chunk_rows": 60, "readers": 2}
        self.path.write_text(json.dumps(self.source.mapping(tables=patterns) | {"snapshot": snapshot} | more))
        self.tables = tables

    def load(self) -> Any:
        return from_mapping(json.loads(self.path.read_text()))

    def rows(self, table: str) -> list[tuple[int, int]]:
        with self.source.server.connect(database=self.source.schema) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT id, v FROM {table} ORDER BY id")
            return list(cursor.fetchall())

    def mirror(self, table: str) -> Mirror:
        name = (self.source.schema, table)
        return read_mirrors(self.source.bootstrap_servers, self.source.name, [name])[name]

    def assert_equal(self, *tables: str) -> None:
        """Topics, merged by the rule, have the source's rows; everything that was concluded from snapshots is carried out."""
        for table in tables:
            deadline = time.monotonic() + 30
            while (mirror := self.mirror(table)).waits and time.monotonic() < deadline:
                time.sleep(0.3)
            found = sorted((row["id"], row["v"]) for row in mirror.rows)
            assert found == self.rows(table), table
            assert mirror.progress.state.consistent_at, table

    def end(self) -> tuple[str, int]:
        with self.source.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOG STATUS" if self.source.server.name == "mysql97" else "SHOW MASTER STATUS")
            return tuple(cursor.fetchone()[:2])


@pytest.fixture
def site(request: pytest.FixtureRequest, kafka: Any, fresh_database: Any, tmp_path: Path) -> Iterator[Site]:
    server = database(request.param)
    source = Source(server, fresh_database(server), kafka.bootstrap_servers)
    source.execute(SIGNAL)
    yield Site(source, tmp_path)
    source.connection.close()


class Run:
    """A producer of a file in a thread, with its reloads; `starts` are its starts."""

    def __init__(self, site: Site) -> None:
        self.site, self.starts, self._stop = site, list[Producer](), threading.Event()
        self.reloads = Reloads(site.load(), site.load)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self.reloads.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        self.reloads.__exit__(None, None, None)
        assert self.error is None, self.error

    def _run(self) -> None:
        try:
            run(self.reloads.settings, self._stop, self.starts.append, reloads=self.reloads)
        except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
            self.error = error

    def until(self, what: str, condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (self.starts and condition()):
            assert self.error is None, self.error
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
            time.sleep(0.05)

    def captures(self, *tables: str) -> None:
        """Write the file, reload it, and wait until all that was asked for is read."""
        self.site.write(*tables)
        self.reloads.ask()
        wanted = self.site.load().source.tables
        self.until(f"{tables} are captured", lambda: self.reloads.settings.source.tables == wanted)
        self.are_read()

    def are_read(self) -> None:
        def done() -> bool:
            tasks = self.starts[-1].coordinator.progress()
            return bool(tasks) and all(one.state in ("done", "cancelled") for one in tasks)

        self.until("all tables are read", done)

    def caught_up(self) -> None:
        end = self.site.end()

        def reached() -> bool:
            committed = self.starts[-1].reader.committed
            return (committed.file, committed.pos) >= end

        self.until("the log is read", reached)

    def read(self) -> Counter[str]:
        """How often each table was read whole."""
        return Counter(one.table.rpartition(".")[2] for one in self.starts[-1].coordinator.progress() if one.state == "done")


SERVERS = ["mysql80", "mariadb114", *(pytest.param(one, marks=pytest.mark.slow) for one in ("mysql57", "mysql97"))]


@pytest.mark.parametrize("site", SERVERS, indirect=True)
def test_tables_come_in_leave_and_return_and_no_other_is_disturbed(site: Site) -> None:
    site.create(*TABLES)
    site.write("a")
    with Run(site) as producer:
        producer.are_read()
        with Load(site.source):
            producer.captures("a", "b")
            producer.captures("b", "c")
            site.source.execute("DELETE FROM a WHERE id % 7 = 0", "INSERT INTO a VALUES (9999, 1)")
            producer.caught_up()
            time.sleep(1.5)
            left = site.mirror("a")
            time.sleep(1.5)
            assert len(site.mirror("a").markers) == len(left.markers), "a released table gets no heartbeats"
            with Observer(site.load()) as observer:
                status = observer.read()
            assert [one.table.rpartition(".")[2] for one in status.tables if one.released] == ["a"]
            assert "a: it is not captured any more" in as_text(status, status)
            producer.captures("a", "b", "c")
        producer.caught_up()
        assert producer.read() == {"a": 2, "b": 1, "c": 1}
        assert len(producer.starts) == 1, "it restarted"
    site.assert_equal(*TABLES)
    with Observer(site.load()) as observer:
        assert not [one for one in observer.read().tables if one.released]


@pytest.mark.parametrize("site", SERVERS, indirect=True)
def test_a_table_made_while_it_runs_is_consistent_from_its_creation_on_without_being_read(site: Site) -> None:
    """Made in every way that logs its rows, before and after the reload that captures its name."""
    site.create("a")
    site.write("a", "n.*")
    with Run(site) as producer:
        producer.are_read()
        site.source.execute(
            "CREATE TABLE n_plain (id INT PRIMARY KEY, v INT NOT NULL)",
            "CREATE TABLE n_like LIKE n_plain",
            "CREATE TABLE IF NOT EXISTS n_if (id INT PRIMARY KEY, v INT NOT NULL)",
            "CREATE TABLE m_early (id INT PRIMARY KEY, v INT NOT NULL)",
            *(f"INSERT INTO {table} VALUES (1, 1), (2, 2)" for table in ("n_plain", "n_like", "n_if", "m_early")),
        )
        producer.captures("a", "n.*", "m.*")
        site.source.execute(
            "CREATE TABLE m_late (id INT PRIMARY KEY, v INT NOT NULL)",
            "CREATE TABLE m_empty (id INT PRIMARY KEY, v INT NOT NULL)",
            "INSERT INTO m_late VALUES (3, 3)",
            "DELETE FROM n_plain WHERE id = 1",
        )
        producer.caught_up()
        assert producer.read() == {"a": 1, "m_early": 1}, "the others were read"
    site.assert_equal("a", "n_plain", "n_like", "n_if", "m_early", "m_late", "m_empty")


@pytest.mark.parametrize("site", ["mysql80"], indirect=True)
def test_a_table_that_left_and_returns_over_restarts_is_read_again(site: Site) -> None:
    """Also where the mode reads no tables: it would have a gap. Without a reload: the file is another at each start."""
    site.create("a", "b")
    site.write("a", "b")
    with Run(site) as producer:
        producer.are_read()
    for tables in (("b",), ("a", "b")):
        site.write(*tables, snapshot={"mode": "no_data", "readers": 1})
        with Run(site) as producer:
            site.source.execute("DELETE FROM a WHERE id % 3 = 0", "UPDATE b SET v = v + 1 WHERE id < 50")
            producer.caught_up()
            if "a" in tables:
                producer.are_read()
                producer.caught_up()
                assert producer.read() == {"a": 2, "b": 1}
    site.assert_equal("a", "b")


@pytest.mark.parametrize("site", ["mysql80"], indirect=True)
def test_a_table_that_was_dropped_while_it_was_released_leaves_no_rows(site: Site) -> None:
    """By a reload (a), and by a restart (b)."""
    site.create(*TABLES)
    site.write(*TABLES)
    with Run(site) as producer:
        producer.are_read()
        producer.captures("c")
        site.source.execute("DROP TABLE a", "DROP TABLE b")
        producer.caught_up()
        producer.captures("a", "c")
        producer.caught_up()
    site.write(*TABLES)
    with Run(site) as producer:
        producer.until("the first commit", lambda: producer.starts[-1].reader.progress.checkpoints > 0)
        assert producer.read() == {"a": 1, "b": 1, "c": 1}
    assert not site.mirror("a").rows
    assert not site.mirror("b").rows
    site.assert_equal("c")


@pytest.mark.parametrize("site", ["mysql80"], indirect=True)
def test_a_wrong_file_changes_nothing_and_says_why(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.create("a", "b")
    site.source.execute("CREATE TABLE by_hand (id INT PRIMARY KEY)")
    admin = AdminClient({"bootstrap.servers": site.source.bootstrap_servers})
    topic = f"{site.source.name}.{site.source.schema}.by_hand"
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    site.write("a", on_table_error="stop")
    reload = ["reload", "--config", str(site.path), "--wait", "60"]
    with Run(site) as producer:
        producer.are_read()
        running, refused = site.path.read_text(), []
        for tables, more in (
            (("a", "("), {}),
            (("a", "b"), {"name": "another"}),
            (("a", "b"), {"kafka": {"bootstrap_servers": 7}}),
        ):
            site.write(*tables, **more)
            with pytest.raises(ConfigError) as error:
                producer.reloads._apply(producer.reloads._read())
            refused.append(str(error.value))
        assert "source.tables" in refused[0]
        assert "name: the file is of 'another'" in refused[1]
        assert "kafka.bootstrap_servers" in refused[2]
        site.write("a", "by_hand", on_table_error="stop")  # a good file: only the producer finds what is wrong
        assert cli.main(reload) == 1
        answer = capsys.readouterr().out  # beside the producer's log
        assert f"refused, nothing is changed: topic {topic} has 1 partitions, 2 were expected" in answer
        assert producer.reloads.settings.source.tables == from_mapping(json.loads(running)).source.tables
        site.path.write_text(running)
        assert cli.main(reload) == 0
        assert "no table comes in, and none leaves\n" in capsys.readouterr().out
        site.write("a", "b", on_table_error="stop")
        assert cli.main(reload) == 0
        assert f"{site.source.schema}.b: captured from now on\n" in capsys.readouterr().out
        producer.are_read()
        assert len(producer.starts) == 1
    site.assert_equal("a", "b")


def test_a_producer_that_ends_when_its_tables_are_read_takes_no_others() -> None:
    made = from_mapping({"name": "n", "source": {"tables": ["a"]}, "snapshot": {"mode": "initial_only"}})
    unused: Any = None
    with pytest.raises(ConfigError, match=r"snapshot\.mode: initial_only reads the tables of its start and ends"):
        Recapture(made, unused, unused, unused).change(made.source, unused)


@contextmanager
def process(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tidemark", "run", "--config", str(site.path), "--log-format", "json"]
    with (site.path.parent / "run.log").open("ab") as log, subprocess.Popen(command, stderr=log) as child:
        try:
            yield child
        finally:
            child.kill()


def committed(site: Site) -> tuple[str, int]:
    with Observer(site.load()) as observer:
        log = observer.read().log
    return ("", 0) if log is None else (log.file, log.pos)


def wait(what: str, condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.2)


def wait_for_log(site: Site) -> None:
    end = site.end()
    wait(f"the log is read to {end}", lambda: committed(site) >= end)


@pytest.mark.parametrize("site", ["mysql80", pytest.param("mariadb114", marks=pytest.mark.slow)], indirect=True)
def test_killed_before_and_after_a_reload_it_loses_nothing(site: Site) -> None:
    """SIGHUP to the process; kill -9 at once, in the middle of the change, and while a table that came in is being read."""
    site.create(*TABLES)
    choices = itertools.cycle([("b", "c"), ("a", "b"), ("a", "b", "c")])
    site.write("a", "b")
    with Load(site.source, pause_s=0.02):
        for delay_s in (0.0, 0.03, 0.4):
            with process(site) as child:
                wait_for_log(site)
                site.write(*next(choices))
                child.send_signal(signal.SIGHUP)
                time.sleep(delay_s)
                child.kill()
    with process(site) as child:
        wait_for_log(site)
        with Observer(site.load()) as observer:
            wait("all is read", lambda: not observer.read().snapshot_running)
        wait_for_log(site)
        wait("a heartbeat carries the sweeps out", lambda: not any(site.mirror(table).waits for table in TABLES))
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    assert set(site.tables) == set(TABLES)
    site.assert_equal(*TABLES)

