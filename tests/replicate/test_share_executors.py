"""Batches that tasks of Spark apply: whatever dies, and wherever, each change is applied once, as by threads.

A fault is in the function that Spark sends to its workers: a file says how often it was there already.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from devservers._guard import children_of
from schemas.errors import FencedError, RetriableSourceError
from schemas.settings.task_section import TaskSettings
from spark_jobs.replicate.apply import share_executors
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from spark_jobs.replicate.apply.share_executors import ShareExecutors
from spark_jobs.replicate.apply.share_workers import ShareThreads
from spark_jobs.replicate.task import TaskAttempt, run_task
from tests.integration.group_scene import until
from tests.replicate.task_scene import catch_up, rows_of
from tests.replicate.test_parallel_apply import APPLY, TABLES, Stream, changes_of, planned_stream  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning"),  # of mysql-replication
    pytest.mark.usefixtures("spark"),
]


@pytest.fixture(autouse=True)
def no_waits(monkeypatch) -> None:
    monkeypatch.setattr(TaskAttempt, "wait", lambda *_: None)


def by_executors(stream: Stream) -> TaskSettings:
    return replace(stream.task, apply=replace(stream.task.apply, executor_rows=APPLY["driver_rows"]))


def sent(monkeypatch: pytest.MonkeyPatch, around: Callable[..., Any]) -> None:
    """Have workers of Spark call `around(worker, run, target, sql)` for each statement, instead of `run()`."""
    original = share_executors.apply_shipped

    def apply_shipped(setup: Any, share: Any) -> Any:  # sent by value, with `around`
        with pytest.MonkeyPatch.context() as patch:
            execute = ApplyTarget.execute

            def executed(target: ApplyTarget, sql: str, *values: Any) -> Any:
                return around(share.worker, lambda: execute(target, sql, *values), target, sql)

            patch.setattr(ApplyTarget, "execute", executed)
            return original(setup, share)

    monkeypatch.setattr(share_executors, "apply_shipped", apply_shipped)


def faults(folder: Path, kind: str, numbers: set[int]) -> Callable[..., Any]:
    """A fault at some COMMITs of the second worker, counted over all its processes."""

    def around(worker: int, run: Callable[[], Any], target: Any, sql: str) -> Any:
        number = -1
        if worker == 1 and "COMMIT; " in sql:
            number = len(list(folder.iterdir()))
            (folder / str(number)).touch()
        if number not in numbers:
            return run()
        if kind == "killed_before":
            os.kill(os.getpid(), signal.SIGKILL)
        run()
        if kind == "killed_behind":
            os.kill(os.getpid(), signal.SIGKILL)
        target.connection._sock.shutdown(socket.SHUT_RDWR)
        raise RetriableSourceError("lost")

    return around


def test_executors_end_in_the_rows_of_threads(stream, monkeypatch) -> None:
    stream.put_back()
    with monkeypatch.context() as patch:
        patch.setattr(ShareThreads, "apply", None)
        catch_up(by_executors(stream))
    stream.require_applied_once()


@pytest.mark.parametrize("kind", ["killed_before", "killed_behind", "cut_behind"])
def test_a_process_of_spark_that_is_killed_or_cut_off_at_a_commit_leaves_each_change_applied_once(
    stream, monkeypatch, tmp_path, kind
) -> None:
    """Three times, of which Spark repeats a task twice: then the task repeats the plan."""
    failed = list[str]()
    monkeypatch.setattr("spark_jobs.replicate.task._log_retry", lambda reason, _: failed.append(reason))
    stream.put_back()
    sent(monkeypatch, faults(tmp_path, kind, {1, 2, 3}))
    catch_up(by_executors(stream))
    assert len(list(tmp_path.iterdir())) > 4
    assert len(failed) == (kind != "cut_behind")
    assert all("executors have not applied a batch" in reason for reason in failed)
    stream.require_applied_once()


def test_two_attempts_of_a_share_at_the_same_time_apply_each_change_once(stream, monkeypatch) -> None:
    """As Spark does it by speculation, and after an executor was lost to it that lives."""
    stream.put_back()
    outcomes = ShareExecutors._outcomes

    def doubled(executors: ShareExecutors, setup: Any, shares: list[Any], tag: str) -> Any:
        return outcomes(executors, setup, [one for one in shares for _ in range(2)], tag)

    monkeypatch.setattr(ShareExecutors, "_outcomes", doubled)
    catch_up(by_executors(stream))
    stream.require_applied_once()


def test_a_refused_row_is_reported_as_by_threads(stream, monkeypatch) -> None:
    of_executors, of_threads = (stream.refusal(task, monkeypatch) for task in (by_executors(stream), stream.task))
    assert (type(of_executors), str(of_executors)) == (type(of_threads), str(of_threads))
    assert "the target does not take an insert in" in str(of_executors)


def test_executors_of_a_task_that_another_process_has_taken_over_apply_nothing(stream, monkeypatch) -> None:
    stream.put_back()
    outcomes = ShareExecutors._outcomes

    def taken_over(executors: ShareExecutors, setup: Any, *arguments: Any) -> Any:
        ApplyTarget(setup.access, setup.task, None).take_over()
        return outcomes(executors, setup, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ShareExecutors, "_outcomes", taken_over)
        with pytest.raises(FencedError):
            catch_up(by_executors(stream))
    assert not changes_of(stream.target, stream.source.schema, stream.begin)
    catch_up(stream.task)
    stream.require_applied_once()


def slow(worker: int, run: Callable[[], Any], target: Any, sql: str) -> Any:
    if "COMMIT; " in sql:
        time.sleep(0.3)
    return run()


def test_a_task_that_is_stopped_leaves_its_job_and_threads_apply_the_rest(stream, monkeypatch) -> None:
    stream.put_back()
    stop, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            run_task(by_executors(stream), stop, until_caught_up=True)
        except BaseException as error:  # noqa: BLE001 - raised by the test
            failures.append(error)

    with monkeypatch.context() as patch:
        sent(patch, slow)
        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: bool(asked(stream, "SELECT 1 FROM tidemark_meta.worker WHERE done > 0")), "a transaction of a worker")
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
        assert not failures
    assert asked(stream, "SELECT 1 FROM tidemark_meta.plan WHERE plan IS NOT NULL")
    catch_up(stream.task)
    stream.require_applied_once()


def asked(stream: Stream, sql: str) -> list[Any]:
    with stream.target.connect() as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


_RUN = """
import pickle, sys
from tests.replicate.task_scene import catch_up, rows_of
catch_up(pickle.loads(sys.stdin.buffer.read()))
print(sorted({name.partition(".")[0] for name in sys.modules} & {"pyspark", "py4j"}))
"""


def test_without_executor_rows_a_task_imports_no_spark(stream) -> None:
    stream.put_back()
    ended = subprocess.run([sys.executable, "-c", _RUN], input=pickle.dumps(stream.task), stdout=subprocess.PIPE, check=True)
    assert ended.stdout.splitlines()[-1] == b"[]"
    stream.require_applied_once()


_WAITING = (
    "SELECT 1 FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Innodb_row_lock_current_waits' AND VARIABLE_VALUE > 0"
)


def is_caught_up(stream: Stream) -> bool:
    return not asked(stream, "SELECT 1 FROM tidemark_meta.plan WHERE plan IS NOT NULL") and all(
        rows_of(stream.target, stream.source.schema, table) == rows_of(stream.source.server, stream.source.schema, table)
        for table in TABLES
    )


def test_a_process_whose_jvm_is_killed_starts_another_one_and_leaves_no_jvm_behind(stream, monkeypatch, tmp_path) -> None:
    stream.die_in_plan(monkeypatch)
    task, target = by_executors(stream), stream.task.target
    document = {
        "task": task.task, "mode": task.mode,
        "sources": [{"name": one.name, "exclude_tables": list(one.exclude_tables)} for one in task.sources],
        "kafka": {"bootstrap_servers": task.kafka.bootstrap_servers}, "format": {"registry": task.format.registry},
        "target": {"type": "mysql", "host": target.host, "port": target.port, "user": target.user, "tls": {"mode": "disabled"},
                   "consistency": "eventual"},
        "apply": {**APPLY, "executor_rows": APPLY["driver_rows"]},
        "spark": {"master": "local[2]", "driver_memory": "512m", "conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}},
    }  # fmt: skip
    file, log = tmp_path / "task.yaml", tmp_path / "log"
    file.write_text(json.dumps(document), "utf-8")
    command = [sys.executable, "-m", "tidemark", "task", "run", str(file), "--log-format", "json"]
    environment = {**os.environ, "TIDEMARK_TARGET__PASSWORD": target.password}
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stderr=output) as process:
        try:
            with stream.target.connect(database=stream.source.schema, autocommit=False) as locks, locks.cursor() as cursor:
                for table in TABLES:
                    cursor.execute(f"SELECT * FROM {table} FOR UPDATE")
                until(lambda: bool(asked(stream, _WAITING)), "a worker waits for a row")
                (first,) = children_of(process.pid)
                os.kill(first, signal.SIGKILL)
            until(lambda: is_caught_up(stream), "it is caught up")
            (second,) = children_of(process.pid)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (first, second)), "no JVM")
    text = log.read_text("utf-8")
    assert text.count("task.spark_starts") == 2
    assert target.password not in text
    stream.require_applied_once()
