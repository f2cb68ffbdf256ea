"""The servers verify is tested on; `TIDEMARK_TEST_SERVERS=all` adds more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pymysql.connections import Connection

from devservers import Database
from schemas.position import Position
from schemas.settings import Settings
from tests.support.servers import own_database
from tests.verify import sinks

FEW = ("mysql80", "mariadb114")
ALL = ("mysql57", "mysql80", "mysql97", "mariadb1011", "mariadb114", "mariadb118")
SERVERS = ALL if os.environ.get("TIDEMARK_TEST_SERVERS") == "all" else FEW


@dataclass(frozen=True, slots=True)
class Scene:
    """A source database, a connection to it, and a sink folder."""

    server: Database
    database: str
    connection: Connection[Any]
    settings: Settings

    def sql(self, *statements: str) -> None:
        sinks.run_sql(self.connection, *statements)

    def end(self) -> Position:
        return sinks.end_of_log(self.connection, self.server.flavour)


@pytest.fixture(params=SERVERS)
def scene(
    request: pytest.FixtureRequest, tmp_path: Path, fresh_database: Callable[[Database], str]
) -> Iterator[Scene]:
    # mysql-replication, which follows the log here, cannot read all that other suites leave in one.
    server = own_database(request.param, "verify")
    database = fresh_database(server)
    settings = sinks.settings_for(server, database, tmp_path / "lake")
    with server.connect(database=database) as connection:
        sinks.run_sql(
            connection,
            "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
            f"CREATE TABLE tidemark_signal {sinks.SIGNAL_DDL}",
        )
        yield Scene(server, database, connection, settings)
