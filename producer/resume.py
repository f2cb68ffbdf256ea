"""Where a start of the producer resumes reading, which tables it captures, and what is known of them there.

A first start takes the present end of the log or the position that the settings choose. Every other start resumes at the
offset in the state topic, on another server by GTIDs and in a new epoch (failover). Where the log after that offset is
lost, and the snapshot mode allows it, it restarts at the log's end. Where the log does not name columns, the tables'
definitions must be those of that very position. Where it does, they add what it leaves out, defaults above all: a server
that is ahead of the log may not have them any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from mysqlio.information_schema import check_supported, list_tables, read_rules, unsupported_tables
from mysqlio.server_facts import MARIADB_IDENTITY
from producer.catalog import TrackedTables
from producer.catalog.model import state_of
from producer.catalog.tables_at import tables_at
from producer.source.dump import LARGEST_DUMP_POSITION, StreamStart
from producer.source.lineage import LostTailError, changed_log, lost_log, successor, with_its_gtids
from producer.source.log_facts import first_position
from producer.source.start_at import chosen_position
from producer.stream.offset import LogOffset, ResumePoint
from producer.stream.skipped_start import after_skipped
from schemas.documents import OffsetDocument
from schemas.errors import AccessDeniedError, RetriableSourceError, SourceError, StateError
from schemas.gtid_sets import parse_gtid_set

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mysqlio.connection import Connection
    from mysqlio.server_facts import LogPosition, ServerFacts
    from producer.snapshot.view import FirstView
    from producer.stream.routes import CapturedTables
    from schemas.commit_records import StreamState
    from schemas.errors import TidemarkError
    from schemas.settings import Settings

log = structlog.get_logger(__name__)

_FIRST_LOOKS: Final = 20
"""How often a first start reads the tables again because one was altered meanwhile."""


class Resumption(NamedTuple):
    """Where a start resumes; `lost` says why it cannot resume where it was, "" where it can.

    `refused` are captured tables that cannot be published, and why.
    """

    offset: LogOffset
    lost: str
    captured: list[tuple[str, str]]
    tracked: TrackedTables
    refused: Mapping[tuple[str, str], TidemarkError]

    @property
    def has_moved(self) -> bool:
        """Whether reading continues in another server's log, in an epoch that is not written anywhere yet."""
        return bool(self.offset.inherited) and self.offset.last is None


def find_resumption(
    settings: Settings,
    captured: CapturedTables,
    documents: Mapping[str, object],
    facts: ServerFacts,
    connection: Connection,
    view: FirstView | None = None,
    restart_reason: str = "",
) -> Resumption:
    """Return where reading resumes, given the documents of the state topic; a first start with a view resumes at the view.

    `restart_reason` is why any other start restarts at the log's end, even where reading could resume.

    Raises `SourceError` where reading cannot resume at the offset, or where tables are altered all the time during a
    first start; `StateError` where the offset cannot be parsed.
    """
    changed: list[str] = []
    for _ in range(_FIRST_LOOKS):
        offset, lost = _offset(settings, documents, facts, connection, view, restart_reason)
        offset = replace(offset, stream=last_stream(settings, documents))
        # Listed after the position was taken: a table made in between is in the log.
        tables = list_tables(connection)
        with_data = [table for table in tables if captured.holds_data(*table)]
        refused: Mapping[tuple[str, str], TidemarkError] = {}
        if settings.sets_tables_aside:
            refused = unsupported_tables(connection, with_data)
        strangers = set() if view is None else view.strangers(set(with_data) - refused.keys())
        if strangers:
            changed = sorted(".".join(table) for table in strangers)
            continue
        _log_excluded(settings, captured, tables)
        if not settings.sets_tables_aside:
            check_supported(connection, with_data)
        tracked = TrackedTables(read_rules(connection), captured.follows)
        if lost:
            tracked.start_over(documents)
        else:
            tracked.restore(documents)
        resumption = Resumption(offset, lost, with_data, tracked, refused)
        resumes = OffsetDocument.KEY in documents and not lost
        names_columns = facts.row_metadata == "FULL"
        is_earlier = settings.source.start_at.is_in_the_past
        if names_columns and (resumes or is_earlier):
            return resumption  # reading the log twice would delay the start, and the server knows most defaults
        wanted = [table for table in tables if captured.holds(*table) and table not in refused]
        changed = _read_definitions(settings, facts, wanted, resumption)
        if not changed or resumes or names_columns or is_earlier:
            return resumption  # of tables that are altered after an earlier start, the reader stops at the first row it cannot read
        log.info("producer.ddl_at_first_start", tables=changed)
    message = (
        f"tables were made, dropped or altered during each of {_FIRST_LOOKS} attempts to read their definitions. Start "
        f"again when {', '.join(changed)} is left alone"
    )
    raise SourceError(message)


def _read_definitions(
    settings: Settings, facts: ServerFacts, tables: list[tuple[str, str]], resumption: Resumption
) -> list[str]:
    """Read the definitions that are not known at the offset; return the tables that were altered after it."""
    tracked = resumption.tracked
    wanted = [table for table in tables if not tracked.state(*table)]
    if not wanted and tracked.knows_databases:
        return []
    past = tables_at(stream_start(resumption.offset.start), wanted, settings.source, facts)
    for known in past.tables.values():
        tracked.adopt(state_of(known))
    if not tracked.knows_databases:
        tracked.adopt_databases(past.databases)
    return sorted(".".join(table) for table in past.changed)


def stream_start(resume: ResumePoint) -> StreamStart:
    """Return where the stream begins: a dump position has 32 bits, beyond them only GTIDs find the transaction."""
    if resume.pos > LARGEST_DUMP_POSITION and resume.gtid_set:
        return StreamStart(file=resume.file, gtid_set=resume.gtid_set)
    return StreamStart(file=resume.file, pos=resume.pos)


def _offset(
    settings: Settings,
    documents: Mapping[str, object],
    facts: ServerFacts,
    connection: Connection,
    view: FirstView | None,
    restart_reason: str,
) -> tuple[LogOffset, str]:
    """Return where to resume, and why reading restarts there although there was a start before, "" where it does not."""
    known = documents.get(OffsetDocument.KEY)
    if known is None:
        chosen = chosen_position(settings.source, facts, connection)
        if chosen is None and view is not None:
            chosen = view.open()
        first = _end_of_log(settings, 0, facts, connection, chosen)
        return after_skipped(settings.source, facts, connection, first), ""
    if not isinstance(known, dict):
        message = f"the log offset in the state topic is not an object: {known!r}"
        raise StateError(message)
    offset = LogOffset.parse(known)
    if restart_reason:
        return _end_of_log(settings, offset.epoch + 1, facts, connection), restart_reason
    behaviour = settings.snapshot.at_start
    repairs = behaviour.when_log_is_lost
    try:
        if offset.server != facts.identity:
            return _failed_over(settings, offset, facts, connection), ""
        lost = _lost(settings, offset, facts, connection)
    except LostTailError as error:
        lost = f"the server that took over lacks transactions that were published: {error}"
        repairs = repairs or behaviour.at_first_start
    except (RetriableSourceError, AccessDeniedError):  # neither says anything of the log
        raise
    except SourceError as error:
        lost = str(error)
    if not lost:
        return offset, ""
    if not repairs:
        message = (
            f"reading the log cannot resume at {offset.file}:{offset.pos} of server {offset.server} (this is "
            f"{facts.identity}): {lost}. If this is the right server, `tidemark repair` starts over at the end of its log "
            f"and has all captured tables read again"
        )
        raise SourceError(message)
    log.warning("log.lost", reason=lost, tables="all captured ones are read again")
    return _end_of_log(settings, offset.epoch + 1, facts, connection), lost


def last_stream(settings: Settings, documents: Mapping[str, object]) -> StreamState | None:
    """Return the number and the promise of the last commit record; None without `order.group`."""
    document = documents.get(OffsetDocument.KEY)
    return LogOffset.parse(document).stream if isinstance(document, dict) and settings.order.group is not None else None


def _lost(settings: Settings, offset: LogOffset, facts: ServerFacts, connection: Connection) -> str:
    """Return why reading the same server's log cannot resume, "" where it can: the last published transaction is there."""
    lost = lost_log(connection, offset.start.file, offset.start.pos, offset.start.gtid_set)
    for begun in (offset.last, None if offset.part is None else offset.part.begun):
        if not lost and begun is not None:
            lost = changed_log(settings.source, facts, connection, begun)
    return lost


def _failed_over(
    settings: Settings, offset: LogOffset, facts: ServerFacts, connection: Connection
) -> LogOffset:
    """Return where to resume in another server's log, in an epoch of its own. Raises the errors of `successor`."""
    was_mariadb = offset.server.startswith(MARIADB_IDENTITY)
    if was_mariadb != (facts.flavour == "mariadb"):
        message = f"the log was read from server {offset.server}, this is {facts.flavour}: reading cannot resume in its log"
        raise SourceError(message)
    if not offset.gtid_set or not facts.has_gtids:
        message = (
            f"the log was read from server {offset.server} and this is {facts.identity}: only GTIDs find the position "
            f"in another server's log (gtid_mode=ON on both, before the failover)"
        )
        raise SourceError(message)
    start = offset.start.gtid_set
    published, part = parse_gtid_set(offset.gtid_set, facts.flavour), offset.part
    if part is not None:
        if part.begun.gtid is None:
            message = f"of one without a GTID {part.rows} rows were"
            raise LostTailError(message)
        published.add(part.begun.gtid)
        part = replace(part, begun=part.begun._replace(file="", pos=0))  # only its GTID says where it begins there
    position = successor(settings.source, facts, connection, str(published), start=start, last=offset.last)
    log.warning(
        "log.failed_over",
        former=offset.server,
        server=facts.identity,
        file=position.file,
        pos=position.pos,
        published=offset.gtid_set,
    )
    return LogOffset(
        offset.epoch + 1,
        position.file,
        position.pos,
        offset.gtid_set,
        facts.identity,
        inherited=offset.gtid_set,
        part=part,
    )


def _end_of_log(
    settings: Settings, epoch: int, facts: ServerFacts, connection: Connection, chosen: LogPosition | None = None
) -> LogOffset:
    """Return the present end of the log, or the position that was chosen."""
    begin, end = first_position(connection) if chosen is None else (chosen, chosen)
    is_one = begin == end
    begin = with_its_gtids(settings.source, facts, connection, begin)
    end = begin if is_one else with_its_gtids(settings.source, facts, connection, end)
    resume = None if is_one else ResumePoint(begin.file, begin.pos, begin.gtid_set)
    return LogOffset(epoch, end.file, end.pos, end.gtid_set, facts.identity, resume)


def _log_excluded(settings: Settings, captured: CapturedTables, tables: list[tuple[str, str]]) -> None:
    source = settings.source
    excluded = [".".join(table) for table in tables if source.names(*table) and not captured.holds(*table)]
    if excluded:
        log.info("producer.tables_excluded", tables=excluded, setting="source.exclude_tables")
