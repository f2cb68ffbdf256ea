"""The publisher and the state topic on a real broker: fencing, all-or-nothing, reading to the very end."""

from __future__ import annotations

import signal
import time
import uuid

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from kafkaio.topic_admin import TopicAdmin
from producer.kafka.publisher import TransactionalPublisher
from producer.kafka.state_topic import StateTopic
from producer.kafka.tables import TableTopics
from schemas.errors import FencedError, PublishError, StateError
from schemas.identity import SourceId
from schemas.settings import KafkaSettings
from tests.chaos.peers import silent
from tests.support.own_broker import own_kafka
from tests.support.servers import cluster
from tests.support.topics import read_topic


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def admin(kafka) -> TopicAdmin:
    return TopicAdmin(cluster(kafka.bootstrap_servers))


@pytest.fixture
def state(kafka, admin, prefix) -> StateTopic:
    topic = StateTopic(SourceId("shop"), f"{prefix}.state", admin, KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    topic.ensure()
    return topic


def publisher_of(kafka, prefix: str) -> TransactionalPublisher:
    publisher = TransactionalPublisher(cluster(kafka.bootstrap_servers), f"{prefix}-log")
    publisher.fence()
    return publisher


def committed_values(kafka, topic: str) -> list[bytes | None]:
    return [record.value for record in read_topic(kafka.bootstrap_servers, topic, raw=True)]


def test_documents_of_committed_transactions_survive_and_deleted_ones_are_gone(kafka, state, prefix):
    publisher = publisher_of(kafka, prefix)
    state.put(publisher, "offset", {"pos": 4})
    state.put(publisher, "window/a", {"bound": "x"})
    publisher.commit()
    state.put(publisher, "offset", {"pos": 5})
    state.put(publisher, "window/a", None)
    publisher.commit()
    publisher.fence()  # as a start does: Kafka has shown the last transaction then
    assert state.read() == {"offset": {"pos": 5}}
    publisher.close()


def test_a_transaction_that_was_not_committed_leaves_nothing_after_its_successor_fenced_it(
    kafka, state, prefix
):
    first = publisher_of(kafka, prefix)
    state.put(first, "offset", {"pos": 4})
    first.commit()
    state.put(first, "offset", {"pos": 99})
    first.flush()
    second = publisher_of(kafka, prefix)
    assert state.read() == {"offset": {"pos": 4}}
    with pytest.raises(FencedError, match="taken over"):
        first.commit()
    second.close()
    first.close()


def test_reading_the_state_fails_when_an_open_transaction_hides_its_end(kafka, state, prefix):
    other = TransactionalPublisher(cluster(kafka.bootstrap_servers), f"{prefix}-other")
    other.fence()
    state.put(other, "offset", {"pos": 7})
    other.flush()
    with pytest.raises(StateError, match="could not be read to its end"):
        state.read()
    other.abort()
    other.close()


def test_a_kafka_that_goes_away_meanwhile_is_no_fault_of_the_state(tmp_path, monkeypatch):
    """The start is retried: nobody's transaction hides anything."""
    with own_kafka(tmp_path) as broker:
        admin = TopicAdmin(cluster(broker.bootstrap_servers))
        state = StateTopic(SourceId("t"), "t.state", admin, KafkaSettings(bootstrap_servers=broker.bootstrap_servers))
        state.ensure()
        publisher = publisher_of(broker, "t")
        state.put(publisher, "offset", {"pos": 4})
        publisher.commit()
        publisher.fence()
        ends = admin.end_offsets

        def freezes(topics):
            reported = ends(topics)
            broker._process.signal(signal.SIGSTOP)
            return reported

        monkeypatch.setattr(admin, "end_offsets", freezes)
        try:
            with monkeypatch.context() as patch:
                patch.setattr("kafkaio.committed_reader.SILENCE_S", 3.0)
                with pytest.raises(PublishError, match=r"t\.state cannot be read: Kafka sent nothing for 3"):
                    state.read()
        finally:
            broker._process.signal(signal.SIGCONT)
        monkeypatch.setattr(admin, "end_offsets", ends)
        assert state.read() == {"offset": {"pos": 4}}
        hasty = TopicAdmin(cluster(broker.bootstrap_servers), answer_s=1.0)
        assert hasty.end_offsets([state.topic]) == ends([state.topic])
        monkeypatch.setattr(admin, "end_offsets", hasty.end_offsets)
        with silent(broker.pid), pytest.raises(PublishError):  # and no state without an end
            state.read()
        assert hasty.end_offsets([state.topic]) == ends([state.topic])
        publisher.close()


def test_an_aborted_transaction_is_invisible(kafka, admin, prefix):
    admin.ensure({f"{prefix}.t": 1})
    publisher = publisher_of(kafka, prefix)
    publisher.produce(f"{prefix}.t", b"gone")
    publisher.flush()
    publisher.abort()
    publisher.produce(f"{prefix}.t", b"kept")
    publisher.commit()
    assert committed_values(kafka, f"{prefix}.t") == [b"kept"]
    publisher.close()


def test_end_offsets_inside_an_open_transaction_count_its_acknowledged_records(kafka, admin, prefix):
    topic = f"{prefix}.t"
    admin.ensure({topic: 2})
    publisher = publisher_of(kafka, prefix)
    for _ in range(3):
        publisher.produce(topic, b"x", partition=1)
    publisher.flush()
    assert admin.end_offsets([topic]) == {topic: {0: 0, 1: 3}}
    publisher.abort()
    publisher.close()


def test_a_transaction_is_long_open_by_a_share_of_the_timeout_that_the_options_name(kafka, admin, prefix):
    admin.ensure({f"{prefix}.t": 1})
    publisher = TransactionalPublisher(cluster(kafka.bootstrap_servers), f"{prefix}-short", {"transaction.timeout.ms": "400000"})
    publisher.fence()
    publisher.produce(f"{prefix}.t", b"x")
    assert not publisher.is_long_open
    publisher._begun_s -= 61  # of 400 s, 60 are not long
    assert publisher.is_long_open
    publisher.abort()
    assert not publisher.is_long_open
    publisher.close()


def test_ends_of_more_partitions_than_are_asked_for_at_once(admin, prefix, monkeypatch):
    monkeypatch.setattr("kafkaio.topic_admin._ASKED_AT_ONCE", 2)
    topics = {f"{prefix}.t{number}": number for number in range(1, 4)}
    admin.ensure(topics)
    assert admin.end_offsets(topics) == {name: dict.fromkeys(range(count), 0) for name, count in topics.items()}


def test_ends_of_topics_whose_leader_was_not_known_at_first(admin, prefix):
    """Topics are new for every attempt: one of a hundred had never been answered."""
    for attempt in range(100):
        topics = {f"{prefix}.t{attempt}.{number}": number for number in range(1, 4)}
        admin.ensure(topics)
        assert admin.end_offsets(topics) == {name: dict.fromkeys(range(count), 0) for name, count in topics.items()}


def look_for_a_while(tables: TableTopics) -> None:
    """The broker reports what its controller has done, a moment later."""
    for step in range(1, 1200):
        tables.require_unchanged(1000.0 * step)
        time.sleep(0.1)


def test_partitions_added_while_it_runs_are_noticed(kafka, admin, prefix):
    tables = TableTopics(prefix, admin, 2)
    tables.ensure("shop", "orders")
    tables.require_unchanged(100.0)
    topic = f"{prefix}-snapshot.shop.orders"
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    tables.require_unchanged(109.0)
    with pytest.raises(StateError, match=r"snapshot\.shop\.orders has 3 partitions, 2 were expected"):
        look_for_a_while(tables)


def test_a_changed_partition_count_is_refused(kafka, admin, prefix):
    tables = TableTopics(prefix, admin, 2)
    tables.ensure("shop", "orders")
    documents = tables.pop_unsaved()
    assert documents["topics/shop.orders"]["partitions"] == 2
    again = TableTopics(prefix, TopicAdmin(cluster(kafka.bootstrap_servers)), 4)
    again.restore(documents)
    assert again.known() == [("shop", "orders")]
    documents["topics/shop.orders"]["partitions"] = 3
    with pytest.raises(StateError, match="has 2 partitions, 3 were expected"):
        TableTopics(prefix, TopicAdmin(cluster(kafka.bootstrap_servers)), 4).restore(documents)
