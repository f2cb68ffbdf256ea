"""When a log file was made: what tells a log from another one of the same file names (RESET MASTER, a restored backup)."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from producer.binlog.event_types import FORMAT_DESCRIPTION_EVENT
from producer.source.dump import BinlogStream, StreamStart
from schemas.errors import RetriableSourceError

if TYPE_CHECKING:
    from schemas.settings import SourceSettings

_OWN_ID: Final = 0x3C3C3C3C
_READ_S: Final = 1.0
_PATIENCE_S: Final = 30.0
_FIRST_EVENT: Final = 4


def made_at(settings: SourceSettings, file: str) -> int:
    """The time in a file's first event, in seconds since 1970, by a second stream with an id of its own.

    Raises `SourceError` where the server does not have the file, `RetriableSourceError` where nothing is heard.
    """
    with closing(BinlogStream(settings)) as stream:
        stream.open(StreamStart(file=file, pos=_FIRST_EVENT), server_id=((settings.server_id or 0) ^ _OWN_ID) or 1)
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            batch = stream.read(_READ_S)
            kinds = [] if batch is None else batch.types[: batch.count].tolist()
            if batch is not None and FORMAT_DESCRIPTION_EVENT in kinds:
                return int(batch.timestamps[kinds.index(FORMAT_DESCRIPTION_EVENT)])
    message = f"the beginning of {file} was not heard within {_PATIENCE_S:.0f} s"
    raise RetriableSourceError(message)


def another_log(file: str, known: int, found: int) -> str:
    """That a file is not the one that was read before, in words; "" where it may be (0: not known)."""
    if not known or not found or known == found:
        return ""
    before, now = (time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) for seconds in (known, found))
    return (
        f"{file} was read when it was the file made at {before} UTC, the server's was made at {now} UTC: the log was reset "
        f"(RESET MASTER), or the server restored"
    )
