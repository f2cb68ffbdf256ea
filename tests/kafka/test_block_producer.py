"""Blocks of records that librdkafka takes by one call: the same records as one by one, in the same order and partitions."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from devservers import Kafka
from kafkaio import block_producer as block_producer_module
from kafkaio.block_producer import Texts, block_producer
from kafkaio.topic_admin import TopicAdmin
from producer.kafka import publisher as publisher_module
from producer.kafka.publisher import TransactionalPublisher
from rowcodec import Records
from schemas.errors import FencedError, PublishError
from tests.support.servers import cluster, unique_name
from tests.support.topics import read_topic

Pair = tuple[bytes | None, bytes]


def block(pairs: list[Pair]) -> Records:
    """Records of these keys and values; either all have a key, or none."""
    count, has_key = len(pairs), bool(pairs) and pairs[0][0] is not None
    keys, values = [key or b"" for key, _ in pairs], [value for _, value in pairs]
    return Records(
        count=count,
        rows=count,
        values=b"".join(values),
        value_offsets=np.cumsum([0, *map(len, values)], dtype=np.int64),
        is_tombstone=np.zeros(count, np.uint8),
        keys=b"".join(keys),
        key_offsets=np.cumsum([0, *map(len, keys)], dtype=np.int64),
        has_key=has_key,
        ops=np.full(count, ord("c"), np.uint8),
        related=np.full(count, -1, np.int32),
    )


def write_on(publisher: TransactionalPublisher, topic: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        publisher.write(topic, block(some(200)))
        time.sleep(0.05)


def some(count: int, keys: int = 97) -> list[Pair]:
    random_bytes = random.Random(1).randbytes
    return [(b"key %d" % (number % keys), b"%d " % number + random_bytes(number % 50)) for number in range(count)]


def opened(kafka: Kafka, topic: str, options: dict[str, object] | None = None, partitions: int = 3) -> TransactionalPublisher:
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: partitions})
    publisher = TransactionalPublisher(cluster(kafka.bootstrap_servers), topic, options or {})
    publisher.fence()
    assert publisher._blocks is not None, "with the confluent-kafka that is installed, blocks are not used"
    return publisher


@pytest.mark.parametrize("pairs", [some(20_000), [(None, value) for _, value in some(300)]], ids=["keys", "no key"])
def test_a_block_is_what_single_records_are(pairs: list[Pair], kafka: Kafka) -> None:
    topics = [unique_name("block") for _ in range(2)]
    for topic, is_block in zip(topics, (True, False), strict=True):
        publisher = opened(kafka, topic)
        if not is_block:
            publisher._blocks = None
        publisher.write(topic, block(pairs))
        assert publisher.uncommitted == len(pairs)
        assert publisher.uncommitted_bytes == sum(len(key or b"") + len(value or b"") for key, value in pairs)
        publisher.commit()
        assert (publisher.uncommitted, publisher.uncommitted_bytes) == (0, 0)
        publisher.close()
    blocks, single = (read_topic(kafka.bootstrap_servers, topic, raw=True) for topic in topics)
    if pairs[0][0] is None:  # without a key a record goes anywhere
        assert sorted((one.key, one.value) for one in blocks) == sorted((one.key, one.value) for one in single)
        return
    found = [(one.partition, one.key, one.value) for one in blocks]
    assert len(found) == len(pairs)
    assert found == [(one.partition, one.key, one.value) for one in single]


def test_what_the_client_has_no_room_for_comes_later_and_in_order(kafka: Kafka) -> None:
    topic, pairs = unique_name("full"), some(30_000)
    publisher = opened(kafka, topic, {"queue.buffering.max.messages": 700, "linger.ms": 0})
    assert publisher._blocks is not None
    asked: list[int] = []
    produce = publisher._blocks.produce

    def counted(topic: str, values: Texts, keys: Texts | None, begin: int) -> object:
        asked.append(begin)
        return produce(topic, values, keys, begin)

    publisher._blocks.produce = counted  # type: ignore[method-assign, assignment]
    publisher.write(topic, block(pairs))
    publisher.commit()
    publisher.close()
    assert len(asked) > 10, "its queue was never full"
    found = read_topic(kafka.bootstrap_servers, topic, raw=True)
    for key in {key for key, _ in pairs}:
        assert [one.value for one in found if one.key == key] == [value for known, value in pairs if known == key]


def test_a_record_that_is_too_large_is_an_error_that_says_so(kafka: Kafka) -> None:
    topic, pairs = unique_name("large"), some(200)
    pairs[150] = (b"large", bytes(3_000_000))
    publisher = opened(kafka, topic, {"message.max.bytes": 2 << 20})
    with pytest.raises(PublishError, match=r"produce to .*A record may have 2 MiB here"):
        publisher.write(topic, block(pairs))
    publisher.abort()
    publisher.close()
    assert read_topic(kafka.bootstrap_servers, topic, raw=True) == []


def test_a_publisher_that_was_taken_over_learns_of_it_from_a_block(kafka: Kafka) -> None:
    topic = unique_name("taken-over")
    first, second = opened(kafka, topic, {"linger.ms": 0}), opened(kafka, topic, {"linger.ms": 0})
    with pytest.raises(FencedError, match="has taken over"):
        write_on(first, topic)
    first.close()
    second.close()


def test_a_topic_that_is_none_is_an_error(kafka: Kafka) -> None:
    publisher = opened(kafka, unique_name("wrong"))
    with pytest.raises(PublishError, match="produce to "):
        publisher.write("x" * 600, block(some(200)))
    publisher.abort()
    publisher.close()


def test_a_client_that_is_not_certain_to_be_a_producer_gets_single_records(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    named = Producer({**servers, "client.id": "named"})
    assert block_producer(named, "named") is not None
    assert block_producer(named, "other") is None
    assert block_producer(AdminClient(servers), "rdkafka") is None
    block_producer_module._library.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(block_producer_module, "_NEWEST_KNOWN", (2, 11))
        assert block_producer(named, "named") is None
    block_producer_module._library.cache_clear()
    monkeypatch.setattr(publisher_module, "block_producer", lambda *_: None)
    topic, pairs = unique_name("single"), some(500)
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: 1})
    publisher = TransactionalPublisher(cluster(kafka.bootstrap_servers), topic)
    publisher.fence()
    publisher.write(topic, block(pairs))
    publisher.commit()
    publisher.close()
    found = read_topic(kafka.bootstrap_servers, topic, raw=True)
    assert [(one.key, one.value) for one in found] == pairs
