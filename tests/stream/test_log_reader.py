"""The log reader on real servers: what was committed is published once, in order, and resumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from producer.app import Producer
from schemas.errors import DecodeError, FencedError, SourceError
from schemas.settings import Settings, from_mapping
from tests.support.servers import database, unique_name
from tests.support.topics import Record, read_topic

SERVERS = ["mysql80", "mysql97", "mariadb114"]


class Source:
    """One database of one server, and the producer's settings for it."""

    def __init__(self, server, schema: str, bootstrap_servers: str) -> None:
        self.server = server
        self.schema = schema
        self.bootstrap_servers = bootstrap_servers
        self.name = unique_name("log")
        self.connection = server.connect(database=schema)

    def settings(self, records: dict[str, object] | None = None, **source: object) -> Settings:
        return from_mapping(
            {
                "name": self.name,
                "source": {
                    "host": self.server.host,
                    "port": self.server.port,
                    "user": self.server.user,
                    "password": self.server.password,
                    "tables": [f"{self.schema}\\..*"],
                    "signal_table": f"{self.schema}.tidemark_signal",
                    **source,
                },
                "kafka": {"bootstrap_servers": self.bootstrap_servers, "partitions": 2},
                "format": {"type": "json"},
                "snapshot": {"mode": "never"},
                "records": records or {},
            }
        )

    def execute(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def records(self, table: str) -> list[Record]:
        return read_topic(self.bootstrap_servers, f"{self.name}.{self.schema}.{table}")

    def changes(self, table: str) -> list[Record]:
        """Records that are not tombstones, in log order."""
        found = [record for record in self.records(table) if record.value is not None]
        return sorted(found, key=lambda record: record.value["source"]["sequence"])


@pytest.fixture(params=SERVERS)
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(request.param)
    place = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield place
    place.connection.close()


@pytest.fixture
def mysql(kafka, mysql80, fresh_database) -> Iterator[Source]:
    place = Source(mysql80, fresh_database(mysql80), kafka.bootstrap_servers)
    yield place
    place.connection.close()


@contextmanager
def running(settings: Settings) -> Iterator[Running]:
    with Producer(settings) as producer:
        run = Running(producer)
        run.thread.start()
        try:
            yield run
        finally:
            run.stop.set()
            run.thread.join(60)
            assert not run.thread.is_alive()


class Running:
    """A producer in a thread; `error` is what ended it."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.stop = threading.Event()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.producer.run(self.stop)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            assert self.error is None, f"the producer ended while waiting until {what}: {self.error!r}"
            assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
            time.sleep(0.05)

    def caught_up(self, source: Source) -> None:
        with source.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SHOW BINARY LOG STATUS" if source.server.name == "mysql97" else "SHOW MASTER STATUS"
            )
            file, pos = cursor.fetchone()[:2]

        def reached() -> bool:
            committed = self.producer.reader.committed
            return (committed.file, committed.pos) >= (file, pos)

        self.until(reached, f"the log is read up to {file}:{pos}")


def test_inserts_updates_deletes_and_key_changes_are_published_as_debezium_does(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    with running(source.settings()) as run:
        source.execute(
            "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
            "UPDATE t SET v = 'c' WHERE id = 1",
            "UPDATE t SET id = 7 WHERE id = 2",
            "DELETE FROM t WHERE id = 1",
        )
        run.caught_up(source)
    changes = source.changes("t")
    seen = [(c.value["op"], c.value["before"], c.value["after"]) for c in changes]
    assert seen == [
        ("c", None, {"id": 1, "v": "a"}),
        ("c", None, {"id": 2, "v": "b"}),
        ("u", {"id": 1, "v": "a"}, {"id": 1, "v": "c"}),
        ("d", {"id": 2, "v": "b"}, None),
        ("c", None, {"id": 7, "v": "b"}),
        ("d", {"id": 1, "v": "c"}, None),
    ]
    assert [c.headers for c in changes[3:5]] == [
        {"__debezium.newkey": '{"id":7}'},
        {"__debezium.oldkey": '{"id":2}'},
    ]
    tombstones = [record.key for record in source.records("t") if record.value is None]
    assert sorted(key["id"] for key in tombstones) == [1, 2]


def test_the_ordinal_counts_every_row_of_the_transaction_also_of_tables_not_captured(source, fresh_database):
    other = fresh_database(source.server)
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", f"CREATE TABLE {other}.u (id INT, d JSON)")
    with running(source.settings()) as run:
        source.execute(
            "BEGIN",
            "INSERT INTO t VALUES (1), (2)",
            f"INSERT INTO {other}.u VALUES (1, '{{}}'), (2, NULL), (3, '[1]')",
            "INSERT INTO t VALUES (3)",
            "COMMIT",
        )
        run.caught_up(source)
    positions = [change.value["source"]["sequence"] for change in source.changes("t")]
    assert [int(text[-10:]) for text in positions] == [1, 2, 6]
    assert len({text[:-10] for text in positions}) == 1


def test_rolled_back_rows_are_never_published(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(source.settings()) as run:
        source.execute(
            "BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK",
            "BEGIN", "INSERT INTO t VALUES (2)", "SAVEPOINT s", "INSERT INTO t VALUES (3)", "ROLLBACK TO s",
            "INSERT INTO t VALUES (4)", "COMMIT",
        )  # fmt: skip
        run.caught_up(source)
    assert [change.value["after"]["id"] for change in source.changes("t")] == [2, 4]


def test_resume_starts_after_the_last_committed_transaction(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    for start in range(0, 30, 10):
        with running(source.settings()) as run:
            source.execute(*(f"INSERT INTO t VALUES ({number})" for number in range(start, start + 5)))
            run.caught_up(source)
        source.execute(*(f"INSERT INTO t VALUES ({number})" for number in range(start + 5, start + 10)))
    with running(source.settings()) as run:
        run.caught_up(source)
    assert [change.value["after"]["id"] for change in source.changes("t")] == list(range(30))


def test_columns_follow_ddl_while_rows_keep_flowing(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    with running(source.settings()) as run:
        source.execute(
            "INSERT INTO t VALUES (1, 'a')",
            "ALTER TABLE t ADD COLUMN n INT NOT NULL DEFAULT 5",
            "INSERT INTO t VALUES (2, 'b', 6)",
            "ALTER TABLE t CHANGE v w VARCHAR(40)",
            "INSERT INTO t VALUES (3, 'c', 7)",
            "ALTER TABLE t MODIFY n BIGINT FIRST",
            "INSERT INTO t VALUES (8, 4, 'd')",
            "ALTER TABLE t DROP COLUMN w",
            "INSERT INTO t VALUES (9, 5)",
            "RENAME TABLE t TO u",
            "INSERT INTO u VALUES (10, 6)",
            "CREATE TABLE t (id INT PRIMARY KEY, x INT)",
            "INSERT INTO t VALUES (1, 1)",
            "DROP TABLE u",
            "CREATE TABLE v LIKE t",
            "INSERT INTO v VALUES (1, 2)",
        )
        run.caught_up(source)
    assert [change.value["after"] for change in source.changes("t")] == [
        {"id": 1, "v": "a"},
        {"id": 2, "v": "b", "n": 6},
        {"id": 3, "w": "c", "n": 7},
        {"n": 8, "id": 4, "w": "d"},
        {"n": 9, "id": 5},
        {"id": 1, "x": 1},
    ]
    assert [change.value["after"] for change in source.changes("u")] == [{"n": 10, "id": 6}]
    assert [change.value["after"] for change in source.changes("v")] == [{"id": 1, "x": 2}]


def test_a_statement_logged_as_text_stops_the_reader_in_words(mysql):
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(mysql.settings()) as run:
        mysql.execute("SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO t VALUES (1)")
        mysql.execute("SET SESSION binlog_format = 'ROW'")
        run.thread.join(30)
        assert isinstance(run.error, DecodeError)
    assert "binlog_format=STATEMENT" in str(run.error)
    assert "binlog.0" in str(run.error)


def test_an_xa_transaction_stops_the_reader_in_words(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(source.settings()) as run:
        source.execute(
            "XA START 'x'", "INSERT INTO t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"
        )
        run.thread.join(30)
        assert isinstance(run.error, DecodeError)
    assert "XA" in str(run.error)


def test_a_second_instance_fences_the_first(mysql):
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(mysql.settings(server_id=4711)) as first:
        mysql.execute("INSERT INTO t VALUES (1)")
        first.caught_up(mysql)
        with running(mysql.settings(server_id=4712)) as second:
            mysql.execute("INSERT INTO t VALUES (2)")
            second.caught_up(mysql)
            first.thread.join(30)
            assert isinstance(first.error, FencedError)
            mysql.execute("INSERT INTO t VALUES (3)")
            second.caught_up(mysql)
    assert [change.value["after"]["id"] for change in mysql.changes("t")] == [1, 2, 3]


def test_a_transaction_larger_than_any_buffer_is_published_whole(mysql):
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(100))")
    with running(mysql.settings()) as run:
        mysql.execute("INSERT INTO t (v) VALUES (REPEAT('x', 100))", "BEGIN")
        mysql.execute(*["INSERT INTO t (v) SELECT v FROM t"] * 14, "COMMIT")
        run.caught_up(mysql)
    changes = mysql.changes("t")
    assert len(changes) == 2**14
    assert len({change.value["source"]["sequence"] for change in changes}) == 2**14


def test_transactions_statements_and_truncates_are_told_where_asked_for(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
    logs_text = {"mysql": "binlog_rows_query_log_events", "mariadb": "binlog_annotate_row_events"}
    source.execute(f"SET SESSION {logs_text[source.server.flavour]} = ON")
    records = {
        "provide_transaction_metadata": True,
        "include_query": True,
        "skipped_operations": ["none"],
        "skip_messages_without_change": True,
    }
    with running(source.settings(records)) as run:
        source.execute(
            "BEGIN",
            "INSERT INTO t VALUES (1, 1), (2, 2)",
            "INSERT INTO u VALUES (7)",
            "UPDATE t SET id = 3 WHERE id = 2",
            "COMMIT",
            "TRUNCATE TABLE t",
        )
        run.caught_up(source)
    changes = sorted(
        source.changes("t") + source.changes("u"), key=lambda change: change.value["source"]["sequence"]
    )
    changes.sort(key=lambda change: (change.value["transaction"] or {"total_order": 99})["total_order"])
    found = [
        (change.value["op"], block and (block["total_order"], block["data_collection_order"]))
        for change in changes
        for block in [change.value["transaction"]]
    ]
    assert found == [("c", (1, 1)), ("c", (2, 2)), ("c", (3, 1)), ("d", (4, 3)), ("c", (5, 4)), ("t", None)]
    statements = [change.value["source"]["query"] for change in changes]
    assert statements[1:4] == [
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "INSERT INTO u VALUES (7)",
        "UPDATE t SET id = 3 WHERE id = 2",
    ]
    assert (changes[-1].key, statements[-1]) == (None, None)
    borders = [record.value for record in read_topic(source.bootstrap_servers, f"{source.name}.transaction")]
    assert [(border["status"], border["event_count"]) for border in borders] == [("BEGIN", None), ("END", 5)]
    assert borders[1]["data_collections"] == [
        {"data_collection": f"{source.schema}.t", "event_count": 4},
        {"data_collection": f"{source.schema}.u", "event_count": 1},
    ]
    assert {border["id"] for border in borders} == {changes[0].value["transaction"]["id"]}


def test_a_heartbeat_statement_that_can_never_run_ends_the_producer_in_words(mysql):
    records = {"heartbeat_interval_ms": 50, "heartbeat_action_query": "INSERT INTO nowhere.beat VALUES (1)"}
    with running(mysql.settings(records)) as run:
        run.thread.join(60)
        assert isinstance(run.error, SourceError)
    assert "records.heartbeat_action_query answers: Unknown database 'nowhere'" in str(run.error)


def test_flat_rows_stand_in_the_place_of_envelopes(mysql):
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    with running(mysql.settings({"unwrap": True})) as run:
        mysql.execute(
            "INSERT INTO t VALUES (1, 'a')",
            "UPDATE t SET v = NULL WHERE id = 1",
            "UPDATE t SET id = 1, v = 'b'",
            "DELETE FROM t",
        )
        run.caught_up(mysql)
    rows = [record.value for record in mysql.records("t")]
    assert rows.pop() is None
    assert [type(row.pop("__source_ts_ms")) for row in rows] == [int] * 4
    assert rows == [
        {"id": 1, "v": "a", "__deleted": "false", "__op": "c"},
        {"id": 1, "v": None, "__deleted": "false", "__op": "u"},
        {"id": 1, "v": "b", "__deleted": "false", "__op": "u"},
        {"id": 1, "v": "b", "__deleted": "true", "__op": "d"},
    ]
