"""What a worker reads from Kafka by itself: the committed records of its slices, each once, as they were written."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from devservers import Kafka
from kafkaio import librdkafka
from kafkaio.committed_reader import CommittedReader
from kafkaio.librdkafka import NO_BROKER, KafkaReadError
from kafkaio.slices import NUMBER, SNAPSHOT, Slice
from kafkaio.topic_admin import TopicAdmin
from schemas.errors import SecretError
from schemas.settings import KafkaSettings, from_mapping
from spark_jobs.arrow import kafka_records
from spark_jobs.arrow.kafka_records import record_batches
from spark_jobs.kafka.worker_options import worker_options
from tests.support.guarded_kafka import guarded_kafka, section
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, unique_name

ROOT = Path(__file__).parents[2]
SOURCE = {"tables": [".*"], "signal_table": "shop.signals"}
Record = tuple[bytes | None, bytes | None]
TopicFactory = Callable[..., str]


@pytest.fixture
def new_topic(kafka: Kafka) -> Iterator[TopicFactory]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    made: list[str] = []

    def make(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = unique_name("records")
        TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({name: partitions}, config)
        made.append(name)
        return name

    yield make
    for deleted in admin.delete_topics(made).values() if made else ():
        deleted.result(30)


def write(kafka: Kafka, topic: str, records: Sequence[Record], partition: int = 0, *, commits: bool = True) -> None:
    """Write records in one transaction, which is committed or aborted."""
    name = unique_name("writer")
    producer = RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, "message.max.bytes": 20_000_000})
    producer.init_transactions(60)
    producer.begin_transaction()
    for key, value in records:
        producer.produce(topic, value, key, partition)
    producer.flush(60)
    producer.commit_transaction(60) if commits else producer.abort_transaction(60)


def end_of(kafka: Kafka, topic: str, partition: int = 0) -> int:
    where, admin = TopicPartition(topic, partition), AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    asked = admin.list_offsets({where: OffsetSpec.latest()})  # type: ignore[no-untyped-call]
    return int(asked[where].result(30).offset)


def options(kafka: Kafka) -> dict[str, str]:
    return worker_options(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))


def read(kafka: Kafka, slices: Sequence[Slice], codes: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    named = codes or {one.topic: 0 for one in slices}
    return pa.Table.from_batches(list(record_batches(options(kafka), slices, named)), SCHEMA).to_pylist()


SCHEMA = pa.schema(
    [(NUMBER, pa.int32()), (SNAPSHOT, pa.bool_()), ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary())]
)


def test_keys_and_values_are_read_as_they_were_written(kafka: Kafka, new_topic: TopicFactory) -> None:
    topic = new_topic()
    large = bytes(range(256)) * 40_000
    records: list[Record] = [(b"k", b"v"), (None, b"no key"), (b"no value", None), (b"", b""), (None, None), (b"large", large)]
    write(kafka, topic, records)
    found = read(kafka, [Slice(topic, 0, 0, end_of(kafka, topic))])
    assert [(row["key"], row["value"]) for row in found] == records


def test_what_was_rolled_back_is_not_read(kafka: Kafka, new_topic: TopicFactory) -> None:
    topic = new_topic()
    write(kafka, topic, [(b"1", b"a"), (b"2", b"a")])
    write(kafka, topic, [(b"3", b"b"), (b"4", b"b")], commits=False)
    write(kafka, topic, [(b"5", b"c")])
    write(kafka, topic, [(b"6", b"d")], commits=False)
    assert [row["key"] for row in read(kafka, [Slice(topic, 0, 0, 10)])] == [b"1", b"2", b"5"], "and the ends of transactions"
    assert end_of(kafka, topic) == 10
    assert read(kafka, [Slice(topic, 0, 3, 6)]) == [], "nothing but what was rolled back"


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 7), (0, 50), (49, 50), (99, 100)])
def test_a_slice_has_the_records_from_its_start_to_its_end(
    kafka: Kafka, new_topic: TopicFactory, start: int, end: int
) -> None:
    topic = new_topic()
    write(kafka, topic, [(b"%d" % number, b"x") for number in range(100)])
    assert [int(row["key"]) for row in read(kafka, [Slice(topic, 0, start, end)])] == list(range(start, end))


def test_records_of_many_partitions_and_topics_keep_their_order_and_their_topic(
    kafka: Kafka, new_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of a few messages, which end anywhere."""
    monkeypatch.setattr(kafka_records, "_FIRST_MESSAGES", 7)
    monkeypatch.setattr(kafka_records, "_MOST_MESSAGES", 7)
    changes, rows = new_topic(3), new_topic(3)
    for topic in (changes, rows):
        for partition in range(3):
            write(kafka, topic, [(b"%d" % number, topic.encode()) for number in range(40)], partition)
    slices = [Slice(topic, partition, partition, 30 + partition) for topic in (changes, rows) for partition in range(3)]
    found = read(kafka, slices, {changes: 10, rows: 11})
    assert len(found) == 6 * 30
    for one in slices:
        mine = [row for row in found if row["value"] == one.topic.encode() and row["partition"] == one.partition]
        assert [int(row["key"]) for row in mine] == list(range(one.start, one.end))
        assert {(row[NUMBER], row[SNAPSHOT]) for row in mine} == {(5, one.topic == rows)}


def test_more_than_a_block_is_read_whole(kafka: Kafka, new_topic: TopicFactory) -> None:
    topic = new_topic(2)
    for partition in range(2):
        write(kafka, topic, [(b"%d" % number, b"v" * (number % 50)) for number in range(60_000)], partition)
    batches = list(record_batches(options(kafka), [Slice(topic, one, 0, 60_001) for one in range(2)], {topic: 0}))
    assert len(batches) > 2
    found = pa.Table.from_batches(batches)
    for partition in range(2):
        mine = found.filter(pa.array(found["partition"].to_numpy() == partition))
        assert mine["key"].to_pylist() == [b"%d" % number for number in range(60_000)]
        assert [len(value) for value in mine["value"].to_pylist()] == [number % 50 for number in range(60_000)]


def test_records_that_are_gone_are_an_error_that_names_them(kafka: Kafka, new_topic: TopicFactory) -> None:
    topic = new_topic()
    write(kafka, topic, [(b"%d" % number, b"x") for number in range(10)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([TopicPartition(topic, 0, 5)])[TopicPartition(topic, 0)].result(30)
    assert [int(row["key"]) for row in read(kafka, [Slice(topic, 0, 5, 10)])] == list(range(5, 10))
    with pytest.raises(KafkaReadError, match=f"topic {topic} partition 0 cannot be read from 3 on: _AUTO_OFFSET_RESET"):
        read(kafka, [Slice(topic, 0, 3, 10)])


def test_a_topic_that_is_not_there_is_an_error_that_names_it(kafka: Kafka) -> None:
    with pytest.raises(KafkaReadError, match=r"cannot be read.*nothing-of-the-kind.*UNKNOWN_TOPIC_OR_PART"):
        read(kafka, [Slice("nothing-of-the-kind", 0, 0, 1)])


def test_a_topic_that_ends_before_the_slice_is_waited_for_and_then_an_error(
    kafka: Kafka, new_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_records, "_SILENCE_S", 0.5)
    topic = new_topic()
    write(kafka, topic, [(b"1", b"x")])
    with pytest.raises(KafkaReadError, match=f"Kafka has sent no record of {topic} for 0.5 s"):
        read(kafka, [Slice(topic, 0, 0, 100)])


def test_the_time_that_the_reader_of_the_batches_takes_is_no_silence_of_kafka(
    kafka: Kafka, new_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_records, "_SILENCE_S", 4.0)  # a busy machine may write for a second
    topic = new_topic()
    write(kafka, topic, [(b"1", b"x")])
    batches = record_batches(options(kafka), [Slice(topic, 0, 0, 3)], {topic: 0})
    assert next(batches)["key"].to_pylist() == [b"1"]
    time.sleep(4.2)
    later = threading.Timer(0.3, write, (kafka, topic, [(b"2", b"x")]))
    later.start()
    assert [row for batch in batches for row in batch["key"].to_pylist()] == [b"2"]
    later.join()


def test_a_broker_that_does_not_answer_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_records, "_SILENCE_S", 1.5)
    nobody = KafkaSettings(bootstrap_servers="127.0.0.1:9")
    with pytest.raises(KafkaReadError, match=r"Kafka has sent no record of t for 1.5 s: .*Connection refused.*\(_TRANSPORT\)"):
        list(record_batches(worker_options(nobody), [Slice("t", 0, 0, 1)], {"t": 0}))


def test_the_reason_of_a_broker_is_kept_where_the_client_then_says_that_none_is_left() -> None:
    """librdkafka says so after each reason, and a silent moment later that was all the error had to say."""
    said = [(-169, "refused"), (NO_BROKER, "1/1 brokers are down")]
    blocks = kafka_records._Blocks(cast("Any", SimpleNamespace(errors=list(said), name_of=str)), {})
    blocks._note_errors_of_client()
    with CommittedReader(KafkaSettings(bootstrap_servers="127.0.0.1:9"), "any") as reader:
        for one in said:
            reader._note(KafkaError(*one))
        assert [blocks._error, reader._reason] == ["refused (-169)", "refused"]


def test_a_refused_password_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_records, "_SILENCE_S", 2.0)
    guarded_kafka()
    kafka = from_mapping({"name": "x", "source": SOURCE, "kafka": section("captain", "wrong")}).kafka
    with pytest.raises(KafkaReadError, match=r"Kafka has sent no record of t for 2 s: .*Authentication failed.*\(_AUTHENTICATION\)"):
        list(record_batches(worker_options(kafka), [Slice("t", 0, 0, 1)], {"t": 0}))


def test_an_option_that_no_client_has_is_an_error_that_names_it() -> None:
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:9", options={"ssl.no.such.option": "1"})
    with pytest.raises(KafkaReadError, match=r"does not take the option ssl\.no\.such\.option"):
        list(record_batches(worker_options(kafka), [Slice("t", 0, 0, 1)], {"t": 0}))


def test_certificates_and_keys_are_given_as_text(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(f"text of {name}")
    tls = {name: str(tmp_path / name) for name in ("ca", "cert", "key")}
    given = {"security_protocol": "SSL", "tls": tls, "bootstrap_servers": "k:1"}
    kafka = from_mapping({"name": "x", "source": SOURCE, "kafka": given}).kafka
    found = worker_options(kafka)
    assert {found[f"ssl.{name}.pem"] for name in ("ca", "certificate", "key")} == {f"text of {name}" for name in tls}
    assert not [name for name in found if name.endswith(".location")]
    (tmp_path / "cert").unlink()
    with pytest.raises(SecretError, match=r"kafka\.tls: cannot read"):
        worker_options(kafka)


def test_what_makes_reading_exact_cannot_be_set_otherwise() -> None:
    fixed = {"isolation.level": "read_committed", "auto.offset.reset": "error", "enable.auto.commit": "false", "check.crcs": "true"}
    other = {**dict.fromkeys(fixed, "latest"), "client.id": "mine", "message.max.bytes": "900000000", "debug": "all"}
    found = worker_options(KafkaSettings(bootstrap_servers="k:1", options=other))
    assert {name: found[name] for name in fixed} == fixed
    assert found["client.id"] == "mine"
    assert not {"message.max.bytes", "debug"} & found.keys(), "those of a producer"


def test_the_kernels_do_the_same_as_python(kafka: Kafka, new_topic: TopicFactory) -> None:
    topic = new_topic()
    records: list[Record] = [(b"k", b"v" * 100), (None, b"x"), (b"y", None), (b"", b"")]
    write(kafka, topic, records)
    script = f"""
from spark_jobs.arrow.kafka_records import record_batches
from kafkaio.slices import Slice
found = [b for b in record_batches({options(kafka)!r}, [Slice({topic!r}, 0, 0, {end_of(kafka, topic)})], {{{topic!r}: 0}})]
print([(row["key"], row["value"]) for batch in found for row in batch.to_pylist()])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"}
    )
    assert done.stdout.strip() == repr(records)


def test_a_machine_without_librdkafka_is_known_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert librdkafka.is_there()
    librdkafka.library.cache_clear()
    monkeypatch.setattr(librdkafka, "_file", lambda: None)
    try:
        assert not librdkafka.is_there()
        with pytest.raises(KafkaReadError, match="pip install 'confluent-kafka"):
            librdkafka.library()
    finally:
        monkeypatch.undo()
        librdkafka.library.cache_clear()


@pytest.mark.parametrize("version", [0x010903FF, 0x030000FF])
def test_a_librdkafka_of_another_major_version_is_not_used(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    librdkafka.library.cache_clear()
    monkeypatch.setattr(librdkafka.ctypes, "CDLL", lambda _: SimpleNamespace(rd_kafka_version=lambda: version))
    try:
        with pytest.raises(KafkaReadError, match=f"version {version:#x}; only 2 is known"):
            librdkafka.library()
    finally:
        monkeypatch.undo()
        librdkafka.library.cache_clear()
