"""How long the source still keeps the log that was not read yet: the head-room before its purge.

What enters: a connection, and the position where reading continues. What leaves: `HeadRoom`, and its warning. A server
purges whole files, never the one it writes to, when their last change is older than it keeps them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.server_facts import MARIADB_IDENTITY, ask
from producer.source.log_facts import log_sizes
from schemas.errors import TidemarkError
from schemas.lasting import logged_errors

if TYPE_CHECKING:
    from mysqlio.connection import Connection

log = structlog.get_logger(__name__)

LOOK_EVERY_S: Final = 60.0
_AGAIN_S: Final = 3600.0
_DAY_S: Final = 86_400
_JOIN_S: Final = 5.0
_BY_TIME: Final = ("binlog_expire_logs_seconds", "expire_logs_days")
_BY_SIZE: Final = ("max_binlog_total_size", "binlog_space_limit")
_PURGES: Final = "binlog_expire_logs_auto_purge"
_IDENTITY: Final = ("server_uuid", "server_id")


@dataclass(frozen=True, slots=True)
class ResumePosition:
    """Where reading continues, and the time of what was read last (Unix, seconds), None where nothing was.

    `server` is whose log that is, as a log offset has it; "" where that is not known.
    """

    file: str
    pos: int
    read_s: float | None
    server: str = ""


@dataclass(frozen=True, slots=True)
class HeadRoom:
    """What is between the position where reading continues and the server's purge.

    `keeps_s` and `keeps_bytes` are what the server keeps, None where it purges nothing by itself. `left_s` is how long it
    takes at least until it may purge what is still needed, None where that is never, or not known yet. `behind_bytes` were
    written since that place, None where the server's log does not hold it. `sizes` are those of its files, oldest first, empty
    where they are of another server.
    """

    file: str
    oldest_file: str
    newest_file: str
    behind_bytes: int | None
    keeps_s: int | None
    keeps_bytes: int | None
    left_s: float | None
    is_purged: bool
    is_shorter: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict, repr=False)

    def bytes_after(self, file: str, pos: int) -> int | None:
        """Return how much the server had written after a position when it was asked; None where it does not have that position."""
        if pos > self.sizes.get(file, -1):
            return None
        files = list(self.sizes)
        return sum(self.sizes[name] for name in files[files.index(file) :]) - pos

    def warning(self, least_s: int) -> str:
        """Return why somebody should look at it now; "" while there is room enough.

        `least_s` is how much time there should be; half of what the server keeps is enough in any case.
        """
        there = f"the server has {self.oldest_file} to {self.newest_file}"
        if self.is_shorter:
            return (
                f"{self.file} is shorter than what was read of it: the server's log was reset, restored or lost its end. "
                f"Start the producer, which compares them and says what to do"
            )
        if self.is_purged:
            return f"{self.file}, where reading continues, is purged: {there}. `tidemark repair` starts over"
        if self.keeps_s is not None and self.left_s is not None and self.left_s < min(least_s, self.keeps_s / 2):
            return (
                f"reading continues in {self.file}, which the server may purge in {_hours(self.left_s)}: it keeps its log for "
                f"{_hours(self.keeps_s)} ({there}). Let the producer run, or raise binlog_expire_logs_seconds"
            )
        if self.keeps_bytes is not None and (self.behind_bytes or 0) > self.keeps_bytes / 2:
            return (
                f"reading continues in {self.file}, {self.behind_bytes} bytes before the log's end, and the server keeps "
                f"{self.keeps_bytes} bytes of it ({there}). Let the producer run, or raise max_binlog_total_size"
            )
        return ""


def head_room(connection: Connection, resume: ResumePosition, now_s: float) -> HeadRoom:
    """Ask the server. Raises `SourceError` when the user may not ask."""
    names = ",".join(f"'{name}'" for name in (*_BY_TIME, *_BY_SIZE, _PURGES, *_IDENTITY))
    found = ask(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return reckon(log_sizes(connection), {str(name).lower(): str(value) for name, value in found}, resume, now_s)


def reckon(sizes: dict[str, int], variables: dict[str, str], resume: ResumePosition, now_s: float) -> HeadRoom:
    """Return the head-room, given the server's files (oldest first) with their sizes, and its variables.

    Of the files of another server (a failover) nothing can be said.
    """
    files = list(sizes) or [resume.file]
    keeps_s = kept_s(variables)
    kept_bytes = [int(variables[name]) for name in _BY_SIZE if int(variables.get(name) or 0)]
    identity = variables.get("server_uuid") or f"{MARIADB_IDENTITY}{variables.get('server_id', '')}"
    is_anothers = resume.server not in ("", identity)
    is_purged = resume.file not in files and not is_anothers
    left_s: float | None = None
    is_shorter = False
    behind: int | None = None  # of a file that is gone, or another server's, there is nothing to count from
    if resume.file in files and not is_anothers:
        here = files.index(resume.file)
        is_shorter = bool(sizes) and resume.pos > sizes[resume.file]
        behind = None if is_shorter else sum(sizes.get(file, 0) for file in files[here:]) - resume.pos
        if keeps_s is not None and here == len(files) - 1:
            left_s = float(keeps_s)  # the file that is written to is never purged
        elif keeps_s is not None and resume.read_s is not None:
            left_s = max(0.0, keeps_s - (now_s - resume.read_s))
    return HeadRoom(
        file=resume.file,
        oldest_file=files[0],
        newest_file=files[-1],
        behind_bytes=behind,
        keeps_s=keeps_s,
        keeps_bytes=min(kept_bytes) if kept_bytes else None,
        left_s=left_s,
        is_purged=is_purged,
        is_shorter=is_shorter,
        sizes={} if is_anothers else sizes,
    )


def kept_s(variables: dict[str, str]) -> int | None:
    """For how long the server keeps its log; None for ever. The finer of the two variables wins."""
    if variables.get(_PURGES, "ON").upper() in ("OFF", "0"):
        return None
    seconds = int(variables.get("binlog_expire_logs_seconds") or 0)
    return seconds or int(float(variables.get("expire_logs_days") or 0) * _DAY_S) or None


class RetentionWatch:
    """Looks at the head-room every minute, on a thread and with connections of its own; `latest` is what it saw last.

    A server that cannot be asked is no reason to stop: the log reader says that much louder. Then nothing is known.
    """

    def __init__(
        self, source: Callable[[], Connection], resume: Callable[[], ResumePosition], least_s: int, every_s: float = LOOK_EVERY_S
    ) -> None:
        self._source, self._resume = source, resume
        self._least_s, self._every_s = least_s, every_s
        self._ended = threading.Event()
        self._warned_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="retention-watch", daemon=True)
        self.latest: HeadRoom | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it was stopped."""
        return self._ended.is_set()

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def look(self) -> HeadRoom:
        """Return one look; a warning is logged when it begins, once an hour while it lasts, and when it is over."""
        with closing(self._source()) as connection:
            found = self.latest = head_room(connection, self._resume(), time.time())
        warning = found.warning(self._least_s)
        now = time.monotonic()
        if warning and (self._warned_at is None or now - self._warned_at >= _AGAIN_S):
            log.warning("log.retention_short", reason=warning, left_s=found.left_s, keeps_s=found.keeps_s)
            self._warned_at = now
        elif not warning and self._warned_at is not None:
            log.info("log.retention_enough", left_s=found.left_s, keeps_s=found.keeps_s)
            self._warned_at = None
        return found

    def _run(self) -> None:
        first = True
        while not self._ended.is_set():
            found = None  # what was seen an hour ago is no answer
            with logged_errors(log.exception, "source.retention_unknown"), suppress(TidemarkError, OSError):
                found = self.look()
                if first and found.keeps_s is not None and found.keeps_s < _DAY_S:
                    advice = "an outage that lasts longer loses the log; better: SET GLOBAL binlog_expire_logs_seconds = 604800"
                    log.warning("source.log_kept_shortly", keeps_s=found.keeps_s, advice=advice)
                first = False
            self.latest = found
            self._ended.wait(self._every_s)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds:.0f} s"
