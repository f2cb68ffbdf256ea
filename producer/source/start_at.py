"""Where to begin when the settings say where: after another reader of the same log, Debezium for example."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer.source.facts import LogPosition, available_log, log_sizes
from producer.source.gtid import parse_gtid_set
from producer.source.lineage import position_behind
from schemas.errors import ConfigError, RetriableSourceError, SourceError

if TYPE_CHECKING:
    from producer.source.connection import Connection
    from producer.source.facts import ServerFacts
    from schemas.settings import SourceSettings


def chosen_position(settings: SourceSettings, facts: ServerFacts, connection: Connection) -> LogPosition | None:
    """Return the place that `source.start_at` names, None where it names none.

    GTIDs are looked up in the log: the boundary before the first transaction that is not among them. Raises
    `SourceError` where the server no longer has what follows the place, or has never had what is before it.
    """
    start_at = settings.start_at
    if start_at.gtids is not None:
        return _behind(settings, facts, connection, "".join(start_at.gtids.split()))
    if start_at.file is None or start_at.pos is None:
        return None
    if start_at.pos > log_sizes(connection).get(start_at.file, -1):
        message = f"source.start_at: {start_at.file}:{start_at.pos} is not in the log. {available_log(connection)}"
        raise SourceError(message)
    return LogPosition(start_at.file, start_at.pos, "")


def _behind(settings: SourceSettings, facts: ServerFacts, connection: Connection, gtids: str) -> LogPosition:
    try:
        parse_gtid_set(gtids, facts.flavour)
    except ValueError as error:
        message = f"source.start_at.gtids: {error}"
        raise ConfigError(message) from None
    if facts.flavour == "mysql":
        _require_known(connection, gtids)
    try:
        return position_behind(settings, facts, connection, gtids)
    except SourceError as error:
        if isinstance(error, RetriableSourceError):
            raise
        message = f"source.start_at.gtids: {error}"
        raise SourceError(message) from error


def _require_known(connection: Connection, gtids: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT GTID_SUBSET(@@global.gtid_purged, %s), GTID_SUBSET(%s, @@global.gtid_executed)", (gtids, gtids)
        )
        row = cursor.fetchone()
    if row is None or not row[1]:
        message = (
            f"source.start_at.gtids: the server has not executed all of {gtids}: it is another server, or was reset. Start "
            "with a new snapshot"
        )
        raise SourceError(message)
    if not row[0]:
        message = f"source.start_at.gtids: transactions behind {gtids} are gone. {available_log(connection)}"
        raise SourceError(message)
