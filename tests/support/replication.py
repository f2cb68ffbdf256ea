"""Replication by GTIDs in the words of each server: MySQL 5.7, 8.0 and 9.7, MariaDB."""

from __future__ import annotations

from typing import Any, Final

from pymysql.cursors import DictCursor

from devservers import Database

_ADMIN: Final = {"user": "replication_admin", "password": "replication_admin"}


def options_of(name: str, server_id: int, log_bin: str) -> dict[str, str]:
    """What a server that is to be replica or primary is started with."""
    options = {"server_id": str(server_id), "log_bin": log_bin}
    return options if name in ("mysql80", "mysql97") else {**options, "log_slave_updates": "ON"}


def prepare(server: Database) -> None:
    """MariaDB lets users with READ ONLY ADMIN write to a replica: ours loses it, another account gets it."""
    if server.flavour == "mariadb":
        user, password = _ADMIN["user"], _ADMIN["password"]
        execute(
            server,
            "SET sql_log_bin = 0",
            f"CREATE USER {user}@'%' IDENTIFIED BY '{password}'",
            f"GRANT ALL ON *.* TO {user}@'%' WITH GRANT OPTION",
            f"REVOKE READ ONLY ADMIN ON *.* FROM {server.user}@'%'",
        )


def follow(replica: Database, primary: Database, *, former_primary: bool) -> None:
    """Read only from now on, and everything from the primary."""
    forbid_writes(replica)
    source = {
        "HOST": f"'{primary.host}'", "PORT": primary.port, "USER": f"'{primary.user}'",
        "PASSWORD": f"'{primary.password}'", "CONNECT_RETRY": 1,
    }  # fmt: skip
    if _speaks_of_replicas(replica):
        source["AUTO_POSITION"] = 1
        words = [f"SOURCE_{name}={value}" for name, value in source.items()] + ["GET_SOURCE_PUBLIC_KEY=1"]
        as_admin(replica, f"CHANGE REPLICATION SOURCE TO {', '.join(words)}", "START REPLICA")
        return
    words = [f"MASTER_{name}={value}" for name, value in source.items()]
    if replica.flavour == "mariadb":
        words += ["MASTER_SSL_VERIFY_SERVER_CERT=0", "MASTER_USE_GTID=slave_pos"]
        words += ["MASTER_DEMOTE_TO_SLAVE=1"] if former_primary else []
    else:
        words += ["MASTER_AUTO_POSITION=1"]
        words += ["GET_MASTER_PUBLIC_KEY=1"] if replica.name == "mysql80" else []
    as_admin(replica, f"CHANGE MASTER TO {', '.join(words)}", "START SLAVE")


def stop_following(replica: Database) -> None:
    """Forget the primary."""
    verb = "REPLICA" if _speaks_of_replicas(replica) else "SLAVE"
    as_admin(replica, f"STOP {verb}", f"RESET {verb} ALL")


def forbid_writes(server: Database) -> None:
    """Refuse writes of everyone but replication."""
    as_admin(server, f"SET GLOBAL {_read_only(server)} = ON")


def allow_writes(server: Database) -> None:
    """Let everyone write."""
    as_admin(server, f"SET GLOBAL {_read_only(server)} = OFF")


def wait_for_replica(replica: Database, primary: Database, seconds: int) -> None:
    """Wait until the replica has executed everything the primary has; AssertionError when it has not."""
    if primary.flavour == "mariadb":
        executed = _ask(primary, "SELECT @@gtid_binlog_pos")
        done = "SELECT MASTER_GTID_WAIT(%s, %s)"
    else:
        executed = "".join(_ask(primary, "SELECT @@gtid_executed").split())
        done = "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)"
    if not executed or _ask(replica, done, executed, seconds) == 0:
        return
    with replica.connect(cursorclass=DictCursor) as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW {'REPLICA' if _speaks_of_replicas(replica) else 'SLAVE'} STATUS")
        found = cursor.fetchone() or {}
        status = {name: value for name, value in found.items() if "Err" in name or "State" in name}
    message = f"the replica has not executed {executed} in {seconds} s: {status}"
    raise AssertionError(message)


def end_of_log(server: Database) -> tuple[str, int]:
    """File and offset."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOG STATUS" if _speaks_of_replicas(server) else "SHOW MASTER STATUS")
        file, offset = (cursor.fetchone() or ("", 0))[:2]
        return str(file), int(offset)


def execute(server: Database, *statements: str, **arguments: Any) -> None:
    """Run statements on a connection of their own."""
    with server.connect(**arguments) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def as_admin(server: Database, *statements: str) -> None:
    """The same as a user who may write to replicas."""
    execute(server, *statements, **(_ADMIN if server.flavour == "mariadb" else {}))


def _speaks_of_replicas(server: Database) -> bool:
    return server.name == "mysql97"


def _read_only(server: Database) -> str:
    return "read_only" if server.flavour == "mariadb" else "super_read_only"


def _ask(server: Database, sql: str, *values: Any) -> Any:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(sql, values)
        return (cursor.fetchone() or (None,))[0]
