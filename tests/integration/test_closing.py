"""Sources of a group that are paused, resumed and closed by signals: a reader gets everything, and the producer ends."""

from __future__ import annotations

import json
import signal as signals
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from devservers.processes import free_port
from kafkaio.shared_log import SharedLog
from producer.group.joined_source import waits_in_group
from schemas.members import SourcePhase
from schemas.signals import CLOSE_SOURCE, PAUSE_SOURCE, RESUME_SOURCE
from tests.integration.group_scene import GroupScene, RunningSource, started, until
from tests.integration.test_ordered_stream import Process


@pytest.fixture
def scene(kafka, registry, fresh_database) -> Iterator[GroupScene]:
    with ExitStack() as stack:
        yield GroupScene(fresh_database, kafka.bootstrap_servers, registry.url, stack)


def state(scene: GroupScene, source: RunningSource) -> SourcePhase:
    return scene.members(source).sources[source.name].state


@pytest.mark.parametrize("server", ["mysql80", "mariadb114"])
def test_a_paused_source_holds_the_frontier_until_it_is_resumed(scene, server):
    one, two = scene.source(server), scene.source("mysql80")
    started(one, two)
    reader = scene.reader("r", one, two)
    one.insert(1)
    reader.follow_until(lambda: reader.released == [1])
    one.signal(PAUSE_SOURCE)
    until(lambda: "is paused" in waits_in_group(), "it is paused")
    assert state(scene, one) is SourcePhase.PAUSED
    written = len(one.commits())
    one.insert(2)
    two.insert(3)
    one.signal("log", {"message": "at {}"})
    one.signal(PAUSE_SOURCE)
    reader.read()
    time.sleep(1)
    reader.read()
    assert reader.release() == [1]
    assert reader.merge.blocked_by == one.name
    assert sum(sum(record.rows.values()) for _, record in one.commits()[written:]) == 0
    one.signal(RESUME_SOURCE)
    reader.follow_until(lambda: len(reader.released) == 3)
    assert sorted(reader.released) == [1, 2, 3]
    assert state(scene, one) is SourcePhase.ONLINE
    one.signal(RESUME_SOURCE)
    until(lambda: ("REJECTED", "the source is not paused") in one.answers(), "it is not paused")


def test_a_restart_resumes_a_paused_source(scene):
    source = scene.source("mysql80")
    started(source)
    reader = scene.reader("r", source)
    source.signal(PAUSE_SOURCE)
    until(lambda: "is paused" in waits_in_group(), "it is paused")
    source.insert(1)
    began = time.monotonic()
    source.end()
    assert time.monotonic() - began < 3
    assert state(scene, source) is SourcePhase.PAUSED
    started(source)
    reader.follow_until(lambda: reader.released == [1])
    assert state(scene, source) is SourcePhase.ONLINE


@pytest.mark.parametrize("server", ["mysql80", "mariadb114"])
def test_a_closed_source_is_released_to_its_end_and_leaves(scene, server):
    one, two = scene.source(server), scene.source("mysql80")
    started(one, two)
    reader = scene.reader("r", one, two)
    one.insert(*range(1, 20))
    one.signal(CLOSE_SOURCE)
    until(lambda: "to release its last transactions" in waits_in_group(), "it waits for the reader")
    two.insert(20)
    assert [number for number, (_, record) in enumerate(reversed(one.commits())) if record.is_last] == [0]
    reader.follow_until(lambda: len(reader.released) == 20)
    reader.follow_until(lambda: not one.run.thread.is_alive())
    one.run.check()
    assert state(scene, one) is SourcePhase.OFFLINE
    assert not reader.merge.is_member(one.name)
    offset, record = one.commits()[-1]
    assert record.is_last
    assert scene.members(one).sources[one.name].record.end == offset + 1
    two.insert(21)
    reader.follow_until(lambda: reader.released[-1] == 21)  # the frontier does not wait for the closed one
    one.insert(22)
    one.start()
    reader.follow_until(lambda: one.is_admitted)
    one.insert(23)
    reader.follow_until(lambda: {22, 23} <= {*reader.released})
    assert len(reader.released) == 23


class DiesError(BaseException):
    """The death of a process."""


@pytest.mark.parametrize("is_written", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_producer_that_dies_while_it_closes_closes_after_a_restart(scene, monkeypatch, count, is_written):
    source = scene.source("mysql80")
    started(source)
    reader = scene.reader("r", source)
    source.insert(1, 2)
    append, left = SharedLog.append, [count]

    def dies(self, key, value):
        if not key.startswith(b"source/"):
            return append(self, key, value)
        left[0] -= 1
        if left[0] or is_written:
            offset = append(self, key, value)
        if not left[0]:
            raise DiesError
        return offset

    monkeypatch.setattr(SharedLog, "append", dies)
    source.signal(CLOSE_SOURCE)
    reader.follow_until(lambda: not source.run.thread.is_alive())
    assert isinstance(source.run.failures[0], DiesError)
    source.insert(3)
    source.start()
    if (count, is_written) == (1, False):  # the request was answered, and is in no record: it is asked for again
        until(lambda: source.is_admitted, "it has started")
        source.signal(CLOSE_SOURCE)
    if (count, is_written) == (3, True):
        reader.follow_until(lambda: source.is_admitted)
        assert json.dumps([record.is_last for _, record in source.commits()]).count("true") == 1
        return
    reader.follow_until(lambda: not source.run.thread.is_alive())
    source.run.check()
    assert state(scene, source) is SourcePhase.OFFLINE
    assert [record.is_last for _, record in source.commits()].count(True) == 1
    assert source.commits()[-1][1].is_last
    assert reader.released == ([1, 2, 3] if count == 1 else [1, 2])


def test_the_command_says_that_it_waits_and_ends_with_0(scene, tmp_path):
    """SIGTERM while it waits, kill -9 behind its first member record, and the end of a source that is closed."""
    source = scene.source("mysql80")
    reader = scene.reader("r", source)
    port = free_port()
    mapping = {**source.mapping, "service": {"port": port}}

    def is_unready(words: str) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").close()
        except urllib.error.HTTPError as error:
            return words in error.read().decode()
        except OSError:
            return False
        return False

    for end in (signals.SIGTERM, signals.SIGKILL):
        process = Process(mapping, tmp_path)
        until(lambda: is_unready("reader r to acknowledge"), "it names the reader")
        process.child.signal(end)
        assert process.child.wait(10)
        assert process.child.status == (0 if end is signals.SIGTERM else 128 + end)
        assert source.commits() == []
    process = Process(mapping, tmp_path)
    reader.follow_until(lambda: bool(source.commits()))
    source.insert(1)
    source.signal(CLOSE_SOURCE)
    until(lambda: is_unready("reader r to release its last transactions"), "it names the reader")
    reader.follow_until(lambda: process.child.status is not None)
    assert process.child.status == 0
    assert reader.released == [1]
    assert state(scene, source) is SourcePhase.OFFLINE
