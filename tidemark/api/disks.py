"""The room on the disk of a folder, seen from outside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_NO_ROOM: Final = 1 << 20


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
