"""`python -m conformance` over a real broker: two producers on one server agree, and whatever is changed afterwards is found."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from conformance import topic_reader
from conformance.__main__ import main
from conformance.topic_reader import Side
from conformance.wire_check import partition_of
from kafkaio.client import with_leaders
from kafkaio.topic_admin import TopicAdmin
from schemas.settings import from_mapping
from tests.catalog.server_log import end_of_log
from tests.integration.test_golden import log_is_at
from tests.support.producing import RunningProducer
from tests.support.record_producer import RecordProducer
from tests.support.servers import cluster, database, drop_database, new_database, unique_name
from tests.support.topics import Record, read_topics

LAST_LINE = re.compile(r"compare: (\d+) records compared, (\d+) differences, (\d+) intended")
WIRES = {"json": {"type": "json"}, "schemas": {"type": "json", "schemas": True}, "avro": {"type": "avro"}}
TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), b BOOLEAN, d DECIMAL(12,3), j JSON)",
    "CREATE TABLE wide (id BIGINT UNSIGNED PRIMARY KEY, at TIMESTAMP(3) NOT NULL)",
    "CREATE TABLE keyless (v INT, w VARCHAR(5))",
)


class World:
    """A schema of a server, and producers that write it under prefixes."""

    def __init__(self, server: Any, kafka: Any, wire: dict[str, Any]) -> None:
        self.server, self.kafka, self.wire = server, kafka, wire
        self.schema = new_database(server)
        self.table = rf"{self.schema}\.t"
        self.connection = server.connect(database=self.schema)
        self.left, self.right = (unique_name(name).replace("-", "_") for name in ("compare_left", "compare_right"))
        self._dice = random.Random(7)

    def execute(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def change(self, count: int) -> None:
        """Changes of few keys, so that each has many records; some in transactions, some of keys themselves."""
        dice = self._dice
        for number in range(count):
            key, other = dice.randrange(20), dice.randrange(20)
            self.execute(
                *(["BEGIN"] if number % 3 == 0 else []),
                f"REPLACE INTO t VALUES ({key}, 'v{number}', {number % 2}, {number}.125, '{{\"n\": {number}}}')",
                f"REPLACE INTO wide VALUES ({2**63 + key}, '2020-01-01 00:00:00.{number % 1000:03}')",
                f"INSERT INTO keyless VALUES ({number}, 'k')",
                f"DELETE FROM t WHERE id = {other}",
                f"UPDATE IGNORE t SET id = {other} WHERE id = {key}",
                "COMMIT",
            )

    def settings(self, name: str, partitions: int, **more: Any) -> Any:
        server = self.server
        source = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
        return from_mapping(
            {
                "name": name,
                "source": {**source, "tables": [rf"{self.schema}\.(t|wide|keyless)"], **more.pop("source", {})},
                "kafka": {"bootstrap_servers": self.kafka.bootstrap_servers, "partitions": partitions},
                "format": self.wire,
                "records": {"provide_transaction_metadata": True},
                "snapshot": {"mode": "never"},
                **more,
            }
        )

    def read_to_end(self, *producers: RunningProducer) -> None:
        position = end_of_log(self.connection)
        for producer in producers:
            producer.wait_until("the log is read", partial(log_is_at, position=position))

    def compare(self, *arguments: str, left: str | None = None, right: str | None = None) -> int:
        sides = ["--left", left or self.left, "--right", right or self.right]
        broker = ["--bootstrap-servers", self.kafka.bootstrap_servers]
        registry = ["--registry", self.wire["registry"]] if "registry" in self.wire else []
        return main([*sides, *broker, *registry, *arguments])


@pytest.fixture(scope="module", params=["json", "schemas", "avro"])
def world(request: pytest.FixtureRequest, kafka: Any) -> Iterator[World]:
    """Two prefixes: the right one begins later, the left one ends earlier, their numbers of partitions differ."""
    wire = dict(WIRES[request.param])
    if request.param == "avro":
        wire["registry"] = request.getfixturevalue("registry").url
    world = World(database("mysql80"), kafka, wire)
    world.execute(*TABLES)
    with ExitStack() as stack:
        right = RunningProducer(world.settings(world.right, 3))
        with RunningProducer(world.settings(world.left, 1)) as left:
            left.wait_until("it reads", reads)
            world.change(10)
            stack.enter_context(right)
            right.wait_until("it reads", reads)
            world.change(60)
            world.execute("ALTER TABLE t ADD COLUMN more INT DEFAULT 5 AFTER id", "TRUNCATE keyless")
            world.execute("INSERT INTO t (id, v) VALUES (77, 'last')", "UPDATE t SET more = NULL WHERE id = 77")
            world.read_to_end(left, right)
        world.execute("INSERT INTO t (id, v) VALUES (78, 'too late')")
        world.read_to_end(right)
    yield world
    world.connection.close()
    drop_database(world.server, world.schema)


def reads(start: Any) -> bool:
    return start.reader is not None and start.reader.progress.checkpoints > 0


def reported(capsys: pytest.CaptureFixture[str]) -> tuple[list[str], tuple[int, int, int]]:
    """The lines before the last, and the numbers of the last."""
    printed = capsys.readouterr()
    assert printed.out, printed.err
    *lines, last = printed.out.splitlines()
    match = LAST_LINE.fullmatch(last)
    assert match is not None, last
    records, differences, intended = (int(text) for text in match.groups())
    return lines, (records, differences, intended)


def test_two_producers_of_one_server_agree(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    code = world.compare()
    lines, (records, differences, intended) = reported(capsys)
    assert (code, differences, intended) == (0, 0, 0), "\n".join(lines)
    assert records > 600
    assert any(re.search(rf"{world.schema}\.t: .*on the left before the other side begins", line) for line in lines)
    assert any(re.search(rf"{world.schema}\.t: .*1 on the right after the other side ends", line) for line in lines)


def test_tables_are_chosen_and_a_prefix_that_is_not_there_is_an_error(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert world.compare(world.table, "--exclude", ".*wide") == 0
    lines, (records, _, _) = reported(capsys)
    assert records > 100
    assert any(line.startswith("not compared, as asked: ") and "keyless" in line for line in lines)
    assert main(["--left", "no", "--right", "one", "--bootstrap-servers", world.kafka.bootstrap_servers]) == 2
    assert "no topics of no and one" in capsys.readouterr().err


# ── copies of the right side in which something was changed ────────────────────────────────

Change = Callable[[list[Record]], list[Record]]


def the_last_insert(records: list[Record]) -> Record:
    (found,) = (record for record in records if b'"v":"last"' in (record.value or b"") and b'"op":"c"' in record.value)
    return found


def a_value(records: list[Record]) -> list[Record]:
    found = the_last_insert(records)
    changed = found.value.replace(b'"v":"last"', b'"v":"lost"')
    return [remade(record, value=changed) if record is found else record for record in records]


def a_record_is_gone(records: list[Record]) -> list[Record]:
    found = the_last_insert(records)
    return [record for record in records if record is not found]


def a_tombstone_is_gone(records: list[Record]) -> list[Record]:
    found = [record for record in records if record.value is None][-1]
    return [record for record in records if record is not found]


def a_header(records: list[Record]) -> list[Record]:
    found = the_last_insert(records)
    return [remade(record, headers={"x": "y"}) if record is found else record for record in records]


def a_key_in_another_partition(records: list[Record]) -> list[Record]:
    found = the_last_insert(records)
    return [remade(record, partition=(record.partition + 1) % 3) if record is found else record for record in records]


def a_record_twice(records: list[Record]) -> list[Record]:
    found = the_last_insert(records)
    position = records.index(found)
    return [*records[: position + 1], found, *records[position + 1 :]]


def remade(record: Record, **changes: Any) -> Record:
    return Record(**{**{name: getattr(record, name) for name in Record.__slots__}, **changes})


CHANGES: dict[str, tuple[Change, str]] = {
    "value": (a_value, "left 'last', right 'lost'"),
    "gone": (a_record_is_gone, "only on the left: op c"),
    "tombstone": (a_tombstone_is_gone, "only on the left: a tombstone"),
    "header": (a_header, "headers names: left [], right ['x']"),
    "partition": (a_key_in_another_partition, "key: right has it in partition"),
    "twice": (a_record_twice, "only on the right: op c"),
}


@pytest.mark.parametrize("world", ["schemas"], indirect=True)
@pytest.mark.parametrize("name", CHANGES)
def test_whatever_is_changed_in_a_copy_is_found(
    name: str, world: World, kafka: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    change, words = CHANGES[name]
    copy = world.right.replace("compare_right", f"changed_{name}")
    copy_topics(kafka, world, copy, change, others=False)
    assert world.compare(world.table, right=copy) == 1
    lines, (records, differences, _) = reported(capsys)
    assert differences == 1, "\n".join(lines)
    assert words in lines[0]
    assert f"{world.schema}.t [" in lines[0]
    assert records > 200


@pytest.mark.parametrize("world", ["schemas"], indirect=True)
def test_a_topic_of_boundaries_that_the_right_side_lacks_is_a_difference_unless_it_is_left_out(
    world: World, kafka: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = world.right.replace("compare_right", "without_boundaries")
    copy_topics(kafka, world, copy, list, others=False)
    copy_topics(kafka, world, copy, list, tables=["wide", "keyless"], others=False)
    assert world.compare(right=copy) == 1
    lines, (_, differences, _) = reported(capsys)
    assert differences == 2, "\n".join(lines)
    assert lines[0].startswith(f"only on the left: topic {world.left}: the right side has no")
    assert lines[1].startswith(f"only on the left: topic {world.left}.transaction: the right side has no")
    assert world.compare("--exclude", "schema-changes", right=copy) == 1
    assert world.compare("--exclude", "schema-changes|transaction", right=copy) == 0


@pytest.mark.parametrize("world", ["schemas"], indirect=True)
def test_of_a_topic_whose_begin_was_deleted_the_rest_is_compared(
    world: World, kafka: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = world.right.replace("compare_right", "trimmed")
    copy_topics(kafka, world, copy, list)
    topic = f"{copy}.{world.schema}.t"
    ends = kafka_ends(kafka, topic)
    for offset in range(30, 36):  # a place between a delete and its tombstone is among them
        delete_before(kafka, topic, {partition: min(offset, end - 10) for partition, end in ends.items() if end > 10})
        code = world.compare(right=copy)
        lines, (records, differences, _) = reported(capsys)
        assert (code, differences) == (0, 0), "\n".join(lines)
        assert records > 400
        assert any(line.startswith(f"{topic}: older records were deleted on the right") for line in lines)


@pytest.mark.parametrize("world", ["schemas"], indirect=True)
@pytest.mark.parametrize("left_over", [0, 1], ids=["nothing", "a tombstone"])
def test_what_a_partition_had_of_which_all_was_deleted_is_no_difference(
    left_over: int, world: World, kafka: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = world.right.replace("compare_right", f"emptied_{left_over}")
    copy_topics(kafka, world, copy, ends_with_a_tombstone)
    topic = f"{copy}.{world.schema}.t"
    partition, end = next(item for item in kafka_ends(kafka, topic).items() if item[1] > 10)
    delete_before(kafka, topic, {partition: end - left_over})
    code = world.compare(right=copy)
    lines, (records, differences, _) = reported(capsys)
    assert (code, differences) == (0, 0), "\n".join(lines)
    assert records > 400
    assert any(line.startswith(f"{topic}[{partition}]: all records were deleted on the right") for line in lines)


@pytest.mark.parametrize("world", ["schemas"], indirect=True)
def test_what_is_written_while_the_ends_are_asked_for_is_no_difference(
    world: World, kafka: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = world.right.replace("compare_right", "live")
    topic = f"{world.right}.{world.schema}.t"
    sequences = sorted(record.value["payload"]["source"]["sequence"] for record in records_of_rows(kafka, topic))
    half = sequences[len(sequences) // 2]
    copy_topics(kafka, world, copy, partial(first_part, half), others=False)
    ask = Side.ends
    later: list[str] = []

    def ends(side: Side, partitions: Any) -> Any:
        found: dict[Any, Any] = {}
        for position in partitions:
            found |= ask(side, [position])
            if position == (topic.replace(world.right, copy), 0) and not later:
                later.append(copy)
                copy_topics(kafka, world, copy, partial(second_part, half), others=False)
        return found

    monkeypatch.setattr(Side, "ends", ends)
    code = world.compare(world.table, right=copy)
    lines, (records, differences, _) = reported(capsys)
    assert later
    assert (code, differences) == (0, 0), "\n".join(lines)
    assert records > 100


@pytest.mark.parametrize("world", ["schemas"], indirect=True)
def test_a_prefix_may_begin_as_the_other(world: World, kafka: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shorter = world.right.replace("compare_right", "begin")
    longer = f"{shorter}.new"
    for copy in (shorter, longer):
        copy_topics(kafka, world, copy, list)
    code = world.compare(left=shorter, right=longer)
    lines, (records, differences, _) = reported(capsys)
    assert (code, differences) == (0, 0), "\n".join(lines)
    assert records > 600
    assert not any(line.startswith("only on the left") for line in lines)


@pytest.mark.parametrize("world", ["schemas"], indirect=True)
def test_a_table_that_comes_while_the_ends_are_asked_for_is_compared(
    world: World, kafka: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = world.right.replace("compare_right", "new_table")
    tables = ["wide", "keyless"]
    copy_topics(kafka, world, copy, list, tables=tables)
    ask = Side.ends
    later: list[str] = []

    def ends(side: Side, partitions: Any) -> Any:
        if not later:
            later.append("t")
            copy_topics(kafka, world, copy, list, others=False)
        return ask(side, partitions)

    monkeypatch.setattr(Side, "ends", ends)
    code = world.compare(right=copy)
    lines, (_, differences, _) = reported(capsys)
    assert (code, differences) == (0, 0), "\n".join(lines)
    assert not any(line.startswith("only on the left") for line in lines)


@pytest.mark.parametrize("world", ["schemas"], indirect=True)
@pytest.mark.parametrize("is_read", [False, True], ids=["before it is read", "while it is read"])
def test_what_is_deleted_while_prefixes_are_compared_is_reported_as_such(
    is_read: bool, world: World, kafka: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = world.right.replace("compare_right", f"ages_{is_read}")
    topic = f"{copy}.{world.schema}.t"
    copy_topics(kafka, world, copy, list, others=False)
    method = "read" if is_read else "settled"
    ask = getattr(Side, method)

    def asked(side: Side, wanted: Any, *arguments: Any, **options: Any) -> Any:
        if is_read and wanted == topic:
            delete_before(kafka, topic, {partition: end // 2 for partition, end in kafka_ends(kafka, topic).items()})
        found = ask(side, wanted, *arguments, **options)
        if not is_read and any(position[0] == topic for position in wanted):
            delete_before(kafka, topic, {partition: end // 2 for partition, end in kafka_ends(kafka, topic).items()})
        return found

    monkeypatch.setattr(Side, method, asked)
    code = world.compare(world.table, right=copy)
    lines, (_, differences, _) = reported(capsys)
    if is_read:
        assert code == 1
        assert any("records were deleted while it was read" in line for line in lines)
    else:
        assert (code, differences) == (0, 0), "\n".join(lines)
        assert any(line.startswith(f"{topic}: older records were deleted on the right") for line in lines)


@pytest.mark.parametrize("world", ["schemas"], indirect=True)
@pytest.mark.parametrize("ended", [True, False], ids=["ends", "stays open"])
def test_what_an_open_transaction_hides_is_waited_for_and_named_where_it_stays_open(
    ended: bool, world: World, kafka: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = world.right.replace("compare_right", f"open_{ended}")
    topic = f"{copy}.{world.schema}.t"
    copy_topics(kafka, world, copy, list, others=False)
    producer = RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": copy})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"not shown", b"k", 0)
    producer.flush()
    if ended:
        monkeypatch.setattr(topic_reader, "SETTLED_S", 120)
        timer = threading.Timer(1, producer.abort_transaction)
        timer.start()
    else:
        monkeypatch.setattr(topic_reader, "SETTLED_S", 0.5)
    code = world.compare(world.table, right=copy)
    lines, (_, differences, _) = reported(capsys)
    if ended:
        timer.join()
    else:
        producer.abort_transaction(30)
    assert (code, differences) == (0, 0), "\n".join(lines)
    is_named = any(line.startswith(f"{topic}[0]: a transaction is still open") for line in lines)
    assert is_named is not ended


def records_of_rows(kafka: Any, topic: str) -> list[Record]:
    return [record for record in read_topics(kafka.bootstrap_servers, [topic])[topic] if record.value is not None]


def first_part(half: Any, records: list[Record]) -> list[Record]:
    """What the log has before a place; a tombstone goes with the delete before it."""
    return [record for record, sequence in with_sequences(records) if sequence < half]


def second_part(half: Any, records: list[Record]) -> list[Record]:
    return [record for record, sequence in with_sequences(records) if sequence >= half]


def with_sequences(records: list[Record]) -> Iterator[tuple[Record, Any]]:
    last: Any = None
    for record in records:
        last = json.loads(record.value)["payload"]["source"]["sequence"] if record.value else last
        yield record, last


def by_the_partition_of_their_keys(records: list[Record], partitions: int) -> list[Record]:
    """In the order of the log, each in the partition of its key: a schema in a key has the prefix in its name."""
    ordered = [record for record, _ in sorted(with_sequences(records), key=lambda pair: str(pair[1]))]
    partitions_of = [record.partition if record.key is None else partition_of(record.key, partitions) for record in ordered]
    return [remade(record, partition=number) for record, number in zip(ordered, partitions_of, strict=True)]


def ends_with_a_tombstone(records: list[Record]) -> list[Record]:
    """Without what follows the last tombstone of each partition."""
    last = {record.partition: at for at, record in enumerate(records) if record.value is None}
    return [record for at, record in enumerate(records) if at <= last.get(record.partition, -1)]


def kafka_ends(kafka: Any, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "ends"})
    asked = {part: partial(consumer.get_watermark_offsets, TopicPartition(topic, part), timeout=30) for part in range(3)}
    ends = {part: with_leaders(ask, 30)[1] for part, ask in asked.items()}
    consumer.close()
    return ends


def delete_before(kafka: Any, topic: str, offsets: dict[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    partitions_at = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    for answer in admin.delete_records(partitions_at).values():
        answer.result()


def copy_topics(
    kafka: Any, world: World, prefix: str, change: Change, *, others: bool = True, tables: Sequence[str] = ()
) -> None:
    """The right side's topics under another prefix, that of `t` changed; or that one alone, or the tables that are named."""
    admin = TopicAdmin(cluster(kafka.bootstrap_servers))
    tables = tables or (("t", "wide", "keyless") if others else ("t",))
    own = [world.right, f"{world.right}.transaction"] if others else []
    names = [*(f"{world.right}.{world.schema}.{table}" for table in tables), *own]
    found = read_topics(kafka.bootstrap_servers, names, raw=True)

    def named(data: bytes | None) -> Any:
        return data and data.replace(world.right.encode(), prefix.encode())

    producer = RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})  # a retry keeps the order
    admin.ensure({name.replace(world.right, prefix, 1): admin.partitions(name) for name in names})
    for name, records in found.items():
        count = admin.partitions(name)
        renamed = [remade(record, key=named(record.key), value=named(record.value)) for record in records]
        placed = by_the_partition_of_their_keys(renamed, count) if count > 1 else renamed
        for record in change(placed) if name.endswith(".t") else placed:
            producer.produce(
                named(name.encode()).decode(), record.value, record.key, record.partition, headers=list(record.headers.items())
            )
    producer.flush()


def test_what_waits_of_large_records_is_bounded_in_bytes(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = unique_name("compare_large")
    TopicAdmin(cluster(kafka.bootstrap_servers)).ensure({topic: 2})
    producer = RecordProducer({"bootstrap.servers": kafka.bootstrap_servers, "queue.buffering.max.kbytes": 200_000})
    value = random.Random(5).randbytes(250_000).hex().encode()
    for number in range(200):
        producer.produce(topic, value, str(number).encode(), number % 2)
    producer.flush()
    monkeypatch.setattr(topic_reader, "BUFFERED_BYTES", 2_000_000)
    with Side(kafka.bootstrap_servers, {}, None, is_left=True) as side:
        stream = side.read(topic, dict.fromkeys((0, 1), (0, 100)), is_single=False)
        messages = stream._messages
        while not messages.is_at_end and len(messages._paused) < 2:
            messages._fill()
        waiting = sum(len(message.value) for buffer in messages._buffers.values() for message in buffer)
        assert 0 < waiting < 50_000_000
        taken = 0
        while stream.rank is not None:
            stream.next_record()
            taken += 1
    assert taken == 200
