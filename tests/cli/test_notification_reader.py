from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devservers import Kafka
from kafkaio.topic_admin import TopicAdmin
from schemas.errors import DecodeError
from schemas.notifications import Notification, signal_rejected
from schemas.settings import from_mapping
from tests.support.encoded_notifications import as_avro, as_json
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, unique_name
from tidemark.api.notification_reader import NotificationReader, parse

NOTIFICATION = signal_rejected(
    "shop", "sig-1", "execute-snapshot", 1_700_000_000_123, "data is not valid JSON: ü 😀"
)


@pytest.mark.parametrize(
    "value",
    [
        as_json(NOTIFICATION)[1],
        as_json(NOTIFICATION, schemas=True)[1],
        as_avro(NOTIFICATION)[1],
    ],
    ids=["json", "json with schema", "avro"],
)
def test_a_notification_is_read_back_in_every_format(value: bytes) -> None:
    assert parse(value) == NOTIFICATION


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(), st.dictionaries(st.text(), st.text(max_size=300)), st.integers(0, 2**62))
def test_avro_notifications_survive_any_text(text: str, data: dict[str, str], timestamp: int) -> None:
    notification = Notification(text, text, text, timestamp, data)

    assert parse(as_avro(notification)[1]) == notification


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"{}", b"\0\0\0\0\x01", b"\0\0\0\0\x01\x08ab"])
def test_what_is_no_notification_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError, match="not a notification"):
        parse(value)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers may need a while to report a topic that exists."""
    monkeypatch.setattr("tidemark.api.notification_reader._MADE_S", 120.0)


def test_a_topic_that_was_made_just_now_is_waited_for(kafka: Kafka, patient: None) -> None:
    """Kafka answers the creation of a topic before its partitions have leaders that know of it."""
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    admin = AdminClient(servers)
    for _ in range(5):
        name = unique_name("told")
        document = {"name": name, "source": {"tables": ["a.b"]}, "kafka": {"bootstrap_servers": kafka.bootstrap_servers}}
        known = from_mapping(document)
        admin.create_topics([NewTopic(f"{name}.notifications", 30, 1)])[f"{name}.notifications"].result()
        with NotificationReader(known) as reader:
            assert reader.answer("none", time.monotonic()) is None
        admin.delete_topics([f"{name}.notifications"])[f"{name}.notifications"].result()


def test_answers_are_read_where_the_topic_was_made_with_more_partitions(kafka: Kafka, patient: None) -> None:
    """A consumer that came before the first start has the broker make it, with what it has by default."""
    name = unique_name("told")
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({f"{name}.notifications": 3})
    document = {"name": name, "source": {"tables": ["a.b"]}, "kafka": {"bootstrap_servers": kafka.bootstrap_servers}}
    with NotificationReader(from_mapping(document)) as reader:
        producer = RecordProducer(servers)
        producer.produce(f"{name}.notifications", as_json(NOTIFICATION)[1], partition=2)
        producer.flush(120)
        assert reader.answer("sig-1", time.monotonic() + 120) == NOTIFICATION
