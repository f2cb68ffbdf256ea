"""XA transactions: rows are published at XA COMMIT, once, wherever the producer was stopped."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mysqlio.connection import Connection, connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import LogPosition, current_position
from producer.source.log_facts import first_position, xa_recover
from schemas.errors import DecodeError, SourceError
from tests.support.producers import Source, running
from tests.support.servers import wait_until_gone


@pytest.fixture(autouse=True)
def _xa_ended(source: Source) -> Iterator[None]:
    """Whatever a test leaves prepared would hold back the server's other tests."""
    yield
    connection = connect(ServerAccess.of(source.settings().source))
    with connection.cursor() as cursor:
        for xid in xa_recover(connection):
            cursor.execute(f"XA ROLLBACK {xid}")
    connection.close()


def prepare(source: Source, xid: str, *statements: str) -> None:
    """Prepare an XA transaction on a connection of its own, which then ends: anyone may finish it."""
    with source.server.connect(database=source.schema) as connection, connection.cursor() as cursor:
        for statement in (
            f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'"
        ):  # fmt: skip
            cursor.execute(statement)
        thread = connection.thread_id()
    with source.connection.cursor() as cursor:
        wait_until_gone(cursor, thread)


def keys(source: Source) -> list[int]:
    """Keys of the changes in the order of their positions."""
    return [(change.value["after"] or change.value["before"])["id"] for change in source.changes("t")]


def test_rows_are_published_at_xa_commit_with_its_position(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    with running(source.settings()) as run:
        prepare(source, "a", "INSERT INTO t VALUES (1, 1), (2, 2)", "UPDATE t SET v = 3 WHERE id = 1")
        source.execute("INSERT INTO t VALUES (7, 7)")
        run.caught_up(source)
        assert keys(source) == [7]
        source.execute("XA COMMIT 'a'", "INSERT INTO t VALUES (8, 8)")
        run.caught_up(source)
    changes = source.changes("t")
    assert [(c.value["op"], c.value["after"]) for c in changes] == [
        ("c", {"id": 7, "v": 7}),
        ("c", {"id": 1, "v": 1}),
        ("c", {"id": 2, "v": 2}),
        ("u", {"id": 1, "v": 3}),
        ("c", {"id": 8, "v": 8}),
    ]
    sources = [change.value["source"] for change in changes]
    positions = [(block["file"], block["pos"]) for block in sources]
    assert positions == sorted(positions)
    assert len({block["gtid"] for block in sources}) == 3
    assert [int(block["sequence"][-10:]) for block in sources[1:4]] == [1, 2, 3]
    assert len({block["sequence"][:-10] for block in sources[1:4]}) == 1
    assert run.producer.reader.committed.resume is None


def test_xa_transactions_are_published_in_commit_order(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(source.settings()) as run:
        prepare(source, "a", "INSERT INTO t VALUES (1)")
        prepare(source, "b", "INSERT INTO t VALUES (2)")
        prepare(source, "c", "INSERT INTO t VALUES (3)")
        source.execute("XA COMMIT 'c'", "XA ROLLBACK 'b'", "XA COMMIT 'a'")
        run.caught_up(source)
    assert keys(source) == [3, 1]


def test_one_phase_commits_and_what_was_never_prepared(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(source.settings()) as run:
        source.execute(
            "XA START 'a'", "INSERT INTO t VALUES (1)", "XA END 'a'", "XA COMMIT 'a' ONE PHASE",
            "XA START 'a'", "INSERT INTO t VALUES (2)", "XA END 'a'", "XA ROLLBACK 'a'",
            "XA START 'a'", "SELECT * FROM t", "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'",
            "XA START 'a'", "INSERT INTO t VALUES (3)", "SAVEPOINT s", "INSERT INTO t VALUES (4)",
            "ROLLBACK TO s", "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'",
        )  # fmt: skip
        run.caught_up(source)
    assert keys(source) == [1, 3]


def test_a_restart_between_prepare_and_commit_publishes_everything_once(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with running(source.settings()) as run:
        source.execute("INSERT INTO t VALUES (10)")
        prepare(source, "a", "INSERT INTO t VALUES (1)")
        source.execute("INSERT INTO t VALUES (11)", "FLUSH BINARY LOGS")
        prepare(source, "b", "INSERT INTO t VALUES (2)")
        prepare(source, "c", "INSERT INTO t VALUES (3)")
        source.execute("XA ROLLBACK 'c'", "INSERT INTO t VALUES (12)")
        run.caught_up(source)
    first = run.producer.reader.committed
    assert first.resume is not None
    assert (first.resume.file, first.resume.pos) < (first.file, first.pos)
    source.execute("INSERT INTO t VALUES (13)")
    with running(source.settings()) as run:
        source.execute("XA COMMIT 'a'", "INSERT INTO t VALUES (14)")
        run.caught_up(source)
    second = run.producer.reader.committed
    assert second.resume is not None
    assert (second.resume.file, second.resume.pos) > (first.resume.file, first.resume.pos)
    assert second.gtid_set != first.gtid_set
    with running(source.settings()):
        pass  # stopped while it reads back
    with running(source.settings()) as run:
        run.caught_up(source)
    source.execute("XA COMMIT 'b'", "INSERT INTO t VALUES (15)")
    with running(source.settings()) as run:
        run.caught_up(source)
    assert run.producer.reader.committed.resume is None
    assert keys(source) == [10, 11, 12, 13, 1, 14, 2, 15]


def test_a_first_start_waits_for_what_was_prepared_before_it(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    prepare(source, "a", "INSERT INTO t VALUES (1)")

    def meanwhile() -> None:
        prepare(source, "b", "INSERT INTO t VALUES (2)")
        source.execute("XA COMMIT 'a'")

    def first_position_while_others_work(connection: Connection) -> tuple[LogPosition, LogPosition]:
        other = threading.Thread(target=meanwhile)

        def look(connection: Connection) -> tuple[str, ...]:
            found = xa_recover(connection)
            if other.ident is None:  # behind the first look
                other.start()
            return found

        with monkeypatch.context() as patched:
            patched.setattr("producer.source.log_facts.xa_recover", look)
            try:
                return first_position(connection, patience_s=120)
            finally:
                other.join()

    monkeypatch.setattr("producer.resume.first_position", first_position_while_others_work)
    with running(source.settings()) as run:
        source.execute("XA COMMIT 'b'", "INSERT INTO t VALUES (3)")
        run.caught_up(source)
    assert keys(source) == [2, 3]


def test_the_commit_of_an_unknown_xid_stops_the_reader_with_a_clear_error(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    prepare(source, "a", "INSERT INTO t VALUES (1)")
    monkeypatch.setattr("producer.resume.first_position", lambda it: (current_position(it),) * 2)
    with running(source.settings()) as run:
        source.execute("XA COMMIT 'a'")
        run.until_ended()
        assert isinstance(run.error, DecodeError)
    assert "X'61',X'',1" in str(run.error)
    assert "tidemark repair --anew" in str(run.error)


def test_a_first_start_names_xa_transactions_that_do_not_end(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    prepare(source, "a", "INSERT INTO t VALUES (1)")
    connection = connect(ServerAccess.of(source.settings().source))
    with pytest.raises(SourceError, match="1 XA transactions") as caught:
        first_position(connection, patience_s=0.5)
    connection.close()
    assert "XA COMMIT or XA ROLLBACK" in str(caught.value)
