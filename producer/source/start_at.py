"""Where to begin when the settings say where: after another reader of the same log, Debezium for example."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from producer.binlog import events
from producer.source.dump import BinlogStream, StreamStart
from producer.source.facts import LogPosition, available_log, current_position
from producer.source.gtid import parse_gtid_set
from schemas.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from producer.source.connection import Connection
    from producer.source.facts import ServerFacts
    from schemas.settings import SourceSettings

_PATIENCE_S: Final = 120.0
_READ_S: Final = 1.0
_BEGINS: Final = frozenset({*events.GTID_EVENTS, events.MARIADB_GTID_EVENT})


def chosen_position(settings: SourceSettings, facts: ServerFacts, connection: Connection) -> LogPosition | None:
    """The place that `source.start_at` names, None where it names none.

    GTIDs are looked up in the log: the border before the first transaction that is not among them. Raises
    `SourceError` where the server no longer has what follows the place, or has never had what is before it.
    """
    start_at = settings.start_at
    if start_at.gtids is not None:
        return _behind(settings, facts, connection, "".join(start_at.gtids.split()))
    if start_at.file is None or start_at.pos is None:
        return None
    with connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        sizes = {str(row[0]): int(row[1]) for row in cursor.fetchall()}
    if start_at.pos > sizes.get(start_at.file, -1):
        message = f"source.start_at: {start_at.file}:{start_at.pos} is not in the log. {available_log(connection)}"
        raise SourceError(message)
    return LogPosition(start_at.file, start_at.pos, "")


def _behind(settings: SourceSettings, facts: ServerFacts, connection: Connection, gtids: str) -> LogPosition:
    end = current_position(connection, facts)
    try:
        wanted = parse_gtid_set(gtids, facts.flavour)
    except ValueError as error:
        message = f"source.start_at.gtids: {error}"
        raise ConfigError(message) from None
    if str(parse_gtid_set(end.gtid_set, facts.flavour)) == str(wanted):
        return end
    if facts.flavour == "mysql":
        _require_known(connection, gtids)
    with closing(BinlogStream(settings, facts)) as stream:
        stream.open(StreamStart(gtid_set=gtids))
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            batch = stream.read(_READ_S)
            if batch is None:
                continue
            for kind, offset in zip(batch.types[: batch.count].tolist(), batch.offsets[: batch.count].tolist(), strict=True):
                if kind in _BEGINS:
                    return LogPosition(stream.file, offset, str(wanted))
    message = (
        f"source.start_at.gtids: no transaction behind {gtids} came within {_PATIENCE_S:.0f} s, though the log ends with "
        f"{end.gtid_set}. Are these the GTIDs of this server?"
    )
    raise SourceError(message)


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
