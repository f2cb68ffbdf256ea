"""Where a start of the producer begins to read, which tables it captures, and what is known of them there.

A first start takes the present end of the log or the place that the settings choose; every other goes on at the
offset in the state topic, or begins anew where the log behind that offset is lost and the snapshot mode allows for it.
Where the log does not name columns, the tables' definitions must be those of that very place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from producer.catalog import TrackedTables, check_supported, list_tables, read_rules
from producer.catalog.looking import TableLooks
from producer.kafka.state_topic import OFFSET_KEY
from producer.source.connection import connect
from producer.source.dump import StreamStart
from producer.source.facts import first_position, lost_log
from producer.source.log_file import another_log, made_at
from producer.source.start_at import chosen_position
from producer.stream.offset import LogOffset, ResumePoint
from schemas.errors import SourceError, StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from producer.source.connection import Connection
    from producer.source.facts import LogPosition, ServerFacts
    from producer.stream.routes import CapturedTables
    from schemas.settings import Settings

log = structlog.get_logger(__name__)

_LARGEST_DUMP_POSITION: Final = (1 << 32) - 1
_FIRST_LOOKS: Final = 20
"""How often a first start looks at the tables anew because one was altered while it did."""


class Beginning(NamedTuple):
    """Where a start begins; `lost` says why it cannot go on where it was, "" where it can."""

    offset: LogOffset
    lost: str
    captured: list[tuple[str, str]]
    tracked: TrackedTables


def find_beginning(
    settings: Settings,
    captured: CapturedTables,
    documents: Mapping[str, object],
    facts: ServerFacts,
    connection: Connection,
) -> Beginning:
    """Where reading begins, given the documents of the state topic.

    Raises `SourceError` where the offset is another server's, where the log is not read on from it, or where the
    tables do not stand still for a first look; `StateError` where the offset is none.
    """
    changed: list[str] = []
    for _ in range(_FIRST_LOOKS):
        offset, lost = _offset(settings, documents, facts, connection)
        # Listed after the position was taken: a table made in between is in the log.
        tables = list_tables(connection)
        holding = [table for table in tables if captured.holds_data(*table)]
        _say_what_is_left_out(settings, captured, tables)
        check_supported(connection, holding)
        tracked = TrackedTables(read_rules(connection), captured.follows)
        if not lost:
            tracked.restore(documents)
        beginning = Beginning(offset, lost, holding, tracked)
        if facts.row_metadata == "FULL":
            return beginning
        wanted = [table for table in tables if captured.holds(*table) and not tracked.state(*table)]
        looks = TableLooks(settings.source, facts, lambda: connect(settings.source))
        if wanted or not tracked.knows_databases:
            looked = looks.read(wanted, stream_start(offset.start))
            for known in looked.tables.values():
                tracked.adopt(known.state)
            if not tracked.knows_databases:
                tracked.adopt_databases(looked.databases)
            changed = sorted(".".join(table) for table in looked.changed)
        if not changed or (OFFSET_KEY in documents and not lost):
            return beginning
        log.info("producer.ddl_at_first_start", tables=changed)
    message = (
        f"the log does not name columns, and tables were altered during each of {_FIRST_LOOKS} attempts to read "
        f"their definitions. Start again when {', '.join(changed)} is left alone"
    )
    raise SourceError(message)


def stream_start(resume: ResumePoint) -> StreamStart:
    """Where the stream begins: a dump position has 32 bits, beyond them only GTIDs find the place."""
    if resume.pos > _LARGEST_DUMP_POSITION and resume.gtid_set:
        return StreamStart(file=resume.file, gtid_set=resume.gtid_set)
    return StreamStart(file=resume.file, pos=resume.pos)


def server_identity(facts: ServerFacts) -> str:
    """What tells one server from another: its UUID; MariaDB has none, there it is the server id."""
    return facts.server_uuid or f"server_id={facts.server_id}"


def _offset(
    settings: Settings, documents: Mapping[str, object], facts: ServerFacts, connection: Connection
) -> tuple[LogOffset, str]:
    """Where to go on, and why that is a new beginning although there was one before, "" where it is none."""
    known = documents.get(OFFSET_KEY)
    if known is None:
        chosen = chosen_position(settings.source, facts, connection)
        return _end_of_log(0, facts, connection, chosen), ""
    if not isinstance(known, dict):
        message = f"the log offset in the state topic is not an object: {known!r}"
        raise StateError(message)
    offset = LogOffset.parse(known)
    if settings.snapshot.at_start.when_log_is_lost:
        lost = _lost(settings, offset, facts, connection)
        if lost:
            log.warning("log.lost", reason=lost, tables="all captured ones are read again")
            return _end_of_log(offset.epoch + 1, facts, connection), lost
    if offset.server != server_identity(facts):
        message = (
            f"the log offset {offset.file}:{offset.pos} was taken from server {offset.server}, this is "
            f"{server_identity(facts)}: failover is not supported yet. Point source.host at the old server, or "
            f"start under another name (new topics, initial snapshot)"
        )
        raise SourceError(message)
    return offset, ""


def _end_of_log(
    epoch: int, facts: ServerFacts, connection: Connection, chosen: LogPosition | None = None
) -> LogOffset:
    """The present end of the log, or the place that was chosen."""
    begin, place = first_position(connection) if chosen is None else (chosen, chosen)
    resume = None if begin == place else ResumePoint(begin.file, begin.pos, begin.gtid_set)
    return LogOffset(epoch, place.file, place.pos, place.gtid_set, server_identity(facts), resume)


def _lost(settings: Settings, offset: LogOffset, facts: ServerFacts, connection: Connection) -> str:
    """Why the log cannot be read on from an offset, "" when it can."""
    if offset.server != server_identity(facts):
        return f"the log was read from server {offset.server}, this is {server_identity(facts)}"
    lost = lost_log(connection, offset.start.file, offset.start.pos, offset.start.gtid_set)
    if lost or not offset.made:
        return lost
    return another_log(offset.file, offset.made, made_at(settings.source, offset.file))


def _say_what_is_left_out(
    settings: Settings, captured: CapturedTables, tables: list[tuple[str, str]]
) -> None:
    source = settings.source
    excluded = [".".join(table) for table in tables if source.names(*table) and not captured.holds(*table)]
    if excluded:
        log.info("producer.tables_excluded", tables=excluded, setting="source.exclude_tables")
