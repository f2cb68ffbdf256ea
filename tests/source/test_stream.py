"""The dump protocol against real servers: where a stream begins, resumes and ends, and words when it cannot."""

from __future__ import annotations

import itertools
import socket
import time
from collections import Counter
from contextlib import closing
from types import SimpleNamespace

import pymysql
import pytest
from pymysqlreplication import BinLogStreamReader

from devservers import Database
from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import LogPosition, server_facts
from producer.binlog import events
from producer.source import dump
from producer.source.dump import BinlogStream, StreamStart
from producer.source.log_facts import other_replica
from schemas.errors import DecodeError, RetriableSourceError, SourceError
from schemas.gtid_sets import MysqlGtidSet, parse_gtid_set
from schemas.settings import SourceSettings
from tests.source.reading import (
    SERVERS,
    Read,
    end_of_log,
    events_by_the_server,
    execute,
    read_all,
    read_to,
    settings_of,
    stream_of,
)
from tests.source.stream_cases import Case, FreshDatabase, positions, start_at
from tests.support.servers import database, end_connection


@pytest.fixture(params=SERVERS)
def case(request: pytest.FixtureRequest, fresh_database: FreshDatabase) -> Case:
    """(server, an empty schema, the end of the log behind its creation)."""
    server = database(request.param)
    schema = fresh_database(server)
    return server, schema, end_of_log(server)


def some_changes(server: Database, schema: str) -> None:
    """Changes over two log files: DDL, inserts, updates, deletes, a savepoint, values of many sizes."""
    execute(
        server,
        "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, a VARCHAR(300), b LONGBLOB)",
        *(f"INSERT INTO t VALUES ({n}, REPEAT('ö', {n}), REPEAT('x', {n * n * 20}))" for n in range(40)),
        "FLUSH BINARY LOGS",
        "UPDATE t SET a = 'all' WHERE id < 30",
        "BEGIN",
        "DELETE FROM t WHERE id = 5",
        "SAVEPOINT here",
        "INSERT INTO t (id) VALUES (1000)",
        "ROLLBACK TO here",
        "COMMIT",
        "ALTER TABLE t ADD c INT DEFAULT 5",
        "DELETE FROM t",
        database=schema,
    )


def test_every_event_comes_at_the_offset_the_server_names(case: Case) -> None:
    server, schema, start = case
    some_changes(server, schema)
    found = read_all(server, start_at(start))
    assert positions(found) == events_by_the_server(server, start)
    assert len(found) > 200 or server.flavour == "mariadb"


def test_a_start_in_a_file_gives_the_same_as_continuing_to_read(case: Case) -> None:
    server, schema, start = case
    some_changes(server, schema)
    found = read_all(server, start_at(start))
    kinds = (events.GTID_EVENT, events.MARIADB_GTID_EVENT)
    boundaries = [one for one in found if one.kind in kinds]
    for boundary in (boundaries[3], boundaries[-2]):
        again = read_all(server, StreamStart(boundary.file, boundary.offset))
        assert positions(again) == positions(found)[positions(found).index((boundary.file, boundary.offset)) :]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the second reader's own
@pytest.mark.parametrize("name", ["mysql80", "mysql97"])  # it cannot follow MariaDB 11.4
def test_a_second_reader_sees_the_same_events(name: str, fresh_database: FreshDatabase) -> None:
    server = database(name)
    schema = fresh_database(server)
    start = end_of_log(server)
    some_changes(server, schema)
    ours = Counter(one.kind for one in read_all(server, start_at(start)))
    other = BinLogStreamReader(
        connection_settings={
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
        },
        server_id=48_214,
        blocking=False,
        resume_stream=True,
        log_file=start.file,
        log_pos=start.pos,
    )
    try:
        theirs = Counter(event.event_type for event in other)
    finally:
        other.close()
    for kind in (events.ROTATE_EVENT, events.FORMAT_DESCRIPTION_EVENT, events.STOP_EVENT):
        del ours[kind], theirs[kind]
    assert sum(theirs.values()) > 150
    assert {kind: ours[kind] for kind in theirs} == dict(theirs)


def test_a_stream_by_gtid_begins_behind_the_set_and_knows_its_offsets(case: Case) -> None:
    server, schema, start = case
    some_changes(server, schema)
    found = read_all(server, StreamStart(gtid_set=start.gtid_set))
    wanted = events_by_the_server(server, start)
    assert [position for position in positions(found) if position >= (start.file, start.pos)] == wanted
    gtids = parse_gtid_set(start.gtid_set, server.flavour)
    for one in found:
        gtid = gtid_of(one)
        if gtid is not None:
            assert not gtids.contains(gtid)
            gtids.add(gtid)
    assert str(gtids) == end_of_log(server).gtid_set


def gtid_of(one: Read) -> str | None:
    if one.kind in events.GTID_EVENTS:
        return events.parse_gtid(one.data, 0, len(one.data)).gtid
    if one.kind == events.MARIADB_GTID_EVENT:
        return events.parse_mariadb_gtid(one.data, 0, len(one.data)).gtid
    return None


def test_a_gtid_set_with_a_hole_gives_the_hole_and_the_rest(
    mysql80: Database, fresh_database: FreshDatabase
) -> None:
    schema = fresh_database(mysql80)
    start = end_of_log(mysql80)
    some_changes(mysql80, schema)
    everything = read_all(mysql80, start_at(start))
    texts = [text for one in everything if (text := gtid_of(one))]
    holed = MysqlGtidSet.parse(start.gtid_set)
    for text in texts[:10] + texts[12:30]:
        holed.add(text)
    found = read_all(mysql80, StreamStart(gtid_set=str(holed)))
    got = [text for one in found if (text := gtid_of(one))]
    assert got == texts[10:12] + texts[30:]
    assert set(positions(found)) <= set(events_by_the_server(mysql80, LogPosition("", 0, "")))


def test_domains_of_mariadb_resume_each_at_its_own_position(
    mariadb114: Database, fresh_database: FreshDatabase
) -> None:
    schema = fresh_database(mariadb114)
    execute(mariadb114, "CREATE TABLE t (id INT PRIMARY KEY)", database=schema)
    start = end_of_log(mariadb114)
    for number in range(12):
        execute(
            mariadb114,
            f"SET SESSION gtid_domain_id = {number % 3}",
            f"INSERT INTO t VALUES ({number})",
            database=schema,
        )
    everything = read_all(mariadb114, start_at(start))
    texts = [text for one in everything if (text := gtid_of(one))]
    position = parse_gtid_set(start.gtid_set, "mariadb")
    for text in [*texts[:4], texts[7], texts[10]]:  # domain 1 has come further than 0 and 2
        position.add(text)
    found = read_all(mariadb114, StreamStart(gtid_set=str(position)))
    got = [text for one in found if (text := gtid_of(one))]
    assert got == [texts[number] for number in (5, 6, 8, 9, 11)]
    assert set(positions(found)) <= set(events_by_the_server(mariadb114, LogPosition("", 0, "")))


def test_an_idle_server_reports_and_nothing_moves(case: Case) -> None:
    server, _, start = case
    with closing(BinlogStream(settings_of(server))) as stream:
        stream.open(start_at(start), heartbeat_s=0.2)
        stream._heartbeat_s = 60  # so much patience with a server that is to report every 0.2 s
        kinds: Counter[int] = Counter()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not kinds.keys() & events.HEARTBEAT_EVENTS:
            batch = stream.read(0.5)
            if batch is not None:
                assert all(batch.is_artificial(index) for index in range(batch.count))
                kinds.update(batch.types.tolist())
        assert kinds.keys() & events.HEARTBEAT_EVENTS
        assert (stream.file, stream.position) == (start.file, start.pos)
        while (batch := stream.read(0.01)) is not None:  # more of them came meanwhile; between two there is nothing
            assert set(batch.types.tolist()) <= events.HEARTBEAT_EVENTS


def test_a_standstill_of_ours_is_not_the_server_s_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand seconds pass between any two looks at the clock."""
    clock = itertools.count(1000, 1000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = BinlogStream(SourceSettings(host="nowhere", tables=(".*",), heartbeat_s=1))
        stream._socket = ours
        monkeypatch.setattr(dump, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
        for turn in range(50):
            assert not stream._wait((2 * turn + 1) * 1000 + 0.01)
        assert stream._silent_s == pytest.approx(0.5)
        stream._silent_s = 20.0
        with pytest.raises(RetriableSourceError, match="has been silent for 20 s"):
            stream._wait(101_000.01)


def begun(stream: BinlogStream) -> None:
    """The server has taken the connection for a reader of its log: the first event, which names the file, is there."""
    assert stream.read(120) is not None


def read_to_the_end(stream: BinlogStream) -> None:
    """Whatever comes, until the stream ends."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        stream.read(1)


def test_a_killed_connection_can_be_retried_and_reading_resumes(case: Case) -> None:
    server, schema, start = case
    with stream_of(server, start_at(start)) as stream:
        begun(stream)
        while stream.read(0.3) is not None:
            pass
        with server.connect() as connection, connection.cursor() as cursor:
            for row in execute(server, "SHOW PROCESSLIST"):
                if str(row[4]).startswith("Binlog Dump"):
                    end_connection(cursor, row[0])
        with pytest.raises(RetriableSourceError):
            read_to_the_end(stream)
        at = StreamStart(stream.file, stream.position)
        stream.close()
        some_changes(server, schema)
        stream.open(at)
        found = read_to(stream, end_of_log(server))
    assert positions(found) == events_by_the_server(server, start)


def test_two_readers_with_one_server_id_are_distinguished_with_a_clear_error(case: Case) -> None:
    server, _, start = case
    with stream_of(server, start_at(start)) as first:
        begun(first)
        with stream_of(server, start_at(start)) as second:
            begun(second)
            with pytest.raises(SourceError, match=r"uses the server id \d+, .*source\.server_id") as caught:
                read_to_the_end(first)
    assert not isinstance(caught.value, RetriableSourceError)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the replica's own
@pytest.mark.parametrize("name", ["mysql80", "mysql97"])
def test_a_replica_that_has_the_server_id_already_is_named(name: str, fresh_database: FreshDatabase) -> None:
    server = database(name)
    start = end_of_log(server)
    some_changes(server, fresh_database(server))
    account = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with connect(ServerAccess.of(settings_of(server))) as connection:
        facts = server_facts(connection)
        replica = BinLogStreamReader(
            connection_settings=account, server_id=48_215, report_slave={"hostname": "db-7", "username": "", "password": "", "port": 3306},
            blocking=True, resume_stream=True, log_file=start.file, log_pos=start.pos,
        )  # fmt: skip
        try:
            next(iter(replica))  # it is connected, and stays so
            assert other_replica(connection, facts, 48_215, "tidemark") == "db-7:3306"
            assert other_replica(connection, facts, 48_215, "db-7") == ""
            assert other_replica(connection, facts, 48_216, "tidemark") == ""
        finally:
            replica.close()


def test_a_purged_position_is_reported_with_what_is_there(mysql80: Database) -> None:
    with stream_of(mysql80, StreamStart("binlog.999999", 4)) as stream, pytest.raises(SourceError) as caught:
        stream.read(120)
    assert "1236" in str(caught.value)
    assert "binlog.0000" in str(caught.value)
    assert not isinstance(caught.value, RetriableSourceError)


def test_a_position_that_is_no_event_is_refused(case: Case) -> None:
    server, _, start = case
    no_event = StreamStart(start.file, start.pos - 3)
    with stream_of(server, no_event) as stream, pytest.raises((SourceError, DecodeError)):
        read_to_the_end(stream)


def test_a_start_beyond_four_gibibytes_by_position_is_refused_with_a_clear_error(mysql80: Database) -> None:
    with pytest.raises(SourceError, match="4 GiB"):
        BinlogStream(settings_of(mysql80)).open(StreamStart("binlog.000001", 1 << 32))


def test_a_slow_reader_holds_the_server_back_and_loses_nothing(
    mysql80: Database, fresh_database: FreshDatabase
) -> None:
    schema = fresh_database(mysql80)
    start = end_of_log(mysql80)
    execute(mysql80, "CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB)", database=schema)
    with stream_of(mysql80, start_at(start), buffer_bytes=1 << 16) as stream:
        execute(
            mysql80,
            *(f"INSERT INTO t VALUES ({n}, REPEAT('x', 900000))" for n in range(30)),
            database=schema,
        )
        found = read_to(stream, end_of_log(mysql80))
    assert positions(found) == events_by_the_server(mysql80, start)


def test_a_wrong_password_and_a_dead_port_are_distinguished(mysql80: Database) -> None:
    with pytest.raises(SourceError, match=r"source\.user") as caught:
        BinlogStream(settings_of(mysql80, password="wrong")).open(StreamStart())
    assert not isinstance(caught.value, RetriableSourceError)
    with pytest.raises(RetriableSourceError):
        BinlogStream(settings_of(mysql80, port=1)).open(StreamStart())


def test_a_host_that_is_gone_is_noticed_in_minutes(mysql80: Database) -> None:
    from mysqlio.connection import connect
    from mysqlio.server_access import ServerAccess

    with connect(ServerAccess.of(settings_of(mysql80))) as connection:
        sock = connection._sock
        tcp = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert [sock.getsockopt(socket.IPPROTO_TCP, option) for option in tcp] == [60, 10, 6, 120_000]


def test_the_stream_refuses_another_server_than_the_one_it_was_opened_for(
    mysql80: Database, mysql97: Database
) -> None:
    from mysqlio.connection import connect
    from mysqlio.server_access import ServerAccess
    from mysqlio.server_facts import server_facts

    connection = connect(ServerAccess.of(settings_of(mysql97)))
    facts = server_facts(connection)
    connection.close()
    with pytest.raises(SourceError, match="not"):
        BinlogStream(settings_of(mysql80), facts).open(StreamStart())


def test_the_log_is_read_over_tls(mysql80: Database, fresh_database: FreshDatabase) -> None:
    from schemas.settings import TlsSettings

    with pymysql.connect(host=mysql80.host, port=mysql80.port, user=mysql80.user, password=mysql80.password):
        pass
    settings = settings_of(mysql80, tls=TlsSettings(mode="required"))
    start = end_of_log(mysql80)
    fresh_database(mysql80)
    end = end_of_log(mysql80)
    stream = BinlogStream(settings)
    stream.open(start_at(start))
    try:
        assert read_to(stream, end)
    finally:
        stream.close()
