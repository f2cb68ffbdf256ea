"""Documents and locks below one folder: what state, progress and checkpoint are read and written through.

A sink path of an object store is refused (`schemas.sink_paths`): it has no rename and no locks, and the writes here rely on both.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from schemas.errors import SinkError
from spark_jobs.store.durable_files import replace_file

log = structlog.get_logger()

LOCK_WAIT_S: Final = 60


class LocalFiles:
    """Small text files below a folder of a local or mounted file system, by a relative path with `/` between its parts.

    Safe for several threads that have paths of their own.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str) -> str:
        """Return the text of a file; `FileNotFoundError` if there is none, another `OSError` if it cannot be read.

        A file that is replaced meanwhile is read as it was or as it is, never in part.
        """
        return (self._root / path).read_text(encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        """Replace a file as a whole, and make its folder. The text is durable when this returns.

        A crash leaves the old text or the new one. It may leave a temporary file, whose name begins with a dot.
        """
        file = self._root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, text.encode())

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, in no particular order; none for a folder that is missing."""
        try:
            return [item.name for item in (self._root / folder).iterdir()]
        except FileNotFoundError:
            return []

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that it has. A path that is missing is not an error."""
        found = self._root / path
        if found.is_dir():
            shutil.rmtree(found, ignore_errors=True)
            return
        with suppress(FileNotFoundError, NotADirectoryError):  # of a parent that is a file, too
            found.unlink()

    def location(self, path: str) -> str:
        """Return the path as a person finds it, for messages."""
        return str(self._root / path)

    @contextmanager
    def lock(self, spark: SparkSession, path: str, wait_s: int) -> Iterator[None]:
        """Be the only holder of a lock while the context is open; `SinkError` if another holds it after `wait_s` seconds.

        The lock ends with the JVM of the session at the latest. The JVM may write for a moment after Python was killed, and
        the lock lasts as long.
        """
        java: Any = spark.sparkContext._jvm  # noqa: SLF001 - a lock must be the JVM's own
        file = java.java.io.RandomAccessFile(self.location(path), "rw")
        try:
            if _locked(file.getChannel(), wait_s) is None:
                message = f"another merge job writes to {self._root.parent}; stop it first ({self.location(path)} is locked)"
                raise SinkError(message)
            yield
        finally:
            file.close()


def _locked(channel: Any, wait_s: int) -> Any:
    """Return a lock of a file; None if another still holds it after `wait_s` attempts of a second."""
    for attempt in range(wait_s):
        try:
            lock = channel.tryLock()
        except Py4JJavaError:  # this very JVM holds it: another job in the same process
            return None
        if lock is not None:
            return lock
        if attempt == 0:
            log.info("merge.waiting_for_lock")
        threading.Event().wait(1)
    return None
