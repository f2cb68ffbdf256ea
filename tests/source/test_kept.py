"""A connection that is kept for a moment."""

from __future__ import annotations

import pymysql
import pytest

from devservers import Database
from mysqlio.connection import Connection, connect
from mysqlio.kept_connection import KEPT_S, KeptConnection
from mysqlio.server_access import ServerAccess
from tests.source.reading import settings_of


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(mysql80: Database, clock: Clock) -> KeptConnection:
    settings = settings_of(mysql80)
    return KeptConnection(lambda: connect(ServerAccess.of(settings)), clock)


def number_of(connection: Connection) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


def test_one_that_was_used_a_moment_ago_is_used_again_and_an_older_one_is_not(
    kept: KeptConnection, clock: Clock
) -> None:
    numbers = []
    for seconds in (0.0, KEPT_S / 2, KEPT_S):
        clock.now += seconds
        with kept.session() as connection:
            numbers.append(number_of(connection))
    assert numbers[0] == numbers[1] != numbers[2]
    assert connection.open
    kept.close()
    assert not connection.open


def test_an_error_inside_ends_it(kept: KeptConnection) -> None:
    with kept.session() as connection:
        number = number_of(connection)
    with pytest.raises(pymysql.ProgrammingError), kept.session(), connection.cursor() as cursor:
        cursor.execute("nonsense")
    assert not connection.open
    with kept.session() as another:
        assert number_of(another) != number
    kept.close()
