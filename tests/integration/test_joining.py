"""Sources of two servers join a group: a reader acknowledges them first, and has one order of all, also through deaths."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kafkaio.shared_log import SharedLog
from kafkaio.topic_admin import TopicAdmin
from producer.group.joined_source import waits_in_group
from schemas.members import SourcePhase
from schemas.topics import members_topic
from tests.integration.group_scene import GroupScene, started, until


@pytest.fixture
def scene(kafka, registry, fresh_database) -> Iterator[GroupScene]:
    with ExitStack() as stack:
        yield GroupScene(fresh_database, kafka.bootstrap_servers, registry.url, stack)


def test_a_third_source_joins_without_loss(scene):
    """T2 of the peers: 8 is committed by a source that joins while 9 and 10 of the others can be read already."""
    one, two, three = (scene.source("mysql80") for _ in range(3))
    started(one, two)
    reader = scene.reader("r", one, two, three)
    for number in range(1, 8):
        (two if number in {2, 4, 6} else one).insert(number)
        time.sleep(0.02)
    reader.follow_until(lambda: reader.released == [1, 2, 3, 4, 5, 6, 7])
    three.start()
    until(lambda: three.is_admitted or "r to acknowledge" in waits_in_group(), "it waits")
    if not three.is_admitted:
        assert three.commits() == []
        reader.turn()
        until(lambda: three.is_admitted, "the reader has acknowledged it")
    for number, source in ((8, three), (9, one), (10, two), (12, three)):
        source.insert(number)
        time.sleep(0.2)
    reader.read(one.name, two.name)
    assert reader.release() == [1, 2, 3, 4, 5, 6, 7], "the third one is not read yet"
    reader.follow_until(lambda: len(reader.released) == 11)
    assert reader.released == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]
    floor_us = scene.members(three).sources[three.name].record.floor_us
    assert three.commits()[0][1].since_us == floor_us > 0


def test_sources_of_two_servers_have_one_order_and_a_restart_appends_nothing(scene):
    one, two = scene.source("mysql80"), scene.source("mariadb114")
    started(one, two)
    reader = scene.reader("r", one, two)
    one.insert(1)
    two.insert(2)
    reader.follow_until(lambda: sorted(reader.released) == [1, 2])
    end, joins = scene.members(one).end, [one.join(), two.join()]
    for source in (one, two):
        source.end()
        source.insert(3 if source is one else 4)
    started(one, two)
    reader.follow_until(lambda: sorted(reader.released) == [1, 2, 3, 4])
    assert scene.members(one).end == end
    assert [one.join(), two.join()] == joins
    numbers = [record.n for _, record in one.commits()]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("server", ["mysql80", pytest.param("mariadb114", marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_written", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_producer_that_dies_at_an_append_joins_once(scene, monkeypatch, server, count, is_written):
    source = scene.source(server)
    reader = scene.reader("r", source)
    append, left = SharedLog.append, [count]

    class DiesError(BaseException):
        pass

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
    run = source.start()
    reader.follow_until(lambda: bool(run.failures))
    assert isinstance(run.failures[0], DiesError)
    assert source.commits() == []
    source.start()
    reader.follow_until(lambda: source.is_admitted)
    source.insert(1, 2)
    reader.follow_until(lambda: reader.released == [1, 2])
    member = scene.members(source).sources[source.name]
    assert (member.state, member.join) == (SourcePhase.ONLINE, source.join())
    assert source.commits()[0][1].since_us == member.record.floor_us


def test_a_join_that_waits_ends_at_once_when_it_is_asked_to(scene):
    source = scene.source("mysql80")
    scene.reader("dead", source)
    source.start()
    until(lambda: "dead to acknowledge" in waits_in_group(), "it waits")
    began = time.monotonic()
    source.end()
    assert time.monotonic() - began < 3
    source.run.check()
    assert waits_in_group() == ""
    assert source.commits() == []


def test_a_source_that_cannot_start_does_not_join(scene):
    """It would hold the frontier of all readers until somebody has corrected its settings."""
    source = scene.source("mysql80")
    source.source.execute("CREATE TABLE `x#` (id INT PRIMARY KEY)", "CREATE TABLE `x_` (id INT PRIMARY KEY)")
    run = source.start()
    run.thread.join(60)
    assert "would share the topic" in str(run.failures[0])
    assert TopicAdmin(source.settings.kafka).partitions_now([members_topic(scene.group)]) == {}


def test_a_producer_that_was_replaced_while_it_waits_appends_nothing(scene):
    source = scene.source("mysql80")
    reader = scene.reader("r", source)
    first = source.start()
    until(lambda: "r to acknowledge" in waits_in_group(), "it waits")
    join = scene.members(source).sources[source.name].join
    source.start()
    until(lambda: scene.members(source).sources[source.name].join > join, "another process joins")
    reader.follow_until(lambda: source.is_admitted)
    source.insert(1)
    reader.follow_until(lambda: reader.released == [1])
    first.thread.join(60)
    assert "has taken over" in str(first.failures[0])
