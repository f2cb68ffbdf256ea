"""Folders packed as small files for the repository, and unpacked as if they had been written just now."""

from __future__ import annotations

import lzma
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

_SEGMENT_BYTES = 1 << 20


def pack(folder: Path, archive: Path, names: Iterable[str] | None = None) -> None:
    """Write `folder`, or these files and folders of it, to a `tar.xz`: sorted, without owners and times."""
    with lzma.open(archive, "wb", preset=9 | lzma.PRESET_EXTREME) as compressed, tarfile.open(fileobj=compressed, mode="w") as tar:
        for name in sorted(names or (path.name for path in folder.iterdir())):
            for path in sorted([folder / name, *(folder / name).rglob("*")]):
                if path.is_file() or path.is_dir():  # no sockets
                    tar.add(path, str(path.relative_to(folder)), recursive=False, filter=_plain)


def unpack(archive: Path, folder: Path) -> None:
    """Restore a packed folder. All files are of this moment: servers and Delta delete what is old by its file's time."""
    with lzma.open(archive, "rb") as compressed, tarfile.open(fileobj=compressed, mode="r|") as tar:
        for member in tar:
            path = folder / member.name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None, member.name
            with path.open("wb") as file:
                shutil.copyfileobj(content, file, _SEGMENT_BYTES)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
