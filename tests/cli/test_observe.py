from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from devservers import Kafka
from kafkaio.topic_admin import TopicAdmin
from schemas.errors import PublishError
from schemas.json_codec import encode
from schemas.liveness import Sign, machine
from schemas.settings import from_mapping
from schemas.topics import state_topic
from tests.support.lost_clients import LostClient
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, unique_name
from tidemark.api.observe import Observer
from tidemark.status.lags import LOST, Lag, lags_of
from tidemark.status.status_tree import Status

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


class SlowConsumer(Consumer):
    """A consumer whose broker takes its time over `silent` polls."""

    silent = 0

    def poll(self, timeout: float = -1) -> Message | None:
        if self.silent:
            self.silent -= 1
            return None
        return super().poll(timeout)


def test_what_a_slow_broker_has_not_sent_yet_is_waited_for(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, opened = unique_name("observe"), list[SlowConsumer]()

    def consumer(config: dict[str, str]) -> SlowConsumer:
        opened.append(SlowConsumer(config))
        return opened[-1]

    section = {"bootstrap_servers": kafka.bootstrap_servers}
    settings = from_mapping(
        {
            "name": name,
            "source": {"tables": ["shop\\..*"]},
            "kafka": section,
            "sinks": [{"path": str(tmp_path)}],
        }
    )
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({state_topic(name): 1})
    producer = RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(120)

    def commit(pos: int) -> None:
        producer.begin_transaction()
        producer.produce(state_topic(name), json.dumps({**LOG, "pos": pos}), "offset")
        producer.produce(state_topic(name), json.dumps(TOPIC), "topics/shop.orders")
        producer.commit_transaction(120)

    with Observer(settings) as plain:
        commit(100)
        assert followed(plain, 100)
        monkeypatch.setattr("kafkaio.committed_reader.Consumer", consumer)
        with Observer(settings) as observer:
            assert followed(observer, 100)
            commit(300)
            assert followed(plain, 300)
            opened[0].silent = 3
            log = observer.read().log
            assert log is not None
            assert log.pos == 300


def test_an_observer_whose_client_has_lost_every_broker_continues_with_another(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look fails, and the next one knows what came meanwhile."""
    name, servers = unique_name("observe"), kafka.bootstrap_servers
    document = {"name": name, "source": {"tables": ["shop\\..*"]}, "kafka": {"bootstrap_servers": servers}}
    TopicAdmin(cluster(servers)).ensure({state_topic(name): 2})
    producer = RecordProducer({"bootstrap.servers": servers})

    def write(pos: int) -> None:
        producer.produce(state_topic(name), json.dumps({**LOG, "pos": pos}), "offset", partition=0)
        producer.produce(state_topic(name), json.dumps(TOPIC), "topics/shop.orders", partition=1)
        producer.flush(120)

    with Observer(from_mapping({**document, "sinks": [{"path": str(tmp_path)}]})) as observer:
        write(100)
        followed(observer, 100)
        write(300)
        observer._reader._consumer = cast("Any", LostClient(observer._reader._consumer))
        with monkeypatch.context() as patch:
            patch.setattr("kafkaio.committed_reader.ANSWER_S", 1.0)
            with pytest.raises(PublishError, match="cannot be read"):
                observer.read()
        followed(observer, 300)


def test_the_observer_follows_committed_state_only(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkaio.committed_reader.ANSWER_S", 60.0)
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

        topics = TopicAdmin(cluster(servers))
        topics.ensure({state_topic(name): 2})
        assert observer.read().log is None

        producer = RecordProducer({"bootstrap.servers": servers, "transactional.id": name})
        producer.init_transactions(120)
        for pos in (100, 200, 300):
            producer.begin_transaction()
            producer.produce(state_topic(name), json.dumps({**LOG, "pos": pos}), "offset", partition=0)
            producer.produce(state_topic(name), json.dumps(TOPIC), "topics/shop.orders", partition=1)
            producer.flush(120)
            if pos not in COMMITTED:
                producer.abort_transaction(120)
                continue
            producer.commit_transaction(120)
            status = followed(observer, pos)
            assert [table.table for table in status.tables] == ["shop.orders"]

        assert status.behind is None, "there are no topics of shop.orders: how much is in them is not known"
        both = [f"{name}.shop.orders", f"{name}-snapshot.shop.orders"]
        topics.ensure(dict.fromkeys(both, 1))
        written_s = time.time()
        for committed in (True, False):  # readers of committed records never see the others
            producer.begin_transaction()
            for _ in range(5):
                producer.produce(both[0], b"row")
            producer.flush(120)
            (producer.commit_transaction if committed else producer.abort_transaction)(120)
        _merge_job_is_known_by_its_lock_and_sign(observer, tmp_path / "_tidemark")
        _lag_is_that_of_the_oldest_record_that_is_not_merged(observer, tmp_path / "_tidemark", written_s, name, AdminClient({"bootstrap.servers": servers}))


def _merge_job_is_known_by_its_lock_and_sign(observer: Observer, service: Path) -> None:
    def state() -> tuple[str, bool | None]:
        status = observer.read()
        return status.merge.state.value, status.merge.caught_up

    def give(**sign: object) -> None:
        facts = {"at_ms": time.time_ns() // 1_000_000, "machine": machine()} | sign
        (service / "alive.json").write_text(json.dumps(encode(Sign(**facts))), "utf-8")

    def merge(changes: int) -> None:
        note_merged(service, changes)

    assert state() == ("unknown", None)  # nothing is there: it was not started, or runs on another machine
    service.mkdir()
    lock = service / "lock"
    lock.touch()
    give()
    merge(12)
    assert state() == ("not_running", False), "nobody has the lock, however fresh the sign is"
    holding = [sys.executable, "-c", _HOLD, str(lock)]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        give()
        merge(0)
        deadline = time.monotonic() + 60
        while (
            observer.read().behind != 12
        ):  # Kafka answers the end of a transaction first, and then writes it
            assert time.monotonic() < deadline
        assert state() == ("catching_up", False)
        merge(12)
        give()
        assert state() == ("caught_up", True)
        (service / "progress.json").write_text("{", "utf-8")
        assert state() == ("unknown", None)
        merge(12)
        holder.kill()
    give()
    assert state() == ("not_running", False)
    give(machine="another")
    assert state() == ("caught_up", True), "locks of another machine are not seen here: its sign counts"


def note_merged(service: Path, changes: int) -> None:
    """Write the progress of a merge job that has merged the first `changes` records of the table."""
    table = {"applied_position": LOG["position"], "change_offsets": {"0": changes}, "snapshot_offsets": {}}
    (service / "progress.json").write_text(json.dumps({"updated_ms": 5, "tables": {"shop.orders": table}}), "utf-8")


def _lag_is_that_of_the_oldest_record_that_is_not_merged(
    observer: Observer, service: Path, written_s: float, name: str, admin: AdminClient
) -> None:
    """Of 12 offsets the first five are records, then come a marker, five records of an aborted transaction, and its marker."""

    def lag() -> Lag:
        (status,) = observer.read_each(oldest=True).values()
        return lags_of(status).tables["shop.orders"]

    for merged in (0, 4):
        note_merged(service, merged)
        asked_s, found = time.time(), lag()
        assert found.left == 12 - merged
        assert found.seconds is not None
        assert asked_s - written_s - 30 < found.seconds <= time.time() - written_s + 0.1
        assert found.seconds > 0
    for merged in (5, 7, 12):  # consumers see none of the rest
        note_merged(service, merged)
        assert lag().seconds == 0.0
    topic = TopicPartition(f"{name}.shop.orders", 0, 5)
    admin.delete_records([topic], request_timeout=120)[topic].result(120)
    note_merged(service, 2)
    assert LOST in lag().unknown, "three records that were not merged are gone"
    note_merged(service, 5)
    assert lag().seconds == 0.0
    (service / "progress.json").unlink()
    (service / "alive.json").unlink()
    assert lag().seconds is None, "this machine sees nothing of a merge job"


_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""
