"""What the source is: its variables, the grants of our account, where its log ends.

What enters: a connection. What leaves: `ServerFacts`, log positions, `SourceError` where the server or a privilege is in the way.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pymysql

from producer.source.connection import server_version, source_error, source_errors
from schemas.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from producer.source.connection import Connection

MARIADB_IDENTITY: Final = "server_id="
"""How the identity of a MariaDB server begins, which has no UUID."""
_VERSION: Final = re.compile(r"(?:5\.5\.5-)?(\d+)\.(\d+)(?:\.(\d+))?")
_VARIABLES: Final = (
    "version",
    "server_id",
    "server_uuid",
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_order_commits",
    "binlog_checksum",
    "gtid_mode",
    "log_bin_compress",
    "lower_case_table_names",
)
_DENIED: Final = frozenset({1227, 1142, 1044, 1045, 1401})
LOG_STATUS_SINCE: Final = (8, 2, 0)
XA_PATIENCE_S: Final = 30.0
"""How long a first start waits for XA transactions that were prepared before it."""
_XA_POLL_S: Final = 0.2
_GRANT: Final = re.compile(
    r"GRANT (?P<what>(?:`(?:[^`]|``)*`|[^`])+?) ON (?P<where>(?:`(?:[^`]|``)*`|[^`])+?) TO ", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A source server. Variables are upper case; "" where the server does not have one.

    `identity` names the server for the log offset: its UUID, or `server_id=<n>` on MariaDB, which has none.
    """

    flavour: str
    version: tuple[int, int, int]
    version_text: str
    server_id: int
    server_uuid: str
    log_bin: bool
    binlog_format: str
    row_image: str
    row_metadata: str
    row_value_options: str
    order_commits: str
    checksum: str
    gtid_mode: str
    log_bin_compress: str
    lower_case_table_names: int

    @property
    def identity(self) -> str:
        """What names this server in the log offset."""
        return self.server_uuid or f"{MARIADB_IDENTITY}{self.server_id}"

    @property
    def has_gtids(self) -> bool:
        """Whether every transaction in the log has a GTID."""
        return self.flavour == "mariadb" or self.gtid_mode == "ON"


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The end of the binlog: the next event starts at `pos` of `file`; `gtid_set` is executed up to there."""

    file: str
    pos: int
    gtid_set: str


def flavour_of(version: str) -> str:
    """`mysql` or `mariadb`, by the server's version text."""
    return "mariadb" if "mariadb" in version.lower() else "mysql"


def version_of(text: str) -> tuple[int, int, int]:
    """(major, minor, patch) of a version text; MariaDB's `5.5.5-` in the handshake is passed over."""
    match = _VERSION.match(text)
    if match is None:
        message = f"the server's version {text!r} cannot be understood"
        raise SourceError(message)
    major, minor, patch = match.groups(default="0")
    return int(major), int(minor), int(patch)


def server_facts(connection: Connection) -> ServerFacts:
    """Read the variables that matter. Raises `SourceError`."""
    names = ",".join(f"'{name}'" for name in _VARIABLES)
    rows = ask(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    values = {str(name).lower(): str(value) for name, value in rows}
    version = values["version"]
    flavour = flavour_of(version)
    return ServerFacts(
        flavour=flavour,
        version=version_of(version),
        version_text=version,
        server_id=int(values.get("server_id", "0")),
        server_uuid=values.get("server_uuid", ""),
        log_bin=values.get("log_bin", "").upper() in ("ON", "1"),
        binlog_format=values.get("binlog_format", "").upper(),
        row_image=values.get("binlog_row_image", "").upper(),
        row_metadata=values.get("binlog_row_metadata", "").upper(),
        row_value_options=values.get("binlog_row_value_options", "").upper(),
        order_commits=values.get("binlog_order_commits", "").upper(),
        checksum=values.get("binlog_checksum", "").upper(),
        gtid_mode=values.get("gtid_mode", "").upper(),
        log_bin_compress=values.get("log_bin_compress", "").upper(),
        lower_case_table_names=int(values.get("lower_case_table_names", "0")),
    )


# ---- the account


def account(connection: Connection) -> tuple[str, str]:
    """(name, quoted for GRANT) of the session's account."""
    user = str(ask(connection, "SELECT CURRENT_USER()")[0][0])
    return user, "@".join(f"'{part}'" for part in user.rsplit("@", 1))


def user_grants(connection: Connection) -> Mapping[str, frozenset[str]]:
    """Privileges of the session's user and its active roles, upper case, by what they are granted on.

    Keys are as the server writes them: `*.*`, `` `db`.* ``, `` `db`.`table` ``.
    """
    return grants_of(str(row[0]) for row in ask(connection, "SHOW GRANTS"))


def grants_of(statements: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the privileges of these GRANT statements, as `user_grants` does."""
    found: dict[str, set[str]] = {}
    for statement in statements:
        match = _GRANT.match(statement)
        if match is None:
            continue
        text = re.sub(r"\((?:`(?:[^`]|``)*`|[^)`])*\)", "", match["what"])
        privileges = {part.strip().upper() for part in text.split(",")}
        found.setdefault(match["where"].strip(), set()).update(privileges)
    return {where: frozenset(privileges) for where, privileges in found.items()}


def xa_recover(connection: Connection) -> tuple[str, ...]:
    """Return the prepared XA transactions, each as XA COMMIT takes it: `X'gtrid',X'bqual',format`."""
    if flavour_of(server_version(connection)) == "mariadb":
        return tuple(str(row[3]) for row in ask(connection, "XA RECOVER FORMAT = 'SQL'"))
    found = []
    for format_id, gtrid_size, bqual_size, data in ask(connection, "XA RECOVER CONVERT XID"):
        digits = str(data)[2:]
        gtrid, bqual = digits[: 2 * int(gtrid_size)], digits[2 * int(gtrid_size) :][: 2 * int(bqual_size)]
        found.append(f"X'{gtrid}',X'{bqual}',{int(format_id)}")
    return tuple(found)


# ---- where the log ends


def current_position(connection: Connection, facts: ServerFacts | None = None) -> LogPosition:
    """Return the end of the binlog. `gtid_set` is never ahead of file and position.

    Raises `SourceError` when the log is off or the user may not ask.
    """
    version_text = server_version(connection) if facts is None else facts.version_text
    gtids = ""
    if flavour_of(version_text) == "mariadb":
        gtids = str(ask(connection, "SELECT @@global.gtid_binlog_pos")[0][0] or "")
    rows = _log_status(connection, version_text)
    if not rows:
        message = "the server has no binary log (log_bin is OFF)"
        raise SourceError(message)
    row = rows[0]
    if len(row) > 4:
        gtids = "".join(str(row[4] or "").split())
    return LogPosition(str(row[0]), int(row[1]), gtids)


def _log_status(connection: Connection, version_text: str) -> list[tuple[Any, ...]]:
    """(file, position, databases logged, databases not logged, ...), or nothing where the log is off."""
    renamed = flavour_of(version_text) == "mysql" and version_of(version_text) >= LOG_STATUS_SINCE
    return ask(connection, "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")


def require_logged(connection: Connection, facts: ServerFacts, databases: Iterable[str]) -> None:
    """Refuse databases whose changes the server does not log: `binlog_do_db` and `binlog_ignore_db`.

    Raises `SourceError` that names them.
    """
    (_, _, logged, left_out, *_) = _log_status(connection, facts.version_text)[0]
    fold = str.lower if facts.lower_case_table_names else str
    only, never = ({fold(name) for name in str(names or "").split(",") if name} for names in (logged, left_out))
    silent = sorted(name for name in set(databases) if (fold(name) not in only if only else fold(name) in never))
    if silent:
        option = f"binlog_do_db={logged}" if only else f"binlog_ignore_db={left_out}"
        message = (
            f"the server does not log changes in {', '.join(silent)} ({option}): they would never arrive. Take the option out "
            f"of the server's configuration and restart it, or capture other tables (source.tables)"
        )
        raise SourceError(message)


def require_stored_name(facts: ServerFacts, setting: str, name: str | None) -> None:
    """Refuse a table's name that the log never has: with `lower_case_table_names=1` the server keeps small letters only."""
    if name is not None and facts.lower_case_table_names == 1 and name != name.lower():
        message = (
            f"{setting}: {name!r} is {name.lower()!r} on this server and in its log (lower_case_table_names=1). Write it so"
        )
        raise SourceError(message)


def first_position(
    connection: Connection, patience_s: float = XA_PATIENCE_S
) -> tuple[LogPosition, LogPosition]:
    """Return where to begin to read, and the first boundary to publish from: the same, unless XA transactions are open.

    The rows of an XA transaction that is prepared now stand in the log before this place. So those are waited
    for, and reading begins where the log stood before: every PREPARE whose COMMIT is still to come is behind
    that. Raises `SourceError` naming those that do not end within `patience_s`.
    """
    begin = current_position(connection)
    left = set(xa_recover(connection))
    if not left:
        return begin, begin
    deadline = time.monotonic() + patience_s
    while left := left & set(xa_recover(connection)):
        if time.monotonic() > deadline:
            shown = ", ".join(sorted(left)[:5])
            message = (
                f"{len(left)} XA transactions are prepared and not finished ({shown}): they began before the "
                f"place where the log is first read, their rows would be lost. XA COMMIT or XA ROLLBACK each of "
                f"them, or start again when they have ended"
            )
            raise SourceError(message)
        time.sleep(_XA_POLL_S)
    return begin, current_position(connection)


def log_sizes(connection: Connection) -> dict[str, int]:
    """Return the log files the server has, oldest first, each with its size in bytes. Raises `SourceError`."""
    return {str(row[0]): int(row[1]) for row in ask(connection, "SHOW BINARY LOGS")}


def other_replica(connection: Connection, facts: ServerFacts, server_id: int, ours: str) -> str:
    """Return who else is connected as a replica with that server id, "" when nobody is known to be.

    `ours` is the host that our readers register with. MariaDB reports it only to users with REPLICATION MASTER ADMIN.
    """
    is_renamed = facts.flavour == "mysql" and facts.version >= LOG_STATUS_SINCE
    try:
        replicas = ask(connection, "SHOW REPLICAS" if is_renamed else "SHOW SLAVE HOSTS")
    except SourceError as error:
        if is_denied(error):
            return ""
        raise
    others = [f"{row[1] or 'a host without name'}:{row[2]}" for row in replicas if int(row[0]) == server_id and row[1] != ours]
    return ", ".join(others)


def available_log(connection: Connection) -> str:
    """Return a sentence: which log files the server still has, and which GTIDs it no longer has."""
    rows = ask(connection, "SHOW BINARY LOGS")
    if not rows:
        return "The server has no log files"
    text = f"The server has {rows[0][0]} to {rows[-1][0]}, {int(rows[-1][1])} bytes"
    if flavour_of(server_version(connection)) == "mysql":
        purged = "".join(str(ask(connection, "SELECT @@global.gtid_purged")[0][0] or "").split())
        text += f"; purged GTIDs: {purged or 'none'}"
    return text + ". What is gone cannot be read: start with a new snapshot"


def is_denied(error: SourceError) -> bool:
    """Return whether the server refused a statement for want of a privilege."""
    cause = error.__cause__
    return isinstance(cause, pymysql.MySQLError) and bool(cause.args) and cause.args[0] in _DENIED


def ask(connection: Connection, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a statement; `SourceError` also where the user lacks a privilege."""
    where = f"{connection.host}:{connection.port}"
    with source_errors(where):
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, values or None)
                return list(cursor.fetchall())
        except pymysql.MySQLError as error:
            if error.args and error.args[0] in _DENIED:
                refused = source_error(error, where)
                message = f"{sql.split(' WHERE', 1)[0]}: {refused}"
                raise SourceError(message) from error
            raise
