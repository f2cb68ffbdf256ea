"""The clock of the server that is read: what time it is there, and which time may be promised to readers of commit records.

A thread asks on a connection of its own, in this order:

    1. T := UTC_TIMESTAMP(6) of the server
    2. E := the end of its log

Every transaction that gets a time before T is in the log before E, on servers that take the time of a transaction when they write
it (MySQL from 8.0 on). So T may be promised when the log is read and published up to E. With E before T a transaction may come
between them. Servers whose log has whole seconds, and replicas, whose log has the times of another server, break this now and then:
such a transaction is lifted to the promise.

With `order.correct_skew` all times are by the clock of this machine: the difference of the clocks is subtracted from T, and by
commit records from the times of transactions. It counts from the next commit record on, so a time may be wrong between two
readings. Then it is lifted or capped, as any other.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from mysqlio.connection import close_quietly, server_version
from mysqlio.server_facts import ask, log_status
from schemas.errors import RetriableSourceError, SecretError, SourceError
from schemas.lasting import logged_errors
from schemas.position import Position, file_number

if TYPE_CHECKING:
    from mysqlio.connection import Connection

log = structlog.get_logger(__name__)

_FAILED: Final = "source_clock.failed"
_JOIN_S: Final = 5.0
_STEADY_US: Final = 10_000
"""A correction changes by more than that and the error of a measurement, which is half of the time that the answer took."""
_NOW: Final = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"


class ClockReading(NamedTuple):
    """The server's clock in microseconds since 1970, without the skew that is corrected, and the end of its log after that."""

    us: int
    end: Position


class SourceClock:
    """The server's clock, and the thread that reads it. The log reader's thread calls `now_us` and `ready_us`.

    `connect` opens connections to the server whose log is read, in `epoch`. `ready_us` raises errors that no retry can repair.
    With `corrects` its times are by the clock of this machine.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        epoch: int,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        *,
        corrects: bool = False,
    ) -> None:
        self._connect = connect
        self._epoch = epoch
        self._interval_s = interval_s
        self._clock = clock
        self._wall_ns = wall_ns
        self._corrects = corrects
        self.correction_us = 0
        """The skew that is subtracted from times of the server."""
        self.skew_us: int | None = None
        """How far the server's clock is ahead of the one of this machine; None before the first answer, and after a failure."""
        self._lock = threading.Lock()
        self._waiting: deque[ClockReading] = deque()
        self._ready_us = 0
        self._ahead_us = 0  # of this process's clock
        self._failure: SourceError | SecretError | None = None
        self._connection: Connection | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source-clock", daemon=True)

    def start(self) -> None:
        """Read the clock once, then start the thread. Raises the errors of the source."""
        self._read()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; wait a few seconds for a question that is not answered yet."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)
        self._close()

    def now_us(self) -> int:
        """Return about what time it is on the server, by its last answer and the time since."""
        return self._ahead_us + int(self._clock() * 1_000_000)

    @property
    def is_waiting(self) -> bool:
        """Whether a time waits for the log to be read up to its end of then."""
        return bool(self._waiting)

    def ready_us(self, boundary: Position) -> int:
        """Return the latest time that may be promised when everything before `boundary` is published; 0 without any."""
        if self._failure is not None:
            raise self._failure
        if self._waiting:
            with self._lock:
                while self._waiting and self._waiting[0].end <= boundary:
                    self._ready_us = max(self._ready_us, self._waiting.popleft().us)
        return self._ready_us

    def note(self, reading: ClockReading, at_s: float) -> None:
        """Note a reading that was asked for at `at_s` of this process's clock.

        Beside the newest one, the oldest that waits is kept: a log reader that is behind comes to it, and never to a newer one.
        """
        self._ahead_us = reading.us - int(at_s * 1_000_000)
        with self._lock:
            if len(self._waiting) > 1:
                self._waiting.pop()
            self._waiting.append(reading)

    def corrected_us(self, server_us: int, asked_ns: int, answered_ns: int) -> int:
        """Return the server's time without the skew, which is measured by the times of this machine before and after the answer."""
        skew_us = self.skew_us = server_us - (asked_ns + answered_ns) // 2_000
        tolerance_us = _STEADY_US + (answered_ns - asked_ns) // 2_000
        if self._corrects and abs(skew_us - self.correction_us) > tolerance_us:
            self.correction_us = skew_us
        return server_us - self.correction_us

    def _read(self) -> None:
        connection = self._connection = self._connection or self._connect()
        at_s, asked_ns = self._clock(), self._wall_ns()
        now_us = int(ask(connection, _NOW)[0][0])
        us = self.corrected_us(now_us, asked_ns, self._wall_ns())
        self.note(ClockReading(us, end_of_log(connection, self._epoch)), at_s)

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s) and self._failure is None:
            is_done = False
            with logged_errors(log.exception, _FAILED):
                try:
                    self._read()
                    is_done = True
                except (RetriableSourceError, OSError) as error:
                    log.warning(_FAILED, error=str(error))
                except (SourceError, SecretError) as error:
                    self._failure = error
            if not is_done:
                self.skew_us = None
                self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            close_quietly(connection)


def end_of_log(connection: Connection, epoch: int) -> Position:
    """Return the end that the server's log has at the moment; `epoch` is the one of its positions."""
    status = log_status(connection, server_version(connection))
    if not status:
        message = "the server has no binary log (log_bin is OFF)"
        raise SourceError(message)
    return Position(epoch, file_number(str(status[0][0])), int(status[0][1]))
