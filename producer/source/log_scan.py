"""A second reading of a part of the log, at a start: positions enter, the batches between them leave.

The log reader is not connected yet, so the streams here have its server id: the server ends the one when it sees the other.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from producer.binlog import events
from producer.source.dump import BinlogStream, StreamStart
from schemas.errors import LogTornError, RetriableSourceError
from schemas.position import file_number

if TYPE_CHECKING:
    from collections.abc import Generator

    from mysqlio.server_facts import LogPosition, ServerFacts
    from producer.binlog import EventBatch
    from schemas.settings import SourceSettings

PATIENCE_S: Final = 120.0
READ_S: Final = 1.0
_HEARTBEAT_S: Final = 0.2


def batches_before(
    settings: SourceSettings, facts: ServerFacts, start: StreamStart, end: LogPosition
) -> Generator[EventBatch]:
    """Yield the batches that the server sends from `start` on, until one reaches `end`, which is in its log; to be closed.

    The last batch may have events behind `end`. A batch is valid until the next one. Raises `SourceError` where the log is
    gone, `RetriableSourceError` where its end does not come.
    """
    until = (file_number(end.file), end.pos)
    with closing(BinlogStream(settings, facts)) as stream:
        stream.open(start, heartbeat_s=_HEARTBEAT_S)  # only a heartbeat reports what is left out before the end
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


def created_s(settings: SourceSettings, facts: ServerFacts, file: str) -> int:
    """Return when the server began a log file, in seconds since 1970, by its clock. Raises as `batches_before`."""
    with closing(BinlogStream(settings, facts)) as stream:
        stream.open(StreamStart(file))
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            batch = stream.read(READ_S)
            for index in range(0 if batch is None else batch.count):
                assert batch is not None
                if int(batch.types[index]) == events.FORMAT_DESCRIPTION_EVENT and not batch.is_artificial(index):
                    return int(batch.timestamps[index])
    message = f"the server did not send the beginning of {file} within {PATIENCE_S:.0f} s"
    raise RetriableSourceError(message)
