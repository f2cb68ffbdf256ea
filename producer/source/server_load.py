"""The load of the source as the source itself reports it: threads that run, and seconds that a replica is behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mysqlio.connection import server_version
from mysqlio.server_errors import ServerError, missing_grant, source_error
from mysqlio.server_facts import flavour_of, version_of
from schemas.errors import RetriableSourceError

if TYPE_CHECKING:
    from mysqlio.connection import Connection

_NEW_SPELLING: Final = (8, 0, 22)
_LAG: Final = ("Seconds_Behind_Source", "Seconds_Behind_Master")


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of the source; None where the source does not say it, with the reason `unknown`."""

    value: int | None
    unknown: str = ""


def threads_running(connection: Connection) -> Measured:
    """Return how many threads of the server run a statement, this connection's own among them."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Threads_running'")
        row = cursor.fetchone()
    return Measured(None, "the source has no status variable Threads_running") if row is None else Measured(int(row[1]))


def replica_lag_s(connection: Connection) -> Measured:
    """Return how many seconds the server is behind its own source, the largest number of several channels."""
    statement = _statement(server_version(connection))
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            names = [str(column[0]) for column in cursor.description or ()]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    except ServerError as error:
        if isinstance(source_error(error, ""), RetriableSourceError):
            raise
        text = str(error.args[-1])
        return Measured(None, f"{statement} is refused: {text}{missing_grant(text)}")
    if not rows:
        return Measured(None, "the source is no replica")
    values = [next((row[name] for name in _LAG if name in row), None) for row in rows]
    known = [int(value) for value in values if value is not None]
    if len(known) < len(values):
        return Measured(max(known, default=None), "replication is stopped in a channel of the source")
    return Measured(max(known))


def _statement(version: str) -> str:
    """Return the statement in the spelling of that server."""
    if flavour_of(version) == "mariadb":
        return "SHOW ALL SLAVES STATUS"
    return "SHOW REPLICA STATUS" if version_of(version) >= _NEW_SPELLING else "SHOW SLAVE STATUS"
