"""The facts of a server: its variables, the grants of our account, the end of its log.

What enters: a connection. What leaves: `ServerFacts`, log positions, `SourceError` if the server or a privilege is in the way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mysqlio.connection import server_version
from mysqlio.server_errors import ServerError, server_code, source_error, source_errors
from schemas.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mysqlio.connection import Connection
    from schemas.connect_types import Connector

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
_GRANT: Final = re.compile(
    r"GRANT (?P<what>(?:`(?:[^`]|``)*`|[^`])+?) ON (?P<where>(?:`(?:[^`]|``)*`|[^`])+?) TO ", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A source server. Variables are upper case; "" if the server does not have one.

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


def flavour_of(version: str) -> Connector:
    """`mysql` or `mariadb`, by the server's version text."""
    return "mariadb" if "mariadb" in version.lower() else "mysql"


def is_mariadb(connection: Connection) -> bool:
    """Return whether the server is a MariaDB."""
    return flavour_of(server_version(connection)) == "mariadb"


def identity_of(connection: Connection) -> str:
    """Return the identity of a server: its UUID, or `server_id=<n>` on MariaDB, which has none."""
    mariadb = is_mariadb(connection)
    ((value,),) = ask(connection, "SELECT @@GLOBAL.server_id" if mariadb else "SELECT @@GLOBAL.server_uuid")
    return f"{MARIADB_IDENTITY}{value}" if mariadb else str(value)


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
    """Privileges of the session's user and its active roles, upper case, by the objects on which they are granted.

    Keys are as the server writes them: `*.*`, `` `db`.* ``, `` `db`.`table` ``.
    """
    return grants_of(str(row[0]) for row in ask(connection, "SHOW GRANTS"))


def grants_of(statements: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the privileges of these GRANT statements, as `user_grants` does."""
    grants: dict[str, set[str]] = {}
    for statement in statements:
        match = _GRANT.match(statement)
        if match is None:
            continue
        text = re.sub(r"\((?:`(?:[^`]|``)*`|[^)`])*\)", "", match["what"])
        privileges = {part.strip().upper() for part in text.split(",")}
        grants.setdefault(match["where"].strip(), set()).update(privileges)
    return {where: frozenset(privileges) for where, privileges in grants.items()}


# ---- the end of the log


def current_position(connection: Connection, facts: ServerFacts | None = None) -> LogPosition:
    """Return the end of the binlog. `gtid_set` is never ahead of file and position.

    Raises `SourceError` when the log is off or the user may not ask.
    """
    version_text = server_version(connection) if facts is None else facts.version_text
    gtids = ""
    if flavour_of(version_text) == "mariadb":
        gtids = str(ask(connection, "SELECT @@global.gtid_binlog_pos")[0][0] or "")
    rows = log_status(connection, version_text)
    if not rows:
        message = "the server has no binary log (log_bin is OFF)"
        raise SourceError(message)
    row = rows[0]
    if len(row) > 4:
        gtids = "".join(str(row[4] or "").split())
    return LogPosition(str(row[0]), int(row[1]), gtids)


def log_status(connection: Connection, version_text: str) -> list[tuple[Any, ...]]:
    """(file, position, databases logged, databases not logged, ...), or nothing if the log is off."""
    renamed = flavour_of(version_text) == "mysql" and version_of(version_text) >= LOG_STATUS_SINCE
    return ask(connection, "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")


def is_denied(error: SourceError) -> bool:
    """Return whether the server refused a statement for want of a privilege."""
    return server_code(error) in _DENIED


def ask(connection: Connection, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows of a statement; `SourceError` also if the user lacks a privilege."""
    where = f"{connection.host}:{connection.port}"
    with source_errors(where):
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, values or None)
                return list(cursor.fetchall())
        except ServerError as error:
            if server_code(error) in _DENIED:
                refused = source_error(error, where)
                message = f"{sql.split(' WHERE', 1)[0]}: {refused}"
                raise SourceError(message) from error
            raise
