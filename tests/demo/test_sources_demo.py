"""The demo of several sources, and that it finds a transaction that is missing, and each difference of rows."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devservers import Database
from mysqlio.server_access import ServerAccess
from schemas.settings.task_section import TaskTarget
from spark_jobs.replicate.apply.apply_target import ApplyTarget, SourceState
from tests.support.servers import database as server_of
from tests.support.servers import unique_name
from tidemark.demo import commit_journal, row_comparison, shop
from tidemark.demo.commit_journal import JournalWatcher
from tidemark.demo.stack import TASK, DemoError
from tidemark.demo.workload import Workload

ROOT = Path(__file__).parents[2]
LAST_LINE = r"sources: 3 sources, (\d+) transactions in commit order, (\d+) rows, target equals sources, (\d+) s"


def run(server: Database, *statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


# ---- the order of the journal


@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_transactions_of_the_load_take_numbers_in_commit_order(name: str, fresh_database: Callable[[Database], str]) -> None:
    server = server_of(name)
    schema = fresh_database(server)
    with server.connect() as connection, server.connect() as viewer:
        shop.create_schema(connection, server.flavour, schema)
        commit_journal.create(connection, schema)
        sizes = shop.load_rows(connection, 2000, database=schema)
        load = Workload(server.connect, rate=400, sizes=sizes, database=schema, at_commit=commit_journal.AT_COMMIT).start()
        deadline = time.monotonic() + 60
        while load.counts().transactions < 300:
            assert time.monotonic() < deadline, load.counts()
            numbers, last = commit_journal.count_and_last(viewer, schema)
            assert numbers == last
        counts = load.stop()
        assert commit_journal.count_and_last(connection, schema) == (counts.transactions, counts.transactions)


@pytest.fixture
def followed(fresh_database: Callable[[Database], str]) -> Iterator[tuple[Database, str, ApplyTarget]]:
    """A database with a journal, and the state of the demo's task that follows it."""
    server = server_of("mysql80")
    name = fresh_database(server)
    account = TaskTarget(type="mysql", host=server.host, port=server.port, user=server.user, password=server.password)
    target = ApplyTarget(ServerAccess.of(account), TASK, None)
    target.take_over()
    with server.connect() as connection:
        commit_journal.create(connection, name)
    run(server, f"INSERT INTO {name}.journal VALUES (1), (2)")
    try:
        yield server, name, target
    finally:
        for table in ("source", "stream"):
            target.execute(f"DELETE FROM tidemark_meta.{table} WHERE task = %s", TASK)
        target.close()


def put(target: ApplyTarget, name: str, *loading: str) -> None:
    with target.transaction():
        target.put_state(name, SourceState(offset=0, n=0, loading=loading))


def wait_for(watcher: JournalWatcher, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        watcher.check()
        time.sleep(0.01)


def test_the_watcher_follows_loaded_sources_and_finds_a_number_that_is_missing(followed: tuple[Database, str, ApplyTarget]) -> None:
    server, name, target = followed
    put(target, name, f"{name}.journal")
    run(server, f"DELETE FROM {name}.journal WHERE n = 1")
    with JournalWatcher(server) as watcher:
        wait_for(watcher, lambda: watcher.views > 2)
        assert not watcher.first, "its tables are loaded still"
        run(server, f"INSERT INTO {name}.journal VALUES (1)")
        put(target, name)
        wait_for(watcher, lambda: watcher.applied == {name: 2})
        run(server, f"INSERT INTO {name}.journal VALUES (3)")
        wait_for(watcher, lambda: watcher.applied == {name: 3})
        assert watcher.first == {name: 2}
        run(server, f"INSERT INTO {name}.journal VALUES (5)")
        with pytest.raises(DemoError, match="the target has transaction 5, and 1 before it are missing"):
            wait_for(watcher, lambda: False)


def test_the_watcher_finds_transactions_that_the_target_has_lost(followed: tuple[Database, str, ApplyTarget]) -> None:
    server, name, target = followed
    put(target, name)
    with JournalWatcher(server) as watcher:
        wait_for(watcher, lambda: watcher.applied == {name: 2})
        run(server, f"DELETE FROM {name}.journal WHERE n = 2")
        with pytest.raises(DemoError, match="the target had transaction 2, and has lost those behind 1"):
            wait_for(watcher, lambda: False)


# ---- the comparison


@pytest.fixture
def compared() -> Iterator[tuple[Database, Database, str]]:
    """One shop on two servers, with the same rows."""
    servers, name = (server_of("mariadb114"), server_of("mysql80")), unique_name("compared").replace("-", "_")
    for server in servers:
        with server.connect() as connection:
            shop.create_schema(connection, server.flavour, name)
            shop.load_rows(connection, 1500, seed=3, database=name)
    # MySQL writes documents in a form of its own, MariaDB keeps their text, as a task would apply it
    for server in servers:
        run(server, *(f"ALTER TABLE {name}.{table} DROP COLUMN {column}" for table, column in (("everything", "c_json"), ("products", "spec"))))
        run(server, f"UPDATE {name}.customers SET updated = '2026-01-01 00:00:00.000001'")
    yield *servers, name
    for server in servers:
        run(server, f"DROP DATABASE {name}")


@pytest.mark.parametrize(
    ("statement", "difference"),
    [
        ("DELETE FROM {}.orders WHERE id = 1", "orders: missing in the target, 1 rows"),
        ("INSERT INTO {}.orders VALUES (7777777, 1, 'new', '2026-01-01', 1)", "orders: in the target alone, 1 rows"),
        ("UPDATE {}.customers SET note = 'x ' WHERE id = 1", "customers: missing in the target, 1 rows"),
        ("UPDATE {}.products SET code = LOWER(code) WHERE code = 'Lamp-00000'", "products: missing in the target, 1 rows"),
        ("UPDATE {}.everything SET c_float = 1.00000012 WHERE id = 1", "everything: missing in the target, 1 rows"),
        ("DROP TABLE {}.products", "products: one of the two lacks it"),
    ],
)
def test_the_comparison_finds_each_difference(compared: tuple[Database, Database, str], statement: str, difference: str) -> None:
    source, target, name = compared
    for server in (source, target):
        run(server, f"UPDATE {name}.everything SET c_float = 1 WHERE id = 1")

    assert row_comparison.compare(source, target, name) == (sum(shop.row_counts(1500).values()), [])
    run(target, statement.format(name))
    _rows, differences = row_comparison.compare(source, target, name)

    assert differences
    assert difference in differences[0]


# ---- all of it


def test_the_demo_ends_with_its_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidemark", "demo", "--sources", "--rows", "6000", "--load-seconds", "5", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    last = re.fullmatch(LAST_LINE, done.stdout.splitlines()[-1])
    assert last, done.stdout
    assert all(int(number) > 0 for number in last.groups())
    killed = re.findall(r"(\w+) killed \(SIGKILL\)", done.stdout)
    assert killed == ["north", "south", "west", "task"]
