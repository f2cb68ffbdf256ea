"""Sources that nothing is written to (`source.read_only`): windows by GTIDs, or by the place of a consistent snapshot.

The producer's user may not write anywhere, not even to the signal table that somebody else fills.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import pytest

from devservers import Database, start_database
from mysqlio.connection import Connection, connect, server_version
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import current_position, flavour_of
from producer.binlog import events
from producer.snapshot import snapshot_state
from producer.snapshot.snapshot_state import State
from producer.snapshot.turns import Turns
from producer.snapshot.watermark import WindowRow
from producer.snapshot.windowing import ReadOnly
from producer.source.dump import BinlogStream, StreamStart
from producer.source.visibility import owned_gtids, visible_position
from producer.stream.offset import LogOffset
from schemas import topics
from schemas.errors import SourceError
from schemas.gtid_sets import parse_gtid_set
from schemas.markers import MARKER_KEY
from schemas.settings import SourceSettings
from tests.source.reading import end_of_log, settings_of
from tests.support.big_table import (
    ROWS,
    Load,
    folded_by_consumer,
    folded_by_rule,
    is_done,
    make_big,
    published,
    rows_read,
    stored,
)
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database, new_database, unique_name
from tests.support.topics import read_topic

GRANTS = {
    "mysql80": ("REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN ON *.*", "SELECT ON {schema}.*"),
    "mariadb114": ("REPLICATION SLAVE, REPLICATION CLIENT, BINLOG MONITOR ON *.*", "SELECT ON {schema}.*"),
}


@pytest.fixture(params=GRANTS)
def source(request: pytest.FixtureRequest, kafka: Any) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, new_database(server), kafka.bootstrap_servers)
    created.execute(SIGNAL)
    yield created
    created.connection.close()


def reading(source: Source, **snapshot: Any) -> Any:
    """Settings of a user who may only read."""
    user = unique_name("reader")[:30]
    source.execute(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'reads'")
    for grant in GRANTS[source.server.name]:
        source.execute(f"GRANT {grant.format(schema=source.schema)} TO '{user}'@'%'")
    made = source.settings(user=user, password="reads", read_only=True)
    return replace(made, snapshot=replace(made.snapshot, **snapshot))


@pytest.mark.parametrize("merge", ["spark", "producer"])
def test_a_source_that_is_only_read_gives_its_rows_under_load_and_restarts(
    source: Source, merge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_big(source)
    made = reading(source, mode="initial", merge=merge, chunk_rows=40, readers=2)
    load = Load(source, 11)
    start = Turns.start_next_window

    def half(turns: Turns) -> Any:
        return start(turns) if sum(task.rows for task in turns.tasks.values()) < ROWS / 2 else None

    try:
        with monkeypatch.context() as patched, running(made) as run:
            patched.setattr(Turns, "start_next_window", half)  # it is not to end before we have looked
            run.until(lambda: rows_read(run) >= 300, "300 rows are read")
            assert not is_done(run)
        with running(made) as run:
            run.until(lambda: is_done(run), "the snapshot is done")
            ask = json.dumps({"data-collections": [f"{source.schema}.big"], "type": "INCREMENTAL"})
            source.execute(f"INSERT INTO tidemark_signal VALUES ('again', 'execute-snapshot', '{ask}')")
            run.until(lambda: len(run.producer.coordinator.progress()) == 2 and is_done(run), "it was read again")
            load.stop()
            run.caught_up(source)
    finally:
        load.stop()
    records = published(source)
    assert [record.value["op"] for record in records].count("r") > ROWS
    if merge == "producer":
        assert folded_by_consumer(source) == stored(source)
    else:
        assert folded_by_rule(records) == stored(source)
        kinds = markers(source, "big")
        assert kinds.count("close") == kinds.count("open") > 100
        assert kinds.count("complete") == 2 * 2  # of two snapshots in two partitions
    with source.connection.cursor() as cursor:
        cursor.execute("SELECT id FROM tidemark_signal")
        assert cursor.fetchall() == (("again",),)


def markers(source: Source, table: str) -> list[str]:
    topic = topics.snapshot_topic(source.name, source.schema, table)
    return [record.value["type"] for record in read_topic(source.bootstrap_servers, topic) if record.key == MARKER_KEY]


class Follower(threading.Thread):
    """A log reader without Kafka: `committed` is where it is, and the GTIDs of everything before."""

    def __init__(self, settings: SourceSettings) -> None:
        super().__init__(daemon=True)
        self._settings = settings
        self._stopped = threading.Event()
        with connect(ServerAccess.of(settings)) as connection:
            here = self._start = current_position(connection)
            self._gtids = parse_gtid_set(here.gtid_set, flavour_of(server_version(connection)))
        self.committed = LogOffset(0, here.file, here.pos, here.gtid_set, "")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        stream = BinlogStream(self._settings)
        stream.open(StreamStart(file=self._start.file, pos=self._start.pos), server_id=7008)
        try:
            while not self._stopped.is_set():
                batch = stream.read(0.1)
                for index in range(0 if batch is None else batch.count):
                    assert batch is not None
                    kind, begin, stop = int(batch.types[index]), int(batch.starts[index]), int(batch.ends[index])
                    if kind in events.GTID_EVENTS:
                        self._gtids.add(events.parse_gtid(batch.memory, begin, stop).gtid)
                    elif kind == events.XID_EVENT:
                        after = int(batch.offsets[index]) + int(batch.sizes[index])
                        self.committed = LogOffset(0, batch.file, after, str(self._gtids), "")
        finally:
            stream.close()


WAITING_BEFORE_VISIBLE = {
    "mysql97": (
        "SET GLOBAL rpl_semi_sync_source_timeout = 60000",
        "SET GLOBAL rpl_semi_sync_source_enabled = ON",
    ),
    "mariadb114": (
        "SET GLOBAL rpl_semi_sync_master_timeout = 60000",
        "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC",
        "SET GLOBAL rpl_semi_sync_master_enabled = ON",
    ),
}
"""A commit waits for a replica that does not exist: it is in the log, and nobody sees it until the waiting is switched off."""
NO_LONGER = {
    "mysql97": "SET GLOBAL rpl_semi_sync_source_enabled = OFF",
    "mariadb114": "SET GLOBAL rpl_semi_sync_master_enabled = OFF",
}


@pytest.fixture(scope="module", params=WAITING_BEFORE_VISIBLE)
def delaying(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A server that can have such commits, and a table `d.t`."""
    with start_database(request.param, tmp_path_factory.mktemp("delaying")) as server:
        with server.connect() as connection, connection.cursor() as cursor:
            end_of_log(server)  # a file of MariaDB has begun then, and nothing but commits is written to it
            cursor.execute("CREATE DATABASE d")
            cursor.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
            if server.flavour == "mysql":
                cursor.execute("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
        yield server


def settings_of_waiting(server: Database) -> SourceSettings:
    """From now on commits wait; the table is empty."""
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in ("DELETE FROM d.t", *WAITING_BEFORE_VISIBLE[server.name]):
            cursor.execute(statement)
    return settings_of(server)


def test_low_is_taken_when_what_the_log_reader_has_read_is_visible_and_not_before(delaying: Database) -> None:
    kind, settings = delaying.name, settings_of_waiting(delaying)
    with Follower(settings) as follower, connect(ServerAccess.of(settings)) as connection:
        before = follower.committed.position
        writer = threading.Thread(target=insert, args=(settings,))
        writer.start()
        until(lambda: follower.committed.position > before)
        assert not is_visible(connection), "the commit does not wait: this proves nothing"
        row = WindowRow.open("w", "d.t", "r", datetime.now(UTC))
        release = threading.Timer(1, make_visible, (kind, settings))
        release.start()
        low = ReadOnly(lambda: follower.committed).open(connection, row, follower.committed.position)
        assert is_visible(connection)
        assert low.position >= follower.committed.position > before
        release.join()
        writer.join()


def test_the_end_of_the_log_is_reported_when_what_is_before_it_is_visible(delaying: Database) -> None:
    kind, settings = delaying.name, settings_of_waiting(delaying)
    with connect(ServerAccess.of(settings)) as connection:
        before = current_position(connection)
        writer = threading.Thread(target=insert, args=(settings,))
        writer.start()
        until(lambda: current_position(connection).pos > before.pos)
        assert not is_visible(connection), "the commit does not wait: this proves nothing"
        release = threading.Timer(1, make_visible, (kind, settings))
        if kind == "mysql97":
            release.start()
        visible = visible_position(connection)
        # MariaDB reports a position at once: the one before
        assert is_visible(connection) is (visible.pos > before.pos)
        assert visible.pos > before.pos or kind == "mariadb114"
        if kind == "mariadb114":
            release.start()
        release.join()
        writer.join()
        assert visible_position(connection).pos == current_position(connection).pos > before.pos


def test_gtids_that_are_owned_are_distinguished() -> None:
    one, other = "1a782c0e-e655-11f1-b0cf-02fc00000001", "2b782c0e-e655-11f1-b0cf-02fc00000002"
    assert owned_gtids("") == frozenset()
    assert owned_gtids(f"{one}:7#12:8#13,\n{other}:tag_1:9#4") == {(one, "7#12"), (one, "8#13"), (f"{other}:tag_1", "9#4")}


def insert(settings: SourceSettings) -> None:
    with connect(ServerAccess.of(settings)) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO d.t VALUES (1)")


def make_visible(kind: str, settings: SourceSettings) -> None:
    with connect(ServerAccess.of(settings)) as connection, connection.cursor() as cursor:
        cursor.execute(NO_LONGER[kind])


def is_visible(connection: Connection) -> bool:
    with connection.cursor() as cursor:
        return bool(cursor.execute("SELECT id FROM d.t"))


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_without_gtids_a_source_that_is_only_read_is_refused_with_a_clear_error(kafka: Any, tmp_path: Path) -> None:
    with start_database("mysql80", tmp_path, {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        source = Source(server, new_database(server), kafka.bootstrap_servers)
        source.execute(SIGNAL)
        with pytest.raises(SourceError, match="gtid_mode is OFF"), running(reading(source, mode="never")):
            pass
        source.connection.close()


def test_a_server_that_gives_up_gtids_while_we_run_is_refused_with_a_clear_error_until_it_has_them_again(
    kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log is read further, nothing is lost of it; but nothing shows any more what a chunk would contain."""
    monkeypatch.setattr(snapshot_state, "MAX_ATTEMPTS", 2)
    with start_database("mysql80", tmp_path) as server:
        source = Source(server, new_database(server), kafka.bootstrap_servers)
        source.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        ask = json.dumps({"data-collections": [f"{source.schema}.t"], "type": "INCREMENTAL"})
        with running(reading(source, mode="never")) as run:
            run.caught_up(source)
            requests = run.producer.coordinator.shared.ledger.requests
            for number, mode in enumerate(("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"), 2):
                source.execute(f"SET GLOBAL gtid_mode = {mode}", f"INSERT INTO t VALUES ({number})")
                source.execute(f"INSERT INTO tidemark_signal VALUES ('{mode}', 'execute-snapshot', '{ask}')")
                run.until(lambda: mode in requests and requests[mode].state.final, f"{mode} is answered")  # noqa: B023
                assert requests[mode].state is State.FAILED
                assert f"gtid_mode is {mode}, and without GTIDs" in requests[mode].error
            run.caught_up(source)
            assert [record.value["after"]["id"] for record in source.changes("t")] == [2, 3, 4]
            for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"):
                source.execute(f"SET GLOBAL gtid_mode = {mode}")
            source.execute(f"INSERT INTO tidemark_signal VALUES ('ON', 'execute-snapshot', '{ask}')")
            run.until(lambda: "ON" in requests and requests["ON"].state is State.DONE, "the table is read")
            run.caught_up(source)
        assert folded_by_rule(published(source, "t")) == stored(source, "t")
        source.connection.close()
