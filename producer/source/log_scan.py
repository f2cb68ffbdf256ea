"""A second reading of a part of the log: positions enter, the batches and statements between them leave.

At a start the log reader is not connected yet, so streams have its server id: the server ends the one when it sees the other.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

import structlog

from producer.binlog import events
from producer.source.dump import BinlogStream, StreamStart
from schemas.errors import LogTornError, RetriableSourceError
from schemas.position import file_number

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from mysqlio.server_facts import LogPosition, ServerFacts
    from producer.binlog import EventBatch
    from producer.binlog.events import QueryEvent
    from schemas.settings import SourceSettings

log = structlog.get_logger(__name__)

PATIENCE_S: Final = 120.0
READ_S: Final = 1.0
_HEARTBEAT_S: Final = 0.2
_OWN_ID: Final = 0x5A5A5A5A
_MARIADB_QUERY_COMPRESSED: Final = 165


def batches_before(
    settings: SourceSettings,
    facts: ServerFacts,
    start: StreamStart,
    end: LogPosition,
    server_id: int | None = None,
    heartbeat_s: float | None = _HEARTBEAT_S,
) -> Generator[EventBatch]:
    """Yield the batches that the server sends from `start` on, until one reaches `end`, which is in its log; to be closed.

    The last batch may have events behind `end`. A batch is valid until the next one. `heartbeat_s` is the time between heartbeats,
    by the settings if None. Raises `SourceError` if the log is gone, `RetriableSourceError` if its end does not come.
    """
    until = (file_number(end.file), end.pos)
    with closing(BinlogStream(settings, facts)) as stream:
        stream.open(start, server_id, heartbeat_s)  # only a heartbeat reports what is left out before the end
        reached, deadline = ("", 0), time.monotonic() + PATIENCE_S
        while not stream.file or (file_number(stream.file), stream.position) < until:
            try:
                batch = stream.read(READ_S)
            except LogTornError as torn:
                stream.continue_in(torn.next_file)
                continue
            if batch is not None:
                yield batch
            if reached != (stream.file, stream.position):
                reached, deadline = (stream.file, stream.position), time.monotonic() + PATIENCE_S
            elif time.monotonic() > deadline:
                message = f"the log was not heard of for {PATIENCE_S:.0f} s, before its end at {end.file}:{end.pos}"
                raise RetriableSourceError(message)


def queries_between(settings: SourceSettings, facts: ServerFacts, start: StreamStart, end: LogPosition) -> Iterator[QueryEvent]:
    """Yield every statement between `start` and `end`, by a stream with an id of its own. Raises as `batches_before`.

    information_schema describes the present; with these statements its answers apply to another position in the log.
    """
    if start.gtid_set is None and (file_number(start.file), start.pos) >= (file_number(end.file), end.pos):
        return
    began = time.monotonic()
    server_id = ((settings.server_id or 0) ^ _OWN_ID) or 1
    with closing(batches_before(settings, facts, start, end, server_id, heartbeat_s=None)) as batches:
        for batch in batches:
            for index, kind in enumerate(batch.types[: batch.count].tolist()):
                span = batch.memory, int(batch.starts[index]), int(batch.ends[index])
                if kind == events.QUERY_EVENT:
                    yield events.parse_query(*span)
                elif kind == _MARIADB_QUERY_COMPRESSED and facts.flavour == "mariadb":
                    plain = events.decompress_event(*span)
                    yield events.parse_query(plain.memory, int(plain.starts[0]), int(plain.ends[0]))
    log.info(
        "binlog.looked_through",
        from_file=start.file,
        from_pos=start.pos,
        to_file=end.file,
        to_pos=end.pos,
        seconds=round(time.monotonic() - began, 1),
    )


def first_batches(settings: SourceSettings, facts: ServerFacts, start: StreamStart) -> Generator[EventBatch]:
    """Yield the batches that the server sends from `start` on, for two minutes; to be closed. Raises as `batches_before`."""
    with closing(BinlogStream(settings, facts)) as stream:
        stream.open(start)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            batch = stream.read(READ_S)
            if batch is not None:
                yield batch


def begun_in(batch: EventBatch) -> Iterator[tuple[int, str, str | None, int | None]]:
    """Yield the transactions that begin in a batch, which may continue in the next file.

    Each is the index of its first event, its file, its GTID, and when it was first committed (µs since 1970) if the log has that.
    """
    file = batch.file
    for index, kind in enumerate(batch.types[: batch.count].tolist()):
        start, end = int(batch.starts[index]), int(batch.ends[index])
        if kind in events.GTID_EVENTS or kind == events.MARIADB_GTID_EVENT:
            yield index, file, *events.parse_start(batch.memory, start, end, kind)
        elif kind == events.ROTATE_EVENT:
            file = events.parse_rotate(batch.memory, start, end).file


def created_s(settings: SourceSettings, facts: ServerFacts, file: str) -> int:
    """Return when the server began a log file, in seconds since 1970, by its clock. Raises as `batches_before`."""
    with closing(first_batches(settings, facts, StreamStart(file))) as batches:
        for batch in batches:
            for index, kind in enumerate(batch.types[: batch.count].tolist()):
                if kind == events.FORMAT_DESCRIPTION_EVENT and not batch.is_artificial(index):
                    return int(batch.timestamps[index])
    message = f"the server did not send the beginning of {file} within {PATIENCE_S:.0f} s"
    raise RetriableSourceError(message)
