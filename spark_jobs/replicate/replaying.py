"""Replay: the files of an archive enter, the events of a range leave, for a database or for a person.

A bound is a time, the position of a transaction, or a GTID; both ends belong to the range.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from schemas.errors import ConfigError, DecodeError
from schemas.exact_values import EXACT_HEADER
from schemas.json_codec import decode
from schemas.settings.task_section import ApplySettings
from spark_jobs.archive.archive_folder import ArchiveManifest
from spark_jobs.archive.segments import (
    ROW,
    SCHEMA,
    STATEMENT,
    ArchivedRecord,
    SegmentReader,
    schema_of,
    segment_file,
)
from spark_jobs.replicate.apply.applier import Applier, FollowedSource
from spark_jobs.replicate.apply.apply_target import ApplyTarget, SourceState
from spark_jobs.replicate.apply.ddl_statements import DdlStatements
from spark_jobs.replicate.apply.row_writer import RowWriter
from spark_jobs.replicate.order.log_order import PREFIX, Event, LogOrder, StatementEvent, joined
from spark_jobs.replicate.rows.row_events import RowEvent, row_event
from spark_jobs.replicate.rows.row_values import RowDecoder, RowRecord

if TYPE_CHECKING:
    from mysqlio.server_access import ServerAccess

log = structlog.get_logger()

_POSITION: Final = re.compile(r"\d{4}\.\d{10}\.\d{12}(\.\d{10})?")
_GTID: Final = re.compile(r"\d+-\d+-\d+|[0-9a-fA-F-]{36}(:[A-Za-z_]\w*)?:\d+")
_BATCH: Final = 2_000
_SOURCE: Final = "archive"
_FORGET: Final = (
    "DELETE FROM tidemark_meta.source WHERE task = %s",
    "DELETE FROM tidemark_meta.ddl WHERE task = %s",
    "DELETE FROM tidemark_meta.task WHERE name = %s",
)


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a range: one of a time in µs since 1970, the first 28 characters of a position, and a GTID."""

    text: str
    us: int | None = None
    position: str = ""
    gtid: str = ""

    @staticmethod
    def parse(text: str, option: str) -> Bound:
        """Return the bound of a text; a time without an offset is UTC. `ConfigError` for another text."""
        if _POSITION.fullmatch(text):
            return Bound(text, position=text[:PREFIX])
        if _GTID.fullmatch(text):
            return Bound(text, gtid=text.lower())
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            known = "a time such as 2026-01-31T12:00:00, a position such as 0000.0000000003.000000001155, or a GTID"
            raise ConfigError(f"{option}: {text!r} is not {known}") from None
        at = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return Bound(text, us=round(at.timestamp() * 1_000_000))


class PlacedEvent(NamedTuple):
    """An event; `cursor` is the segment of its last record, and the offset behind that record."""

    cursor: tuple[int, int]
    us: int
    gtid: str
    event: Event


class ArchiveReader:
    """The events of an archive. Use it in one thread. `DecodeError`: a record is damaged, unless `skips_damage`."""

    def __init__(self, folder: Path, *, skips_damage: bool = False) -> None:
        manifest = ArchiveManifest.read(folder) if folder.is_dir() else None
        if manifest is None:
            raise ConfigError(f"{folder} is not the folder of a task with target.type: file")
        self._folder = folder
        self._manifest = manifest
        self._skips_damage = skips_damage
        self._schemas: dict[int, str] = {}
        self.decoder = RowDecoder(self._text_of)
        self.damages = 0
        """Damaged parts that were passed over."""

    @property
    def task(self) -> str:
        """The task that wrote the archive."""
        return self._manifest.task

    def batches(
        self, begin: Bound | None = None, end: Bound | None = None, after: tuple[int, int] = (0, 0)
    ) -> Iterator[list[PlacedEvent]]:
        """Yield the records of a range behind the cursor `after`; the two of a changed key are in one list."""
        begin, end = self._resolved(begin, end)
        batch: list[PlacedEvent] = []
        for placed in self._events(begin, end):
            if placed.cursor <= after or not _is_within(placed, begin, end):
                continue
            is_split = not batch or batch[-1].event.position != placed.event.position or _is_read(placed.event)
            if len(batch) >= _BATCH and is_split:
                yield batch
                batch = []
            batch.append(placed)
        if batch:
            yield batch

    def _resolved(self, begin: Bound | None, end: Bound | None) -> tuple[Bound | None, Bound | None]:
        """Return the bounds with positions for GTIDs. `ConfigError` for one that no record has."""
        wanted = {bound.gtid for bound in (begin, end) if bound is not None and bound.gtid}
        positions: dict[str, str] = {}
        if wanted:
            damages = self.damages
            for placed in self._events(None, None):
                if placed.gtid.lower() in wanted:
                    positions.setdefault(placed.gtid.lower(), placed.event.position[:PREFIX])
            self.damages = damages
        for gtid in wanted - positions.keys():
            raise ConfigError(f"{self._folder} has no change with the GTID {gtid}")
        return _placed_at(begin, positions), _placed_at(end, positions)

    def _events(self, begin: Bound | None, end: Bound | None) -> Iterator[PlacedEvent]:
        for number in range(self._manifest.first, self._manifest.open.number + 1):
            is_open = number == self._manifest.open.number
            if is_open and not self._manifest.size:
                return
            size = self._manifest.size if is_open else None
            reader = SegmentReader(segment_file(self._folder, number), number, size, skips_damage=self._skips_damage)
            if is_open or not _is_outside(reader, begin, end):
                yield from self._events_of(reader, number)
            self.damages += reader.damages

    def _events_of(self, reader: SegmentReader, number: int) -> Iterator[PlacedEvent]:
        for offset, record in reader.records():
            if record.kind == SCHEMA:
                ident, text = schema_of(record)
                self._schemas[ident] = text
            elif record.kind in (ROW, STATEMENT):
                try:
                    event, gtid = self._decoded(record)
                except DecodeError as error:
                    reader.note_damage(offset, str(error))
                else:
                    yield PlacedEvent((number, offset), record.time_us, gtid, event)

    def _decoded(self, record: ArchivedRecord) -> tuple[Event, str]:
        if record.kind == STATEMENT:
            try:
                statement = decode(StatementEvent, json.loads(record.value))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                raise DecodeError(f"not a statement: {error!r}") from error
            return statement, statement.gtid
        change = self.decoder.decode(record.value, [(EXACT_HEADER, record.note)] if record.note else None)
        event = row_event(change.head, RowRecord(record.value, record.note), record.position, source=_SOURCE)
        return event, change.source.get("gtid") or ""

    def _text_of(self, ident: int) -> str:
        if ident not in self._schemas:
            raise DecodeError(f"the Avro schema with id {ident} is missing: its record is damaged")
        return self._schemas[ident]


def _is_read(event: Event) -> bool:
    return isinstance(event, RowEvent) and event.op == "r"


def _placed_at(bound: Bound | None, positions: dict[str, str]) -> Bound | None:
    return replace(bound, position=positions[bound.gtid]) if bound is not None and bound.gtid else bound


def _is_within(placed: PlacedEvent, begin: Bound | None, end: Bound | None) -> bool:
    position = placed.event.position[:PREFIX]
    is_begun = begin is None or (placed.us >= begin.us if begin.us is not None else position >= begin.position)
    return is_begun and (end is None or (placed.us <= end.us if end.us is not None else position <= end.position))


def _is_outside(reader: SegmentReader, begin: Bound | None, end: Bound | None) -> bool:
    """Return whether a closed segment has no change of a range, if its footer says so."""
    facts = reader.facts() if begin is not None or end is not None else None
    if facts is None:
        return False
    is_before = begin is not None and (
        facts.last_us < begin.us if begin.us is not None else facts.last[:PREFIX] < begin.position
    )
    return is_before or (
        end is not None and (facts.first_us > end.us if end.us is not None else facts.first[:PREFIX] > end.position)
    )


def printed(
    batches: Iterable[list[PlacedEvent]], decoder: RowDecoder, follows: Callable[[str, str], bool]
) -> Iterator[dict[str, Any]]:
    """Yield a document for each event of the tables: position, time, and the row or the statement."""
    for batch in batches:
        facts = {placed.event.position: placed for placed in batch}
        for event in joined([placed.event for placed in batch]):
            database, table = event.table or (event.database, "") if isinstance(event, StatementEvent) else event.table
            if follows(database, table):
                placed = facts[event.position]
                at = datetime.fromtimestamp(placed.us / 1_000_000, UTC).isoformat(timespec="microseconds")
                yield {"position": event.position, "time": at, "gtid": placed.gtid or None, **_change(event, decoder)}


def _change(event: Event, decoder: RowDecoder) -> dict[str, Any]:
    if isinstance(event, StatementEvent):
        name = ".".join(event.table) if event.table is not None else None
        return {"database": event.database, "table": name, "is_description": event.is_description, "statement": event.sql}
    before = None if event.before is None else decoder.old_row(event.before)
    after = None if event.after is None else decoder.new_row(event.after)
    return {"op": event.op, "table": ".".join(event.table), "before": before, "after": after}


def apply(
    reader: ArchiveReader,
    access: ServerAccess,
    begin: Bound | None,
    end: Bound | None,
    follows: Callable[[str, str], bool],
    identity: str,
    channel: str | None = None,
) -> int:
    """Apply a range to a server in safe mode, with the mark of a channel; return the number of rows.

    While it runs, its progress is in `tidemark_meta` by the folder, the range and `identity`: a replay that was interrupted
    continues. `SinkError`: the target does not take a row or a statement.
    """
    key = json.dumps([reader.task, begin and begin.text, end and end.text, identity])
    target = ApplyTarget(access, f"replay-{reader.task[:80]}-{hashlib.sha256(key.encode()).hexdigest()[:12]}", channel)
    try:
        target.require_usable(_SOURCE, "")
        target.take_over()
        state = target.states().get(_SOURCE) or SourceState(offset=0, n=0, loading=())
        if state.offset:
            log.info("replay.resumed", position=state.position)
        statements = DdlStatements(target, _SOURCE, follows)
        applier = Applier(target, RowWriter(target, reader.decoder, ApplySettings(safe_mode=True)))
        applier.add(FollowedSource(_SOURCE, LogOrder(reader.decoder, _SOURCE, ""), statements, follows, state))
        for batch in reader.batches(begin, end, (state.offset, state.n)):
            applier.apply_events(_SOURCE, list(joined([placed.event for placed in batch])), batch[-1].cursor)
        for statement in _FORGET:
            target.execute(statement, target.task)
    finally:
        target.close()
    return applier.rows.total()
