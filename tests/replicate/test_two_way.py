"""Two-way replication on real servers: nothing that a task writes is sent back, and both servers end with the same rows."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_ordered_stream import end_of_log
from tests.replicate.task_scene import COLUMNS, catch_up, rows_of
from tests.replicate.two_way_scene import Command, TwoWay, logged, written_at
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")  # of mysql-replication


PAIRS = [("mysql80", "mariadb114"), ("mariadb114", "mysql97")]


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request, kafka, registry, fresh_database) -> Iterator[TwoWay]:
    one, other = map(database, request.param)
    schema = fresh_database(one)
    with other.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {schema}")
        made = [Source(server, schema, kafka.bootstrap_servers) for server in (one, other)]
        yield TwoWay(made[0], made[1], registry.url)
        for source in made:
            source.connection.close()
        cursor.execute(f"DROP DATABASE IF EXISTS {schema}")


def are_equal(pair: TwoWay, *tables: str) -> bool:
    one, other = (side.source.server for side in pair.sides)
    return all(rows_of(one, pair.schema, table) == rows_of(other, pair.schema, table) for table in tables)


def test_changes_and_statements_go_to_the_other_server_and_not_back(pair):
    one, other = (side.source for side in pair.sides)
    for source in (one, other):
        source.execute(SIGNAL, f"CREATE TABLE a ({COLUMNS})")
    with ExitStack() as stack:
        runs = [(stack.enter_context(running(pair.settings(side))), side.source) for side in pair.sides]

        def exchange(times: int = 1) -> None:
            for _ in range(times):
                for run, source in runs:
                    run.caught_up(source)
                for task in pair.tasks():
                    catch_up(task)

        exchange()
        one.execute("INSERT INTO a VALUES (1, 1, 'x'), (2, 1, 'x')", f"CREATE TABLE b ({COLUMNS})", "INSERT INTO b VALUES (7, 1, 'x')")
        other.execute("INSERT INTO a VALUES (11, 1, 'x')")
        exchange()
        other.execute("UPDATE a SET v = 2 WHERE id = 1", "DELETE FROM a WHERE id = 2", "ALTER TABLE b ADD COLUMN x INT DEFAULT 3")
        other.execute("INSERT INTO b VALUES (8, 1, 'y', 4)", "CREATE TABLE c (id INT PRIMARY KEY)", "INSERT INTO c VALUES (5)")
        exchange()
        assert are_equal(pair, "a", "b", "c")
        one.execute("UPDATE b SET x = 5", "TRUNCATE TABLE c", "INSERT INTO c VALUES (6)")
        exchange()
        other.execute("RENAME TABLE c TO d", "INSERT INTO d VALUES (7)", "DROP TABLE b")
        one.execute("CREATE TABLE e (id INT PRIMARY KEY)", "INSERT INTO e VALUES (1)")
        exchange()
        one.execute("DROP TABLE IF EXISTS d")
        exchange(2)
    assert are_equal(pair, "a", "e")
    of_one, of_other = pair.sides
    assert pair.published(of_one, "a") == [("a", "c", 1), ("a", "c", 2)]
    assert pair.published(of_other, "a") == [("a", "c", 11), ("a", "u", 1), ("a", "d", 2)]
    changed = [("b", "c", 7), ("b", "u", 7), ("b", "u", 8), ("c", "t", None), ("c", "c", 6), ("e", "c", 1)]
    assert pair.published(of_one, "b", "c", "d", "e") == changed
    assert pair.published(of_other, "b", "c", "d") == [("b", "c", 8), ("c", "c", 5), ("d", "c", 7)]
    created = f"CREATE TABLE b ({COLUMNS})"
    assert pair.statements(of_one) == [created, "CREATE TABLE e (id INT PRIMARY KEY)", f"DROP TABLE IF EXISTS `{pair.schema}`.`d`"]
    altered = ["ALTER TABLE b ADD COLUMN x INT DEFAULT 3", "CREATE TABLE c (id INT PRIMARY KEY)", "RENAME TABLE c TO d"]
    assert pair.statements(of_other) == [*altered, f"DROP TABLE `{pair.schema}`.`b`"]


@pytest.mark.parametrize("apply", [{"driver_rows": 60}, {"driver_rows": 4, "txn_rows": 3, "workers": 3}], ids=["one", "workers"])
@pytest.mark.parametrize("pair", PAIRS[:1], indirect=True, ids="-".join)
def test_both_servers_are_equal_after_load_on_both_whatever_is_killed(pair, apply, tmp_path: Path):
    """The second opinion are the logs of the servers: each change of a user is published once, and nothing else is."""
    sources = [side.source for side in pair.sides]
    for source in sources:
        source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in ("a", "b")))
    begins = [end_of_log(source) for source in sources]
    dice = random.Random(3)
    with ExitStack() as stack:
        commands = [Command(tmp_path / f"producer{number}", pair.producer(side), "run", "--config") for number, side in enumerate(pair.sides)]
        commands += [Command(tmp_path / f"task{number}", pair.task(side, apply=apply), "task", "run") for number, side in enumerate(pair.sides)]
        for command in commands:
            stack.callback(command.end)
        wait_until(lambda: all("task.source" in command.log for command in commands[2:]), commands)
        with written_at(0, sources[0], 150), written_at(1, sources[1], 150):
            for number in range(8):
                time.sleep(dice.uniform(1.5, 3))
                commands[number % 4].kill_and_start()
            time.sleep(2)
        wait_until(lambda: are_equal(pair, "a", "b"), commands)
        for number, source in enumerate(sources):  # the rows of the other side
            source.execute(f"UPDATE a SET v = v + 1 WHERE id % 2 = {1 - number}", f"DELETE FROM b WHERE id % 6 = {1 - number}")
            commands[2 + number].kill_and_start()
            wait_until(lambda: are_equal(pair, "a", "b"), commands)
        time.sleep(1)
        for command in commands:
            command.require_alive()
    assert are_equal(pair, "a", "b")
    for side, begin in zip(pair.sides, begins, strict=True):
        own, of_tasks = logged(side.source, begin, "a", "b")
        assert pair.published(side, "a", "b") == own
        assert len(own) > 300
        assert len(of_tasks) > 100


def wait_until(condition: Any, commands: list[Command], timeout_s: float = 150.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        for command in commands:
            command.require_alive()
        assert time.monotonic() < deadline, [command.log[-1500:] for command in commands]
        time.sleep(0.3)
