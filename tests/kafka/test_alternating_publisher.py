"""Two transactional ids in turns: what one process began to commit, and what it wrote meanwhile, when another takes over."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devservers import Kafka
from kafkaio.topic_admin import TopicAdmin
from producer.kafka.alternating_publisher import AlternatingPublisher
from producer.kafka.publisher import TransactionalPublisher
from schemas.errors import FencedError, PublishError
from tests.support.servers import cluster, unique_name
from tests.support.topics import read_topics

SOON = {"linger.ms": 0}


class Scene:
    def __init__(self, kafka: Kafka) -> None:
        self.servers = kafka.bootstrap_servers
        self.topic = unique_name("alternating")
        TopicAdmin(cluster(self.servers)).ensure({self.topic: 1})
        self.opened: list[AlternatingPublisher | TransactionalPublisher] = []

    def pair(self) -> AlternatingPublisher:
        """Return a publisher that has taken over both ids."""
        one = AlternatingPublisher(cluster(self.servers), self.topic, SOON)
        self.opened.append(one)
        one.fence()
        return one

    def of_id(self, ident: str) -> TransactionalPublisher:
        one = TransactionalPublisher(cluster(self.servers), ident, SOON)
        self.opened.append(one)
        one.fence()
        return one

    def values(self) -> list[bytes]:
        return [one.value for one in read_topics(self.servers, [self.topic], raw=True)[self.topic]]


@pytest.fixture
def scene(kafka: Kafka) -> Iterator[Scene]:
    one = Scene(kafka)
    yield one
    for publisher in one.opened:
        publisher.close()


def settled(publisher: AlternatingPublisher) -> None:
    """Wait for the answer without asking for it."""
    deadline = time.monotonic() + 60
    while not publisher.is_answered and time.monotonic() < deadline:
        time.sleep(0.005)


def test_records_are_in_the_order_in_which_they_were_produced(scene: Scene) -> None:
    publisher = scene.pair()
    for number in range(60):
        publisher.produce(scene.topic, b"%d" % number)
        if number % 3 == 2:
            publisher.commit_later()
        if number % 20 == 10:
            publisher.commit()
    publisher.settle()
    assert scene.values() == [b"%d" % number for number in range(60)]


def test_of_two_that_take_over_at_once_one_has_both_ids(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producer.kafka.alternating_publisher._TOGETHER_S", 1.0)
    frozen = AlternatingPublisher(cluster(scene.servers), scene.topic, SOON)
    scene.opened.append(frozen)
    take_over = frozen._other.fence
    others = []

    def fence() -> None:
        if not others:  # between its ids it stands still, and another process starts
            others.append(scene.pair())
            time.sleep(1.0)
        take_over()

    monkeypatch.setattr(frozen._other, "fence", fence)
    frozen.fence()
    for number in range(4):
        frozen.produce(scene.topic, b"%d" % number)
        frozen.commit()
    others[0].produce(scene.topic, b"late")
    with pytest.raises(FencedError):
        others[0].commit()
    assert scene.values() == [b"%d" % number for number in range(4)]


def test_a_process_that_was_taken_over_commits_neither_transaction(scene: Scene) -> None:
    first = scene.pair()
    first.produce(scene.topic, b"begun")
    first.commit_later()
    settled(first)
    first.produce(scene.topic, b"old")
    first.flush()
    second = scene.pair()
    second.produce(scene.topic, b"new")
    second.commit()
    with pytest.raises(FencedError):
        first.commit()
    assert scene.values() == [b"begun", b"new"]


@pytest.mark.parametrize("begins_with", [0, 1])
def test_of_whichever_id_the_open_transaction_is_a_take_over_ends_it(begins_with: int, scene: Scene) -> None:
    first = scene.pair()
    for _ in range(begins_with):
        first.produce(scene.topic, b"before")
        first.commit()
    first.produce(scene.topic, b"old")
    first.flush()
    scene.pair()
    with pytest.raises((FencedError, PublishError)):
        first.commit()
    assert scene.values() == begins_with * [b"before"]


def test_what_follows_a_commit_that_failed_is_never_visible(scene: Scene) -> None:
    """Somebody takes over the id whose commit is about to begin, and that id alone; the other could still commit."""
    first = scene.pair()
    first.produce(scene.topic, b"lost")
    first.flush()
    commit = first._current.commit

    def late() -> None:
        scene.of_id(scene.topic)
        commit()

    first._current.commit = late  # type: ignore[method-assign]
    first.commit_later()
    first.produce(scene.topic, b"behind")
    first.flush()
    for call in (first.settle, first.commit, first.commit_later, first.abort, first.settle):
        with pytest.raises((FencedError, PublishError)):
            call()
    second = scene.pair()
    second.produce(scene.topic, b"again")
    second.commit()
    assert scene.values() == [b"again"]


def test_closing_does_not_wait_for_a_kafka_that_does_not_answer(scene: Scene) -> None:
    publisher = scene.pair()
    publisher.produce(scene.topic, b"begun")
    publisher.flush()

    def never(_seconds: float) -> None:
        from confluent_kafka import KafkaError, KafkaException

        time.sleep(0.1)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    publisher._current.commit = lambda: TransactionalPublisher._in_turns(publisher._other, never, "commit")  # type: ignore[method-assign]
    publisher.commit_later()
    began = time.monotonic()
    publisher.close()
    assert time.monotonic() - began < 20


WRITER = """
    import sys
    from producer.kafka.alternating_publisher import AlternatingPublisher
    from schemas.settings import KafkaSettings
    servers, topic, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
    publisher = AlternatingPublisher(KafkaSettings(bootstrap_servers=servers), topic, {"linger.ms": 0})
    publisher.fence()
    print("fenced", flush=True)
    first = int(sys.stdin.readline())
    for number in range(first, 1_000_000):
        publisher.produce(topic, b"%d" % number)
        if number % 7 == 0:
            publisher.produce(topic + ".state", b"%d" % (number + 1))
            publisher.commit_later()
    """


def test_killed_at_any_moment_what_is_committed_is_a_beginning_of_what_was_written(scene: Scene) -> None:
    """The next process continues behind the offset that it finds: each number is there once, in its order."""
    state = f"{scene.topic}.state"
    TopicAdmin(cluster(scene.servers)).ensure({state: 1})
    first = 1
    for _ in range(6):
        command = [sys.executable, "-c", textwrap.dedent(WRITER), scene.servers, scene.topic, "0"]
        root = Path(__file__).parents[2]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stdout.readline() == "fenced\n"
            offsets = [int(one.value) for one in read_topics(scene.servers, [state], raw=True)[state]]
            assert offsets == sorted(set(offsets))
            first = offsets[-1] if offsets else 1
            child.stdin.write(f"{first}\n")
            child.stdin.flush()
            time.sleep(random.uniform(0.05, 0.6))
            child.send_signal(signal.SIGKILL)
    scene.pair()
    offsets = [int(one.value) for one in read_topics(scene.servers, [state], raw=True)[state]]
    assert [int(value) for value in scene.values()] == list(range(1, offsets[-1]))
