"""Long transactions on real servers: published whole, or in parts where Kafka's transaction would take too long."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

import pytest

from producer.app import Producer
from producer.stream.log_reader import LogReader
from producer.stream.pending_rows import PendingRows
from schemas.errors import DecodeError, RetriableSourceError
from tests.support.producers import SIGNAL, running
from tests.support.producing import RunningProducer
from tests.support.topics import read_topic


def test_a_transaction_larger_than_any_buffer_is_published_whole(mysql):
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(100))")
    with running(mysql.settings()) as run:
        mysql.execute("INSERT INTO t (v) VALUES (REPEAT('x', 100))", "BEGIN")
        mysql.execute(*["INSERT INTO t (v) SELECT v FROM t"] * 14, "COMMIT")
        run.caught_up(mysql)
    changes = mysql.changes("t")
    assert len(changes) == 2**14
    assert len({change.value["source"]["sequence"] for change in changes}) == 2**14


def test_a_transaction_that_is_not_read_to_its_end_is_not_visible(mysql, monkeypatch):
    """A checkpoint inside it would make its first rows visible, and publish them again after the restart."""
    monkeypatch.setattr("producer.stream.checkpoint.INTERVAL_S", 0.0)
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(200))")
    with running(mysql.settings()) as run:
        mysql.execute("INSERT INTO t (v) VALUES ('first')")
        run.caught_up(mysql)
    mysql.execute("BEGIN", "INSERT INTO t (v) VALUES (REPEAT('x', 200))")
    mysql.execute(*["INSERT INTO t (v) SELECT v FROM t"] * 16, "COMMIT")
    with running(mysql.settings()) as run:
        publisher = run.producer.publisher
        write, left = publisher.write, 30_000

        def write_some(topic, records, key_text=None):
            nonlocal left
            left -= records.count
            if left < 0:
                raise DecodeError("the log ends here (on purpose)")
            write(topic, records, key_text)

        monkeypatch.setattr(publisher, "write", write_some)
        run.until_ended()
        assert "on purpose" in str(run.error)
    assert len(mysql.changes("t")) == 1
    with running(mysql.settings()) as run:
        run.caught_up(mysql)
    assert len(mysql.changes("t")) == 2**17


def test_a_transaction_that_takes_longer_than_kafkas_may_is_published_in_parts(mysql, monkeypatch):
    """Killed between two of them, too: each row is there once, in order, and BEGIN and END count the whole."""
    monkeypatch.setattr("kafkaio.transactional_writer.LONGEST_SHARE", 0.0)
    commit_part, parts = LogReader._commit_part, []

    def commit(reader):
        commit_part(reader)
        parts.append(reader.committed.part)
        if len(parts) in {5, 9}:
            raise RetriableSourceError("the connection broke (on purpose)")

    monkeypatch.setattr(LogReader, "_commit_part", commit)
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(1000))", SIGNAL)
    rows = ",".join(f"({number}, '{'x' * 1000}')" for number in range(1, 201))
    signal = json.dumps({"data-collections": [f"{mysql.schema}.t"]})
    with RunningProducer(mysql.settings({"provide_transaction_metadata": True})) as producer:
        producer.wait_until("the log is read", lambda start: start.reader is not None)
        mysql.execute(
            "INSERT INTO t VALUES (0, 'before')",
            "BEGIN",
            f"INSERT INTO tidemark_signal VALUES ('in-it', 'execute-snapshot', '{signal}')",
            f"INSERT INTO t VALUES {rows}",
            "UPDATE t SET v = 'y' WHERE id BETWEEN 1 AND 50",
            "COMMIT",
            "INSERT INTO t VALUES (201, 'behind')",
        )
        producer.wait_until("all is read", lambda _: mysql.changes("t")[-1:] and mysql.changes("t")[-1].value["after"]["id"] == 201)
        # with the rows of its windows each start would end again, after a pause that is longer each time
        monkeypatch.setattr("kafkaio.transactional_writer.LONGEST_SHARE", 0.15)
        producer.wait_until("the snapshot is done", lambda start: [one.state for one in start.coordinator.progress()] == ["done"])
    assert len({part.rows for part in parts if part.rows > 100}) > 5, "it was in one piece"
    large = mysql.changes("t")[1:-1]
    assert [change.value["after"]["id"] for change in large] == [*range(1, 201), *range(1, 51)]
    orders = [change.value["transaction"]["total_order"] for change in large]
    assert orders == [*range(orders[0], orders[0] + 250)]
    reported = [record.value for record in read_topic(mysql.bootstrap_servers, f"{mysql.name}.transaction")]
    ident = large[0].value["transaction"]["id"]
    (begun, ended) = [one for one in reported if one["id"] == ident]
    assert (begun["status"], ended["status"]) == ("BEGIN", "END")
    assert ended["event_count"] == orders[-1]


def test_rows_of_tables_that_are_not_captured_take_time_of_kafkas_transaction_too(mysql, monkeypatch):
    """That is open from BEGIN on."""
    monkeypatch.setattr("kafkaio.transactional_writer.LONGEST_SHARE", 0.0)
    commit_part, parts = LogReader._commit_part, []

    def commit(reader):
        commit_part(reader)
        parts.append(reader.committed.part.rows)

    monkeypatch.setattr(LogReader, "_commit_part", commit)
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(1000))")
    rows = ",".join(f"({number}, '{'x' * 1000}')" for number in range(1, 101))
    settings = mysql.settings({"provide_transaction_metadata": True}, exclude_tables=[f"{mysql.schema}.u"])
    with RunningProducer(settings) as producer:
        producer.wait_until("the log is read", lambda start: start.reader is not None)
        mysql.execute("BEGIN", f"INSERT INTO u VALUES {rows}", "INSERT INTO t VALUES (1)", "COMMIT")
        producer.wait_until("all is read", lambda _: len(mysql.changes("t")) == 1)
    assert parts
    assert parts[0] < 100


def test_what_a_start_asks_for_is_there_before_a_part(mysql, monkeypatch):
    """A part commits the offset of a new beginning: without its snapshots these would never be read."""
    monkeypatch.setattr("kafkaio.transactional_writer.LONGEST_SHARE", 0.0)
    commit_part = LogReader._commit_part

    def commit(reader):
        commit_part(reader)
        raise RetriableSourceError("the connection broke (on purpose)")

    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(1000))", SIGNAL)
    settings = mysql.settings()
    with running(settings) as run:
        mysql.execute("INSERT INTO t VALUES (0, 'before')")
        run.caught_up(mysql)
    rows = ",".join(f"({number}, '{'x' * 1000}')" for number in range(1, 101))
    with monkeypatch.context() as patch, Producer(settings, restart_reason="asked for (on purpose)") as producer:
        patch.setattr(LogReader, "_commit_part", commit)
        patch.setattr(LogReader, "_is_commit_due", lambda _: False)  # it comes with the first batch
        mysql.execute(f"INSERT INTO t VALUES {rows}")
        with pytest.raises(RetriableSourceError):
            producer.run(threading.Event())
    with Producer(settings) as producer:
        assert producer.reader.committed.epoch == len(producer.coordinator.progress())


def test_rows_that_are_pending_take_time_of_the_transaction_before_theirs(mysql, monkeypatch):
    """Whose records are in Kafka's open transaction when they begin."""
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(1000))")
    settings = mysql.settings()
    with RunningProducer(settings) as producer:
        producer.wait_until("the log is read", lambda start: start.reader is not None)
    rows = ",".join(f"({number}, '{'x' * 1000}')" for number in range(1, 121))
    mysql.execute("INSERT INTO t VALUES (0, 'before')", "XA START 'x'", f"INSERT INTO t VALUES {rows}")
    mysql.execute("XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")

    add, is_commit_due = PendingRows.add, LogReader._is_commit_due
    seen: list[tuple[bool, float]] = []  # with each event that is pending: whether Kafka's transaction is open, and since when

    def slowly(events_pending, batch, index, offset):
        publisher = producer.starts[-1].publisher._current
        seen.append((publisher.in_transaction, publisher._begun_s))
        time.sleep(0.6)
        add(events_pending, batch, index, offset)

    monkeypatch.setattr("kafkaio.transactional_writer.LONGEST_SHARE", 0.5 / 900)  # half a second
    monkeypatch.setattr(PendingRows, "add", slowly)
    monkeypatch.setattr(LogReader, "_is_commit_due", lambda reader: bool(seen) and is_commit_due(reader))
    with RunningProducer(settings) as producer:
        producer.wait_until("all is read", lambda _: len(mysql.changes("t")) == 121)
    assert [change.value["after"]["id"] for change in mysql.changes("t")] == [*range(121)]
    open_since = Counter(begun for is_open, begun in seen if is_open)
    assert open_since, "the record before them was not in an open transaction"
    assert max(open_since.values()) <= 2, "a TABLE_MAP and one event of rows: then it is too long"


def test_a_table_made_and_filled_in_parts_is_reported_once(mysql97_source, monkeypatch):
    """CREATE TABLE ... SELECT is one transaction, and its statement's record is in the first part."""
    monkeypatch.setattr("kafkaio.transactional_writer.LONGEST_SHARE", 0.0)
    commit_part, parts = LogReader._commit_part, []

    def commit(reader):
        commit_part(reader)
        parts.append(reader.committed.part.rows)
        if len(parts) == 3:
            raise RetriableSourceError("the connection broke (on purpose)")

    monkeypatch.setattr(LogReader, "_commit_part", commit)
    rows = ",".join(f"({number}, '{'x' * 1000}')" for number in range(1, 101))
    mysql97_source.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(1000))", f"INSERT INTO t VALUES {rows}")
    with RunningProducer(mysql97_source.settings()) as producer:
        producer.wait_until("the log is read", lambda start: start.reader is not None)
        mysql97_source.execute("CREATE TABLE made (PRIMARY KEY (id)) SELECT * FROM t")
        made = (mysql97_source.schema, "made")
        producer.wait_until("it has topics", lambda start: made in start.tables.known())
        producer.wait_until("all is read", lambda _: len(mysql97_source.changes("made")) == 100)
    assert len(parts) > 3
    assert [change.value["after"]["id"] for change in mysql97_source.changes("made")] == [*range(1, 101)]
    reported = [record.value["ddl"] for record in read_topic(mysql97_source.bootstrap_servers, mysql97_source.name)]
    assert len([ddl for ddl in reported if ddl.startswith("CREATE TABLE `made`")]) == 1
