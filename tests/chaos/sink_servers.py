"""The databases of relational sinks: servers that rounds share, started when the first one needs them."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from devservers import Database, Postgres, start_database, start_postgres
from devservers.processes import ServerStartError
from tests.chaos.proxy import Proxy

_SERVERS: Final = {"postgresql": "postgres17", "mysql": "mysql97", "mariadb": "mariadb114"}
_RESTARTS: Final = 10
SinkDatabase = Database | Postgres


@dataclass(frozen=True, slots=True)
class SinkHost:
    """Where a relational sink of a round writes: the server, and the proxy by which the merge job reaches it."""

    kind: str
    server: SinkDatabase
    proxy: Proxy

    @property
    def settings(self) -> dict[str, Any]:
        """The keys of the sink that say where its database is."""
        path = f"{self.server.database}" if isinstance(self.server, Postgres) else "?sslMode=DISABLED"
        url = f"{self.kind}://127.0.0.1:{self.proxy.port}/{path}"
        return {"url": url, "user": self.server.user, "password": self.server.password}


class SinkServers:
    """Use it in a `with` statement. They are not the server that is read: their folder is another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "sinks"
        self._started: dict[str, SinkDatabase] = {}
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._started.values():
            server.kill()  # its data go with the folder
        self._ends.close()

    def of(self, kind: str) -> SinkDatabase:
        """Return the server of a type of sink; it runs."""
        if kind not in self._started:
            self._folder.mkdir(parents=True, exist_ok=True)
            start: Any = start_postgres if kind == "postgresql" else start_database
            self._started[kind] = self._ends.enter_context(start(_SERVERS[kind], self._folder))
        server = self._started[kind]
        if not server.running:
            restart(server)
        return server


def restart(server: SinkDatabase) -> None:
    """Start a server that was killed: what it had started may need a moment to see that it is gone."""
    for attempt in range(_RESTARTS):
        try:
            server.restart()
        except ServerStartError:
            if attempt == _RESTARTS - 1:
                raise
            time.sleep(1)
        else:
            return


def drop(server: SinkDatabase, names: list[str]) -> None:
    """Drop schemas (PostgreSQL) or databases with all that they have."""
    if isinstance(server, Postgres):
        with server.connect() as connection:
            for name in names:
                connection.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')
        return
    with server.connect() as connection, connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")
