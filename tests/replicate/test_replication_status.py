"""`tidemark status`, `tidemark ctl status` and the page show groups and tasks as they are, also if a process or a server is silent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from devservers.processes import free_port
from schemas import liveness
from schemas.settings import from_mapping
from schemas.settings.task_section import task_from_mapping
from tests.integration.group_scene import until
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.task_scene import rows_of
from tests.support.page_client import PageClient
from tests.support.producers import SIGNAL, Source
from tests.support.servers import database, unique_name
from tests.support.silent import SilentPeer
from tidemark import cli
from tidemark.api import replication_reader
from tidemark.page.page_views import Views
from tidemark.page.parts import Parts
from tidemark.page.server import PageServer
from tidemark.page.sign_in import Access
from tidemark.status import task_status

AGES = ("read_ms", "seen_s", "promise_us", "released_us", "behind_s", "behind_commits", "head_room_s", "position", "skew_us")


class ShownScene:
    """Two sources of a group with their producers, and a task, each a process; their status by command and by page."""

    def __init__(self, stack: ExitStack, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.stack, self.folder, self.capsys = stack, folder, capsys
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def file(self, name: str, document: Any) -> Path:
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document), "utf-8")
        return path

    def start(self, name: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "tidemark", *arguments, "--log-level", "error"]
        process = self.processes[name] = self.stack.enter_context(subprocess.Popen(command, env=dict(os.environ)))
        self.stack.callback(process.kill)

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait(30)

    def command(self, *arguments: str) -> str:
        self.capsys.readouterr()
        assert cli.main([*arguments, "--log-level", "error"]) in (0, 1)
        return self.capsys.readouterr().out

    def page(self, source: Any, *tasks: Any) -> PageClient:
        settings = from_mapping(source)
        parts = Parts(settings, tasks=[task_from_mapping(one) for one in tasks])
        self.stack.enter_context(parts.replication)
        access = Access(settings.service, 0)
        server = self.stack.enter_context(PageServer(Views(settings, parts, access).application(), "127.0.0.1", 0))
        return PageClient(server.port, access.token)


@pytest.fixture
def scene(tmp_path, capsys, monkeypatch) -> Any:
    monkeypatch.setattr(task_status, "SILENT_S", 8.0)
    monkeypatch.setattr(liveness, "_LEAST_MS", 6_000)
    monkeypatch.setattr(replication_reader, "EVERY_S", 0.5)
    monkeypatch.setattr(replication_reader, "BELIEVED_S", 5.0)
    with ExitStack() as stack:
        yield ShownScene(stack, tmp_path, capsys)


def lasting(document: Any) -> Any:
    """The document without ages."""
    if isinstance(document, dict):
        return {key: lasting(value) for key, value in document.items() if key not in AGES}
    return [lasting(one) for one in document] if isinstance(document, list) else document


def test_status_and_page_are_as_group_and_task_are(scene, kafka, registry, fresh_database):
    group, sources = unique_name("group"), []
    for server in map(database, ("mysql80", "mysql97")):
        source = Source(server, fresh_database(server), kafka.bootstrap_servers)
        scene.stack.callback(source.connection.close)
        source.execute(SIGNAL, "CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)")
        sources.append(source)
    one, two = sources
    target = database("mariadb114")
    mappings = {source.name: mapping_of(source, registry.url, group=group) for source in sources}
    files = {name: scene.file(name, mapping) for name, mapping in mappings.items()}
    task: dict[str, Any] = {
        "task": f"copy-{one.name}", "order": "global", "group": group,
        "sources": [{"name": source.name, "exclude_tables": [".*tidemark_signal"]} for source in sources],
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers}, "format": {"registry": registry.url},
        "target": {"type": "mysql", "host": target.host, "port": target.port, "user": target.user, "password": target.password,
                   "tls": {"mode": "disabled"}},
    }  # fmt: skip
    path = scene.file("task", task)
    config = ("--config", str(files[one.name]))
    page = scene.page(mappings[one.name], task)

    def by_command() -> Any:
        document = json.loads(scene.command("status", "--task", str(path), "--output", "json", *config))
        assert lasting(json.loads(scene.command("ctl", "status", str(path), "--output", "json"))).keys() <= document.keys()
        return document

    def everywhere(is_so: Callable[[Any, dict[str, Any], Any], bool], event: str) -> Any:
        """Wait until command and page show it: the task, the sources of the group, the group."""

        def shows(document: Any) -> bool:
            (shown,), (members,) = document["tasks"], document["groups"]
            return is_so(shown, {source["source"]: source for source in members["sources"]}, members)

        until(lambda: shows(by_command()), f"the command shows: {event}")
        until(lambda: shows(page.json("tasks")), f"the page shows: {event}")
        return by_command()

    everywhere(
        lambda task, sources, group: task["state"] == "unknown" and "never" in task["problem"] and "no members" in group["problem"] and not sources,
        "nothing has run",
    )  # fmt: skip
    for source in sources:
        scene.start(source.name, "run", "--config", str(files[source.name]))
    scene.start("task", "task", "run", str(path))
    shown = everywhere(
        lambda task, sources, _: task["state"] == "running" and len(sources) == 2 and task["blocked_by"] in sources
        and all(source["state"] == "online" and source["producer"] == "reading" for source in sources.values()),
        "all run",
    )  # fmt: skip
    until(lambda: all(rows_of(target, source.schema, "a") == [(1,)] for source in sources), "it is loaded")
    (group_shown,) = shown["groups"]
    assert all(abs(source["skew_us"]) < 1_000_000 and source["since_ms"] for source in group_shown["sources"])
    assert [(reader["reader"], reader["state"]) for reader in group_shown["readers"]] == [(task["task"], "running")]
    assert group_shown["readers"][0]["since_ms"] > 0
    until(lambda: page.json("problems") == [], "nothing needs attention")
    html = page.get("/tasks").text
    assert all(name in html for name in (task["task"], *files, "running", "ahead"))

    scene.command("ctl", "source", "pause", two.name, *config)
    everywhere(lambda task, sources, _: sources[two.name]["state"] == "paused" and task["blocked_by"] == two.name, "one is paused")
    scene.command("ctl", "source", "resume", two.name, *config)
    everywhere(lambda _, sources, __: sources[two.name]["state"] == "online", "it is resumed")

    scene.kill(two.name)
    everywhere(
        lambda task, sources, _: (sources[two.name]["state"], sources[two.name]["producer"], sources[two.name]["skew_us"])
        == ("online", "silent", None) and task["blocked_by"] == two.name,
        "a producer is dead",
    )  # fmt: skip
    assert any(f"source {two.name}: readers wait for it" in problem["what"] for problem in page.json("problems"))
    text = scene.command("status", "--task", str(path), *config)
    assert next(line for line in text.splitlines() if line.startswith(two.name)).split()[-3:] == ["silent", "unknown", "-"]
    scene.start(two.name, "run", "--config", str(files[two.name]))
    everywhere(lambda _, sources, __: sources[two.name]["producer"] == "reading", "it runs again")
    scene.command("ctl", "source", "close", two.name, *config)
    everywhere(
        lambda task, sources, _: (sources[two.name]["state"], sources[two.name]["producer"]) == ("offline", "not_running")
        and task["blocked_by"] == one.name,
        "one is closed",
    )  # fmt: skip

    scene.kill("task")
    everywhere(lambda task, _, __: task["state"] == "silent", "the task is dead")
    assert "its process is silent" in str(page.json("problems"))
    with SilentPeer() as peer:
        silent = {**task, "target": {**task["target"], "port": peer.port, "connect_timeout_s": 600}}
        gone = {**task, "task": "gone", "target": {**task["target"], "port": free_port()}}
        other = scene.page(mappings[one.name], silent, gone)
        until(lambda: "refused" in str(other.json("tasks")["tasks"][1]["problem"]), "a target is stopped")
        until(lambda: "no answer in" in str(other.json("tasks")["tasks"][0]["problem"]), "a target does not answer")
        until(lambda: other.json("tasks")["groups"][0]["problem"] is None, "the group is known")
        for shown in other.json("tasks")["tasks"]:
            assert (shown["state"], shown["sources"], shown["released_us"]) == ("unknown", [], None)
        html = other.get("/parts/tasks").text
        assert html.count("Nothing is known of it") == 2
        assert "running" not in html.partition("data-group")[0]
    lost = {**mappings[one.name], "kafka": {"bootstrap_servers": f"127.0.0.1:{free_port()}"}}
    unreached = scene.page(lost, {**task, "kafka": lost["kafka"]})
    until(lambda: unreached.json("tasks")["groups"][0]["problem"] is not None, "Kafka is gone")
    assert {"unknown"} == {problem["word"] for problem in unreached.json("problems")}
