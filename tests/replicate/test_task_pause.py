"""A task that pauses after an error, or because a person asked for it: it applies nothing until it is resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest

from devservers.processes import free_port
from schemas.errors import (
    AccessDeniedError,
    ConfigError,
    DecodeError,
    FencedError,
    RetriableSourceError,
    SecretError,
    SinkError,
    SourceError,
    StateError,
)
from schemas.members import ReaderPhase
from schemas.paused_task import TaskPause
from schemas.settings import from_mapping
from schemas.settings.task_section import TaskSettings
from spark_jobs.replicate import task_pause
from spark_jobs.replicate.task import run_task
from spark_jobs.replicate.task_pause import TaskPauses
from tests.integration.group_scene import RunningSource, started, until
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.task_scene import catch_up, rows_of, task_of
from tests.replicate.test_members_of_a_task import scene  # noqa: F401 - a fixture
from tests.support.producers import SIGNAL, running
from tests.support.servers import database
from tidemark import cli
from tidemark.api.task_metrics import task_metrics


class RunningTask:
    """A task in a thread, as the command runs it."""

    def __init__(self, task: TaskSettings) -> None:
        self.stop, self.failures, self._runners = threading.Event(), list[BaseException](), list[Any]()
        self._task = task
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            run_task(self._task, self.stop, watch=self._runners.append)
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self.failures.append(error)

    @property
    def not_ready(self) -> str | None:
        assert not self.failures, self.failures
        return self._runners[0].not_ready if self._runners else "it is starting"

    @property
    def metrics(self) -> str:
        attempt = self._runners[0].attempt
        return task_metrics(attempt.figures, self.not_ready, is_paused=attempt.pause is not None)

    def is_paused(self) -> bool:
        return "it is paused" in (self.not_ready or "")


@pytest.fixture
def file(tmp_path: Path) -> Callable[[TaskSettings], Path]:
    def written(task: TaskSettings) -> Path:
        target = task.target
        document = {
            "task": task.task,
            "sources": [{"name": one.name} for one in task.sources],
            "order": task.order,
            "group": task.group,
            "kafka": {"bootstrap_servers": task.kafka.bootstrap_servers},
            "format": {"registry": task.format.registry},
            "target": {"type": "file", "path": target.path} if target.type == "file" else
            {"type": target.type, "host": target.host, "port": target.port, "user": target.user, "password": target.password,
             "tls": {"mode": "disabled"}},
        }  # fmt: skip
        path = tmp_path / "task.yaml"
        path.write_text(json.dumps(document), "utf-8")
        return path

    return written


def ctl(capsys, do: str, path: Path, *more: str) -> dict:
    capsys.readouterr()
    assert cli.main(["ctl", "task", do, str(path), *more, "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return document["tasks"][0] if do == "show" else document


def executed(server, *statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def is_loaded(server, source: str) -> bool:
    """Whether rows of a source have to be as its log says."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT state FROM tidemark_meta.source WHERE name = %s", (source,))
        return not json.loads(cursor.fetchall()[0][0])["loading"]


def has(server, schema: str, *rows: tuple) -> Callable[[], bool]:
    return lambda: list(rows) == rows_of(server, schema, "a")


@pytest.mark.parametrize("name", ["mariadb114", "mysql97"])
def test_a_row_that_is_there_already_pauses_the_task_until_it_is_resumed(name, source, registry, file, capsys):
    target = database(name)
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1)")
    task = task_of(source, registry.url, target, apply={"compact": False})
    path = file(task)
    with running(from_mapping(mapping_of(source, registry.url))):
        catch_up(task)
        assert ctl(capsys, "show", path)["pause"] is None
        executed(target, f"INSERT INTO {source.schema}.a VALUES (2, 7)")
        with RunningTask(task) as process:
            until(lambda: process.not_ready is None, "it runs")
            source.execute("INSERT INTO a VALUES (2, 2)", "INSERT INTO a VALUES (3, 3)")
            until(process.is_paused, "it pauses")
            for word in (f"{source.schema}.a", source.name, "Duplicate entry '2'", ".0000"):
                assert word in process.not_ready
            assert "tidemark_task_paused 1.0" in process.metrics
            assert "tidemark_heartbeat_age_seconds{" not in process.metrics
            until(lambda: (ctl(capsys, "show", path)["pause"] or {}).get("effective"), "it is kept")
            assert ctl(capsys, "show", path)["pause"]["cause"] in process.not_ready
            assert rows_of(target, source.schema, "a") == [(1, 1), (2, 7)]
            ctl(capsys, "resume", path)
            until(lambda: (ctl(capsys, "show", path)["pause"] or {}).get("effective"), "it fails once more")
            executed(target, f"DELETE FROM {source.schema}.a WHERE id = 2")
            ctl(capsys, "resume", path)
            until(has(target, source.schema, (1, 1), (2, 2), (3, 3)), "it continues from its state")
            until(lambda: process.not_ready is None, "it runs")
            assert "tidemark_task_paused 0.0" in process.metrics


def test_a_start_continues_after_an_error_and_stays_paused_by_a_person(source, registry, file, capsys):
    target = database("mariadb114")
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY, v INT)")
    task = task_of(source, registry.url, target)
    path = file(task)
    with running(from_mapping(mapping_of(source, registry.url))) as producer:
        catch_up(task)
        executed(target, f"DROP TABLE {source.schema}.a")
        with RunningTask(task) as process:
            source.execute("INSERT INTO a VALUES (1, 1)")
            until(process.is_paused, "it pauses")
            until(lambda: (ctl(capsys, "show", path)["pause"] or {}).get("effective"), "it is kept")
        assert not process.failures, "an orderly end"
        with pytest.raises(SinkError, match="has no table"):
            catch_up(task)
        executed(target, f"CREATE TABLE {source.schema}.a (id INT PRIMARY KEY, v INT)")
        with RunningTask(task) as process:
            until(has(target, source.schema, (1, 1)), "it continues")
            asked = ctl(capsys, "pause", path, "--reason", "a backup")["pause"]
            until(process.is_paused, "a person pauses it")
            assert asked["by"] in process.not_ready
            assert "a backup" in process.not_ready
            until(lambda: ctl(capsys, "show", path)["pause"]["effective"], "it says so")
        with RunningTask(task) as process:
            until(process.is_paused, "another start stays paused")
            source.execute("INSERT INTO a VALUES (2, 2)")
            producer.caught_up(source)
            with pytest.raises(SinkError, match=r"a backup.*ctl task resume"):
                catch_up(task)
            assert rows_of(target, source.schema, "a") == [(1, 1)]


def test_a_refused_statement_pauses_a_process_that_ends_in_order(source, registry, file, capsys):
    """And the record of an earlier version, without a pause, is extended."""
    target, port = database("mariadb114"), free_port()
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY, v INT)")
    task = task_of(source, registry.url, target)
    path = file(task)
    executed(target, "CREATE DATABASE IF NOT EXISTS tidemark_meta", "DROP TABLE IF EXISTS tidemark_meta.task",
             "CREATE TABLE tidemark_meta.task (name VARCHAR(249) PRIMARY KEY, epoch BIGINT NOT NULL)")  # fmt: skip
    assert cli.main(["ctl", "task", "resume", str(path)]) == cli.USAGE
    assert "has never run" in capsys.readouterr().err
    command = [sys.executable, "-m", "tidemark", "task", "run", str(path), "--log-format", "json"]
    with running(from_mapping(mapping_of(source, registry.url))), ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen(command, env={**os.environ, "TIDEMARK_SERVICE__PORT": str(port)}))
        stack.callback(process.kill)

        def answer(path: str = "/readyz") -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answered:
                    return answered.status, answered.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
            except OSError as error:
                return 0, str(error)

        until(lambda: answer()[0] == 200, "it runs")
        executed(target, f"ALTER TABLE {source.schema}.a ADD COLUMN w INT")
        source.execute("ALTER TABLE a ADD COLUMN w INT", "INSERT INTO a VALUES (1, 1, 1)")
        until(lambda: "Duplicate column name 'w'" in answer()[1], "it pauses")
        assert answer()[0] == 503
        assert "ADD COLUMN w INT" in answer()[1]
        assert "tidemark_task_paused 1.0" in answer("/metrics")[1]
        until(lambda: (ctl(capsys, "show", path)["pause"] or {}).get("effective"), "it is kept")
        assert rows_of(target, source.schema, "a") == []
        process.terminate()
        assert process.wait(30) == 0


def test_sources_join_while_a_task_is_paused(scene, registry, file, capsys):  # noqa: F811
    """In its group it has stopped at its frontier: no source waits for it, and nothing is applied too early or twice."""
    target = database("mariadb114")
    one, two = (scene.source(server) for server in ("mysql80", "mysql97"))
    started(one)
    task = task_of(one.source, registry.url, target, two.source, order="global", group=scene.group)
    path = file(task)

    def rows(*sources: RunningSource) -> list[list[tuple]]:
        try:
            return [rows_of(target, source.source.schema, "t") for source in sources]
        except Exception:  # noqa: BLE001 - a table is not there yet
            return []

    def phase() -> ReaderPhase:
        return scene.members(one).readers[task.task].record.state

    with RunningTask(task) as process:
        one.insert(1)
        until(lambda: rows(one) == [[(1,)]] and is_loaded(target, one.name), "1 is applied")
        assert phase() is ReaderPhase.RUNNING
        executed(target, f"INSERT INTO {one.source.schema}.t VALUES (2)")
        one.insert(2)
        until(process.is_paused, "it pauses after an error")
        assert phase() is ReaderPhase.STOPPED
        started(two)
        two.insert(3)
        one.insert(4)
        executed(target, f"DELETE FROM {one.source.schema}.t WHERE id = 2")
        until(lambda: ctl(capsys, "show", path)["pause"]["effective"], "it is kept")
        ctl(capsys, "resume", path)
        until(lambda: rows(one, two) == [[(1,), (2,), (4,)], [(3,)]], "all is applied")
        assert phase() is ReaderPhase.RUNNING
        ctl(capsys, "pause", path)
        until(process.is_paused, "a person pauses it")
        until(lambda: phase() is ReaderPhase.STOPPED, "it has stopped in its group")


class UnreachableKeeper:
    """A record of a pause at a target that cannot be reached at first."""

    def __init__(self, kept: TaskPause | None = None) -> None:
        self.kept, self.problems = kept, list[Exception]()

    def pause(self) -> TaskPause | None:
        if self.problems:
            raise self.problems.pop()
        return self.kept

    def change_pause(self, change: Callable[[TaskPause | None], TaskPause | None]) -> None:
        self.kept = change(self.pause())

    def close(self) -> None:
        pass


@pytest.fixture
def waiting(monkeypatch) -> Callable[[UnreachableKeeper, Callable[[TaskPauses], None]], TaskPauses]:
    """A pause is waited for in a thread until it ends, while a test acts."""
    monkeypatch.setattr(task_pause, "POLL_S", 0.01)

    def wait(keeper: UnreachableKeeper, act: Callable[[TaskPauses], None]) -> TaskPauses:
        pauses = TaskPauses(keeper, threading.Event())
        pauses.note(SinkError("the first cause"))
        thread = threading.Thread(target=pauses.wait)
        thread.start()
        act(pauses)
        thread.join(30)
        assert not thread.is_alive()
        return pauses

    return wait


def test_the_cause_is_kept_when_the_target_is_reached_again(waiting):
    keeper = UnreachableKeeper()
    keeper.problems = [RetriableSourceError("it is down"), AccessDeniedError("it is starting"), OSError("the disk")]

    def resume(pauses: TaskPauses) -> None:
        until(lambda: keeper.kept is not None and keeper.kept.is_effective, "it is kept")
        assert pauses.current is not None
        assert keeper.kept.cause == "the first cause"
        keeper.kept = None

    assert waiting(keeper, resume).current is None


def test_a_person_and_an_error_pause_it_together(waiting):
    keeper = UnreachableKeeper(TaskPause(at_ms=5, by="ops@host"))

    def resume(pauses: TaskPauses) -> None:
        until(lambda: keeper.kept.is_effective, "both are kept")
        assert (keeper.kept.by, keeper.kept.cause) == ("ops@host", "the first cause")
        assert keeper.kept.text == "by ops@host, and after an error: the first cause"
        keeper.kept = None

    waiting(keeper, resume)


def test_a_process_that_was_fenced_ends_though_it_is_paused():
    keeper = UnreachableKeeper()
    keeper.problems = [FencedError("another process")]
    pauses = TaskPauses(keeper, threading.Event())
    pauses.note(SinkError("a cause"))
    with pytest.raises(FencedError):
        pauses.wait()


@pytest.mark.parametrize(
    ("error", "is_cause"),
    [(SinkError("x"), True), (StateError("x"), True), (ConfigError("x"), True), (DecodeError("x"), True), (SourceError("x"), True),
     (FencedError("x"), False), (AccessDeniedError("x"), False), (SecretError("x"), False), (OSError("x"), False)],
)  # fmt: skip
def test_errors_pause_a_task_that_has_begun(error, is_cause):
    pauses = TaskPauses(UnreachableKeeper(), threading.Event())
    assert not pauses.is_cause(error)
    pauses.has_begun = True
    assert pauses.is_cause(error) == is_cause


def test_a_task_with_files_keeps_its_pause_in_their_folder(tmp_path, source, registry, file, capsys):
    task = task_of(source, registry.url, database("mariadb114"), target={"type": "file", "path": str(tmp_path / "files")})
    path = file(task)
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY)")
    assert cli.main(["ctl", "task", "pause", str(path)]) == cli.USAGE
    with running(from_mapping(mapping_of(source, registry.url))), RunningTask(task) as process:
        until(lambda: process.not_ready is None, "it runs")
        ctl(capsys, "pause", path)
        until(lambda: (ctl(capsys, "show", path)["pause"] or {}).get("effective"), "a person pauses it")
        assert process.is_paused()
        assert ctl(capsys, "resume", path)["pause"] is None
        until(lambda: process.not_ready is None, "it runs")
    assert not process.failures
