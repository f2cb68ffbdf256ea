"""Where to begin when the settings say where: at one end of the log, at a time, or after another reader, Debezium for example."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.server_facts import LogPosition, ask, current_position
from producer.source.dump import StreamStart
from producer.source.lineage import position_behind
from producer.source.log_facts import available_log, log_sizes
from producer.source.log_scan import batches_before, begun_in, created_s
from schemas.errors import ConfigError, RetriableSourceError, SourceError
from schemas.gtid_sets import parse_gtid_set
from schemas.position import file_number

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from mysqlio.server_facts import ServerFacts
    from producer.binlog import EventBatch
    from schemas.settings import SourceSettings

log = structlog.get_logger(__name__)

_FIRST_POS: Final = 4
_SECOND_US: Final = 1_000_000


def chosen_position(settings: SourceSettings, facts: ServerFacts, connection: Connection) -> LogPosition | None:
    """Return the transaction boundary that `source.start_at` names, None where it names none, or the log's end.

    GTIDs and times are looked up in the log: the boundary before the first transaction that is not among them, or that was
    committed then or later. Raises `SourceError` where the server no longer has what follows, or has never had what is before.
    """
    start_at = settings.start_at
    if start_at.position == "earliest":
        return LogPosition(next(iter(log_sizes(connection))), _FIRST_POS, "")
    if start_at.timestamp_us is not None:
        return _committed_since(settings, facts, connection, start_at.timestamp_us)
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


def _committed_since(settings: SourceSettings, facts: ServerFacts, connection: Connection, since_us: int) -> LogPosition:
    """Return the boundary before the first transaction that was committed at `since_us` (µs since 1970) or later.

    The time is that of the server where the transaction was committed first, in µs on MySQL 8. MySQL 5.7 and MariaDB note whole
    seconds: the transactions of that whole second are published.
    """
    (now_us,) = ask(connection, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")[0]
    if since_us > int(now_us):
        message = f"source.start_at.timestamp: {settings.start_at.timestamp} is in the future by the server's clock"
        raise ConfigError(message)
    end, second = current_position(connection, facts), since_us // _SECOND_US
    files = [file for file in log_sizes(connection) if file_number(file) <= file_number(end.file)]
    # What is in the files before the last one that was begun before that second was committed before it, too.
    later = bisect_left(files, second, key=lambda file: created_s(settings, facts, file))
    if later == 0:
        message = (
            f"source.start_at.timestamp: the server no longer has its log of {settings.start_at.timestamp}: {files[0]}, the "
            f"oldest file, was begun in that second or later. For all that there is: source.start_at.position: earliest. "
            f"{available_log(connection)}"
        )
        raise SourceError(message)
    start = files[later - 1]
    log.info("log.looking_for_time", timestamp=settings.start_at.timestamp, from_file=start, to_file=end.file)
    with closing(batches_before(settings, facts, StreamStart(start), end)) as batches:
        for batch in batches:
            found = _first_since(batch, since_us)
            if found is not None:
                return found
    return end


def _first_since(batch: EventBatch, since_us: int) -> LogPosition | None:
    for index, file, _, committed_us in begun_in(batch):
        # Whole seconds say that it may have been later in that second.
        latest_us = int(batch.timestamps[index]) * _SECOND_US + _SECOND_US - 1 if committed_us is None else committed_us
        if latest_us >= since_us:
            return LogPosition(file, int(batch.offsets[index]), "")
    return None
