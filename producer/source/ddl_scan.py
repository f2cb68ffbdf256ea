"""Which tables a DDL touches between two positions in the log: what enters are the positions, what leaves are names.

information_schema describes the present; with this module its answers apply to another position in the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from producer.binlog import events
from producer.source.dump import BinlogStream, StreamStart
from schemas.errors import LogTornError, RetriableSourceError
from schemas.position import file_number

if TYPE_CHECKING:
    from mysqlio.server_facts import LogPosition
    from producer.binlog import EventBatch
    from schemas.settings import SourceSettings

log = structlog.get_logger(__name__)

_OWN_ID: Final = 0x5A5A5A5A
_MARIADB_QUERY_COMPRESSED: Final = 165
_READ_S: Final = 1.0
_PATIENCE_S: Final = 60.0


def queries_between(
    settings: SourceSettings, start: StreamStart, end: LogPosition, handle: Callable[[events.QueryEvent], None]
) -> None:
    """Give every statement between `start` and `end` to `handle`, by a second stream with an id of its own.

    Raises `SourceError` where the log is gone, `RetriableSourceError` where its end does not come.
    """
    until = (file_number(end.file), end.pos)
    if start.gtid_set is None and (file_number(start.file), start.pos) >= until:
        return
    stream = BinlogStream(settings)
    began = time.monotonic()
    stream.open(start, server_id=((settings.server_id or 0) ^ _OWN_ID) or 1)
    heard = time.monotonic()
    try:
        while (file_number(stream.file or start.file), stream.position) < until:
            try:
                batch = stream.read(_READ_S)
            except LogTornError as torn:
                stream.continue_in(torn.next_file)
                continue
            if batch is not None:
                heard = time.monotonic()
                _handle_statements(batch, stream.flavour, handle)
            elif time.monotonic() - heard > _PATIENCE_S:
                message = (
                    f"the log from {start.file}:{start.pos} was not heard of for {_PATIENCE_S:.0f} s, "
                    f"before its end at {end.file}:{end.pos}"
                )
                raise RetriableSourceError(message)
    finally:
        stream.close()
    log.info(
        "binlog.looked_through",
        from_file=start.file,
        from_pos=start.pos,
        to_file=end.file,
        to_pos=end.pos,
        seconds=round(time.monotonic() - began, 1),
    )


def _handle_statements(batch: EventBatch, flavour: str, handle: Callable[[events.QueryEvent], None]) -> None:
    types, starts, ends = batch.types.tolist(), batch.starts.tolist(), batch.ends.tolist()
    for index in range(batch.count):
        kind, start, end = types[index], starts[index], ends[index]
        if kind == events.QUERY_EVENT:
            handle(events.parse_query(batch.memory, start, end))
        elif kind == _MARIADB_QUERY_COMPRESSED and flavour == "mariadb":
            plain = events.decompress_event(batch.memory, start, end)
            handle(events.parse_query(plain.memory, int(plain.starts[0]), int(plain.ends[0])))
