"""Files that survive a crash of the machine, and the lock of a folder. Nothing here knows Spark."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from schemas.errors import SinkError

_TURN_S: Final = 0.1


def replace_file(file: Path, data: bytes) -> None:
    """Replace a file as a whole; the data is durable when this returns.

    A crash leaves the old data or the new, and perhaps a temporary file beside it, whose name begins with a dot.
    """
    beside = file.with_name(f".{file.name}.tmp")
    with beside.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(file)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Make the names of the files in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock_folder(folder: Path, wait_s: float) -> Iterator[None]:
    """Be the only process that writes to a folder while the context is open; `SinkError` if another one is after `wait_s` seconds.

    The lock ends with the process.
    """
    with ExitStack() as stack:
        file = stack.enter_context((folder / "lock").open("ab"))
        deadline = time.monotonic() + wait_s
        while not _is_locked(file.fileno()):
            if time.monotonic() >= deadline:
                message = f"another process writes to {folder}; stop it first ({file.name} is locked)"
                raise SinkError(message)
            time.sleep(_TURN_S)
        yield


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
