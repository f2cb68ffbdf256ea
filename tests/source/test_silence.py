"""Servers that say nothing: distinguished from statements that take long."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pymysql
import pytest

from devservers import Database
from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import current_position, server_facts
from producer.source.dump import StreamStart
from producer.source.log_scan import queries_between
from schemas.errors import RetriableSourceError
from schemas.settings import SourceSettings
from schemas.waiting import WAITS, waiting
from tests.chaos.proxy import Proxy
from tests.support.silent import SilentPeer

PAUSE_S = 7.5
"""Longer than a reader waits that asks for a heartbeat five times a second."""


@pytest.fixture
def source(mysql80: Database) -> SourceSettings:
    return SourceSettings(
        host=mysql80.host,
        port=mysql80.port,
        user=mysql80.user,
        password=mysql80.password,
        tables=(".*",),
        connect_timeout_s=2,
    )


def no_wait_of_this_thread() -> bool:
    """Threads that earlier tests have left may still wait for their servers."""
    return threading.current_thread().name not in {one.thread for one in WAITS.current().values()}


def test_a_wait_of_this_thread_is_noticed() -> None:
    with waiting("source", "127.0.0.1:1", "nothing"):
        assert not no_wait_of_this_thread()
    assert no_wait_of_this_thread()


def test_a_peer_that_never_greets_is_given_up(source: SourceSettings) -> None:
    """HAProxy and ProxySQL accept connections for a server that is down."""
    with SilentPeer() as silent, pytest.raises(RetriableSourceError, match="nothing came from a server for 2 s"):
        connect(ServerAccess.of(replace(source, port=silent.port)))
    assert no_wait_of_this_thread()


def test_a_statement_may_take_longer_than_any_silence(source: SourceSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk of a large table, or a lock that is waited for: the server greets new connections meanwhile."""
    monkeypatch.setattr("mysqlio.connection.SILENT_S", 0.5)
    with connect(ServerAccess.of(source)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT SLEEP(5)")
        assert cursor.fetchone() == (0,)


def test_a_server_that_falls_silent_under_a_statement_is_given_up(
    source: SourceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mysqlio.connection.SILENT_S", 0.5)
    with Proxy(source.port) as proxy, connect(ServerAccess.of(replace(source, port=proxy.port))) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            proxy.stall()
            begun = time.monotonic()
            with pytest.raises(pymysql.OperationalError, match="the server is taken for dead"):
                cursor.execute("SELECT 1")
        assert time.monotonic() - begun < 60
    assert no_wait_of_this_thread()


def test_the_search_for_statements_waits_for_a_log_that_pauses(source: SourceSettings, mysql80: Database) -> None:
    """The server reads a long log for seconds before it sends more of it: it is asked for heartbeats as seldom as the settings say."""
    with mysql80.connect() as connection, connection.cursor() as cursor:
        here, facts = current_position(connection), server_facts(connection)
        cursor.execute("CREATE DATABASE pauses")
        cursor.execute("CREATE TABLE pauses.t (v LONGBLOB)")
        for _ in range(24):  # more than the buffers between server and reader hold
            cursor.execute("INSERT INTO pauses.t VALUES (REPEAT('x', 1 << 20))")
        cursor.execute("DROP DATABASE pauses")
        end = current_position(connection)
    with Proxy(source.port) as proxy:
        behind = replace(source, port=proxy.port, server_id=48_214)
        queries = queries_between(behind, facts, StreamStart(here.file, here.pos), end)
        texts = [next(queries).sql]
        proxy.stall()
        healing = threading.Timer(PAUSE_S, proxy.heal)
        healing.start()
        texts += [query.sql for query in queries]
        healing.join()
    assert (texts[0], texts[-1]) == ("CREATE DATABASE pauses", "DROP DATABASE pauses")
