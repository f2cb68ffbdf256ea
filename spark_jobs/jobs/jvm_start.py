"""The start and the end of Spark's JVM: it is up within a time, or it is ended, and the reason is said.

PySpark waits for ever for the file in which the JVM writes its port (`launch_gateway`). On a full disk the main thread of the JVM
ends by an exception, and other threads keep the process: the file never comes. It does not come either from a JVM that ends with
status 0. So the process is started here, and PySpark is given its port.
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway

from schemas.errors import SinkError
from schemas.overriding import override
from schemas.settings import SessionSettings

ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_WRITTEN: Final = struct.Struct("!ii")
"""What the JVM writes: its port, and the size of its secret, which follows."""
_LOOKS_S: Final = 0.1
_ENDS_S: Final = 20.0
"""A JVM that was killed is there until the system has taken its memory back."""
_LAST_WORDS_S: Final = 1.0
"""What a process wrote before it ended is read within this time."""
_LINES: Final = 3
_LINE: Final = 300
_LINE_BYTES: Final = 4 * _LINE
_PIECE: Final = 65_536
_UNCAUGHT: Final = 'Exception in thread "main"'
_NO_NEWS: Final = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
"""Of each start: Spark's own launcher asks for that module."""
_NOISE: Final = ("at ", "... ", "WARNING: Using incubator modules")
_STDERR: Final = 2
_IGNORES_INTERRUPTS: Final = ("bash", "-c", 'trap "" INT; exec "$@"', "spark")
"""An interrupt from the keyboard is for us: we end the JVM after the batch."""


class StartFailedError(SinkError):
    """Spark's JVM did not come up; it is ended."""


class JvmStart:
    """The start of the JVM of this process, or of a session in one that runs: a block that ends with an error or in time.

    If it takes longer, the JVM is ended, which ends each call that waits for it. `failure` returns the error then.
    """

    def __init__(self, within_s: int, log_file: Path | None) -> None:
        self._within_s = within_s
        self._until_s = time.monotonic() + within_s
        self._logged = "" if log_file is None else f". Spark's log is {log_file}"
        self._process: subprocess.Popen[bytes] | None = None
        self._output: JvmOutput | None = None
        self._is_late = False

    def launch(self, conf: Mapping[str, str]) -> None:
        """Start a JVM with these properties, and have PySpark use it. `StartFailedError` if it does not come up."""
        if _PORT in os.environ:  # another process has started it, and looks after it
            return
        with tempfile.TemporaryDirectory(prefix="tidemark-jvm-") as folder:
            file = Path(folder) / "port"
            self._process = process = _spawn(conf, file)
            assert process.stdout is not None
            self._output = JvmOutput(process.stdout)
            self._output.start()
            try:
                port, secret = self._address(process, self._output, file)
                with self.bounded():
                    _connect(process, port, secret)
            except BaseException:
                self._end()
                raise

    def _address(self, process: subprocess.Popen[bytes], output: JvmOutput, file: Path) -> tuple[int, str]:
        while not file.is_file():
            if process.poll() is not None or output.has_failed.is_set() or time.monotonic() > self._until_s:
                self._is_late = process.returncode is None and not output.has_failed.is_set()
                output.join(_LAST_WORDS_S)
                raise self._failure(process)
            time.sleep(_LOOKS_S)
        port, size = _WRITTEN.unpack_from(written := file.read_bytes())
        return port, written[_WRITTEN.size : _WRITTEN.size + size].decode()

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """End the JVM of this process if the block takes longer than what is left of the time."""
        done = threading.Event()

        def watch() -> None:
            if not done.wait(max(0.0, self._until_s - time.monotonic())):
                self._is_late = True
                self._end()

        threading.Thread(target=watch, name="spark-start", daemon=True).start()
        try:
            yield
        finally:
            done.set()

    def failure(self, *, is_lost: bool) -> StartFailedError | None:
        """Return the error if the JVM was late or has ended; None if it runs. With `is_lost` its end is awaited."""
        process = self._process or own_jvm()
        if process is None:
            return None
        try:
            process.wait(_ENDS_S if is_lost or self._is_late else 0)
        except subprocess.TimeoutExpired:
            return None
        if self._output is not None:
            self._output.join(_LAST_WORDS_S)
        forget_jvm()
        return self._failure(process)

    def _failure(self, process: subprocess.Popen[bytes]) -> StartFailedError:
        lines = [] if self._output is None else self._output.last_lines()
        said = f": {' | '.join(lines)}" if lines else ""
        if self._is_late:
            message = (
                f"Spark has not started within {self._within_s} s (spark.start_timeout_s), and its JVM is ended{said}. Common "
                "causes are an overloaded machine, a master that does not answer or has no resources free (spark.master), and a "
                "download of spark.jars.packages. If it only takes long, raise spark.start_timeout_s"
            )
        elif process.returncode is None:
            message = (
                f"Spark's JVM failed while it started, and is ended{said}. Check that the disk of {tempfile.gettempdir()} is not "
                "full, and spark.jars and spark.conf"
            )
        else:
            message = (
                f"Spark's JVM ended with status {process.returncode} while it started{said}. The system ends a process with -9 if "
                f"it has no memory for it; else check spark.conf, and that the disks of {tempfile.gettempdir()} and of "
                "spark.local.dir are not full"
            )
        return StartFailedError(f"{message}{self._logged}")

    def _end(self) -> None:
        process = self._process or own_jvm()
        if process is not None:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDS_S)


class JvmOutput(threading.Thread):
    """A reader of what a JVM writes: what is news goes to our stderr, since programs parse our stdout; the last lines are kept."""

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(name="jvm-output", daemon=True)
        self._pipe = pipe
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._line = bytearray()
        self.has_failed = threading.Event()

    @override
    def run(self) -> None:
        with self._pipe:
            while piece := os.read(self._pipe.fileno(), _PIECE):  # not by lines: a progress bar has no line end
                _pass_on(piece.replace(_NO_NEWS, b""))
                for part in piece.splitlines(keepends=True):
                    self._line += part[: _LINE_BYTES - len(self._line)]
                    if part.endswith((b"\r", b"\n")):
                        self._end_line()
        self._end_line()

    def _end_line(self) -> None:
        line = self._line.decode("utf-8", "replace").strip()
        self._line.clear()
        if not line or line.startswith(_NOISE):
            return
        if line.startswith(_UNCAUGHT):
            self._lines.clear()
        self._lines.append(line[:_LINE])
        if line.startswith(_UNCAUGHT):
            self.has_failed.set()

    def last_lines(self) -> list[str]:
        """Return the last lines, without those of a stack."""
        return list(self._lines)


def _pass_on(piece: bytes) -> None:
    with suppress(OSError):  # a full disk is no reason to leave the JVM with a full pipe
        while piece:
            piece = piece[os.write(_STDERR, piece) :]


def _spawn(conf: Mapping[str, str], file: Path) -> subprocess.Popen[bytes]:
    """Start a JVM that writes its port and its secret to a file, and ends when its input does."""
    given = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    further = shlex.split(os.environ.get(ARGUMENTS, "pyspark-shell"))
    return subprocess.Popen(
        [*_IGNORES_INTERRUPTS, str(Path(_find_spark_home()) / "bin" / "spark-submit"), *given, *further],  # type: ignore[no-untyped-call]
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(file)},
    )  # fmt: skip


def _connect(process: subprocess.Popen[bytes], port: int, secret: str) -> None:
    """Have PySpark talk to a JVM that runs."""
    os.environ.update({_PORT: str(port), _SECRET: secret})
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in (_PORT, _SECRET):
            os.environ.pop(name, None)
    gateway.proc = process
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - what a session calls


# ── the JVM of this process ────────────────────


class LostClassError(SinkError):
    """The JVM could not initialise a class, and does not do it again: only the JVM of another process may."""


def without_class(name: str) -> LostClassError:
    """Return what to say of a JVM that has lost a class."""
    message = (
        f"Spark's JVM could not initialise a class ({name}), and does not try it a second time. A disk that was full when a "
        "library was written to it is a common cause. The merge job ends; its next start has another JVM, and runs the batch again"
    )
    return LostClassError(message)


def jvm_ended(settings: SessionSettings) -> SinkError | None:
    """Return what to say of the JVM where it has ended, or ends; None if it runs, or is another's."""
    process = own_jvm()
    if process is None:
        return None
    try:
        status = int(process.wait(_ENDS_S))
    except subprocess.TimeoutExpired:
        return None
    message = (
        f"Spark's JVM ended with status {status} in the middle of its work: the system ends a process with -9 if it has no "
        f"memory for it (spark.driver_memory is {settings.driver_memory}, and a JVM takes more than its heap). The batch is run "
        "again at the next start"
    )
    return SinkError(message)


def forget_jvm() -> None:
    """Let the next session start a JVM: else it asks the one that has ended. A context cannot be stopped without its JVM."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001 - PySpark offers this alone


def has_jvm_ended() -> bool:
    """Return whether the JVM is gone now."""
    process = own_jvm()
    return process is not None and process.poll() is not None


def own_jvm() -> subprocess.Popen[bytes] | None:
    """Return the JVM that this process has started; None if it has none, or another's."""
    return getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - there is no other way to know of it
