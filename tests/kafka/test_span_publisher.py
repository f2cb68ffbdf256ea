"""Where the records of each Kafka transaction are: spans of a real broker, through commits in turns, aborts and takeovers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from devservers import Kafka
from kafkaio.topic_admin import TopicAdmin
from producer.kafka.span_publisher import SpanPublisher, WrittenSpans
from tests.support.servers import cluster, unique_name
from tests.support.topics import read_topics

SOON = {"linger.ms": 0}
PARTITIONS = 3


class Scene:
    """Two topics whose spans are asked for, one that is of no interest, and the publishers of one id after the other."""

    def __init__(self, kafka: Kafka) -> None:
        self.servers = kafka.bootstrap_servers
        self.admin = TopicAdmin(cluster(self.servers))
        self.ident = unique_name("spans")
        self.spanned = [f"{self.ident}.a", f"{self.ident}.b"]
        self.other = f"{self.ident}.other"
        self.admin.ensure(dict.fromkeys([*self.spanned, self.other], PARTITIONS))
        self.opened: list[SpanPublisher] = []

    def taken_over(self) -> SpanPublisher:
        one = SpanPublisher(cluster(self.servers), self.ident, self.admin, self.spanned.__contains__, SOON)
        self.opened.append(one)
        one.fence()
        return one


@pytest.fixture
def scene(kafka: Kafka) -> Iterator[Scene]:
    one = Scene(kafka)
    yield one
    for publisher in one.opened:
        publisher.close()


def test_the_spans_of_all_transactions_partition_what_is_visible(scene: Scene) -> None:
    dice, number = random.Random(4), 0
    publisher, written = scene.taken_over(), list[tuple[WrittenSpans, set[bytes]]]()
    later = 0
    for _ in range(25):
        values = dict.fromkeys(scene.spanned, 0)
        sent = set()
        for _ in range(dice.randrange(30)):
            topic = dice.choice([*scene.spanned, scene.other])
            number += 1
            publisher.produce(topic, b"%d" % number, key=b"%d" % dice.randrange(100))
            if topic != scene.other:
                values[topic] += 1
                sent.add(b"%d" % number)
        way = dice.choice(["later", "later", "later", "at once", "dies"])
        if way == "dies":  # some of it was acknowledged
            publisher.flush()
            publisher = scene.taken_over()
            continue
        publisher.flush()
        spans = publisher.pop_spans()
        assert spans.rows == {topic: count for topic, count in values.items() if count}
        assert spans.spans.keys() == spans.rows.keys()
        written.append((spans, sent))
        if way == "later":
            later += 1
            publisher.produce(scene.other, b"sealed")  # is not acknowledged when the next transaction begins
            publisher.commit_flushed()
        else:
            publisher.commit()
    publisher.commit()
    visible = read_topics(scene.servers, scene.spanned, raw=True)
    sealed = [one for one in read_topics(scene.servers, [scene.other], raw=True)[scene.other] if one.value == b"sealed"]
    assert len(sealed) == later
    seen: set[bytes] = set()
    ends: dict[tuple[str, int], int] = {}
    for spans, sent in written:
        inside = set()
        for topic, partitions in spans.spans.items():
            for partition, (first, end) in partitions.items():
                assert first >= ends.get((topic, partition), 0)
                ends[topic, partition] = end
                inside |= {one.value for one in visible[topic] if one.partition == partition and first <= one.offset < end}
        assert inside == sent
        seen |= sent
    assert seen == {one.value for records in visible.values() for one in records}


def test_a_topic_with_records_of_others_begins_behind_them(scene: Scene) -> None:
    before = scene.taken_over()
    for number in range(10):
        before.produce(scene.spanned[0], b"before", partition=number % PARTITIONS)
    before.commit()
    publisher = scene.taken_over()
    publisher.note_ends(scene.spanned)
    publisher.produce(scene.spanned[0], b"new", partition=1)
    publisher.produce(scene.spanned[1], b"new", partition=2)
    publisher.flush()
    rows, spans = publisher.pop_spans()
    publisher.commit()
    assert rows == dict.fromkeys(scene.spanned, 1)
    visible = read_topics(scene.servers, scene.spanned, raw=True)
    for topic in scene.spanned:
        inside = [one for one in visible[topic] if spans[topic].get(one.partition, (0, 0))[0] <= one.offset < spans[topic].get(one.partition, (0, 0))[1]]
        assert [one.value for one in inside] == [b"new"]


def test_topics_of_no_interest_are_never_asked_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, asked = scene.taken_over(), []
    monkeypatch.setattr(scene.admin, "end_offsets", asked.append)
    for _ in range(3):
        publisher.produce(scene.other, b"")
    publisher.flush()
    assert publisher.pop_spans() == WrittenSpans({}, {})
    publisher.commit()
    assert not asked
