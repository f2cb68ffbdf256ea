"""Whether a server's log still is the one that was read, and where reading continues in the log of another server.

A server UUID or a set of GTIDs does not prove that a log continues: after RESET and a few transactions the same
identifiers stand for other ones. So the last transaction that was published is read again and compared.

Another server (failover, a promoted replica, an upgrade by replication) has the same transactions at other places, maybe in
another order. Reading continues before the first one that was not published; what was published and is
behind it is dropped by the log reader.

Source: MySQL "GTID Life Cycle", MariaDB "Global Transaction ID".
"""

from __future__ import annotations

import time
import zlib
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.connection import server_version
from mysqlio.server_facts import LogPosition, ask, current_position, flavour_of
from producer.source.begun import Begun
from producer.source.dump import LARGEST_DUMP_POSITION, StreamStart
from producer.source.log_facts import available_log, log_sizes
from producer.source.log_scan import batches_before, begun_in, first_batches
from producer.source.visibility import still_owned
from schemas.errors import DecodeError, RetriableSourceError, SourceError
from schemas.gtid_sets import MysqlGtidSet, parse_gtid_set
from schemas.position import file_number

if TYPE_CHECKING:
    from collections.abc import Generator

    from mysqlio.connection import Connection
    from mysqlio.server_facts import ServerFacts
    from producer.binlog import EventBatch
    from schemas.settings import SourceSettings

log = structlog.get_logger(__name__)

CATCH_UP_S: Final = 60.0
"""How long a promoted replica may take to execute what it had received."""
_POLL_S: Final = 0.5
_LOOK_AT_EVENTS: Final = 3
_SETTLED_S: Final = 1.0
"""How long a commit may take that is on its way when the end of the log is asked for."""


class LostTailError(Exception):
    """Another server of the same lineage does not have what was published last; says which transactions."""


def lost_log(connection: Connection, file: str, pos: int, gtid_set: str) -> str:
    """Return why reading cannot continue at a position: the server's log does not reach back, or is another one; "" if it can."""
    sizes = log_sizes(connection)
    if file not in sizes:
        wanted = f" (read so far: GTIDs {gtid_set})" if gtid_set else ""
        return f"the server no longer has {file}{wanted}. {available_log(connection)}"
    if pos > sizes[file]:
        return f"{file} ends at {sizes[file]} on the server, it was read up to {pos}: it is another log"
    if gtid_set and flavour_of(server_version(connection)) == "mysql":
        known = "".join(str(ask(connection, "SELECT @@global.gtid_executed")[0][0] or "").split())
        if not MysqlGtidSet.parse(gtid_set).is_subset_of(MysqlGtidSet.parse(known)):
            return f"the server has {known or 'no GTIDs'}, the log was read up to {gtid_set}: it is another log"
    return ""


def changed_log(settings: SourceSettings, facts: ServerFacts, connection: Connection, last: Begun) -> str:
    """Return why the log of the same server is another one than it was (RESET, a restored copy), "" when it continues.

    To be asked where `lost_log` finds nothing. A file that was purged, or a place that only GTIDs can name, is not
    looked into: there is nothing to compare.
    """
    sizes = log_sizes(connection)
    if last.pos > LARGEST_DUMP_POSITION or last.file not in sizes:
        return ""
    where = f"{last.file}:{last.pos}"
    if last.pos >= sizes[last.file]:
        return f"no transaction begins at {where} any more: the file ends at {sizes[last.file]}"
    try:
        found = _first(settings, facts, StreamStart(last.file, last.pos))
    except RetriableSourceError:
        raise
    except (SourceError, DecodeError) as error:
        return f"no transaction begins at {where} any more: {error}"
    if found is None or found != last:
        now = "none" if found is None else found.gtid or "one without a GTID"
        return (
            f"the transaction at {where} was {last.gtid or 'one without a GTID'}, and now is another: {now}"
        )
    return ""


def position_behind(
    settings: SourceSettings,
    facts: ServerFacts,
    connection: Connection,
    gtids: str,
    last: Begun | None = None,
) -> LogPosition:
    """Return the boundary before the first transaction that is not among `gtids`; the end of the log where there is none.

    `last` is one of `gtids`, which is compared with what the server has. Raises `SourceError` where it is another
    one there, or where transactions behind `gtids` are gone.

    All of the log before that end is looked at: the GTIDs that the server reports with it lack what is being committed.
    """
    end = current_position(connection, facts)
    wanted = parse_gtid_set(gtids, facts.flavour)
    asked = wanted
    if isinstance(wanted, MysqlGtidSet) and last is not None and _can_be_read_again(connection, wanted, last):
        asked = wanted.copy()
        asked.remove(str(last.gtid))
    with closing(_begun_before(settings, facts, StreamStart(gtid_set=str(asked)), end)) as found:
        for begun in found:
            if last is not None and begun.gtid == last.gtid:
                _require_same(last, begun)
            if begun.gtid is None or not wanted.contains(begun.gtid):
                return LogPosition(begun.file, begun.pos, str(wanted))
    return LogPosition(end.file, end.pos, str(wanted))


def with_its_gtids(
    settings: SourceSettings, facts: ServerFacts, connection: Connection, end: LogPosition
) -> LogPosition:
    """Return a position with the GTIDs of exactly the transactions before it; unchanged where the server has no GTIDs.

    The GTIDs that MySQL reports with the end of its log lack what is written to it and not committed yet. A reader
    that went by them would find such a transaction unpublished in another server's log, long after the changes that followed it.
    """
    if facts.flavour == "mariadb":
        answer = ask(connection, "SELECT BINLOG_GTID_POS(%s, %s)", end.file, end.pos)[0][0]
        return end if answer is None else replace(end, gtid_set=str(answer))
    if not facts.has_gtids:
        return end
    gtids = gtids_without_those_behind(settings, facts, connection, end)
    if gtids is None:
        gtids = gtids_of_its_file(settings, facts, connection, end)
    return replace(end, gtid_set=str(gtids))


def gtids_of_its_file(
    settings: SourceSettings, facts: ServerFacts, connection: Connection, end: LogPosition
) -> MysqlGtidSet:
    """MySQL: the GTIDs before a position. The server reads the file of the position from its first event, which takes seconds."""
    gtids = MysqlGtidSet.parse(end.gtid_set or _before_file(connection, end.file))
    start = StreamStart(gtid_set=str(gtids)) if gtids else StreamStart(file=end.file)
    with closing(_begun_before(settings, facts, start, end)) as found:
        for begun in found:
            if begun.gtid is not None:
                gtids.add(begun.gtid)
    return gtids


def gtids_without_those_behind(
    settings: SourceSettings, facts: ServerFacts, connection: Connection, end: LogPosition
) -> MysqlGtidSet | None:
    """MySQL: the same, from what is executed now and the log behind the position, where that is the shorter part of the file.

    None where it is not, and where a transaction has had its GTID for long already: it may be in the log or not.
    """
    here = current_position(connection, facts)
    is_near = here.file == end.file and end.pos <= here.pos <= 2 * end.pos and end.pos <= LARGEST_DUMP_POSITION
    if not is_near or still_owned(connection, _SETTLED_S):
        return None
    gtids = MysqlGtidSet.parse(str(ask(connection, "SELECT @@global.gtid_executed")[0][0] or ""))
    here = current_position(connection, facts)  # all that is executed is before it
    if (file_number(here.file), here.pos) < (file_number(end.file), end.pos):
        message = f"the log ended at {end.file}:{end.pos}, and ends at {here.file}:{here.pos} now: it was reset meanwhile"
        raise RetriableSourceError(message)
    if (here.file, here.pos) != (end.file, end.pos):
        with closing(_begun_before(settings, facts, StreamStart(end.file, end.pos), here)) as found:
            for begun in found:
                if begun.gtid is not None:
                    gtids.remove(begun.gtid)
    return gtids


def successor(
    settings: SourceSettings,
    facts: ServerFacts,
    connection: Connection,
    gtids: str,
    *,
    start: str = "",
    last: Begun | None = None,
) -> LogPosition:
    """Return where reading continues in another server's log, when all of `gtids` was published from the former server.

    `start` is what was executed where reading must begin (an open XA transaction), "" = `gtids`. A replica
    that was promoted is given `CATCH_UP_S` to execute all of them. Raises `SourceError` for a server that shares no
    transaction with the former one, or has purged what comes next; `LostTailError` for one that lacks what was
    published.
    """
    missing = _missing(facts, connection, gtids)
    deadline = time.monotonic() + CATCH_UP_S
    while missing and time.monotonic() < deadline:
        log.info("failover.waits", missing=missing, server=facts.identity)
        time.sleep(_POLL_S)
        missing = _missing(facts, connection, gtids)
    if missing:
        raise LostTailError(missing)
    begin = start or gtids
    if facts.flavour == "mysql":
        gone = _subtracted(connection, "@@global.gtid_purged", "%s", begin)
        if gone:
            message = f"transactions that were not read are gone from the server: {gone}. {available_log(connection)}"
            raise SourceError(message)
    return position_behind(settings, facts, connection, begin, last)


def _missing(facts: ServerFacts, connection: Connection, gtids: str) -> str:
    """Return what of `gtids` the server has not executed. Raises `SourceError` for a server that knows none of them."""
    if facts.flavour == "mysql":
        missing = _subtracted(connection, "%s", "@@global.gtid_executed", gtids)
        if missing and parse_gtid_set(missing, "mysql") == parse_gtid_set(gtids, "mysql"):
            message = (
                f"the server shares no transaction with the one that was read before (published: {gtids}). Is it the right "
                "one?"
            )
            raise SourceError(message)
        return missing
    here = parse_gtid_set(current_position(connection, facts).gtid_set, "mariadb")
    return ",".join(gtid for gtid in gtids.split(",") if gtid and not here.contains(gtid))


def _subtracted(connection: Connection, minuend: str, subtrahend: str, gtids: str) -> str:
    sql = f"SELECT GTID_SUBTRACT({minuend}, {subtrahend})"
    return "".join(str(ask(connection, sql, gtids)[0][0] or "").split())


def _can_be_read_again(connection: Connection, wanted: MysqlGtidSet, last: Begun) -> bool:
    if last.gtid is None or not wanted.contains(last.gtid):
        return False
    return not ask(connection, "SELECT GTID_SUBSET(%s, @@global.gtid_purged)", last.gtid)[0][0]


def _before_file(connection: Connection, file: str) -> str:
    """Return the GTIDs before a file, as its beginning reports them."""
    rows = ask(connection, f"SHOW BINLOG EVENTS IN %s LIMIT {_LOOK_AT_EVENTS}", file)
    return "".join(next((str(row[5] or "") for row in rows if row[2] == "Previous_gtids"), "").split())


def _require_same(last: Begun, found: Begun) -> None:
    if last.ts_us is not None and found.ts_us is not None and last.ts_us != found.ts_us:
        message = (
            f"the transaction {last.gtid} was committed at {last.ts_us} µs where it was read, and at {found.ts_us} µs by "
            "this server: it is another one under the same GTID, the server was reset or is not of this lineage"
        )
        raise SourceError(message)


def _first(settings: SourceSettings, facts: ServerFacts, start: StreamStart) -> Begun | None:
    with closing(first_batches(settings, facts, start)) as batches:
        return next((begun for batch in batches for begun in _begun(batch)), None)


def _begun_before(
    settings: SourceSettings, facts: ServerFacts, start: StreamStart, end: LogPosition
) -> Generator[Begun]:
    """Yield the transactions that the server sends from `start` on and that begin before `end`, which is in its log."""
    until = (file_number(end.file), end.pos)
    with closing(batches_before(settings, facts, start, end)) as batches:
        for batch in batches:
            for begun in _begun(batch):
                if (file_number(begun.file), begun.pos) >= until:
                    return
                yield begun


def _begun(batch: EventBatch) -> list[Begun]:
    """Return the transactions that begin in a batch, with the proofs of their first events."""
    return [
        Begun(file, int(batch.offsets[at]), gtid, ts_us, zlib.crc32(batch.memory[int(batch.starts[at]) : int(batch.ends[at])]))
        for at, file, gtid, ts_us in begun_in(batch)
    ]
