"""The end of a command: signals of the operating system as an event, and a process that ends within five seconds.

A command that is asked to stop (SIGTERM, SIGINT) ends in three steps::

    0 s    the event that the verb waits for is set: it ends in order
    1.5 s  waits in turns give up (`schemas.waiting`): a peer is silent
    4 s    the process is ended as by `kill -9`, after one line (`stop.forced`) that names what is waited for; its
           children (Spark's JVM) are killed first

The last step loses nothing: an open Kafka transaction is aborted by the next start, a batch of the merge job is repeated.
The same thread reports every wait that lasts for more than five seconds (`waiting.for_peer`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import structlog

from schemas.waiting import WAITS, Wait

log = structlog.get_logger(__name__)

GIVE_UP_S: Final = 1.5
FORCED_S: Final = 4.0
REPORTED_S: Final = (5.0, 30.0)
REPORTED_EVERY_S: Final = 60.0
_TURN_S: Final = 0.25
_LINE_S: Final = 0.3
_CHILDREN_S: Final = 0.4
INTERRUPTED: Final = 130
"""The exit code of a command that was interrupted."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set the event; a second one interrupts at once. To be used in the main thread.

    The exit code is 0 then, also where the process has to be ended by force.
    """

    def request(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, request) for number in _SIGNALS}
    try:
        with ends_in_order():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ExitGuard:
    """The thread that reports waits, and ends the process when it does not end by itself.

    It reads the signals that arrive from a pipe that Python's signal handler in C writes to: the main thread may be in a
    call of a C library that does not return, where no handler written in Python runs.
    """

    def __init__(self) -> None:
        self.orderly = 0
        self.asked = False
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._announced: dict[int, int] = {}
        self._thread = threading.Thread(target=self._run, name="exit-guard", daemon=True)

    def start(self) -> None:
        """Begin; to be called in the main thread, once in the life of a process. SIGTERM interrupts from now on, as SIGINT does."""
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread.start()

    def _run(self) -> None:
        readable = select.poll()
        readable.register(self._read, select.POLLIN)
        asked_s, code = 0.0, -1
        while True:
            if readable.poll(_TURN_S * 1000):
                arrived = [one for one in os.read(self._read, 64) if one in _SIGNALS]
                if arrived and code < 0:
                    self.asked = True
                    asked_s, code = time.monotonic(), 0 if self.orderly else INTERRUPTED
            now = time.monotonic()
            if code >= 0 and now - asked_s >= GIVE_UP_S:
                WAITS.end()
            if code >= 0 and now - asked_s >= FORCED_S:
                self._end_by_force(code, now)
            self._report(now)

    def _report(self, now: float) -> None:
        """Log each wait when it has lasted for long enough, and again while it lasts."""
        waits = WAITS.current()
        self._announced = {number: times for number, times in self._announced.items() if number in waits}
        for number, wait in waits.items():
            seconds = now - wait.since_s
            due = sum(seconds >= least for least in REPORTED_S) + int(seconds // REPORTED_EVERY_S)
            if due > self._announced.get(number, 0):
                self._announced[number] = due
                log.warning("waiting.for_peer", **_fields(wait, now))

    def _end_by_force(self, code: int, now: float) -> None:
        """End now; the line is written by another thread, since the one that reads our log may be silent as well."""
        waits = [_fields(wait, now) for wait in WAITS.current().values()]

        def say() -> None:
            log.warning("stop.forced", after_s=FORCED_S, waits=waits, exit_code=code)
            sys.stderr.flush()

        line = threading.Thread(target=say, daemon=True)
        line.start()
        line.join(_LINE_S)
        end_children()
        os._exit(code)


_guard: ExitGuard | None = None


def guard_process() -> None:
    """Have this process, that of one command, end in time. For the main thread, once; calls after that do nothing."""
    global _guard  # noqa: PLW0603 - there is one process
    if _guard is None:
        _guard = ExitGuard()
        _guard.start()


def leave(code: int) -> int:
    """Return the exit code; in a process that was asked to end, that failed with clients of Kafka, or that has Arrow, end it here.

    The end of the interpreter waits for threads and for clients of Kafka, which wait for their brokers; our thread is
    stopped by then. A JVM ends when it notices that we are gone.

    What failed may have left a client of Kafka in the middle of a TLS handshake. At the end of a process OpenSSL (3) frees its
    locks (`OPENSSL_cleanup`, by atexit(3)) while librdkafka's threads still use them: SIGSEGV in `pthread_rwlock_rdlock`. And
    libraries of C++ with threads of their own may end there by "terminate called without an active exception": a
    `tidemark verify` that had found no difference (pyarrow 26) ended with SIGABRT, once in many runs.
    """
    if _guard is None:
        return code
    if not _guard.asked:
        if "pyarrow" not in sys.modules and (code == 0 or "confluent_kafka" not in sys.modules):
            return code
        with contextlib.suppress(KeyboardInterrupt):
            threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - the interpreter's end begins like this
        atexit._run_exitfuncs()  # noqa: SLF001 - as above
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@contextmanager
def ends_in_order() -> Iterator[None]:
    """For a verb that runs until it is stopped: a signal ends it with exit code 0, also by force."""
    if _guard is not None:
        _guard.orderly += 1
    try:
        yield
    finally:
        if _guard is not None:
            _guard.orderly -= 1


def _fields(wait: Wait, now: float) -> dict[str, object]:
    return {
        "peer": wait.peer,
        "address": wait.address,
        "what": wait.what,
        "seconds": round(now - wait.since_s),
        "thread": wait.thread,
    }


def end_children() -> None:
    """Send SIGKILL to every process below this one, which nobody would end any more; wait a moment for the end of ours."""
    ours = _children_of(os.getpid())
    below = list(ours)
    for parent in below:
        below += _children_of(parent)
    for child in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + _CHILDREN_S
    for child in ours:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(child, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                time.sleep(0.01)


def _children_of(pid: int) -> list[int]:
    """Return the processes that any thread of `pid` has started; none where the system has no `/proc`."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, children.read_text(encoding="ascii").split())
    return found
