"""A sink's folder, seen from outside: progress, liveness record and lock of its merge job, and the room on the disk."""

from __future__ import annotations

import fcntl
import json
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from schemas.errors import StateError
from schemas.json_codec import decode
from schemas.liveness import machine, read_sign
from schemas.merge_progress import MergeProgress
from tidemark.status.job_standing import SinkFacts

if TYPE_CHECKING:
    from schemas.settings import Settings
    from schemas.settings.sink_section import SinkSettings

_FLOCK: Final = "hhqqi4x" if struct.calcsize("l") == 8 else "hhlli"
_NO_ROOM: Final = 1 << 20


def read_progress(settings: Settings) -> MergeProgress:
    """Return the content of the merge job's progress file; nothing while there is no such file, or no sink."""
    if len(settings.sinks) != 1:
        return MergeProgress()
    path = Path(settings.sink.progress_path)
    try:
        return decode(MergeProgress, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return MergeProgress()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path} cannot be read: {error}") from error


def sink_facts(settings: Settings) -> SinkFacts:
    """Return the merge job's liveness record and lock, as far as this machine sees them."""
    if len(settings.sinks) == 1:
        return facts_of_folder(settings.sink)
    reason = "the settings have several sinks" if settings.sinks else "the settings have no sink"
    return SinkFacts(unreadable=reason, has_sink=bool(settings.sinks))


def facts_of_folder(sink: SinkSettings) -> SinkFacts:
    """Return the same of one sink."""
    service, disk = Path(sink.service_path), full_disk(Path(sink.folder))
    try:
        sign = read_sign(service / "alive.json")
    except StateError as error:
        return SinkFacts(unreadable=str(error), disk=disk)
    is_here = sign is None or sign.machine == machine()  # a lock is known to the kernel that gave it
    return SinkFacts(sign=sign, locked=is_locked(service / "lock") if is_here else None, disk=disk)


def lock_holder(path: Path) -> int | None:
    """Return the number of the process that has locked a file; None if no process has, or the file cannot be opened.

    It is 0 or less for a process that has no number here: of another container, or of another machine. Nothing is locked.
    """
    lock = _lock_of(path)
    return None if lock is None or lock[0] == fcntl.F_UNLCK else lock[1]


def is_locked(path: Path) -> bool | None:
    """Return whether another process has locked a file; None if it does not exist, or cannot be opened."""
    lock = _lock_of(path)
    return None if lock is None else lock[0] != fcntl.F_UNLCK


def _lock_of(path: Path) -> tuple[int, int] | None:
    """Return the kind of the lock that another process has, and its number."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, holder = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, question))
    except OSError:
        return None
    finally:
        os.close(file)
    return int(kind), int(holder)


def full_disk(folder: Path) -> str:
    """Return that the disk of a folder is full, "" if it is not, or cannot be asked; the folder need not exist yet."""
    for there in (folder, *folder.parents):
        try:
            disk = os.statvfs(there)
        except FileNotFoundError:
            continue
        except OSError:
            return ""
        if disk.f_bavail * disk.f_frsize < _NO_ROOM:
            return f"the disk of {folder} is full"
        if disk.f_files and not disk.f_favail:
            return f"the disk of {folder} is full: it has no room for another file (inodes)"
        return ""
    return ""
