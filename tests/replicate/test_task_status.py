"""`tidemark ctl status`: the state of a task is compared with the fact, also if its process, its target or Kafka does not answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from devservers.processes import free_port
from schemas.json_codec import encode
from schemas.paused_task import TaskPause
from schemas.settings import from_mapping
from tests.integration.group_scene import until
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.task_scene import rows_of, task_of
from tests.replicate.test_task_pause import file  # noqa: F401 - a fixture
from tests.support.producers import SIGNAL, running
from tests.support.servers import database
from tidemark import cli
from tidemark.commands.group_text import task_text
from tidemark.status import task_status
from tidemark.status.task_status import SourceOfTaskStatus, TaskStatus


def status_of(capsys, path: Path, *codes: int) -> dict:
    capsys.readouterr()
    assert cli.main(["ctl", "status", str(path), "--output", "json"]) in (codes or (0,))
    return json.loads(capsys.readouterr().out)["tasks"][0]


def changed(path: Path, section: str, **values) -> Path:
    document = json.loads(path.read_text("utf-8"))
    document[section] |= values
    other = path.with_name("changed.yaml")
    other.write_text(json.dumps(document), "utf-8")
    return other


def test_a_status_is_as_the_process_is(source, registry, file, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr(task_status, "SILENT_S", 8.0)
    target = database("mariadb114")
    source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
    path = file(task_of(source, registry.url, target))
    never = status_of(capsys, path, 1)
    assert (never["state"], "has never run" in never["problem"]) == ("unknown", True)
    command = [sys.executable, "-m", "tidemark", "task", "run", str(path), "--log-format", "json"]
    with running(from_mapping(mapping_of(source, registry.url))), ExitStack() as stack:

        def started() -> subprocess.Popen[bytes]:
            process = stack.enter_context(subprocess.Popen(command, env=dict(os.environ)))
            stack.callback(process.kill)
            return process

        def state() -> str:
            return status_of(capsys, path)["state"]

        process = started()
        until(lambda: status_of(capsys, path, 0, 1)["state"] == "running", "it runs")
        until(lambda: rows_of_target(target, source.schema) == [(1,)], "it is loaded")
        until(lambda: not status_of(capsys, path)["sources"][0]["loading"], "it says so")
        status = status_of(capsys, path)
        (one,) = status["sources"]
        assert str(process.pid) in status["process"]
        assert one["source"] == source.name
        assert one["position"]
        assert one["behind_s"] >= 0
        assert one["behind_commits"] >= 0
        process.send_signal(signal.SIGSTOP)
        source.execute("INSERT INTO a VALUES (2)")
        until(lambda: state() == "silent", "it does nothing")
        until(lambda: status_of(capsys, path)["sources"][0]["behind_s"] >= 7, "Kafka is ahead of it")
        process.send_signal(signal.SIGCONT)
        until(lambda: state() == "running", "it continues")
        until(lambda: rows_of(target, source.schema, "a") == [(1,), (2,)], "it has applied all")
        process.kill()
        until(lambda: state() == "silent", "it is dead")
        process = started()
        until(lambda: state() == "running", "it runs")
        process.terminate()
        assert process.wait(30) == 0
        assert state() == "stopped"
        assert "stopped" in text_of(capsys, path)
    unknown = status_of(capsys, changed(path, "target", port=free_port()), 1)
    assert (unknown["state"], unknown["epoch"], unknown["sources"]) == ("unknown", None, [])
    status = status_of(capsys, changed(path, "kafka", bootstrap_servers=f"127.0.0.1:{free_port()}"))
    assert (status["state"], status["sources"][0]["behind_s"], status["sources"][0]["behind_commits"]) == ("stopped", None, None)
    assert status["kafka_problem"]
    assert status["sources"][0]["position"] == one["position"] or status["sources"][0]["position"] > one["position"]


def rows_of_target(target, schema: str) -> list[tuple]:
    try:
        return rows_of(target, schema, "a")
    except Exception:  # noqa: BLE001 - the table is not there yet
        return []


def text_of(capsys, path: Path) -> str:
    capsys.readouterr()
    cli.main(["ctl", "status", str(path)])
    return capsys.readouterr().out


ERROR = TaskPause(at_ms=0, cause="a row is there", is_effective=True)


@pytest.mark.parametrize(
    ("seen_s", "process", "pause", "state"),
    [
        (1.0, "host, process 5", None, "running"),
        (100.0, "host, process 5", None, "silent"),
        (100.0, "", None, "stopped"),
        (None, None, None, "unknown"),
        (1.0, "host, process 5", ERROR, "paused"),
        (1.0, "host, process 5", TaskPause(at_ms=0, by="ops"), "pausing"),
        (100.0, "host, process 5", ERROR, "silent"),
        (100.0, "", TaskPause(at_ms=0, by="ops", is_effective=True), "stopped"),
        (None, None, ERROR, "paused"),
    ],
)
def test_the_state_is_one_word_and_the_pause_is_shown_beside_it(seen_s, process, pause, state):
    source = SourceOfTaskStatus(name="shop", position=None, behind_s=None, behind_commits=None, loading=("a.b",) * 5)
    status = TaskStatus(read_ms=0, task="copy", target="mysql", epoch=3, process=process, seen_s=seen_s, pause=pause, sources=(source,))
    assert encode(status)["state"] == state
    text = task_text(status)
    assert state in text
    assert "and 2 more" in text
    assert (pause is not None) == ("task resume" in text)
    assert text.splitlines()[-1].split()[1:4] == ["not", "begun", "unknown"]
