"""The GTIDs before an end of the log, by two ways: the file before it, and what is executed without what is behind it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from devservers import Database
from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import current_position, server_facts
from producer.source import lineage
from producer.source.lineage import gtids_of_its_file, gtids_without_those_behind, with_its_gtids
from schemas.errors import RetriableSourceError
from schemas.settings import SourceSettings
from tests.source.reading import execute, settings_of
from tests.support.servers import database, new_database, own_database

ROUNDS = 6


def with_a_log(name: str, *, own: bool = False) -> tuple[Database, str, SourceSettings]:
    """A table on a server whose newest file has a megabyte. Not all that read the log of a shared one know GTIDs with tags.

    The file is a new one: in that of a shared server may be hundreds of megabytes of other tests, and the slow way reads all.
    """
    server = own_database(name, "tagged") if own else database(name)
    schema = new_database(server)
    execute(server, f"CREATE TABLE {schema}.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(1000))")
    rows = ",".join(["(repeat('x', 1000))"] * 1000)
    execute(server, "FLUSH BINARY LOGS", f"INSERT INTO {schema}.t (v) VALUES {rows}")
    return server, schema, settings_of(server)


@contextmanager
def writers(server: Database, schema: str, *before: str) -> Iterator[None]:
    """Three connections that commit one row after the other."""
    ended = threading.Event()

    def write() -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            for statement in before:
                cursor.execute(statement)
            while not ended.is_set():
                cursor.execute(f"INSERT INTO {schema}.t (v) VALUES ('y')")
                connection.commit()

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)


@pytest.mark.parametrize(
    ("name", "tagged"),
    [
        ("mysql57", ""),
        ("mysql80", ""),
        pytest.param("mysql97", "SET SESSION gtid_next = 'AUTOMATIC:tidemark'", marks=pytest.mark.slow),  # a server of its own
    ],
)
def test_both_ways_find_the_same_while_others_commit(name: str, tagged: str) -> None:
    server, schema, settings = with_a_log(name, own=bool(tagged))
    known = []
    with connect(ServerAccess.of(settings)) as connection, writers(server, schema, *filter(None, [tagged])):
        facts = server_facts(connection)
        for _ in range(ROUNDS):
            end = current_position(connection, facts)
            quickly = gtids_without_those_behind(settings, facts, connection, end)
            if quickly is not None:
                known.append((quickly, gtids_of_its_file(settings, facts, connection, end)))
    assert len(known) > ROUNDS // 2
    for quickly, slowly in known:
        assert quickly == slowly
    assert known[0][0] != known[-1][0]


def test_a_first_start_reads_nothing_of_the_file_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, settings = with_a_log("mysql80")
    with connect(ServerAccess.of(settings)) as connection:
        facts = server_facts(connection)
        end = current_position(connection, facts)
        expected = gtids_of_its_file(settings, facts, connection, end)
        monkeypatch.setattr(lineage, "gtids_of_its_file", lambda *_: pytest.fail("the file is read"))
        assert with_its_gtids(settings, facts, connection, end).gtid_set == str(expected)


def test_what_has_a_gtid_and_may_be_in_the_log_is_looked_up_there(monkeypatch: pytest.MonkeyPatch) -> None:
    server, schema, settings = with_a_log("mysql80")
    monkeypatch.setattr(lineage, "_SETTLED_S", 0.1)
    with connect(ServerAccess.of(settings)) as connection, server.connect() as other, other.cursor() as cursor:
        facts = server_facts(connection)
        other_server = "11111111-2222-3333-4444-555555555555"
        cursor.execute(f"SET gtid_next = '{other_server}:5'")
        cursor.execute("START TRANSACTION")
        cursor.execute(f"INSERT INTO {schema}.t (v) VALUES ('as a replica')")
        end = current_position(connection, facts)
        assert gtids_without_those_behind(settings, facts, connection, end) is None
        assert other_server not in with_its_gtids(settings, facts, connection, end).gtid_set
        other.commit()
        cursor.execute("SET gtid_next = 'AUTOMATIC'")
        assert other_server not in with_its_gtids(settings, facts, connection, end).gtid_set
        end = current_position(connection, facts)
        assert f"{other_server}:5" in with_its_gtids(settings, facts, connection, end).gtid_set


def test_a_log_that_was_reset_between_two_questions_is_an_error_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, settings = with_a_log("mysql80")
    with connect(ServerAccess.of(settings)) as connection:
        facts = server_facts(connection)
        end = current_position(connection, facts)
        answers = [end, replace(end, pos=end.pos - 100)]
        monkeypatch.setattr(lineage, "current_position", lambda *_: answers.pop(0))
        with pytest.raises(RetriableSourceError, match="was reset meanwhile"):
            gtids_without_those_behind(settings, facts, connection, end)
        answers.append(replace(end, pos=end.pos - 100))
        assert gtids_without_those_behind(settings, facts, connection, end) is None
