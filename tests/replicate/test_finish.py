"""`tidemark task run --finish` on real servers: the sources and their producers are gone, all that Kafka has is applied."""

from __future__ import annotations

import json
import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

from devservers import start_database
from schemas.errors import ConfigError, SinkError
from schemas.settings import from_mapping
from schemas.settings.task_section import TaskSettings
from spark_jobs.archive.archive_folder import ArchiveManifest
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from spark_jobs.replicate.task import run_task
from tests.integration.test_ordered_stream import DIES_IN_A_PART, Process, mapping_of, written
from tests.replicate.task_scene import COLUMNS, Died, catch_up, eventual, rows_of, task_of
from tests.replicate.test_many_sources import alternating, end_of_log, numbers_in_order
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database, unique_name
from tidemark import cli

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")  # of mysql-replication


def finish(task: TaskSettings, monkeypatch: pytest.MonkeyPatch | None = None) -> tuple[str, int]:
    """Finish a task; return its line, and how often it died before."""
    lines: list[str] = []
    if monkeypatch is None:
        run_task(task, threading.Event(), finish=lines.append)
        return lines[0], 0
    dice, left, deaths = random.Random(5), [0], 0

    def dying(method: Any) -> Any:
        def run(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Died
            result = method(*arguments)
            if left[0] == -1:
                raise Died
            return result

        return run

    with monkeypatch.context() as patch:
        patch.setattr(ApplyTarget, "execute", dying(ApplyTarget.execute))
        patch.setattr(ApplyTarget, "execute_many", dying(ApplyTarget.execute_many))
        for attempt in range(60):
            left[0] = dice.randrange(6, 16 + 4 * attempt)
            try:
                run_task(task, threading.Event(), finish=lines.append)
                break
            except Died:
                deaths += 1
    return lines[0], deaths


def state_of(server: Any, task: TaskSettings, source: str) -> dict[str, Any]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT state FROM tidemark_meta.source WHERE task = %s AND name = %s", (task.task, source))
        return json.loads(cursor.fetchone()[0])


def test_all_that_kafka_has_of_a_lost_server_is_applied(kafka, registry, tmp_path, monkeypatch, capsys):
    """To a server, and to files, which are replayed."""
    server, target = start_database("mysql80", tmp_path), database("mariadb114")
    with server.connect() as connection, connection.cursor() as cursor:
        schema = unique_name("lost").replace("-", "_")
        cursor.execute(f"CREATE DATABASE {schema}")
    source = Source(server, schema, kafka.bootstrap_servers)
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in ("a", "b")))
    source.execute(f"INSERT INTO a VALUES {','.join(f'({number}, 1, NULL)' for number in range(300))}")
    task = task_of(source, registry.url, target, apply={"driver_rows": 40, "max_delay_ms": 0})
    files = task_of(source, registry.url, target, task="files", target={"type": "file", "path": str(tmp_path / "files")})
    with running(from_mapping(mapping_of(source, registry.url))) as run:
        run.caught_up(source)
        for one in (task, files):
            catch_up(one)
        with written(source, keys=100):
            time.sleep(1.5)
            source.execute("ALTER TABLE b ADD COLUMN x INT NOT NULL DEFAULT 7")
            time.sleep(0.5)
        run.caught_up(source)
    expected = {table: rows_of(server, schema, table) for table in ("a", "b")}
    source.connection.close()
    server.close()
    assert state_of(target, task, source.name)["consistent"] is False
    line, deaths = finish(task, monkeypatch)
    assert deaths > 2
    for table, rows in expected.items():
        assert rows_of(target, schema, table) == rows, table
    state = state_of(target, task, source.name)
    assert state["consistent"] is True
    assert line == f"finished: {source.name} at {state['position']}"
    assert finish(task) == (line, 0)
    catch_up(task)
    assert state_of(target, task, source.name)["consistent"] is False, "an ordinary start applies what comes"

    with target.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {schema}")
    assert finish(files)[0].startswith(f"finished: {source.name} at ")
    assert ArchiveManifest.read(tmp_path / "files").states[source.name]["consistent"] is True
    (tmp_path / "password").write_text(f"{target.password}\n", "utf-8")
    access = ["--host", target.host, "--port", str(target.port), "--user", target.user, "--password-file", str(tmp_path / "password")]
    assert cli.main(["replay", str(tmp_path / "files"), "--dest", "mysql", *access]) == 0
    for table, rows in expected.items():
        assert rows_of(target, schema, table) == rows, table
    with target.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {schema}")


def test_in_one_order_no_lost_source_is_waited_for(kafka, registry, fresh_database, monkeypatch):
    """One producer is lost earlier: all that the other one has published since waits for its promise."""
    sources = [Source(server, fresh_database(server), kafka.bootstrap_servers) for server in map(database, ("mysql80", "mysql97"))]
    target, group = database("mariadb114"), unique_name("group")
    for source in sources:
        source.execute(SIGNAL, "CREATE TABLE numbers (n INT PRIMARY KEY)")
    one, other = sources
    task = task_of(one, registry.url, target, other, order="global", group=group, apply={"driver_rows": 25, "compact": False})
    count = [0]
    with running(from_mapping(mapping_of(one, registry.url, group=group))) as run:
        with running(from_mapping(mapping_of(other, registry.url, group=group))) as lost:
            run.caught_up(one)
            lost.caught_up(other)
            with alternating(one, other, count=count):
                time.sleep(0.5)
            catch_up_in_order(task, sources)
            begin, loaded = end_of_log(target), count[0]
            with alternating(one, other, count=count):
                time.sleep(1)
            lost.caught_up(other)
        with alternating(one, count=count):
            time.sleep(1)
        run.caught_up(one)
    assert sum(len(rows_of(target, source.schema, "numbers")) for source in sources) < count[0]
    line, deaths = finish(task, monkeypatch)
    assert deaths > 2
    for source in sources:
        assert rows_of(target, source.schema, "numbers") == rows_of(source.server, source.schema, "numbers")
        state = state_of(target, task, source.name)
        assert state["consistent"] is True
        assert f"{source.name} at {state['position']}" in line
    assert numbers_in_order(target, (one, other), begin) == list(range(loaded, count[0]))
    assert finish(task)[0] == line
    for source in sources:
        source.connection.close()


def catch_up_in_order(task: TaskSettings, sources: list[Source]) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=run_task, args=(task, stop))
    thread.start()
    server = database("mariadb114")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(pymysql.err.Error):  # the tables are not there yet
            if all(rows_of(server, one.schema, "numbers") == rows_of(one.server, one.schema, "numbers") for one in sources):
                break
        time.sleep(0.2)
    stop.set()
    thread.join(60)


@pytest.mark.parametrize("is_applied", [False, True], ids=["left out", "applied in part"])
def test_a_transaction_without_an_end_is_left_out_or_makes_the_target_inconsistent(
    is_applied: bool, kafka, registry, fresh_database, tmp_path: Path, monkeypatch
):
    server, target = database("mysql80"), database("mariadb114")
    source = Source(server, fresh_database(server), kafka.bootstrap_servers)
    source.execute(SIGNAL, f"CREATE TABLE a ({COLUMNS})", "INSERT INTO a VALUES (1, 1, NULL)")
    mapping = mapping_of(source, registry.url)
    task = task_of(source, registry.url, target)
    task = eventual(task) if is_applied else task
    with running(from_mapping(mapping)) as run:
        run.caught_up(source)
        catch_up(task)
        source.execute("INSERT INTO a VALUES (2, 1, NULL)")
        run.caught_up(source)
    expected = rows_of(server, source.schema, "a")
    rows = ",".join(f"({number}, 1, '{'x' * 900}')" for number in range(1_000, 1_400))
    source.execute("BEGIN", f"INSERT INTO a (id, v, w) VALUES {rows}", "UPDATE a SET v = 2 WHERE id >= 1000", "COMMIT")
    Process(mapping, tmp_path, DIES_IN_A_PART).child.wait(120)
    if is_applied:
        stop = threading.Event()
        thread = threading.Thread(target=run_task, args=(task, stop))
        thread.start()
        deadline = time.monotonic() + 60
        while len(rows_of(target, source.schema, "a")) < 3 and time.monotonic() < deadline:
            time.sleep(0.2)
        stop.set()
        thread.join(60)
        with pytest.raises(SinkError, match=r"was lost within the transaction at 0000\..*a part of it is applied, and Kafka lacks its end"):
            finish(task)
        assert state_of(target, task, source.name)["consistent"] is False
    else:
        line, _ = finish(task)
        assert rows_of(target, source.schema, "a") == expected
        assert ", without the transaction at 0000." in line
        assert state_of(target, task, source.name)["consistent"] is True
    with running(from_mapping(mapping)) as run:  # the source was not lost after all
        run.caught_up(source)
        catch_up(task)
    assert rows_of(target, source.schema, "a") == rows_of(server, source.schema, "a")
    source.connection.close()


def test_a_task_that_has_not_begun_is_refused(kafka, registry, fresh_database):
    server = database("mysql80")
    source = Source(server, fresh_database(server), kafka.bootstrap_servers)
    with pytest.raises(ConfigError, match=r"--finish: task .* has not begun yet"):
        finish(task_of(source, registry.url, database("mariadb114")))
    source.connection.close()
