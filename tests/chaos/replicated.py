"""A primary and its replica which change places: stands where one server does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pymysql.cursors import DictCursor

from tidemark.embedded import Database, start_database

_PATIENCE_S = 60


class ReplicatedDatabase:
    """Two MySQL servers with GTIDs; attributes and methods are those of the one that is written to."""

    def __init__(self, folder: Path) -> None:
        self.active = start_database("mysql80", _made(folder / "one"), {"server_id": "11"})
        self.other = start_database("mysql80", _made(folder / "two"), {"server_id": "12", "log_bin": "two"})
        self._follow()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.active, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.active.close()
        self.other.close()

    @property
    def servers(self) -> tuple[Database, Database]:
        """Both."""
        return self.active, self.other

    def switch(self, *, kill: bool) -> None:
        """The replica takes over when it has everything; the former primary follows it, after a crash if `kill`."""
        old, new = self.active, self.other
        _execute(old, "SET GLOBAL super_read_only = ON")
        self.wait_for_replica()
        _execute(new, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL super_read_only = OFF")
        self.active, self.other = new, old  # before the crash: whoever connects after it would write there
        if kill:
            old.kill()
            old.restart()
        self._follow()

    def wait_for_replica(self) -> None:
        """Wait until the replica has executed everything."""
        executed = "".join(_ask(self.active, "SELECT @@gtid_executed").split())
        left = _ask(self.other, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", executed, _PATIENCE_S)
        if left != 0:
            with self.other.connect(cursorclass=DictCursor) as connection, connection.cursor() as cursor:
                cursor.execute("SHOW SLAVE STATUS")
                status = {name: value for name, value in (cursor.fetchone() or {}).items() if "Err" in name or "State" in name}
            message = f"the replica has not executed {executed} in {_PATIENCE_S} s: {status}"
            raise AssertionError(message)

    def _follow(self) -> None:
        source = self.active
        _execute(
            self.other,
            "SET GLOBAL super_read_only = ON",
            f"CHANGE MASTER TO MASTER_HOST='{source.host}', MASTER_PORT={source.port}, MASTER_USER='{source.user}',"
            f" MASTER_PASSWORD='{source.password}', MASTER_AUTO_POSITION=1, GET_MASTER_PUBLIC_KEY=1, MASTER_CONNECT_RETRY=1",
            "START SLAVE",
        )


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _execute(server: Database, *statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _ask(server: Database, sql: str, *values: Any) -> Any:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(sql, values)
        return (cursor.fetchone() or (None,))[0]
