"""The log continues at another server, or is not the one that was read any more."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from devservers import Database, start_database
from mysqlio.server_facts import current_position
from producer.app import Producer
from producer.stream.log_reader import LogReader
from schemas.errors import RetriableSourceError, SourceError
from schemas.markers import MARKER_KEY
from schemas.settings import Settings
from schemas.topics import snapshot_topic
from tests.support.producers import SIGNAL, Source, running
from tests.support.producing import RunningProducer
from tests.support.topics import read_topic
from tidemark.cli import main


class Pair:
    """A primary and, where it is asked for, a replica whose log files have another name. `source` is the primary's."""

    def __init__(self, primary: Database, folder: Path, bootstrap_servers: str) -> None:
        self._folder = folder
        self.replica_options: dict[str, str] = {}
        self.primary = primary
        schema = "shop"
        _execute(primary, f"DROP DATABASE IF EXISTS {schema}", f"CREATE DATABASE {schema}")
        self.source = Source(self.primary, schema, bootstrap_servers)

    @cached_property
    def replica(self) -> Database:
        """Started at the first use, with replication by GTIDs."""
        options = {"server_id": "12", "log_bin": "other", "log_slave_updates": "ON", **self.replica_options}
        server = _start(self.primary.name, self._folder / "replica", **options)
        self._follow(server)
        return server

    def _follow(self, replica: Database) -> None:
        server = self.primary
        mariadb = server.flavour == "mariadb"
        by_gtid = "MASTER_USE_GTID=slave_pos, MASTER_SSL_VERIFY_SERVER_CERT=0" if mariadb else "MASTER_AUTO_POSITION=1, GET_MASTER_PUBLIC_KEY=1"
        _execute(
            replica,
            f"CHANGE MASTER TO MASTER_HOST='{server.host}', MASTER_PORT={server.port}, MASTER_USER='{server.user}',"
            f" MASTER_PASSWORD='{server.password}', MASTER_CONNECT_RETRY=1, {by_gtid}",
            "START SLAVE",
        )

    def on_replica(self, *statements: str) -> None:
        _execute(self.replica, *statements)

    def caught_up(self) -> None:
        """Wait until the replica has everything."""
        mariadb = self.primary.flavour == "mariadb"
        wanted = _ask(self.primary, "SELECT @@gtid_binlog_pos" if mariadb else "SELECT @@gtid_executed")
        wait = "SELECT MASTER_GTID_WAIT(%s, 60)" if mariadb else "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 60)"
        assert _ask(self.replica, wait, "".join(wanted.split())) == 0

    def promote(self) -> None:
        """The primary is gone, the replica takes its place."""
        self.primary.kill()
        self.on_replica("STOP SLAVE")

    def settings(self, server: Database, **source: Any) -> Settings:
        return self.source.settings(port=server.port, **source)

    def close(self) -> None:
        self.source.connection.close()
        for server in (self.primary, self.__dict__.get("replica")):
            if server is not None:
                server.kill()  # a replica takes its time to end
                server.close()


def _start(kind: str, folder: Path, **options: str) -> Database:
    folder.mkdir(parents=True)
    return start_database(kind, folder, options)


def _execute(server: Database, *statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _ask(server: Database, sql: str, *values: Any) -> Any:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchone()[0]


@pytest.fixture
def pair_of(tmp_path: Path, kafka: Any) -> Iterator[Callable[[str], Pair]]:
    pairs: list[Pair] = []

    def make(kind: str) -> Pair:
        folder = tmp_path / str(len(pairs))
        pairs.append(Pair(_start(kind, folder / "primary", server_id="11"), folder, kafka.bootstrap_servers))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.close()


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with _start("mysql80", tmp_path_factory.mktemp("alone") / "primary", server_id="11") as server:
        yield server


@pytest.fixture
def alone(one_server: Database, tmp_path: Path, kafka: Any) -> Iterator[Pair]:
    """A primary that several tests have in turns: for those that need no replica."""
    pair = Pair(one_server, tmp_path, kafka.bootstrap_servers)
    yield pair
    pair.source.connection.close()


def read_all(pair: Pair, server: Database, **source: Any) -> None:
    """Run a producer on a server until it has read the whole log."""
    file, pos = _end(server)
    with running(pair.settings(server, **source)) as run:

        def reached() -> bool:
            committed = run.producer.reader.committed
            return (committed.file, committed.pos) >= (file, pos)

        run.until(reached, f"the log is read up to {file}:{pos}")


def _end(server: Database) -> tuple[str, int]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        file, pos = cursor.fetchone()[:2]
        return str(file), int(pos)


def ids(pair: Pair, table: str = "t") -> list[int]:
    return [change.value["after"]["id"] for change in pair.source.changes(table)]


def epochs(pair: Pair, table: str = "t") -> list[str]:
    return [change.value["source"]["sequence"].strip('["')[:4] for change in pair.source.changes(table)]


def snapshot_ids(pair: Pair) -> list[int]:
    records = read_topic(pair.source.bootstrap_servers, snapshot_topic(pair.source.name, "shop", "t"))
    return sorted(record.value["after"]["id"] for record in records if record.key != MARKER_KEY)


def refuses(settings: Settings, words: str) -> None:
    with pytest.raises(SourceError, match=words), Producer(settings):
        pass


@pytest.mark.parametrize("kind", ["mysql80", "mariadb114"])
def test_reading_continues_at_the_promoted_replica(kind, pair_of):
    pair = pair_of(kind)
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with running(pair.settings(pair.primary)) as run:
        pair.source.execute("INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)")
        run.caught_up(pair.source)
    pair.source.execute("INSERT INTO t VALUES (4)", "ALTER TABLE t ADD v INT", "INSERT INTO t VALUES (5, 1)")
    pair.caught_up()
    pair.promote()
    pair.on_replica("INSERT INTO shop.t VALUES (6, 1)")
    read_all(pair, pair.replica)
    assert ids(pair) == [2, 3, 4, 5, 6]
    assert epochs(pair) == ["0000"] * 2 + ["0001"] * 3
    pair.on_replica("INSERT INTO shop.t VALUES (7, 1)")
    read_all(pair, pair.replica)
    assert ids(pair) == [2, 3, 4, 5, 6, 7]
    assert epochs(pair)[-1] == "0001"


def test_transactions_in_another_order_are_published_once(pair_of):
    """The new server has a transaction of its own before those that were published from the old one."""
    pair = pair_of("mysql80")
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    pair.caught_up()
    with running(pair.settings(pair.primary)) as run:
        pair.on_replica("STOP SLAVE SQL_THREAD", "INSERT INTO shop.u VALUES (100)")
        pair.source.execute("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
        run.caught_up(pair.source)
    pair.source.execute("INSERT INTO t VALUES (3)")
    pair.on_replica("START SLAVE SQL_THREAD")
    pair.caught_up()
    pair.promote()
    read_all(pair, pair.replica)
    assert ids(pair) == [1, 2, 3]
    assert ids(pair, "u") == [100]
    read_all(pair, pair.replica)
    assert ids(pair) == [1, 2, 3]


def publish_a_part(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of a transaction of 100 rows; how many of them."""
    commit_part = LogReader._commit_part
    parts: list[int] = []

    def commit(reader):
        if len(parts) < 3:
            commit_part(reader)
            parts.append(reader.committed.part.rows)
        if len(parts) >= 3:
            raise RetriableSourceError("the primary is gone (on purpose)")

    with monkeypatch.context() as patch:
        patch.setattr("kafkaio.transactional_writer.LONGEST_SHARE", 0.0)
        patch.setattr(LogReader, "_commit_part", commit)
        with RunningProducer(pair.settings(pair.primary)) as producer:
            # a start that is not durable yet would start over behind the rows
            producer.wait_until("the log is read", lambda start: start.reader is not None and start.reader.progress.checkpoints > 0)
            pair.source.execute("INSERT INTO t VALUES " + ",".join(f"({n}, '{'x' * 1000}')" for n in range(100)))
            producer.wait_until("a part is published", lambda _: len(parts) >= 3)
    published = len(ids(pair))
    assert 0 < published == parts[-1] < 100
    return published


@pytest.mark.parametrize("options", [{}, {"binlog_row_event_max_size": "30000"}])
def test_the_rest_of_a_transaction_published_in_part_comes_from_the_new_server(options, pair_of, monkeypatch):
    """Which has another, independent one before it, and may have it in other events."""
    pair = pair_of("mysql80")
    pair.replica_options = options
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "CREATE TABLE u (id INT PRIMARY KEY)")
    pair.caught_up()
    pair.on_replica("STOP SLAVE SQL_THREAD", "INSERT INTO shop.u VALUES (100)")
    published = publish_a_part(pair, monkeypatch)
    pair.on_replica("START SLAVE SQL_THREAD")
    pair.caught_up()
    pair.promote()
    read_all(pair, pair.replica)
    assert ids(pair) == [*range(100)]
    assert epochs(pair) == ["0000"] * published + ["0001"] * (100 - published)
    assert ids(pair, "u") == [100]


def test_where_the_replica_lacks_what_was_published_in_part_tables_are_read_again(pair_of, monkeypatch):
    monkeypatch.setattr("producer.source.lineage.CATCH_UP_S", 1.0)
    pair = pair_of("mysql80")
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", SIGNAL)
    pair.caught_up()
    pair.on_replica("STOP SLAVE")
    publish_a_part(pair, monkeypatch)
    pair.promote()
    refuses(pair.settings(pair.replica), r"lacks transactions that were published.*`tidemark repair`")


@pytest.mark.parametrize("another", [True, False])
def test_what_was_published_in_part_must_still_be_in_the_log(another, pair_of, monkeypatch):
    """A server that does not sync its log loses the end of it when the machine dies, and may write another there."""
    pair = pair_of("mysql80")
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", SIGNAL)
    boundary = _end(pair.primary)
    publish_a_part(pair, monkeypatch)
    assert _end(pair.primary) > boundary
    pair.primary.kill()
    with (pair.primary.data_dir / boundary[0]).open("r+b") as file:
        file.truncate(boundary[1])
    pair.primary.restart()
    pair.source.connection = pair.primary.connect(database=pair.source.schema)
    if another:
        pair.source.execute("INSERT INTO t VALUES (200, 'another')")
    refuses(pair.settings(pair.primary), r"reading the log cannot resume at .*`tidemark repair`")


def test_an_xa_transaction_prepared_before_is_published_when_it_commits_there(pair_of):
    pair = pair_of("mysql80")
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(pair.settings(pair.primary)) as run:
        pair.source.execute("XA START 'x'", "INSERT INTO t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'")
        with pair.primary.connect(database="shop") as other, other.cursor() as cursor:
            cursor.execute("INSERT INTO t VALUES (2)")
        run.caught_up(pair.source)
    pair.caught_up()
    pair.promote()
    pair.on_replica("XA COMMIT 'x'", "INSERT INTO shop.t VALUES (3)")
    read_all(pair, pair.replica)
    assert ids(pair) == [2, 1, 3]


def test_where_the_replica_lacks_what_was_published_tables_are_read_again(pair_of, monkeypatch):
    monkeypatch.setattr("producer.source.lineage.CATCH_UP_S", 1.0)
    pair = pair_of("mysql80")
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    pair.caught_up()
    with running(pair.settings(pair.primary)) as run:
        pair.on_replica("STOP SLAVE")
        pair.source.execute("INSERT INTO t VALUES (2)")
        run.caught_up(pair.source)
    pair.promote()
    refuses(pair.settings(pair.replica), r"lacks transactions that were published.*`tidemark repair`")
    initial = pair.settings(pair.replica)
    with running(replace(initial, snapshot=replace(initial.snapshot, mode="initial"))) as run:
        run.until(
            lambda: [table.state for table in run.producer.coordinator.progress()] == ["done"],
            "the table is read again",
        )
    assert snapshot_ids(pair) == [1]


def test_a_server_of_another_lineage_is_refused(alone, mysql80):
    pair = alone
    with running(pair.settings(pair.primary)) as run:
        pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        run.caught_up(pair.source)
    refuses(pair.settings(mysql80), "shares no transaction")


@pytest.mark.parametrize("kind", ["mysql80", "mariadb114"])
def test_the_last_transaction_of_a_file_is_the_same_when_another_file_follows(kind, pair_of):
    """As after FLUSH BINARY LOGS, or a crash of the server, when nothing was written since."""
    pair = pair_of(kind)
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    for number in range(3):
        with running(pair.settings(pair.primary)) as run:
            pair.source.execute(f"INSERT INTO t VALUES ({number})")
            run.caught_up(pair.source)
        if number == 0:
            pair.source.execute("FLUSH BINARY LOGS")
        else:
            pair.primary.kill()
            pair.primary.restart()
            pair.source.connection = pair.primary.connect(database=pair.source.schema)
    with running(pair.settings(pair.primary)) as run:
        run.caught_up(pair.source)
    assert ids(pair) == [0, 1, 2]


@pytest.mark.parametrize("again", [0, 30])
def test_a_log_that_was_reset_is_not_resumed(again, alone):
    """After RESET the same GTIDs come again: a resume by them would skip what they now stand for."""
    pair = alone
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(pair.settings(pair.primary)) as run:
        pair.source.execute(*(f"INSERT INTO t VALUES ({number})" for number in range(5)))
        run.caught_up(pair.source)
    pair.source.execute("RESET MASTER")
    pair.source.execute(*(f"INSERT INTO t VALUES ({number})" for number in range(100, 100 + again)))
    refuses(pair.settings(pair.primary), r"reading the log cannot resume at .*`tidemark repair`")
    assert ids(pair) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", ["reset", "asked for"])
def test_repair_starts_over_at_the_end_of_the_log(how, alone, tmp_path, capsys):
    pair = alone
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    config = tmp_path / "tidemark.yaml"
    config.write_text(json.dumps(pair.source.mapping()), "utf-8")
    with running(pair.settings(pair.primary)) as run:
        pair.source.execute("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
        run.caught_up(pair.source)
    assert main(["repair", "--config", str(config)]) == 0
    assert "nothing to do" in capsys.readouterr().out
    if how == "reset":
        pair.source.execute("RESET MASTER")
    pair.source.execute("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3)")
    assert main(["repair", "--config", str(config), *([] if how == "reset" else ["--anew"])]) == 0
    assert "epoch 1" in capsys.readouterr().out
    with running(pair.settings(pair.primary)) as run:
        run.until(
            lambda: [table.state for table in run.producer.coordinator.progress()] == ["done"],
            "the table is read again",
        )
        pair.source.execute("INSERT INTO t VALUES (4)")
        run.caught_up(pair.source)
    assert ids(pair) == [1, 2, 4]
    assert snapshot_ids(pair) == [2, 3]


def test_what_was_being_committed_at_the_first_start_is_not_published_after_a_failover(pair_of):
    """It is in the log before the position where reading began, and not among the GTIDs that MySQL reports with that position."""
    pair = pair_of("mysql80")
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 0)")
    pair.caught_up()
    pair.source.execute("SET GLOBAL binlog_group_commit_sync_delay = 1000000")  # µs between the log and the commit
    stop = threading.Event()
    writer = threading.Thread(target=_write_until, args=(pair.primary, stop))
    writer.start()
    time.sleep(0.5)
    with running(pair.settings(pair.primary)) as run:
        stop.set()
        writer.join()
        pair.source.execute("SET GLOBAL binlog_group_commit_sync_delay = 0", "UPDATE t SET v = -1")
        run.caught_up(pair.source)
    pair.caught_up()
    pair.promote()
    pair.on_replica("INSERT INTO shop.t VALUES (2, 0)")
    read_all(pair, pair.replica)
    assert epochs(pair) == ["0000"] * (len(ids(pair)) - 1) + ["0001"]


def test_what_is_being_committed_when_another_server_takes_over_is_not_skipped(pair_of, monkeypatch):
    """Its log holds a transaction already that is not among its executed GTIDs."""
    pair = pair_of("mysql80")
    pair.source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(pair.settings(pair.primary)) as run:
        pair.source.execute("INSERT INTO t VALUES (1)")
        run.caught_up(pair.source)
    pair.caught_up()
    pair.promote()
    pair.on_replica("SET GLOBAL binlog_group_commit_sync_delay = 1000000")
    writer = threading.Thread(target=pair.on_replica, args=("INSERT INTO shop.t VALUES (2)",))

    def while_it_is_written(*arguments: Any) -> Any:
        if writer.ident is None:
            writer.start()
            time.sleep(0.4)
        return current_position(*arguments)

    monkeypatch.setattr("producer.source.lineage.current_position", while_it_is_written)
    with running(pair.settings(pair.replica)) as run:
        writer.join()
        pair.on_replica("INSERT INTO shop.t VALUES (3)")
        run.until(lambda: 3 in ids(pair), "the last row is published")
    assert ids(pair) == [1, 2, 3]


def _write_until(server: Database, stop: threading.Event) -> None:
    with server.connect(database="shop") as connection, connection.cursor() as cursor:
        while not stop.is_set():
            cursor.execute("UPDATE t SET v = v + 1")
