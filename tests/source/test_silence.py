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
from schemas.errors import RetriableSourceError
from schemas.settings import SourceSettings
from schemas.waiting import WAITS, waiting
from tests.chaos.proxy import Proxy
from tests.support.silent import SilentPeer


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
