"""Child processes that cannot outlive us, free ports, and the verbs that all development servers share."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from tidemark.runtime.artifacts import UnavailableError

log = logging.getLogger(__name__)

KILLED: Final = 128 + signal.SIGKILL
HOST: Final = "127.0.0.1"
GUARD: Final = Path(__file__).with_name("_guard.py")
# Below Linux's default ephemeral range (32768...), so no outgoing connection takes a port while its server is
# down.
PORT_RANGE: Final = range(20000, 32000)
LOST_PORT_SIGNS: Final = ("Address already in use", "BindException", "seems to be in use")
TROUBLE: Final = re.compile(r"\b(ERROR|FATAL|Exception)\b")
START_SECONDS: Final = 120.0
START_ATTEMPTS: Final = 3
TAIL_LINES: Final = 25

_claims: dict[int, int] = {}  # ports handed out, and the descriptors of the sockets that say so
_ports_lock = threading.Lock()
_random = random.SystemRandom()  # others may seed the common one


def free_port() -> int:
    """Return a loopback port that nobody listens on now and that this module gave to no living process before.

    A server that is down keeps its port for its next start.
    """
    with _ports_lock:
        for _ in range(2000):
            port = _random.choice(PORT_RANGE)
            if port in _claims:
                continue
            with contextlib.ExitStack() as stack:
                claim = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                probe = stack.enter_context(socket.socket())
                try:
                    claim.bind(f"\0tidemark-port-{port}")  # no file, and gone with the process
                    probe.bind((HOST, port))
                except OSError:
                    continue
                _claims[port] = claim.detach()
            return port
    msg = f"no free port on {HOST} between {PORT_RANGE.start} and {PORT_RANGE.stop}"
    raise DevServerError(msg)


class DevServerError(UnavailableError):
    """A development server is not available on this machine; the message says what to do."""


class ServerStartError(DevServerError):
    """A server ended or did not answer while it was being started; has the end of its log."""


class GuardedProcess:
    """One running command with its guard. Made by `spawn`; `pid` is the command's own."""

    __slots__ = ("_guard", "pid")

    def __init__(self, guard: subprocess.Popen[bytes], pid: int) -> None:
        self._guard = guard
        self.pid = pid

    @classmethod
    def spawn(
        cls, command: Sequence[str], log_path: Path, *, cwd: Path, env: Mapping[str, str]
    ) -> GuardedProcess:
        """Start `command`, its output appended to `log_path`, which is there when this returns."""
        log_path.touch()
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(log_path), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
        )
        line = b""
        if guard.stdout is not None:
            with guard.stdout as answer:
                line = answer.readline()
        if not line.strip():
            msg = f"the guard of {command[0]} ended with status {guard.wait()} before starting it"
            raise ServerStartError(msg)
        return cls(guard, int(line))

    @property
    def status(self) -> int | None:
        """None while it runs, else its exit status (128 + signal)."""
        return self._guard.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command, if it still runs."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Return whether it ended within that time."""
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def terminate(self, seconds: float) -> bool:
        """SIGTERM, then SIGKILL to what has not ended in time; True when it was not necessary."""
        self.signal(signal.SIGTERM)
        if not self.wait(seconds):
            log.warning("pid %d did not end within %g s of SIGTERM and is killed", self.pid, seconds)
            self.kill()
        return self.status != KILLED

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.signal(signal.SIGKILL)
        self._guard.wait()


class Server:
    """What the database, the broker and the registry have in common.

    A subclass says how to prepare its files, which command to run and when it is ready. Its folder is
    `run_dir/<name>`; a folder with data of an earlier run is started on that data. One process at a time may
    use a folder. Everything still running is stopped when the interpreter ends, and killed if it cannot.
    """

    stop_seconds: float = 30.0

    def __init__(self, name: str, run_dir: Path) -> None:
        self.name = name
        self.host = HOST
        self.folder = run_dir.absolute() / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_path = self.folder / f"{name}.log"
        self._process: GuardedProcess | None = None
        self.owner = os.getpid()
        self._lock: IO[str] | None = None
        self._log_begin = 0
        _servers.add(self)

    # ---- what a subclass says

    def _choose_ports(self) -> None:
        raise NotImplementedError

    def _prepare(self) -> None:
        """Make or complete the data of the server. Called before each start."""

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _ready(self) -> bool:
        raise NotImplementedError

    def _ended(self, *, graceful: bool) -> None:
        """Clean up after each end that we asked for."""

    # ---- verbs

    @property
    def pid(self) -> int:
        """Of the running server. Raises DevServerError when it is stopped."""
        if self._process is None:
            msg = f"{self.name} is not running"
            raise DevServerError(msg)
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists now."""
        return self._process is not None and self._process.status is None

    def start(self) -> Self:
        """First start, on ports of our choice; another try when somebody took one in between."""
        self._lock_folder()
        for attempt in range(1, START_ATTEMPTS + 1):
            self._choose_ports()
            try:
                self._run()
            except ServerStartError as error:
                said = self._log_since(self._log_begin)
                if attempt == START_ATTEMPTS or not any(sign in said for sign in LOST_PORT_SIGNS):
                    self._release_folder()
                    raise ServerStartError(str(error)) from None
                log.info("%s lost its port to another process and retries", self.name)
            except BaseException:
                self.kill()
                self._release_folder()
                raise
            else:
                return self
        raise AssertionError("unreachable")

    def ask_to_end(self) -> None:
        """SIGTERM, without waiting; several servers then end side by side."""
        process = self._process  # another thread may be starting it
        if process is not None:
            process.signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ask the server to end and wait for it; the data stays. Does nothing when it is stopped."""
        if self._process is not None:
            graceful = self._process.terminate(self.stop_seconds)
            self._process = None
            self._ended(graceful=graceful)

    def kill(self) -> None:
        """SIGKILL: what a crash leaves behind stays on disk."""
        if self._process is not None:
            self._process.kill()
            self._process = None
            self._ended(graceful=False)

    def restart(self) -> Self:
        """Restart on the same data and ports; stops the server first when it runs."""
        self.stop()
        self._lock_folder()
        self._run()
        return self

    def close(self) -> None:
        """Stop, and let other processes use the folder."""
        self.stop()
        self._release_folder()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- inside

    def _lock_folder(self) -> None:
        if self._lock is not None:
            return
        lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            msg = f"{self.folder} is used by another running {self.name}; give another run_dir"
            raise DevServerError(msg) from None
        self._lock = lock

    def _release_folder(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _run(self) -> None:
        self._prepare()
        self._log_begin = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._process = GuardedProcess.spawn(
            self._command(), self.log_path, cwd=self.folder, env=self._environment()
        )
        deadline = time.monotonic() + START_SECONDS
        while True:
            ready = self._ready()
            status = self._process.status
            if status is not None:
                self._process = None
                msg = f"{self.name} ended with status {status} at its start;{self._tail()}"
                raise ServerStartError(msg)
            if ready:
                return
            if time.monotonic() > deadline:
                self.kill()
                msg = f"{self.name} was not ready after {START_SECONDS:g} s;{self._tail()}"
                raise ServerStartError(msg)
            time.sleep(0.05)

    def _log_since(self, begin: int) -> str:
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as file:
            file.seek(begin)
            return file.read().decode("utf-8", "replace")

    def _tail(self) -> str:
        """Return the first line with an error, and the last lines."""
        lines = self._log_since(self._log_begin).splitlines()
        last = lines[-TAIL_LINES:]
        first = [f"{line}\n  ..." for line in lines[:-TAIL_LINES] if TROUBLE.search(line)][:1]
        return f" from {self.log_path}:\n  " + "\n  ".join([*first, *last] or ["(nothing was logged)"])


_servers: weakref.WeakSet[Server] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """At the end of the interpreter; a forked child of ours must not stop its parent's servers."""
    ours = [server for server in list(_servers) if server.running and server.owner == os.getpid()]
    for server in ours:
        server.ask_to_end()
    for server in ours:
        server.stop()


def listening(port: int) -> bool:
    """Whether something accepts connections there."""
    with contextlib.closing(socket.socket()) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
