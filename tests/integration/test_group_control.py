"""`tidemark ctl` on real servers: members are listed, asked by signals, and put offline although their processes run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import yaml

from devservers.processes import free_port
from producer.group.joined_source import waits_in_group
from schemas.members import ReaderPhase, SourcePhase
from schemas.settings import KafkaSettings
from tests.docs.doc_blocks import ROOT, page_of
from tests.integration.group_scene import GroupScene, RunningSource, started, until
from tidemark import cli
from tidemark.api.group_members import GroupMembers


@pytest.fixture
def scene(kafka, registry, fresh_database) -> Iterator[GroupScene]:
    with ExitStack() as stack:
        yield GroupScene(fresh_database, kafka.bootstrap_servers, registry.url, stack)


@pytest.fixture
def ctl(tmp_path, capsys) -> Callable[..., tuple[int, str]]:
    """The exit code of a command for a source, and its only line or its JSON."""

    def run(source: RunningSource, *arguments: str) -> tuple[int, str]:
        file = tmp_path / "tidemark.yaml"
        file.write_text(yaml.safe_dump(source.mapping), "utf-8")
        capsys.readouterr()
        code = cli.main(["ctl", *arguments, "--config", str(file), "--log-level", "error"])
        printed = capsys.readouterr()
        return code, (printed.out if code == cli.OK else printed.err + printed.out).strip()

    return run


def listed(ctl: Any, source: RunningSource, kind: str) -> dict[str, dict[str, Any]]:
    code, text = ctl(source, kind, "list", "--output", "json")
    assert code == cli.OK
    return {one[kind]: one for one in json.loads(text)[f"{kind}s"]}


def test_a_running_producer_that_is_forced_offline_publishes_nothing_more(scene, ctl):
    one, two = scene.source("mysql80"), scene.source("mariadb114")
    started(one, two)
    reader = scene.reader("r", one, two)
    one.insert(1)
    reader.follow_until(lambda: reader.released == [1])
    code, line = ctl(two, "source", "offline", one.name, "--force", "--reason", "its server burns")
    assert (code, line.partition(":")[0]) == (cli.OK, one.name)
    member, commits = scene.members(one).sources[one.name], one.commits()
    assert (member.state, member.record.reason, member.record.end) == (SourcePhase.OFFLINE, "its server burns", commits[-1][0] + 1)
    one.insert(2)
    one.run.thread.join(60)
    assert one.run.failures, (one.run.waited, one.run.starts, waits_in_group())
    assert "has taken over" in str(one.run.failures[0])
    assert one.commits() == commits
    two.insert(3)
    reader.follow_until(lambda: reader.released == [1, 3])  # the frontier does not wait for it
    shown = listed(ctl, two, "source")
    assert (shown[one.name]["state"], shown[one.name]["reason"]) == ("offline", "its server burns")
    assert shown[two.name]["promise_us"] > 0
    assert "its server burns" in ctl(two, "source", "list")[1]
    code, line = ctl(two, "source", "offline", one.name, "--force", "--reason", "again")
    assert (code, "is offline already" in line) == (cli.USAGE, True)
    one.start()
    reader.follow_until(lambda: one.is_admitted)
    reader.follow_until(lambda: sorted(reader.released) == [1, 2, 3])


def test_the_status_of_a_group_has_all_members_or_the_reason(scene, ctl):
    one, two = scene.source("mysql80"), scene.source("mariadb114")
    code, text = ctl(one, "status")
    assert (code, "has no members yet" in text) == (cli.FAILED, True)
    started(one)
    reader = scene.reader("r", one, two)
    two.start()
    reader.follow_until(lambda: two.is_admitted)
    one.insert(1)
    two.insert(2)
    reader.follow_until(lambda: sorted(reader.released) == [1, 2])
    code, text = ctl(one, "status", "--output", "json")
    (group,) = json.loads(text)["groups"]
    assert (code, group["group"], group["problem"]) == (cli.OK, scene.group, None)
    assert [(each["source"], each["state"]) for each in group["sources"]] == sorted((each.name, "online") for each in (one, two))
    assert [(each["reader"], each["state"]) for each in group["readers"]] == [("r", "running")]
    assert all(each["promise_us"] > 0 for each in group["sources"])
    assert GroupMembers.read_status(one.settings.kafka, scene.group).sources[0].name == min(one.name, two.name)
    dead = KafkaSettings(bootstrap_servers=f"127.0.0.1:{free_port()}")
    assert GroupMembers.read_status(dead, scene.group).problem


def test_a_dead_reader_that_is_put_offline_blocks_no_join(scene, ctl):
    source, other = scene.source("mysql80"), scene.source("mysql80")
    dead = scene.reader("dead", source)
    source.start()
    until(lambda: "dead to acknowledge" in waits_in_group(), "it waits")
    assert listed(ctl, source, "source")[source.name]["waits_for"] == ["dead"]
    assert listed(ctl, source, "reader")["dead"]["blocks"] == [source.name]
    assert ctl(source, "reader", "offline", "dead", "--reason", "its machine is gone")[0] == cli.OK
    until(lambda: source.is_admitted, "it has joined")
    assert scene.members(source).readers["dead"].record.state is ReaderPhase.OFFLINE
    dead.followed.follow()
    assert not dead.membership.is_current
    assert "its machine is gone" in ctl(source, "reader", "list")[1]
    started(other)


def test_a_source_is_paused_resumed_and_closed(scene, ctl):
    source = scene.source("mysql80")
    started(source)
    assert ctl(source, "source", "pause")[0] == cli.OK
    until(lambda: "is paused" in waits_in_group(), "it is paused")
    assert listed(ctl, source, "source")[source.name]["state"] == "paused"
    assert ctl(source, "source", "resume")[0] == cli.OK
    code, line = ctl(source, "source", "resume")
    assert (code, "the source is not paused" in line) == (cli.FAILED, True)
    assert ctl(source, "source", "close")[0] == cli.OK
    source.run.thread.join(60)
    source.run.check()
    assert listed(ctl, source, "source")[source.name]["state"] == "offline"


def test_the_commands_of_the_page_run(scene, ctl):
    source, other = scene.source("mysql80"), scene.source("mysql80")
    started(source, other)
    scene.reader("merge-orders", source, other)
    (block,) = (one.text for one in page_of(ROOT / "docs" / "group.md").blocks if one.language == "shell")
    for line in block.splitlines():
        program, command, *arguments = shlex.split(line.replace("shop-b", other.name))
        assert (program, command) == ("tidemark", "ctl")
        assert ctl(source, *arguments)[0] == cli.OK, line


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["source", "offline"], "--reason: is missing"),
        (["source", "offline", "--reason", "x"], "--force: is missing"),
        (["source", "pause", "--force"], "--force: goes with offline only, not with pause"),
        (["source", "list", "a"], "a: does not go with list"),
        (["reader", "offline", "--reason", "x"], "READER: is missing"),
        (["reader", "offline", "r", "--reason", "x"], "reader r: is not in group"),
        (["source", "pause", "nowhere"], "source nowhere: is not in group"),
    ],
)
def test_bad_input_ends_with_2_and_one_line(scene, ctl, arguments, problem):
    source = scene.source("mysql80")
    if "r" in arguments or "nowhere" in arguments:
        code, line = ctl(source, *arguments)
        assert (code, "has no members yet" in line) == (cli.USAGE, True)
        started(source)
    code, line = ctl(source, *arguments)
    assert code == cli.USAGE
    assert problem in line
    assert "\n" not in line
