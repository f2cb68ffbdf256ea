"""The log that processes share, on a real broker: each appends and reads, one that was replaced does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from devservers import Kafka
from kafkaio.shared_log import SharedLog
from kafkaio.topic_admin import TopicAdmin
from schemas.errors import FencedError, StateError
from schemas.member_log import MEMBERS_CONFIG, FollowedMembers
from schemas.members import (
    ReaderEntry,
    ReaderPhase,
    SourceEntry,
    SourcePhase,
    WaitFor,
    next_step,
    reader_key,
    source_key,
)
from schemas.topics import members_topic
from tests.support.servers import cluster, unique_name


class Scene:
    def __init__(self, kafka: Kafka, stack: ExitStack) -> None:
        self.settings, self.stack = cluster(kafka.bootstrap_servers), stack
        self.topic = members_topic(unique_name("group"))
        self.admin = TopicAdmin(self.settings)
        self.admin.ensure_single(self.topic, MEMBERS_CONFIG)

    def log(self, transactional_id: str = "") -> SharedLog:
        one = self.stack.enter_context(closing(SharedLog(self.settings, self.topic, f"{self.topic}-{transactional_id}")))
        if transactional_id:
            one.fence()
        return one


@pytest.fixture
def scene(kafka: Kafka) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(kafka, stack)


def test_each_process_reads_the_records_of_all_at_their_offsets(scene: Scene) -> None:
    one, other = scene.log("one"), scene.log("other")
    assert one.begin() == other.begin() == 0
    offsets = [(one if number % 3 else other).append(b"k%d" % number, b"v%d" % number) for number in range(6)]
    assert sorted(set(offsets)) == offsets
    late = scene.log()
    late.begin()
    for log in (one, other, late):
        assert [(record.offset, record.key) for record in log.read(offsets[-1] + 1)] == [(at, b"k%d" % number) for number, at in enumerate(offsets)]
        assert list(log.read()) == []
    assert scene.log().begin() > offsets[-1]
    at = other.append(b"more", b"")
    assert [record.offset for record in one.read(at + 1)] == [at]


def test_a_process_that_was_replaced_appends_nothing(scene: Scene) -> None:
    first = scene.log("source")
    before = first.append(b"k", b"first")
    second = scene.log("source")
    with pytest.raises(FencedError):
        first.append(b"k", b"late")
    after = second.append(b"k", b"second")
    second.begin()
    assert [record.offset for record in second.read(after + 1)] == [before, after]


def test_a_source_and_a_reader_see_each_other(scene: Scene) -> None:
    reader, source = FollowedMembers(scene.log("r")), FollowedMembers(scene.log("s"))
    epoch = reader.append(reader_key("r"), ReaderEntry(state=ReaderPhase.RUNNING, sources=frozenset("s")))
    join = source.append(source_key("s"), SourceEntry(state=SourcePhase.JOINING, first=0, end=0))
    assert source.members.is_current("r", epoch)
    assert next_step(source.members, "s", frozenset([join]), 0) == WaitFor(("r",))
    assert reader.follow().sources["s"].join == join


def test_a_topic_that_was_created_again_is_refused(scene: Scene) -> None:
    one = FollowedMembers(scene.log("one"))
    for _ in range(3):
        one.append(reader_key("r"), ReaderEntry(state=ReaderPhase.RUNNING, sources=frozenset("s")))
    scene.admin.delete(scene.topic)
    scene.admin.ensure_single(scene.topic, MEMBERS_CONFIG)
    other = FollowedMembers(scene.log("other"))
    other.append(reader_key("r"), ReaderEntry(state=ReaderPhase.RUNNING, sources=frozenset("s")))
    with pytest.raises(StateError, match="created again"):
        one.follow()
