from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.settings import from_mapping
from schemas.topics import state_topic
from tests.support.servers import unique_name
from tidemark.embedded import Kafka
from tidemark.observe import Observer, Status

TOPIC = {"database": "shop", "table": "orders", "partitions": 4}
LOG = {
    "v": 1, "epoch": 0, "file": "binlog.000003", "gtid_set": "", "server": "u", "committed_ms": 1,
    "position": "0000.0000000003.000000001155.0000000000",
}  # fmt: skip
COMMITTED = [100, 300]


def followed(observer: Observer, pos: int) -> Status:
    """A commit is seen a moment after Kafka has answered it, partition by partition; nothing of what was aborted ever is."""
    deadline = time.monotonic() + 120
    while True:
        status = observer.read()
        if status.log is not None and status.log.pos == pos and status.tables:
            return status
        assert status.log is None or status.log.pos in COMMITTED[: COMMITTED.index(pos) + 1]
        assert time.monotonic() < deadline, f"{pos} was committed, and is not seen: {status.log}"


def test_the_observer_follows_committed_state_only(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.observe._READ_S", 120.0)
    monkeypatch.setattr("tidemark.observe._BROKER_S", 120.0)
    name = unique_name("observe")
    servers = kafka.bootstrap_servers
    settings = from_mapping(
        {
            "name": name,
            "source": {"tables": ["shop\\..*"]},
            "kafka": {"bootstrap_servers": servers},
            "sinks": [{"path": str(tmp_path)}],
        }
    )
    with Observer(settings) as observer:
        assert observer.read().log is None  # the topic does not exist yet

        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(state_topic(name), 2)])[state_topic(name)].result(120)
        assert observer.read().log is None

        producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
        producer.init_transactions(120)
        for pos in (100, 200, 300):
            producer.begin_transaction()
            producer.produce(state_topic(name), json.dumps({**LOG, "pos": pos}), "offset", partition=0)
            producer.produce(state_topic(name), json.dumps(TOPIC), "topics/shop.orders", partition=1)
            assert producer.flush(120) == 0
            if pos not in COMMITTED:
                producer.abort_transaction(120)
                continue
            producer.commit_transaction(120)
            status = followed(observer, pos)
            assert [table.table for table in status.tables] == ["shop.orders"]

        progress = tmp_path / "_tidemark" / "progress.json"
        progress.parent.mkdir()
        progress.write_text(json.dumps({"updated_ms": 5, "caught_up": True, "tables": {}}), "utf-8")
        assert observer.read().caught_up
